/* SPDX-License-Identifier: Apache-2.0
 *
 * A tune's compile side: configs in the model's order, from the store when their cubin is there,
 * else from a pool of compile workers; then the gates that need no GPU.
 */
#include "job_compile.h"

#include "buf.h"
#include "candidate.h"
#include "compile_worker.h"
#include "hash.h"
#include "manifest.h"
#include "pool.h"
#include "store.h"
#include "source.h"

#include "cubin.h"
#include "error.h"
#include "json.h"
#include "model.h"
#include "op.h"
#include "render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STARTS_IN_VAIN = 3 };

static int start_worker(fa_job *job, struct fa_compile_worker *worker);

/* ---- gates ----------------------------------------------------------------------------------*/
/* A hint to the compiler often changes nothing: what was launched before with the same code, threads
 * and memory is not tried twice. True when there is such a one; this one ends as that one does. */
static bool join_twin(fa_job *job, int index, const void *bytes, size_t size, const char *entry)
{
    fa_attempt *attempt = &job->attempt[index];
    const fa_trial *trial = &job->space.candidate[index].trial;
    if (fa_cubin_code(bytes, size, entry, attempt->code, NULL) != 0) {
        attempt->code[0] = 0; /* no twin of anything: the device will tell */
        return false;
    }
    for (int i = 0; i < job->space.count; i++) {
        const fa_candidate *other = &job->space.candidate[i];
        if (i == index || job->attempt[i].twin_of != 0 ||
            strcmp(job->attempt[i].code, attempt->code) != 0 ||
            other->trial.threads != trial->threads ||
            other->trial.smem_bytes != trial->smem_bytes ||
            memcmp(other->trial.grid, trial->grid, sizeof trial->grid) != 0)
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
    job->progress.compiled++;
    const fa_family *family = job->tuner->families.family[candidate->family];
    if (fa_op_read_cubin(family, candidate, &job->target.problem, bytes, size, &info, &diag) != 0) {
        fa_job_settle(job, index, FA_STATUS_CUBIN, diag.text);
        return false;
    }
    trial->registers = info.registers;
    trial->spill_bytes = info.stack_bytes;
    fa_status status = fa_gate_cubin(&job->target.gpu, trial, &info, log, reason, sizeof reason);
    if (status == FA_STATUS_COMPILED)
        fa_model_predict(candidate, &job->target.problem, &job->target.gpu, trial);
    if (status != FA_STATUS_COMPILED || !job->measuring) {
        job->progress.clean += status == FA_STATUS_COMPILED;
        fa_job_settle(job, index, status, reason);
        return status == FA_STATUS_COMPILED;
    }
    job->progress.clean++;
    if (fa_family_launch_count(family) == 1 &&
        join_twin(job, index, bytes, size, fa_family_entry(family)))
        return true;
    attempt->cubin = malloc(size);
    if (attempt->cubin == NULL) {
        fa_job_end(job, fa_fail(&job->diag, FA_ENOMEM, "out of memory for a cubin"));
        return false;
    }
    memcpy(attempt->cubin, bytes, size);
    attempt->cubin_size = size;
    job->clean[job->clean_count++] = index;
    return true;
}

/* ---- rendering ------------------------------------------------------------------------------*/
/* The source of a config (or of the reference), its architecture and its cubin key. */
static int render(fa_job *job, int index, fa_buf *ret_source, char *ret_architecture, size_t size,
                  char ret_key[FA_HASH_HEX])
{
    const fa_gpu *gpu = &job->target.gpu;
    fa_tuner *tuner = job->tuner;
    if (index != FA_JOB_REFERENCE)
        return fa_render_candidate(tuner, &job->target, &job->space.candidate[index],
                                   job->nvrtc.identity, ret_source, ret_architecture, size, ret_key,
                                   &job->diag);
    snprintf(ret_architecture, size, "sm_%d", gpu->sm);
    int rc =
        fa_render_reference(tuner->templates, &job->target.problem, gpu, ret_source, &job->diag);
    if (rc != 0)
        return rc;
    fa_cubin_key(tuner, ret_source->data, ret_architecture, job->nvrtc.identity, ret_key);
    return 0;
}

static void keep_reference(fa_job *job, const void *bytes, size_t size)
{
    job->reference = malloc(size);
    if (job->reference == NULL) {
        fa_job_end(job, fa_fail(&job->diag, FA_ENOMEM, "out of memory for a cubin"));
        return;
    }
    memcpy(job->reference, bytes, size);
    job->reference_size = size;
}

/* A cubin of a system bundle or of the fleet that is clean goes into the store, as one compiled now would. */
static void keep_fresh(fa_job *job, int index, fa_cubin_record *record)
{
    const fa_candidate *candidate = &job->space.candidate[index];
    fa_cubin_record *fresh = malloc(sizeof *fresh);
    if (fresh == NULL)
        return; /* the winner's cubin will be missed, and the tune end with that sentence */
    *fresh = *record;
    *record = (fa_cubin_record){0};
    snprintf(fresh->entry, sizeof fresh->entry, "%s",
             fa_family_entry(job->tuner->families.family[candidate->family]));
    fresh->sm = job->target.gpu.sm;
    job->attempt[index].fresh_cubin = fresh;
    job->unwritten = true;
}

/* A whole space is in a shared store or none of it: after a few that are not there it is asked no
 * more. */
static int fetch_cubin(fa_job *job, const char *key, fa_cubin_record *ret_record)
{
    enum { IN_VAIN = 4 };
    if (job->fetch_misses >= IN_VAIN)
        return FA_ENOTFOUND;
    int rc = fa_sources_fetch_cubin(job->tuner, key, ret_record);
    job->fetch_misses = rc == 0 ? 0 : job->fetch_misses + 1;
    return rc;
}

/* True when the store, a system bundle or the fleet had the cubin, and it has been taken. */
static bool take_stored(fa_job *job, int index, const char *key)
{
    fa_cubin_record record = {0};
    bool stored = fa_store_cubin_get(job->tuner->store, key, &record, NULL) == 0;
    if (!stored && fa_sources_cubin(job->tuner, key, &record) != 0 &&
        fetch_cubin(job, key, &record) != 0)
        return false;
    if (index == FA_JOB_REFERENCE)
        keep_reference(job, record.bytes, record.size);
    else {
        job->progress.reused++;
        job->space.candidate[index].trial.compile_ms = record.compile_ms;
        if (take_cubin(job, index, record.bytes, record.size, record.log) && !stored)
            keep_fresh(job, index, &record);
    }
    fa_cubin_record_free(&record);
    return true;
}

static char *key_of(fa_job *job, int index)
{
    return index == FA_JOB_REFERENCE ? job->reference_key : job->attempt[index].cubin_key;
}

/* The next config that is not in the store; FA_JOB_NOBODY when all are under way or done. */
static int next_to_compile(fa_job *job, fa_buf *source, char *architecture, size_t size)
{
    while (!job->ended) {
        int index;
        if (job->again_count > 0) {
            index = job->again[--job->again_count];
        } else if (job->measuring && !job->reference_asked) {
            job->reference_asked = true;
            index = FA_JOB_REFERENCE;
        } else if (job->order_next < job->order_count) {
            index = job->order[job->order_next++];
        } else {
            return FA_JOB_NOBODY;
        }
        if (index >= 0 && job->plan.cubin != NULL) { /* these very bytes, whatever made them */
            const fa_cubin_record *cubin = job->plan.cubin;
            memcpy(job->attempt[index].cubin_key, cubin->key, sizeof cubin->key);
            take_cubin(job, index, cubin->bytes, cubin->size, cubin->log);
            continue;
        }
        fa_buf_free(source); /* rendering makes a new one */
        int rc = render(job, index, source, architecture, size, key_of(job, index));
        if (rc != 0)
            fa_job_end(job, rc);
        else if (!take_stored(job, index, key_of(job, index)))
            return index;
    }
    return FA_JOB_NOBODY;
}

static void give(fa_job *job, struct fa_compile_worker *worker, int index, const char *source,
                 const char *architecture)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "do", "compile");
    cJSON_AddNumberToObject(json, "id", index < 0 ? 0 : index);
    cJSON_AddStringToObject(json, "name", index < 0 ? "reference.cu" : "candidate.cu");
    cJSON_AddStringToObject(json, "architecture", architecture);
    cJSON_AddStringToObject(json, "source", source);
    int rc =
        fa_child_send(worker->child, json, NULL, 0, job->tuner->compile_timeout_ms, &job->diag);
    cJSON_Delete(json);
    worker->index = index;
    job->compiling++;
    if (rc != 0)
        fa_job_end(job, rc);
}

void fa_job_compile_advance(fa_job *job)
{
    fa_buf source = {0};
    char architecture[32];
    for (int w = 0; w < job->worker_count && !job->ended; w++) {
        struct fa_compile_worker *worker = &job->worker[w];
        if (worker->child != NULL && (!worker->ready || worker->index != FA_JOB_IDLE))
            continue;
        /* A worker that does not run yet is started only when there is something for it. */
        if (worker->child == NULL) {
            if (job->held == FA_JOB_NOBODY)
                job->held = next_to_compile(job, &source, architecture, sizeof architecture);
            if (job->held == FA_JOB_NOBODY || start_worker(job, worker) != 0)
                break;
            continue;
        }
        int index = job->held, rc;
        job->held = FA_JOB_NOBODY;
        if (index == FA_JOB_NOBODY)
            index = next_to_compile(job, &source, architecture, sizeof architecture);
        else if ((rc = render(job, index, &source, architecture, sizeof architecture,
                              key_of(job, index))) != 0)
            fa_job_end(job, rc);
        if (index == FA_JOB_NOBODY || job->ended)
            break;
        give(job, worker, index, source.data, architecture);
        fa_buf_free(&source);
    }
    fa_buf_free(&source);
}

bool fa_job_compile_done(const fa_job *job)
{
    return job->order_next == job->order_count && job->again_count == 0 &&
           job->held == FA_JOB_NOBODY && job->compiling == 0 &&
           (!job->measuring || job->reference != NULL);
}

/* ---- answers --------------------------------------------------------------------------------*/
static fa_cubin_record *fresh_record(const fa_job *job, int index, const char *key,
                                     fa_message *message, const char *log, double ms)
{
    fa_cubin_record *record = calloc(1, sizeof *record);
    if (record == NULL)
        return NULL;
    const char *entry = fa_op_of(&job->target.problem)->reference_entry;
    if (index >= 0)
        entry = fa_family_entry(job->tuner->families.family[job->space.candidate[index].family]);
    memcpy(record->key, key, sizeof record->key);
    snprintf(record->entry, sizeof record->entry, "%s", entry);
    record->sm = job->target.gpu.sm;
    record->bytes = message->blob;
    record->size = message->blob_size;
    message->blob = NULL;
    record->log = strdup(log);
    record->compile_ms = ms;
    return record;
}

static void take_answer(fa_job *job, int index, fa_message *message)
{
    int64_t rc = FA_ECOMPILE;
    const char *log = "", *text = "no reason given";
    double ms = 0;
    fa_json_int(message->json, "rc", INT32_MIN, 0, &rc, "message", NULL);
    fa_json_number(message->json, "ms", &ms, "message", NULL);
    fa_json_text(message->json, "log", &log, "message", NULL);
    fa_json_text(message->json, "text", &text, "message", NULL);
    if (!(ms >= 0))
        ms = 0;
    if (rc == 0 && message->blob == NULL)
        rc = FA_ECOMPILE;
    if (index == FA_JOB_REFERENCE) {
        if (rc != 0) {
            fa_job_end(job, fa_fail(&job->diag, FA_ECOMPILE, "the reference kernel: %s", text));
            return;
        }
        keep_reference(job, message->blob, message->blob_size);
        fa_cubin_record *record = fresh_record(job, index, job->reference_key, message, log, ms);
        if (record != NULL) /* only a saving for the next run */
            fa_store_cubin_put(job->tuner->store, record, NULL);
        fa_cubin_record_free(record);
        free(record);
        return;
    }
    job->space.candidate[index].trial.compile_ms = ms;
    if (rc != 0) {
        fa_job_settle(job, index, FA_STATUS_COMPILE_FAILED, text);
        return;
    }
    fa_attempt *attempt = &job->attempt[index];
    if (take_cubin(job, index, message->blob, message->blob_size, log)) {
        attempt->fresh_cubin = fresh_record(job, index, attempt->cubin_key, message, log, ms);
        job->unwritten = true;
    }
}

/* Ends what a worker was given and did not answer. Without the reference there is no tune. */
static void lose(fa_job *job, int index, fa_status status, const char *text)
{
    if (index == FA_JOB_REFERENCE)
        fa_job_end(job, fa_fail(&job->diag, FA_EWORKER, "the reference kernel: %s", text));
    else
        fa_job_settle(job, index, status, text);
}

/* Templates of somebody's own are compiled all the same where the kernel cannot shut the file system:
 * they are this user's files; but it is said. */
static void note_open_files(fa_job *job, const fa_message *message)
{
    bool confined = false;
    fa_json_bool(message->json, "confined", &confined, "message", NULL);
    if (!confined && !job->noted_open_files && job->tuner->strict_ms == 0 &&
        !fa_templates_is_builtin(job->tuner->templates))
        fa_note(job->tuner, "this kernel has no Landlock: templates can read files while they are "
                            "compiled, so use only those that you trust");
    job->noted_open_files = true;
}

static void worker_answered(fa_child *child, fa_message *message)
{
    struct fa_compile_worker *worker = fa_child_context(child);
    fa_job *job = worker->job;
    if (!worker->ready) {
        int64_t rc = FA_EWORKER;
        const char *text = "no reason given";
        fa_json_int(message->json, "rc", INT32_MIN, 0, &rc, "message", NULL);
        fa_json_text(message->json, "text", &text, "message", NULL);
        if (rc != 0) {
            fa_job_end(job, fa_fail(&job->diag, (int)rc, "compile worker: %s", text));
            return;
        }
        worker->ready = true;
        job->starts_in_vain = 0;
        note_open_files(job, message);
    } else if (worker->index != FA_JOB_IDLE) {
        int index = worker->index;
        int64_t id = FA_JOB_NOBODY;
        worker->index = FA_JOB_IDLE;
        job->compiling--;
        fa_json_int(message->json, "id", 0, INT32_MAX, &id, "message", NULL);
        if (id == (index < 0 ? 0 : index)) {
            take_answer(job, index, message);
        } else { /* an answer to something else: nothing more that it says is believed */
            fa_child_stop(&worker->child);
            lose(job, index, FA_STATUS_COMPILE_FAILED, "the compiler answered out of turn");
        }
    }
    job->advance(job);
}

static void worker_gone(fa_child *child, const char *reason, fa_child_end end)
{
    struct fa_compile_worker *worker = fa_child_context(child);
    fa_job *job = worker->job;
    int index = worker->index;
    char text[256];
    worker->child = NULL;
    worker->index = FA_JOB_IDLE;
    if (index != FA_JOB_IDLE)
        job->compiling--;
    snprintf(text, sizeof text, "the compiler %s", reason);
    if (index != FA_JOB_IDLE && end == FA_CHILD_KILLED && fa_job_may_retry(job, index)) {
        job->again[job->again_count++] = index;
        job->advance(job);
        return;
    }
    if (index != FA_JOB_IDLE && end == FA_CHILD_KILLED && job->plan.verify) {
        fa_job_end(job, fa_fail(&job->diag, FA_EWORKER, "%s, %d times", text, FA_JOB_CLEAN));
        return;
    }
    if (index >= 0 && end == FA_CHILD_TIMED_OUT) /* it took that long at least */
        job->space.candidate[index].trial.compile_ms = job->tuner->compile_timeout_ms;
    if (index != FA_JOB_IDLE)
        lose(job, index,
             end == FA_CHILD_TIMED_OUT ? FA_STATUS_COMPILE_TIMEOUT : FA_STATUS_COMPILE_FAILED,
             text);
    else if (!worker->ready && ++job->starts_in_vain >= STARTS_IN_VAIN)
        fa_job_end(job, fa_fail(&job->diag, FA_EWORKER, "compile worker %s: %s",
                                job->tuner->worker_path, reason));
    job->advance(job);
}

/* ---- the pool -------------------------------------------------------------------------------*/
static int start_worker(fa_job *job, struct fa_compile_worker *worker)
{
    static const fa_child_events events = {worker_answered, worker_gone};
    worker->ready = false;
    worker->index = FA_JOB_IDLE;
    int rc =
        fa_compile_worker_start(&job->loop, job->tuner->worker_path, &job->nvrtc,
                                job->tuner->strict_ms, &events, worker, &worker->child, &job->diag);
    if (rc == 0) {
        fa_child_yield(worker->child, job->tuner->compile_nice);
        rc = fa_compile_worker_headers(worker->child, job->tuner->templates, &job->diag);
    }
    if (rc != 0)
        fa_job_end(job, rc);
    return rc;
}

static void set_workers(fa_job *job, int count)
{
    for (int w = job->worker_count; w < count; w++) {
        job->worker[w].job = job;
        job->worker[w].index = FA_JOB_IDLE;
    }
    if (count > job->worker_count)
        job->worker_count = count;
    job->progress.compile_workers = job->worker_count;
}

void fa_job_compile_prestart(fa_job *job)
{
    set_workers(job, job->tuner->compile_workers);
    for (int w = 0; w < job->worker_count && !job->ended; w++)
        start_worker(job, &job->worker[w]);
}

void fa_job_compile_start(fa_job *job)
{
    int wanted = job->order_count + job->measuring;
    set_workers(job, wanted < job->tuner->compile_workers ? wanted : job->tuner->compile_workers);
}

void fa_job_compile_stop(fa_job *job)
{
    for (int w = 0; w < job->worker_count; w++)
        fa_child_kill(job->worker[w].child);
    for (int w = 0; w < job->worker_count; w++)
        fa_child_stop(&job->worker[w].child);
}
