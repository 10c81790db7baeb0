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
#include "lookup.h"
#include "manifest.h"
#include "pool.h"
#include "problem.h"
#include "session.h"
#include "store.h"

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

/* The caller holds `work`. */
static int read_study(fa_tuner *tuner, const fa_scope_row *row, fa_study *study, fa_diag *diag)
{
    FA_ENDS(fa_winner_record_free) fa_winner_record winner = {0};
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
    }
    if (rc != 0 && rc != FA_ENOTFOUND && rc != FA_ECORRUPT)
        return rc;
    if (study->gpu.sm == 0)
        find_study_gpu(study, study->winner.gpu.name);
    study->current = fa_templates_match(fa_templates_for(tuner, &study->problem), &study->problem,
                                        study->templates) &&
                     is_silicon(&study->gpu, study->silicon) && FA_POLICY_IS_OURS(study->policy);
    return 0;
}

int fa_list_studies(fa_tuner *tuner, fa_study **ret_studies, size_t *ret_count, fa_diag *diag)
{
    static const size_t pointers[] = {offsetof(fa_study, unread), SIZE_MAX};
    fa_list list = {0};
    FA_ENDS(fa_free_at) fa_scope_row *row = NULL;
    size_t rows = 0;
    FA_OR_RETURN(fa_tuner_check_with(tuner, ret_studies != NULL && ret_count != NULL,
                                     "ret_studies or ret_count", diag));
    pthread_mutex_lock(&tuner->work);
    int rc = fa_store_scopes(tuner->store, &row, &rows, diag);
    for (size_t i = 0; rc == 0 && i < rows; i++) {
        fa_study study;
        rc = read_study(tuner, &row[i], &study, diag);
        study.unread = fa_list_keep_text(&list, study.unread);
        if (study.has_winner || study.trials > 0)
            fa_list_add(&list, &study, sizeof study);
    }
    pthread_mutex_unlock(&tuner->work);
    rc = fa_list_end(&list, rc, pointers, ret_studies, ret_count, diag);
    /* A device calls itself "NVIDIA L4", the catalogue "L4". The device's name is taken for all studies of its silicon, so
     * that a list of GPUs has one entry for it. */
    fa_study *all = rc == 0 ? *ret_studies : NULL;
    for (size_t i = 0; rc == 0 && i < *ret_count; i++)
        for (size_t j = 0; j < *ret_count && !is_named_by_device(&all[i]); j++)
            if (is_named_by_device(&all[j]) && strcmp(all[j].silicon, all[i].silicon) == 0) {
                memcpy(all[i].gpu.name, all[j].gpu.name, sizeof all[i].gpu.name);
                break;
            }
    return rc;
}

int fa_list_study_trials(fa_tuner *tuner, const fa_study *study, fa_study_trial **ret_trials,
                         size_t *ret_count, fa_diag *diag)
{
    FA_OR_RETURN(fa_tuner_check_with(tuner, ret_trials != NULL && ret_count != NULL,
                                     "ret_trials or ret_count", diag));
    if (study == NULL || study->size != sizeof *study || study->unread != NULL)
        return fa_fail(diag, FA_EINVAL,
                       "study is NULL, none of fa_list_studies, or one whose problem is not known");
    fa_target target = {.problem = study->problem,
                        .asked = study->problem,
                        .gpu = study->gpu,
                        .scope = {.problem = study->problem}};
    memcpy(target.scope.silicon, study->silicon, sizeof target.scope.silicon);
    memcpy(target.scope.templates, study->templates, sizeof target.scope.templates);
    memcpy(target.scope.policy, study->policy, sizeof target.scope.policy);
    return FA_HELD(tuner, fa_configs_read(tuner, &target, study->has_winner ? &study->winner : NULL,
                                          study->current, ret_trials, ret_count, NULL, diag));
}

/* ---- baselines: what others' kernels take ---------------------------------------------------*/
int fa_list_baselines(fa_tuner *tuner, fa_baseline **ret_baselines, size_t *ret_count,
                      fa_diag *diag)
{
    FA_OR_RETURN(fa_tuner_check_with(tuner, ret_baselines != NULL && ret_count != NULL,
                                     "ret_baselines or ret_count", diag));
    return FA_HELD(tuner, fa_store_baselines(tuner->store, ret_baselines, ret_count, diag));
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

/* With a store that is read-only or in a change of it. The studies that go come first, *count of them; count NULL:
 * everything goes. */
static int forget_studies(fa_tuner *tuner, fa_study *studies, size_t *count, bool dry_run,
                          fa_forgotten *ret_forgotten, fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_scope_row *row = NULL;
    size_t rows = 0, left = 0;
    if (count == NULL)
        return fa_store_forget(tuner->store, &(fa_forget_scopes){.dry_run = dry_run}, ret_forgotten,
                               diag);
    FA_OR_RETURN(fa_store_scopes(tuner->store, &row, &rows, diag));
    FA_ENDS(fa_free_at) int64_t *ids = calloc(*count + 1, sizeof *ids);
    FA_OR_RETURN(fa_have(ids != NULL, "a list of studies", diag));
    for (size_t i = 0; i < *count; i++)
        for (size_t k = 0; k < rows; k++)
            if (row[k].id == studies[i].id && row[k].trials == studies[i].trials &&
                row[k].unix_time == studies[i].unix_time) { /* as it was listed */
                const fa_study moved = studies[left];
                studies[left] = studies[i];
                studies[i] = moved;
                ids[left++] = row[k].id;
                break;
            }
    *count = left;
    return fa_store_forget(tuner->store, &(fa_forget_scopes){ids, left, dry_run}, ret_forgotten,
                           diag);
}

static int forget_alone(fa_tuner *tuner, fa_study *studies, size_t *count,
                        fa_forgotten *ret_forgotten, fa_diag *diag)
{
    FA_ENDS(fa_lock_release) fa_lock *lock = NULL;
    const size_t listed = count != NULL ? *count : 0;
    FA_OR_RETURN(fa_callback_check(diag));
    int rc;
    const uint64_t until = fa_clock_ns() + (uint64_t)WAIT_MS * 1000000;
    while ((rc = fa_store_lock(tuner->store, FA_TUNES_LOCK, false, &lock, diag)) == FA_EBUSY &&
           fa_clock_ns() < until) {
        pthread_mutex_unlock(&tuner->work); /* a tune of this process may be under way, too */
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        pthread_mutex_lock(&tuner->work);
    }
    if (rc == FA_EBUSY)
        return fa_fail(
            diag, FA_EBUSY,
            "a tune into the store %s is under way: wait for its end, or stop it (what it has "
            "tried is kept), and try again",
            tuner->store_path);
    for (int full = 0; rc == (full > 0 ? FA_EFULL : 0) && full < 2; full++) {
        fa_change change = {.store = tuner->store, .diag = diag};
        fa_store_use_no_space(tuner->store, full > 0);
        while (fa_store_change(&change)) {
            if (count != NULL)
                *count = listed;
            change.rc = forget_studies(tuner, studies, count, false, ret_forgotten, diag);
        }
        rc = change.rc;
    }
    fa_store_use_no_space(tuner->store, false);
    return rc;
}

int fa_forget(fa_tuner *tuner, fa_study *studies, size_t *count, bool dry_run,
              fa_forgotten *ret_forgotten, fa_diag *diag)
{
    fa_forgotten forgotten = {0};
    int rc;
    FA_OR_RETURN(fa_tuner_check_with(tuner, count == NULL || *count == 0 || studies != NULL,
                                     "studies", diag));
    FA_HOLDS(&tuner->work);
    /* Where there is no store there is nothing to forget. */
    if (dry_run || fa_store_is_absent(tuner->store))
        rc = forget_studies(tuner, studies, count, true, &forgotten, diag);
    else if (fa_store_is_read_only(tuner->store))
        rc = fa_fail(diag, FA_EREADONLY, "the store %s cannot be written: nothing is forgotten",
                     tuner->store_path);
    else
        rc = forget_alone(tuner, studies, count, &forgotten, diag);
    if (rc == 0 && ret_forgotten != NULL)
        *ret_forgotten = forgotten;
    return rc;
}
