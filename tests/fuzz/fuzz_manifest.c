/* SPDX-License-Identifier: Apache-2.0
 *
 * A family's manifest as somebody sent it, and what follows from it: the space for a few problems,
 * with its expressions run.
 */
#include "fuzz.h"

#include "catalogue.h"
#include "family.h"
#include "spec_reading.h"

long fuzz_taken;

static void enumerate(fa_family *family)
{
    static const fa_problem problem[] = {
        {.head_dim = 64, .batch = 4, .heads_q = 8, .heads_kv = 8, .seq_q = 512, .seq_k = 512},
        {.dtype = FA_BF16,
         .causal = FA_CAUSAL_TOP_LEFT,
         .head_dim = 256,
         .batch = INT32_MAX,
         .heads_q = 65535,
         .heads_kv = 1,
         .seq_q = INT32_MAX,
         .seq_k = 1,
         .unaligned = true}};
    static const char *const gpus[] = {"T4", "H200"};
    fa_family_list list = {&family, 1};
    fa_diag diag;
    for (int i = 0; i < 2; i++) {
        fa_space space = {0};
        fa_gpu gpu;
        FUZZ_CHECK(fa_catalogue_find(gpus[i], &gpu, &diag) == 0);
        if (fa_space_enumerate(&(fa_task){&list, &problem[i], &gpu}, &space, &diag) != 0)
            continue;
        for (int c = 0; c < space.count; c++) {
            const fa_trial *trial = &space.candidate[c].trial;
            FUZZ_CHECK(trial->status != FA_STATUS_PENDING ||
                       (trial->threads > 0 && trial->smem_bytes >= 0));
        }
        fa_space_free(&space);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fa_diag diag = {{0}};
    cJSON *json = NULL;
    if (size > 64 * 1024 || fa_json_parse((const char *)data, size, "fuzz.json", &json, &diag) != 0)
        return 0;
    fa_family_list list = {calloc(1, sizeof *list.family), 1};
    fa_family *family = calloc(1, sizeof *family);
    FUZZ_CHECK(list.family != NULL && family != NULL);
    list.family[0] = family;
    family->operation = fa_operation_of(&(fa_problem){0}); /* as fa_families_load() looks up first */
    struct fa_spec_reading from = {
        .where = "fuzz.json", .name = "fuzz", .json = json, .diag = &diag};
    int rc = fa_family_read(family, &from);
    FUZZ_CHECK(rc == 0 || diag.text[0] != 0);
    fuzz_taken += rc == 0;
    if (rc == 0)
        enumerate(family);
    char *text = cJSON_Print(json);
    if (rc != 0 && text != NULL) /* as fa_families_load() does */
        fa_spec_locate(from.where, from.name, text, false, &diag);
    free(text);
    fa_families_free(&list);
    cJSON_Delete(json);
    return 0;
}
