/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model of attention forward: how long a config would take on a GPU, from its tile, its
 * occupancy and that GPU's throughputs.
 *
 * A family whose manifest has a let CONSUMER_REGS above 0 is warp-specialised: one warpgroup feeds the others, and
 * registers move between them. A family with a let SPLITS, of either kind, cuts the keys into so many parts. In any other family all
 * warps are taken to do the same, with mma.sync. Of every family the model reads, where the manifest has them, the
 * tunables or lets BLOCK_M, BLOCK_N, D_TILE, STAGES and MIN_BLOCKS; of warp-specialised ones PINGPONG and
 * PERSISTENT; of the last kind WARPS, WARPS_PER_SM and Q_IN_REGS.
 *
 * May be used by: tuner/ops. Thread-safety: pure.
 */
#ifndef FA_TUNER_OPS_ATTN_MODEL_H
#define FA_TUNER_OPS_ATTN_MODEL_H

#include "manifest.h"

/* As fa_model_predict. */
void fa_attn_predict(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                     fa_trial *trial);

#endif
