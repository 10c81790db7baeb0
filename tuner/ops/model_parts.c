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

/* What the hardware does per clock and SM, by architecture. `tensor` is the FLOP rate at which
 * mma.sync tops out where that is below the data sheet's: Hopper's full rate needs wgmma (0.62 of
 * it is what mma.sync kernels reach there), and data-centre Blackwell's needs tcgen05 (its
 * mma.sync rate is an assumption: Ampere's). Shared memory: 32 banks of 4 bytes; Turing's load
 * path is half as wide. FP32 lanes: architecture white papers. */
static const fa_model_rates architectures[] = {
    {75, 1024, 64, 16, 64},    {80, 2048, 128, 16, 64},   {86, 1024, 128, 16, 128},
    {87, 2048, 128, 16, 128},  {89, 1024, 128, 16, 128},  {90, 2540, 128, 16, 128},
    {100, 2048, 128, 16, 128}, {103, 2048, 128, 32, 128}, {110, 2048, 128, 16, 128},
    {120, 1024, 128, 16, 128}, {121, 1024, 128, 16, 128}};

const fa_model_rates *fa_model_rates_of(const fa_gpu *gpu)
{
    const fa_model_rates *found = &architectures[0];
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (architectures[i].sm <= gpu->sm)
            found = &architectures[i];
    return found;
}

double fa_model_tensor_rate(const fa_gpu *gpu)
{
    double sm_mhz = (double)gpu->sm_count * gpu->clock_mhz;
    double rate = sm_mhz > 0 ? gpu->tensor_tflops * 1e6 / sm_mhz : 0;
    return rate > 0 ? rate : fa_model_rates_of(gpu)->tensor;
}

double fa_model_mma_rate(const fa_gpu *gpu)
{
    double rate = fa_model_tensor_rate(gpu), most = fa_model_rates_of(gpu)->tensor;
    return rate < most ? rate : most;
}

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
