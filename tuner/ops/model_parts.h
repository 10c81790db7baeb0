/* SPDX-License-Identifier: Apache-2.0
 *
 * What the cost models of all operations share, and the model of those without one of their own.
 *
 * May be used by: tuner, engine. Thread-safety: pure.
 */
#ifndef FA_TUNER_OPS_MODEL_PARTS_H
#define FA_TUNER_OPS_MODEL_PARTS_H

#include "manifest.h"

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
