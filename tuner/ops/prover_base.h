/* SPDX-License-Identifier: Apache-2.0
 *
 * What the provers of all operations share: the cases of one problem in device memory, the kernels
 * that fill and check them, and the memory itself. prover.h is the way in.
 *
 * Invariants: outputs of all cases lie together, so that one fill poisons them, and apart from inputs
 * and references, which a proof never writes.
 *
 * May be used by: tuner/prover.c, tuner/ops. Thread-safety: one thread; the context must be current.
 */
#ifndef FA_TUNER_OPS_PROVER_BASE_H
#define FA_TUNER_OPS_PROVER_BASE_H

#include "bench.h"
#include "prover.h"

enum {
    FA_PROVER_ROUNDS = 2,     /* launches of each case that is not `once` */
    FA_PROVER_ARGUMENTS = 28, /* of a kernel, without the workspace */
    FA_PROVER_FENCE = 32768,  /* 16-bit elements before and behind each output: 64 KiB */
    FA_PROVER_THREADS = 256,  /* of a block of the kernels that fill and check */
    FA_PROVER_POISON = 0x7fa5 /* NaN as fp16 and bf16, and twice as fp32: nothing computes it */
};

struct fa_prover_case {
    fa_problem problem;
    bool once;  /* launched once per proof rather than twice: it is large */
    bool empty; /* there is nothing to launch */
};

/* What was seen of one launch. */
struct fa_verdict {
    bool passed;
    bool damaged; /* something was written outside the outputs */
    double error, tolerance;
    char reason[256]; /* empty when passed */
};

/* Hands out addresses, 256-byte aligned; first counts from 0, then again from the real base. */
struct fa_cursor {
    uint64_t at;
    bool overflow;
};
fa_device_ptr fa_cursor_take(struct fa_cursor *cursor, uint64_t count, uint64_t size);

/* One operation's part of a prover: its struct begins with a struct fa_prover. */
struct fa_prover_type {
    size_t size;         /* of that struct */
    size_t result_bytes; /* on the device, of one launch, zeroed before a proof */
    const char *const
        *entry; /* of the reference's module, in the order of fa_prover.kernel; then NULL */
    /* The cases of fa_op.cases with their tensors: fa_prover.count and .at. */
    int (*take_cases)(struct fa_prover *prover, const fa_problem *problem, fa_diag *diag);
    /* Addresses of everything of one case, from where the cursors are. */
    void (*plan)(struct fa_prover *prover, int index, struct fa_cursor *inputs,
                 struct fa_cursor *outputs);
    /* Fills the inputs of a case and computes its reference. */
    int (*prepare)(struct fa_prover *prover, int index, fa_diag *diag);
    /* Makes anew what a kernel changes of its inputs, and variables of its module; NULL: none has such. `extra` is of
     * `load`. */
    int (*restore)(struct fa_prover *prover, int index, const void *extra, fa_diag *diag);
    /* What a kernel is passed for a case, in order; NULL: no more. `extra` is of `load`. */
    void (*arguments)(struct fa_prover *prover, int index, void *extra,
                      void *ret_argument[FA_PROVER_ARGUMENTS]);
    /* What a kernel needs besides (NULL: nothing), in one block for free(). FA_ECORRUPT: the entry
     * does not take what it would be passed. */
    int (*load)(struct fa_prover *prover, fa_module *module, const fa_cubin_entry *entry,
                void **ret_extra, fa_diag *diag);
    /* Looks at a case's outputs after a launch; `result` is on the device. `judge` comes once all
     * results are here and says what was seen. */
    int (*check)(struct fa_prover *prover, int round, int index, fa_device_ptr result,
                 fa_diag *diag);
    void (*judge)(const struct fa_prover *prover, int round, int index, const void *result,
                  struct fa_verdict *ret_verdict);
    void (*text)(const struct fa_prover *prover, int index, char *ret_text, size_t size);
    void (*release)(struct fa_prover *prover); /* of what `prepare` allocated; NULL: nothing */
};

enum { FA_PROVER_KERNELS = 8 };

/* Device memory of a kernel between two fences. */
struct fa_fenced {
    fa_device_ptr all, at; /* the allocation, fences included; what kernels are passed */
    size_t bytes;          /* from `at` to the fence behind */
};

struct fa_prover {
    const struct fa_prover_type *type;
    fa_driver *driver;
    fa_stream stream;
    fa_event start, stop; /* of a proof's launch on case 0 */
    fa_module *module;
    fa_function kernel[FA_PROVER_KERNELS]; /* type->entry */
    uint32_t blocks_max;
    uint64_t seed;
    const struct fa_case_data *data; /* of the cases, where not all is drawn; or NULL */
    uint64_t proofs, refuted; /* proofs so far; the number of the last that a kernel failed */
    int count;
    bool damaged; /* a candidate wrote where it must not: inputs and references are suspect */
    struct fa_prover_case at[FA_BENCH_CASES];
    fa_device_ptr inputs, outputs; /* the two allocations; references are with the inputs */
    fa_device_ptr small_outputs, outputs_end; /* outputs of case 1 and on; their end */
    fa_device_ptr results;
    void *seen;                                /* results, on the host */
    size_t memory,
        flush_bytes; /* what may be used of the device, 0: half of what is free; that much of it is not ours */
    size_t room; /* what is left of it for workspace and counters */
    struct fa_fenced workspace, counters;
    int32_t splits; /* of the launch at hand */
};

/* `work` threads in blocks of `threads`, as many as keep the device busy; the kernel strides over the
 * rest. */
int fa_prover_run(struct fa_prover *prover, fa_function function, uint32_t threads, uint64_t work,
                  void **arguments, fa_diag *diag);
/* Fills all inputs, poisons nothing, computes all references. */
int fa_prover_prepare(struct fa_prover *prover, fa_diag *diag);
/* Of the results of all launches. */
size_t fa_prover_results_size(const struct fa_prover *prover);
size_t fa_prover_result_at(const struct fa_prover *prover, int round, int index);

/* A prover of the type without cases yet; then, when they are set, all of its memory. */
int fa_prover_new(const struct fa_prover_type *type, fa_driver *driver, const fa_bench_setup *setup,
                  struct fa_prover **ret_prover, fa_diag *diag);
int fa_prover_begin(struct fa_prover *prover, const fa_bench_setup *setup, fa_diag *diag);

#endif
