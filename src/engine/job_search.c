/* SPDX-License-Identifier: Apache-2.0
 *
 * A tune whose space is searched: too large to be tried whole, or the request bounds what may be spent. And when a family
 * is given up, in any tune.
 *
 * The space is not built. Its configs join the job's as the search proposes them, so that a few compile ahead of what is
 * measured; where each ended is told to the search in the order in which they joined, and a proposal is made after
 * what was told alone, so that equal costs give equal proposals, however long a config takes.
 * Invariant: configs join at the end of the space and of the order of compiling.
 */
#include "job.h"

#include "error.h"
#include "model.h"
#include "buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OF_A_SECOND = 3,    /* configs that one worker is expected to compile in it */
    AHEAD = 2,          /* configs under way for each compile worker */
    IN_VAIN = 200,      /* configs that do not become kernels, where none does */
    FOR_ONE_KERNEL = 8, /* effort PREDICT on a GPU that is here */
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
    const char *how = job->measuring ? "measured, as a search chooses them" : "compiled, spread over all";
    if (job->space.held > 0 && !bounded)
        fa_note(job->tuner, "of %s configs at most %d are %s: evaluations or seconds change that",
                fa_commas(s->held, number), (int)options.evaluations, how);
    fa_space_free(&job->space);
    job->space.candidate = calloc(FA_SPACE_MAX, sizeof *job->space.candidate);
    if (job->space.candidate == NULL)
        return fa_fail(&job->diag, FA_ENOMEM, "out of memory for a search");
    fa_task task = fa_task_for(job->tuner, &job->target.problem, &job->target.gpu);
    int rc = fa_points_open(&task, &s->points, &job->diag);
    return rc == 0 ? fa_search_open(&s->points->space, &options, &s->search, &job->diag) : rc;
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
    int rc = job->launches != NULL ? fa_job_set_launches(job, index, 1) : 0;
    if (rc != 0)
        fa_job_end(job, rc);
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

void fa_job_search_more(fa_job *job)
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
    fa_job_search_more(job);
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
static bool are_enough(const fa_job *job, const fa_candidate *failed, const struct alike *alike)
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

void fa_job_give_up_family(fa_job *job, int index, bool known)
{
    const fa_candidate *failed = &job->space.candidate[index];
    const struct alike alike = find_alike(job, failed);
    char reason[sizeof failed->trial.reason];
    if (job->request->effort == FA_EFFORT_PATIENT || (!known && !are_enough(job, failed, &alike)))
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
        hopeful = job->space.candidate[i].family != failed->family &&
                  job->space.candidate[i].trial.status == FA_STATUS_PENDING;
    if (!hopeful)
        fa_job_end(job, 0);
}
