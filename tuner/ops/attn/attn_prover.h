/* SPDX-License-Identifier: Apache-2.0
 *
 * The prover of attention forward. In use it is opened by fa_prover_open; tests open it on cases of
 * their own and look inside.
 */
#ifndef FA_TUNER_OPS_ATTN_PROVER_H
#define FA_TUNER_OPS_ATTN_PROVER_H

#include "prover.h"
#include "attn_cases.h"

extern const struct fa_prover_type fa_attn_prover;

/* Takes 1..FA_BENCH_CASES cases of one dtype, head_dim and causal kind; otherwise as fa_prover_open. */
int fa_attn_prover_open(fa_driver *driver, const fa_gpu *gpu, const fa_attn_case *cases, int count,
                        const void *reference, size_t reference_size, uint64_t seed,
                        fa_prover **ret_prover, fa_diag *diag);

/* Device address of what the reference (fp32) says of case `index`: O as rows x head_dim and LSE,
 * in the order of the compared rows; their number. */
fa_device_ptr fa_attn_prover_reference(fa_prover *prover, int index, fa_device_ptr *ret_lse,
                                       int *ret_rows);
/* What kernels are passed for case `index`. */
const struct fa_attn_serving_params *fa_attn_prover_serving(fa_prover *prover, int index);
const struct fa_attn_params *fa_attn_prover_params(fa_prover *prover, int index);

#endif
