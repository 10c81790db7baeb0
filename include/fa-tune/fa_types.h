/* SPDX-License-Identifier: Apache-2.0
 *
 * The plain types that every floor and every caller speaks: errors, problem, GPU, config, trial
 * outcome and origin. Public: installed beside fa_tune.h, compiles alone as C11 and as C++.
 *
 * Nothing here allocates. Integer values of enums are ABI and are also what the store keeps by
 * name, so names and values only ever grow.
 */
#ifndef FA_TYPES_H
#define FA_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- errors ---------------------------------------------------------------------------------
 * Functions return 0 or one of these; the sentence for a person is in fa_diag. */
#define FA_ENUM(name, value, text) name = (value),
#define FA_ERRORS(X)                                                             \
    X(FA_EINVAL, -1, "invalid argument")                                         \
    X(FA_ENOMEM, -2, "out of memory")                                            \
    X(FA_EIO, -3, "input/output error")                                          \
    X(FA_ENOTSUP, -4, "not supported")                                           \
    X(FA_ENOTFOUND, -5, "not found")                                             \
    X(FA_ENODRIVER, -6, "no usable CUDA driver")                                 \
    X(FA_ENODEVICE, -7, "no CUDA device")                                        \
    X(FA_ENONVRTC, -8, "no usable NVRTC")                                        \
    X(FA_ECUDA, -9, "CUDA driver call failed")                                   \
    X(FA_ECOMPILE, -10, "kernel does not compile")                               \
    X(FA_EMANIFEST, -11, "manifest is not valid")                                \
    X(FA_ESTORE, -12, "store is not usable")                                     \
    X(FA_ECORRUPT, -13, "data is corrupt")                                       \
    X(FA_EVERSION, -14, "made by another version")                               \
    X(FA_EREADONLY, -15, "store is read-only")                                   \
    X(FA_EFULL, -16, "disk is full")                                             \
    X(FA_EBUSY, -17, "in use by another process")                                \
    X(FA_ETIMEOUT, -18, "timed out")                                             \
    X(FA_ECANCELED, -19, "canceled")                                             \
    X(FA_EWORKER, -20, "worker process failed")                                  \
    X(FA_ENOKERNEL, -21, "no kernel survived")                                   \
    X(FA_EALIGN, -22, "pointers or strides are not aligned as the kernel needs") \
    X(FA_EFORKED, -23, "used in a forked child")                                 \
    X(FA_EUNTRUSTED, -24, "not signed by a key that is trusted")

enum fa_error { FA_OK = 0, FA_ERRORS(FA_ENUM) };

/* What failed, on what, and what to do: one or two sentences, UTF-8, control bytes escaped.
 * May be passed as NULL everywhere. */
typedef struct fa_diag {
    char text[1024];
} fa_diag;

/* ---- problem --------------------------------------------------------------------------------*/
typedef enum fa_dtype { FA_FP16 = 0, FA_BF16 = 1 } fa_dtype;

/* Where the causal diagonal is anchored when seq_q != seq_k. BOTTOM_RIGHT is FlashAttention's and
 * FlashInfer's (query i sees keys j <= i + seq_k - seq_q); TOP_LEFT is PyTorch SDPA's (j <= i). */
typedef enum fa_causal {
    FA_CAUSAL_NONE = 0,
    FA_CAUSAL_BOTTOM_RIGHT = 1,
    FA_CAUSAL_TOP_LEFT = 2
} fa_causal;

/* Layout used while measuring; a tuned kernel takes any strides. */
typedef enum fa_layout { FA_BHSD = 0, FA_BSHD = 1 } fa_layout;

/* Who says how many keys each sequence has; on the device, where seq_k is the most that any has. */
typedef enum fa_lengths {
    FA_LENGTHS_FIXED = 0,      /* seq_k */
    FA_LENGTHS_CU_SEQLENS = 1, /* cu_seqlens_k[b + 1] - cu_seqlens_k[b] */
    FA_LENGTHS_SEQUSED = 2     /* seqused_k[b] */
} fa_lengths;

/* K and V in memory: of the type of Q, or e4m3 with scales; or rows of 656 bytes (docs/serving.md). */
typedef enum fa_kv_dtype { FA_KV_SAME = 0, FA_KV_FP8 = 1, FA_KV_FP8_DS_MLA = 2 } fa_kv_dtype;

enum { FA_PROBLEM_VALUES = 32 };

/* What can be computed: a table of the fields of its problems, known for as long as the process runs. */
typedef struct fa_operation fa_operation;

/* One problem of an operation: a value for each field of its table, in the table's order; values beyond
 * are 0. The size is fixed for good. One that is all zeroes but for the fields below is attention
 * forward, O = softmax(scale * Q K^T + mask) V. */
typedef struct fa_problem {
    const fa_operation *operation; /* NULL: attention forward */
    __extension__ union {
        int32_t value[FA_PROBLEM_VALUES];
        __extension__ struct { /* attention forward's fields */
            fa_dtype dtype;
            fa_causal causal;
            fa_layout layout;
            int32_t head_dim;  /* multiple of 8, 8..576 */
            int32_t batch;     /* 0..2^31-1 */
            int32_t heads_q;   /* 1..65535, a multiple of heads_kv */
            int32_t heads_kv;  /* 1..65535 */
            int32_t seq_q;     /* 0..2^31-1 */
            int32_t seq_k;     /* 0..2^31-1 */
            int32_t want_lse;  /* 0 or 1: measure with the LSE output written */
            int32_t unaligned; /* 0 or 1: pointers or strides are no multiples of 16 bytes */
            /* What serving engines ask for beyond dense tensors (docs/serving.md); all 0: dense. */
            int32_t varlen;          /* 0 or 1: queries lie behind one another, by cu_seqlens_q */
            fa_lengths lengths_k;
            int32_t page;            /* keys in a page of the cache; 0: not paged */
            int32_t window;          /* 0 or 1: what follows limits the keys that a query sees */
            int32_t window_left, window_right; /* keys beside the diagonal; -1: no limit */
            int32_t softcap;         /* 0 or 1 */
            int32_t sinks;           /* 0 or 1 */
            fa_kv_dtype kv_dtype;
            int32_t batch_invariant; /* 0 or 1: a sequence gives the same bits in any batch */
            int32_t mean_q, mean_k;  /* mean lengths, for tuning; 0: as long as the longest */
            int32_t head_dim_v;      /* 0: as head_dim; at most 512 */
            int32_t v_in_k; /* 0 or 1: values are the first head_dim_v columns of the keys */
            int32_t score, mask; /* texts, set by fa_set_field(): docs/scores.md; 0: none */
            fa_kv_dtype q_dtype; /* fp8 beside such keys: k_scale is the product of both */
            int32_t buffers;     /* a text as score is: what the two read besides */
            int32_t unused[FA_PROBLEM_VALUES - 29]; /* 0, of later versions' fields */
        };
    };
} fa_problem;

/* ---- GPU ------------------------------------------------------------------------------------*/
typedef struct fa_gpu {
    char name[64];           /* "L4", "NVIDIA H200": a label, never a key */
    int32_t sm;              /* compute capability x 10: 89 */
    int32_t sm_count;
    int32_t smem_per_block;  /* bytes, with opt-in */
    int32_t smem_per_sm;     /* bytes */
    int32_t smem_reserved;   /* bytes each resident block costs on top */
    int32_t regs_per_sm;     /* 32-bit registers */
    int32_t threads_per_sm;
    int32_t blocks_per_sm;
    int64_t l2_bytes;
    int32_t memory_bus_bits;
    int32_t clock_mhz;       /* boost (catalogue) or maximum (device) SM clock */
    double bandwidth_gbs;    /* device memory, GB/s */
    double tensor_tflops;    /* dense fp16 -> fp32 accumulate, at clock_mhz */
    bool present;            /* queried from a device of this machine */
    int32_t ordinal;         /* CUDA ordinal where present, else -1 */
    char uuid[40];           /* where present */
} fa_gpu;

/* ---- config ---------------------------------------------------------------------------------*/
enum { FA_MAX_TUNABLES = 16, FA_NAME_MAX = 32 };

typedef struct fa_tunable {
    char name[FA_NAME_MAX];
    /* an integer from 0 on; negative: another number or a text, which fa_name_of_value() tells */
    int32_t value;
} fa_tunable;

/* One assignment of a family's tunables, by name. */
typedef struct fa_config {
    char family[FA_NAME_MAX];
    int32_t count;
    fa_tunable tunable[FA_MAX_TUNABLES];
} fa_config;

/* ---- where a config ended -------------------------------------------------------------------*/
#define FA_STATUSES(X)                                                                    \
    X(FA_STATUS_PENDING, 0, "pending")       /* not tried yet */                          \
    X(FA_STATUS_CONSTRAINT, 1, "constraint") /* impossible */                             \
    X(FA_STATUS_BUDGET, 2, "budget")         /* does not fit the shared memory */         \
    X(FA_STATUS_REGISTERS, 3, "registers")   /* hopeless by the register estimate */      \
    X(FA_STATUS_COMPILE_FAILED, 4, "compile-failed")                                      \
    X(FA_STATUS_COMPILE_TIMEOUT, 5, "compile-timeout")                                    \
    X(FA_STATUS_SPILLS, 6, "spills")     /* cubin uses local memory */                    \
    X(FA_STATUS_CUBIN, 7, "cubin")       /* cubin contradicts its budget */               \
    X(FA_STATUS_COMPILED, 8, "compiled") /* clean cubin; not measured (no GPU) */         \
    X(FA_STATUS_LOAD_FAILED, 9, "load-failed")                                            \
    X(FA_STATUS_LAUNCH_FAILED, 10, "launch-failed")                                       \
    X(FA_STATUS_WRONG, 11, "wrong")     /* failed its proof */                            \
    X(FA_STATUS_CRASHED, 12, "crashed") /* took its worker down */                        \
    X(FA_STATUS_TIMEOUT, 13, "timeout")                                                   \
    X(FA_STATUS_OUT_OF_MEMORY, 14, "out-of-memory")                                       \
    X(FA_STATUS_MEASURED, 15, "measured")         /* proved and timed */                  \
    X(FA_STATUS_DOES_NOT_PAY, 16, "does-not-pay") /* possible; its family knows better */ \
    X(FA_STATUS_OTHER_BITS, 17, "other-bits")     /* right, but not as fa_request.same_bits asks */

typedef enum fa_status { FA_STATUSES(FA_ENUM) } fa_status;

/* How we know that a winner is good. Values are in the order in which they came to be; the order of
 * trust is MEASURED, MEASURED_SAME_SILICON, IMPORTED, NEAREST, TRANSFERRED, PREDICTED, UNRANKED. NEAREST is
 * measured, but on another length than the one asked for. TRANSFERRED, another GPU's winner, is read and not made any more. UNRANKED is a default config that compiled, of an
 * operation without a cost model: nothing is known of its speed. */
#define FA_ORIGINS(X)                                              \
    X(FA_ORIGIN_MEASURED, 0, "measured")                           \
    X(FA_ORIGIN_MEASURED_SAME_SILICON, 1, "measured-same-silicon") \
    X(FA_ORIGIN_IMPORTED, 2, "imported")                           \
    X(FA_ORIGIN_TRANSFERRED, 3, "transferred")                     \
    X(FA_ORIGIN_PREDICTED, 4, "predicted")                         \
    X(FA_ORIGIN_NEAREST, 5, "nearest")                             \
    X(FA_ORIGIN_UNRANKED, 6, "unranked")

typedef enum fa_origin { FA_ORIGINS(FA_ENUM) } fa_origin;

/* How much a request may spend; fa_tune.h says how each answers. */
typedef enum fa_effort {
    FA_EFFORT_CACHED = 0,  /* stored winners only; FA_ENOTFOUND otherwise */
    FA_EFFORT_PREDICT = 1, /* else what is predicted, proved where the GPU is, untimed */
    FA_EFFORT_MEASURE = 2, /* else measure: what is ready, or what of the space may win, once */
    FA_EFFORT_PATIENT =
        3 /* the whole space with more repeats, even when a winner is stored; for an absent
                              GPU, compile it, where MEASURE compiles the model's first ten */
} fa_effort;

/* One config's way through the funnel. Negative or zero fields: not known (not got there). */
typedef struct fa_trial {
    fa_config config;
    fa_status status;
    char reason[512]; /* why it ended so; when measured, whose code it has, that it spills, or "" */
    int32_t threads;
    int32_t smem_bytes;      /* dynamic shared memory of one block; of several launches, the most */
    int32_t registers;       /* per thread, from the cubin */
    int32_t spill_bytes;     /* stack bytes per thread, from the cubin */
    int32_t blocks_per_sm;   /* occupancy limit */
    uint32_t grid[3];
    double compile_ms;
    double predicted_us;     /* the model's estimate */
    double median_us;        /* measured; 0 when not */
    double low_us, high_us;  /* 95% confidence interval of the median */
    int32_t sample_count;
    double max_error;        /* largest |o - reference| of the proof */
    double tolerance;        /* what it was held to */
    bool raced;   /* timed in the final race: only the times of one race compare finely */
    bool spilled; /* it spills, and competes as no config without spills came through */
    /* Shared memory that the kernel declares itself, beside smem_bytes, from the cubin; of several launches, the most. */
    int32_t static_smem_bytes;
} fa_trial;

/* ---- baselines ------------------------------------------------------------------------------*/
/* What somebody else's kernel takes for a problem on a GPU type, as somebody measured it. */
typedef struct fa_baseline {
    fa_problem problem;
    char gpu_name[64];     /* the catalogue's name where it knows the GPU ("H200") */
    char peer[32];         /* "pytorch-cudnn", "pytorch-fa2", "fa3": letters, digits, . _ + - */
    double median_us;
    double low_us, high_us; /* its 95% confidence interval; both 0: not known */
    int32_t sample_count;   /* 0: not known */
    int64_t unix_time;      /* when it was measured or, if nobody said, imported */
    char source[128];       /* what made it ("PyTorch 2.11, CUDA 13.0"); may be empty */
    double matmul_tflops;   /* what a large matrix product of that type reached on the card; 0: not taken */
} fa_baseline;

/* ---- values of other tuners -------------------------------------------------------------------*/
/* What another tuner keeps in the store: its winner, or a kernel that it compiled. All texts are as they were given. */
typedef struct fa_kept {
    const char *key;   /* what it is found by: 1 to 64 letters, digits, '-' and '_' */
    const char *tuner; /* "triton" */
    const char *name;  /* of the kernel, for people */
    const char *gpu;   /* that it is for: a name, or the architecture of a compiled kernel */
    const char *made;  /* JSON: what it was made with */
    int64_t unix_time; /* set by the library, as the size of a list is */
    int64_t size;      /* of the bytes, at most 64 MB */
    const void *bytes; /* NULL in a list of all */
} fa_kept;

/* ---- trials on record -----------------------------------------------------------------------*/
/* One config that was tried, or of a study's space. */
typedef struct fa_study_trial {
    int32_t rank; /* from 1 for configs that finished (measured, else compiled); else 0 */
    fa_trial trial;
    bool tried;              /* on record; false: what the budget says of it today, and nothing
                                below but is_default is set */
    bool is_default;         /* the family's default config; known where the space is */
    char cubin_key[65];      /* "": it has no cubin */
    const float *samples_us; /* all raw samples */
    int32_t sample_count;
    const char *environment; /* JSON: gpu, uuid, driver, nvrtc, library, host; or NULL */
    const char *clocks;      /* JSON: sm_mhz, memory_mhz, temperature_c, throttle; or NULL */
    uint64_t seed;           /* of the inputs */
    int64_t unix_time;
} fa_study_trial;

/* ---- what is forgotten ----------------------------------------------------------------------*/
typedef struct fa_forgotten {
    int64_t winners, trials; /* trials: configs on record */
    int64_t cubins;          /* that nothing in the store refers to any more */
    int64_t bytes;           /* of those cubins, samples, logs and evidence */
} fa_forgotten;

/* ---- sweeps ---------------------------------------------------------------------------------*/
#define FA_SWEEP_STATES(X)                                                   \
    X(FA_SWEEP_RUNNING, 0, "running")                                        \
    X(FA_SWEEP_DONE, 1, "done") /* every item ended, some may have failed */ \
    X(FA_SWEEP_BUDGET_SPENT, 2, "budget-spent")                              \
    X(FA_SWEEP_STOPPED, 3, "stopped") /* asked to, or its process ended */

#define FA_ITEM_STATES(X)            \
    X(FA_ITEM_PENDING, 0, "pending") \
    X(FA_ITEM_RUNNING, 1, "running") \
    X(FA_ITEM_DONE, 2, "done")       \
    X(FA_ITEM_FAILED, 3, "failed")

typedef enum fa_sweep_state { FA_SWEEP_STATES(FA_ENUM) } fa_sweep_state;
typedef enum fa_item_state { FA_ITEM_STATES(FA_ENUM) } fa_item_state;
#undef FA_ENUM

/* What a sweep may spend in all of its runs together; 0: as much as it takes. */
typedef struct fa_sweep_budget {
    double seconds;
    int64_t trials;
} fa_sweep_budget;

/* What has been spent. A trial is a config that came to an end; a cubin is reused when it was in the
 * store already, of another problem that renders the same source or of an earlier run. */
typedef struct fa_sweep_spent {
    double seconds;
    int64_t trials, compiled, reused;
} fa_sweep_spent;

/* A grid of problems as one job. */
typedef struct fa_sweep {
    char key[65];    /* of its items and of how they are tuned */
    char plan[512];  /* as a person asked for it */
    fa_sweep_state state;
    fa_sweep_budget budget;
    fa_sweep_spent spent;
    int32_t items, done, failed; /* of the items, how many */
    int32_t running;             /* somebody took them, and lives or does not */
    int32_t compiled;            /* of those not yet ended: their cubins are in the store */
    int64_t created, updated;    /* Unix time */
} fa_sweep;

/* What is done with an item. Compiling first is never needed: who has the GPU compiles what is missing and measures. */
typedef enum fa_work_stage {
    FA_WORK_COMPILE = 0, /* without the GPU: its space is compiled */
    FA_WORK_MEASURE = 1
} fa_work_stage;

/* One problem on one GPU type. */
typedef struct fa_sweep_item {
    fa_problem problem;
    char gpu[64];        /* name of a GPU type; "": the device here */
    fa_item_state state; /* from here on the library's */
    int32_t attempts;
    fa_sweep_spent spent;
    char reason[512];    /* why it failed */
    fa_work_stage stage; /* of the latest attempt */
    char holder[96];     /* who took it: host:process */
    int32_t index;       /* of the sweep's items, from 0 */
} fa_sweep_item;

/* ---- arguments of fa_launch -------------------------------------------------------------------*/
/* What a score or mask of a problem reads: a tensor on the device, of `dims` dimensions, or (dims -1) a number. Strides are
 * in elements and may be 0; an index outside of a tensor is that of its nearest element. */
typedef struct fa_attn_buffer {
    const void *at;
    int32_t dims;
    int64_t size[4], stride[4];
    double number;
} fa_attn_buffer;

/* Strides in elements, of the batch, head and row (sequence) dimensions; the last stride is 1.
 * A tensor whose three strides are all 0 is contiguous in the problem's layout. Strides are less than 2^48, either way. */
typedef struct fa_attn_args {
    size_t size; /* sizeof(fa_attn_args) */
    const void *q, *k, *v; /* on the device; with problem.v_in_k v is k, strides too */
    void *o;
    float *lse; /* [batch, heads_q, seq_q], of varlen [heads_q, total_q]; natural log; or NULL */
    int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3];
    float softmax_scale; /* positive; 0: 1/sqrt(head_dim) */
    /* What problems beyond dense tensors take besides; otherwise it is not read. All of it lies in
     * device memory and is read when the kernel runs, but for numbers. docs/serving.md has the contract. */
    const int32_t *cu_seqlens_q; /* [batch + 1]; varlen. q, o: [total_q, heads_q, head_dim] */
    const int32_t *cu_seqlens_k; /* [batch + 1]; CU_SEQLENS. k, v without pages as q is */
    const int32_t *seqused_k;    /* [batch]; FA_LENGTHS_SEQUSED */
    const int32_t *block_table;  /* [batch, block_table_stride]; k, v: [num_pages, page, heads_kv, dim] */
    const float *sinks; /* [heads_q], natural log; problem.sinks */
    const float *k_scale, *v_scale; /* FA_KV_FP8: a value is the stored number times its scale */
    int64_t block_table_stride;     /* in entries, as many as seq_k needs of FIXED; 0: that many */
    int64_t k_scale_stride[2], v_scale_stride[2]; /* of batch and head; both 0: one scale */
    int32_t num_pages;        /* of the pool: entries of block_table beyond are never followed */
    int32_t total_q, total_k; /* rows of q, and of k where cu_seqlens_k tells its lengths */
    float softcap;            /* problem.softcap: positive */
    void *workspace; /* fa_kernel_workspace bytes, 256-byte aligned; NULL: the library's own */
    size_t workspace_bytes;
    const fa_attn_buffer *buffers; /* problem.buffers: as many, in its order */
    int32_t buffer_count;
} fa_attn_args;

/* ---- arguments of fa_launch_args -------------------------------------------------------------*/
enum { FA_ARGUMENT_DIMS = 6 };

/* An argument that a caller passes: the tensors of the operation in the order of operation.json, then the scalars; of a
 * kernel specification in the order of the kernel. */
typedef struct fa_argument {
    size_t size;       /* sizeof(fa_argument), set by the caller */
    const char *name;  /* both texts live as long as the process */
    const char *dtype; /* "fp16", "bf16", "fp32", "fp64", "fp8_e4m3", "fp8_e5m2", "int8" to "int64", "uint8" to
                          "uint64", "bool", "complex64", "complex128"; fp8 and complex ones of tensors alone */
    bool tensor;       /* else a scalar */
    bool output;       /* written, whatever it holds before */
    bool updated;      /* an output that is read too, or written in part: what it holds before counts */
    bool needed;       /* else its address may be NULL in this problem */
    bool strided; /* all its strides but the last, which is 1, may be any; else it is contiguous */
    int32_t dims;
    int64_t shape[FA_ARGUMENT_DIMS];
} fa_argument;

/* An argument in a case of a proof: what it is, and on the host its elements, packed, or a scalar's value. Only what
 * an fa_case_function marks counts. */
typedef struct fa_case_argument {
    fa_argument is;
    void *input;   /* an input as drawn, or a scalar's value; else NULL */
    void *answer;  /* room for what is right of an output; else NULL */
    size_t bytes;  /* of each */
    bool given;    /* set by the function: the input was written over */
    bool answered; /* set by it: the answer is there */
} fa_case_argument;
/* Scratch has no bytes. The problem itself has the index 0; other cases are small and ragged. Non-zero ends the tune with that code. */
typedef int fa_case_function(void *context, const fa_problem *problem, int32_t index,
                             fa_case_argument *argument, int32_t count);

/* A tensor that is passed. Strides in elements, of all dimensions but the last; all 0: it is contiguous. They are read
 * of strided tensors alone. */
typedef struct fa_tensor_arg {
    void *data;
    int64_t stride[3];
} fa_tensor_arg;

typedef struct fa_args {
    size_t size;   /* sizeof(fa_args) */
    int32_t count; /* of the arguments */
    /* at[i]: argument i's fa_tensor_arg, its number in its dtype, or, of "a buffer" that is no output, its fa_attn_buffer; or NULL */
    const void *const *at;
    void *workspace; /* as in fa_attn_args */
    size_t workspace_bytes;
} fa_args;

#endif
