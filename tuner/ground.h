/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the proving ground, shared by ground.c (memory, inputs, references) and verify.c (the
 * proof). Others use verify.h.
 */
#ifndef FA_TUNER_GROUND_H
#define FA_TUNER_GROUND_H

#include "verify.h"

enum {
    FA_GROUND_ROUNDS = 2,    /* launches of each case that is not `once` */
    FA_GROUND_THREADS = 256, /* of a block of the checking kernels */
    FA_GROUND_BANDS = 4,     /* of the sampled rows of a causal case */
};

struct ground_case {
    fa_attn_case what;
    struct fa_attn_params params;
    struct fa_attn_region tensor[FA_ATTN_TENSORS], lse;
    int64_t rows;   /* of O */
    int row_count;  /* compared */
    int bands;      /* of the compared rows, equally many in each: every one has a result and a
                       tolerance of its own */
    fa_device_ptr row_ids, ref_o, ref_lse, lowp_o, lowp_lse; /* row_ids 0: all rows in order */
};

struct fa_ground {
    fa_driver *driver;
    fa_stream stream;
    fa_module *module;
    fa_function fill, poison_gaps, ref_fp32, ref_lowp, compare, check_written, check_gaps;
    uint32_t blocks_max;
    uint64_t seed;
    int count;
    bool damaged; /* a candidate wrote where it must not: inputs and references are suspect */
    struct ground_case at[FA_BENCH_CASES];
    fa_device_ptr inputs, outputs; /* the two allocations; references are with the inputs */
    fa_device_ptr results;
    fa_device_ptr small_outputs, outputs_end; /* outputs of case 1 and on; their end */
};

/* `work` threads in blocks of `threads`, as many as keep the device busy; attn_ref.cu's kernels
 * stride over the rest. */
int fa_ground_run(fa_ground *ground, fa_function function, uint32_t threads, uint64_t work,
                  void **arguments, fa_diag *diag);
/* Fills the inputs and computes the references of every case. */
int fa_ground_prepare(fa_ground *ground, fa_diag *diag);

#endif
