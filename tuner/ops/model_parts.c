/* SPDX-License-Identifier: Apache-2.0
 *
 * What the cost models of all operations share: occupancy, overlap, memory.
 */
#include "model.h"

#include "problem.h"

#include <math.h>
#include <string.h>

enum {
    SCHEDULERS = 4,      /* per SM, each with a quarter of the registers */
    REGISTER_UNIT = 256, /* registers are given to a warp in this unit */
    REGISTERS_MAX = 255,
    WARP = 32,
};

/* What the hardware does per clock and SM, by architecture. `tensor` is the FLOP rate at which mma.sync tops out where that
 * is below the data sheet's: Hopper's full rate needs wgmma (0.62 of it is what mma.sync kernels reach there), and
 * data-centre Blackwell's needs tcgen05 (its mma.sync rate is an assumption: Ampere's). Shared memory: 32 banks of 4 bytes;
 * Turing's load path is half as wide. FP32 lanes: architecture white papers. */
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

/* FLOP of the GPU's tensor cores per clock and SM. */
static double tensor_rate(const fa_gpu *gpu)
{
    double sm_mhz = (double)gpu->sm_count * gpu->clock_mhz;
    double rate = sm_mhz > 0 ? gpu->tensor_tflops * 1e6 / sm_mhz : 0;
    return rate > 0 ? rate : fa_model_rates_of(gpu)->tensor;
}

double fa_model_mma_rate(const fa_gpu *gpu)
{
    double rate = tensor_rate(gpu), most = fa_model_rates_of(gpu)->tensor;
    return rate < most ? rate : most;
}

int32_t fa_model_occupancy(const fa_gpu *gpu, int32_t threads, int32_t registers,
                           int32_t smem_bytes)
{
    if (threads < 1 || threads > 1024 || registers < 0 || registers > REGISTERS_MAX ||
        smem_bytes < 0 || smem_bytes > gpu->smem_per_block)
        return 0;
    int64_t warps = (threads + WARP - 1) / WARP, blocks = gpu->blocks_per_sm;
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

/* ---- operations without a model of their own --------------------------------------------------*/
/* A roofline over the launches of a config; some thousand predictions per tuning. A launch takes as long as its blocks on
 * the fullest SM, or as its bytes of device memory. On an SM, units work beside each other as far as there are warps to
 * feed them: a p-norm of their clocks whose p grows with the warps of a scheduler. What a block only waits for, the SM's
 * other blocks fill. All blocks of a launch count as equal. */

/* What no data sheet gives, from the fits of attention's models; not fitted to any
 * operation that is predicted here. */
static const double mma_share = 0.6; /* of the rate, by the best loops */
static const double wgmma_share = 0.93;
static const double l2_bytes = 60;          /* per clock and SM */
static const double overlap = 2;            /* p without any warp to spare */
static const double overlap_per_warp = 0.8; /* and what each warp of a scheduler adds to it */
static const double launch_us = 3;

enum { USUAL_REGISTERS = 40 };

/* Clocks of the whole launch on an SM that had it to itself, `blocks` of them resident. */
static double unit_clocks(const fa_launch_shape *launch, const fa_gpu *gpu, double blocks)
{
    const fa_model_rates *rates = fa_model_rates_of(gpu);
    const double *work = launch->work;
    double part[] = {
        work[FA_WORK_MMA_FLOPS] / (fa_model_mma_rate(gpu) * mma_share) +
            work[FA_WORK_WGMMA_FLOPS] / (tensor_rate(gpu) * wgmma_share),
        work[FA_WORK_EXPONENTIALS] / rates->exponentials,
        work[FA_WORK_OPERATIONS] / rates->fp32_lanes,
        work[FA_WORK_SHARED_BYTES] / rates->smem_bytes,
        work[FA_WORK_L2_BYTES] / l2_bytes,
    };
    double warps = blocks * launch->threads / WARP / SCHEDULERS;
    return fa_model_p_norm(part, (int)(sizeof part / sizeof *part),
                           overlap + overlap_per_warp * warps);
}

static double launch_time(const fa_launch_shape *launch, const fa_gpu *gpu, int32_t resident)
{
    double blocks = (double)launch->grid[0] * launch->grid[1] * launch->grid[2];
    double sms = gpu->sm_count > 0 ? gpu->sm_count : 1;
    double clock = gpu->clock_mhz > 0 ? gpu->clock_mhz : 1000;
    if (!(blocks > 0))
        return launch_us;
    double fullest = ceil(blocks / sms), together = fmin(resident, fullest);
    double clocks = unit_clocks(launch, gpu, together) + launch->work[FA_WORK_CLOCKS] / together;
    return launch_us + fmax(clocks / blocks * fullest / clock,
                            fa_model_memory_us(launch->work[FA_WORK_BYTES], gpu));
}

void fa_roofline_predict(const fa_candidate *candidate, const fa_problem *problem,
                         const fa_gpu *gpu, fa_trial *trial)
{
    const fa_launches *launches = &candidate->launches;
    int32_t registers = trial->registers > 0                 ? trial->registers
                        : candidate->estimated_registers > 0 ? candidate->estimated_registers
                                                             : USUAL_REGISTERS;
    (void)problem;
    bool told = false;
    trial->blocks_per_sm = fa_model_occupancy(gpu, trial->threads, registers,
                                              trial->smem_bytes + trial->static_smem_bytes);
    trial->predicted_us = 0;
    double us = 0;
    for (int i = 0; i < launches->count; i++) {
        const fa_launch_shape *launch = &launches->at[i];
        int32_t resident = fa_model_occupancy(gpu, launch->threads, registers,
                                              launch->smem_bytes + trial->static_smem_bytes);
        if (resident < trial->blocks_per_sm)
            trial->blocks_per_sm = resident;
        if (fa_launch_is_left_out(launch))
            continue;
        for (int w = FA_WORK_STEPS + 1; w < FA_WORKS; w++)
            told = told || launch->work[w] > 0;
        us += resident > 0 ? launch_time(launch, gpu, resident) : 0;
    }
    if (told && trial->blocks_per_sm > 0 && isfinite(us)) /* else what is told is beyond numbers */
        trial->predicted_us = us;
}
