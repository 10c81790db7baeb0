/* SPDX-License-Identifier: Apache-2.0
 *
 * The references of attention forward on the CPU, and the table of all entries.
 *
 * Invariant: no byte is touched that fake_memory has not granted.
 */
#include "fake_cuda_numbers.h"
#include "fake_cuda_serving.h"

/* The list of row ids, or NULL for 0, 1, 2, … */
static bool map_rows(const long long *address, int count, const long long **ret)
{
    *ret = NULL;
    if (address == NULL || count == 0)
        return true;
    *ret = fake_memory((uint64_t)(uintptr_t)address, (size_t)count * sizeof **ret, false);
    return *ret != NULL;
}

static bool run_reference(const struct fake_build *build, void **arguments, bool lowp)
{
    const struct fa_attn_serving_params p = fake_serving_params(build, arguments[0]);
    const long long *rows;
    int count, columns = fake_columns(build);
    memcpy(&count, arguments[2], sizeof count);
    if (count <= 0 || !map_rows(*(const long long *const *)arguments[1], count, &rows))
        return count == 0;
    float *o = fake_memory(*(uint64_t *)arguments[3],
                           (size_t)count * (size_t)columns * sizeof(float), true);
    float *lse = fake_memory(*(uint64_t *)arguments[4], (size_t)count * sizeof(float), true);
    return o != NULL && lse != NULL && fake_serving_attend(&p, build, rows, count, lowp, o, lse);
}

static const char *const known[] = {"attn_fwd", "attn_ref_fp32", "attn_ref_lowp", "reference"};

bool fake_kernel_known(const char *entry)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], entry) == 0)
            return true;
    return fake_rows_known(entry) || fake_checks_known(entry) || fake_specified_known(entry) ||
           fake_backward_known(entry);
}

bool fake_kernel_is_tuned(const char *entry)
{
    return strcmp(entry, "attn_fwd") == 0 || fake_rows_known(entry) ||
           strncmp(entry, "attn_bwd", 8) == 0 ||
           (fake_specified_known(entry) && strstr(entry, "_naive") == NULL);
}

bool fake_kernel_run(const char *entry, const struct fake_build *build, void **arguments,
                     const struct fake_damage *damage)
{
    if (fake_rows_known(entry))
        return fake_rows_run(entry, build, arguments, damage);
    if (fake_specified_known(entry))
        return fake_specified_run(entry, build, arguments, damage);
    if (fake_checks_known(entry))
        return fake_checks_run(entry, arguments);
    if (strcmp(entry, "reference") == 0)
        return build->columns > 0 ? fake_rows_reference(build, arguments)
                                  : fake_backward_reference(build, arguments);
    if (strcmp(entry, "inputs") == 0)
        return fake_backward_inputs(build, arguments);
    if (fake_backward_known(entry))
        return fake_backward_run(entry, build, arguments, damage);
    if (strcmp(entry, "attn_fwd") == 0)
        return fake_serving_forward(build, arguments, damage);
    return run_reference(build, arguments, strcmp(entry, "attn_ref_lowp") == 0);
}
