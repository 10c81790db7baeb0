/* SPDX-License-Identifier: Apache-2.0
 *
 * The proving ground: the tensors of some cases on the device, their reference, and the proof of a
 * kernel on them. What fa_bench_verify does, open to any case with any strides.
 *
 * Invariants: every output is poisoned before each launch of a proof; everything between and around
 * the tensors is poisoned too, so that reading there yields NaN and writing there is seen; one
 * synchronisation and one small copy per proof; after a write outside its outputs everything is
 * made anew before the next proof.
 *
 * May be used by: tuner. Thread-safety: one thread; the context must be current.
 */
#ifndef FA_TUNER_VERIFY_H
#define FA_TUNER_VERIFY_H

#include "attn_maps.h"
#include "op_attn_fwd.h"

typedef struct fa_ground fa_ground;

/* A loaded kernel; grid[i] and maps[i] are for case i. */
typedef struct fa_ground_kernel {
    fa_function function;
    uint32_t threads, smem_bytes;
    uint32_t grid[FA_BENCH_CASES][3];
    struct fa_attn_tensor_maps *maps; /* NULL: the kernel takes none */
} fa_ground_kernel;

/* Takes 1..FA_BENCH_CASES cases of one dtype, head_dim and causal kind; `reference` is the cubin of
 * attn_ref.cu for those. FA_ENOMEM when it does not fit the device, with what it needs. */
int fa_ground_open(fa_driver *driver, const fa_gpu *gpu, const fa_attn_case *cases, int count,
                   const void *reference, size_t reference_size, uint64_t seed,
                   fa_ground **ret_ground, fa_diag *diag);
void fa_ground_close(fa_ground **ground);

/* The tensor maps that a cubin wants, for every case: an array for fa_ground_kernel, to be freed by
 * the caller, or NULL when it wants none. */
int fa_ground_maps(fa_ground *ground, const void *cubin, size_t size, const char *entry,
                   struct fa_attn_tensor_maps **ret_maps, fa_diag *diag);

/* As fa_bench_verify. */
int fa_ground_prove(fa_ground *ground, const fa_ground_kernel *kernel, fa_proof *ret_proof,
                    fa_diag *diag);

/* For timing: the stream, one launch on case 0, and the proof of the output that is there after
 * fa_ground_poison and some launches of one kernel. */
fa_stream fa_ground_stream(const fa_ground *ground);
const fa_attn_case *fa_ground_case(const fa_ground *ground, int index);
int fa_ground_launch(fa_ground *ground, const fa_ground_kernel *kernel, fa_diag *diag);
int fa_ground_poison(fa_ground *ground, fa_diag *diag);
int fa_ground_check(fa_ground *ground, fa_proof *ret_proof, fa_diag *diag);

/* rc, or FA_ENOMEM when the device had no memory for the allocation that failed with it. */
int fa_ground_memory_error(const fa_driver *driver, int rc);

/* Device address of what the reference (fp32) says of case `index`: O as rows x head_dim and LSE,
 * in the order of the compared rows; their number. For testing the reference itself. */
fa_device_ptr fa_ground_reference(const fa_ground *ground, int index, fa_device_ptr *ret_lse,
                                  int *ret_rows);
/* What kernels are passed for case `index`. */
const struct fa_attn_params *fa_ground_params(const fa_ground *ground, int index);

#endif
