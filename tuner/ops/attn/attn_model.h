/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model of attention forward: how long a config would take on a GPU, from its tile, its
 * occupancy and that GPU's throughputs.
 *
 * A family whose manifest has a let CONSUMER_REGS above 0 is warp-specialised: one warpgroup feeds the others, and
 * registers move between them. A family with a let SPLITS cuts the keys into so many parts. In any other family all
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

/* ---- attn_model_parts.c: what the models share, and two of the three kinds -------------------*/
/* With every sequence as long as the mean one, where the problem says how long that is. */
fa_problem fa_attn_mean_problem(const fa_problem *problem);
/* Bytes of all tensors but LSE, each once. */
double fa_attn_bytes(const fa_problem *problem);

/* Keys that some rows meet: [first, end); [clear_first, clear_end) is seen by every one of them, and may be empty or
 * turned round. */
typedef struct {
    double first, end, clear_first, clear_end;
} fa_attn_model_keys;

/* Of `rows` rows from row0 on. A sequence is as long as the problem says. */
fa_attn_model_keys fa_attn_model_keys_of(const fa_problem *problem, double row0, double rows);

/* Steps of so many keys that a tile of rows takes, and those of them that are masked; and those of all tiles of a head. */
typedef struct {
    double all, masked;
} fa_attn_model_steps;
fa_attn_model_steps fa_attn_model_steps_of(const fa_problem *problem, double row0, double rows,
                                           double keys);
fa_attn_model_steps fa_attn_model_steps_of_head(const fa_problem *problem, double rows,
                                                double keys);

/* Columns of the products, on average of those with keys and those with values. */
double fa_attn_model_head(const fa_candidate *candidate, const fa_problem *problem);

/* Microseconds of a launch with `blocks` >= 1 resident per SM; `tensor_flops`: of an SM, per clock. */
double fa_attn_split_us(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                        int32_t blocks, double tensor_flops);
double fa_attn_specialised_us(const fa_candidate *candidate, const fa_problem *problem,
                              const fa_gpu *gpu, int32_t blocks);

#endif
