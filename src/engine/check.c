/* SPDX-License-Identifier: Apache-2.0
 *
 * A check of kernels without a tune: an operation's answer and the default config of each family, compiled for a GPU that
 * need not be here, and compared with what the operation says that kernels take.
 *
 * Workload: two or a few compiles, side by side. Nothing is looked up and nothing is stored.
 * Called with no lock held; takes the tuner's lock for the whole of it, and lets go of it while it waits.
 */
#include "candidate.h"
#include "session.h"

#include "compile_pool.h"
#include "error.h"
#include "nvrtc.h"
#include "op.h"
#include "render.h"
#include "spec.h"

#include <stdlib.h>
#include <string.h>

enum { SOURCES_MAX = 16, THE_ANSWER = -1 };

struct source {
    int family; /* or THE_ANSWER */
    fa_candidate candidate;
    char architecture[32];
    char *text; /* until it is compiled */
    int rc;     /* of its compile */
    fa_diag diag;
    void *cubin;
    size_t size;
    char *log;
};

struct check {
    fa_tuner *tuner;
    fa_target target;
    fa_task task;          /* the default configs of the families */
    struct source *source; /* SOURCES_MAX */
    int count, next, done;
    fa_loop loop;
    fa_compile_pool pool;
    int rc;
    fa_diag *diag;
};

/* ---- compiling -------------------------------------------------------------------------------*/
static void end(struct check *check, int rc, const char *sentence)
{
    if (check->loop.stopped)
        return;
    if (rc != 0)
        check->rc = fa_fail(check->diag, rc, "%s", sentence);
    fa_loop_stop(&check->loop);
}

static bool next(void *context, fa_compile_task *ret_task)
{
    struct check *check = context;
    if (check->next == check->count)
        return false;
    struct source *source = &check->source[check->next];
    *ret_task =
        (fa_compile_task){.id = check->next++,
                          .name = source->family == THE_ANSWER ? "reference.cu" : "candidate.cu",
                          .source = source->text};
    memcpy(ret_task->architecture, source->architecture, sizeof ret_task->architecture);
    source->text = NULL;
    return true;
}

static void finish(struct check *check)
{
    if (++check->done == check->count)
        end(check, 0, "");
}

/* Up to the line that counts errors in the compilation of a file, by a name that is not its author's. */
static char *log_of(const char *log)
{
    const char *end = strstr(log, " detected in the compilation of ");
    while (end != NULL && end > log && end[-1] != '\n')
        end--;
    return end != NULL ? strndup(log, (size_t)(end - log)) : strdup(log);
}

static void compiled(void *context, int id, fa_compile_result *result)
{
    struct check *check = context;
    struct source *source = &check->source[id];
    if (result->rc == FA_EMANIFEST)
        end(check, result->rc, result->text);
    source->rc =
        result->rc != 0 ? fa_fail(&source->diag, FA_ECOMPILE, "%s", result->text) : result->rc;
    source->cubin = result->cubin;
    source->size = result->size;
    source->log = log_of(result->log);
    result->cubin = NULL;
    finish(check);
}

static void lost(void *context, int id, const char *reason, fa_child_end child_end, int waited_ms)
{
    struct check *check = context;
    (void)child_end, (void)waited_ms;
    check->source[id].rc = fa_fail(&check->source[id].diag, FA_EWORKER, "the compiler %s", reason);
    finish(check);
}

static void started(void *context, bool confined)
{
    (void)context, (void)confined;
}

static void failed(void *context, int rc, const char *sentence)
{
    end(context, rc, sentence);
}

static void changed(void *context)
{
    struct check *check = context;
    if (!check->loop.stopped)
        fa_compile_pool_advance(&check->pool);
}

static void wait(void *context, bool begins)
{
    struct check *check = context;
    if (begins)
        fa_tuner_pause(check->tuner);
    else
        fa_tuner_resume(check->tuner);
}

static int compile_all(struct check *check, const fa_nvrtc_location *nvrtc)
{
    static const fa_compile_events events = {next, compiled, lost, started, failed, changed};
    const fa_tuner *tuner = check->tuner;
    const fa_compile_setup setup = {.loop = &check->loop,
                                    .worker_path = tuner->worker_path,
                                    .nvrtc = nvrtc,
                                    .templates = fa_templates_for(tuner, &check->target.problem),
                                    .timeout_ms = tuner->compile_timeout_ms};
    check->loop.waits = wait;
    check->loop.context = check;
    fa_compile_pool_init(&check->pool, &setup, &events, check);
    fa_compile_pool_widen(&check->pool, check->count < tuner->compile_workers
                                            ? check->count
                                            : tuner->compile_workers);
    fa_compile_pool_advance(&check->pool);
    if (!check->loop.stopped)
        fa_loop_run(&check->loop);
    fa_compile_pool_stop(&check->pool);
    fa_loop_close(&check->loop);
    return check->rc;
}

/* ---- what is compiled ------------------------------------------------------------------------*/
static int add_answer(struct check *check)
{
    struct source *source = &check->source[check->count++];
    fa_buf text = {0};
    source->family = THE_ANSWER;
    fa_render_architecture(NULL, &check->target.gpu, source->architecture,
                           sizeof source->architecture);
    int rc = fa_render_reference(fa_templates_for(check->tuner, &check->target.problem),
                                 &check->task, &text, check->diag);
    source->text = text.data;
    return rc;
}

/* The default config; one that does not fit is not compiled, and says why. */
static int add_family(struct check *check, int family)
{
    struct source *source = &check->source[check->count];
    const fa_family *is = check->task.families->family[family];
    const fa_problem *problem = &check->target.problem;
    const fa_gpu *gpu = &check->target.gpu;
    fa_buf text = {0};
    int rc = fa_space_default(&check->task, family, &source->candidate, check->diag);
    if (rc != 0)
        return rc;
    if (source->candidate.trial.status != FA_STATUS_PENDING)
        return fa_fail(check->diag, FA_ENOKERNEL, "the default config of %s: %s",
                       fa_family_name(is), source->candidate.trial.reason);
    rc = fa_render(fa_templates_for(check->tuner, problem), &check->task, &source->candidate, &text,
                   check->diag);
    if (rc != 0)
        return rc;
    fa_render_architecture(is, gpu, source->architecture, sizeof source->architecture);
    source->family = family;
    source->text = text.data;
    check->count++;
    return 0;
}

static int add_all(struct check *check)
{
    const fa_operation *operation = fa_operation_of(&check->target.problem);
    const bool answered = cJSON_HasObjectItem(operation->document, "reference");
    int rc = answered ? add_answer(check) : 0;
    for (int i = 0; i < check->task.families->count && rc == 0 && check->count < SOURCES_MAX; i++)
        if (fa_family_operation(check->task.families->family[i]) == operation &&
            fa_family_supports(check->task.families->family[i], &check->target.problem,
                               &check->target.gpu, NULL) == 0)
            rc = add_family(check, i);
    return rc == 0 && check->count == (int)answered
               ? fa_fail(check->diag, FA_ENOTSUP, "no family of %s serves this problem on %s",
                         operation->name, check->target.gpu.name)
               : rc;
}

/* ---- what came of it -------------------------------------------------------------------------*/
/* A kernel of a cubin, compared with what the operation says. */
static int tell_kernel(const struct check *check, const struct source *source, const char *entry,
                       int launch, fa_checked_visit *visit, void *context)
{
    const fa_problem *problem = &check->target.problem;
    const bool compare = source->family != THE_ANSWER ||
                         cJSON_HasObjectItem(fa_operation_of(problem)->document, "answer");
    fa_cubin_info info = {0};
    fa_diag diag = source->diag;
    bool typed = false;
    int rc = source->rc;
    if (rc == 0)
        rc = fa_cubin_read(source->cubin, source->size, entry, &info, &diag);
    const char *unused =
        source->family != THE_ANSWER ? fa_spec_fault_of(fa_operation_of(problem)) : "";
    if (rc == 0 && compare)
        rc = fa_op_of(problem)->check_entry(
            problem,
            &(fa_cubin_entry){.cubin = source->cubin,
                              .size = source->size,
                              .name = entry,
                              .workspace = source->candidate.launches.workspace_bytes > 0,
                              .ordinary = !source->candidate.launches.at[launch].cooperative,
                              .ret_typed = &typed},
            &diag);
    if (rc == 0 && unused[0] != 0)
        rc = fa_fail(&diag, FA_EMANIFEST, "%s", unused);
    fa_checked_kernel kernel = {.size = sizeof kernel,
                                .entry = entry,
                                .answer = source->family == THE_ANSWER,
                                .registers = info.registers,
                                .spill_bytes = info.stack_bytes,
                                .smem_bytes = info.static_smem_bytes +
                                              source->candidate.launches.at[launch].smem_bytes,
                                .parameter_bytes = info.parameter_bytes,
                                .fault = rc != 0 ? diag.text : "",
                                .log = source->log != NULL && launch == 0 ? source->log : "",
                                .typed = typed};
    return visit(context, &kernel);
}

static int tell_all(const struct check *check, fa_checked_visit *visit, void *context)
{
    int stopped = 0;
    for (int i = 0; i < check->count && stopped == 0; i++) {
        const struct source *source = &check->source[i];
        const fa_family *family =
            source->family != THE_ANSWER ? check->task.families->family[source->family] : NULL;
        const int count = family != NULL ? fa_family_launch_count(family) : 1;
        for (int k = 0; k < count && stopped == 0; k++)
            stopped = tell_kernel(check, source,
                                  family != NULL ? fa_family_launch_entry(family, k)
                                                 : fa_op_reference_entry(&check->target.problem),
                                  k, visit, context);
    }
    return stopped;
}

static int run_check(struct check *check, const fa_request *request)
{
    fa_nvrtc_location nvrtc;
    int rc;
    if ((rc = fa_target_resolve(check->tuner, request, &check->target, check->diag)) != 0 ||
        (rc = fa_tuner_families(check->tuner, check->diag)) != 0 ||
        (rc = fa_compiler_choose(check->tuner->worker_path, check->target.gpu.sm, &nvrtc, NULL,
                                 check->diag)) != 0)
        return rc;
    check->task = fa_task_for(check->tuner, &check->target.problem, &check->target.gpu);
    rc = add_all(check);
    return rc == 0 ? compile_all(check, &nvrtc) : rc;
}

int fa_check_kernels(fa_tuner *tuner, const fa_request *request, fa_checked_visit *visit,
                     void *context, fa_gpu *ret_gpu, fa_diag *diag)
{
    fa_request known;
    int rc = fa_tuner_check_with(tuner, visit != NULL, "visit", diag);
    if (rc == 0)
        rc = fa_request_copy(request, &known, diag);
    if (rc != 0)
        return rc;
    struct check *check = calloc(1, sizeof *check);
    if (check == NULL || (check->source = calloc(SOURCES_MAX, sizeof *check->source)) == NULL) {
        free(check);
        return fa_fail(diag, FA_ENOMEM, "out of memory for a check");
    }
    check->tuner = tuner;
    check->diag = diag;
    pthread_mutex_lock(&tuner->work);
    rc = run_check(check, &known);
    pthread_mutex_unlock(&tuner->work);
    if (rc == 0 && ret_gpu != NULL)
        *ret_gpu = check->target.gpu;
    if (rc == 0)
        rc = tell_all(check, visit, context);
    for (int i = 0; i < check->count; i++) {
        free(check->source[i].text);
        free(check->source[i].cubin);
        free(check->source[i].log);
    }
    free(check->source);
    free(check);
    return rc;
}
