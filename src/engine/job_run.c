/* SPDX-License-Identifier: Apache-2.0
 *
 * A tune: waits while another process tunes the same key, looks again, then sets up the space, the order of its configs and
 * the grids that they are proved on. A loop on the caller's thread keeps the compile workers and the measuring worker busy
 * until every config has ended somewhere; then the finalists are raced.
 *
 * Invariant: what has ended is written within a second, most of it within ten times what a transaction takes, unless a
 * server is waited for.
 */
#include "job.h"

#include "error.h"
#include "model.h"
#include "op.h"
#include "problem.h"
#include "spec.h"
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { PREDICT_CONFIGS = 8, PREDICTED_KERNELS = 10, TICK_MS = 100, FEW_ROUNDS = 8 };

/* ---- first contact: what is to be tried, where the model's choice is known ---------------------*/
static int by_prediction(const void *a, const void *b)
{
    double x = ((const fa_study_trial *)a)->trial.predicted_us;
    double y = ((const fa_study_trial *)b)->trial.predicted_us;
    return (x > y) - (x < y);
}

/* The predicted winner, and what was compiled for this silicon as the model ranks it, as far as this NVRTC made the cubins
 * and they are there; nothing where another made that winner's. */
static int plan_race(fa_tuner *tuner, const fa_target *target, const fa_answer *predicted,
                     fa_plan *plan, fa_diag *diag)
{
    fa_nvrtc_location nvrtc;
    FA_ENDS(fa_free_at) fa_study_trial *trial = NULL;
    size_t count = 0;
    FA_OR_RETURN(fa_compiler_choose(tuner->worker_path, target->gpu.sm, &nvrtc, NULL, diag));
    if (strcmp(predicted->nvrtc, nvrtc.identity) != 0)
        return 0;
    FA_OR_RETURN(fa_store_trials(tuner->store, &target->scope, &trial, &count, diag));
    plan->item[plan->count++] = predicted->trial.config;
    if (count > 0)
        qsort(trial, count, sizeof *trial, by_prediction);
    for (size_t i = 0; i < count && plan->count < FA_PLAN_MAX; i++) {
        const fa_trial *one = &trial[i].trial;
        fa_tools tools;
        bool here = false;
        if (fa_trial_finished(one) && one->predicted_us > 0 &&
            !fa_config_equal(&one->config, &plan->item[0]) &&
            fa_records_tools(trial[i].environment, &tools) &&
            strcmp(tools.nvrtc, nvrtc.identity) == 0 &&
            fa_store_cubin_exists(tuner->store, trial[i].cubin_key, &here, NULL) == 0 && here)
            plan->item[plan->count++] = one->config;
    }
    return 0;
}

/* Plans a tune of the target for a request, by what is stored for it. */
static int make_plan(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                     const fa_lookup *known, fa_plan *ret_plan, fa_diag *diag)
{
    const fa_match *guess = NULL;
    bool timed = false;
    *ret_plan = (fa_plan){.count = 0};
    for (int i = 0; i < known->count; i++) {
        const fa_match *match = &known->own[i];
        timed = timed || (match->usable && match->kind != FA_STEP_PREDICTED);
        if (match->usable && guess == NULL)
            guess = match;
    }
    if (target->wants_bits && !target->gpu.present)
        return fa_fail(diag, FA_ENODEVICE,
                       "same_bits compares outputs on the GPU itself, and %s is not here",
                       target->gpu.name);
    if (target->wants_bits && request->effort == FA_EFFORT_PREDICT)
        *ret_plan = (fa_plan){.item = {target->same_bits}, .count = 1, .prove_only = true};
    if (timed || guess == NULL || target->wants_bits)
        return 0;
    if (request->effort == FA_EFFORT_PREDICT)
        *ret_plan = (fa_plan){.item = {guess->answer.trial.config}, .count = 1, .prove_only = true};
    else if (request->effort == FA_EFFORT_MEASURE && request->first_contact && !request->again &&
             target->gpu.present && guess->answer.origin != FA_ORIGIN_UNRANKED)
        return plan_race(tuner, target, &guess->answer, ret_plan, diag);
    return 0;
}

/* ---- the job --------------------------------------------------------------------------------*/
/* A transaction waits for the disk several times, and the loop with it: it comes when its turn is, or with the next tick.
 * That a server is back is noticed here, and the locks taken again. */
static void before_wait(void *context)
{
    fa_job *job = context;
    if (!fa_tuner_awaits_server(job->tuner) && fa_clock_ns() >= job->write_due_ns)
        fa_job_flush(job);
}

static void tick(void *context)
{
    fa_job_emit(context, FA_EVENT_PROGRESS, NULL);
}

int fa_job_new(fa_tuner *tuner, const fa_request *request, int sm, fa_job **ret_job, fa_diag *diag)
{
    fa_job *job = calloc(1, sizeof *job);
    FA_OR_RETURN(fa_have(job != NULL, "a tune", diag));
    job->tuner = tuner;
    job->request = request;
    job->started_ns = fa_clock_ns();
    fa_job_compile_init(job);
    int rc = fa_compiler_choose(tuner->worker_path, sm, &job->nvrtc, NULL, diag);
    if (rc != 0)
        fa_job_free(&job);
    else
        *ret_job = job;
    return rc;
}

/* Whether what finished in an earlier run can still be the winner: launched as the space says today,
 * and its cubin is in the store. */
static bool usable(fa_job *job, const fa_study_trial *record, int index)
{
    const fa_trial *old = &record->trial, *today = &job->space.candidate[index].trial;
    FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
    if (old->threads != today->threads || old->smem_bytes != today->smem_bytes ||
        (old->status == FA_STATUS_MEASURED && !(old->median_us > 0)) ||
        fa_store_cubin_get(job->tuner->store, record->cubin_key, &cubin, NULL) != 0)
        return false;
    if (job->measuring)
        fa_job_read_code(job, index, cubin.bytes, cubin.size);
    return true;
}

/* A config that ended in an earlier run is not tried again, unless the machine may be to blame (no memory, no time, a
 * compiler that died), or another compiler or another driver may see it differently: what another driver proved is
 * proved, and timed, by this one before it may win. */
static int resume_one(fa_job *job, const fa_study_trial *record)
{
    const fa_trial *old = &record->trial;
    bool finished = fa_trial_finished(old);
    const fa_driver *driver = job->tuner->driver;
    fa_tools tools;
    bool refused = old->status > FA_STATUS_COMPILED && old->status != FA_STATUS_MEASURED;
    if (old->status < FA_STATUS_REGISTERS || old->status == FA_STATUS_OUT_OF_MEMORY ||
        old->status == FA_STATUS_TIMEOUT || old->status == FA_STATUS_COMPILE_TIMEOUT ||
        (job->measuring && old->status == FA_STATUS_COMPILED) || /* not proved */
        (finished && old->spilled) ||                            /* others may not, today */
        !fa_records_tools(record->environment, &tools) ||
        (refused && job->plan.data != NULL && tools.contents != job->plan.data->contents) ||
        strcmp(tools.nvrtc, job->nvrtc.identity) != 0 ||
        ((refused || job->measuring) && driver != NULL &&
         tools.driver != fa_driver_version(driver)))
        return 0;
    int index = job->search.search != NULL
                    ? fa_job_search_find(job, &old->config)
                    : fa_space_find(&job->space, &old->config, FA_STATUS_PENDING);
    if (index < 0)
        return job->ended ? job->rc : 0;
    fa_trial *trial = &job->space.candidate[index].trial;
    fa_attempt *attempt = &job->attempt[index];
    /* Bits are compared with those of this run's inputs. */
    if (finished && (job->target.wants_bits || !usable(job, record, index))) {
        job->space.count -= job->search.search != NULL; /* it may be proposed */
        if (job->space.default_index == job->space.count)
            job->space.default_index = -1;
        return 0;
    }
    uint32_t grid[3];
    memcpy(grid, trial->grid, sizeof grid);
    *trial = *old;
    trial->raced = old->raced && !job->measuring; /* else that race was another one */
    memcpy(trial->grid, grid, sizeof grid);
    memcpy(attempt->cubin_key, record->cubin_key, sizeof attempt->cubin_key);
    job->progress.resumed++;
    job->progress.compiled += old->status != FA_STATUS_COMPILE_FAILED;
    job->progress.clean += old->status >= FA_STATUS_COMPILED;
    fa_job_count(job, trial);
    return 0;
}

/* The configs that the plan names, as far as they exist and fit. */
static int plan_space(fa_job *job, const fa_problem *problem, fa_space *ret_space, fa_diag *diag)
{
    fa_space space = {.default_index = -1};
    space.candidate = calloc((size_t)job->plan.count, sizeof *space.candidate);
    FA_OR_RETURN(fa_have(space.candidate != NULL, "a plan", diag));
    fa_task task = fa_task_for(job->tuner, problem, &job->target.gpu);
    for (int i = 0; i < job->plan.count; i++) {
        fa_candidate *candidate = &space.candidate[space.count];
        if (fa_space_one(&task, &job->plan.item[i], candidate, diag) != 0)
            continue;
        space.default_index = candidate->is_default ? space.count : space.default_index;
        space.count++;
        space.survivors += candidate->trial.status == FA_STATUS_PENDING;
    }
    *ret_space = space;
    return 0;
}

static int set_up_space(fa_job *job)
{
    fa_diag *diag = &job->diag;
    FA_OR_RETURN(fa_tuner_families(job->tuner, diag));
    if (job->plan.count > 0)
        FA_OR_RETURN(plan_space(job, &job->target.problem, &job->space, diag));
    else
        FA_OR_RETURN(fa_tuner_enumerate(job->tuner, &job->target.problem, &job->target.gpu,
                                        &job->space, diag));
    bool searched = job->plan.count == 0 && fa_job_search_wanted(job);
    if (job->space.survivors == 0 && job->space.held == 0) {
        int far = 0; /* a config that came far tells the most, because all configs met its reason */
        while (far < job->space.count - 1 && job->space.candidate[far].launches.count == 0)
            far++;
        return fa_fail(diag, FA_ENOKERNEL, "no config of %d fits: %s", job->space.count,
                       job->space.count > 0 ? job->space.candidate[far].trial.reason
                                            : "none exist");
    }
    job->progress.space = job->space.count;
    job->progress.in_budget = job->space.survivors;
    job->capacity = searched ? FA_SPACE_MAX : job->space.count;
    int rc = searched ? fa_job_search_open(job) : 0;
    if (searched)
        job->progress.space = job->search.held < INT32_MAX ? (int32_t)job->search.held : INT32_MAX;
    const size_t room = (size_t)job->capacity;
    job->attempt = calloc(room, sizeof *job->attempt);
    job->indices = calloc((FA_JOB_CLEAN + 3) * room + 1, sizeof *job->indices);
    FA_OR_RETURN(fa_have(job->attempt != NULL && job->indices != NULL, "a space", diag));
    job->compile.order = job->indices;
    job->measure.finalist = job->compile.order + room;
    job->measure.clean = job->measure.finalist + room;
    job->compile.again = job->measure.clean + FA_JOB_CLEAN * room;
    return rc;
}

static int make_seed(const fa_tuner *tuner, uint64_t *ret_seed, fa_diag *diag)
{
    uint64_t seed = tuner->options.seed;
    if (seed == 0 && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        return fa_fail(diag, FA_EIO, "no random seed to be had");
    *ret_seed = seed & (((uint64_t)1 << 53) - 1); /* exact in JSON */
    return 0;
}

static bool asks_caller(const fa_target *target)
{
    void *context;
    return target->gpu.present &&
           (fa_spec_cases_of(fa_operation_of(&target->problem), &context) != NULL ||
            fa_problem_answer_is_given(&target->problem));
}

int fa_job_ask_caller(fa_tuner *tuner, const fa_target *target, bool verify,
                      fa_case_data **ret_data, fa_diag *diag)
{
    enum { DEEP = 8 };
    static _Thread_local int depth __attribute__((tls_model("initial-exec")));
    const fa_operation *operation = fa_operation_of(&target->problem);
    fa_problem cases[FA_BENCH_CASES];
    void *context = NULL;
    uint64_t seed = 0;
    fa_case_function *function = fa_spec_cases_of(operation, &context);
    if (!asks_caller(target) || (function == NULL && verify))
        return 0;
    if (function == NULL)
        return fa_fail(diag, FA_ENOTSUP,
                       "only the program that tuned %s has its reference: tune it from there",
                       operation->name);
    if (depth == DEEP)
        return fa_fail(diag, FA_EINVAL,
                       "the answer of %s tunes a kernel whose answer tunes, and so on, %d deep",
                       operation->name, DEEP);
    FA_OR_RETURN(make_seed(tuner, &seed, diag));
    int count = fa_bench_cases(&target->problem, seed, cases);
    const int32_t given = fa_contents_of(&target->problem);
    pthread_mutex_unlock(&tuner->work);
    depth++;
    int rc = fa_case_data_make(cases, count, seed, function, context, ret_data, diag);
    depth--;
    if (rc == 0)
        (*ret_data)->contents = given;
    pthread_mutex_lock(&tuner->work);
    return rc;
}

/* Moves this config, or with NULL the families' defaults, to the front of an order; returns how many there are. */
static int move_first(const fa_job *job, const fa_config *config, int *order, int count)
{
    int first = 0;
    for (int i = 0; i < count; i++) {
        const int index = order[i];
        const fa_candidate *candidate = &job->space.candidate[index];
        if (config != NULL ? !fa_config_equal(&candidate->trial.config, config)
                           : !candidate->is_default)
            continue;
        memmove(order + first + 1, order + first, (size_t)(i - first) * sizeof *order);
        order[first++] = index;
    }
    return first;
}

/* How many configs of its family, but the default, have come through before and are no worse to the model. */
static int count_before(const fa_job *job, const fa_candidate *candidate)
{
    int before = 0;
    for (int i = 0; i < job->space.count; i++) {
        const fa_candidate *one = &job->space.candidate[i];
        before += one->family == candidate->family && !one->is_default &&
                  fa_trial_finished(&one->trial) &&
                  one->trial.predicted_us <= candidate->trial.predicted_us;
    }
    return before;
}

/* What by a model that is not blurred takes a quarter longer than the best does not pay, of our own templates on Hopper,
 * where its predictions were compared with races; nor what it puts behind a family's tries. Both count what an earlier
 * run tried, so that running again tries no others. Effort PATIENT tries all. */
static int leave_out(fa_job *job, int count)
{
    const fa_problem *problem = &job->target.problem;
    const bool ours = fa_templates_for(job->tuner, problem)->builtin;
    const bool is_known = ours && job->target.gpu.sm == 90 && !(fa_op_of(problem)->blur > 0);
    const fa_family_list *families = fa_families_for(job->tuner, problem);
    int tried[FA_FAMILIES_MAX] = {0}, kept = 0;
    double far_us = INFINITY;
    for (int i = 0; job->measuring && is_known && i < job->space.count; i++)
        if (job->space.candidate[i].trial.predicted_us > 0)
            far_us = fmin(far_us, 1.25 * job->space.candidate[i].trial.predicted_us);
    for (int i = 0; i < count; i++) {
        fa_candidate *candidate = &job->space.candidate[job->compile.order[i]];
        fa_trial *trial = &candidate->trial;
        const int most = families->family[candidate->family]->tries;
        if (candidate->is_default || fa_config_equal(&trial->config, &job->elsewhere.config) ||
            (!(trial->predicted_us > far_us) &&
             (most == 0 || tried[candidate->family]++ + count_before(job, candidate) < most))) {
            job->compile.order[kept++] = job->compile.order[i];
            continue;
        }
        trial->status = FA_STATUS_DOES_NOT_PAY;
        snprintf(trial->reason, sizeof trial->reason, "the model puts others before it");
    }
    job->space.survivors -= count - kept;
    job->progress.in_budget = job->space.survivors;
    return kept;
}

/* The families' defaults first, which tell the most where they do not compile, then the model's first choices, so that a run
 * that is cut short has seen them; then the largest, which compile longest: the last to finish decides when all is done. A space of a
 * few rounds of the workers is over before anybody cuts it short, and goes by size alone. A tune that ends
 * with the first proved kernels, or with a few that compile, goes by the model; one that proves begins with what
 * compiles soonest of what is as fast to it. */
static void set_up_order(fa_job *job)
{
    int count = 0;
    for (int i = 0; i < job->space.count; i++) {
        fa_candidate *candidate = &job->space.candidate[i];
        if (candidate->trial.status != FA_STATUS_PENDING)
            continue;
        fa_model_predict(candidate, &job->target.problem, &job->target.gpu, &candidate->trial);
        job->compile.order[count++] = i;
    }
    job->compile.order_count = count;
    if (job->plan.count > 0) /* few, and in the order of trust */
        return;
    fa_model_rank(&job->space, job->compile.order, count);
    if (job->request->effort != FA_EFFORT_PATIENT)
        count = leave_out(job, count);
    /* Another GPU's winner is proved before what the model says. */
    const int seeds =
        job->prove_only ? move_first(job, &job->elsewhere.config, job->compile.order, count) : 0;
    if (job->request->effort == FA_EFFORT_PREDICT && count > PREDICT_CONFIGS)
        count = PREDICT_CONFIGS;
    int first = count <= FEW_ROUNDS * job->tuner->options.compile_workers ? 0 : count / 2;
    if (job->prove_only) {
        int *order = job->compile.order + seeds;
        fa_model_break_ties(&job->target.problem, &job->space, order, count - seeds);
        fa_model_soonest_first(&job->target.problem, &job->space, order, count - seeds);
    } else {
        /* Where nothing can be timed and a model ranks the configs, compiling tells only whether one fits. */
        if (count > 0 && job->space.candidate[job->compile.order[0]].trial.predicted_us > 0 &&
            !job->measuring && job->request->effort != FA_EFFORT_PATIENT)
            job->compile.wanted = PREDICTED_KERNELS;
        if (job->compile.wanted == 0)
            fa_model_largest_first(&job->space, job->compile.order + first, count - first);
        move_first(job, NULL, job->compile.order, count);
    }
    job->compile.order_count = count;
}

static int set_up(fa_job *job)
{
    fa_tuner *tuner = job->tuner;
    FA_ENDS(fa_free_at) fa_study_trial *record = NULL;
    size_t count = 0;
    if (job->plan.data != NULL)
        job->seed = job->plan.data->seed;
    else
        FA_OR_RETURN(make_seed(tuner, &job->seed, &job->diag));
    job->compile.wanted = job->prove_only && job->plan.count == 0 ? 1 : 0;
    if (job->request->seconds > 0)
        job->until_ns = job->started_ns + (uint64_t)(job->request->seconds * 1e9);
    FA_OR_RETURN(set_up_space(job));
    if (job->plan.count == 0)
        FA_OR_RETURN(fa_records_elsewhere(tuner, &job->target, &job->elsewhere, &job->diag));
    bool resume =
        job->request->effort != FA_EFFORT_PATIENT && !(job->plan.count > 0 && job->plan.prove_only);
    if (resume)
        FA_OR_RETURN(
            fa_store_trials(tuner->store, &job->target.scope, &record, &count, &job->diag));
    for (size_t i = 0; i < count; i++)
        FA_OR_RETURN(resume_one(job, &record[i]));
    if (job->search.search != NULL)
        fa_job_search_begin(job);
    else
        set_up_order(job);
    if (job->ended)
        return job->rc;
    job->environment = fa_records_environment(
        &job->target.gpu, tuner->driver != NULL ? fa_driver_version(tuner->driver) : 0,
        job->nvrtc.identity, job->plan.data != NULL ? job->plan.data->contents : 0);
    FA_OR_RETURN(fa_have(job->environment != NULL, "a tune", &job->diag));
    job->loop.tick_ms = TICK_MS;
    job->loop.tick = tick;
    job->loop.before_wait = before_wait;
    job->loop.held = &tuner->work; /* others look up, tune and write while workers are waited for */
    job->loop.context = job;
    return 0;
}

void fa_job_free(fa_job **job_pointer)
{
    fa_job *job = *job_pointer;
    if (job == NULL)
        return;
    fa_compile_pool_stop(&job->compile.pool);
    fa_loop_close(&job->loop);
    for (int i = 0; job->attempt != NULL && i < job->space.count; i++) {
        fa_cubin_record_free(&job->attempt[i].fresh);
        free(job->attempt[i].cubin);
        free(job->attempt[i].samples_us);
        free(job->attempt[i].clocks);
    }
    free(job->attempt);
    free(job->indices);
    free(job->launches);
    free(job->reference.cubin);
    fa_cubin_record_free(&job->reference.fresh);
    free(job->environment);
    fa_space_free(&job->space);
    fa_job_search_close(job);
    free(job);
    *job_pointer = NULL;
}

/* ---- the run --------------------------------------------------------------------------------*/
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
    if (job->progress.stage == FA_STAGE_TUNE && fa_job_take_spilled(job)) {
        advance(job);
        return;
    }
    if (job->measuring && !job->prove_only && job->progress.stage == FA_STAGE_TUNE &&
        fa_job_choose_finalists(job) > 0) {
        fa_compile_pool_stop(&job->compile.pool); /* nothing beside the race */
        enter_stage(job, FA_STAGE_FINAL);
        fa_job_measure_advance(job);
        if (!fa_job_measure_done(job)) /* a single finalist that is loaded already needs no race */
            return;
    }
    fa_job_end(job, 0);
}

/* With what ended the first config that was tried; one that was under way when the tune ended did not end. */
static int fail_none_survived(fa_job *job)
{
    const fa_trial *first = NULL;
    for (int i = 0; first == NULL && i < job->space.count; i++)
        if (job->attempt[i].cubin_key[0] != 0 &&
            job->space.candidate[i].trial.status != FA_STATUS_PENDING)
            first = &job->space.candidate[i].trial;
    const int tried = job->progress.resumed + job->compile.order_count;
    if (first == NULL)
        return fa_fail(&job->diag, FA_ENOKERNEL, "none of %d configs survived", tried);
    return fa_fail(&job->diag, FA_ENOKERNEL, "none of %d configs survived; the first: %s: %s",
                   tried, fa_status_name(first->status), first->reason);
}

static int run_job(fa_job *job)
{
    FA_OR_RETURN(set_up(job));
    fa_job_compile_start(job);
    if (job->measuring)
        FA_OR_RETURN(fa_job_measure_start(job));
    enter_stage(job, FA_STAGE_TUNE);
    fa_job_compile_advance(job); /* the workers are at it while the grids are worked out */
    if (job->measuring && !job->ended) {
        job->case_count = fa_bench_cases(&job->target.problem, job->seed, job->cases);
        job->launches =
            calloc((size_t)job->capacity * (size_t)job->case_count, sizeof *job->launches);
        FA_OR_RETURN(fa_have(job->launches != NULL, "launches", &job->diag));
        fa_job_set_launches(job, 0, job->space.count);
    }
    advance(job);
    if (!job->ended)
        fa_loop_run(&job->loop);
    fa_request_server(job->tuner, job->request);
    int rc = fa_job_flush(job);
    return job->rc != 0 ? job->rc : rc;
}

/* ---- its end ---------------------------------------------------------------------------------*/
static int verified(const fa_job *job, fa_answer *answer)
{
    if (job->space.count == 0)
        return FA_JOB_NOBODY;
    answer->trial = job->space.candidate[0].trial;
    memcpy(answer->cubin_key, job->attempt[0].cubin_key, sizeof answer->cubin_key);
    snprintf(answer->nvrtc, sizeof answer->nvrtc, "%s", job->nvrtc.identity);
    return answer->trial.status == FA_STATUS_COMPILED ? 0 : FA_JOB_NOBODY;
}

static void note_families(const fa_job *job)
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

static int store_winner(fa_job *job, int index, fa_answer *answer, fa_diag *diag)
{
    const fa_candidate *candidate = &job->space.candidate[index];
    fa_driver *driver = job->tuner->driver;
    answer->problem = answer->from_problem = job->target.problem;
    answer->gpu = job->target.gpu;
    answer->unix_time = (int64_t)time(NULL);
    answer->contents = job->plan.data != NULL ? job->plan.data->contents : 0;
    answer->trial = candidate->trial;
    if (candidate->trial.spilled)
        fa_note(job->tuner, "%s", candidate->trial.reason);
    answer->tune_s = (double)(fa_clock_ns() - job->started_ns) / 1e9;
    answer->driver_version = job->measuring && driver != NULL ? fa_driver_version(driver) : 0;
    snprintf(answer->entry, sizeof answer->entry, "%s", fa_job_family(job, index)->launch[0].entry);
    snprintf(answer->cubin_key, sizeof answer->cubin_key, "%s", job->attempt[index].cubin_key);
    snprintf(answer->nvrtc, sizeof answer->nvrtc, "%s", job->nvrtc.identity);
    FA_ENDS(fa_winner_record_free) fa_winner_record winner = {0};
    FA_OR_RETURN(fa_records_winner(answer, &job->target.scope, &winner, diag));
    /* The store may be another by now, the file in the place of a server. */
    fa_cubin_record cubin = {.sm = job->target.gpu.sm,
                             .bytes = job->attempt[index].cubin,
                             .size = job->attempt[index].cubin_size,
                             .compile_ms = winner.trial.compile_ms};
    memcpy(cubin.key, winner.cubin_key, sizeof cubin.key);
    memcpy(cubin.entry, winner.entry, sizeof cubin.entry);
    bool kept = false;
    FA_OR_RETURN(fa_store_winner_put(job->tuner->store, &winner,
                                     cubin.bytes != NULL ? &cubin : NULL, false, &kept, diag));
    /* Fills the answer as any later lookup would. If an earlier winner with a better origin stands, that
     * is the answer; a prediction gives way to what a source has. */
    FA_ENDS(fa_lookup_free) fa_lookup found = {.count = 0};
    FA_OR_RETURN(fa_look(job->tuner, &job->target, false, &found, diag));
    *answer = found.answer;
    answer->from_store = kept;
    return 0;
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
    int rc = job->ended ? job->rc : run_job(job); /* ended: a worker could not be started */
    if (job->ended && rc == job->rc)
        job->diag = job->end_diag;     /* later failures are not why it ended */
    fa_child_kill(job->measure.child); /* its context takes a while to go */
    if (rc == 0) {
        fa_answer answer = {.size = sizeof answer};
        int index = plan->verify ? verified(job, &answer) : fa_job_choose_winner(job, &answer);
        if (index == FA_JOB_NOBODY)
            rc = plan->verify ? fa_fail(&job->diag, FA_ENOKERNEL, "%s: %s",
                                        fa_status_name(answer.trial.status), answer.trial.reason)
                              : fail_none_survived(job);
        else if (!plan->verify) {
            note_families(job);
            rc = store_winner(job, index, &answer, &job->diag);
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

/* ---- the tune of a target --------------------------------------------------------------------*/
bool fa_request_is_again(const fa_request *request)
{
    return request->again || request->effort == FA_EFFORT_PATIENT;
}

/* The plan first; when none of the few that it names comes through, the whole space (or the model's
 * first, for effort PREDICT). */
static int run_plan(fa_tuning *tuning, fa_answer *ret_answer, fa_diag *diag)
{
    fa_tuner *tuner = tuning->tuner;
    fa_plan plan;
    fa_diag none = {{0}};
    int rc = 0;
    if (!tuning->known.looked)
        rc = fa_look(tuner, &tuning->target, false, &tuning->known, diag);
    if (rc == 0 || rc == FA_ENOTFOUND || rc == FA_ECORRUPT)
        rc = make_plan(tuner, tuning->request, &tuning->target, &tuning->known, &plan, diag);
    for (;;) {
        if (rc == 0 && tuning->job == NULL)
            rc = fa_job_new(tuner, tuning->request, tuning->target.gpu.sm, &tuning->job, diag);
        if (rc != 0)
            return rc;
        bool few = plan.count > 0;
        plan.data = tuning->data;
        if (!few && tuning->target.gpu.present)
            fa_job_compile_prestart(tuning->job); /* they load while the space is enumerated */
        rc = fa_job_run(tuning->job, &tuning->target, &plan, ret_answer, few ? &none : diag);
        fa_job_free(&tuning->job); /* the workers go before another process's may come */
        if (rc == 0 || !few)
            return rc;
        if (rc != FA_ENOKERNEL || tuning->target.wants_bits)
            return fa_fail(diag, rc, "%s", none.text);
        plan.count = 0;
        plan.prove_only = false;
        rc = 0;
    }
}

/* Whether what is stored by now is enough. since: when the request began, for one that wants a new answer: not all
 * who hold the key's lock tune it. */
static bool find_made(fa_tuning *tuning, bool again, int64_t since, fa_answer *ret_answer)
{
    fa_lookup_free(&tuning->known);
    if (fa_look(tuning->tuner, &tuning->target, false, &tuning->known, NULL) != 0 ||
        !fa_answer_satisfies(&tuning->known.answer, tuning->request) ||
        (again && tuning->known.answer.unix_time < since))
        return false;
    *ret_answer = tuning->known.answer;
    return true;
}

static void end_tuning(fa_tuning **tuning)
{
    fa_lookup_free(&(*tuning)->known);
    fa_job_free(&(*tuning)->job);
    fa_case_data_close(&(*tuning)->data);
}

int fa_tune_target(fa_tuning *tuning, fa_answer *ret_answer, fa_diag *diag)
{
    fa_tuner *tuner = tuning->tuner;
    const fa_request *request = tuning->request;
    const fa_target *target = &tuning->target;
    FA_ENDS(fa_lock_release) fa_lock *key_lock = NULL, *gpu_lock = NULL, *tunes_lock = NULL;
    FA_ENDS(end_tuning) fa_tuning *ended = tuning; /* before the locks are released */
    char key[FA_HASH_HEX];
    bool waited = false;
    bool again = fa_request_is_again(request);
    int64_t since = (int64_t)time(NULL);
    if (fa_store_is_read_only(tuner->store))
        return fa_fail(diag, FA_EREADONLY,
                       "the store %s cannot be written, so a tune could not be kept: set "
                       "FA_TUNE_STORE to a file that can",
                       tuner->store_path);
    fa_scope_key(&target->scope, key);
    for (bool asked = false;; asked = true) {
        FA_OR_RETURN(fa_request_wait(tuner, request, key, &key_lock, &waited, diag));
        const fa_answer known = tuning->known.answer;
        const bool sure = waited || asked || !tuning->known.looked;
        /* Another host may have tuned it between a look and the lock. */
        if ((waited || (!again && (sure || fa_tuner_is_on_server(tuner)))) &&
            find_made(tuning, again, since, ret_answer) &&
            (sure || known.unix_time != ret_answer->unix_time ||
             strcmp(known.cubin_key, ret_answer->cubin_key) != 0))
            return 0;
        if (asked || !asks_caller(target))
            break;
        fa_lock_release(&key_lock); /* the caller's function may tune */
        FA_OR_RETURN(fa_job_ask_caller(tuner, target, false, &tuning->data, diag));
    }
    /* Two tunes on one GPU would time each other. */
    if (target->gpu.present)
        FA_OR_RETURN(fa_request_wait(tuner, request, target->gpu.uuid, &gpu_lock, NULL, diag));
    FA_OR_RETURN(fa_request_wait(tuner, request, FA_TUNES_LOCK, &tunes_lock, NULL, diag));
    FA_OR_RETURN(fa_request_turn(tuner, request, diag));
    const int rc = run_plan(tuning, ret_answer, diag);
    pthread_mutex_unlock(&tuner->tuning);
    return rc;
}
