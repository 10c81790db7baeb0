/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model: how long a config would take on a GPU, from its tile, its occupancy and that
 * GPU's throughputs. It ranks; it never claims. Before compiling, registers are the manifest's
 * estimate; afterwards they are the cubin's.
 *
 * A family whose manifest has a let CONSUMER_REGS above 0 is warp-specialised: one warpgroup feeds
 * the others, and registers move between them. Any other is taken for one whose warps all do the
 * same, with mma.sync. Of either the model reads, where there, the tunables or lets BLOCK_M, BLOCK_N,
 * D_TILE, STAGES and MIN_BLOCKS; of the first kind Q_STAGES, PINGPONG and PERSISTENT, of the second
 * WARPS, WARPS_PER_SM, Q_IN_REGS and L2_SECTION_KB.
 */
#ifndef FA_TUNER_MODEL_H
#define FA_TUNER_MODEL_H

#include "manifest.h"

/* Resident blocks per SM for this use of threads, registers and shared memory; 0: cannot run. */
int32_t fa_model_occupancy(const fa_gpu *gpu, int32_t threads, int32_t registers,
                           int32_t smem_bytes);

/* Fills trial.blocks_per_sm and trial.predicted_us (0 when it cannot run). trial.registers are the
 * cubin's; <= 0: estimated. */
void fa_model_predict(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                      fa_trial *trial);

/* Sorts indices of `order` (candidates of the space) by predicted time, then by config text, so
 * that equal predictions rank the same every time. What cannot run comes last. */
void fa_model_rank(const fa_space *space, int *order, int count);

#endif
