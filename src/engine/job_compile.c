/* SPDX-License-Identifier: Apache-2.0
 *
 * A tune's compile side: configs in the model's order, from the store when their cubin is there,
 * else from a pool of compile workers; then the gates that need no GPU.
 *
 * A space that is too large to be tried whole, or of a request that bounds what may be spent, is searched: it is not
 * built. Its configs join the job's as the search proposes them, so that a few compile ahead of what is measured; where
 * each ended is told to the search in the order in which they joined, and a proposal is made after what was told alone, so
 * that equal costs give equal proposals, however long a config takes.
 * Invariant: configs join at the end of the space and of the order of compiling.
 *
 * In any tune a family whose source does not compile is given up.
 */
#include "job.h"

#include "error.h"
#include "model.h"
#include "op.h"
#include "spec.h"
#include "words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OF_A_SECOND = 3,    /* configs that one worker is expected to compile in it */
    AHEAD = 2,          /* configs under way for each compile worker */
    IN_VAIN = 200,      /* configs that do not become kernels, where none does */
    FOR_ONE_KERNEL = 8, /* effort PREDICT on a GPU that is here */
    SPILLED_MOST = 6,   /* configs that compete although they spill */
};

/* Effort PREDICT compiles the same few configs with a time limit as without one, or fewer. */
static bool is_by_time(const fa_job *job)
{
    return job->request->seconds > 0 && job->request->effort != FA_EFFORT_PREDICT;
}

bool fa_job_search_wanted(const fa_job *job)
{
    const fa_request *request = job->request;
    return job->space.held > 0 ||
           (!job->prove_only &&
            (request->strategy != NULL || is_by_time(job) ||
             (request->evaluations > 0 && request->evaluations < job->space.survivors)));
}

static fa_search_options options_of(const fa_job *job)
{
    const fa_request *request = job->request;
    double expected = request->seconds * OF_A_SECOND * job->tuner->options.compile_workers;
    fa_search_options options = {.strategy = request->strategy, .seed = job->seed};
    options.evaluations = job->prove_only            ? FOR_ONE_KERNEL
                          : request->evaluations > 0 ? request->evaluations
                          : is_by_time(job)          ? FA_SPACE_MAX
                          : job->space.held > 0      ? FA_SEARCH_EVALUATIONS
                                                     : job->space.survivors;
    if (expected > 0 && expected < FA_SPACE_MAX)
        options.expected = 1 + (int64_t)expected;
    if (options.strategy == NULL && (!job->measuring || job->prove_only))
        options.strategy = "random"; /* nothing is timed that could tell where to look */
    return options;
}

int fa_job_search_open(fa_job *job)
{
    struct fa_job_search *s = &job->search;
    const fa_search_options options = options_of(job);
    bool bounded = job->prove_only || job->request->evaluations > 0 || is_by_time(job);
    char number[FA_COMMAS_MAX];
    s->held = job->space.held > 0 ? job->space.held : job->space.count;
    s->fit = job->space.held > 0 ? INT32_MAX : job->space.survivors;
    s->evaluations =
        job->request->evaluations == 0 && is_by_time(job) ? 0 : (int)options.evaluations;
    const char *how =
        job->measuring ? "measured, as a search chooses them" : "compiled, spread over all";
    if (job->space.held > 0 && !bounded)
        fa_note(job->tuner, "of %s configs at most %d are %s: evaluations or seconds change that",
                fa_commas(s->held, number), (int)options.evaluations, how);
    fa_space_free(&job->space);
    job->space.candidate = calloc(FA_SPACE_MAX, sizeof *job->space.candidate);
    FA_OR_RETURN(fa_have(job->space.candidate != NULL, "a search", &job->diag));
    fa_task task = fa_task_for(job->tuner, &job->target.problem, &job->target.gpu);
    FA_OR_RETURN(fa_points_open(&task, &s->points, &job->diag));
    return fa_search_open(&s->points->space, &options, &s->search, &job->diag);
}

void fa_job_search_close(fa_job *job)
{
    fa_search_close(job->search.search);
    fa_points_close(&job->search.points);
    job->search.search = NULL;
}

/* The config of a point that exists; -1: there is no room. */
static int join(fa_job *job, const int32_t *point)
{
    fa_space *space = &job->space;
    if (space->count == FA_SPACE_MAX)
        return -1;
    int index = space->count;
    fa_candidate *candidate = &space->candidate[index];
    fa_points_candidate(job->search.points, point, candidate);
    fa_model_predict(candidate, &job->target.problem, &job->target.gpu, &candidate->trial);
    if (candidate->is_default)
        space->default_index = index;
    space->count++;
    fa_job_set_launches(job, index, 1);
    return index;
}

int fa_job_search_find(fa_job *job, const fa_config *config)
{
    int32_t point[FA_SEARCH_DIMS_MAX];
    return fa_points_find(job->search.points, config, point) ? join(job, point) : -1;
}

static void join_order(fa_job *job, const int32_t *point)
{
    int index = join(job, point);
    if (index < 0)
        job->search.over = true;
    else
        job->compile.order[job->compile.order_count++] = index;
}

/* What the search is told of a config that ended. A cubin of which nothing is known costs an evaluation all the same. */
static double cost_of(const fa_trial *trial)
{
    switch (trial->status) {
    case FA_STATUS_MEASURED:
        return trial->median_us;
    case FA_STATUS_COMPILED:
        return trial->predicted_us > 0 ? trial->predicted_us : 1;
    case FA_STATUS_REGISTERS:
    case FA_STATUS_COMPILE_FAILED:
    case FA_STATUS_COMPILE_TIMEOUT:
    case FA_STATUS_SPILLS:
    case FA_STATUS_CUBIN:
        return FA_SEARCH_UNBUILT;
    default:
        return FA_SEARCH_FAILED;
    }
}

static void tell_next(fa_job *job)
{
    struct fa_job_search *s = &job->search;
    const fa_trial *trial = &job->space.candidate[s->told++].trial;
    int32_t point[FA_SEARCH_DIMS_MAX];
    double cost = cost_of(trial);
    s->kernels += cost != FA_SEARCH_UNBUILT;
    s->over = s->over || (s->kernels == 0 && s->told >= IN_VAIN);
    if (fa_points_find(s->points, &trial->config, point) &&
        fa_search_tell(s->search, point, cost) == FA_ENOMEM)
        FA_JOB_FAIL(job, FA_ENOMEM, "out of memory for a search");
}

/* Proposals until there are enough under way. */
static void propose(fa_job *job)
{
    struct fa_job_search *s = &job->search;
    int32_t point[FA_SEARCH_DIMS_MAX];
    while (!s->over && !job->ended &&
           s->search->pending < (AHEAD * job->tuner->options.compile_workers) + AHEAD) {
        pthread_mutex_unlock(&job->tuner->work);
        int count = fa_search_propose(s->search, 1, point);
        pthread_mutex_lock(&job->tuner->work);
        if (count < 0)
            FA_JOB_FAIL(job, count, "out of memory for a search");
        else if (s->points->rc != 0)
            FA_JOB_FAIL(job, s->points->rc, "%s", s->points->diag.text);
        else if (count > 0)
            join_order(job, point);
        s->exhausted = count == 0 && s->search->pending == 0 &&
                       (s->evaluations == 0 || s->search->spent < s->evaluations);
        if (count == 0)
            return;
    }
}

/* What waits to be compiled leaves, but for the first config of all. */
static void stop(fa_job *job)
{
    struct fa_job_compile *compile = &job->compile;
    bool first = compile->order_next == 0 && job->search.told == 0 && compile->order_count > 0;
    int kept = first ? 1 : compile->order_next;
    job->space.count -= compile->order_count - kept;
    compile->order_count = kept;
    job->search.over = true;
}

/* Takes notice of what ended, and adds what is to be compiled next; nothing where no space is searched. */
static void search_more(fa_job *job)
{
    struct fa_job_search *s = &job->search;
    if (s->search == NULL || job->ended || job->progress.stage == FA_STAGE_FINAL)
        return;
    if (job->until_ns != 0 && fa_clock_ns() >= job->until_ns)
        stop(job);
    propose(job);
    while (s->told < job->space.count && !job->ended &&
           job->space.candidate[s->told].trial.status != FA_STATUS_PENDING) {
        tell_next(job);
        propose(job);
    }
    int64_t left = s->over ? 0 : s->evaluations - s->search->spent - s->search->pending;
    job->progress.in_budget = job->space.count + (left > 0 ? (int32_t)left : 0);
}

/* Unless it was told of already, or nothing more may be spent. */
static void join_first(fa_job *job, const int32_t *point)
{
    struct fa_job_search *s = &job->search;
    int64_t spent = s->search->spent + s->search->pending;
    int rc =
        s->evaluations > 0 && spent >= s->evaluations ? FA_EBUSY : fa_search_join(s->search, point);
    if (rc == 0)
        join_order(job, point);
    else if (rc == FA_ENOMEM)
        FA_JOB_FAIL(job, rc, "out of memory for a search");
}

/* What won on another GPU, and the defaults, which others are compared with, come first. */
void fa_job_search_begin(fa_job *job)
{
    struct fa_job_search *s = &job->search;
    int32_t point[FA_SEARCH_DIMS_MAX];
    while (s->told < job->space.count && !job->ended)
        tell_next(job);
    if (!job->ended && fa_points_find(s->points, &job->elsewhere.config, point))
        join_first(job, point);
    for (int i = 0; !job->ended && i < s->points->count; i++)
        if (fa_points_find(s->points, &s->points->family[i].point.preset, point))
            join_first(job, point);
    search_more(job);
}

/* ---- families that do not compile ------------------------------------------------------------*/
/* When the compiler's errors are the source's own, whatever the tunables are, the rest of a family is not compiled. */
/* The sources of a family that failed to compile with the same error. */
struct alike {
    int count;
    double compile_ms;
    uint64_t differ; /* bit i: not all have the same value of tunable i */
};

/* None when one of the family's sources ended otherwise, or the default is still to come. */
static struct alike find_alike(const fa_job *job, const fa_candidate *failed)
{
    struct alike alike = {0};
    for (int i = 0; i < job->space.count; i++) {
        const fa_candidate *other = &job->space.candidate[i];
        const fa_trial *trial = &other->trial;
        bool pending = trial->status == FA_STATUS_PENDING && trial->registers == 0;
        bool tried = job->attempt[i].cubin_key[0] != 0;
        if (other->family != failed->family || (!tried && !(pending && other->is_default)))
            continue;
        if (pending && !other->is_default) /* under way */
            continue;
        if (trial->status != failed->trial.status ||
            strcmp(trial->reason, failed->trial.reason) != 0)
            return (struct alike){0};
        alike.count += job->attempt[i].source_of == 0;
        alike.compile_ms += trial->compile_ms;
        for (int t = 0; t < trial->config.count; t++)
            alike.differ |=
                (uint64_t)(trial->config.tunable[t].value != failed->trial.config.tunable[t].value)
                << t;
    }
    return alike;
}

/* Whether the error is the source's own, whatever the tunables are: of sources that take long to compile a few tell, if no
 * value of a tunable can be to blame. */
static bool is_the_source(const fa_job *job, const fa_candidate *failed, const struct alike *alike)
{
    enum { ENOUGH = 8, SLOW_MS = 3000 };
    const fa_family *family =
        fa_families_for(job->tuner, &job->target.problem)->family[failed->family];
    bool apart = alike->count > 1;
    const bool cubin = failed->trial.status == FA_STATUS_CUBIN; /* neighbours came first */
    for (int i = 0; i < failed->trial.config.count; i++)
        apart = apart && (family->tunable[i].count == 1 || (alike->differ >> i & 1) != 0);
    return (alike->count >= ENOUGH && (apart || !cubin)) || (apart && alike->compile_ms >= SLOW_MS);
}

/* Ends the configs of a family that were not tried when those that were do not compile, all alike: this one, its
 * default and at most six more; and the job, where nothing else is left. known: an earlier
 * problem has told. Effort PATIENT tries them all. */
static void give_up_family(fa_job *job, int index, bool known)
{
    const fa_candidate *failed = &job->space.candidate[index];
    const struct alike alike = find_alike(job, failed);
    char reason[sizeof failed->trial.reason];
    if (job->request->effort == FA_EFFORT_PATIENT ||
        (!known && !is_the_source(job, failed, &alike)))
        return;
    if (job->search.search != NULL && !fa_points_give_up(job->search.points, failed->family))
        stop(job); /* none else is proposed any more */
    snprintf(reason, sizeof reason, "not compiled, as %d others of its family are not: %.420s",
             alike.count, failed->trial.reason);
    for (int i = 0; i < job->space.count && !job->ended; i++) {
        const fa_candidate *other = &job->space.candidate[i];
        const char *key = job->attempt[i].cubin_key;
        fa_failed *kept = key[0] != 0 ? fa_tuner_failed(job->tuner, key, "") : NULL;
        if (other->family != failed->family)
            continue;
        if (kept != NULL)
            kept->hopeless = true;
        if (other->trial.status == FA_STATUS_PENDING && key[0] == 0)
            fa_job_settle(job, i, FA_STATUS_COMPILE_FAILED, reason);
    }
    /* Whether some config may still come to a kernel, or has; what is being compiled is not waited for. */
    bool hopeful = job->progress.clean > 0 || (job->search.search != NULL && !job->search.over);
    for (int i = 0; i < job->space.count && !hopeful; i++)
        hopeful = job->space.candidate[i].trial.status == FA_STATUS_SPILLS ||
                  (job->space.candidate[i].family != failed->family &&
                   job->space.candidate[i].trial.status == FA_STATUS_PENDING);
    if (!hopeful)
        fa_job_end(job, 0);
}

/* ---- the compile side: gates --------------------------------------------------------------*/
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
    const char *unused = fa_spec_fault_of(&job->target.problem);
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
            give_up_family(job, index, false);
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
    if (status == FA_STATUS_SPILLS && (job->compile.spilled > 0 || job->plan.verify)) {
        status = FA_STATUS_COMPILED;
        trial->spilled = true;
        snprintf(trial->reason, sizeof trial->reason,
                 "no config without spills came through: %.400s", reason);
        memcpy(reason, trial->reason, sizeof reason);
    }
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
    FA_OR_RETURN(fa_render_candidate(
        job->tuner, &task, index != FA_JOB_REFERENCE ? &job->space.candidate[index] : NULL,
        job->nvrtc.identity, ret, &job->diag));
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
    FA_ENDS(fa_cubin_record_free) fa_cubin_record record = {0};
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
    give_up_family(job, index, known->hopeless);
    return true;
}

/* The next config that is not in the store; false: all are under way or done. */
static bool next_task(void *context, fa_compile_task *ret_task)
{
    fa_job *job = context;
    struct fa_job_compile *compile = &job->compile;
    while (!job->ended) {
        int index;
        search_more(job);
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
    /* NVRTC dies of want of memory, too. */
    bool first_crash = end == FA_CHILD_DIED && fa_job_attempt(job, index)->retries == 0;
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
    FA_ENDS(fa_cubin_record_free)
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
        give_up_family(job, index, false);
    if (clean != FA_JOB_NOBODY)
        keep_fresh(job, clean, &record);
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
    const int most = job->tuner->options.compile_workers;
    fa_compile_pool_widen(&job->compile.pool, count < most ? count : most);
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
    enum { FIRST_WORKERS = 2 }; /* for one kernel and the reference */
    widen(job, job->request->effort == FA_EFFORT_PREDICT ? FIRST_WORKERS : FA_WORKERS_MAX);
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
    widen(job, wanted + (needed && !job->compile.reference_asked));
}

bool fa_job_take_spilled(fa_job *job)
{
    struct fa_job_compile *compile = &job->compile;
    int more = !job->measuring || job->prove_only ? 1 : SPILLED_MOST; /* 1: the next if it fails */
    while (job->best.status == FA_STATUS_PENDING && job->plan.count == 0 && more-- > 0 &&
           compile->spilled < SPILLED_MOST) {
        fa_trial *least = NULL;
        for (int i = 0; i < job->space.count; i++) {
            fa_trial *trial = &job->space.candidate[i].trial;
            job->attempt[i].source_of = 0; /* each is compiled for itself */
            if (trial->status == FA_STATUS_SPILLS &&
                (least == NULL || trial->spill_bytes < least->spill_bytes)) {
                least = trial;
                compile->again[compile->again_count] = i;
            }
        }
        if (least == NULL)
            break;
        least->status = FA_STATUS_PENDING;
        job->pruned--;
        job->progress.compiled--;
        compile->spilled++;
        fa_job_set_launches(job, compile->again[compile->again_count++], 1);
    }
    widen(job, compile->again_count);
    return compile->again_count > 0;
}
