/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model: how long a config would take on a GPU. It ranks; it never claims. Before compiling,
 * registers are the manifest's estimate; afterwards they are the cubin's. What it reads of a config is
 * the operation's matter; candidate.c asks it.
 *
 * May be used by: tuner, engine. Thread-safety: pure.
 */
#ifndef FA_TUNER_MODEL_H
#define FA_TUNER_MODEL_H

#include "manifest.h"

/* Fills trial.blocks_per_sm and trial.predicted_us (0 when it cannot run, or its operation has no model).
 * trial.registers are the cubin's; <= 0: estimated. */
void fa_model_predict(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                      fa_trial *trial);

/* Sorts indices of `order` (candidates of the space) by predicted time, then defaults first, then by config text, so
 * that equal predictions rank the same every time. What has no prediction comes last. */
void fa_model_rank(const fa_space *space, int *order, int count);

/* Whether the operation's model does not tell the trial from the best. */
bool fa_model_is_tied(const fa_problem *problem, const fa_trial *trial, const fa_trial *best);

/* How many of the ranked candidates the operation's model does not tell from the first; a default config among them
 * moves to the front. */
int fa_model_break_ties(const fa_problem *problem, const fa_space *space, int *order, int count);

/* Sorts indices of candidates by how long they compile, as far as that is known before: those with the most registers a
 * thread first (the manifest's estimate, or its let CONSUMER_NEED); among equals the one that is predicted to be faster. */
void fa_model_largest_first(const fa_space *space, int *order, int count);

/* Of ranked candidates, moves the one to the front that compiles soonest (has the lowest let CONSUMER_NEED, of which its
 * tunable SHORT takes a third away; compiles of a family that has none are short) among those that the model cannot tell
 * from the first: they are predicted within 2 % of it, or within the operation's blur. The others stay in order. */
void fa_model_soonest_first(const fa_problem *problem, const fa_space *space, int *order,
                            int count);

/* ---- point.c: what the operations' models share, and the model of those without their own -------*/
/* What an SM does in a clock: FLOP of mma.sync, bytes of shared memory, exponentials, FP32 lanes. */
typedef struct fa_model_rates {
    int sm;
    double tensor, smem_bytes, exponentials, fp32_lanes;
} fa_model_rates;

const fa_model_rates *fa_model_rates_of(const fa_gpu *gpu);

/* FLOP that mma.sync reaches per clock and SM. */
double fa_model_mma_rate(const fa_gpu *gpu);

/* Resident blocks per SM for this use of threads, registers and shared memory; 0: cannot run. */
int32_t fa_model_occupancy(const fa_gpu *gpu, int32_t threads, int32_t registers,
                           int32_t smem_bytes);

/* The tunable of that name, else the let, else `absent`. */
int32_t fa_model_tunable(const fa_candidate *candidate, const char *name, int32_t absent);

/* (sum of part^p)^(1/p): the largest of what overlaps perfectly, the sum (p = 1) of what does not
 * overlap at all. Parts are >= 0. */
double fa_model_p_norm(const double *part, int count, double p);

/* Microseconds to move so many bytes; 0 when the GPU's bandwidth is unknown. */
double fa_model_memory_us(double bytes, const fa_gpu *gpu);

/* As fa_model_predict. Without "work" in the manifest predicted_us is 0. */
void fa_roofline_predict(const fa_candidate *candidate, const fa_problem *problem,
                         const fa_gpu *gpu, fa_trial *trial);

#endif
