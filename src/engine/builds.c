/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources that are compiled by themselves; and a check of kernels: an operation's answer and the default config of each
 * family, compiled for a GPU that need not be here, and compared with what the operation says that kernels take.
 *
 * Workload of a check: two or a few compiles, side by side. Nothing is looked up and nothing is stored.
 */
#include "builds.h"

#include "buf.h"
#include "cubin.h"
#include "error.h"
#include "family.h"
#include "op.h"
#include "spec.h"

#include <stdlib.h>
#include <string.h>

/* ---- compiling ------------------------------------------------------------------------------*/
struct building {
    fa_build *build;
    int count, next, done;
    fa_build_progress *progress;
    void *context;
    fa_compile_pool pool;
    fa_loop loop;
    int rc;
    fa_diag diag;
};

static void fail_builds(void *context, int rc, const char *sentence)
{
    struct building *all = context;
    if (all->rc == 0)
        all->rc = fa_fail(&all->diag, rc, "%s", sentence);
    fa_loop_stop(&all->loop);
}

static bool next_build(void *context, fa_compile_task *ret_task)
{
    struct building *all = context;
    while (all->next < all->count && all->build[all->next].task.source == NULL)
        all->next++;
    if (all->next == all->count)
        return false;
    fa_build *build = &all->build[all->next];
    *ret_task = build->task;
    ret_task->id = all->next++;
    build->task.source = NULL;
    return true;
}

static void build_ended(void *context, int id, fa_compile_result *result)
{
    struct building *all = context;
    fa_build *build = &all->build[id];
    build->rc = result->rc;
    if (result->rc != 0)
        fa_fail(&build->diag, result->rc, "%s", result->text);
    build->cubin = result->cubin;
    build->size = result->size;
    build->log = strdup(result->log);
    result->cubin = NULL;
    all->done++;
    if (all->progress != NULL && all->progress(all->context, all->done, all->count) != 0)
        fail_builds(all, FA_ECANCELED, "canceled while compiling; nothing is written");
    if (all->done == all->count)
        fa_loop_stop(&all->loop);
}

static void go_on(void *context)
{
    struct building *all = context;
    if (!all->loop.stopped)
        fa_compile_pool_advance(&all->pool);
}

int fa_builds_run(fa_tuner *tuner, const fa_templates *templates, const fa_nvrtc_location *nvrtc,
                  fa_build *build, int count, fa_build_progress *progress, void *context,
                  fa_diag *diag)
{
    static const fa_compile_events events = {next_build, build_ended, fail_builds, go_on};
    int left = 0;
    for (int i = 0; i < count; i++)
        left += build[i].task.source != NULL;
    if (left == 0)
        return 0;
    FA_ENDS(fa_free_at) struct building *all = calloc(1, sizeof *all);
    FA_OR_RETURN(fa_have(all != NULL, "compiling", diag));
    *all = (struct building){.build = build,
                             .count = count,
                             .done = count - left,
                             .progress = progress,
                             .context = context,
                             .loop = {.held = &tuner->work},
                             .pool = {.setup = {.loop = &all->loop,
                                                .worker_path = tuner->worker_path,
                                                .nvrtc = nvrtc,
                                                .templates = templates,
                                                .timeout_ms = tuner->options.compile_timeout_ms},
                                      .events = &events,
                                      .context = all}};
    fa_compile_pool_widen(
        &all->pool, left < tuner->options.compile_workers ? left : tuner->options.compile_workers);
    fa_compile_pool_advance(&all->pool);
    if (!all->loop.stopped)
        fa_loop_run(&all->loop);
    fa_compile_pool_stop(&all->pool);
    fa_loop_close(&all->loop);
    return all->rc != 0 ? fa_fail(diag, all->rc, "%s", all->diag.text) : 0;
}

void fa_builds_free(fa_build *build, int count)
{
    for (int i = 0; build != NULL && i < count; i++) {
        free(build[i].task.source);
        free(build[i].cubin);
        free(build[i].log);
    }
    free(build);
}

/* ---- a check ---------------------------------------------------------------------------------*/
enum { SOURCES_MAX = 16, THE_ANSWER = -1 };

struct check {
    fa_tuner *tuner;
    fa_target target;
    fa_task task;
    struct source {
        const fa_family *family; /* NULL: the answer */
        fa_candidate candidate;  /* the family's default config */
    } source[SOURCES_MAX];
    fa_build *build; /* [SOURCES_MAX] */
    int count;
    fa_diag *diag;
};

/* A default config that does not fit is not compiled, and says why. */
static int add_source(struct check *check, int family)
{
    struct source *source = &check->source[check->count];
    fa_build *build = &check->build[check->count++];
    if (family != THE_ANSWER) {
        source->family = check->task.families->family[family];
        FA_OR_RETURN(fa_space_default(&check->task, family, &source->candidate, check->diag));
    }
    if (source->candidate.trial.status != FA_STATUS_PENDING)
        return fa_fail(check->diag, FA_ENOKERNEL, "the default config of %s: %s",
                       source->family->name, source->candidate.trial.reason);
    return fa_render_candidate(check->tuner, &check->task,
                               source->family != NULL ? &source->candidate : NULL, "", &build->task,
                               check->diag);
}

static int add_all(struct check *check)
{
    const fa_operation *operation = fa_operation_of(&check->target.problem);
    const bool answered = cJSON_HasObjectItem(operation->document, "reference");
    FA_OR_RETURN(answered ? add_source(check, THE_ANSWER) : 0);
    for (int i = 0; i < check->task.families->count && check->count < SOURCES_MAX; i++)
        if (check->task.families->family[i]->operation == operation &&
            fa_family_supports(check->task.families->family[i], &check->target.problem,
                               &check->target.gpu, NULL) == 0)
            FA_OR_RETURN(add_source(check, i));
    return check->count > (int)answered
               ? 0
               : fa_fail(check->diag, FA_ENOTSUP, "no family of %s serves this problem on %s",
                         operation->name, check->target.gpu.name);
}

/* A kernel of a cubin, compared with what the operation says. */
static void add_kernel(const struct check *check, int index, const char *entry, int launch,
                       fa_list *list)
{
    const struct source *source = &check->source[index];
    const fa_build *build = &check->build[index];
    const fa_problem *problem = &check->target.problem;
    const bool compare =
        source->family != NULL || cJSON_HasObjectItem(fa_operation_of(problem)->document, "answer");
    fa_cubin_info info = {0};
    fa_diag diag = build->diag;
    int rc = build->rc;
    if (rc == 0)
        rc = fa_cubin_read(build->cubin, build->size, entry, &info, &diag);
    const char *unused = source->family != NULL ? fa_spec_fault_of(problem) : "";
    if (rc == 0 && compare)
        rc = fa_op_check_entry(
            problem,
            &(fa_cubin_entry){.cubin = build->cubin,
                              .size = build->size,
                              .name = entry,
                              .launch = source->family == NULL ? FA_THE_ANSWER : launch,
                              .workspace = source->candidate.launches.workspace_bytes > 0,
                              .counters = source->candidate.launches.counters > 0},
            &diag);
    if (rc == 0 && unused[0] != 0)
        rc = fa_fail(&diag, FA_EMANIFEST, "%s", unused);
    const fa_compiled_with *with = fa_templates_for(check->tuner, problem)->with;
    fa_checked_kernel kernel = {
        .size = sizeof kernel,
        .entry = fa_list_keep_text(list, entry),
        .answer = source->family == NULL,
        .registers = info.registers,
        .spill_bytes = info.stack_bytes,
        .smem_bytes = info.static_smem_bytes + source->candidate.launches.at[launch].smem_bytes,
        .parameter_bytes = info.parameter_bytes,
        .fault = fa_list_keep_text(list, rc != 0 ? diag.text : ""),
        .log = fa_list_keep_text(list, build->log != NULL && launch == 0 ? build->log : ""),
        .left_out = fa_list_keep_text(list, with != NULL ? with->left : "")};
    fa_list_add(list, &kernel, sizeof kernel);
}

static int run_check(struct check *check, const fa_request *request)
{
    fa_nvrtc_location nvrtc;
    FA_OR_RETURN(fa_target_resolve(check->tuner, request, &check->target, check->diag));
    FA_OR_RETURN(fa_tuner_families(check->tuner, check->diag));
    FA_OR_RETURN(fa_compiler_choose(check->tuner->worker_path, check->target.gpu.sm, &nvrtc, NULL,
                                    check->diag));
    check->task = fa_task_for(check->tuner, &check->target.problem, &check->target.gpu);
    FA_OR_RETURN(add_all(check));
    FA_OR_RETURN(fa_builds_run(check->tuner, fa_templates_for(check->tuner, &check->target.problem),
                               &nvrtc, check->build, check->count, NULL, NULL, check->diag));
    for (int i = 0; i < check->count; i++) {
        /* Up to the line that counts errors in the compilation of a file, by a name that is not its author's. */
        char *log = check->build[i].log;
        char *end = log != NULL ? strstr(log, " detected in the compilation of ") : NULL;
        while (end != NULL && end > log && end[-1] != '\n')
            end--;
        if (end != NULL)
            *end = 0;
        if (check->build[i].rc == FA_EMANIFEST)
            return fa_fail(check->diag, FA_EMANIFEST, "%s", check->build[i].diag.text);
    }
    return 0;
}

/* Called with no lock held; takes the tuner's lock for the whole of it, and lets go of it while it waits. */
int fa_check_kernels(fa_tuner *tuner, const fa_request *request, fa_checked_kernel **ret_kernels,
                     size_t *ret_count, fa_gpu *ret_gpu, fa_diag *diag)
{
    static const size_t pointers[] = {
        offsetof(fa_checked_kernel, entry), offsetof(fa_checked_kernel, fault),
        offsetof(fa_checked_kernel, log), offsetof(fa_checked_kernel, left_out), SIZE_MAX};
    fa_list list = {0};
    fa_request known;
    FA_OR_RETURN(fa_request_take(tuner, ret_kernels != NULL && ret_count != NULL,
                                 "ret_kernels or ret_count", request, &known, diag));
    FA_ENDS(fa_free_at) struct check *check = calloc(1, sizeof *check);
    FA_OR_RETURN(
        fa_have(check != NULL && (check->build = calloc(SOURCES_MAX, sizeof *check->build)) != NULL,
                "a check", diag));
    check->tuner = tuner;
    check->diag = diag;
    int rc = FA_HELD(tuner, run_check(check, &known));
    if (rc == 0 && ret_gpu != NULL)
        *ret_gpu = check->target.gpu;
    for (int i = 0; rc == 0 && i < check->count; i++) {
        const fa_family *family = check->source[i].family;
        for (int k = 0; k < (family != NULL ? family->launch_count : 1); k++)
            add_kernel(check, i,
                       family != NULL ? family->launch[k].entry
                                      : fa_op_reference_entry(&check->target.problem),
                       k, &list);
    }
    rc = fa_list_end(&list, rc, pointers, ret_kernels, ret_count, diag);
    fa_builds_free(check->build, SOURCES_MAX);
    return rc;
}
