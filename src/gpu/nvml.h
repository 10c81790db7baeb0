/* SPDX-License-Identifier: Apache-2.0
 *
 * NVML, opened at run time and optional: the clocks, throttle reasons and temperature that are
 * stored beside the samples. Read only; nothing here changes a setting.
 */
#ifndef FA_GPU_NVML_H
#define FA_GPU_NVML_H

#include "fa_types.h"

typedef struct fa_nvml fa_nvml;

typedef struct fa_clock_state {
    int32_t sm_mhz, memory_mhz, max_sm_mhz;
    int32_t temperature_c, power_limit_w;
    uint64_t throttle_reasons; /* NVML's bit mask; 0: none */
    char driver[80];           /* "580.159.04" */
} fa_clock_state;

int fa_nvml_open(fa_nvml **ret_nvml, fa_diag *diag); /* FA_ENODRIVER when absent */
void fa_nvml_close(fa_nvml **nvml);
/* uuid as in fa_gpu; unknown fields are 0. */
int fa_nvml_read(fa_nvml *nvml, const char *uuid, fa_clock_state *ret_state, fa_diag *diag);
/* Writes the names of the reasons set that matter for timing ("thermal", "power cap"), or "". */
void fa_nvml_throttle_text(uint64_t reasons, char *ret_text, size_t size);

#endif
