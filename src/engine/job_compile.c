/* SPDX-License-Identifier: Apache-2.0
 *
 * A tune's compile side: configs in the model's order, from the store when their cubin is there,
 * else from a pool of compile workers; then the gates that need no GPU.
 */
#include "job.h"

#include "candidate.h"
#include "hash.h"
#include "pool.h"
#include "store.h"

#include "cubin.h"
#include "error.h"
#include "model.h"
#include "op.h"
#include "manifest.h"
#include "spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- gates ----------------------------------------------------------------------------------*/
static bool are_launched_alike(const fa_launches *first, const fa_launches *second)
{
    bool alike = first->count == second->count &&
                 first->workspace_bytes == second->workspace_bytes &&
                 memcmp(first->scratch, second->scratch, sizeof first->scratch) == 0;
    for (int i = 0; i < first->count && alike; i++) {
        const fa_launch_shape *a = &first->at[i], *b = &second->at[i];
        alike = a->smem_bytes == b->smem_bytes &&
                memcmp(a->block, b->block, sizeof a->block) == 0 &&
                memcmp(a->grid, b->grid, sizeof a->grid) == 0;
    }
    return alike;
}

void fa_job_read_code(fa_job *job, int index, const void *bytes, size_t size)
{
    const fa_family *family = fa_job_family(job, index);
    const int count = family->launch_count;
    char *ret_code = job->attempt[index].code, code[FA_HASH_HEX];
    fa_hash all;
    fa_hash_init(&all);
    bool known = count == 1 || family->as_is; /* others pass what is not in the code */
    for (int i = 0; i < count && known; i++) {
        known = fa_cubin_code(bytes, size, family->launch[i].entry, code, NULL) == 0;
        fa_hash_text(&all, known ? code : "");
    }
    fa_hash_final(&all, ret_code);
    if (!known)
        ret_code[0] = 0;
}

/* A hint to the compiler often changes nothing: what was launched before with the same code, blocks
 * and memory is not tried twice. Returns true if a duplicate exists; the duplicate's result is used. */
static bool join_twin(fa_job *job, int index, const void *bytes, size_t size)
{
    fa_attempt *attempt = &job->attempt[index];
    const fa_launches *launches = &job->space.candidate[index].launches;
    fa_job_read_code(job, index, bytes, size);
    for (int i = 0; attempt->code[0] != 0 && i < job->space.count; i++) {
        const fa_candidate *other = &job->space.candidate[i];
        if (i == index || job->attempt[i].twin_of != 0 ||
            strcmp(job->attempt[i].code, attempt->code) != 0 ||
            !are_launched_alike(&other->launches, launches))
            continue;
        attempt->twin_of = i + 1;
        if (other->trial.status != FA_STATUS_PENDING)
            fa_job_settle_twin(job, index);
        return true;
    }
    return false;
}

/* Gates a cubin (new, or from the store): registers, spills, static memory, warnings. True when it is
 * clean: it is ranked, or waits to be proved. */
static bool take_cubin(fa_job *job, int index, const void *bytes, size_t size, const char *log)
{
    fa_candidate *candidate = &job->space.candidate[index];
    fa_attempt *attempt = &job->attempt[index];
    fa_trial *trial = &candidate->trial;
    fa_cubin_info info;
    fa_diag diag = {{0}};
    char reason[sizeof trial->reason] = "";
    const char *unused = fa_spec_fault_of(fa_operation_of(&job->target.problem));
    if (unused[0] != 0) {
        FA_JOB_FAIL(job, FA_EMANIFEST, "%s", unused);
        return false;
    }
    job->progress.compiled++;
    const fa_family *family = fa_job_family(job, index);
    int rc = fa_op_read_cubin(family, candidate, &job->target.problem, bytes, size, &info, &diag);
    if (rc != 0) {
        if (rc == FA_ENOMEM)
            FA_JOB_FAIL(job, rc, "%s", diag.text);
        else
            fa_job_settle(job, index, FA_STATUS_CUBIN, diag.text);
        if (!job->ended)
            fa_job_give_up_family(job, index, false);
        return false;
    }
    trial->registers = info.registers;
    trial->spill_bytes = info.stack_bytes;
    if (family->as_is) { /* its author's, and no fault */
        trial->static_smem_bytes = info.static_smem_bytes;
        info.stack_bytes = info.static_smem_bytes = 0;
    }
    fa_status status =
        fa_gate_cubin(&job->target.gpu, candidate, &info, log, reason, sizeof reason);
    if (status == FA_STATUS_COMPILED)
        fa_model_predict(candidate, &job->target.problem, &job->target.gpu, trial);
    if (status != FA_STATUS_COMPILED || !job->measuring) {
        job->progress.clean += status == FA_STATUS_COMPILED;
        fa_job_settle(job, index, status, reason);
        return status == FA_STATUS_COMPILED;
    }
    job->progress.clean++;
    if (join_twin(job, index, bytes, size))
        return true;
    if (!fa_job_keep_cubin(job, attempt, bytes, size))
        return false;
    job->measure.clean[job->measure.clean_count++] = index;
    return true;
}

/* ---- rendering ------------------------------------------------------------------------------*/
/* Renders a config, or the reference, and keeps its key. */
static int render(fa_job *job, int index, fa_compile_task *ret)
{
    const fa_task task = fa_task_for(job->tuner, &job->target.problem, &job->target.gpu);
    int rc = fa_render_candidate(job->tuner, &task,
                                 index != FA_JOB_REFERENCE ? &job->space.candidate[index] : NULL,
                                 job->nvrtc.identity, ret, &job->diag);
    if (rc != 0)
        return rc;
    ret->id = index;
    memcpy(fa_job_attempt(job, index)->cubin_key, ret->key, sizeof ret->key);
    return 0;
}

static bool keep_reference(fa_job *job, const void *bytes, size_t size)
{
    fa_cubin_info info;
    fa_diag diag = {{0}};
    const char *entry = fa_op_reference_entry(&job->target.problem);
    if (fa_cubin_read(bytes, size, entry, &info, &diag) == 0)
        return fa_job_keep_cubin(job, &job->reference, bytes, size);
    FA_JOB_FAIL(job, FA_ECOMPILE, "the reference kernel: %s", diag.text);
    return false;
}

/* A cubin that is clean, and the reference's, goes into the store with the next transaction. */
static void keep_fresh(fa_job *job, int index, fa_cubin_record *record)
{
    fa_attempt *attempt = fa_job_attempt(job, index);
    snprintf(record->entry, sizeof record->entry, "%s",
             index == FA_JOB_REFERENCE ? fa_op_reference_entry(&job->target.problem)
                                       : fa_job_family(job, index)->launch[0].entry);
    memcpy(record->key, attempt->cubin_key, sizeof record->key);
    record->sm = job->target.gpu.sm;
    attempt->fresh = *record;
    *record = (fa_cubin_record){0};
    job->unwritten = true;
}

/* True when the store or a system bundle had the cubin, and it has been taken. */
static bool take_stored(fa_job *job, int index, const char *key)
{
    fa_cubin_record record = {0};
    bool stored = fa_store_cubin_get(job->tuner->store, key, &record, NULL) == 0;
    if (!stored && job->tuner->system->cubin(job->tuner, key, &record) != 0)
        return false;
    if (index == FA_JOB_REFERENCE)
        keep_reference(job, record.bytes, record.size);
    else {
        job->progress.reused++; /* its compile time is that of the trial that it was compiled for */
        if (take_cubin(job, index, record.bytes, record.size, record.log) && !stored)
            keep_fresh(job, index, &record);
    }
    fa_cubin_record_free(&record);
    return true;
}

/* Whether the configs that compiled, or are on their way, are as many as the tune wants, or its time is over. For a GPU
 * that is not here these are no worse by the model than what is next. */
static bool are_enough(const fa_job *job)
{
    const struct fa_job_compile *compile = &job->compile;
    double most_us = 0;
    int kernels = 0;
    if (!job->measuring && compile->order_next < compile->order_count)
        most_us = job->space.candidate[compile->order[compile->order_next]].trial.predicted_us;
    for (int i = 0; i < job->space.count && kernels < compile->wanted; i++) {
        const fa_attempt *attempt = &job->attempt[i];
        const fa_trial *trial = &job->space.candidate[i].trial;
        bool begun = attempt->cubin_key[0] != 0 || attempt->source_of != 0;
        kernels += (trial->status == FA_STATUS_COMPILED ||
                    (trial->status == FA_STATUS_PENDING && begun)) &&
                   (!(most_us > 0) || trial->predicted_us <= most_us);
    }
    bool late = job->search.search == NULL && job->until_ns != 0 && job->progress.clean > 0 &&
                fa_clock_ns() >= job->until_ns;
    return late || (compile->wanted > 0 && kernels >= compile->wanted);
}

/* While nothing has compiled, the next config is taken from anywhere in the order, unless a search made it: neighbours would
 * fail alike. */
static int next_in_order(fa_job *job)
{
    struct fa_job_compile *compile = &job->compile;
    const int at = compile->order_next++, left = compile->order_count - at;
    int *next = compile->order + at, other = 0;
    if (job->progress.compiled > 0 || job->search.search != NULL)
        return *next;
    if (job->progress.failed > 0) /* of 2^32, spread evenly */
        other = (int)((uint64_t)left * ((uint32_t)at * 2654435769u) >> 32);
    int index = next[other];
    next[other] = *next;
    *next = index;
    return index;
}

/* For a GPU that is not here nothing is proved. A reference that is a user's must compile all the same: what it cannot
 * judge is worth nothing, with every config on record either. */
static bool needs_reference(const fa_job *job)
{
    const fa_problem *problem = &job->target.problem;
    return job->measuring ||
           !fa_templates_reference_is_builtin(fa_templates_for(job->tuner, problem), problem);
}

/* A source that did not compile for an earlier problem of this session does not compile now. */
static bool take_failed(fa_job *job, int index, const char *key)
{
    const fa_failed *known = fa_tuner_failed(job->tuner, key, "");
    if (known == NULL || job->request->effort == FA_EFFORT_PATIENT)
        return false;
    if (index == FA_JOB_REFERENCE) {
        FA_JOB_FAIL(job, FA_ECOMPILE, "the reference kernel: %s", known->error);
        return true;
    }
    fa_job_settle(job, index, FA_STATUS_COMPILE_FAILED, known->error);
    fa_job_give_up_family(job, index, known->hopeless);
    return true;
}

/* The next config that is not in the store; false: all are under way or done. */
static bool next_task(void *context, fa_compile_task *ret_task)
{
    fa_job *job = context;
    struct fa_job_compile *compile = &job->compile;
    while (!job->ended) {
        int index;
        fa_job_search_more(job);
        if (compile->again_count > 0) {
            index = compile->again[--compile->again_count];
        } else if (!compile->reference_asked && needs_reference(job)) {
            compile->reference_asked = true;
            index = FA_JOB_REFERENCE;
        } else if (compile->order_next < compile->order_count && !are_enough(job)) {
            index = next_in_order(job);
            if (job->attempt[index].source_of != 0 ||
                job->space.candidate[index].trial.status != FA_STATUS_PENDING)
                continue;
        } else {
            return false;
        }
        if (index >= 0 && job->plan.cubin != NULL) { /* these very bytes, whatever made them */
            const fa_cubin_record *cubin = job->plan.cubin;
            memcpy(job->attempt[index].cubin_key, cubin->key, sizeof cubin->key);
            take_cubin(job, index, cubin->bytes, cubin->size, cubin->log);
            continue;
        }
        int rc = render(job, index, ret_task);
        if (rc != 0) {
            fa_job_end(job, rc);
            return false;
        }
        if (!take_stored(job, index, ret_task->key) && !take_failed(job, index, ret_task->key)) {
            /* Later configs of the same source come with this one. */
            for (int i = compile->order_next;
                 index >= 0 && !job->prove_only && i < compile->order_count; i++) {
                int other = compile->order[i];
                if (job->attempt[other].source_of == 0 &&
                    fa_render_is_same(fa_families_for(job->tuner, &job->target.problem),
                                      &job->space.candidate[index], &job->space.candidate[other]))
                    job->attempt[other].source_of = index + 1;
            }
            return true;
        }
        free(ret_task->source);
    }
    return false;
}

void fa_job_compile_advance(fa_job *job)
{
    if (!job->ended)
        fa_compile_pool_advance(&job->compile.pool);
}

bool fa_job_compile_done(const fa_job *job)
{
    const struct fa_job_compile *compile = &job->compile;
    return (compile->order_next == compile->order_count || are_enough(job)) &&
           compile->again_count == 0 && compile->pool.busy == 0 && !compile->pool.has_held &&
           (job->reference.cubin != NULL || !needs_reference(job));
}

/* ---- answers --------------------------------------------------------------------------------*/
/* It says nothing about what was compiled: another worker tries it. */
static void ran_short(fa_job *job, int index, const char *text)
{
    if (fa_job_may_retry(job, index))
        job->compile.again[job->compile.again_count++] = index;
    else
        FA_JOB_FAIL(job, FA_ENOMEM, "%s, %d times", text, FA_JOB_CLEAN);
}

/* Whether attempt i was compiled with the source of `index`. */
static bool is_of_source(const fa_job *job, int index, int i)
{
    return i == index || job->attempt[i].source_of == index + 1;
}

/* Ends what a worker was given and did not answer. Without the reference there is no tune. */
static void lost(fa_job *job, int index, const char *text, fa_child_end end)
{
    bool late = end == FA_CHILD_TIMED_OUT;
    bool first_crash = end == FA_CHILD_DIED && fa_job_attempt(job, index)->retries ==
                                                   0; /* NVRTC dies of want of memory, too */
    if (end == FA_CHILD_SHORT) {
        ran_short(job, index, text);
    } else if ((end == FA_CHILD_KILLED || first_crash) && fa_job_may_retry(job, index)) {
        job->compile.again[job->compile.again_count++] = index;
    } else if (end == FA_CHILD_KILLED && job->plan.verify) {
        FA_JOB_FAIL(job, FA_EWORKER, "%s, %d times", text, FA_JOB_CLEAN);
    } else if (index == FA_JOB_REFERENCE) {
        FA_JOB_FAIL(job, FA_EWORKER, "the reference kernel: %s", text);
    } else {
        for (int i = 0; !job->ended && i < job->space.count; i++) {
            if (!is_of_source(job, index, i))
                continue;
            if (late) /* it took that long at least */
                job->space.candidate[i].trial.compile_ms = job->tuner->options.compile_timeout_ms;
            fa_job_settle(job, i, late ? FA_STATUS_COMPILE_TIMEOUT : FA_STATUS_COMPILE_FAILED,
                          text);
            job->attempt[i].dirty = late; /* a compiler that died is no verdict to be kept */
        }
    }
}

static void ended(void *context, int index, fa_compile_result *result)
{
    fa_job *job = context;
    int clean = FA_JOB_NOBODY; /* the first one: it keeps the cubin for the store */
    /* The templates are this user's files. */
    if (job->compile.pool.reads_files && !job->compile.noted_open_files &&
        !fa_templates_for(job->tuner, &job->target.problem)->builtin)
        fa_note(job->tuner, "this kernel has no Landlock: templates can read files while they are "
                            "compiled, so use only those that you trust");
    job->compile.noted_open_files = true;
    if (result->lost) {
        lost(job, index, result->text, result->end);
        return;
    }
    if (result->rc == FA_ENOMEM) {
        ran_short(job, index, result->text);
        return;
    }
    if (result->rc == FA_EMANIFEST) {
        FA_JOB_FAIL(job, result->rc, "%s", result->text);
        return;
    }
    if (result->rc == FA_ECOMPILE)
        fa_tuner_keep_failed(job->tuner, fa_job_attempt(job, index)->cubin_key, "", result->text);
    /* Without a log, where memory is short, the next run cannot judge it, and it must not be kept. */
    fa_cubin_record record = {.bytes = result->cubin,
                              .size = result->size,
                              .log = strdup(result->log),
                              .compile_ms = result->ms};
    result->cubin = NULL;
    if (record.log == NULL)
        FA_JOB_FAIL(job, FA_ENOMEM, "out of memory for a cubin");
    else if (index == FA_JOB_REFERENCE && result->rc != 0)
        FA_JOB_FAIL(job, FA_ECOMPILE, "the reference kernel: %s", result->text);
    else if (index == FA_JOB_REFERENCE && keep_reference(job, record.bytes, record.size))
        clean = index;
    for (int i = 0; !job->ended && index != FA_JOB_REFERENCE && i < job->space.count; i++) {
        if (!is_of_source(job, index, i))
            continue;
        if (i != index)
            memcpy(job->attempt[i].cubin_key, job->attempt[index].cubin_key, FA_HASH_HEX);
        job->space.candidate[i].trial.compile_ms = result->ms;
        if (result->rc != 0)
            fa_job_settle(job, i, FA_STATUS_COMPILE_FAILED, result->text);
        else if (take_cubin(job, i, record.bytes, record.size, record.log) &&
                 clean == FA_JOB_NOBODY)
            clean = i;
    }
    if (result->rc != 0 && !job->ended)
        fa_job_give_up_family(job, index, false);
    if (clean != FA_JOB_NOBODY)
        keep_fresh(job, clean, &record);
    fa_cubin_record_free(&record);
}

static void failed(void *context, int rc, const char *sentence)
{
    fa_job *job = context;
    FA_JOB_FAIL(job, rc, "%s", sentence);
}

static void changed(void *context)
{
    fa_job *job = context;
    job->advance(job);
}

/* ---- the pool -------------------------------------------------------------------------------*/
static void widen(fa_job *job, int count)
{
    fa_compile_pool_widen(&job->compile.pool, count);
    job->progress.compile_workers = job->compile.pool.count;
}

void fa_job_compile_init(fa_job *job)
{
    static const fa_compile_events events = {next_task, ended, failed, changed};
    const fa_tuner *tuner = job->tuner;
    fa_compile_pool *pool = &job->compile.pool;
    pool->setup = (fa_compile_setup){.loop = &job->loop,
                                     .worker_path = tuner->worker_path,
                                     .nvrtc = &job->nvrtc,
                                     .templates = fa_templates_for(tuner, &job->request->problem),
                                     .timeout_ms = tuner->options.compile_timeout_ms,
                                     .nice = tuner->options.compile_nice};
    pool->events = &events;
    pool->context = job;
}

void fa_job_compile_prestart(fa_job *job)
{
    enum { FOR_ONE_KERNEL = 2 }; /* and the reference */
    int workers = job->tuner->options.compile_workers;
    widen(job, job->request->effort == FA_EFFORT_PREDICT && workers > FOR_ONE_KERNEL
                   ? FOR_ONE_KERNEL
                   : workers);
    fa_compile_pool_start_all(&job->compile.pool);
}

void fa_job_compile_start(fa_job *job)
{
    int wanted = job->compile.order_count;
    if (job->compile.wanted > 0 && wanted > job->compile.wanted)
        wanted = job->compile.wanted;
    const bool needed = needs_reference(job);
    if (wanted == 0 && needed) { /* then no worker is needed where the store has the reference */
        fa_compile_task reference = {.source = NULL};
        job->compile.reference_asked = render(job, FA_JOB_REFERENCE, &reference) == 0 &&
                                       take_stored(job, FA_JOB_REFERENCE, reference.key);
        free(reference.source);
    }
    wanted += needed && !job->compile.reference_asked;
    widen(job, wanted < job->tuner->options.compile_workers ? wanted
                                                            : job->tuner->options.compile_workers);
}
