/* SPDX-License-Identifier: Apache-2.0
 *
 * What the cost models of all operations share: occupancy, overlap, memory.
 */
#include "model_parts.h"

#include "problem.h"

#include <math.h>
#include <string.h>

enum {
    SCHEDULERS = 4,      /* per SM, each with a quarter of the registers */
    REGISTER_UNIT = 256, /* registers are given to a warp in this unit */
    REGISTERS_MAX = 255,
    WARP = 32,
};

int32_t fa_model_occupancy(const fa_gpu *gpu, int32_t threads, int32_t registers,
                           int32_t smem_bytes)
{
    if (threads < 1 || threads > 1024 || registers < 0 || registers > REGISTERS_MAX ||
        smem_bytes < 0 || smem_bytes > gpu->smem_per_block)
        return 0;
    int64_t warps = (threads + WARP - 1) / WARP;
    int64_t blocks = gpu->blocks_per_sm;
    int64_t by_threads = gpu->threads_per_sm / (warps * WARP);
    int64_t each = ((int64_t)(registers > 0 ? registers : 1) * WARP + REGISTER_UNIT - 1) /
                   REGISTER_UNIT * REGISTER_UNIT;
    int64_t by_registers = gpu->regs_per_sm / SCHEDULERS / each * SCHEDULERS / warps;
    int64_t smem = (int64_t)smem_bytes + gpu->smem_reserved;
    int64_t by_smem = smem > 0 ? gpu->smem_per_sm / smem : blocks;
    blocks = by_threads < blocks ? by_threads : blocks;
    blocks = by_registers < blocks ? by_registers : blocks;
    return (int32_t)(by_smem < blocks ? by_smem : blocks);
}

int32_t fa_model_tunable(const fa_candidate *candidate, const char *name, int32_t absent)
{
    int32_t value = absent;
    if (!fa_config_get(&candidate->trial.config, name, &value)) {
        for (int i = 0; i < candidate->let_count; i++)
            if (strcmp(candidate->let[i].name, name) == 0)
                return candidate->let[i].value;
    }
    return value;
}

double fa_model_p_norm(const double *part, int count, double p)
{
    double largest = 0, sum = 0;
    for (int i = 0; i < count; i++)
        largest = part[i] > largest ? part[i] : largest;
    for (int i = 0; i < count && largest > 0; i++)
        sum += pow(part[i] / largest, p);
    return largest > 0 ? largest * pow(sum, 1 / p) : 0;
}

double fa_model_memory_us(double bytes, const fa_gpu *gpu)
{
    return gpu->bandwidth_gbs > 0 ? bytes / (gpu->bandwidth_gbs * 1e3) : 0;
}
