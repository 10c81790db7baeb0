/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stages of a tune do to its state: settle, count, tell, write, end.
 */
#include "job.h"

#include "manifest.h"

#include "error.h"
#include "problem.h"
#include "trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fa_job_end(fa_job *job, int rc)
{
    if (job->ended)
        return;
    job->ended = true;
    job->rc = rc;
    job->end_diag = job->diag;
    fa_loop_stop(&job->loop);
}

bool fa_job_keep_cubin(fa_job *job, fa_attempt *attempt, const void *bytes, size_t size)
{
    attempt->cubin = malloc(size);
    if (attempt->cubin == NULL) {
        FA_JOB_FAIL(job, FA_ENOMEM, "out of memory for a cubin");
        return false;
    }
    memcpy(attempt->cubin, bytes, size);
    attempt->cubin_size = size;
    return true;
}

void fa_job_emit(fa_job *job, fa_event_kind kind, const fa_trial *trial)
{
    fa_progress *p = &job->progress;
    const fa_request *request = job->request;
    p->kind = kind;
    p->trial = trial;
    p->best = job->best.status != FA_STATUS_PENDING ? &job->best : NULL;
    p->elapsed_s = (double)(fa_clock_ns() - job->started_ns) / 1e9;
    p->ended = p->failed + job->pruned + (job->measuring ? p->proved : p->clean);
    int done = p->ended - p->resumed, left = job->compile.order_count - done;
    if (job->search.search != NULL) {
        left = p->in_budget - p->ended;
    } else if (!job->measuring && job->compile.wanted > 0) {
        int missing = job->compile.wanted > p->clean ? job->compile.wanted - p->clean : 0;
        left = missing < left ? missing : left;
        p->in_budget = p->ended + left;
    }
    p->left_s = done < 3 ? -1 : p->elapsed_s / done * left;
    if (job->search.search != NULL && job->until_ns != 0)
        p->left_s = job->request->seconds - p->elapsed_s;
    if (!job->ended && fa_request_report(job->tuner, request, p)) {
        fa_fail(&job->diag, FA_ECANCELED, "canceled; what was done is kept for the next run");
        fa_job_end(job, FA_ECANCELED);
    }
}

int fa_job_set_launches(fa_job *job, int first, int count)
{
    fa_launches *launches = job->launches + (size_t)first * (size_t)job->case_count;
    int rc = 0;
    for (int c = 0; c < job->case_count && rc == 0; c++) {
        fa_task task = fa_task_for(job->tuner, &job->cases[c], &job->target.gpu);
        rc = fa_space_launches(&task, job->space.candidate + first, count, launches + c,
                               job->case_count, &job->diag);
    }
    return rc;
}

void fa_job_count(fa_job *job, const fa_trial *trial)
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
    case FA_STATUS_SPILLS:
    case FA_STATUS_REGISTERS:
        job->pruned++;
        return;
    default:
        p->failed++;
        return;
    }
    if (job->best.status == FA_STATUS_PENDING || fa_trial_compare(trial, &job->best) < 0)
        job->best = *trial;
}

void fa_job_settle(fa_job *job, int index, fa_status status, const char *reason)
{
    fa_trial *trial = &job->space.candidate[index].trial;
    fa_attempt *attempt = &job->attempt[index];
    if (trial->status == FA_STATUS_MEASURED) /* a finalist, settled for the second time */
        job->progress.measured--, job->progress.proved--;
    trial->status = status;
    snprintf(trial->reason, sizeof trial->reason, "%s", reason);
    attempt->dirty = true;
    job->unwritten = true;
    fa_job_count(job, trial);
    if (job->space.candidate[index].is_default && status == FA_STATUS_MEASURED)
        job->progress.default_us = trial->median_us;
    fa_job_emit(job, FA_EVENT_TRIAL, trial);
    fa_job_settle_twins(job, index);
}

void fa_job_settle_twin(fa_job *job, int index)
{
    fa_attempt *attempt = &job->attempt[index];
    const fa_trial *from = &job->space.candidate[attempt->twin_of - 1].trial;
    fa_trial *trial = &job->space.candidate[index].trial;
    char config[FA_CONFIG_TEXT_MAX], reason[sizeof trial->reason];
    fa_config_text(&from->config, config);
    snprintf(reason, sizeof reason, "the same code as %.300s%s%.150s", config,
             from->reason[0] != 0 ? ": " : "", from->reason);
    bool first = trial->status == FA_STATUS_PENDING;
    trial->median_us = from->median_us;
    trial->low_us = from->low_us;
    trial->high_us = from->high_us;
    trial->sample_count = from->sample_count;
    trial->max_error = from->max_error;
    trial->tolerance = from->tolerance;
    trial->raced = from->raced;
    if (first || trial->status != from->status) {
        fa_job_settle(job, index, from->status, reason);
    } else {
        attempt->dirty = true;
        job->unwritten = true;
    }
}

void fa_job_settle_twins(fa_job *job, int index)
{
    for (int i = 0; i < job->space.count; i++)
        if (job->attempt[i].twin_of == index + 1)
            fa_job_settle_twin(job, i);
}

bool fa_job_may_retry(fa_job *job, int index)
{
    enum { CHANCES = FA_JOB_CLEAN - 1 };
    return fa_job_attempt(job, index)->retries++ < CHANCES;
}

/* One transaction for whatever came since the loop last slept. */
static int write_outcomes(fa_job *job, fa_diag *diag)
{
    fa_store *store = job->tuner->store;
    int rc = 0;
    for (int i = 0; i < job->space.count && rc == 0; i++) {
        fa_attempt *attempt = &job->attempt[i];
        fa_trial *trial = &job->space.candidate[i].trial;
        if (attempt->fresh.bytes != NULL)
            rc = fa_store_cubin_put(store, &attempt->fresh, diag);
        if (rc != 0 || !attempt->dirty || job->plan.verify)
            continue;
        const fa_attempt *timed =
            attempt->twin_of != 0 ? &job->attempt[attempt->twin_of - 1] : attempt;
        fa_trial_record record = {.trial = *trial,
                                  .samples_us = timed->samples_us,
                                  .sample_count = timed->sample_count,
                                  .environment = job->environment,
                                  .clocks = attempt->clocks,
                                  .seed = job->seed};
        memcpy(record.cubin_key, attempt->cubin_key, sizeof record.cubin_key);
        rc = fa_store_trial_put(store, &job->target.scope, &record, diag);
    }
    return rc;
}

/* Between two transactions as much time as WRITE_SHARE of them take, and no more than a second. */
static const uint64_t WRITE_SHARE = 9, WRITE_PAUSE_NS = 1000000000;

int fa_job_flush(fa_job *job)
{
    /* Where the store cannot be written, a config can still be proved, but the proof is not kept. */
    if (!job->unwritten || (job->plan.verify && fa_store_is_read_only(job->tuner->store)))
        return 0;
    const uint64_t began = fa_clock_ns();
    fa_change change = {.store = job->tuner->store, .diag = &job->diag};
    while (fa_store_change(&change))
        change.rc = write_outcomes(job, &job->diag);
    if (change.rc != 0) {
        fa_job_end(job, change.rc);
        return change.rc;
    }
    const uint64_t now = fa_clock_ns(), pause = WRITE_SHARE * (now - began);
    job->write_due_ns = now + (pause < WRITE_PAUSE_NS ? pause : WRITE_PAUSE_NS);
    job->unwritten = false;
    for (int i = 0; i < job->space.count; i++) {
        job->attempt[i].dirty = false;
        fa_cubin_record_free(&job->attempt[i].fresh);
    }
    return 0;
}
