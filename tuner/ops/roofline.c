/* SPDX-License-Identifier: Apache-2.0
 *
 * A roofline over the launches of a config.
 *
 * Workload: some thousand predictions per tuning.
 * A launch takes as long as its blocks on the fullest SM, or as its bytes of device memory. On an SM, units work beside each
 * other as far as there are warps to feed them: a p-norm of their clocks whose p grows with the warps of a scheduler. What a
 * block only waits for, the SM's other blocks fill. All blocks of a launch count as equal.
 */
#include "roofline.h"

#include "model_parts.h"

#include <math.h>

/* What no data sheet gives, from the fits of attention's models (attn_model.c, attn_model_specialised.c); not fitted to any
 * operation that is predicted here. */
static const double mma_share = 0.6; /* of the rate, by the best loops */
static const double wgmma_share = 0.93;
static const double l2_bytes = 60;          /* per clock and SM */
static const double overlap = 2;            /* p without any warp to spare */
static const double overlap_per_warp = 0.8; /* and what each warp of a scheduler adds to it */
static const double launch_us = 3;

enum { USUAL_REGISTERS = 40, WARP = 32, SCHEDULERS = 4 };

/* Clocks of the whole launch on an SM that had it to itself, `blocks` of them resident. */
static double unit_clocks(const fa_launch_shape *launch, const fa_gpu *gpu, double blocks)
{
    const fa_model_rates *rates = fa_model_rates_of(gpu);
    const double *work = launch->work;
    double part[] = {
        work[FA_WORK_MMA_FLOPS] / (fa_model_mma_rate(gpu) * mma_share) +
            work[FA_WORK_WGMMA_FLOPS] / (fa_model_tensor_rate(gpu) * wgmma_share),
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

static bool tells_work(const fa_launch_shape *launch)
{
    bool told = false;
    for (int i = FA_WORK_STEPS + 1; i < FA_WORKS; i++)
        told = told || launch->work[i] > 0;
    return told;
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
        told = told || tells_work(launch);
        us += resident > 0 ? launch_time(launch, gpu, resident) : 0;
    }
    if (told && trial->blocks_per_sm > 0 && isfinite(us)) /* else what is told is beyond numbers */
        trial->predicted_us = us;
}
