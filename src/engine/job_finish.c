/* SPDX-License-Identifier: Apache-2.0
 *
 * A tune's end: who wins, and what is kept.
 *
 * The winner is the lowest median. Configs within TIE of it whose confidence intervals overlap its
 * own are ties, declared in the answer and broken the same way every time: the default config
 * first, then less shared memory, fewer threads, config text.
 */
#include "job.h"

#include "driver.h"
#include "stored.h"
#include "family.h"
#include "model.h"
#include "pool.h"
#include "store.h"

#include "request.h"
#include "error.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double TIE = 1.005;

/* Whether a tie goes to a rather than to b. */
static bool preferred(const fa_candidate *a, const fa_candidate *b)
{
    if (a->is_default != b->is_default)
        return a->is_default;
    if (a->trial.smem_bytes != b->trial.smem_bytes)
        return a->trial.smem_bytes < b->trial.smem_bytes;
    if (a->trial.threads != b->trial.threads)
        return a->trial.threads < b->trial.threads;
    char text_a[FA_CONFIG_TEXT_MAX], text_b[FA_CONFIG_TEXT_MAX];
    fa_config_text(&a->trial.config, text_a);
    fa_config_text(&b->trial.config, text_b);
    return strcmp(text_a, text_b) < 0;
}

static int break_ties(fa_job *job, const int *order, int count, int32_t *ret_ties)
{
    const fa_trial *fastest = &job->space.candidate[order[0]].trial;
    int winner = order[0];
    *ret_ties = 0;
    for (int i = 1; i < count; i++) {
        const fa_candidate *candidate = &job->space.candidate[order[i]];
        const fa_trial *trial = &candidate->trial;
        if (!(trial->median_us <= fastest->median_us * TIE && trial->low_us <= fastest->high_us &&
              fastest->low_us <= trial->high_us))
            continue;
        ++*ret_ties;
        if (preferred(candidate, &job->space.candidate[winner]))
            winner = order[i];
    }
    return winner;
}

static void fill_counts(const fa_job *job, fa_answer *answer)
{
    const fa_progress *p = &job->progress;
    answer->space = p->space;
    answer->in_budget = job->space.survivors;
    if (job->search.search != NULL) {
        const struct fa_job_compile *compile = &job->compile;
        answer->in_budget = job->space.count - (compile->order_count - compile->order_next);
        answer->space_estimated = job->search.about;
        if (answer->space < answer->in_budget) /* it was estimated too low */
            answer->space = answer->in_budget;
        if (!fa_job_search_tried_all(job, answer->in_budget))
            snprintf(answer->strategy, sizeof answer->strategy, "%s",
                     fa_search_name(job->search.search));
    }
    answer->compiled = p->compiled;
    answer->clean = p->clean;
    answer->proved = p->proved;
    answer->measured = p->measured;
    answer->failed = p->failed;
    for (int i = 0; i < job->space.count; i++) {
        const fa_candidate *candidate = &job->space.candidate[i];
        if (candidate->is_default && candidate->trial.status == FA_STATUS_MEASURED)
            answer->default_us = candidate->trial.median_us;
    }
}

/* Where the plan names configs, its order decides among those that nobody has timed; where there is no model, what won on
 * another GPU answers, else a default config. */
static int best_unmeasured(fa_job *job, int *order, int count, fa_answer *answer)
{
    const fa_elsewhere *elsewhere = &job->elsewhere;
    const bool few = job->plan.count > 0;
    int winner = order[0];
    answer->origin = fa_origin_untimed(&job->space.candidate[winner].trial);
    answer->shortlist_only = few || job->request->effort == FA_EFFORT_PREDICT;
    for (int i = 0; i < count && few; i++)
        winner = order[i] < winner ? order[i] : winner;
    if (few)
        return winner;
    for (int i = 0; i < count && answer->origin == FA_ORIGIN_UNRANKED; i++) {
        const fa_candidate *candidate = &job->space.candidate[order[i]];
        if (fa_config_equal(&candidate->trial.config, &elsewhere->config)) {
            memcpy(answer->from_gpu, elsewhere->gpu, sizeof answer->from_gpu);
            return order[i];
        }
        winner = candidate->is_default ? order[i] : winner;
    }
    if (answer->origin != FA_ORIGIN_PREDICTED)
        return winner;
    /* Those too that were not compiled, though the model does not tell them from the best. */
    for (int i = 0; i < job->space.count; i++)
        if (job->space.candidate[i].trial.status == FA_STATUS_PENDING)
            answer->ties += fa_model_is_tied(&job->target.problem, &job->space.candidate[i].trial,
                                             &job->space.candidate[order[0]].trial);
    answer->ties += fa_model_break_ties(&job->target.problem, &job->space, order, count);
    return order[0];
}

int fa_job_verified(const fa_job *job, fa_answer *answer)
{
    if (job->space.count == 0)
        return FA_JOB_NOBODY;
    answer->trial = job->space.candidate[0].trial;
    memcpy(answer->cubin_key, job->attempt[0].cubin_key, sizeof answer->cubin_key);
    snprintf(answer->nvrtc, sizeof answer->nvrtc, "%s", job->nvrtc.identity);
    return answer->trial.status == FA_STATUS_COMPILED ? 0 : FA_JOB_NOBODY;
}

int fa_job_choose_winner(fa_job *job, fa_answer *answer)
{
    int *order = job->measure.finalist, count = job->measure.finalist_count;
    int winner = FA_JOB_NOBODY;
    fill_counts(job, answer);
    /* After a race only the raced are comparable; they hold the best of the rest, too. */
    if (job->measure.raced)
        fa_job_sort(job, order, count);
    else
        count = fa_job_sorted(job, FA_STATUS_MEASURED, order);
    while (count > 0 && job->space.candidate[order[count - 1]].trial.status != FA_STATUS_MEASURED)
        count--;
    if (count > 0) {
        winner = break_ties(job, order, count, &answer->ties);
        answer->origin = job->measuring ? FA_ORIGIN_MEASURED : FA_ORIGIN_MEASURED_SAME_SILICON;
        /* A guess while other configs wait: effort PREDICT tries a few. */
        for (int i = 0; i < job->space.count; i++) {
            fa_status status = job->space.candidate[i].trial.status;
            if (status == FA_STATUS_PENDING || status == FA_STATUS_COMPILED)
                answer->origin = fa_origin_untimed(&job->space.candidate[winner].trial);
        }
        answer->shortlist_only = job->plan.count > 0 || !fa_origin_is_timed(answer->origin);
    } else if ((count = fa_job_sorted(job, FA_STATUS_COMPILED, order)) > 0) {
        winner = best_unmeasured(job, order, count, answer);
    }
    /* Answers with the config that was loaded and proved, not with an equal one. */
    return winner >= 0 && job->attempt[winner].twin_of != 0 ? job->attempt[winner].twin_of - 1
                                                            : winner;
}

void fa_job_note_families(const fa_job *job)
{
    const fa_family_list *families = fa_families_for(job->tuner, &job->target.problem);
    for (int family = 0; family < families->count; family++) {
        const fa_trial *first = NULL;
        int failed = 0;
        bool none = true;
        for (int i = 0; i < job->space.count && none; i++) {
            const fa_trial *trial = &job->space.candidate[i].trial;
            const bool tried = job->attempt[i].cubin_key[0] != 0;
            if (job->space.candidate[i].family != family)
                continue;
            bool bad =
                trial->status == FA_STATUS_COMPILE_FAILED || trial->status == FA_STATUS_CUBIN;
            failed += bad;
            first = bad && first == NULL && tried ? trial : first;
            none = bad || !tried || (trial->status == FA_STATUS_PENDING && trial->registers == 0);
        }
        if (none && first != NULL)
            fa_note(job->tuner, "family %s: none of %d configs became a kernel; the first: %s: %s",
                    families->family[family]->name, failed, fa_status_name(first->status),
                    first->reason);
    }
}

int fa_job_store_winner(fa_job *job, int index, fa_answer *answer, fa_diag *diag)
{
    const fa_candidate *candidate = &job->space.candidate[index];
    fa_driver *driver = job->tuner->driver;
    answer->problem = answer->from_problem = job->target.problem;
    answer->gpu = job->target.gpu;
    answer->unix_time = (int64_t)time(NULL);
    answer->contents = job->plan.data != NULL ? job->plan.data->contents : 0;
    answer->trial = candidate->trial;
    answer->tune_s = (double)(fa_clock_ns() - job->started_ns) / 1e9;
    answer->driver_version = job->measuring && driver != NULL ? fa_driver_version(driver) : 0;
    snprintf(answer->entry, sizeof answer->entry, "%s", fa_job_family(job, index)->launch[0].entry);
    snprintf(answer->cubin_key, sizeof answer->cubin_key, "%s", job->attempt[index].cubin_key);
    snprintf(answer->nvrtc, sizeof answer->nvrtc, "%s", job->nvrtc.identity);
    fa_winner_record winner;
    int rc = fa_records_winner(answer, &job->target.scope, &winner, diag);
    /* The store may be another by now, the file in the place of a server. */
    fa_cubin_record cubin = {.sm = job->target.gpu.sm,
                             .bytes = job->attempt[index].cubin,
                             .size = job->attempt[index].cubin_size,
                             .compile_ms = winner.trial.compile_ms};
    memcpy(cubin.key, winner.cubin_key, sizeof cubin.key);
    memcpy(cubin.entry, winner.entry, sizeof cubin.entry);
    bool kept = false;
    if (rc == 0)
        rc = fa_store_winner_put(job->tuner->store, &winner, cubin.bytes != NULL ? &cubin : NULL,
                                 &kept, diag);
    /* Fills the answer as any later lookup would. If an earlier winner with a better origin stands, that
     * is the answer; a prediction gives way to what a source has. */
    fa_lookup found = {.count = 0};
    if (rc == 0)
        rc = fa_look(job->tuner, &job->target, 0, &found, diag);
    free(winner.evidence);
    if (rc == 0) {
        *answer = found.answer;
        answer->from_store = kept;
    }
    fa_lookup_free(&found);
    return rc;
}
