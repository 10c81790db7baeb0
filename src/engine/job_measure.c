/* SPDX-License-Identifier: Apache-2.0
 *
 * A tune's GPU side: one measuring worker, given one config at a time; a config that takes it down
 * is settled as crashed, timed out or out of memory, and a new worker goes on with the rest.
 *
 * Workload: some forty probes, a heat of up to sixty, a race of a dozen.
 */
#include "job.h"

#include "error.h"
#include "problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- measuring ------------------------------------------------------------------------------*/
enum {
    START_TIMEOUT_MS = 60000, /* driver initialisation on a busy host */
    OPEN_TIMEOUT_MS = 120000, /* the reference of a very long problem */
    RACE_TIMEOUT_MS = 120000,
    PROFILED = 10, /* times the limit of a trial: a profiler repeats launches */
    STARTS_IN_VAIN = 3,
    PROBE_COUNT = 7,
    PROBE_BUDGET_US = 20000,
    RACE_BUDGET_US = 40000,
    RACE_ROUNDS_MIN = 11,
    SLOW_RACE_US = 200000, /* of slow kernels, whose times scatter little, rounds are fewer */
    RACE_ROUNDS_MAX = 61,
    HEAT_ROUNDS_MIN = 3,
    HEAT_ROUNDS_MAX = 7,
    PATIENCE = 4 /* effort PATIENT repeats this many times as often */
};

static int patience(const fa_job *job)
{
    return job->request->effort == FA_EFFORT_PATIENT ? PATIENCE : 1;
}

static const char *text_of(const fa_message *message)
{
    const char *text = "no reason given";
    fa_json_text(message->json, "text", &text, "message", NULL);
    return text;
}

static int64_t code_of(const fa_message *message)
{
    int64_t rc = FA_EWORKER;
    fa_json_int(message->json, "rc", INT32_MIN, 0, &rc, "message", NULL);
    return rc;
}

/* ---- sending --------------------------------------------------------------------------------*/
static void send_to_worker(fa_job *job, cJSON *json, fa_buf *blob, int timeout_ms)
{
    if (blob->failed)
        FA_JOB_FAIL(job, FA_ENOMEM, "out of memory for a cubin");
    int rc = job->ended ? 0
                        : fa_child_send(job->measure.child, json, blob->data, blob->size,
                                        timeout_ms, &job->diag);
    if (rc != 0)
        fa_job_end(job, rc);
    cJSON_Delete(json);
    fa_buf_free(blob);
}

/* The launches of a specification's answer for all cases, in its default config. */
static void put_answer(fa_job *job, fa_buf *blob)
{
    fa_candidate candidate;
    fa_task task = fa_task_for(job->tuner, &job->target.problem, &job->target.gpu);
    int rc = fa_space_default(&task, 0, &candidate, &job->diag);
    for (int c = 0; c < job->case_count && rc == 0; c++) {
        fa_launch_shape shape;
        task = fa_task_for(job->tuner, &job->cases[c], &job->target.gpu);
        rc = fa_space_answer(&task, &candidate.trial.config, &shape, &job->diag);
        fa_buf_append(blob, &shape, sizeof shape);
    }
    if (rc != 0)
        fa_job_end(job, rc);
}

static void send_open(fa_job *job)
{
    const fa_family_list *families = fa_families_for(job->tuner, &job->target.problem);
    const bool answer = families->count > 0 && families->family[0]->answer.block[0] != NULL &&
                        job->reference.cubin_size > 0;
    fa_buf blob = {0};
    cJSON *json = cJSON_CreateObject();
    fa_json_add_text(json, "do", "open");
    const fa_operation *operation = fa_operation_of(&job->target.problem);
    if (!operation->is_default) /* the worker may not know it */
        fa_json_add(json, "operation", cJSON_Duplicate(operation->document, true));
    fa_json_add(json, "problem", fa_problem_to_json(&job->target.problem));
    char seed[24]; /* as text: cJSON writes 15 digits of a number */
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)job->seed);
    fa_json_add_text(json, "seed", seed);
    fa_json_add_number(
        json, "memory",
        (double)(job->request->memory > 0 ? job->request->memory : job->tuner->options.memory));
    char path[64];
    if (job->plan.data != NULL) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), job->plan.data->fd);
        fa_json_add_text(json, "data", path);
    }
    fa_json_add_bool(json, "answer", answer);
    fa_json_add_bool(json, "twice", job->target.wants_bits);
    job->measure.at = FA_MEASURER_OPENING;
    fa_buf_append(&blob, job->reference.cubin, job->reference.cubin_size);
    if (answer)
        put_answer(job, &blob);
    send_to_worker(job, json, &blob, OPEN_TIMEOUT_MS);
}

/* count 0: prove only. */
static void send_trial(fa_job *job, int index, int count)
{
    const fa_attempt *attempt = &job->attempt[index];
    const fa_launches *of_case = &job->launches[(size_t)index * (size_t)job->case_count];
    const fa_family *family = fa_job_family(job, index);
    fa_buf blob = {0};
    cJSON *json = cJSON_CreateObject();
    fa_json_add_text(json, "do", "trial");
    fa_json_add_number(json, "id", index);
    cJSON *entries = fa_json_add_array(json, "entries");
    for (int l = 0; l < of_case->count; l++)
        fa_json_push(entries, cJSON_CreateString(family->launch[l].entry));
    fa_json_add_number(json, "count", count);
    fa_json_add_number(json, "profiled", job->plan.launches);
    fa_json_add_number(json, "budget_us", PROBE_BUDGET_US * patience(job));
    const bool solo = job->measure.solo; /* no race follows */
    fa_json_add_number(json, "best_us", patience(job) == 1 && !solo ? job->measure.best_us : 0);
    job->measure.at = FA_MEASURER_TRIAL;
    job->measure.in_flight = index;
    fa_buf_append(&blob, attempt->cubin, attempt->cubin_size);
    fa_buf_append(&blob, of_case, (size_t)job->case_count * sizeof *of_case);
    send_to_worker(job, json, &blob,
                   job->tuner->options.trial_timeout_ms * (job->plan.launches > 0 ? PROFILED : 1));
}

static void send_race(fa_job *job)
{
    double round_us = 0;
    cJSON *json = cJSON_CreateObject();
    fa_json_add_text(json, "do", "race");
    cJSON *ids = fa_json_add_array(json, "ids");
    for (int i = 0; i < job->measure.finalist_count; i++) {
        fa_json_push(ids, cJSON_CreateNumber(job->measure.finalist[i]));
        round_us += job->space.candidate[job->measure.finalist[i]].trial.median_us;
    }
    double rounds = RACE_BUDGET_US * patience(job) / (round_us + 1);
    bool heat = job->measure.heat;
    int low = heat ? HEAT_ROUNDS_MIN : RACE_ROUNDS_MIN;
    if (round_us * low > SLOW_RACE_US * patience(job))
        low = (int)fmax(SLOW_RACE_US * patience(job) / round_us, HEAT_ROUNDS_MIN);
    int high = (heat ? HEAT_ROUNDS_MAX : RACE_ROUNDS_MAX) * patience(job);
    if (high > FA_BENCH_SAMPLES_MAX)
        high = FA_BENCH_SAMPLES_MAX;
    fa_json_add_number(json, "rounds", rounds < low ? low : rounds > high ? high : (int)rounds);
    job->measure.at = FA_MEASURER_RACE;
    send_to_worker(job, json, &(fa_buf){0}, RACE_TIMEOUT_MS);
}

/* ---- answers --------------------------------------------------------------------------------*/
/* Takes the samples as the attempt's and sums them up; false: they are no times, or memory ended the job. */
static bool take_samples(fa_job *job, int index, const cJSON *array)
{
    fa_trial *trial = &job->space.candidate[index].trial;
    fa_attempt *attempt = &job->attempt[index];
    int count = cJSON_GetArraySize(array), n = 0, rc = FA_ENOMEM;
    const cJSON *item;
    if (count > FA_BENCH_SAMPLES_MAX)
        return false;
    free(attempt->samples_us);
    attempt->samples_us = calloc((size_t)count + 1, sizeof *attempt->samples_us);
    if (attempt->samples_us != NULL) {
        cJSON_ArrayForEach (item, array)
            attempt->samples_us[n++] = (float)cJSON_GetNumberValue(item);
        rc = fa_samples_summary(attempt->samples_us, count, &trial->median_us, &trial->low_us,
                                &trial->high_us);
    }
    trial->sample_count = attempt->sample_count = rc == 0 ? count : 0;
    if (rc == FA_ENOMEM)
        FA_JOB_FAIL(job, FA_ENOMEM, "out of memory for a trial");
    return rc == 0;
}

static void take_clocks(fa_job *job, fa_attempt *attempt, const fa_message *message)
{
    const cJSON *clocks = fa_json_member(message->json, "clocks");
    free(attempt->clocks);
    attempt->clocks = fa_json_print(clocks);
    if (attempt->clocks == NULL && clocks != NULL)
        FA_JOB_FAIL(job, FA_ENOMEM, "out of memory for a trial");
}

static void restart(fa_job *job)
{
    fa_child_stop(&job->measure.child);
    if (!job->ended)
        fa_job_measure_start(job);
}

/* The config with which others are compared, or that which has its code and is tried for it; -1: there is none. */
static int first_config(const fa_job *job)
{
    const int first = job->space.default_index;
    return first >= 0 && job->attempt[first].twin_of != 0 ? job->attempt[first].twin_of - 1 : first;
}

/* Ends a proved config whose outputs do not have the bits of the one that is asked for, which was proved first. */
static void compare_bits(fa_job *job, int index, fa_status *status, const char **reason)
{
    const int first = first_config(job);
    const char *why = first >= 0 ? job->space.candidate[first].trial.reason : "it does not fit";
    if (first < 0 || !fa_job_same_bits(job, first, first))
        FA_JOB_FAIL(job, FA_ENOKERNEL, "no config has the bits of the default config: %s",
                    why[0] != 0 ? why : "its own differ from launch to launch");
    else if (!fa_job_same_bits(job, first, index))
        *status = FA_STATUS_OTHER_BITS,
        *reason = fa_job_same_bits(job, index, index)
                      ? "its outputs differ in bits from the default config's"
                      : "its outputs differ from launch to launch";
}

static void trial_answered(fa_job *job, const fa_message *message)
{
    int index = job->measure.in_flight;
    fa_trial *trial = &job->space.candidate[index].trial;
    fa_attempt *attempt = &job->attempt[index];
    const char *name;
    fa_status status;
    int64_t id = FA_JOB_NOBODY;
    job->measure.at = FA_MEASURER_OPEN;
    job->measure.starts_in_vain = 0;
    fa_json_int(message->json, "id", 0, INT32_MAX, &id, "message", NULL);
    if (code_of(message) != 0 || id != index) {
        FA_JOB_FAIL(job, FA_EWORKER, "measuring worker: %s",
                    code_of(message) != 0 ? text_of(message) : "answered out of turn");
        return;
    }
    if (fa_json_text(message->json, "status", &name, "message", NULL) != 0 ||
        fa_status_parse(name, &status) != 0 || status < FA_STATUS_LOAD_FAILED)
        status = FA_STATUS_LAUNCH_FAILED; /* the measuring worker knows no earlier gate */
    fa_json_number(message->json, "max_error", &trial->max_error, "message", NULL);
    fa_json_number(message->json, "tolerance", &trial->tolerance, "message", NULL);
    for (int c = 0; c < job->case_count; c++)
        attempt->bits[c] =
            cJSON_GetNumberValue(cJSON_GetArrayItem(fa_json_member(message->json, "bits"), c));
    take_clocks(job, attempt, message);
    if (job->ended)
        return;
    const cJSON *samples = fa_json_member(message->json, "samples");
    const char *reason = status == FA_STATUS_MEASURED ? trial->reason : text_of(message);
    if (job->plan.verify && cJSON_HasObjectItem(message->json, "foreign")) {
        FA_JOB_FAIL(job, FA_ECUDA, "%s", reason);
        return;
    }
    if (status == FA_STATUS_MEASURED && job->target.wants_bits && !job->plan.verify)
        compare_bits(job, index, &status, &reason);
    if (status == FA_STATUS_MEASURED) {
        attempt->generation = job->measure.generation;
        if (samples == NULL && trial->status == FA_STATUS_MEASURED)
            return; /* a finalist, loaded again for the race */
        if (samples == NULL && job->prove_only)
            status = FA_STATUS_COMPILED; /* proved and not timed, as asked */
        else if (!take_samples(job, index, samples))
            status = FA_STATUS_LAUNCH_FAILED, reason = "the worker gave no usable times";
        else if (job->measure.best_us == 0 || trial->median_us < job->measure.best_us)
            job->measure.best_us = trial->median_us;
        if (job->ended)
            return;
    }
    fa_job_settle(job, index, status, reason);
    if (status == FA_STATUS_CRASHED) /* its context is lost and it is about to end */
        restart(job);
}

/* The race failed, and which finalist did it is not known: each runs again on its own. */
static void run_solo(fa_job *job)
{
    job->measure.solo = true;
    job->measure.heat = false;
    job->measure.finalist_next = 0;
}

/* They compare by medians that the drift of the race is taken out of; their intervals stay what
 * the race saw, drift and all, as that is how well the time itself is known. */
static int level_finalists(fa_job *job)
{
    int count = job->measure.finalist_count,
        rounds = job->attempt[job->measure.finalist[0]].sample_count;
    for (int i = 0; i < count; i++)
        if (job->attempt[job->measure.finalist[i]].sample_count != rounds || rounds == 0)
            return 0; /* one has no usable times and is settled; the others stay comparable */
    FA_ENDS(fa_free_at) float *race = calloc((size_t)count * (size_t)rounds + 1, sizeof *race);
    FA_OR_RETURN(fa_have(race != NULL, "a race", &job->diag));
    for (int i = 0; i < count; i++)
        memcpy(race + (size_t)i * (size_t)rounds, job->attempt[job->measure.finalist[i]].samples_us,
               (size_t)rounds * sizeof *race);
    int rc = fa_race_level(race, count, rounds);
    for (int i = 0; rc == 0 && i < count; i++) {
        fa_trial *trial = &job->space.candidate[job->measure.finalist[i]].trial;
        double low, high;
        rc = fa_samples_summary(race + (size_t)i * (size_t)rounds, rounds, &trial->median_us, &low,
                                &high);
        trial->low_us = fmin(trial->low_us, trial->median_us);
        trial->high_us = fmax(trial->high_us, trial->median_us);
    }
    return rc == 0 ? 0 : fa_fail(&job->diag, rc, "taking a race's drift out of its times");
}

static void race_answered(fa_job *job, const fa_message *message)
{
    const cJSON *all = fa_json_member(message->json, "samples");
    job->measure.at = FA_MEASURER_OPEN;
    if (code_of(message) != 0 || cJSON_GetArraySize(all) != job->measure.finalist_count) {
        run_solo(job);
        restart(job); /* its context may be lost */
        return;
    }
    for (int i = 0; i < job->measure.finalist_count; i++) {
        int index = job->measure.finalist[i];
        fa_attempt *attempt = &job->attempt[index];
        take_clocks(job, attempt, message);
        job->space.candidate[index].trial.raced = !job->measure.heat;
        bool taken = take_samples(job, index, cJSON_GetArrayItem(all, i));
        if (job->ended)
            return;
        if (!taken)
            fa_job_settle(job, index, FA_STATUS_LAUNCH_FAILED, "the race gave no usable times");
    }
    int rc = level_finalists(job);
    if (rc != 0) {
        fa_job_end(job, rc);
        return;
    }
    for (int i = 0; i < job->measure.finalist_count; i++) {
        job->attempt[job->measure.finalist[i]].dirty = job->unwritten = true;
        fa_job_settle_twins(job, job->measure.finalist[i]);
    }
    if (job->measure.heat)
        fa_job_cut_finalists(job);
    else
        job->measure.raced = true;
}

static void measurer_answered(fa_child *child, fa_message *message)
{
    fa_job *job = fa_child_context(child);
    enum fa_measurer at = job->measure.at;
    if (at == FA_MEASURER_STARTING || at == FA_MEASURER_OPENING) {
        int64_t rc = code_of(message);
        /* There is no kernel for what does not fit the memory. That refutes no winner, and one to be proved stays. */
        if (rc == FA_ENOMEM && at == FA_MEASURER_OPENING && !job->plan.verify)
            rc = FA_ENOKERNEL;
        if (rc != 0) {
            FA_JOB_FAIL(job, (int)rc, "%s", text_of(message));
            return;
        }
        job->measure.at = at == FA_MEASURER_STARTING ? FA_MEASURER_READY : FA_MEASURER_OPEN;
    } else if (at == FA_MEASURER_RACE) {
        race_answered(job, message);
    } else if (at == FA_MEASURER_TRIAL) {
        trial_answered(job, message);
    }
    job->advance(job);
}

/* A worker that was killed from outside says nothing about its config, which gets another chance; one that short memory
 * kills again and again ends the tune, and a proof gives no verdict then. Any other end is the config's own. */
static void trial_lost(fa_job *job, fa_child_end end, const char *text)
{
    int index = job->measure.in_flight;
    bool is_short = end == FA_CHILD_SHORT, outside = end == FA_CHILD_KILLED || is_short;
    if (outside && fa_job_may_retry(job, index)) {
        if (job->progress.stage != FA_STAGE_FINAL)
            job->measure.clean[job->measure.clean_count++] = index;
        else if (job->measure.solo)
            job->measure.finalist_next--;
        return;
    }
    if (is_short || (outside && job->plan.verify)) {
        FA_JOB_FAIL(job, is_short ? FA_ENOMEM : FA_EWORKER, "%s, %d times", text, FA_JOB_CLEAN);
        return;
    }
    if (end == FA_CHILD_TIMED_OUT) /* it takes that long at least */
        job->space.candidate[index].trial.low_us = 1000.0 * job->tuner->options.trial_timeout_ms;
    fa_job_settle(job, index, end == FA_CHILD_TIMED_OUT ? FA_STATUS_TIMEOUT : FA_STATUS_CRASHED,
                  text);
}

static void measurer_gone(fa_child *child, const char *reason, fa_child_end end)
{
    fa_job *job = fa_child_context(child);
    char text[256];
    snprintf(text, sizeof text, "the measuring worker %s", reason);
    job->measure.child = NULL;
    if (job->measure.at == FA_MEASURER_TRIAL) {
        trial_lost(job, end, text);
    } else if (job->measure.at == FA_MEASURER_RACE) {
        if ((end != FA_CHILD_KILLED && end != FA_CHILD_SHORT) ||
            !fa_job_may_retry(job, job->measure.finalist[0]))
            run_solo(job);
    } else if (++job->measure.starts_in_vain >= STARTS_IN_VAIN) {
        FA_JOB_FAIL(job, FA_EWORKER, "%s, %d times in a row before any trial", text,
                    STARTS_IN_VAIN);
    }
    if (!job->ended && fa_job_measure_start(job) == 0)
        job->advance(job);
}

/* ---- order of work --------------------------------------------------------------------------*/
/* Finalists that this worker has not loaded are proved again; then all are raced, after a heat where
 * there are many. */
static void advance_final(fa_job *job)
{
    while (job->measure.finalist_next < job->measure.finalist_count && !job->ended) {
        int index = job->measure.finalist[job->measure.finalist_next];
        fa_attempt *attempt = &job->attempt[index];
        bool fit = job->space.candidate[index].trial.status == FA_STATUS_MEASURED;
        if (!fit || (!job->measure.solo && attempt->generation == job->measure.generation)) {
            job->measure.finalist_next++;
            continue;
        }
        if (attempt->cubin == NULL) { /* an earlier run's: it was in the store at the beginning */
            FA_ENDS(fa_cubin_record_free) fa_cubin_record record = {0};
            int rc = fa_store_cubin_get(job->tuner->store, attempt->cubin_key, &record, &job->diag);
            if (rc != 0) /* the store's fault, not the config's */
                fa_job_end(job, rc);
            else
                fa_job_keep_cubin(job, attempt, record.bytes, record.size);
            if (job->ended)
                return;
        }
        job->measure.finalist_next += job->measure.solo;
        send_trial(job, index, job->measure.solo ? PROBE_COUNT * patience(job) : 0);
        return;
    }
    int left = 0, samples = HEAT_ROUNDS_MIN;
    for (int i = 0; i < job->measure.finalist_count; i++) {
        const fa_trial *trial = &job->space.candidate[job->measure.finalist[i]].trial;
        if (trial->status == FA_STATUS_MEASURED)
            job->measure.finalist[left++] = job->measure.finalist[i], samples = trial->sample_count;
    }
    job->measure.finalist_count = job->measure.finalist_next = left;
    if ((left > 1 || samples < HEAT_ROUNDS_MIN) && !job->measure.solo && !job->measure.raced &&
        !job->ended)
        send_race(job); /* one alone, too, of which little but its proof is known */
}

/* Where nothing says what is right, or what is right is not enough, the others are compared with the default config, which
 * is therefore the first: false while it is compiled. */
static bool bring_default(fa_job *job)
{
    const int first = first_config(job);
    int *clean = job->measure.clean;
    if (job->measure.clean_next > 0 || first < 0 ||
        (!job->target.wants_bits && !fa_problem_has_no_answer(&job->target.problem)))
        return true;
    for (int i = 0; i < job->measure.clean_count; i++) {
        if (clean[i] != first)
            continue;
        clean[i] = clean[0];
        clean[0] = first;
        return true;
    }
    return job->space.candidate[first].trial.status != FA_STATUS_PENDING;
}

void fa_job_measure_advance(fa_job *job)
{
    if (job->ended || job->measure.child == NULL)
        return;
    if (job->measure.at == FA_MEASURER_READY) {
        if (job->reference.cubin != NULL)
            send_open(job);
    } else if (job->measure.at != FA_MEASURER_OPEN) {
        return;
    } else if (job->measure.clean_next < job->measure.clean_count && bring_default(job)) {
        int index = job->measure.clean[job->measure.clean_next++];
        send_trial(job, index, job->prove_only ? 0 : PROBE_COUNT * patience(job));
    } else if (job->progress.stage == FA_STAGE_FINAL) {
        advance_final(job);
    }
}

bool fa_job_measure_done(const fa_job *job)
{
    return job->measure.clean_next == job->measure.clean_count &&
           job->measure.finalist_next == job->measure.finalist_count &&
           (job->measure.at == FA_MEASURER_OPEN ||
            (job->measure.at < FA_MEASURER_OPENING && job->measure.clean_count == 0));
}

int fa_job_measure_start(fa_job *job)
{
    static const fa_child_events events = {measurer_answered, measurer_gone};
    char ordinal[16];
    snprintf(ordinal, sizeof ordinal, "%d", job->target.gpu.ordinal);
    char *const arguments[] = {"fa-tune-worker", "measure", ordinal, NULL};
    job->measure.at = FA_MEASURER_STARTING;
    job->measure.generation++;
    if (!job->measure.solo && !job->measure.raced)
        job->measure.finalist_next = 0; /* it has none of them loaded */
    int rc = fa_child_start(&job->loop, job->tuner->worker_path, arguments, NULL, &events, job,
                            &job->measure.child, &job->diag);
    if (rc == 0)
        fa_child_deadline(job->measure.child, START_TIMEOUT_MS);
    else
        fa_job_end(job, rc);
    return rc;
}
