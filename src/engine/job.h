/* SPDX-License-Identifier: Apache-2.0
 *
 * One tune: its plan, and its job with its state, what its stages do to it (job.c), and the stages.
 *
 * Workload: 100 configs of about 0.3 s of compiling and a few milliseconds of GPU each.
 * Invariants: every pending config ends exactly once, in fa_job_settle; a worker's death ends at most the config it had.
 */
#ifndef FA_ENGINE_JOB_H
#define FA_ENGINE_JOB_H

#include "bench.h"
#include "buf.h"
#include "cubin.h"
#include "lookup.h"
#include "nvrtc.h"
#include "pool.h"
#include "search.h"

/* ---- what it is to try ----------------------------------------------------------------------*/
enum { FA_PLAN_MAX = 8 };

/* What a tune is to try: everything, or these configs alone. */
typedef struct fa_plan {
    fa_config item[FA_PLAN_MAX];
    int count; /* 0: the whole space */
    bool prove_only;
    bool verify;                  /* prove item[0] and store no winner and no trial */
    int32_t launches;             /* of item[0] once it is proved, for a profiler */
    const fa_cubin_record *cubin; /* that is to be verified as it is; NULL: compiled for it */
    const fa_case_data *data;     /* of the proof's cases; NULL: all is drawn */
} fa_plan;

/* ---- the job --------------------------------------------------------------------------------*/
typedef struct fa_job fa_job;

/* One config on its way; indices are those of the space. */
typedef struct fa_attempt {
    char cubin_key[FA_HASH_HEX];
    void *cubin; /* kept while the job runs */
    size_t cubin_size;
    float *samples_us;
    int32_t sample_count;
    int32_t generation;     /* of the measuring worker that has it loaded and proved; 0: none */
    int retries;            /* how often its worker was killed from outside */
    char code[FA_HASH_HEX]; /* what its cubin executes */
    int source_of;     /* 1 + the attempt with the same source, which is compiled for both; 0: none */
    int twin_of;       /* 1 + the attempt with the same code, which is tried for both; 0: none */
    bool dirty;        /* has an outcome that the store has not seen */
    double bits[FA_BENCH_CASES]; /* fa_proof.bits of the last proof */
    char *clocks;      /* JSON */
    fa_cubin_record fresh; /* compiled by this run, not yet written; else without bytes */
} fa_attempt;

enum {
    FA_JOB_REFERENCE = -2,
    FA_JOB_NOBODY = -3,
    FA_JOB_CLEAN = 4 /* a config and its chances, see fa_job_may_retry */
};

struct fa_job {
    fa_tuner *tuner;
    const fa_request *request;
    fa_target target;
    fa_plan plan;
    fa_elsewhere elsewhere; /* what won on another GPU, where the whole space is tried */
    bool measuring;         /* the GPU is here: prove and time, else compile and rank */
    bool prove_only;        /* effort PREDICT on a present GPU, or a verification */
    uint64_t seed;
    char *environment;

    fa_space space;        /* of one that is searched, the configs that it came to */
    int capacity;          /* configs that there is room for */
    fa_attempt *attempt;   /* [capacity] */
    int *indices;          /* of which the arrays below are parts */
    fa_attempt reference;  /* FA_JOB_REFERENCE: the kernel that others are compared with */
    fa_launches *launches; /* [capacity * case_count], for the proof's cases */
    fa_problem cases[FA_BENCH_CASES];
    int case_count;
    fa_nvrtc_location nvrtc;
    fa_loop loop; /* before it sleeps, what came is written */

    struct fa_job_compile {
        fa_compile_pool pool;
        int *order; /* [capacity] pending configs, the model's first choice first */
        int order_count, order_next;
        int wanted; /* kernels that are enough: the rest is not compiled; 0: all of the order */
        int *again; /* [capacity + 1] to be compiled again: their worker was killed */
        int again_count;
        int spilled; /* configs that were given a chance although they spill */
        bool noted_open_files, reference_asked;
    } compile;

    struct fa_job_measure {
        fa_child *child;
        int generation; /* counts starts */
        enum fa_measurer {
            FA_MEASURER_STARTING = 0,
            FA_MEASURER_READY,   /* has its GPU, and no problem yet */
            FA_MEASURER_OPENING, /* makes the problem's inputs and reference */
            FA_MEASURER_OPEN,    /* idle */
            FA_MEASURER_TRIAL,   /* with the attempt `in_flight` */
            FA_MEASURER_RACE,
        } at;
        int in_flight;
        int starts_in_vain; /* since the last answer to a trial */
        double best_us;     /* least median that was measured in this tune; 0: none yet */
        int *clean;         /* [FA_JOB_CLEAN * capacity] queue of attempts with a good cubin */
        int clean_count, clean_next;
        int *finalist;
        int finalist_count, finalist_next;
        bool heat;  /* the next race only tells who is in the last one */
        bool raced; /* the finalists' samples are the race's */
        bool solo;  /* the race took its worker down: finalists run one by one instead */
    } measure;

    struct fa_job_search {
        fa_search *search; /* NULL: the whole space is tried */
        fa_points *points;
        int64_t held;      /* configs of the space */
        int fit;           /* configs that can be tried; INT32_MAX: not known */
        int evaluations;   /* that may be spent; 0: until the time is over */
        int told;          /* configs of which the search knows where they ended */
        int kernels;       /* of these that compiled */
        bool over;         /* nothing more is proposed */
        bool exhausted;    /* there was nothing more to propose */
    } search;

    bool unwritten; /* some attempt has news for the store */
    uint64_t write_due_ns; /* before which it waits for more of them */
    fa_progress progress;
    int pruned; /* configs that spill or do not fit the registers, by their cubins */
    fa_trial best;
    uint64_t started_ns, until_ns; /* of the request's seconds; 0: there is no end */
    int rc; /* set once by fa_job_end, and its sentence */
    fa_diag end_diag;
    bool ended;
    fa_diag diag;
    void (*advance)(fa_job *job); /* gives idle workers work, moves to the next stage */
};

/* Leaves the loop with rc and the sentence that stands in job->diag; the first call counts. */
void fa_job_end(fa_job *job, int rc);
#define FA_JOB_FAIL(job, ...) fa_job_end(job, fa_fail(&(job)->diag, __VA_ARGS__))
fa_attempt *fa_job_attempt(fa_job *job, int index);
const fa_family *fa_job_family(const fa_job *job, int index);
/* Keeps a copy of a cubin's bytes for as long as the job runs; false: memory ended it. */
bool fa_job_keep_cubin(fa_job *job, fa_attempt *attempt, const void *bytes, size_t size);
void fa_job_count(fa_job *job, const fa_trial *trial); /* a trial that ended, now or earlier */
/* Records where an attempt ended, counts it and tells the caller. */
void fa_job_settle(fa_job *job, int index, fa_status status, const char *reason);
/* Whether two attempts' outputs, or those of one in both launches, have the same bits in each case that both were proved on. */
bool fa_job_same_bits(const fa_job *job, int a, int b);
/* Ends an attempt as the one with the same code has ended. */
void fa_job_settle_twin(fa_job *job, int index);
void fa_job_settle_twins(fa_job *job, int index); /* all of this one's */
void fa_job_emit(fa_job *job, fa_event_kind kind, const fa_trial *trial);
/* Writes what the store has not seen, cubins and trials, in one transaction; ends a job that it
 * fails in. */
int fa_job_flush(fa_job *job);
/* Whether an attempt (or the reference) whose worker was killed from outside gets another chance;
 * takes it. A few are enough for bad luck, and bound what the out-of-memory killer costs. */
bool fa_job_may_retry(fa_job *job, int index);
/* The launches of `count` configs for the problems that they will be proved on; none before these are known. */
void fa_job_set_launches(fa_job *job, int first, int count);

/* ---- a space that is searched (job_compile.c) ---- */
/* Whether this one is: job->space was enumerated. */
bool fa_job_search_wanted(const fa_job *job);
/* Begins with an empty space. What is opened is closed by fa_job_search_close(), also after a failure. */
int fa_job_search_open(fa_job *job);
void fa_job_search_close(fa_job *job);
/* Adds a config that is on record; -1: it is none of the space, or there is no room. */
int fa_job_search_find(fa_job *job, const fa_config *config);
/* The first configs to be compiled, once those on record were added. */
void fa_job_search_begin(fa_job *job);

/* ---- beginning, run and end (job_run.c) ---- */
/* `request` must outlive the job. sm: of the GPU; 0: not known yet. */
int fa_job_new(fa_tuner *tuner, const fa_request *request, int sm, fa_job **ret_job, fa_diag *diag);
void fa_job_free(fa_job **job);
/* The data that the program gives for the proofs of a target: calls its function, which may take long and may tune. No lock
 * between processes is held, and `work` not meanwhile. Without a function NULL, or FA_ENOTSUP where the answer is its. */
int fa_job_ask_caller(fa_tuner *tuner, const fa_target *target, bool verify,
                      fa_case_data **ret_data, fa_diag *diag);
/* Runs the tune for a target, once; `work` is held, but not while workers are waited for, and so is the key's
 * lock. */
int fa_job_run(fa_job *job, const fa_target *target, const fa_plan *plan, fa_answer *ret_answer,
               fa_diag *diag);

/* One request on its way to a tune. */
typedef struct fa_tuning {
    fa_tuner *tuner;
    const fa_request *request;
    fa_target target;
    fa_lookup known;    /* what a look has just found, enough or not; for fa_lookup_free() */
    fa_job *job;        /* NULL, or begun for this request: its workers are loading already */
    fa_case_data *data; /* of the proof's cases; NULL: all is drawn */
} fa_tuning;

bool fa_request_is_again(const fa_request *request); /* it tunes anew, whatever is stored */
/* Waits for the key's lock, looks where that took a while or nobody has looked, then tunes; `work` is held, but not
 * during waits. Frees `known` and `job`. */
int fa_tune_target(fa_tuning *tuning, fa_answer *ret_answer, fa_diag *diag);

/* ---- the compile side (job_compile.c) ---- */
/* Before anything else here. */
void fa_job_compile_init(fa_job *job);
/* Starts every worker before it is known what for; they load NVRTC meanwhile. */
void fa_job_compile_prestart(fa_job *job);
void fa_job_compile_start(fa_job *job);
void fa_job_compile_advance(fa_job *job);
/* Where no config came through, compiles some of those that spill once more, and lets them pass; false: none is left. */
bool fa_job_take_spilled(fa_job *job);
bool fa_job_compile_done(const fa_job *job);
/* Sets what an attempt's cubin executes, in all launches; "": no other is known to be its twin, the device will tell. */
void fa_job_read_code(fa_job *job, int index, const void *bytes, size_t size);

/* ---- the GPU side (job_measure.c) ---- */
int fa_job_measure_start(fa_job *job);
void fa_job_measure_advance(fa_job *job);
bool fa_job_measure_done(const fa_job *job);

/* ---- who is raced, and who wins (job.c) ---- */
/* Why a cubin may not go on, or FA_STATUS_COMPILED. */
fa_status fa_gate_cubin(const fa_gpu *gpu, const fa_candidate *candidate, const fa_cubin_info *info,
                        const char *log, char *ret_reason, size_t size);
/* Chooses from the probes who is raced, and whether a heat comes first (measure.heat); 0: no config was measured. */
int fa_job_choose_finalists(fa_job *job);
/* Keeps of a heat's finalists those that may win. */
void fa_job_cut_finalists(fa_job *job);
/* The winner's index, or FA_JOB_NOBODY; fills ties, default and counts of the answer. */
int fa_job_choose_winner(fa_job *job, fa_answer *answer);

/* ---- tune.c: one request to its answer -------------------------------------------------------*/
/* fa_tune() of a checked request, whatever server there is. */
int fa_tune_here(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag);

#endif
