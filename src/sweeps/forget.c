/* SPDX-License-Identifier: Apache-2.0
 *
 * Forgetting what tuning has stored: which studies are asked about, what goes with them, and who else
 * still has their winners.
 *
 * Invariants: studies are chosen in the transaction that deletes them, so that nothing goes which was stored
 * after it was chosen; no tune into the store is under way meanwhile, because a tune relies on cubins that it
 * found there. Lookups need no such care: they read a winner with its cubin in one statement.
 */
#include "request.h"
#include "studies.h"

#include "buf.h"
#include "error.h"
#include "json.h"
#include "problem.h"
#include "source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 10000 };

struct forgetting {
    fa_tuner *tuner;
    const fa_forget_options *options;
    bool dry_run;
    fa_study_list list;   /* those that go, from choose_studies() on */
    fa_study_list unread; /* the same of problems that cannot be read; owns their texts */
    int64_t *unread_id;
    size_t id_capacity;
    fa_store_forgotten counts;
};

static int choose_studies(struct forgetting *f, fa_diag *diag)
{
    const fa_forget_options *options = f->options;
    fa_study_list *list = &f->list;
    int rc = fa_store_scopes_each(f->tuner->store, fa_study_list_add, list, diag);
    if (rc == FA_ENOMEM)
        fa_fail(diag, rc, "out of memory after %zu studies", list->count);
    size_t kept = 0;
    for (size_t i = 0; i < list->count && rc == 0; i++) {
        fa_study study = list->study[i];
        rc = fa_study_complete(f->tuner, true, &study, diag);
        if (rc == 0 && (options->select == NULL || options->select(options->context, &study)))
            list->study[kept++] = study;
    }
    list->count = kept;
    return rc;
}

/* Another operation than the built-in one is stale: templates that make it would have made it known. A newer
 * library's attention is not, and neither is a damaged row, of which nothing is known. */
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

/* An fa_unread_scope_visit: keeps those that are asked for. */
static int choose_unread(void *context, const fa_unread_scope *scope)
{
    struct forgetting *f = context;
    fa_study_list *list = &f->unread;
    fa_study study = {.size = sizeof study,
                      .trials = scope->trials,
                      .unix_time = scope->unix_time,
                      .has_winner = scope->gpu != NULL,
                      .stale = is_of_absent_templates(scope->problem),
                      .unread = scope->problem};
    snprintf(study.silicon, sizeof study.silicon, "%s", scope->silicon);
    fa_study_find_gpu(&study);
    if (scope->gpu != NULL)
        snprintf(study.gpu.name, sizeof study.gpu.name, "%s", scope->gpu);
    if (f->options->select != NULL && !f->options->select(f->options->context, &study))
        return 0;
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
    if (rc == FA_ENOMEM)
        fa_fail(diag, rc, "out of memory for studies that go");
    fa_scope *scopes = rc == 0 ? calloc(f->list.count + 1, sizeof *scopes) : NULL;
    if (rc == 0 && scopes == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for %zu studies", f->list.count);
    for (size_t i = 0; i < f->list.count && rc == 0; i++)
        rc = fa_study_scope(&f->list.study[i], &scopes[i], diag);
    if (rc == 0)
        rc = fa_store_forget(f->tuner->store, f->options->select != NULL ? scopes : NULL,
                             f->list.count, f->unread_id, f->unread.count, f->dry_run, &f->counts,
                             diag);
    free(scopes);
    return rc;
}

static int forget_alone(struct forgetting *f, int64_t *ret_freed, fa_diag *diag)
{
    fa_tuner *tuner = f->tuner;
    fa_lock *lock = NULL;
    pthread_mutex_unlock(&tuner->work); /* a tune of this process may be under way, too */
    int rc =
        fa_lock_acquire(tuner->store_path, FA_TUNES_LOCK, WAIT_MS, NULL, NULL, &lock, NULL, diag);
    pthread_mutex_lock(&tuner->work);
    if (rc == FA_ETIMEOUT)
        return fa_fail(
            diag, FA_EBUSY,
            "a tune into the store %s is under way: wait for its end, or stop it (what it has "
            "tried is kept), and try again",
            tuner->store_path);
    if (rc == 0)
        rc = fa_store_batch(tuner->store, forget_studies, f, diag);
    if (rc == 0 && f->counts.bytes > 0)
        *ret_freed = fa_store_shrink(tuner->store);
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

/* Stops asking a shared store that does not answer. */
static int64_t count_elsewhere(struct forgetting *f)
{
    const fa_source_class *shared = NULL;
    fa_store *store = fa_sources_store(f->tuner, &shared);
    int64_t count = 0;
    for (size_t i = 0; i < f->list.count; i++) {
        fa_study *study = &f->list.study[i];
        fa_winner_record winner = {0};
        fa_scope scope;
        fa_diag why = {{0}};
        if (!study->has_winner || fa_study_scope(study, &scope, NULL) != 0)
            continue;
        int rc =
            store != NULL ? fa_store_winner_get(store, &scope, &winner, NULL, &why) : FA_ENOTFOUND;
        if (rc == 0) {
            fa_winner_record_free(&winner);
        } else if (rc != FA_ENOTFOUND && rc != FA_ECORRUPT) {
            shared->store_failed(f->tuner, rc, &why);
            store = NULL;
        }
        count += rc == 0 || fa_sources_each(f->tuner, &scope.problem, is_for_study, study) != 0;
    }
    return count;
}

static void free_lists(struct forgetting *f)
{
    for (size_t i = 0; i < f->unread.count; i++)
        free((void *)(uintptr_t)f->unread.study[i].unread);
    free(f->unread.study);
    free(f->unread_id);
    free(f->list.study);
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
        if (fa_study_is_listed(&f.list.study[i]))
            rc = known.visit(known.context, &f.list.study[i]);
    for (size_t i = 0; i < f.unread.count && rc == 0 && known.visit != NULL; i++)
        if (fa_study_is_listed(&f.unread.study[i]))
            rc = known.visit(known.context, &f.unread.study[i]);
    free_lists(&f);
    return rc;
}
