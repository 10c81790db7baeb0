/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stages of a tune do to its state: settle, count, tell, write, end; the gates of a cubin that need no GPU; and who
 * is raced, and who wins.
 *
 * A probe's time holds the clock of its own moment, which on a card at its power limit moves by
 * more than candidates differ, so probes only tell who is out of the question (PROBED). When many are left, a heat of a
 * few rounds compares them at one clock, and those that may be the best by it (HEATED) go into the race that decides.
 *
 * The winner is the lowest median. Configs within TIE of it whose confidence intervals overlap its
 * own are ties, declared in the answer and broken the same way every time: the default config
 * first, then less shared memory, fewer threads, config text.
 */
#include "job.h"

#include "error.h"
#include "model.h"
#include "problem.h"
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A few bytes of stack cost little and the clock will tell; past that a config is all spills. */
enum { STACK_ALLOWED = 16 };

fa_status fa_gate_cubin(const fa_gpu *gpu, const fa_candidate *candidate, const fa_cubin_info *info,
                        const char *log, char *ret_reason, size_t size)
{
    const fa_trial *trial = &candidate->trial;
    if (info->sm != gpu->sm) {
        snprintf(ret_reason, size, "cubin is for sm_%d, not sm_%d", info->sm, gpu->sm);
        return FA_STATUS_CUBIN;
    }
    if (info->static_smem_bytes != 0) {
        snprintf(ret_reason, size, "%d B of static shared memory are outside the budget",
                 info->static_smem_bytes);
        return FA_STATUS_CUBIN;
    }
    if (info->max_threads != 0 && info->max_threads < trial->threads) {
        snprintf(ret_reason, size, "cubin allows %d threads, the manifest launches %d",
                 info->max_threads, trial->threads);
        return FA_STATUS_CUBIN;
    }
    const int32_t shared = trial->smem_bytes + trial->static_smem_bytes;
    if (shared > gpu->smem_per_block) {
        snprintf(ret_reason, size,
                 "%d B of static and %d B of dynamic shared memory, and a block has at most %d B",
                 trial->static_smem_bytes, trial->smem_bytes, gpu->smem_per_block);
        return FA_STATUS_CUBIN;
    }
    const int resident = fa_model_occupancy(gpu, trial->threads, info->registers, shared);
    const fa_launch_shape *first = &candidate->launches.at[0];
    const int64_t blocks = (int64_t)first->grid[0] * first->grid[1] * first->grid[2];
    const char *loss = log != NULL ? strstr(log, "(C75") : NULL;
    fa_status status = FA_STATUS_SPILLS; /* last, as nothing else is wrong with such a kernel */
    if (resident < 1) {
        status = FA_STATUS_REGISTERS;
        snprintf(ret_reason, size, "%d registers x %d threads do not fit an SM", info->registers,
                 trial->threads);
    } else if ((first->how & FA_LAUNCH_COOPERATIVE) != 0 &&
               blocks > (int64_t)resident * gpu->sm_count) {
        status = FA_STATUS_REGISTERS;
        snprintf(ret_reason, size,
                 "a cooperative grid of %lld blocks, and %lld are resident at once",
                 (long long)blocks, (long long)resident * gpu->sm_count);
    } else if (info->stack_bytes > STACK_ALLOWED)
        snprintf(ret_reason, size, "%d B of local memory per thread at %d registers",
                 info->stack_bytes, info->registers);
    /* ptxas has compiled it, but not as it was meant: it waits between instructions of wgmma
     * (C7510 and its neighbours; C7512: for want of registers) or ignores a register count. */
    else if (loss != NULL && strstr(log, "wgmma.mma_async instructions are serialized") != NULL)
        snprintf(ret_reason, size, "wgmma is serialised%s",
                 strstr(log, "C7512") != NULL ? " because of too few registers (C7512)" : "");
    else if (loss != NULL)
        snprintf(ret_reason, size, "the assembler gave something up: %.*s",
                 (int)strcspn(loss, "\r\n"), loss);
    else
        status = FA_STATUS_COMPILED;
    return status;
}

void fa_job_end(fa_job *job, int rc)
{
    if (job->ended)
        return;
    job->ended = true;
    job->rc = rc;
    job->end_diag = job->diag;
    fa_loop_stop(&job->loop);
}

fa_attempt *fa_job_attempt(fa_job *job, int index)
{
    return index == FA_JOB_REFERENCE ? &job->reference : &job->attempt[index];
}

const fa_family *fa_job_family(const fa_job *job, int index)
{
    return fa_families_for(job->tuner, &job->target.problem)
        ->family[job->space.candidate[index].family];
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
    if (job->search.search == NULL && !job->measuring && job->compile.wanted > 0) {
        const int left = job->compile.order_count - (p->ended - p->resumed);
        const int missing = job->compile.wanted > p->clean ? job->compile.wanted - p->clean : 0;
        p->in_budget = p->ended + (missing < left ? missing : left);
    }
    if (!job->ended && fa_request_report(job->tuner, request, p)) {
        fa_fail(&job->diag, FA_ECANCELED, "canceled; what was done is kept for the next run");
        fa_job_end(job, FA_ECANCELED);
    }
}

void fa_job_set_launches(fa_job *job, int first, int count)
{
    fa_launches *launches = job->launches + (size_t)first * (size_t)job->case_count;
    for (int c = 0; c < job->case_count && !job->ended; c++) {
        fa_task task = fa_task_for(job->tuner, &job->cases[c], &job->target.gpu);
        const int rc = fa_space_launches(&task, job->space.candidate + first, count, launches + c,
                                         job->case_count, &job->diag);
        if (rc != 0)
            fa_job_end(job, rc);
    }
}

void fa_job_count(fa_job *job, const fa_trial *trial)
{
    const bool measured = trial->status == FA_STATUS_MEASURED;
    if (trial->status == FA_STATUS_SPILLS || trial->status == FA_STATUS_REGISTERS) {
        job->pruned++;
    } else if (!measured && trial->status != FA_STATUS_COMPILED) {
        job->progress.failed++;
    } else {
        job->progress.measured += measured;
        job->progress.proved += measured || job->prove_only;
        if (job->best.status == FA_STATUS_PENDING || fa_trial_compare(trial, &job->best) < 0)
            job->best = *trial;
    }
}

void fa_job_settle(fa_job *job, int index, fa_status status, const char *reason)
{
    fa_trial *trial = &job->space.candidate[index].trial;
    fa_attempt *attempt = &job->attempt[index];
    if (trial->status == FA_STATUS_MEASURED) /* a finalist, settled for the second time */
        job->progress.measured--, job->progress.proved--;
    trial->status = status;
    if (reason != trial->reason)
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
    fa_trial_take_times(trial, from);
    memcpy(attempt->bits, job->attempt[attempt->twin_of - 1].bits, sizeof attempt->bits);
    if (first || trial->status != from->status) {
        fa_job_settle(job, index, from->status, reason);
    } else {
        attempt->dirty = true;
        job->unwritten = true;
    }
}

bool fa_job_same_bits(const fa_job *job, int a, int b)
{
    const double *x = job->attempt[a].bits, *y = job->attempt[b].bits;
    bool same = true;
    for (int c = 0; c < job->case_count; c++)
        same &= x[c] < 0 || y[c] < 0 || (x[c] > 0 && x[c] == y[c]);
    return same;
}

void fa_job_settle_twins(fa_job *job, int index)
{
    for (int i = 0; i < job->space.count; i++)
        if (job->attempt[i].twin_of == index + 1)
            fa_job_settle_twin(job, i);
}

bool fa_job_may_retry(fa_job *job, int index)
{
    return fa_job_attempt(job, index)->retries++ < FA_JOB_CLEAN - 1;
}

/* One transaction for whatever came since the loop last slept. */
static int write_outcomes(fa_job *job, fa_diag *diag)
{
    fa_store *store = job->tuner->store;
    if (job->reference.fresh.bytes != NULL)
        FA_OR_RETURN(fa_store_cubin_put(store, &job->reference.fresh, diag));
    for (int i = 0; i < job->space.count; i++) {
        fa_attempt *attempt = &job->attempt[i];
        fa_trial *trial = &job->space.candidate[i].trial;
        if (attempt->fresh.bytes != NULL)
            FA_OR_RETURN(fa_store_cubin_put(store, &attempt->fresh, diag));
        if (!attempt->dirty || job->plan.verify)
            continue;
        const fa_attempt *timed =
            attempt->twin_of != 0 ? &job->attempt[attempt->twin_of - 1] : attempt;
        fa_study_trial record = {.trial = *trial,
                                 .samples_us = timed->samples_us,
                                 .sample_count = timed->sample_count,
                                 .environment = job->environment,
                                 .clocks = attempt->clocks,
                                 .seed = job->seed};
        memcpy(record.cubin_key, attempt->cubin_key, sizeof record.cubin_key);
        FA_OR_RETURN(fa_store_trial_put(store, &job->target.scope, &record, diag));
    }
    return 0;
}

/* Between two transactions as much time as WRITE_SHARE of them take, and no more than a second. */
static const uint64_t WRITE_SHARE = 9, WRITE_PAUSE_NS = 1000000000;

int fa_job_flush(fa_job *job)
{
    /* Where the store cannot be written, a config can still be proved, but the proof is not kept. */
    if (!job->unwritten || (job->plan.verify && fa_store_is_read_only(job->tuner->store)))
        return 0;
    const uint64_t began = fa_clock_ns();
    int rc = FA_CHANGED(job->tuner->store, &job->diag, write_outcomes(job, &job->diag));
    if (rc != 0) {
        fa_job_end(job, rc);
        return rc;
    }
    const uint64_t now = fa_clock_ns(), pause = WRITE_SHARE * (now - began);
    job->write_due_ns = now + (pause < WRITE_PAUSE_NS ? pause : WRITE_PAUSE_NS);
    job->unwritten = false;
    fa_cubin_record_free(&job->reference.fresh);
    for (int i = 0; i < job->space.count; i++) {
        job->attempt[i].dirty = false;
        fa_cubin_record_free(&job->attempt[i].fresh);
    }
    return 0;
}

/* ---- who is raced ----------------------------------------------------------------------------*/
/* Times the fastest: the interval's low end of a probe, as the clock was seen to move by 16 % in one race, and some
 * noise; the median of a heat's few rounds. */
static const double PROBED = 1.25, HEATED = 1.08;
/* FINALISTS_MIN are raced, more in short rounds, fewer in slow ones, but FINALISTS_LEAST, so that there is a race of which the
 * winner is the fastest. */
static const double SHORT_ROUND_US = 3000, SLOW_ROUND_US = 60000;
enum { FINALISTS_LEAST = 3, FINALISTS_MIN = 12, FINALISTS_MAX = 24, HEAT_MAX = 32 };

static int compare_index(const void *a, const void *b, void *context)
{
    const fa_job *job = context;
    return fa_trial_compare(&job->space.candidate[*(const int *)a].trial,
                            &job->space.candidate[*(const int *)b].trial);
}

static void sort(fa_job *job, int *order, int count)
{
    qsort_r(order, (size_t)count, sizeof *order, compare_index, job);
}

static int sorted(fa_job *job, fa_status status, int *ret_order)
{
    int count = 0;
    for (int i = 0; i < job->space.count; i++)
        if (job->space.candidate[i].trial.status == status)
            ret_order[count++] = i;
    sort(job, ret_order, count);
    return count;
}

/* Whether the config must be raced, because others are compared with it: a default, or identical code. */
static bool must_race(const fa_job *job, int index)
{
    for (int i = 0; i < job->space.count; i++)
        if ((i == index || job->attempt[i].twin_of == index + 1) &&
            job->space.candidate[i].is_default)
            return true;
    return false;
}

int fa_job_choose_finalists(fa_job *job)
{
    int count = sorted(job, FA_STATUS_MEASURED, job->measure.finalist), left = 0;
    const double fastest_us =
        count > 0 ? job->space.candidate[job->measure.finalist[0]].trial.median_us : 0;
    const double most = fmax(FINALISTS_LEAST, fmin(HEAT_MAX, SLOW_ROUND_US / (fastest_us + 1)));
    for (int i = 0; i < count; i++) {
        int index = job->measure.finalist[i];
        const fa_trial *trial = &job->space.candidate[index].trial;
        const bool may_win = trial->low_us <= fastest_us * PROBED && left < most;
        if (job->attempt[index].twin_of == 0 /* else raced as the one that it equals */ &&
            (may_win || must_race(job, index)))
            job->measure.finalist[left++] = index;
    }
    job->measure.finalist_count = left;
    job->measure.finalist_next = 0;
    job->measure.heat = left > FINALISTS_MIN;
    return left;
}

void fa_job_cut_finalists(fa_job *job)
{
    double limit = 0, round_us = 0;
    int left = 0;
    sort(job, job->measure.finalist, job->measure.finalist_count);
    for (int i = 0; i < job->measure.finalist_count; i++) {
        int index = job->measure.finalist[i];
        const fa_trial *trial = &job->space.candidate[index].trial;
        if (trial->status != FA_STATUS_MEASURED)
            continue;
        if (left == 0) /* the fastest comes first */
            limit = trial->median_us * HEATED;
        const bool room = round_us < (left < FINALISTS_MIN ? SLOW_ROUND_US : SHORT_ROUND_US) &&
                          left < FINALISTS_MAX,
                   may_win = trial->median_us <= limit && room;
        if (!may_win && left >= FINALISTS_LEAST && !must_race(job, index))
            continue;
        round_us += trial->median_us;
        job->measure.finalist[left++] = index;
    }
    job->measure.finalist_count = left;
    job->measure.finalist_next = 0;
    job->measure.heat = false;
}

/* ---- who wins --------------------------------------------------------------------------------*/
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

static bool is_tied(const fa_trial *trial, const fa_trial *fastest)
{
    return trial->median_us <= fastest->median_us * TIE && trial->low_us <= fastest->high_us &&
           fastest->low_us <= trial->high_us;
}

static int break_ties(const fa_job *job, const int *order, int count, fa_answer *answer)
{
    const fa_trial *fastest = &job->space.candidate[order[0]].trial;
    int winner = order[0];
    for (int i = 1; i < count; i++) {
        const fa_candidate *candidate = &job->space.candidate[order[i]];
        const bool tied = is_tied(&candidate->trial, fastest);
        answer->ties += tied;
        if (tied && preferred(candidate, &job->space.candidate[winner]))
            winner = order[i];
    }
    for (int i = 0; i < count && job->measuring; i++) /* else nothing was proved in this run */
        answer->ties_differ += order[i] != winner &&
                               is_tied(&job->space.candidate[order[i]].trial, fastest) &&
                               !fa_job_same_bits(job, winner, order[i]);
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
        if (answer->in_budget < job->search.fit && !job->search.exhausted)
            snprintf(answer->strategy, sizeof answer->strategy, "%s",
                     job->search.search->strategy->name);
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
        if (candidate->is_default && !job->space.candidate[winner].is_default)
            winner = order[i];
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

int fa_job_choose_winner(fa_job *job, fa_answer *answer)
{
    int *order = job->measure.finalist, count = job->measure.finalist_count;
    int winner = FA_JOB_NOBODY;
    fill_counts(job, answer);
    /* After a race only the raced are comparable; they hold the best of the rest, too. */
    if (job->measure.raced)
        sort(job, order, count);
    else
        count = sorted(job, FA_STATUS_MEASURED, order);
    while (count > 0 && job->space.candidate[order[count - 1]].trial.status != FA_STATUS_MEASURED)
        count--;
    if (count > 0) {
        winner = break_ties(job, order, count, answer);
        answer->origin = job->measuring ? FA_ORIGIN_MEASURED : FA_ORIGIN_MEASURED_SAME_SILICON;
        /* A guess while other configs wait: effort PREDICT tries a few. */
        for (int i = 0; i < job->space.count; i++) {
            fa_status status = job->space.candidate[i].trial.status;
            if (status == FA_STATUS_PENDING || status == FA_STATUS_COMPILED)
                answer->origin = fa_origin_untimed(&job->space.candidate[winner].trial);
        }
        answer->shortlist_only = job->plan.count > 0 || !fa_origin_is_timed(answer->origin);
    } else if ((count = sorted(job, FA_STATUS_COMPILED, order)) > 0) {
        winner = best_unmeasured(job, order, count, answer);
    }
    /* Answers with the config that was loaded and proved, not with an equal one. */
    return winner >= 0 && job->attempt[winner].twin_of != 0 ? job->attempt[winner].twin_of - 1
                                                            : winner;
}
