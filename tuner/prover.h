/* SPDX-License-Identifier: Apache-2.0
 *
 * The prover of one problem on one device: the tensors of its cases, their reference, and the proof of
 * a kernel on them. What fa_bench_verify does.
 *
 * Invariants: every output is poisoned before each launch of a proof; everything between and around
 * the tensors is poisoned too, so that reading there yields NaN and writing there is seen; a workspace
 * is poisoned before the first launch of a case, and before the second one it holds what the first left
 * with some bytes changed, as memory does that an allocator hands out again; after a write outside its
 * outputs everything is made anew before the next proof.
 *
 * May be used by: tuner. Thread-safety: one thread; the context must be current.
 */
#ifndef FA_TUNER_PROVER_H
#define FA_TUNER_PROVER_H

#include "bench.h"

typedef struct fa_prover fa_prover;

/* A loaded kernel. Its launches run in order; all are passed the same. */
typedef struct fa_prover_kernel {
    fa_launches
        launches[FA_BENCH_CASES]; /* for each case; but for grids and splits as the first one's */
    fa_function function[FA_LAUNCHES_MAX];
    size_t workspace_bytes; /* 0: none is passed */
    fa_module *module;
    size_t counters; /* words, zero before and after the launches */
    void *extra;     /* what else is passed (tensor maps of each case), to be freed; or NULL */
} fa_prover_kernel;

/* FA_ENOMEM when it does not fit the device or the budget, with what it needs. */
int fa_prover_open(fa_driver *driver, const fa_bench_setup *setup, fa_prover **ret_prover,
                   fa_diag *diag);
void fa_prover_close(fa_prover **prover);
/* Of a buffer that evicts the tensors from L2: part of the budget. */
size_t fa_prover_flush_bytes(const fa_gpu *gpu);
/* Bytes of the budget that are left for a kernel's workspace and counters. */
size_t fa_prover_room(const fa_prover *prover);

/* Makes what an entry of a cubin is passed besides the parameters: fa_prover_kernel.extra, the workspace and the counters.
 * Whether the entry takes a workspace follows from the kernel's workspace_bytes. */
int fa_prover_load(fa_prover *prover, fa_cubin_entry entry, fa_prover_kernel *kernel,
                   fa_diag *diag);

/* As fa_bench_verify. */
int fa_prover_prove(fa_prover *prover, const fa_prover_kernel *kernel, fa_proof *ret_proof,
                    fa_diag *diag);

/* For timing: the stream, one launch on case 0, and a check of the output that fa_prover_poison and some launches of one
 * kernel leave. */
fa_stream fa_prover_stream(const fa_prover *prover);
/* Whether case 0 has nothing to launch. */
bool fa_prover_is_empty(const fa_prover *prover);
int fa_prover_launch(fa_prover *prover, const fa_prover_kernel *kernel, fa_diag *diag);
/* To be called before a launch: restores inputs that the kernel changes, and variables of its module that it reads. */
int fa_prover_restore(fa_prover *prover, const fa_prover_kernel *kernel, fa_diag *diag);
int fa_prover_poison(fa_prover *prover, fa_diag *diag);
int fa_prover_check(fa_prover *prover, fa_proof *ret_proof, fa_diag *diag);

/* rc, or FA_ENOMEM when the device had no memory for the allocation that failed with it. */
int fa_prover_memory_error(const fa_driver *driver, int rc);

#endif
