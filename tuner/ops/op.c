/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of the operations with C code of their own.
 */
#include "op.h"

#include "attn_launch.h"
#include "attn_model.h"
#include "attn_proof.h"
#include "family.h"
#include "generic.h"
#include "model.h"

#include "error.h"
#include "operation.h"

#include <string.h>

static const fa_op ops[] = {
    {.name = "attn_fwd",
     .cases = fa_attn_case_problems,
     .reference_entry = "attn_ref_fp32",
     .proof = &fa_attn_proof,
     .check_entry = fa_attn_check_entry,
     .predict = fa_attn_predict,
     .launcher = &fa_attn_launcher},
    {.name = NULL,
     .cases = fa_generic_cases,
     .proof = &fa_generic_proof,
     .check_entry = fa_generic_check_entry,
     .predict = fa_roofline_predict,
     .blur = 0.05,
     .launcher = &fa_generic_launcher},
};

const fa_op *fa_op_of(const fa_problem *problem)
{
    const char *name = fa_operation_of(problem)->name;
    const fa_op *op = ops;
    while (op->name != NULL && strcmp(op->name, name) != 0)
        op++;
    return op;
}

const char *fa_op_reference_entry(const fa_problem *problem)
{
    const cJSON *document = fa_operation_of(problem)->document;
    const char *entry = fa_op_of(problem)->reference_entry;
    if (entry == NULL)
        entry = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(
            cJSON_GetObjectItemCaseSensitive(document, "answer"), "kernel"));
    return entry != NULL                                ? entry
           : cJSON_HasObjectItem(document, "reference") ? "reference"
                                                        : "fa_check_output";
}

int fa_op_read_cubin(const fa_family *family, const fa_candidate *candidate,
                     const fa_problem *problem, const void *cubin, size_t size,
                     fa_cubin_info *ret_info, fa_diag *diag)
{
    const fa_op *op = fa_op_of(problem);
    fa_cubin_entry entry = {cubin, size, .workspace = candidate->launches.workspace_bytes > 0,
                            .counters = candidate->launches.counters > 0};
    fa_cubin_info all = {0};
    for (int i = 0; i < family->launch_count; i++) {
        int32_t threads = candidate->launches.at[i].threads;
        fa_cubin_info info;
        entry.name = family->launch[i].entry;
        entry.launch = i;
        int rc;
        if ((rc = fa_cubin_read(cubin, size, entry.name, &info, diag)) != 0 ||
            (rc = op->check_entry(problem, &entry, diag)) != 0)
            return rc;
        if (i > 0 && info.max_threads != 0 && info.max_threads < threads)
            return fa_fail(diag, FA_ECORRUPT,
                           "cubin allows %d threads in %s, the manifest launches %d",
                           info.max_threads, entry.name, threads);
        if (i == 0)
            all = info;
        fa_cubin_join(&all, &info);
    }
    *ret_info = all;
    return 0;
}
