/* SPDX-License-Identifier: Apache-2.0
 *
 * One tune: a loop on the caller's thread that keeps the compile workers and the measuring
 * worker busy until every config of the space has ended somewhere, then races the finalists.
 *
 * Workload: 100 configs of about 0.3 s of compiling and a few milliseconds of GPU each.
 * Invariants: every pending config ends exactly once, in fa_job_settle; what has ended is written
 * within a second, most of it within ten times what a transaction takes; a worker's death ends at most the config it had.
 */
#include "job.h"

#include "pool.h"

#include "error.h"

static void enter_stage(fa_job *job, fa_stage stage)
{
    job->progress.stage = stage;
    fa_job_emit(job, FA_EVENT_STAGE, NULL);
}

static void advance(fa_job *job)
{
    if (job->ended)
        return;
    fa_job_compile_advance(job);
    if (job->measuring)
        fa_job_measure_advance(job);
    if (job->ended || !fa_job_compile_done(job) || (job->measuring && !fa_job_measure_done(job)))
        return;
    if (job->measuring && !job->prove_only && job->progress.stage == FA_STAGE_TUNE &&
        fa_job_choose_finalists(job) > 0) {
        fa_job_compile_stop(job); /* nothing beside the race */
        enter_stage(job, FA_STAGE_FINAL);
        fa_job_measure_advance(job);
        if (!fa_job_measure_done(job)) /* a single finalist that is loaded already needs no race */
            return;
    }
    fa_job_end(job, 0);
}

/* With what ended the config that was tried first. */
static int fail_none_survived(fa_job *job)
{
    const fa_trial *first = NULL;
    for (int i = 0; first == NULL && i < job->space.count; i++)
        if (job->attempt[i].cubin_key[0] != 0)
            first = &job->space.candidate[i].trial;
    return fa_fail(&job->diag, FA_ENOKERNEL, "none of %d configs survived%s%s%s%s",
                   job->progress.resumed + job->compile.order_count,
                   first != NULL ? "; the first: " : "",
                   first != NULL ? fa_status_name(first->status) : "", first != NULL ? ": " : "",
                   first != NULL ? first->reason : "");
}

static int run_job(fa_job *job)
{
    int rc = fa_job_set_up(job);
    if (rc != 0)
        return rc;
    fa_job_compile_start(job);
    if (job->measuring && (rc = fa_job_measure_start(job)) != 0)
        return rc;
    enter_stage(job, FA_STAGE_TUNE);
    fa_job_compile_advance(job); /* the workers are at it while data is made and the grids are worked out */
    if (job->measuring && !job->ended &&
        ((rc = fa_job_set_up_data(job)) != 0 || (rc = fa_job_set_up_cases(job)) != 0))
        return rc;
    advance(job);
    if (!job->ended)
        fa_loop_run(&job->loop);
    rc = fa_job_flush(job);
    return job->rc != 0 ? job->rc : rc;
}

int fa_job_run(fa_job *job, const fa_target *target, const fa_plan *plan, fa_answer *ret_answer,
               fa_diag *diag)
{
    job->advance = advance;
    job->target = *target;
    job->plan = *plan;
    job->measuring = target->gpu.present;
    job->prove_only =
        job->measuring && (plan->prove_only || job->request->effort == FA_EFFORT_PREDICT);
    int rc =
        job->ended ? job->rc : run_job(job); /* a worker that cannot start has ended it already */
    if (job->ended && rc == job->rc)
        job->diag = job->end_diag;     /* later failures are not why it ended */
    fa_child_kill(job->measure.child); /* its context takes a while to go */
    if (rc == 0) {
        fa_answer answer = {.size = sizeof answer};
        int index = FA_JOB_NOBODY;
        if (plan->verify)
            index = fa_job_verified(job, &answer);
        else
            rc = fa_job_choose_winner(job, &answer, &index, &job->diag);
        if (rc == 0 && index == FA_JOB_NOBODY)
            rc = plan->verify ? fa_fail(&job->diag, FA_ENOKERNEL, "%s: %s",
                                        fa_status_name(answer.trial.status), answer.trial.reason)
                              : fail_none_survived(job);
        else if (rc == 0 && !plan->verify) {
            fa_job_note_families(job);
            rc = fa_job_store_winner(job, index, &answer, &job->diag);
        }
        if (rc == 0) {
            job->ended = false; /* the last event may not cancel what is stored */
            job->best = answer.trial;
            enter_stage(job, FA_STAGE_DONE);
            *ret_answer = answer;
        } else if (plan->verify) {
            *ret_answer = answer; /* where it ended */
        }
    }
    return rc == 0 ? 0 : fa_fail(diag, rc, "%s", job->diag.text);
}
