/* SPDX-License-Identifier: Apache-2.0
 *
 * Explains answers: the configs on record of a problem, ranked, with the rest of its space as it stands today; and the
 * steps of a lookup.
 *
 * Workload: a few hundred trials; a large space that was tried whole has 20,000. Nothing is evaluated for the ranking
 * behind an answer, unless the model is asked about other lengths than the bucket's.
 */
#include "lookup.h"

#include "bundle.h"
#include "candidate.h"
#include "error.h"
#include "manifest.h"
#include "model.h"
#include "problem.h"
#include "session.h"
#include "store.h"
#include "trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- configs --------------------------------------------------------------------------------*/
static fa_study_trial *rows_of(fa_list *list)
{
    return (fa_study_trial *)(void *)list->records.data;
}

/* The trials that were imported with a winner. */
static int read_brought(fa_tuner *tuner, const fa_scope *scope, fa_study_trial **ret_record,
                        size_t *ret_count, fa_diag *diag)
{
    fa_winner_record winner = {0};
    int rc = fa_store_winner_get(tuner->store, scope, &winner, NULL, diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
    rc = fa_trials_from_evidence(winner.evidence, ret_record, ret_count, diag);
    for (size_t i = 0; rc == 0 && i < *ret_count; i++)
        (*ret_record)[i].unix_time = winner.unix_time;
    fa_winner_record_free(&winner);
    return rc;
}

/* Lists what is on record of the target's scope. A winner that was imported may have brought its trials, and is no trial
 * itself. */
static int read_record(fa_tuner *tuner, const fa_target *target, const fa_answer *winner,
                       fa_list *list, fa_diag *diag)
{
    fa_study_trial *record = NULL, own = {.rank = 0};
    size_t count = 0;
    int rc = fa_store_trials(tuner->store, &target->scope, &record, &count, diag);
    bool listed = winner == NULL || !fa_problem_equal(&winner->from_problem, &target->problem);
    const bool brought = rc == 0 && count == 0 && !listed;
    if (brought)
        rc = read_brought(tuner, &target->scope, &record, &count, diag);
    if (!listed) {
        own.trial = winner->trial;
        own.trial.compile_ms = 0; /* not here */
        own.unix_time = winner->unix_time;
        memcpy(own.cubin_key, winner->cubin_key, sizeof own.cubin_key);
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        fa_study_trial *row = &record[i];
        if (!listed && fa_config_equal(&row->trial.config, &own.trial.config)) {
            listed = true;
            if (brought) {
                row->trial = own.trial;
                memcpy(row->cubin_key, own.cubin_key, sizeof row->cubin_key);
            }
        }
        fa_trials_add(list, row);
    }
    if (rc == 0 && !listed)
        fa_trials_add(list, &own);
    free(record);
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

/* Adds the configs of the space that are not on record; of a space that is searched none. */
static int add_rest(fa_tuner *tuner, const fa_target *target, fa_list *list,
                    fa_explained *ret_space, fa_diag *diag)
{
    fa_space space = {0};
    const size_t tried = list->count;
    int rc = fa_tuner_enumerate(tuner, &target->problem, &target->gpu, &space, diag);
    if (rc != 0)
        return rc;
    ret_space->configs = space.held > 0 ? space.held : space.count;
    ret_space->is_searched = space.held > 0;
    int64_t *digests = calloc(tried + 1, sizeof *digests);
    if (digests == NULL || list->records.failed)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory after %zu configs", tried);
    for (size_t i = 0; rc == 0 && i < tried; i++)
        digests[i] = digest_config(&rows_of(list)[i].trial.config);
    for (int i = 0; rc == 0 && i < space.count && !list->records.failed; i++) {
        fa_candidate *candidate = &space.candidate[i];
        const int64_t wanted = digest_config(&candidate->trial.config);
        fa_study_trial *row = rows_of(list);
        size_t at = 0;
        while (at < tried && (digests[at] != wanted ||
                              !fa_config_equal(&row[at].trial.config, &candidate->trial.config)))
            at++;
        if (at < tried) { /* a winner's grid is that of the asked lengths */
            row[at].is_default = candidate->is_default;
            memcpy(row[at].trial.grid, candidate->trial.grid, sizeof row[at].trial.grid);
            continue;
        }
        if (candidate->trial.status == FA_STATUS_PENDING)
            fa_model_predict(candidate, &target->problem, &target->gpu, &candidate->trial);
        const fa_study_trial added = {.trial = candidate->trial,
                                      .is_default = candidate->is_default};
        fa_list_add(list, &added, sizeof added);
    }
    free(digests);
    fa_space_free(&space);
    return rc;
}

int fa_configs_compare(const void *a, const void *b)
{
    return fa_trial_compare(&((const fa_study_trial *)a)->trial,
                            &((const fa_study_trial *)b)->trial);
}

/* What answers for the asked lengths stands first: a tie was broken its way, or it is not the bucket's winner. */
static void rank(fa_study_trial *row, size_t count, const fa_answer *winner)
{
    if (count > 0)
        qsort(row, count, sizeof *row, fa_configs_compare);
    for (size_t i = 1; winner != NULL && i < count && fa_trial_finished(&row[i].trial); i++) {
        const fa_study_trial chosen = row[i];
        if (!fa_config_equal(&chosen.trial.config, &winner->trial.config))
            continue;
        memmove(&row[1], &row[0], i * sizeof chosen);
        row[0] = chosen;
        break;
    }
    for (size_t i = 0; i < count && fa_trial_finished(&row[i].trial); i++)
        row[i].rank = (int32_t)i + 1;
}

int fa_configs_read(fa_tuner *tuner, const fa_target *target, const fa_answer *winner, bool rest,
                    fa_study_trial **ret_rows, size_t *ret_count, fa_explained *ret_space,
                    fa_diag *diag)
{
    fa_list list = {0};
    fa_explained space = {.gpu = target->gpu};
    int rc = read_record(tuner, target, winner, &list, diag);
    if (rc == 0 && rest) {
        rc = add_rest(tuner, target, &list, &space, diag);
        if (list.count > 0 && rc != FA_ENOMEM && rc != FA_EIO) /* the space may be no more */
            rc = 0;
    }
    rc = fa_trials_end(&list, rc, ret_rows, ret_count, diag);
    if (rc != 0)
        return rc;
    /* The model's times of what nobody timed are for the asked lengths, which the space's may stand for. What does not run at
     * these keeps what it has. */
    const bool same = fa_problem_equal(&target->asked, &target->problem);
    for (size_t i = 0; i < *ret_count && !same; i++) {
        fa_trial *trial = &(*ret_rows)[i].trial;
        if (trial->status == FA_STATUS_PENDING || trial->status == FA_STATUS_COMPILED)
            fa_target_predict(tuner, target, trial);
    }
    rank(*ret_rows, *ret_count, winner);
    if (ret_space != NULL)
        *ret_space = space;
    return 0;
}

int fa_configs_rank(fa_tuner *tuner, const fa_request *request, const fa_answer *winner, bool rest,
                    fa_study_trial **ret_rows, size_t *ret_count, fa_explained *ret_space,
                    fa_diag *diag)
{
    fa_target target;
    fa_lookup found = {.count = 0};
    pthread_mutex_lock(&tuner->work);
    int rc = fa_target_resolve(tuner, request, &target, diag);
    if (rc == 0 && winner == NULL && fa_look(tuner, &target, false, &found, NULL) == 0)
        winner = &found.answer;
    if (rc == 0)
        rc = fa_configs_read(tuner, &target, winner, rest, ret_rows, ret_count, ret_space, diag);
    pthread_mutex_unlock(&tuner->work);
    fa_lookup_free(&found);
    return rc;
}

int fa_explain(fa_tuner *tuner, const fa_request *request, fa_study_trial **ret_configs,
               size_t *ret_count, fa_explained *ret_space, fa_diag *diag)
{
    fa_request known;
    int rc = fa_request_take(tuner, ret_configs != NULL && ret_count != NULL,
                             "ret_configs or ret_count", request, &known, diag);
    return rc != 0 ? rc
                   : fa_configs_rank(tuner, &known, NULL, true, ret_configs, ret_count, ret_space,
                                     diag);
}

/* ---- why ------------------------------------------------------------------------------------*/
static void add_match(fa_list *list, const fa_target *target, const fa_match *match, bool taken,
                      const char *name)
{
    fa_step step = {.kind = match->kind, .found = true, .taken = taken, .answer = match->answer};
    const bool unproved = taken && match->answer.driver_version == 0 && target->gpu.present;
    const char *more = unproved        ? "; it is not launched before this GPU has proved it "
                                         "(effort predict)"
                       : taken         ? ""
                       : match->usable ? "something above is trusted more"
                                       : match->why;
    snprintf(step.name, sizeof step.name, "%s", name);
    snprintf(step.why, sizeof step.why, "%s%s%.240s", match->answer.why,
             taken ? "" : "; passed over: ", more);
    fa_list_add(list, &step, sizeof step);
}

int fa_why(fa_tuner *tuner, const fa_request *request, fa_step **ret_steps, size_t *ret_count,
           fa_gpu *ret_gpu, fa_diag *diag)
{
    static const struct {
        fa_step_kind kind;
        const char *name, *nothing;
    } kinds[] = {
        {FA_STEP_EXACT, "exact", "no winner is stored for these very lengths"},
        {FA_STEP_BUCKET, "bucket", "nothing measured is stored for this problem's bucket"},
        {FA_STEP_PREDICTED, "predicted", "no prediction is stored for this bucket and GPU"},
    };
    fa_request known;
    fa_target target;
    fa_lookup found = {.count = 0};
    fa_list list = {0};
    int rc = fa_request_take(tuner, ret_steps != NULL && ret_count != NULL,
                             "ret_steps or ret_count", request, &known, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_target_resolve(tuner, &known, &target, diag);
    if (rc == 0 && ret_gpu != NULL)
        *ret_gpu = target.gpu;
    const int looked = rc == 0 ? fa_look(tuner, &target, true, &found, diag) : 0;
    pthread_mutex_unlock(&tuner->work);
    if (looked != FA_ENOTFOUND && looked != FA_ECORRUPT && rc == 0)
        rc = looked;
    for (size_t k = 0; rc == 0 && k < sizeof kinds / sizeof *kinds; k++) {
        const fa_problem bucket = fa_problem_bucket(&target.asked);
        /* The lengths may be the bucket's own: then there is no more exact problem. */
        bool missed = kinds[k].kind != FA_STEP_EXACT || !fa_problem_equal(&bucket, &target.asked);
        for (int i = 0; i < found.count; i++)
            if (found.own[i].kind == kinds[k].kind) {
                add_match(&list, &target, &found.own[i], found.taken == i + 1, kinds[k].name);
                missed = false;
            }
        fa_step none = {.kind = kinds[k].kind};
        snprintf(none.name, sizeof none.name, "%s", kinds[k].name);
        snprintf(none.why, sizeof none.why, "%s", kinds[k].nothing);
        if (missed)
            fa_list_add(&list, &none, sizeof none);
    }
    fa_lookup_free(&found);
    return fa_list_end(&list, rc, NULL, ret_steps, ret_count, diag);
}
