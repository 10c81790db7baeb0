/* SPDX-License-Identifier: Apache-2.0
 *
 * One tune: a libuv loop on the caller's thread that keeps the compile workers and the measuring
 * worker busy until every config of the space has ended somewhere, then races the finalists.
 *
 * Workload: 100 configs of about 0.3 s of compiling and a few milliseconds of GPU each.
 * Invariants: every pending config ends exactly once, in fa_job_settle; what has ended is written
 * before the loop sleeps again; a worker's death ends at most the config it had.
 */
#include "engine.h"

#include "error.h"
#include "model.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { PREDICT_CONFIGS = 8, TICK_MS = 100 };

void fa_job_end(fa_job *job, int rc)
{
    if (job->ended)
        return;
    job->ended = true;
    job->rc = rc;
    uv_stop(&job->loop);
}

void fa_job_emit(fa_job *job, fa_event_kind kind, const fa_trial *trial)
{
    fa_progress *p = &job->progress;
    const fa_request *request = job->request;
    p->kind = kind;
    p->trial = trial;
    p->best = job->best.status != FA_STATUS_PENDING ? &job->best : NULL;
    p->elapsed_s = (double)(uv_hrtime() - job->started_ns) / 1e9;
    int done = p->failed + (job->measuring ? p->measured : p->clean) - p->resumed;
    int left = p->in_budget - p->resumed - done;
    p->left_s = done < 3 ? -1 : p->elapsed_s / done * left;
    if (request->progress != NULL && !job->ended &&
        request->progress(request->context, p) != 0) {
        fa_fail(&job->diag, FA_ECANCELED, "canceled; what was done is kept for the next run");
        fa_job_end(job, FA_ECANCELED);
    }
}

static bool better(const fa_trial *a, const fa_trial *b)
{
    return b->status == FA_STATUS_PENDING || fa_trial_compare(a, b) < 0;
}

static void count(fa_job *job, const fa_trial *trial)
{
    fa_progress *p = &job->progress;
    switch (trial->status) {
    case FA_STATUS_MEASURED:
        p->measured++;
        p->proved++;
        break;
    case FA_STATUS_COMPILED:
        p->proved += job->prove_only;
        break;
    default:
        p->failed++;
        return;
    }
    if (better(trial, &job->best))
        job->best = *trial;
}

void fa_job_settle(fa_job *job, int index, fa_status status, const char *reason)
{
    fa_trial *trial = &job->space.candidate[index].trial;
    fa_attempt *attempt = &job->attempt[index];
    trial->status = status;
    snprintf(trial->reason, sizeof trial->reason, "%s", reason);
    attempt->at = FA_AT_NONE;
    attempt->dirty = true;
    job->unwritten = true;
    count(job, trial);
    fa_job_emit(job, FA_EVENT_TRIAL, trial);
}

bool fa_job_may_retry(fa_job *job, int index)
{
    enum { CHANCES = 3 };
    int *retries = index == FA_JOB_REFERENCE ? &job->reference_retries
                                             : &job->attempt[index].retries;
    return (*retries)++ < CHANCES;
}

/* One transaction for whatever came since the loop last slept. */
static int write_outcomes(void *context, fa_diag *diag)
{
    fa_job *job = context;
    fa_store *store = job->tuner->store;
    int rc = 0;
    for (int i = 0; i < job->space.count && rc == 0; i++) {
        fa_attempt *attempt = &job->attempt[i];
        fa_trial *trial = &job->space.candidate[i].trial;
        if (attempt->fresh_cubin != NULL)
            rc = fa_store_cubin_put(store, attempt->fresh_cubin, diag);
        if (rc != 0 || !attempt->dirty)
            continue;
        fa_trial_record record = {.trial = *trial,
                                  .samples_us = attempt->samples_us,
                                  .sample_count = attempt->sample_count,
                                  .environment = job->environment,
                                  .clocks = attempt->clocks,
                                  .seed = job->seed};
        memcpy(record.cubin_key, attempt->cubin_key, sizeof record.cubin_key);
        rc = fa_store_trial_put(store, &job->target.scope, &record, diag);
    }
    return rc;
}

void fa_job_flush(fa_job *job)
{
    if (!job->unwritten)
        return;
    int rc = fa_store_batch(job->tuner->store, write_outcomes, job, &job->diag);
    if (rc != 0) {
        fa_job_end(job, rc);
        return;
    }
    job->unwritten = false;
    for (int i = 0; i < job->space.count; i++) {
        job->attempt[i].dirty = false;
        fa_job_forget_fresh(&job->attempt[i]);
    }
}

void fa_job_forget_fresh(fa_attempt *attempt)
{
    if (attempt->fresh_cubin != NULL)
        fa_cubin_record_free(attempt->fresh_cubin);
    free(attempt->fresh_cubin);
    attempt->fresh_cubin = NULL;
}

static void before_wait(uv_prepare_t *handle)
{
    fa_job_flush(handle->data);
}

static void tick(uv_timer_t *timer)
{
    fa_job *job = timer->data;
    fa_job_emit(job, FA_EVENT_PROGRESS, NULL);
}

static void enter_stage(fa_job *job, fa_stage stage)
{
    job->progress.stage = stage;
    fa_job_emit(job, FA_EVENT_STAGE, NULL);
}

void fa_job_advance(fa_job *job)
{
    if (job->ended)
        return;
    fa_job_compile_advance(job);
    if (job->measuring)
        fa_job_measure_advance(job);
    if (job->ended || !fa_job_compile_done(job) ||
        (job->measuring && !fa_job_measure_done(job)))
        return;
    if (job->measuring && !job->prove_only && job->progress.stage == FA_STAGE_TUNE &&
        fa_job_choose_finalists(job) > 0) {
        enter_stage(job, FA_STAGE_FINAL);
        fa_job_measure_advance(job);
        if (!fa_job_measure_done(job)) /* a single finalist that is loaded already needs no race */
            return;
    }
    fa_job_end(job, 0);
}

/* ---- setting up -----------------------------------------------------------------------------*/
/* A config that ended in an earlier run is not tried again, unless it ended for want of memory. */
static int resume_one(void *context, const fa_trial_record *record)
{
    fa_job *job = context;
    const fa_trial *old = &record->trial;
    if (old->status == FA_STATUS_OUT_OF_MEMORY ||
        (job->measuring && old->status == FA_STATUS_COMPILED)) /* not proved */
        return 0;
    for (int i = 0; i < job->space.count; i++) {
        fa_trial *trial = &job->space.candidate[i].trial;
        fa_attempt *attempt = &job->attempt[i];
        if (trial->status != FA_STATUS_PENDING || !fa_config_equal(&trial->config, &old->config))
            continue;
        if (old->status == FA_STATUS_MEASURED &&
            !(old->median_us > 0 && old->threads == trial->threads &&
              old->smem_bytes == trial->smem_bytes))
            return 0;
        uint32_t grid[3];
        memcpy(grid, trial->grid, sizeof grid);
        *trial = *old;
        trial->raced = false; /* that race was another one */
        memcpy(trial->grid, grid, sizeof grid);
        memcpy(attempt->cubin_key, record->cubin_key, sizeof attempt->cubin_key);
        attempt->resumed = true;
        job->progress.resumed++;
        job->progress.compiled += old->status != FA_STATUS_COMPILE_FAILED &&
                                  old->status != FA_STATUS_COMPILE_TIMEOUT;
        job->progress.clean += old->status >= FA_STATUS_COMPILED;
        count(job, trial);
        return 0;
    }
    return 0;
}

static int set_up_space(fa_job *job)
{
    fa_diag *diag = &job->diag;
    int rc = fa_tuner_families(job->tuner, diag);
    if (rc == 0)
        rc = fa_space_enumerate(&job->tuner->families, &job->target.problem, &job->target.gpu,
                                &job->space, diag);
    if (rc != 0)
        return rc;
    if (job->space.survivors == 0)
        return fa_fail(diag, FA_ENOKERNEL, "no config of %d fits: %s", job->space.count,
                       job->space.count > 0 ? job->space.candidate[0].trial.reason : "none exist");
    job->attempt = calloc((size_t)job->space.count, sizeof *job->attempt);
    job->order = calloc((size_t)job->space.count, sizeof *job->order);
    job->clean = calloc(FA_JOB_CLEAN * (size_t)job->space.count, sizeof *job->clean);
    job->again = calloc((size_t)job->space.count + 1, sizeof *job->again);
    job->finalist = calloc((size_t)job->space.count, sizeof *job->finalist);
    job->grid = calloc((size_t)job->space.count, sizeof *job->grid);
    if (job->attempt == NULL || job->order == NULL || job->clean == NULL ||
        job->again == NULL || job->finalist == NULL || job->grid == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for %d configs", job->space.count);
    job->progress.space = job->space.count;
    job->progress.in_budget = job->space.survivors;
    return 0;
}

/* Launch grids of every config for the problems it will be proved on. */
static int set_up_cases(fa_job *job)
{
    fa_problem cases[FA_BENCH_CASES];
    job->case_count = fa_bench_cases(&job->target.problem, job->seed, cases);
    for (int c = 0; c < job->case_count; c++) {
        fa_space space;
        int rc = fa_space_enumerate(&job->tuner->families, &cases[c], &job->target.gpu, &space,
                                    &job->diag);
        if (rc != 0)
            return rc;
        if (space.count != job->space.count)
            rc = fa_fail(&job->diag, FA_EMANIFEST,
                         "the space has %d configs for one length and %d for another: tunables may "
                         "not depend on the problem's lengths",
                         job->space.count, space.count);
        for (int i = 0; i < space.count && rc == 0; i++)
            memcpy(job->grid[i][c], space.candidate[i].trial.grid, sizeof job->grid[i][c]);
        fa_space_free(&space);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int compare_size(const void *a, const void *b, void *context)
{
    const fa_candidate *candidate = context;
    return candidate[*(const int *)b].estimated_registers -
           candidate[*(const int *)a].estimated_registers;
}

/* The model's first choices first, so that a run that is cut short has seen them. Of the second half
 * the largest come first: they compile longest, and the last to finish decides when all is done. */
static void set_up_order(fa_job *job)
{
    int count = 0;
    for (int i = 0; i < job->space.count; i++) {
        fa_candidate *candidate = &job->space.candidate[i];
        if (candidate->trial.status != FA_STATUS_PENDING)
            continue;
        fa_model_predict(candidate, &job->target.problem, &job->target.gpu, &candidate->trial);
        job->attempt[i].at = FA_AT_QUEUED;
        job->order[count++] = i;
    }
    fa_model_rank(&job->space, job->order, count);
    if (job->request->effort == FA_EFFORT_PREDICT && count > PREDICT_CONFIGS) {
        for (int i = PREDICT_CONFIGS; i < count; i++)
            job->attempt[job->order[i]].at = FA_AT_NONE;
        count = PREDICT_CONFIGS;
    }
    qsort_r(job->order + count / 2, (size_t)(count - count / 2), sizeof *job->order, compare_size,
            job->space.candidate);
    job->order_count = count;
}

static int set_up(fa_job *job)
{
    fa_tuner *tuner = job->tuner;
    job->seed = tuner->seed;
    if (job->seed == 0 && getrandom(&job->seed, sizeof job->seed, 0) != sizeof job->seed)
        return fa_fail(&job->diag, FA_EIO, "no random seed to be had");
    job->seed &= ((uint64_t)1 << 53) - 1; /* exact in JSON */
    int rc = set_up_space(job);
    if (rc == 0 && job->request->effort != FA_EFFORT_PATIENT)
        rc = fa_store_trials_each(tuner->store, &job->target.scope, resume_one, job, &job->diag);
    if (rc != 0)
        return rc;
    set_up_order(job);
    rc = fa_nvrtc_locate(&job->nvrtc, &job->diag);
    if (rc != 0)
        return rc;
    job->environment = fa_records_environment(
        &job->target.gpu, tuner->driver != NULL ? fa_driver_version(tuner->driver) : 0,
        job->nvrtc.identity);
    if (job->environment == NULL || uv_loop_init(&job->loop) != 0)
        return fa_fail(&job->diag, FA_ENOMEM, "out of memory for a tune");
    job->loop_open = true;
    uv_timer_init(&job->loop, &job->tick);
    uv_prepare_init(&job->loop, &job->before_wait);
    job->tick.data = job->before_wait.data = job;
    uv_timer_start(&job->tick, tick, TICK_MS, TICK_MS);
    uv_prepare_start(&job->before_wait, before_wait);
    return 0;
}

static void tear_down(fa_job *job)
{
    if (job->loop_open) {
        fa_job_compile_stop(job);
        fa_job_measure_stop(job);
        uv_close((uv_handle_t *)&job->tick, NULL);
        uv_close((uv_handle_t *)&job->before_wait, NULL);
        uv_run(&job->loop, UV_RUN_DEFAULT);
        uv_loop_close(&job->loop);
    }
    for (int i = 0; job->attempt != NULL && i < job->space.count; i++) {
        fa_job_forget_fresh(&job->attempt[i]);
        free(job->attempt[i].cubin);
        free(job->attempt[i].samples_us);
        free(job->attempt[i].clocks);
    }
    free(job->attempt);
    free(job->order);
    free(job->clean);
    free(job->again);
    free(job->finalist);
    free(job->grid);
    free(job->reference);
    free(job->environment);
    fa_space_free(&job->space);
}

static int run(fa_job *job)
{
    int rc = set_up(job);
    if (rc == 0)
        rc = fa_job_compile_start(job);
    if (rc == 0 && job->measuring)
        rc = fa_job_measure_start(job);
    if (rc != 0)
        return rc;
    enter_stage(job, FA_STAGE_TUNE);
    fa_job_compile_advance(job); /* the workers load while the grids are worked out */
    if (job->measuring && !job->ended && (rc = set_up_cases(job)) != 0)
        return rc;
    fa_job_advance(job);
    if (!job->ended)
        uv_run(&job->loop, UV_RUN_DEFAULT);
    fa_job_flush(job);
    if (job->rc == 0 && job->unwritten)
        return FA_ESTORE; /* the last flush failed, after the loop had ended */
    return job->rc;
}

/* Writing to a worker that has just died raises SIGPIPE, which would end the host; and a library
 * may not change the host's disposition. So the signal is held back from this thread while the
 * loop runs, and one that came is taken away before the mask is put back. */
static void hold_sigpipe(sigset_t *ret_before, bool *ret_pending)
{
    sigset_t pipe, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    *ret_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, ret_before);
}

static void release_sigpipe(const sigset_t *before, bool was_pending)
{
    const struct timespec now = {0};
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    while (!was_pending && sigtimedwait(&pipe, NULL, &now) == SIGPIPE)
        continue;
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

int fa_job_run(fa_tuner *tuner, const fa_request *request, const fa_target *target,
               fa_answer *ret_answer, fa_diag *diag)
{
    fa_job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a tune");
    job->tuner = tuner;
    job->request = request;
    job->target = *target;
    job->measuring = target->gpu.present;
    job->prove_only = job->measuring && request->effort == FA_EFFORT_PREDICT;
    job->started_ns = uv_hrtime();
    job->measure.in_flight = FA_JOB_NOBODY;
    sigset_t signals;
    bool pending;
    hold_sigpipe(&signals, &pending);
    int rc = run(job);
    if (rc == 0) {
        fa_answer answer = {0};
        int index = fa_job_choose_winner(job, &answer);
        if (index == FA_JOB_NOBODY)
            rc = fa_fail(&job->diag, FA_ENOKERNEL,
                         "none of %d configs survived; `fa-tune explain` says where each ended",
                         job->space.survivors);
        else
            rc = fa_job_store_winner(job, index, &answer, &job->diag);
        if (rc == 0) {
            job->ended = false; /* the last event may not cancel what is stored */
            enter_stage(job, FA_STAGE_DONE);
            *ret_answer = answer;
        }
    }
    if (rc != 0)
        fa_fail(diag, rc, "%s", job->diag.text);
    tear_down(job);
    release_sigpipe(&signals, pending);
    free(job);
    return rc;
}
