/* SPDX-License-Identifier: Apache-2.0
 *
 * A prover inside: the cases of one problem in device memory, how their tensors lie there, and what an operation adds.
 * prover.h is the way in.
 *
 * Invariants: outputs of all cases lie together, so that one fill poisons them, and apart from inputs
 * and references, which a proof never writes.
 *
 * May be used by: tuner/prover.c, tuner/ops. Thread-safety: one thread; the context must be current.
 */
#ifndef FA_TUNER_OPS_PROVER_BASE_H
#define FA_TUNER_OPS_PROVER_BASE_H

#include "bench.h"
#include "fa_check.h"
#include "prover.h"
#include "tensors.h"

enum {
    FA_PROVER_ROUNDS = 2,     /* launches of each case that is not `once` */
    FA_PROVER_ARGUMENTS = 28, /* of a kernel, without the workspace */
    FA_PROVER_FENCE = 65536,  /* bytes before and behind each output */
    FA_PROVER_REFERENCE_THREADS = 128,
    FA_PROVER_ROWS = 256, /* compared where the whole reference is too dear */
    FA_PROVER_BANDS = 4,
    FA_PROVER_KERNELS = 8
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

/* A tensor of a case. */
struct fa_proof_tensor {
    struct fa_check_tensor place;
    fa_device_ptr first;     /* its first element */
    uint64_t seed;           /* of drawn inputs */
    float scale;             /* of drawn inputs, as fa_check_values has it */
    bool on_host;            /* an input that the operation makes on the host */
    fa_device_ptr given;     /* of inputs that are not drawn: a copy of their elements; else 0 */
    unsigned char *host;     /* the same; of outputs the reference; NULL: not there yet */
    fa_device_ptr wanted;    /* of outputs: the reference */
    uint64_t count, columns; /* of outputs: elements that are compared, and those of one row */
    fa_tolerance tolerance[FA_PROVER_BANDS];
};

struct fa_proof_case {
    fa_problem problem;
    bool once;  /* launched once per proof rather than twice: it is large */
    bool empty; /* there is nothing to launch */
    fa_tensor_list tensors;
    struct fa_proof_tensor of[FA_TENSORS_MAX];
    fa_device_ptr largest; /* of each output's reference: the largest magnitude, fp32 */
    bool
        sampled; /* these rows of outputs are compared, else all. Each of their bands, equally many, has a tolerance of its
                     own */
    int64_t row[FA_PROVER_ROWS];
    fa_device_ptr rows; /* the same; 0: all */
    int bands;
    size_t room_bytes; /* what the operation needs on the device besides */
    fa_device_ptr room;
    fa_tensor_values values;
    _Alignas(8) unsigned char params
        [FA_PARAMS_MAX]; /* what kernels are passed, as the operation has it */
    void *argument[FA_PROVER_ARGUMENTS];
    int argument_count;
    /* where there is no reference: the proof whose kernel made what is wanted; 0: none has */
    uint64_t answered;
    struct fa_verdict verdict[FA_PROVER_ROUNDS];
};

/* What an operation adds to the proofs of its kernels. */
struct fa_proof_type {
    size_t
        own_bytes; /* of fa_prover.own for each case: what the operation keeps, made by take_cases */
    /* The cases of fa_op.cases: fa_prover.count and .at, with their tensors, and how these lie. */
    int (*take_cases)(fa_prover *prover, const fa_problem *problem, fa_diag *diag);
    /* What kernels are passed, now that addresses are known. */
    int (*place)(fa_prover *prover, int index, fa_diag *diag);
    /* The elements of an input that is `on_host`. */
    int (*make_input)(const fa_prover *prover, int index, int tensor, void *elements,
                      fa_diag *diag);
    /* Computes the outputs' references on the device, and tolerances that depend on them. */
    int (*refer)(fa_prover *prover, int index, fa_diag *diag);
    /* What a kernel needs besides (NULL: nothing), in one block for free(). FA_ECORRUPT: the entry
     * does not take what it would be passed. */
    int (*load)(fa_prover *prover, fa_module *module, const fa_cubin_entry *entry, void **ret_extra,
                fa_diag *diag);
    /* Before each launch: variables of the kernel's module; NULL: nothing. `extra` is of `load`. */
    int (*restore)(fa_prover *prover, int index, const void *extra, fa_diag *diag);
    /* What a kernel is passed for a case, in order; NULL: no more. */
    void (*arguments)(fa_prover *prover, int index, void *extra,
                      void *ret_argument[FA_PROVER_ARGUMENTS]);
    void (*text)(const fa_prover *prover, int index, char *ret_text, size_t size);
};

/* Device memory of a kernel between two fences. */
struct fa_fenced {
    fa_device_ptr all, at; /* the allocation, fences included; what kernels are passed */
    size_t bytes;          /* from `at` to the fence behind */
};

struct fa_prover {
    const struct fa_proof_type *type;
    fa_driver *driver;
    fa_stream stream;
    fa_event start, stop; /* of a proof's launch on case 0 */
    fa_module *module;
    fa_function kernel[FA_PROVER_KERNELS]; /* of fa_check.cuh */
    uint32_t blocks_max;
    uint64_t seed;
    const struct fa_case_data *data; /* of the cases, where not all is drawn; or NULL */
    uint64_t proofs, refuted; /* proofs so far; the number of the last that a kernel failed */
    int count;
    bool damaged; /* a candidate wrote where it must not: inputs and references are suspect */
    struct fa_proof_case at[FA_BENCH_CASES];
    void *own;                     /* of the operation: `count` times type->own_bytes */
    fa_device_ptr inputs, outputs; /* the two allocations; references are with the inputs */
    fa_device_ptr small_outputs, outputs_end; /* outputs of case 1 and on; their end */
    fa_device_ptr result;                     /* of one check: 64 bits of each tensor */
    unsigned char
        *host; /* room for a tensor that the host looks at: fresh pages cost more than its copy */
    size_t host_bytes;
    size_t memory,
        flush_bytes; /* what may be used of the device, 0: half of what is free; that much of it is not ours */
    size_t room; /* what is left of it for workspace and counters */
    struct fa_fenced workspace, counters;
    int32_t splits; /* of the launch at hand */
};

/* ---- prover_cases.c --------------------------------------------------------------------------*/
/* Lays a tensor with these extents and strides, of which the last extent varies fastest in the order of elements, behind a
 * fence and `offset` elements. Strides nest, the last is 1, inputs' may be 0 (shared). False: it passes 2^60 elements. */
bool fa_proof_lay(const fa_tensor *tensor, const uint64_t extent[4], const uint64_t stride[4],
                  uint64_t offset, struct fa_proof_tensor *of);
/* Its elements behind one another. */
bool fa_proof_pack(const fa_tensor *tensor, struct fa_proof_tensor *of);
/* References of the struct's kind compute in fp32; a kernel that is passed its arguments one by one, as it does. */
fa_element fa_proof_wanted_element(const struct fa_proof_case *c, int tensor);
/* As fa_check.cuh knows it. */
int fa_proof_device_element(fa_element element);
/* Where the file has the input, or the answer, of a case's tensor; -1: nowhere. */
int64_t fa_proof_input_at(const fa_prover *prover, int index, int tensor);
int64_t fa_proof_answer_at(const fa_prover *prover, int index, int tensor);

/* What an input is filled with, or was; `given`: also where that is a copy on the device. */
struct fa_check_values fa_proof_values(const struct fa_proof_case *c, int tensor, bool given);

/* `work` threads in blocks of `threads`, as many as keep the device busy; the kernel strides over the
 * rest. */
int fa_prover_run(fa_prover *prover, fa_function function, uint32_t threads, uint64_t work,
                  void **arguments, fa_diag *diag);
/* Looks up an entry of the reference's module, and runs it so. */
int fa_prover_run_entry(fa_prover *prover, const char *entry, uint64_t work, void **arguments,
                        fa_diag *diag);
/* Room on the host for a tensor's elements, or an output's reference: fa_proof_tensor.host. */
int fa_proof_host(struct fa_proof_case *c, int tensor, size_t *ret_bytes, fa_diag *diag);
/* Finds the largest magnitude of an output's reference. */
int fa_proof_largest(fa_prover *prover, int index, int tensor, fa_diag *diag);
/* The same, and copies the reference to the host. */
int fa_proof_fetch(fa_prover *prover, int index, int tensor, fa_diag *diag);
/* Makes outputs, or their references, what a launch begins with: inputs' values of `updated` ones, zeros of `partial` ones. */
int fa_proof_start_outputs(fa_prover *prover, int index, bool references, fa_diag *diag);
/* The memory of all cases, and what kernels are passed; then fills inputs and computes references. */
int fa_prover_allocate(fa_prover *prover, fa_diag *diag);
int fa_prover_prepare(fa_prover *prover, fa_diag *diag);
void fa_proof_release(fa_prover *prover); /* of what is on the host */

/* ---- ../prover.c -----------------------------------------------------------------------------*/
/* A prover of the type without cases yet; then, when they are set, all of its memory. */
int fa_prover_new(const struct fa_proof_type *type, fa_driver *driver, const fa_bench_setup *setup,
                  fa_prover **ret_prover, fa_diag *diag);
int fa_prover_begin(fa_prover *prover, const fa_bench_setup *setup, fa_diag *diag);

/* ---- prover_check.c --------------------------------------------------------------------------*/
/* The tuning program's answer, or nobody's: kernels are compared with one another. */
bool fa_proof_is_answered(const fa_prover *prover, int index);
bool fa_proof_has_no_answer(const fa_prover *prover, int index);
/* Looks at a case's outputs and inputs after a launch: its verdict. */
int fa_proof_check(fa_prover *prover, int round, int index, fa_diag *diag);

#endif
