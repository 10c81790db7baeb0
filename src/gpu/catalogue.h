/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU types that exist, as data (catalogue.def), for tuning without the GPU; and the clocks of a GPU that is here.
 */
#ifndef FA_GPU_CATALOGUE_H
#define FA_GPU_CATALOGUE_H

#include "fa_types.h"

int fa_catalogue_count(void);
/* The i-th entry, and why it cannot be used (NULL when it can: V100 is known and refused). */
void fa_catalogue_at(int index, fa_gpu *ret_gpu, const char **ret_refused);
/* By name or alias, ignoring case, spaces, '-' and '_' ("a100", "A100-80GB", "NVIDIA L4").
 * FA_ENOTFOUND: unknown, the sentence lists what is near; FA_ENOTSUP: known and refused. */
int fa_catalogue_find(const char *name, fa_gpu *ret_gpu, fa_diag *diag);
/* The entry that a queried device is (same SM, SM count and memory bus); FA_ENOTFOUND else. */
int fa_catalogue_match(const fa_gpu *device, fa_gpu *ret_gpu);

/* Dense fp16 -> fp32 tensor throughput in FLOP per clock per SM for this architecture; 0: unknown. */
double fa_catalogue_tensor_flops(int sm);
/* Fills the limits that follow from the architecture alone (regs, threads, blocks, reserved). */
int fa_catalogue_limits(int sm, fa_gpu *gpu);
/* Limits of a queried device that no GPU of its architecture can have (0, negative, too large) become the architecture's;
 * for an unknown architecture the largest of all. */
void fa_catalogue_bound(fa_gpu *device);

/* ---- NVML -----------------------------------------------------------------------------------*/
/* NVML, opened at run time and optional: the clocks, throttle reasons and temperature that are stored beside the samples.
 * Read only; nothing here changes a setting. */
typedef struct fa_clock_state {
    int32_t sm_mhz, memory_mhz, max_sm_mhz;
    int32_t temperature_c, power_limit_w;
    char throttle[160]; /* the reasons that matter for timing ("thermal", "power cap"), or "" */
    char driver[80];    /* "580.159.04" */
} fa_clock_state;

/* uuid as in fa_gpu; unknown fields are 0. The first call starts NVML, for good. FA_ENODRIVER when absent; FA_ENODEVICE. */
int fa_nvml_read(const char *uuid, fa_clock_state *ret_state, fa_diag *diag);

#endif
