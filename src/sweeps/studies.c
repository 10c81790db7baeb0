/* SPDX-License-Identifier: Apache-2.0
 *
 * Studies: what the store holds about a problem on some silicon, also if that GPU is not here or the templates have
 * changed.
 *
 * Workload: a report reads them all, one after another: tens of studies of some hundred trials.
 *
 * Forgetting deletes studies that the caller selects, and says which other sources still have their winners.
 * Invariants: studies are chosen in the transaction that deletes them, so that nothing is deleted which was stored
 * later; no tune into the store runs meanwhile, because a tune relies on cubins that it found there. Lookups may
 * run: they read a winner with its cubin in one statement.
 */
#include "buf.h"
#include "catalogue.h"
#include "error.h"
#include "json.h"
#include "manifest.h"
#include "pool.h"
#include "model.h"
#include "problem.h"
#include "trial.h"
#include "request.h"
#include "session.h"
#include "source.h"
#include "store.h"
#include "stored.h"
#include "trials.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Scopes of the store as studies. */
struct study_list {
    fa_study *study;
    size_t count, capacity;
};

/* ---- studies --------------------------------------------------------------------------------*/
/* An fa_scope_visit: adds the scope's row to a study_list. */
static int add_study(void *context, const fa_scope *scope, int32_t trials, int64_t unix_time)
{
    struct study_list *list = context;
    fa_study study = {
        .size = sizeof study, .problem = scope->problem, .trials = trials, .unix_time = unix_time};
    snprintf(study.silicon, sizeof study.silicon, "%s", scope->silicon);
    snprintf(study.templates, sizeof study.templates, "%s", scope->templates);
    snprintf(study.policy, sizeof study.policy, "%s", scope->policy);
    return fa_append(&list->study, &list->count, &list->capacity, &study, sizeof study);
}

static bool is_silicon(const fa_gpu *gpu, const char *silicon)
{
    char text[FA_SILICON_MAX];
    fa_gpu_silicon(gpu, text);
    return strcmp(text, silicon) == 0;
}

/* For a study without a winner: sets the catalogue's GPU of its silicon. */
static void find_study_gpu(fa_study *study)
{
    for (int i = 0; i < fa_catalogue_count(); i++) {
        fa_gpu gpu;
        const char *refused;
        fa_catalogue_at(i, &gpu, &refused);
        if (is_silicon(&gpu, study->silicon)) {
            study->gpu = gpu;
            return;
        }
    }
    snprintf(study->gpu.name, sizeof study->gpu.name, "%.63s", study->silicon);
}

static bool is_named_by_device(const fa_study *study)
{
    return study->has_winner && (fa_origin_is_measured(study->winner.origin) ||
                                 study->winner.origin == FA_ORIGIN_IMPORTED);
}

/* A device calls itself "NVIDIA L4", the catalogue "L4". The device's name is taken for all studies of its silicon, so
 * that a list of GPUs has one entry for it. */
static void share_gpu_names(struct study_list *list)
{
    const fa_study *named = NULL;
    for (size_t i = 0; i < list->count; i++) {
        fa_study *study = &list->study[i];
        if (is_named_by_device(study))
            continue;
        if (named == NULL || strcmp(named->silicon, study->silicon) != 0) {
            named = NULL;
            for (size_t j = 0; j < list->count && named == NULL; j++)
                if (is_named_by_device(&list->study[j]) &&
                    strcmp(list->study[j].silicon, study->silicon) == 0)
                    named = &list->study[j];
        }
        if (named != NULL)
            memcpy(study->gpu.name, named->gpu.name, sizeof study->gpu.name);
    }
}

static int scope_of_study(const fa_study *study, fa_scope *ret_scope, fa_diag *diag)
{
    fa_scope scope = {.problem = study->problem};
    if (memchr(study->silicon, 0, sizeof study->silicon) == NULL ||
        memchr(study->templates, 0, sizeof study->templates) == NULL ||
        memchr(study->policy, 0, sizeof study->policy) == NULL)
        return fa_fail(diag, FA_EINVAL, "the study's texts do not end");
    memcpy(scope.silicon, study->silicon, sizeof scope.silicon);
    memcpy(scope.templates, study->templates, sizeof scope.templates);
    memcpy(scope.policy, study->policy, sizeof scope.policy);
    *ret_scope = scope;
    return 0;
}

static bool is_of_templates(const fa_templates *templates, const fa_study *study)
{
    return fa_templates_match(templates, &study->problem, study->templates);
}

/* Whether it was made from other templates than this session's and the built-in ones. */
static int is_stale(const fa_tuner *tuner, const fa_study *study, bool *ret_stale, fa_diag *diag)
{
    fa_templates *builtin = NULL;
    bool found = is_of_templates(fa_templates_for(tuner, &study->problem), study);
    if (!found && !fa_templates_is_builtin(tuner->templates)) {
        int rc = fa_templates_open(NULL, &builtin, diag);
        if (rc != 0)
            return rc;
        found = is_of_templates(builtin, study);
        fa_templates_close(&builtin);
    }
    *ret_stale = !found || strcmp(study->policy, FA_MEASURE_POLICY) != 0;
    return 0;
}

/* Adds the winner, the GPU and whether the templates are current. The caller holds `work`. */
static int complete_study(fa_tuner *tuner, fa_study *study, fa_diag *diag)
{
    fa_scope scope;
    fa_winner_record winner = {0};
    int rc = scope_of_study(study, &scope, diag);
    if (rc == 0)
        rc = fa_store_winner_get(tuner->store, &scope, &winner, NULL, diag);
    if (rc == 0) {
        study->has_winner = true;
        rc = fa_records_answer(&winner, NULL, &study->winner, diag);
        study->gpu = study->winner.gpu;
        if (winner.unix_time > study->unix_time)
            study->unix_time = winner.unix_time;
        fa_winner_record_free(&winner);
        if (rc != 0)
            return rc;
    } else if (rc != FA_ENOTFOUND && rc != FA_ECORRUPT) {
        return rc;
    }
    if (study->gpu.sm == 0) {
        char name[sizeof study->gpu.name];
        memcpy(name, study->gpu.name, sizeof name);
        find_study_gpu(study);
        if (name[0] != 0)
            memcpy(study->gpu.name, name, sizeof name);
    }
    study->current = is_of_templates(fa_templates_for(tuner, &study->problem), study) &&
                     is_silicon(&study->gpu, study->silicon) &&
                     strcmp(study->policy, FA_MEASURE_POLICY) == 0;
    return is_stale(tuner, study, &study->stale, diag);
}

/* Whether lists show it: scopes without a winner and without trials are left out. */
static bool is_listed(const fa_study *study)
{
    return study->has_winner || study->trials > 0;
}

int fa_list_studies(fa_tuner *tuner, fa_study_visit *visit, void *context, fa_diag *diag)
{
    struct study_list list = {0};
    int rc = fa_tuner_check_with(tuner, visit != NULL, "visit", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_scopes_each(tuner->store, add_study, &list, diag);
    if (rc == FA_ENOMEM)
        fa_fail(diag, rc, "out of memory after %zu studies", list.count);
    for (size_t i = 0; i < list.count && rc == 0; i++)
        rc = complete_study(tuner, &list.study[i], diag);
    pthread_mutex_unlock(&tuner->work);
    share_gpu_names(&list);
    for (size_t i = 0; i < list.count && rc == 0; i++)
        if (is_listed(&list.study[i]))
            rc = visit(context, &list.study[i]);
    free(list.study);
    return rc;
}

/* ---- trials ---------------------------------------------------------------------------------*/
struct trial_list {
    fa_study_trial *trial; /* owns the texts and samples that are pointed to */
    size_t count, capacity;
};

static fa_study_trial *add_row(struct trial_list *list)
{
    const fa_study_trial row = {0};
    return fa_append(&list->trial, &list->count, &list->capacity, &row, sizeof row) == 0
               ? &list->trial[list->count - 1]
               : NULL;
}

static void free_trial_list(struct trial_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free((void *)(uintptr_t)list->trial[i].samples_us);
        free((void *)(uintptr_t)list->trial[i].environment);
        free((void *)(uintptr_t)list->trial[i].clocks);
    }
    free(list->trial);
    *list = (struct trial_list){0};
}

static int add_tried_config(void *context, const fa_trial_record *record)
{
    fa_study_trial *kept = add_row(context);
    if (kept == NULL)
        return FA_ENOMEM;
    size_t size = (size_t)record->sample_count * sizeof(float);
    float *samples = size > 0 ? malloc(size) : NULL;
    if (size > 0 && samples != NULL)
        memcpy(samples, record->samples_us, size);
    kept->trial = record->trial;
    kept->tried = true;
    kept->samples_us = samples;
    kept->sample_count = record->sample_count;
    kept->environment = record->environment != NULL ? strdup(record->environment) : NULL;
    kept->clocks = record->clocks != NULL ? strdup(record->clocks) : NULL;
    kept->seed = record->seed;
    kept->unix_time = record->unix_time;
    memcpy(kept->cubin_key, record->cubin_key, sizeof kept->cubin_key);
    bool lost = (size > 0 && samples == NULL) ||
                (record->environment != NULL && kept->environment == NULL) ||
                (record->clocks != NULL && kept->clocks == NULL);
    return lost ? FA_ENOMEM : 0;
}

/* Adds the trials that were imported with a winner. The winner's own trial is the one it is stored with. */
static int add_brought_configs(fa_tuner *tuner, const fa_study *study, const fa_scope *scope,
                               struct trial_list *list, fa_diag *diag)
{
    fa_winner_record winner = {0};
    fa_trial_list brought = {0};
    int rc = fa_store_winner_get(tuner->store, scope, &winner, NULL, diag);
    if (rc == FA_ENOTFOUND || rc == FA_ECORRUPT)
        return 0;
    if (rc == 0)
        rc = fa_trial_list_from_evidence(winner.evidence, &brought, diag);
    for (size_t i = 0; rc == 0 && i < brought.count; i++) {
        fa_trial_record *record = &brought.record[i];
        record->unix_time = winner.unix_time;
        if (fa_config_equal(&record->trial.config, &study->winner.trial.config)) {
            record->trial = study->winner.trial;
            record->trial.compile_ms = 0; /* not here */
            memcpy(record->cubin_key, winner.cubin_key, sizeof record->cubin_key);
        }
        rc = add_tried_config(list, record);
    }
    fa_trial_list_free(&brought);
    fa_winner_record_free(&winner);
    return rc;
}

/* Equal for equal configs, whatever the order of their tunables. */
static int64_t digest_config(const fa_config *config)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < config->count; i++)
        sum += (int64_t)config->tunable[i].value * config->tunable[i].name[0];
    return sum;
}

/* Marks the default among the configs on record; false: this candidate is not on record. */
static bool mark_if_on_record(struct trial_list *list, const int64_t *digests, size_t tried,
                              const fa_candidate *candidate)
{
    int64_t wanted = digest_config(&candidate->trial.config);
    for (size_t i = 0; i < tried; i++) {
        fa_study_trial *known = &list->trial[i];
        if (digests[i] != wanted ||
            !fa_config_equal(&known->trial.config, &candidate->trial.config))
            continue;
        known->is_default = candidate->is_default;
        return true;
    }
    return false;
}

/* Adds the configs of the space that are not on record. If the space cannot be enumerated any more, the study has
 * the configs on record alone. */
static int add_untried_configs(fa_tuner *tuner, const fa_study *study, struct trial_list *list)
{
    fa_space space = {0};
    size_t tried = list->count;
    int rc = fa_tuner_families(tuner, NULL);
    fa_task task = fa_task_for(tuner, &study->problem, &study->gpu);
    if (rc == 0)
        rc = fa_space_enumerate(&task, &space, NULL);
    if (rc != 0)
        return rc == FA_ENOMEM || rc == FA_EIO ? rc : 0;
    int64_t *digests = calloc(tried + 1, sizeof *digests);
    rc = digests == NULL ? FA_ENOMEM : 0;
    for (size_t i = 0; i < tried && rc == 0; i++)
        digests[i] = digest_config(&list->trial[i].trial.config);
    for (int i = 0; i < space.count && rc == 0; i++) {
        fa_candidate *candidate = &space.candidate[i];
        if (mark_if_on_record(list, digests, tried, candidate))
            continue;
        if (candidate->trial.status == FA_STATUS_PENDING)
            fa_model_predict(candidate, &study->problem, &study->gpu, &candidate->trial);
        fa_study_trial *added = add_row(list);
        rc = added == NULL ? FA_ENOMEM : 0;
        if (added != NULL) {
            added->trial = candidate->trial;
            added->is_default = candidate->is_default;
        }
    }
    free(digests);
    fa_space_free(&space);
    return rc;
}

static int compare_rows(const void *a, const void *b)
{
    return fa_trial_compare_ends(&((const fa_study_trial *)a)->trial,
                                 &((const fa_study_trial *)b)->trial);
}

static void rank_rows(const fa_study *study, struct trial_list *list)
{
    qsort(list->trial, list->count, sizeof *list->trial, compare_rows);
    for (size_t i = 1; study->has_winner && i < list->count; i++) {
        fa_study_trial chosen = list->trial[i];
        if (!fa_config_equal(&chosen.trial.config, &study->winner.trial.config))
            continue;
        if (fa_trial_finished(&chosen.trial)) {
            memmove(&list->trial[1], &list->trial[0], i * sizeof chosen);
            list->trial[0] = chosen;
        }
        break;
    }
    for (size_t i = 0; i < list->count && fa_trial_finished(&list->trial[i].trial); i++)
        list->trial[i].rank = (int32_t)i + 1;
}

/* All that is on record of a study, and the rest of its space. */
static int read_study(fa_tuner *tuner, const fa_study *study, const fa_scope *scope,
                      struct trial_list *list, fa_diag *diag)
{
    int rc;
    if ((rc = fa_store_trials_each(tuner->store, scope, add_tried_config, list, diag)) != 0 ||
        (list->count == 0 && study->has_winner &&
         (rc = add_brought_configs(tuner, study, scope, list, diag)) != 0))
        return rc;
    return study->current ? add_untried_configs(tuner, study, list) : 0;
}

int fa_list_study_trials(fa_tuner *tuner, const fa_study *study, fa_study_trial_visit *visit,
                         void *context, fa_diag *diag)
{
    struct trial_list list = {0};
    fa_scope scope;
    int rc = fa_tuner_check(tuner, diag);
    if (rc != 0)
        return rc;
    if (study == NULL || visit == NULL || study->size != sizeof *study)
        return fa_fail(diag, FA_EINVAL,
                       "study or visit is NULL, or the study is none of fa_list_studies");
    rc = scope_of_study(study, &scope, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = read_study(tuner, study, &scope, &list, diag);
    pthread_mutex_unlock(&tuner->work);
    if (rc == FA_ENOMEM)
        fa_fail(diag, rc, "out of memory after %zu configs of a study", list.count);
    if (rc == 0 && list.count > 0)
        rank_rows(study, &list);
    for (size_t i = 0; i < list.count && rc == 0; i++)
        rc = visit(context, &list.trial[i]);
    free_trial_list(&list);
    return rc;
}

/* ---- forgetting -----------------------------------------------------------------------------*/
enum { WAIT_MS = 10000 };

struct forgetting {
    fa_tuner *tuner;
    const fa_forget_options *options;
    bool dry_run;
    struct study_list list;   /* those that go, from choose_studies() on */
    struct study_list unread; /* the same of problems that cannot be read; owns their texts */
    int64_t *unread_id;
    size_t id_capacity;
    fa_store_forgotten counts;
};

static void free_lists(struct forgetting *f)
{
    for (size_t i = 0; i < f->unread.count; i++)
        free((void *)(uintptr_t)f->unread.study[i].unread);
    free(f->unread.study);
    free(f->unread_id);
    free(f->list.study);
    f->list = f->unread = (struct study_list){0};
    f->unread_id = NULL;
    f->id_capacity = 0;
}

static int ask_select(const fa_forget_options *options, const fa_study *study)
{
    if (options->select == NULL)
        return 1;
    fa_callback_begin("select");
    int goes = options->select(options->context, study);
    fa_callback_end();
    return goes;
}

static int choose_studies(struct forgetting *f, fa_diag *diag)
{
    struct study_list *list = &f->list;
    int rc = fa_store_scopes_each(f->tuner->store, add_study, list, diag);
    if (rc == FA_ENOMEM)
        fa_fail(diag, rc, "out of memory after %zu studies", list->count);
    size_t kept = 0;
    for (size_t i = 0; i < list->count && rc == 0; i++) {
        fa_study study = list->study[i];
        rc = complete_study(f->tuner, &study, diag);
        int goes = rc != 0 ? 1 : ask_select(f->options, &study);
        if (goes < 0)
            rc = goes;
        else if (rc == 0 && goes != 0)
            list->study[kept++] = study;
    }
    list->count = kept;
    return rc;
}

/* A problem of an unknown operation is stale, because its templates are not here. Problems of attention that a
 * newer library has written are not stale, and neither are damaged rows. */
static bool is_of_absent_templates(const char *problem)
{
    cJSON *json = NULL;
    if (fa_json_parse(problem, strlen(problem), "problem", &json, NULL) != 0)
        return false;
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(json, "operation");
    bool is = cJSON_IsString(name) && strcmp(name->valuestring, fa_operation_of(NULL)->name) != 0;
    cJSON_Delete(json);
    return is;
}

/* An fa_unread_scope_visit: keeps the scopes that the caller selects. */
static int choose_unread(void *context, const fa_unread_scope *scope)
{
    struct forgetting *f = context;
    struct study_list *list = &f->unread;
    fa_study study = {.size = sizeof study,
                      .trials = scope->trials,
                      .unix_time = scope->unix_time,
                      .has_winner = scope->gpu != NULL,
                      .stale = is_of_absent_templates(scope->problem),
                      .unread = scope->problem};
    snprintf(study.silicon, sizeof study.silicon, "%s", scope->silicon);
    find_study_gpu(&study);
    if (scope->gpu != NULL)
        snprintf(study.gpu.name, sizeof study.gpu.name, "%s", scope->gpu);
    int goes = ask_select(f->options, &study);
    if (goes <= 0)
        return goes;
    fa_study *grown = fa_grow(list->study, &list->capacity, list->count, sizeof *grown);
    if (grown != NULL)
        list->study = grown;
    int64_t *ids = fa_grow(f->unread_id, &f->id_capacity, list->count, sizeof *ids);
    if (ids != NULL)
        f->unread_id = ids;
    study.unread = grown != NULL && ids != NULL ? strdup(scope->problem) : NULL;
    if (study.unread == NULL)
        return FA_ENOMEM;
    ids[list->count] = scope->id;
    grown[list->count++] = study;
    return 0;
}

/* With a store that is read-only or in a batch of it. */
static int forget_studies(void *context, fa_diag *diag)
{
    struct forgetting *f = context;
    int rc = choose_studies(f, diag);
    if (rc == 0)
        rc = fa_store_unread_scopes_each(f->tuner->store, choose_unread, f, diag);
    if (rc != 0)
        return rc == FA_ENOMEM ? fa_fail(diag, rc, "out of memory for studies that go") : rc;
    fa_scope *scopes = calloc(f->list.count + 1, sizeof *scopes);
    if (scopes == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for %zu studies", f->list.count);
    for (size_t i = 0; i < f->list.count && rc == 0; i++)
        rc = scope_of_study(&f->list.study[i], &scopes[i], diag);
    const fa_forget_scopes which = {f->options->select != NULL ? scopes : NULL, f->list.count,
                                    f->unread_id, f->unread.count, f->dry_run};
    if (rc == 0)
        rc = fa_store_forget(f->tuner->store, &which, &f->counts, diag);
    free(scopes);
    return rc;
}

static int forget_alone(struct forgetting *f, int64_t *ret_freed, fa_diag *diag)
{
    fa_tuner *tuner = f->tuner;
    fa_lock *lock = NULL;
    fa_diag why = {{0}};
    int rc = fa_callback_check(diag);
    if (rc != 0)
        return rc;
    const uint64_t until = fa_clock_ns() + (uint64_t)WAIT_MS * 1000000;
    while ((rc = fa_store_lock(tuner->store, FA_TUNES_LOCK, false, &lock, diag)) == FA_EBUSY &&
           fa_clock_ns() < until) {
        fa_tuner_pause(tuner); /* a tune of this process may be under way, too */
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        fa_tuner_resume(tuner);
    }
    if (rc == FA_EBUSY)
        return fa_fail(
            diag, FA_EBUSY,
            "a tune into the store %s is under way: wait for its end, or stop it (what it has "
            "tried is kept), and try again",
            tuner->store_path);
    if (rc == 0)
        rc = fa_store_batch(tuner->store, forget_studies, f, diag);
    if (rc == FA_EFULL) {
        free_lists(f);
        fa_store_use_no_space(tuner->store, true);
        rc = fa_store_batch(tuner->store, forget_studies, f, diag);
    }
    if (rc == 0 && f->counts.bytes > 0 && fa_store_shrink(tuner->store, ret_freed, &why) != 0)
        fa_note(tuner, "what was to be forgotten is, but the file stays as large as it was: %s",
                why.text);
    fa_store_use_no_space(tuner->store, false);
    fa_lock_release(&lock);
    return rc;
}

/* ---- who else has them ----------------------------------------------------------------------*/
static int is_for_study(void *context, const fa_winner_record *winner)
{
    const fa_study *study = context;
    return strcmp(winner->scope.silicon, study->silicon) == 0 &&
           fa_problem_equal(&winner->scope.problem, &study->problem);
}

/* Counts the winners that another source has too. */
static int64_t count_elsewhere(struct forgetting *f)
{
    int64_t count = 0;
    for (size_t i = 0; i < f->list.count; i++) {
        fa_study *study = &f->list.study[i];
        count += study->has_winner &&
                 f->tuner->system->each(f->tuner, &study->problem, is_for_study, study) != 0;
    }
    return count;
}

int fa_forget(fa_tuner *tuner, const fa_forget_options *options, fa_forgotten *ret_forgotten,
              fa_diag *diag)
{
    fa_forget_options known;
    int rc = fa_tuner_check(tuner, diag);
    if (rc == 0)
        rc = fa_copy_sized(&known, sizeof known, options,
                           "options.size is not sizeof(fa_forget_options)", diag);
    if (rc != 0)
        return rc;
    struct forgetting f = {.tuner = tuner, .options = &known, .dry_run = known.dry_run};
    fa_forgotten forgotten = {0};
    pthread_mutex_lock(&tuner->work);
    /* Where there is no store there is nothing to forget. */
    f.dry_run = f.dry_run || fa_store_is_absent(tuner->store);
    if (f.dry_run)
        rc = forget_studies(&f, diag);
    else if (fa_store_is_read_only(tuner->store))
        rc = fa_fail(diag, FA_EREADONLY, "the store %s cannot be written: nothing is forgotten",
                     tuner->store_path);
    else
        rc = forget_alone(&f, &forgotten.freed, diag);
    if (rc == 0)
        forgotten.elsewhere = count_elsewhere(&f);
    pthread_mutex_unlock(&tuner->work);
    forgotten.winners = f.counts.winners;
    forgotten.trials = f.counts.trials;
    forgotten.cubins = f.counts.cubins;
    forgotten.bytes = f.counts.bytes;
    if (rc == 0 && ret_forgotten != NULL)
        *ret_forgotten = forgotten;
    for (size_t i = 0; i < f.list.count && rc == 0 && known.visit != NULL; i++)
        if (is_listed(&f.list.study[i]))
            rc = known.visit(known.context, &f.list.study[i]);
    for (size_t i = 0; i < f.unread.count && rc == 0 && known.visit != NULL; i++)
        if (is_listed(&f.unread.study[i]))
            rc = known.visit(known.context, &f.unread.study[i]);
    free_lists(&f);
    return rc;
}
