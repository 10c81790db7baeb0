/* SPDX-License-Identifier: Apache-2.0
 *
 * A bench inside: the cases of one problem in device memory, how their tensors lie there, their reference, the proof of a
 * kernel on them, and what an operation adds. bench.h is the way in.
 *
 * Invariants: every output is poisoned before each launch of a proof; everything between and around the tensors is poisoned
 * too, so that reading there yields NaN and writing there is seen; a workspace is poisoned before the first launch of a case,
 * and before the second one it holds what the first left with some bytes changed, as memory does that an allocator hands out
 * again; after a write outside its outputs everything is made anew before the next proof. Outputs of all cases lie together,
 * so that one fill poisons them, and apart from inputs and references, which a proof never writes.
 *
 * Failures: the first call that fails is remembered (fa_bench.rc), nothing more is called after it, and the function of bench.h
 * answers it. Functions here that return nothing may fail so, and do nothing after a failure.
 *
 * May be used by: tuner. Thread-safety: one thread; the context must be current.
 */
#ifndef FA_TUNER_PROVER_H
#define FA_TUNER_PROVER_H

#include "bench.h"
#include "error.h"
#include "fa_check.h"
#include "tensors.h"

/* The kernels of fa_check.cuh. */
enum { FA_INPUT, FA_LARGEST, FA_OUTPUT, FA_AROUND, FA_BITS, FA_CHECK_KERNELS };

enum {
    FA_PROVER_ROUNDS = 2,     /* launches of each case that is not `once` */
    FA_PROVER_SLOW_US = 1000, /* a launch that takes longer */
    FA_PROVER_ARGUMENTS = 44, /* of a kernel, without the workspace */
    FA_PROVER_FENCE = 65536,  /* bytes before and behind each output */
    FA_PROVER_THREADS = 128,
    FA_PROVER_ROWS = 256, /* compared where the whole reference is too dear */
    FA_PROVER_BANDS = 4
};

/* A loaded kernel. Its launches run in order. */
struct fa_bench_kernel {
    fa_launches launches[FA_BENCH_CASES]; /* of each case */
    fa_function function[FA_LAUNCHES_MAX];
    size_t workspace_bytes; /* 0: none is passed */
    fa_module *module;
    size_t counters;  /* words, zero before and after the launches */
    void *shared;     /* what its launches share besides (fa_launcher.load), or NULL */
    bool proved;      /* it passed its last proof, and was right whenever it was timed since */
    double launch_us; /* fa_proof.launch_us of that proof */
};

/* What was seen of one launch. */
struct fa_verdict {
    bool passed;
    bool damaged; /* something was written outside the outputs */
    double error, tolerance;
    char reason[256]; /* empty when passed */
};

/* A tensor of a case. */
struct fa_proof_tensor {
    struct fa_check_tensor place;
    fa_device_ptr first;         /* its first element */
    uint64_t seed;               /* of drawn inputs */
    float scale;                 /* of drawn inputs, as fa_check_values has it */
    bool on_host, late;          /* an input of take_cases, in `host`; a reference not yet there */
    int64_t input_at, answer_at; /* where fa_case_data has its elements; -1: nowhere */
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
    /* Whose outputs are the right ones: the reference kernel's, the tuning program's, or those of the first kernel. */
    enum { FA_PROOF_REFERENCE, FA_PROOF_ANSWER, FA_PROOF_FIRST } by;
    fa_tensor_list tensors;
    struct fa_proof_tensor of[FA_TENSORS_MAX];
    fa_device_ptr largest; /* of each output's reference: the largest magnitude, fp32 */
    bool sampled; /* these rows of outputs are compared, in bands with a tolerance each; else all */
    int64_t row[FA_PROVER_ROWS];
    fa_device_ptr rows; /* the same; 0: all */
    fa_device_ptr outputs, outputs_end; /* all its outputs, between these two */
    int bands;
    size_t room_bytes; /* what the operation needs on the device besides */
    fa_device_ptr room;
    fa_launch_shape answer; /* of the kernel that is it; no threads: as many as there is work */
    fa_tensor_values values;
    unsigned char maps[4][FA_TENSOR_MAP_BYTES];
    /* what kernels are passed, as the operation has it */
    _Alignas(8) unsigned char params[FA_PARAMS_MAX];
    uint64_t answered; /* by the first kernel that did not fail: the number of its proof; 0: none yet */
    struct fa_verdict verdict[FA_PROVER_ROUNDS];
};

/* What an operation adds to the proofs of its kernels. */
struct fa_proof_type {
    /* The cases of fa_op.cases: fa_bench.count and .at, with their tensors, and how these lie. */
    void (*take_cases)(fa_bench *bench, const fa_problem *problem);
    /* What kernels are passed, now that addresses are known. */
    void (*place)(fa_bench *bench, int index);
    /* Computes the outputs' references on the device, and tolerances that depend on them. */
    void (*refer)(fa_bench *bench, int index);
    const struct fa_launcher *launcher; /* loads kernels as for callers: `shared` is what it made */
    /* Variables of the kernel's module: before each launch, and its results behind it; NULL: nothing. */
    void (*copy_variables)(fa_bench *bench, int index, const void *shared, bool results);
    /* What the kernel of a launch is passed for a case, in order, of which the count is returned. */
    int (*arguments)(fa_bench *bench, int index, int launch, void *shared,
                     void *ret_argument[FA_PROVER_ARGUMENTS]);
};

/* Device memory of a kernel between two fences. */
struct fa_fenced {
    fa_device_ptr all, at; /* the allocation, fences included; what kernels are passed */
    size_t bytes;          /* from `at` to the fence behind */
};

struct fa_bench {
    const struct fa_proof_type *type;
    fa_driver *driver;
    int rc;        /* of the first call that failed since a function of bench.h was called */
    fa_diag *diag; /* of that function */
    fa_stream stream;
    fa_event start[FA_BENCH_SAMPLES_MAX], stop[FA_BENCH_SAMPLES_MAX]; /* of timed launches */
    fa_module *module;
    fa_function check[FA_CHECK_KERNELS];
    uint32_t blocks_max;
    uint64_t seed, draws;            /* numbers drawn so far for races */
    const struct fa_case_data *data; /* of the cases, where not all is drawn; or NULL */
    uint64_t proofs; /* so far */
    int count;
    bool pauses;  /* what is timed together, as one of it is slow */
    bool damaged; /* a candidate wrote where it must not: inputs and references are suspect */
    struct fa_proof_case at[FA_BENCH_CASES];
    void *own;                     /* of the operation, for free() */
    fa_device_ptr inputs, outputs; /* the two allocations; references are with the inputs */
    fa_device_ptr result;          /* of one check: 64 bits of each tensor, or of each case */
    unsigned char *host; /* a tensor that is looked at there: fresh pages cost more than a copy */
    size_t host_bytes;
    fa_device_ptr flush; /* what evicts the tensors from L2 */
    size_t flush_bytes;
    size_t memory; /* what may be used of the device; 0: half of what is free */
    size_t room;   /* what is left of it for a kernel's workspace and counters */
    struct fa_fenced workspace, counters;
    const fa_launches *launches; /* at hand */
};

/* ---- ops/prover_cases.c ----------------------------------------------------------------------*/
/* The stream of a bench: waits for it; copies to the device and back; zeros. */
void fa_bench_synchronize(fa_bench *bench);
void fa_bench_upload(fa_bench *bench, fa_device_ptr to, const void *from, size_t size);
void fa_bench_download(fa_bench *bench, void *to, fa_device_ptr from, size_t size);
void fa_bench_zero(fa_bench *bench, fa_device_ptr at, size_t size);
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

/* What an input is filled with, or was; `given`: also where that is a copy on the device. */
struct fa_check_values fa_proof_values(const struct fa_proof_case *c, int tensor, bool given);

/* `work` threads, in as many blocks as keep the device busy; the kernel strides over the rest. */
void fa_bench_run(fa_bench *bench, fa_function function, uint64_t work, void **arguments);
/* Looks up an entry of the reference's module, and runs it so. */
void fa_bench_run_entry(fa_bench *bench, const char *entry, uint64_t work, void **arguments);
/* Room on the host for a tensor's elements, or an output's reference (fa_proof_tensor.host), and its bytes. */
size_t fa_proof_host(fa_bench *bench, int index, int tensor);
/* Finds the largest magnitude of an output's reference. */
void fa_proof_largest(fa_bench *bench, int index, int tensor);
/* The same, and copies the reference to the host. */
void fa_proof_fetch(fa_bench *bench, int index, int tensor);
/* Makes outputs, or their references, what a launch begins with: inputs' values of `updated` ones, zeros of `partial` ones. */
void fa_proof_start_outputs(fa_bench *bench, int index, bool references);
/* The memory of all cases, and what kernels are passed; then fills inputs and computes references. */
void fa_bench_allocate(fa_bench *bench);
void fa_bench_prepare(fa_bench *bench);
/* Device memory. FA_ENOMEM in place of another failure where the device has none. */
void fa_bench_reserve(fa_bench *bench, fa_device_ptr *at, size_t bytes);

/* ---- prover.c --------------------------------------------------------------------------------*/
/* Looks at what a kernel's entry takes, and makes what it is passed besides: fa_bench_kernel.shared, workspace and counters. */
void fa_prover_load(fa_bench *bench, fa_cubin_entry entry, fa_bench_kernel *kernel);
/* Of a case: restores what the kernel changes or reads from its module, before a launch; and launches. */
void fa_prover_restore(fa_bench *bench, const fa_bench_kernel *kernel, int index);
void fa_prover_launch(fa_bench *bench, const fa_bench_kernel *kernel, int index);
/* Results that the kernel left in variables of its module, to their outputs, before a check. */
void fa_prover_collect(fa_bench *bench, const fa_bench_kernel *kernel, int index);
/* Looks at a case's outputs and inputs after a launch: its verdict. */
void fa_proof_check(fa_bench *bench, int round, int index);
/* For timing: poisons outputs of case 0. */
void fa_prover_poison(fa_bench *bench);

#endif
