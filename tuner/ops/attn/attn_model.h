/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model of attention forward: how long a config would take on a GPU, from its tile, its
 * occupancy and that GPU's throughputs.
 *
 * A family whose manifest has a let CONSUMER_REGS above 0 is warp-specialised: one warpgroup feeds
 * the others, and registers move between them. A family with a let SPLITS cuts the keys into so many parts
 * (attn_model_parts.c). Any other is taken for one whose warps all do the same, with mma.sync. Of either the model reads, where there, the tunables or lets BLOCK_M, BLOCK_N,
 * D_TILE, STAGES and MIN_BLOCKS; of the first kind Q_STAGES, PINGPONG and PERSISTENT, of the second
 * WARPS, WARPS_PER_SM, Q_IN_REGS and L2_SECTION_KB.
 *
 * May be used by: tuner/ops.
 */
#ifndef FA_TUNER_OPS_ATTN_MODEL_H
#define FA_TUNER_OPS_ATTN_MODEL_H

#include "manifest.h"

/* As fa_model_predict. */
void fa_attn_predict(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                     fa_trial *trial);

#endif
