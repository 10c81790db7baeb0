/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of all kernels of the fake CUDA driver.
 */
#include "fake_cuda.h"

#include <string.h>

static bool run_reference(const char *entry, const struct fake_build *build, void **arguments,
                          const struct fake_damage *damage)
{
    return (build->columns > 0 ? fake_rows_run : fake_backward_run)(entry, build, arguments,
                                                                    damage);
}

static const struct kernel {
    const char *begins; /* the entry's name */
    bool tuned;         /* unless it is a naive one */
    fake_kernel *run;
} kernels[] = {
    {"attn_fwd", true, fake_serving_forward}, {"attn_ref", false, fake_serving_reference},
    {"attn_bwd", true, fake_backward_run},    {"inputs", false, fake_backward_run},
    {"reference", false, run_reference},      {"l1_norm_", true, fake_rows_run},
    {"fa_check_", false, fake_checks_run},    {"convolution", true, fake_specified_run},
    {"axpy", true, fake_specified_run},       {"gather", true, fake_specified_run},
    {"blur", true, fake_specified_run},       {"sum", true, fake_specified_run},
    {"mixed", true, fake_specified_run},      {"large", true, fake_specified_run},
    {"packed", true, fake_specified_run}};

static const struct kernel *find(const char *entry)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strncmp(kernels[i].begins, entry, strlen(kernels[i].begins)) == 0)
            return &kernels[i];
    return NULL;
}

bool fake_kernel_known(const char *entry)
{
    return find(entry) != NULL;
}

bool fake_kernel_is_tuned(const char *entry)
{
    return find(entry)->tuned && strstr(entry, "_naive") == NULL;
}

bool fake_kernel_run(const char *entry, const struct fake_build *build, void **arguments,
                     const struct fake_damage *damage)
{
    static const struct fake_damage none;
    return find(entry)->run(entry, build, arguments, damage != NULL ? damage : &none);
}
