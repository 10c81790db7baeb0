/* SPDX-License-Identifier: Apache-2.0
 *
 * The session and what it does: opening, lookups and tunes, loading and launching kernels. Part of
 * fa_tune.h, whose head says what holds for every function (threads, errors, sizes).
 */
#ifndef FA_TUNER_H
#define FA_TUNER_H

#include "fa_types.h"

#ifdef __cplusplus
#define FA_API extern "C" __attribute__((visibility("default")))
#else
#define FA_API __attribute__((visibility("default")))
#endif

FA_API const char *fa_version(void);
FA_API const char *fa_strerror(int code);

/* ---- session --------------------------------------------------------------------------------*/
typedef struct fa_tuner fa_tuner;

/* Zero is the default of every field; set `size` to sizeof(fa_options). */
#define FA_MEMORY_MAX ((int64_t)1 << 53)
typedef struct fa_options {
    size_t size;
    const char *store;     /* file, or postgresql://… (fa_sweep.h); default: FA_TUNE_STORE,
                              else a file in the XDG cache directory */
    const char *templates; /* directory that overrides built-in templates; FA_TUNE_TEMPLATES */
    const char *worker;    /* fa-tune-worker's path; FA_TUNE_WORKER, else beside this library */
    int32_t compile_workers; /* default: one per core that this process may use */
    int32_t compile_timeout_ms; /* one compile; default 30,000 */
    int32_t trial_timeout_ms;   /* proving and timing one config; default 20,000 */
    uint64_t seed;         /* of inputs, below 2^53; default: fresh for every tune, stored */
    /* Receives notes ("store … was corrupt and set aside"), from the thread that makes the call. */
    void (*log)(void *context, const char *sentence);
    void *log_context;
    /* Compile workers give way to other processes: 1 to 19 as nice(1) counts, 19 to all of them. What a
     * compile waits for a CPU is not counted, up to nine times its timeout. 0: they do not. */
    int32_t compile_nice;
    /* A service that is asked before the local store and tuner: "unix:/path" or "http://host:port";
     * FA_TUNE_SERVER, but for a tuner with `templates` of its own. "": none, whatever the environment
     * says. fa_service.h says what it changes. */
    const char *server;
    /* For those who only read: no store's file is made. Where none is, an empty one that takes
     * nothing stands for it, and a note says so. */
    bool existing_store;
    /* Bytes of GPU memory that a tune's tensors and workspaces may take in all, at most FA_MEMORY_MAX; 0: half of what is free when
     * it begins. A tune that needs more is FA_ENOMEM and says how much. */
    int64_t memory;
    char same_bits[FA_NAME_MAX]; /* of kernels, and of requests that have none (fa_request) */
} fa_options;

/* Opens the store (read-only when it cannot be written). Cheap: no GPU, no NVRTC, no process. */
FA_API int fa_open(const fa_options *options, fa_tuner **ret_tuner, fa_diag *diag);
/* Unloads kernels, ends workers. NULL and pointer to NULL are allowed; sets *tuner to NULL. */
FA_API void fa_close(fa_tuner **tuner);

/* ---- answers --------------------------------------------------------------------------------*/
/* A winner and how we know. Plain data: copy it freely.
 *
 * The order of trust, in which a lookup goes: measured on this board; on another board of the same
 * silicon; imported for this silicon; predicted by the model; unranked, where there is none. What won on
 * another GPU is the first that a tune proves here. A problem is tuned on its bucket (fa_why()), so a measured answer for a length between buckets is
 * NEAREST with from_problem naming the bucket; its trial's grid is the asked problem's own, its measured times
 * are from_problem's, and a prediction is for the asked problem. */
typedef struct fa_answer {
    size_t size;            /* sizeof(fa_answer) */
    fa_problem problem;     /* that was asked for; in a list of winners the one that was tuned */
    fa_gpu gpu;             /* that the answer is for */
    fa_origin origin;
    fa_trial trial;         /* config, launch geometry, times */
    char entry[FA_NAME_MAX];
    char cubin_key[65];
    char nvrtc[256];        /* identity of the compiler that made it */
    int32_t driver_version; /* it was proved under; 0: not proved on a device */
    int64_t unix_time;
    double default_us;      /* the family's default config in the same run; 0: not measured */
    double tune_s;          /* how long that run took; 0: not known */
    /* The funnel that led here; all 0 when not recorded. */
    int32_t space, in_budget, compiled, clean, proved, measured, failed;
    /* configs within 0.5% of the least median whose intervals overlap, or that the model does not tell apart */
    int32_t ties;
    bool from_store;        /* found, not made by this call */
    fa_problem from_problem; /* that was tuned */
    char from_gpu[64];       /* of an unranked answer: the GPU on which its config won; "": none */
    char why[256];          /* how it was come by, a sentence */
    bool shortlist_only;    /* only a few configs were tried: PATIENT or `again` tries them all */
    bool from_system;          /* found in a system bundle */
    char strategy[16]; /* the space was searched, and in_budget configs of it were tried; "": all */
    bool undated;           /* unix_time is the day of its file of records: measured by then */
    int32_t contents;       /* fa_spec_cases() of the inputs of its times; 0: they were drawn */
    /* of the ties, those whose outputs differ in bits from the winner's; 0 too where the GPU was not there to tell */
    int32_t ties_differ;
    char same_bits[FA_NAME_MAX]; /* fa_request.same_bits, as it was asked for */
} fa_answer;

/* ---- kernels in the caller's context --------------------------------------------------------*/
typedef struct fa_kernel fa_kernel;

/* The best kernel for a problem, loaded in the calling thread's current CUDA context and ready to
 * launch. Kernels belong to the tuner and live until fa_close.
 *   CACHED   a stored winner, by the order of trust, that was proved on this silicon, or FA_ENOTFOUND
 *   PREDICT  else the first that passes its proof (in a worker) of what was predicted, else of what won on
 *            another GPU and the model's first choices; untimed
 *   MEASURE  else measures. Where a winner is predicted for the problem's bucket and its
 *            cubin is in the store (first contact), at most 8 ready cubins are raced, in well
 *            under a second of device time, and the answer says shortlist_only. Where nothing is ready,
 *            tunes: compiles, proves and times all that the model does not put far behind. Stores the winner either way
 *   PATIENT  tunes the whole space again with more repeats, even when a winner is stored
 * A winner that was proved under another driver version is proved once more, in a worker, before it
 * is launched under this one, with any effort; that takes what starting a CUDA context takes (0.3 s
 * or so), once. One that fails is dropped with a note and the next by the order of trust is taken.
 * One whose time (trial_timeout_ms) runs out stays and is passed over by this process. What says nothing about the kernel (no memory, a worker
 * that was killed) is an error of its own, and the next call tries again. Where another process
 * measures on the GPU meanwhile, CACHED waits at most 5 s for that proof, and from then on not at
 * all until the GPU is found free: FA_ENOTFOUND, and the next call looks again. Cubins stay as they
 * are when NVRTC is another.
 * Needs a current context (FA_ENODEVICE else). A hit in this process takes nanoseconds and no lock.
 * When another process tunes the same key, PREDICT, MEASURE and PATIENT wait for its result.
 * Kernels of attention forward are launched by fa_launch, those of all other operations by fa_launch_args. */
FA_API int fa_get_best_kernel(fa_tuner *tuner, const fa_problem *problem, fa_effort effort,
                              const fa_kernel **ret_kernel, fa_diag *diag);
/* Made by the first call for a kernel, and the kernel's from then on. NULL: out of memory for it. */
FA_API const fa_answer *fa_kernel_answer(const fa_kernel *kernel);

/* Enqueues the kernel on `stream` (a CUstream; NULL: the default stream) and returns at once.
 * FA_EALIGN: a pointer is not 16-byte aligned or a stride not a multiple of 8 elements and the
 * kernel was tuned for aligned ones, or it moves tiles with TMA, which does not take these strides:
 * ask with problem.unaligned = true; or a table, a length, a sink or a scale is not aligned to 4
 * bytes, which no kernel takes. FA_EINVAL: what the problem asks for is missing, or a stride is beyond
 * 2^48 elements or shorter than a row of the block table. What lies behind the pointers is not checked.
 * Nothing to compute (batch or seq_q is 0) is success. A kernel that uses TMA remembers the tensor maps
 * of its last few sets of pointers and strides, and encodes them again (about a microsecond) for
 * others, or while another thread is looking there.
 * Launches on any streams, from any threads and in any captured graphs may overlap. What a kernel
 * counts in, and a workspace that args->workspace does not give, is the library's memory for this
 * stream or captured graph alone: the first launch on a stream, or of a larger kernel, may allocate it.
 * It is kept until fa_close for at most 64 streams of a context, for each less than four times the
 * largest workspace that was used there: the first 16 streams keep theirs, and what a later stream had
 * serves other streams when its launches have ended (an event behind each launch says so), whether the
 * stream is destroyed or not; when all are in use, a further stream waits for one of them. A captured
 * graph's memory serves others when the graph is destroyed. Two executables that were instantiated from
 * one graph must not run at the same time, nor one graph that is a child of another twice: they write
 * the same outputs and count in the same memory, and later replays may be wrong as well. Captured twice
 * they may. Lengths in device memory must not change before the launch has ended: its blocks read them
 * each by itself, and launches after it on the stream may be wrong as well. */
FA_API int fa_launch(const fa_kernel *kernel, const fa_attn_args *args, void *stream,
                     fa_diag *diag);

/* ---- kernels of other operations ------------------------------------------------------------------*/
/* In the kernel's order, the fields of a struct one by one, without scratch. FA_ENOTFOUND past the last one; FA_ENOTSUP for
 * attention forward. */
FA_API int fa_kernel_argument(const fa_kernel *kernel, int32_t index, fa_argument *ret_argument);

/* As fa_launch, for a kernel of any operation but attention forward. FA_EINVAL: an argument is missing or too many, a
 * scalar is not finite, or a stride is beyond 2^48 elements. FA_EALIGN: an address or a stride is not a multiple of
 * 16 bytes (or of what operation.json says): ask for the kernel with the field `unaligned`, where the operation has
 * it. Sizes are the problem's; what lies behind the pointers is not checked. */
FA_API int fa_launch_args(const fa_kernel *kernel, const fa_args *args, void *stream,
                          fa_diag *diag);

/* Bytes of device memory that a launch uses between its blocks; 0: none. A caller may give them as
 * args->workspace: their content may be anything, nothing is kept there, and launches that may overlap need
 * one each. */
FA_API size_t fa_kernel_workspace(const fa_kernel *kernel);

/* ---- a launch by a caller that links no CUDA itself --------------------------------------------*/
/* Makes a context of the device current on the calling thread. A context of that device that is current
 * already stays; else the device's primary context becomes current, *ret_entered is true, and the caller
 * must call fa_leave_device() once on this thread. The primary context stays retained until the process
 * ends, because other libraries share it. Opens the driver on the first call. Any thread may call it. */
FA_API int fa_enter_device(fa_tuner *tuner, int32_t ordinal, bool *ret_entered, fa_diag *diag);
FA_API void fa_leave_device(fa_tuner *tuner);

/* The kernel that fa_get_best_kernel() would find loaded in this process. Reads, loads, tunes and
 * allocates nothing, so it is allowed while a stream is captured. Takes any effort except PATIENT.
 * FA_ENOTFOUND, with no sentence in diag: no such kernel is loaded. */
FA_API int fa_get_loaded_kernel(fa_tuner *tuner, const fa_problem *problem, fa_effort effort,
                                const fa_kernel **ret_kernel, fa_diag *diag);
/* A kernel for the problem whose cubin is loaded in the calling thread's current CUDA context already, so that nothing is
 * read, compiled, proved, tuned or loaded: the problem's own, or of the loaded ones the nearest in lengths and batch
 * that is right for the problem. Right means: proved on this silicon, its source depends on nothing in which the two
 * problems differ, and its config holds to its family's constraints for this problem, which gets a grid of its own.
 * For servers, once the kernels of some problems are loaded. Allocates a little host memory, the first time for each
 * problem; any thread may call it. FA_ENOTFOUND: no loaded kernel is right for it.
 * The process keeps that kernel for the problem: efforts CACHED and PREDICT of the functions above give it from then on,
 * also when the problem's own winner is stored meanwhile. Effort MEASURE of fa_get_best_kernel() replaces it. */
FA_API int fa_get_near_kernel(fa_tuner *tuner, const fa_problem *problem,
                              const fa_kernel **ret_kernel, fa_diag *diag);
/* The CUDA ordinal of the device that the kernel is loaded on. */
FA_API int32_t fa_kernel_device(const fa_kernel *kernel);

/* Whether work on the stream (a CUstream; NULL: the default stream) is captured into a graph now. */
FA_API int fa_stream_is_captured(fa_tuner *tuner, void *stream, bool *ret_captured, fa_diag *diag);
/* Waits until the stream has finished all its work. */
FA_API int fa_wait_for_stream(fa_tuner *tuner, void *stream, fa_diag *diag);

/* ---- tuning, with or without the GPU --------------------------------------------------------*/
typedef enum fa_event_kind {
    FA_EVENT_STAGE = 0,   /* a stage began: stage and counts are set */
    FA_EVENT_TRIAL = 1,   /* a config ended somewhere: trial is set */
    FA_EVENT_PROGRESS = 2 /* at least every 100 ms while something is under way */
} fa_event_kind;

typedef enum fa_stage {
    FA_STAGE_WAIT = 0,    /* another process tunes this key */
    FA_STAGE_TUNE = 1,    /* compiling, proving and timing overlap */
    FA_STAGE_FINAL = 2,   /* finalists are raced, compile workers idle */
    FA_STAGE_DONE = 3
} fa_stage;

typedef struct fa_progress {
    fa_event_kind kind;
    fa_stage stage;
    int32_t space, in_budget;               /* configs in all; to be compiled */
    int32_t compiled, clean, proved, measured, failed, resumed; /* so far */
    int32_t compile_workers;
    double elapsed_s;
    const fa_trial *trial;                  /* the config of a TRIAL event */
    const fa_trial *best;                   /* best so far (measured, else predicted), or NULL */
    int32_t reused;                         /* of those compiled: their cubins were in the store */
    double default_us;                      /* the default config's time; 0: not measured yet */
    /* Of those in the budget: measured, or without the GPU clean; failed; or pruned by their cubins. */
    int32_t ended;
} fa_progress;

typedef struct fa_request {
    size_t size; /* sizeof(fa_request) */
    fa_problem problem;
    const char *gpu;   /* catalogue name ("L4"), or NULL: the device `ordinal`. A name that is the
                          device present here is measured on it; any other is predicted. */
    int32_t ordinal;
    fa_effort effort;
    bool again;        /* tune although a winner is stored; trials on record are used */
    /* Called on this thread; a non-zero return cancels: FA_ECANCELED, and what was measured is
     * kept for the next run. */
    int (*progress)(void *context, const fa_progress *progress);
    void *context;
    bool exact;        /* these very lengths, not their bucket: tuned and stored as a key of their
                          own, which lookups prefer to the bucket's from then on */
    bool first_contact; /* MEASURE as fa_get_best_kernel does it: a race of what is ready is enough
                          where there is something ready. Otherwise MEASURE tunes the whole space */
    /* For fa_tune() alone; NULL: no ranking is wanted. Else set when it succeeds: the stored configs that finished, best
     * first, as fa_explain() ranks them; of a service none. */
    fa_study_trial **ret_ranking;
    size_t *ret_ranked;
    /* A space of more than 20,000 configs is searched; so is any other when these bound what may be spent, or name a
     * strategy; seconds alone make no search of effort PREDICT. What does not compile costs no evaluation, and what is
     * on record is counted as spent. */
    const char *strategy; /* exhaustive, random or surrogate; NULL: "auto" */
    /* configs that may be measured, or compiled where the GPU is not here: at most 20,000; 0: 500 where the space
     * is too large and no seconds are given, else no bound */
    int32_t evaluations;
    double seconds; /* after which no further config is compiled; 0: no bound */
    int64_t memory; /* in place of fa_options.memory; 0: that */
    /* "default": only configs compete whose outputs have the same bits as the default config's, of the family that is listed
     * last of those that serve the problem, in all cases of the proof, each of which is launched twice. These very lengths
     * are tuned, on the GPU itself; the winner answers such requests alone. "": all configs that are right */
    char same_bits[FA_NAME_MAX];
} fa_request;

/* The winner for a problem on a GPU type, from the store or tuned now. Without that GPU in this
 * machine everything up to the cubin happens for real and the answer's origin is PREDICTED: the configs are
 * compiled in the order of the model until ten are clean, or all with effort PATIENT or where there is no model. */
FA_API int fa_tune(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer,
                   fa_diag *diag);

typedef struct fa_found {
    size_t size;      /* sizeof(fa_found), set by the caller */
    fa_gpu gpu;       /* the request's GPU: the device itself where it is present */
    bool answered;    /* fa_tune() would answer at once, with `answer` */
    fa_answer answer;
} fa_found;

/* Looks up a winner without tuning, for a caller that schedules tunes itself. Starts no process. A request with `again` or
 * FA_EFFORT_PATIENT is never answered. Returns 0 also where nothing is found (answered is false), except for
 * FA_EFFORT_CACHED: FA_ENOTFOUND. */
FA_API int fa_find(fa_tuner *tuner, const fa_request *request, fa_found *ret_found, fa_diag *diag);

/* The answer's cubin: malloced bytes, caller frees. Checked against their hash. */
FA_API int fa_answer_cubin(fa_tuner *tuner, const fa_answer *answer, void **ret_bytes,
                           size_t *ret_size, fa_diag *diag);

typedef struct fa_explained {
    fa_gpu gpu;
    int64_t configs; /* how many the space has, which is not built where that is many */
    /* so many hold to the constraints, or are there in all where counting takes long; else all are tried, with the reasons
     * of those that do not */
    bool is_searched;
} fa_explained;
/* Every config of the request's space and where it ended, best first, then by gate; of a space that is searched, those
 * on record; nothing is compiled. Of an imported winner whose problem was not tuned here: what was measured beside it, as
 * far as it brought that. */
FA_API int fa_explain(fa_tuner *tuner, const fa_request *request, fa_study_trial **ret_configs,
                      size_t *ret_count, fa_explained *ret_space, fa_diag *diag);

/* ---- why ------------------------------------------------------------------------------------*/
typedef enum fa_step_kind {
    FA_STEP_EXACT = 0,    /* a winner stored for these very lengths, off the buckets */
    FA_STEP_BUCKET = 1,   /* the winner stored for the problem's bucket on this silicon */
    FA_STEP_PREDICTED = 4 /* the model's choice, stored for either */
} fa_step_kind;

/* One place that a lookup looks at. */
typedef struct fa_step {
    fa_step_kind kind;
    bool found;       /* something is there; else only kind, name and why are set */
    bool taken;       /* the answer of a lookup that may not tune; at most one is */
    char name[16];    /* of the kind: "exact", "bucket"… */
    char why[512];    /* why it was taken or passed over */
    fa_answer answer; /* what it would give */
} fa_step;

/* The steps of a lookup for this request, in the order of trust; several of one kind follow each
 * other. */
FA_API int fa_why(fa_tuner *tuner, const fa_request *request, fa_step **ret_steps,
                  size_t *ret_count, fa_gpu *ret_gpu, fa_diag *diag);

/* Proves one config of the request's space in a worker process, which then launches it `launches` times between
 * cuProfilerStart and cuProfilerStop, for a profiler that watches the processes that this one starts. rank: as fa_explain()
 * counts; 1: the winner. Compiles the config where its cubin is not stored; stores nothing. ret_trial, which may be NULL:
 * the config and its proof.
 * FA_ENOTFOUND: there is no such rank, or nothing was tuned; FA_ENODEVICE: the GPU is not here; FA_ENOKERNEL: the config
 * failed its proof. */
FA_API int fa_run_config(fa_tuner *tuner, const fa_request *request, int32_t rank, int32_t launches,
                         fa_trial *ret_trial, fa_diag *diag);

/* A kernel as it was compiled, and what is wrong with it. */
typedef struct fa_checked_kernel {
    size_t size;
    const char *entry;
    bool answer; /* it says what is right; otherwise it is of a family's default config */
    int32_t registers, spill_bytes;
    int32_t smem_bytes; /* of a block, static and dynamic */
    int32_t parameter_bytes;
    const char *fault; /* ""; or why it did not compile, or does not take what it is passed */
    const char *log;   /* the compiler's, of the source's first kernel; "" */
    const char *left_out; /* "main in line 7\n" for each part that the compiler does not see; "" */
} fa_checked_kernel;
/* Compiles the answer and the default config of each family that serves the problem, for a GPU that need not be here, and
 * compares them with what the operation says that kernels take. Nothing is looked up or stored. Returns 0
 * whatever is wrong with them. ret_gpu: NULL is allowed. */
FA_API int fa_check_kernels(fa_tuner *tuner, const fa_request *request,
                            fa_checked_kernel **ret_kernels, size_t *ret_count, fa_gpu *ret_gpu,
                            fa_diag *diag);

/* Stored winners, newest first; *ret_unread, which may be NULL: those of kernels of your own whose files were not read. */
FA_API int fa_list_winners(fa_tuner *tuner, fa_answer **ret_answers, size_t *ret_count,
                           size_t *ret_unread, fa_diag *diag);
/* What the last call read and wrote: the store's file, or its address without its password. */
FA_API const char *fa_store_location(const fa_tuner *tuner);

/* ---- GPUs -----------------------------------------------------------------------------------*/
/* The catalogue; returns FA_ENOTFOUND past its end. *ret_refused: why it cannot be used, or NULL. */
FA_API int fa_gpu_type(int32_t index, fa_gpu *ret_gpu, const char **ret_refused);
/* A GPU type of the catalogue, or with name NULL the device here. */
FA_API int fa_gpu_find(const char *name, int32_t ordinal, fa_gpu *ret_gpu, fa_diag *diag);

/* ---- doctor ---------------------------------------------------------------------------------*/
typedef enum fa_check_level { FA_CHECK_OK = 0, FA_CHECK_WARN = 1, FA_CHECK_FAIL = 2 } fa_check_level;
typedef struct fa_check {
    fa_check_level level;
    char name[32];     /* "driver", "nvrtc", "skew", "gpu", "limits", "store", "disk", "clocks"… */
    char text[512];    /* what was found */
    char advice[512];  /* what to do; "" when ok */
} fa_check;
/* Looks at driver, NVRTC, their versions and skew, GPU and limits, store, disk, clock state and
 * worker. Returns 0 whatever it found. */
FA_API int fa_doctor(const fa_options *options, fa_check **ret_checks, size_t *ret_count,
                     fa_diag *diag);

/* Names as the command line and JSON use them; parse returns FA_ENOTFOUND for an unknown one. */
FA_API const char *fa_name_of_origin(fa_origin origin);
/* A tunable's value as people read it ("64", "0.5", "half"): in 40 bytes of `room`, or in memory that stays. */
FA_API const char *fa_name_of_value(int32_t value, char *room);

#endif
