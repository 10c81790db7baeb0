/* SPDX-License-Identifier: Apache-2.0
 *
 * Studies: what the store holds about a problem on some silicon, also if that GPU is not here or the templates have
 * changed.
 *
 * Workload: a report reads them all, one after another: tens of studies of some hundred trials.
 *
 * Forgetting deletes studies that the caller has listed, and says which other sources still have their winners.
 * Invariants: a study to which something was stored since it was listed stays; no tune into the store runs meanwhile,
 * because a tune relies on cubins that it found there. Lookups may run: they read a winner with its cubin in one
 * statement.
 */
#include "buf.h"
#include "catalogue.h"
#include "error.h"
#include "manifest.h"
#include "pool.h"
#include "model.h"
#include "problem.h"
#include "trial.h"
#include "session.h"
#include "store.h"
#include "lookup.h"
#include "trials.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool is_silicon(const fa_gpu *gpu, const char *silicon)
{
    char text[FA_SILICON_MAX];
    fa_gpu_silicon(gpu, text);
    return strcmp(text, silicon) == 0;
}

/* Sets the catalogue's GPU of its silicon; it is called by `name`, where that is known, or by its silicon. */
static void find_study_gpu(fa_study *study, const char *name)
{
    const char *refused;
    snprintf(study->gpu.name, sizeof study->gpu.name, "%.63s", study->silicon);
    for (int i = 0; i < fa_catalogue_count() && study->gpu.sm == 0; i++) {
        fa_gpu gpu;
        fa_catalogue_at(i, &gpu, &refused);
        if (is_silicon(&gpu, study->silicon))
            study->gpu = gpu;
    }
    if (name != NULL && name[0] != 0)
        snprintf(study->gpu.name, sizeof study->gpu.name, "%s", name);
}

static bool is_named_by_device(const fa_study *study)
{
    return study->has_winner && (fa_origin_is_measured(study->winner.origin) ||
                                 study->winner.origin == FA_ORIGIN_IMPORTED);
}

/* A device calls itself "NVIDIA L4", the catalogue "L4". The device's name is taken for all studies of its silicon, so
 * that a list of GPUs has one entry for it. */
static void share_gpu_names(fa_study *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count && !is_named_by_device(&all[i]); j++)
            if (is_named_by_device(&all[j]) && strcmp(all[j].silicon, all[i].silicon) == 0) {
                memcpy(all[i].gpu.name, all[j].gpu.name, sizeof all[i].gpu.name);
                break;
            }
}

/* The caller holds `work`. */
static int read_study(fa_tuner *tuner, const fa_scope_row *row, fa_study *study, fa_diag *diag)
{
    fa_winner_record winner = {0};
    *study = (fa_study){.size = sizeof *study,
                        .id = row->id,
                        .problem = row->scope.problem,
                        .trials = row->trials,
                        .unix_time = row->unix_time,
                        .unread = row->unread};
    memcpy(study->silicon, row->scope.silicon, sizeof row->scope.silicon);
    memcpy(study->templates, row->scope.templates, sizeof row->scope.templates);
    memcpy(study->policy, row->scope.policy, sizeof row->scope.policy);
    if (row->unread != NULL) {
        study->has_winner = row->gpu != NULL;
        find_study_gpu(study, row->gpu);
        return 0;
    }
    int rc = fa_store_winner_get(tuner->store, &row->scope, &winner, NULL, diag);
    study->has_winner = rc == 0;
    if (rc == 0) {
        rc = fa_records_answer(&winner, NULL, &study->winner, diag);
        study->gpu = study->winner.gpu;
        fa_winner_record_free(&winner);
    }
    if (rc != 0 && rc != FA_ENOTFOUND && rc != FA_ECORRUPT)
        return rc;
    if (study->gpu.sm == 0)
        find_study_gpu(study, study->winner.gpu.name);
    study->current = fa_templates_match(fa_templates_for(tuner, &study->problem), &study->problem,
                                        study->templates) &&
                     is_silicon(&study->gpu, study->silicon) &&
                     strcmp(study->policy, FA_MEASURE_POLICY) == 0;
    return 0;
}

/* The caller holds `work`. */
static int list_studies(fa_tuner *tuner, fa_study **ret_studies, size_t *ret_count, fa_diag *diag)
{
    static const size_t pointers[] = {offsetof(fa_study, unread), SIZE_MAX};
    fa_list list = {0};
    fa_scope_row *row = NULL;
    size_t rows = 0;
    int rc = fa_store_scopes(tuner->store, &row, &rows, diag);
    for (size_t i = 0; rc == 0 && i < rows; i++) {
        fa_study study;
        rc = read_study(tuner, &row[i], &study, diag);
        study.unread = fa_list_keep_text(&list, study.unread);
        if (study.has_winner || study.trials > 0)
            fa_list_add(&list, &study, sizeof study);
    }
    free(row);
    rc = fa_list_end(&list, rc, pointers, ret_studies, ret_count, diag);
    if (rc == 0)
        share_gpu_names(*ret_studies, *ret_count);
    return rc;
}

int fa_list_studies(fa_tuner *tuner, fa_study **ret_studies, size_t *ret_count, fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, ret_studies != NULL && ret_count != NULL,
                                 "ret_studies or ret_count", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = list_studies(tuner, ret_studies, ret_count, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

/* ---- trials ---------------------------------------------------------------------------------*/
/* The trials that were imported with a winner. The winner's own trial is the one it is stored with. */
static int read_brought(fa_tuner *tuner, const fa_study *study, const fa_scope *scope,
                        fa_study_trial **ret_record, size_t *ret_count, fa_diag *diag)
{
    fa_winner_record winner = {0};
    int rc = fa_store_winner_get(tuner->store, scope, &winner, NULL, diag);
    if (rc == FA_ENOTFOUND || rc == FA_ECORRUPT)
        return 0;
    if (rc == 0)
        rc = fa_trials_from_evidence(winner.evidence, ret_record, ret_count, diag);
    for (size_t i = 0; rc == 0 && i < *ret_count; i++) {
        fa_study_trial *record = &(*ret_record)[i];
        record->unix_time = winner.unix_time;
        if (fa_config_equal(&record->trial.config, &study->winner.trial.config)) {
            record->trial = study->winner.trial;
            record->trial.compile_ms = 0; /* not here */
            memcpy(record->cubin_key, winner.cubin_key, sizeof record->cubin_key);
        }
    }
    fa_winner_record_free(&winner);
    return rc;
}

static fa_study_trial *rows_of(fa_list *list)
{
    return (fa_study_trial *)(void *)list->records.data;
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
static bool mark_if_on_record(fa_study_trial *row, const int64_t *digests, size_t tried,
                              const fa_candidate *candidate)
{
    int64_t wanted = digest_config(&candidate->trial.config);
    for (size_t i = 0; i < tried; i++) {
        if (digests[i] != wanted ||
            !fa_config_equal(&row[i].trial.config, &candidate->trial.config))
            continue;
        row[i].is_default = candidate->is_default;
        return true;
    }
    return false;
}

/* Adds the configs of the space that are not on record. If the space cannot be enumerated any more, the study has
 * the configs on record alone. */
static int add_untried_configs(fa_tuner *tuner, const fa_study *study, fa_list *list)
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
    rc = digests == NULL || list->records.failed ? FA_ENOMEM : 0;
    for (size_t i = 0; i < tried && rc == 0; i++)
        digests[i] = digest_config(&rows_of(list)[i].trial.config);
    for (int i = 0; i < space.count && rc == 0; i++) {
        fa_candidate *candidate = &space.candidate[i];
        if (list->records.failed || mark_if_on_record(rows_of(list), digests, tried, candidate))
            continue;
        if (candidate->trial.status == FA_STATUS_PENDING)
            fa_model_predict(candidate, &study->problem, &study->gpu, &candidate->trial);
        const fa_study_trial added = {.trial = candidate->trial,
                                      .is_default = candidate->is_default};
        fa_list_add(list, &added, sizeof added);
    }
    free(digests);
    fa_space_free(&space);
    return rc;
}

static int compare_rows(const void *a, const void *b)
{
    return fa_trial_compare(&((const fa_study_trial *)a)->trial,
                            &((const fa_study_trial *)b)->trial);
}

static void rank_rows(const fa_study *study, fa_study_trial *row, size_t count)
{
    qsort(row, count, sizeof *row, compare_rows);
    for (size_t i = 1; study->has_winner && i < count; i++) {
        const fa_study_trial chosen = row[i];
        if (!fa_config_equal(&chosen.trial.config, &study->winner.trial.config))
            continue;
        if (fa_trial_finished(&chosen.trial)) {
            memmove(&row[1], &row[0], i * sizeof chosen);
            row[0] = chosen;
        }
        break;
    }
    for (size_t i = 0; i < count && fa_trial_finished(&row[i].trial); i++)
        row[i].rank = (int32_t)i + 1;
}

int fa_list_study_trials(fa_tuner *tuner, const fa_study *study, fa_study_trial **ret_trials,
                         size_t *ret_count, fa_diag *diag)
{
    fa_list list = {0};
    fa_study_trial *record = NULL;
    size_t count = 0;
    int rc = fa_tuner_check_with(tuner, ret_trials != NULL && ret_count != NULL,
                                 "ret_trials or ret_count", diag);
    if (rc != 0)
        return rc;
    if (study == NULL || study->size != sizeof *study || study->unread != NULL)
        return fa_fail(diag, FA_EINVAL,
                       "study is NULL, none of fa_list_studies, or one whose problem is not known");
    fa_scope scope = {.problem = study->problem};
    memcpy(scope.silicon, study->silicon, sizeof scope.silicon);
    memcpy(scope.templates, study->templates, sizeof scope.templates);
    memcpy(scope.policy, study->policy, sizeof scope.policy);
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_trials(tuner->store, &scope, &record, &count, diag);
    if (rc == 0 && count == 0 && study->has_winner)
        rc = read_brought(tuner, study, &scope, &record, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++)
        fa_trials_add(&list, &record[i]);
    if (rc == 0 && study->current)
        rc = add_untried_configs(tuner, study, &list);
    pthread_mutex_unlock(&tuner->work);
    if (rc == FA_ENOMEM)
        fa_fail(diag, rc, "out of memory after %zu configs of a study", list.count);
    if (rc == 0 && list.count > 0 && !list.records.failed)
        rank_rows(study, rows_of(&list), list.count);
    free(record);
    return fa_trials_end(&list, rc, ret_trials, ret_count, diag);
}

/* ---- baselines: what others' kernels take ---------------------------------------------------*/
int fa_list_baselines(fa_tuner *tuner, fa_baseline **ret_baselines, size_t *ret_count,
                      fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, ret_baselines != NULL && ret_count != NULL,
                                 "ret_baselines or ret_count", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_baselines(tuner->store, ret_baselines, ret_count, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

bool fa_baseline_concerns(const fa_baseline *baseline, const fa_answer *answer)
{
    fa_gpu gpu;
    if (!fa_problem_equal(&answer->problem, &baseline->problem)) /* as nearly all are not */
        return false;
    const char *here =
        fa_catalogue_find(answer->gpu.name, &gpu, NULL) == 0 ? gpu.name : answer->gpu.name;
    return strcmp(baseline->gpu_name, here) == 0;
}

/* ---- forgetting -----------------------------------------------------------------------------*/
enum { WAIT_MS = 10000 };

/* Whether the row is the study's, and as it was listed. */
static bool is_row_of(const fa_scope_row *row, const fa_study *study)
{
    return row->id == study->id && row->trials == study->trials &&
           row->unix_time == study->unix_time;
}

/* With a store that is read-only or in a change of it. The studies that go come first, *count of them; count NULL:
 * everything goes. */
static int forget_studies(fa_tuner *tuner, fa_study *studies, size_t *count, bool dry_run,
                          fa_forgotten *ret_forgotten, fa_diag *diag)
{
    fa_scope_row *row = NULL;
    size_t rows = 0, left = 0;
    if (count == NULL)
        return fa_store_forget(tuner->store, &(fa_forget_scopes){.dry_run = dry_run}, ret_forgotten,
                               diag);
    int rc = fa_store_scopes(tuner->store, &row, &rows, diag);
    int64_t *ids = rc == 0 ? calloc(*count + 1, sizeof *ids) : NULL;
    if (rc == 0 && ids == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for %zu studies", *count);
    for (size_t i = 0; rc == 0 && i < *count; i++)
        for (size_t k = 0; k < rows; k++)
            if (is_row_of(&row[k], &studies[i])) {
                const fa_study moved = studies[left];
                studies[left] = studies[i];
                studies[i] = moved;
                ids[left++] = row[k].id;
                break;
            }
    *count = left;
    if (rc == 0)
        rc = fa_store_forget(tuner->store, &(fa_forget_scopes){ids, left, dry_run}, ret_forgotten,
                             diag);
    free(ids);
    free(row);
    return rc;
}

static int forget_alone(fa_tuner *tuner, fa_study *studies, size_t *count,
                        fa_forgotten *ret_forgotten, fa_diag *diag)
{
    fa_lock *lock = NULL;
    fa_diag why = {{0}};
    const size_t listed = count != NULL ? *count : 0;
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
    for (int full = 0; rc == 0 && full < 2; full++) {
        fa_change change = {.store = tuner->store, .diag = diag};
        fa_store_use_no_space(tuner->store, full > 0);
        while (fa_store_change(&change)) {
            if (count != NULL)
                *count = listed;
            change.rc = forget_studies(tuner, studies, count, false, ret_forgotten, diag);
        }
        rc = change.rc;
        if (rc != FA_EFULL || full > 0)
            break;
        rc = 0;
    }
    if (rc == 0 && ret_forgotten->bytes > 0 &&
        fa_store_shrink(tuner->store, &ret_forgotten->freed, &why) != 0)
        fa_note(tuner, "what was to be forgotten is, but the file stays as large as it was: %s",
                why.text);
    fa_store_use_no_space(tuner->store, false);
    fa_lock_release(&lock);
    return rc;
}

int fa_forget(fa_tuner *tuner, fa_study *studies, size_t *count, bool dry_run,
              fa_forgotten *ret_forgotten, fa_diag *diag)
{
    fa_forgotten forgotten = {0};
    int rc = fa_tuner_check_with(tuner, count == NULL || *count == 0 || studies != NULL, "studies",
                                 diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    /* Where there is no store there is nothing to forget. */
    if (dry_run || fa_store_is_absent(tuner->store))
        rc = forget_studies(tuner, studies, count, true, &forgotten, diag);
    else if (fa_store_is_read_only(tuner->store))
        rc = fa_fail(diag, FA_EREADONLY, "the store %s cannot be written: nothing is forgotten",
                     tuner->store_path);
    else
        rc = forget_alone(tuner, studies, count, &forgotten, diag);
    pthread_mutex_unlock(&tuner->work);
    if (rc == 0 && ret_forgotten != NULL)
        *ret_forgotten = forgotten;
    return rc;
}
