/* SPDX-License-Identifier: Apache-2.0
 *
 * A check of kernels without a tune: an operation's answer and the default config of each family, compiled for a GPU that
 * need not be here, and compared with what the operation says that kernels take.
 *
 * Workload: two or a few compiles, side by side. Nothing is looked up and nothing is stored.
 * Called with no lock held; takes the tuner's lock for the whole of it, and lets go of it while it waits.
 */
#include "candidate.h"
#include "family.h"
#include "session.h"

#include "compile_pool.h"
#include "error.h"
#include "nvrtc.h"
#include "op.h"
#include "spec.h"
#include "store.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- what is compiled ------------------------------------------------------------------------*/
/* A default config that does not fit is not compiled, and says why. */
static int add_source(struct check *check, int family)
{
    struct source *source = &check->source[check->count];
    fa_build *build = &check->build[check->count++];
    int rc = 0;
    if (family != THE_ANSWER) {
        source->family = check->task.families->family[family];
        rc = fa_space_default(&check->task, family, &source->candidate, check->diag);
    }
    if (rc == 0 && source->candidate.trial.status != FA_STATUS_PENDING)
        rc = fa_fail(check->diag, FA_ENOKERNEL, "the default config of %s: %s",
                     source->family->name, source->candidate.trial.reason);
    if (rc == 0)
        rc = fa_render_candidate(check->tuner, &check->task,
                                 source->family != NULL ? &source->candidate : NULL, "",
                                 &build->task, check->diag);
    return rc;
}

static int add_all(struct check *check)
{
    const fa_operation *operation = fa_operation_of(&check->target.problem);
    const bool answered = cJSON_HasObjectItem(operation->document, "reference");
    int rc = answered ? add_source(check, THE_ANSWER) : 0;
    for (int i = 0; i < check->task.families->count && rc == 0 && check->count < SOURCES_MAX; i++)
        if (check->task.families->family[i]->operation == operation &&
            fa_family_supports(check->task.families->family[i], &check->target.problem,
                               &check->target.gpu, NULL) == 0)
            rc = add_source(check, i);
    return rc == 0 && check->count == (int)answered
               ? fa_fail(check->diag, FA_ENOTSUP, "no family of %s serves this problem on %s",
                         operation->name, check->target.gpu.name)
               : rc;
}

/* ---- what came of it -------------------------------------------------------------------------*/
/* Up to the line that counts errors in the compilation of a file, by a name that is not its author's. */
static void cut_log(char *log)
{
    char *end = log != NULL ? strstr(log, " detected in the compilation of ") : NULL;
    while (end != NULL && end > log && end[-1] != '\n')
        end--;
    if (end != NULL)
        *end = 0;
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
    const char *unused = source->family != NULL ? fa_spec_fault_of(fa_operation_of(problem)) : "";
    if (rc == 0 && compare)
        rc = fa_op_of(problem)->check_entry(
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

static int list_kernels(const struct check *check, int rc, fa_checked_kernel **ret_kernels,
                        size_t *ret_count)
{
    static const size_t pointers[] = {
        offsetof(fa_checked_kernel, entry), offsetof(fa_checked_kernel, fault),
        offsetof(fa_checked_kernel, log), offsetof(fa_checked_kernel, left_out), SIZE_MAX};
    fa_list list = {0};
    for (int i = 0; rc == 0 && i < check->count; i++) {
        const fa_family *family = check->source[i].family;
        for (int k = 0; k < (family != NULL ? family->launch_count : 1); k++)
            add_kernel(check, i,
                       family != NULL ? family->launch[k].entry
                                      : fa_op_reference_entry(&check->target.problem),
                       k, &list);
    }
    return fa_list_end(&list, rc, pointers, ret_kernels, ret_count, check->diag);
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
    if (rc == 0)
        rc = fa_builds_run(check->tuner, fa_templates_for(check->tuner, &check->target.problem),
                           &nvrtc, check->build, check->count, NULL, NULL, check->diag);
    for (int i = 0; rc == 0 && i < check->count; i++) {
        cut_log(check->build[i].log);
        if (check->build[i].rc == FA_EMANIFEST)
            rc = fa_fail(check->diag, FA_EMANIFEST, "%s", check->build[i].diag.text);
    }
    return rc;
}

int fa_check_kernels(fa_tuner *tuner, const fa_request *request, fa_checked_kernel **ret_kernels,
                     size_t *ret_count, fa_gpu *ret_gpu, fa_diag *diag)
{
    fa_request known;
    int rc = fa_request_take(tuner, ret_kernels != NULL && ret_count != NULL,
                             "ret_kernels or ret_count", request, &known, diag);
    if (rc != 0)
        return rc;
    struct check *check = calloc(1, sizeof *check);
    if (check == NULL || (check->build = calloc(SOURCES_MAX, sizeof *check->build)) == NULL) {
        free(check);
        return fa_fail(diag, FA_ENOMEM, "out of memory for a check");
    }
    check->tuner = tuner;
    check->diag = diag;
    rc = FA_HELD(tuner, run_check(check, &known));
    if (rc == 0 && ret_gpu != NULL)
        *ret_gpu = check->target.gpu;
    rc = list_kernels(check, rc, ret_kernels, ret_count);
    fa_builds_free(check->build, SOURCES_MAX);
    free(check);
    return rc;
}
