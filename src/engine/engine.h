/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's inside: the session, the target of a request, and one tune as a job.
 *
 * May be used by: nobody above; the doors see fa_tune.h only. May use: everything below.
 */
#ifndef FA_ENGINE_H
#define FA_ENGINE_H

#include "fa_tune.h"

#include "bench.h"
#include "buf.h"
#include "cubin.h"
#include "driver.h"
#include "lock.h"
#include "manifest.h"
#include "nvrtc.h"
#include "pool.h"
#include "store.h"

#include <pthread.h>
#include <stdatomic.h>

#define FA_MEASURE_POLICY "measure-1"

enum { FA_UNKEPT_MAX = 16, FA_KERNEL_BUCKETS = 1024, FA_COMPILE_TIMEOUT_MS = 30000,
       FA_TRIAL_TIMEOUT_MS = 20000 };

/* ---- session (session.c) --------------------------------------------------------------------*/
struct fa_tuner {
    char store_path[FA_STORE_PATH_MAX];
    char worker_path[FA_STORE_PATH_MAX];
    int32_t compile_workers;
    uint64_t seed;
    void (*log)(void *context, const char *sentence);
    void *log_context;
    int32_t compile_timeout_ms, trial_timeout_ms;
    int32_t compile_nice;
    int32_t strict_ms; /* compile_timeout_ms where templates are not trusted, else 0 */
    int forks; /* of this process, when it was opened */
    fa_templates *templates;
    fa_family_list families;

    /* Guards the store, the driver handle and insertions into the table of kernels: one request at a
     * time looks up, tunes or writes. Readers walk the table without a lock, because entries are
     * published whole and never leave. */
    pthread_mutex_t work;
    fa_store *store;         /* the local file */
    struct fa_fleet *fleet;  /* NULL: no store is shared with other hosts (fleet.h) */
    fa_driver *driver; /* opened by the first request that needs a device */
    _Atomic(fa_kernel *) kernel[FA_KERNEL_BUCKETS];
    _Atomic(fa_driver *) launch_driver; /* = driver, for the readers */
    struct fa_remote *remote; /* a server that is asked first; NULL: none is named */
    struct fa_system *system; /* system bundles, opened by the first lookup that needs them */
    bool ignore_system;       /* while the catalogue is predicted anew */
    fa_verification unkept[FA_UNKEPT_MAX]; /* that the store could not keep; the oldest gives way */
    unsigned unkept_next;
    bool found_busy;          /* by the last lookup of effort CACHED that needed the GPU */
};

void fa_note(fa_tuner *tuner, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* FA_EFORKED in a child of the process that opened the tuner. */
int fa_tuner_check(const fa_tuner *tuner, fa_diag *diag);
int fa_tuner_driver(fa_tuner *tuner, fa_diag *diag); /* opens tuner->driver; `work` is held */

/* What options and environment say, without opening anything. */
int fa_options_copy(const fa_options *options, fa_options *ret_options, fa_diag *diag);
const char *fa_options_templates(const fa_options *options); /* NULL: built-in only */
int fa_options_worker(const fa_options *options, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag);
int fa_options_store(const fa_options *options, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag);
const char *fa_options_fleet(const fa_options *options); /* "": no fleet's store */
int fa_tuner_families(fa_tuner *tuner, fa_diag *diag); /* loads tuner->families */
void fa_kernels_free(fa_tuner *tuner); /* kernel.c */

/* ---- target (target.c) ----------------------------------------------------------------------*/
/* Everything that is decided before a winner is looked up. */
typedef struct fa_target {
    fa_problem problem; /* to be tuned: the bucket, or the asked one itself */
    fa_problem asked;   /* made not empty */
    fa_gpu gpu;
    fa_scope scope;     /* of `problem` */
} fa_target;

/* gpu_name NULL: device `ordinal`. `work` is held. */
int fa_target_resolve(fa_tuner *tuner, const fa_problem *problem, const char *gpu_name,
                      int32_t ordinal, bool exact, fa_target *ret_target, fa_diag *diag);

/* ---- records (records.c) --------------------------------------------------------------------*/
/* The stored winner of a target's scope as an answer, with its cubin when ret_cubin is not NULL.
 * FA_ENOTFOUND when there is none. */
int fa_records_lookup(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                      fa_cubin_record *ret_cubin, fa_diag *diag);
/* Winners of any GPU for problems that differ from the target's in their lengths at most. */
int fa_records_like(fa_tuner *tuner, const fa_target *target, fa_winner_visit *visit, void *context,
                    fa_diag *diag);
/* A cubin by its key, from wherever winners come from. */
/* A cubin by key: the store's, else a system bundle's. */
int fa_records_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin, fa_diag *diag);
void fa_records_answer(const fa_winner_record *winner, const fa_gpu *gpu, fa_answer *ret_answer);
/* {"gpu":…,"uuid":…,"driver":…,"nvrtc":…,"library":…}: where trials were made. Caller frees. */
char *fa_records_environment(const fa_gpu *gpu, int driver_version, const char *nvrtc);
/* Whether an environment names this NVRTC, and this driver too unless driver_version is 0. */
/* The driver and the NVRTC that an environment names; false: not both. */
bool fa_records_tools(const char *environment, int32_t *ret_driver, char *ret_nvrtc, size_t size);
bool fa_records_same_tools(const char *environment, int driver_version, const char *nvrtc);
/* The counts, times and ties of an answer as a winner's evidence. Caller frees. */
char *fa_records_evidence(const fa_answer *answer);

/* ---- between buckets (between.c) ------------------------------------------------------------*/
enum { FA_RIVALS_MAX = 16 };

/* A config that was tried at a bucket and promises more than the bucket's winner at other lengths. */
typedef struct fa_rival {
    fa_trial trial;          /* as on record, with the grid for those lengths */
    char cubin_key[FA_HASH_HEX];
    char entry[FA_NAME_MAX];
    char nvrtc[256];
    int32_t driver_version;  /* it was proved under; 0: predicted */
    double us;               /* what it would take there */
} fa_rival;

typedef struct fa_rivals {
    fa_rival rival[FA_RIVALS_MAX]; /* the fastest first */
    int count;
    double winner_us;              /* what the bucket's winner would take there */
} fa_rivals;

/* Those of the winner of `bucket` on a GPU for the asked lengths; none where the store has no trials
 * beside the winner's. `work` is held; caller frees. */
int fa_rivals_find(fa_tuner *tuner, const fa_scope *bucket, const fa_trial *winner,
                   const fa_problem *asked, const fa_gpu *gpu, fa_rivals **ret_rivals,
                   fa_diag *diag);

/* ---- the order of trust (leads.c) -----------------------------------------------------------*/
enum { FA_LEADS_MAX = 24 };

/* A winner that may serve the target. */
typedef struct fa_lead {
    fa_step_kind kind;
    fa_answer answer;   /* for the asked problem: grid, and for a transferred one the model's time */
    fa_scope scope;     /* that it is stored under */
    double distance;    /* octaves for NEAREST, of the GPUs for TRANSFERRED */
    bool usable;        /* its config runs the asked problem on this GPU, and nothing refused it */
    char why[512];      /* why it is not */
} fa_lead;

typedef struct fa_leads {
    fa_lead lead[FA_LEADS_MAX]; /* in the order of trust */
    int count;
} fa_leads;

/* All leads of a target, usable or not; caller frees. `work` is held. */
int fa_leads_collect(fa_tuner *tuner, const fa_target *target, fa_leads **ret_leads, fa_diag *diag);
/* Whether a lookup that may not tune can give this lead as its answer. */
bool fa_lead_serves(const fa_target *target, const fa_lead *lead);
/* The first lead that serves, with its cubin when ret_cubin is not NULL and the scope that it is
 * stored under when ret_scope is not. FA_ENOTFOUND: none; FA_ECORRUPT: none, and a cubin is gone. */
int fa_leads_find(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                  fa_cubin_record *ret_cubin, fa_scope *ret_scope, fa_diag *diag);
/* What a lookup makes of the answer of a tune that has just ended: another of the bucket's configs
 * where that promises more at the asked lengths. `work` is held. */
void fa_leads_refine(fa_tuner *tuner, const fa_target *target, fa_answer *answer);
/* Whether an answer is as good as the effort asks for. exact: the bucket's is not enough; whole: a race
 * of the top few is not. */
bool fa_answer_satisfies(const fa_answer *answer, fa_effort effort, bool exact, bool whole);
/* How unlike two GPUs are: 0 for the same figures; those of one major architecture come first. */
double fa_gpu_distance(const fa_gpu *a, const fa_gpu *b);

/* ---- first contact (contact.c) --------------------------------------------------------------*/
enum { FA_PLAN_MAX = 8 };

/* What a tune is to try: everything, or these configs alone. */
typedef struct fa_plan_item {
    fa_config config;
    fa_origin origin;       /* TRANSFERRED or PREDICTED; of a config to be raced: where it is from */
    fa_problem from_problem;
    char from_gpu[64];
    double predicted_us;
} fa_plan_item;

typedef struct fa_plan {
    fa_plan_item item[FA_PLAN_MAX];
    int count;              /* 0: the whole space */
    bool prove_only;
    bool promised;          /* what would have been served unmeasured, to be compared with the truth */
    fa_plan_item promise;
    bool with_rival;        /* to be raced beside the best: what the bucket gives, at an exact point */
    fa_config rival;
    bool verify;            /* prove item[0] and store no winner and no trial */
    const fa_cubin_record *cubin; /* that is to be verified as it is; NULL: compiled for it */
} fa_plan;

/* Plans a tune of the target for a request; `work` is held. */
int fa_plan_make(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                 fa_plan *ret_plan, fa_diag *diag);

/* ---- the proof under another driver (reproof.c) ---------------------------------------------*/
/* What is known of a cubin's proof under a driver. `work` is held. */
bool fa_reproof_mark(fa_tuner *tuner, const char *cubin_key, const char *silicon,
                     int32_t driver_version, fa_verification *ret_mark);
/* Seconds for which one whose time ran out is still passed over; 0: it may be tried again. */
int64_t fa_reproof_rest_s(const fa_verification *mark);
/* Proves a found winner of another driver's time once more in a worker; marks and winner are
 * updated. On success answer and cubin are as they may be launched now. FA_ENOKERNEL: it failed and
 * is dropped; FA_ETIMEOUT: its time ran out, and lookups pass it over for a while. A note says so;
 * after any other error the next look finds it again. FA_EBUSY: effort is CACHED, and another process
 * has measured on this GPU for longer than that waits. `work` is held. */
int fa_reproof_verify(fa_tuner *tuner, const fa_target *target, const fa_scope *scope,
                      fa_effort effort, fa_answer *answer, fa_cubin_record *cubin, fa_diag *diag);
/* Whether somebody else's answer is for the kernel that the templates here render for its config, and
 * is launched as they say: its parameters are then ours too. `work` is held. */
bool fa_reproof_is_ours(fa_tuner *tuner, const fa_target *target, const fa_answer *answer);
/* Proves somebody else's cubin as it is, launched as the answer says, in a worker; keeps nothing.
 * FA_ENOKERNEL: it failed; FA_ETIMEOUT, FA_EBUSY: as above. `work` is held. */
int fa_reproof_prove(fa_tuner *tuner, const fa_target *target, fa_effort effort,
                     const fa_answer *answer, const fa_cubin_record *cubin, fa_diag *diag);

/* ---- system bundles (bundle_system.c) --------------------------------------------------------*/
/* `work` is held for each. The winner of a target, when a system bundle has one: FA_ENOTFOUND else;
 * a bundle that is damaged or not to be believed is noted and passed over. */
int fa_system_lookup(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                     fa_cubin_record *ret_cubin);
/* Bytes and key only: what reads them gates or checks them. */
int fa_system_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin);
/* Every winner, with its origin here; where `like` is given, those that somebody has timed for a
 * problem of its shape, whatever the lengths. A non-zero return stops and is returned. */
int fa_system_each(fa_tuner *tuner, const fa_problem *like, fa_winner_visit *visit, void *context);
void fa_system_close(fa_tuner *tuner);

/* ---- sweeps (sweep.c) -----------------------------------------------------------------------*/
/* Checks a caller's request and completes one of an older, shorter struct. */
int fa_sweep_request_copy(const fa_sweep_request *request, fa_sweep_request *ret, fa_diag *diag);
/* Whether a tune failed for what no other item would escape. */
bool fa_sweep_is_fatal(int rc);
/* What a tune's event adds to the account. A tune's counts are of this tune alone: *seen, which begins
 * as all zeros, remembers what the account has seen of them. */
fa_sweep_spent fa_spent_of_event(fa_progress *seen, const fa_progress *tune);

/* ---- a tune (job.c and its stages) ----------------------------------------------------------*/
typedef struct fa_job fa_job;

/* One config on its way; indices are those of the space. */
typedef struct fa_attempt {
    char cubin_key[FA_HASH_HEX];
    void *cubin; /* kept while the job runs */
    size_t cubin_size;
    float *samples_us;
    int32_t sample_count;
    int32_t generation; /* of the measuring worker that has it loaded and proved; 0: none */
    int retries;        /* how often its worker was killed from outside */
    char code[FA_HASH_HEX]; /* what its cubin executes */
    int twin_of;        /* 1 + the attempt with the same code, which is tried for both; 0: none */
    bool dirty;         /* has an outcome that the store has not seen */
    bool raced_before;  /* its time is that of an earlier tune's race */
    char *clocks;       /* JSON */
    fa_cubin_record *fresh_cubin; /* compiled by this run, not yet written */
} fa_attempt;

struct fa_compile_worker {
    fa_job *job;
    fa_child *child;
    int index; /* of the attempt under way; FA_JOB_REFERENCE for the reference; FA_JOB_IDLE */
    bool ready;
};
enum { FA_JOB_IDLE = -1, FA_JOB_REFERENCE = -2, FA_JOB_NOBODY = -3, FA_JOB_WORKERS_MAX = 256,
       FA_JOB_CLEAN = 4 /* a config and its chances, see fa_job_may_retry */ };

struct fa_job {
    fa_tuner *tuner;
    const fa_request *request;
    fa_target target;
    fa_plan plan;
    int planned[FA_PLAN_MAX]; /* item of the space's config, where the plan names configs */
    bool measuring; /* the GPU is here: prove and time, else compile and rank */
    bool prove_only; /* effort PREDICT on a present GPU, or a verification */
    uint64_t seed;
    char *environment;

    fa_space space;
    fa_attempt *attempt; /* [space.count] */
    int *order;          /* [space.count] pending configs, the model's first choice first */
    int order_count, order_next;
    uint32_t (*grid)[FA_BENCH_CASES][3]; /* [space.count], for the proof's cases */
    int case_count;

    fa_nvrtc_location nvrtc;
    fa_loop loop; /* before it sleeps, what came is written */
    struct fa_compile_worker worker[FA_JOB_WORKERS_MAX];
    int worker_count, compiling;
    int held;           /* to be compiled by the worker that is starting, or FA_JOB_NOBODY */
    bool noted_open_files;
    int starts_in_vain; /* compile workers that never got ready, in a row */

    char reference_key[FA_HASH_HEX];
    void *reference;
    size_t reference_size;
    bool reference_asked;
    int reference_retries;
    int fleet_misses; /* cubins that the fleet's store did not have, in a row */

    struct {
        fa_child *child;
        int generation;    /* counts starts */
        bool ready, open, opening, racing;
        int in_flight;     /* attempt under way, or FA_JOB_NOBODY */
        int starts_in_vain; /* since the last answer to a trial */
    } measure;
    int *again;          /* [space.count + 1] to be compiled again: their worker was killed */
    int again_count;
    int *clean;          /* [FA_JOB_CLEAN * space.count] queue of attempts with a good cubin */
    int clean_count, clean_next;
    int *finalist;
    int finalist_count, finalist_next;
    bool raced; /* the finalists' samples are the race's */
    bool solo;  /* the race took its worker down: finalists run one by one instead */

    bool unwritten; /* some attempt has news for the store */
    fa_progress progress;
    fa_trial best;
    uint64_t started_ns;
    int rc; /* set once by fa_job_end, and its sentence */
    fa_diag end_diag;
    bool ended;
    fa_diag diag;
};

/* Checks a caller's request and completes one of an older, shorter struct (tune.c). */
int fa_request_wait(fa_tuner *tuner, const fa_request *request, const char *name, fa_lock **ret_lock,
                    bool *ret_waited, fa_diag *diag); /* for a lock; its progress may cancel (tune.c) */
int fa_request_copy(const fa_request *request, fa_request *ret_request, fa_diag *diag);
/* fa_tune() of a checked request, whatever server there is. */
int fa_tune_here(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag);
/* Waits for the key's lock, looks again, then tunes; `work` is held. *job may hold a job that was
 * begun for this request, whose workers are loading already; it is NULL afterwards (tune.c). */
int fa_tune_target(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                   fa_job **job, fa_answer *ret_answer, fa_diag *diag);
/* job_setup.c. `request` must outlive the job. */
int fa_job_new(fa_tuner *tuner, const fa_request *request, fa_job **ret_job, fa_diag *diag);
void fa_job_free(fa_job **job);
int fa_job_set_up(fa_job *job);
int fa_job_set_up_cases(fa_job *job);
/* Runs the tune for a target, once; `work` is held and so is the key's lock. */
int fa_job_run(fa_job *job, const fa_target *target, const fa_plan *plan, fa_answer *ret_answer,
               fa_diag *diag);
/* Leaves the loop with rc and the sentence that stands in job->diag; the first call counts. */
void fa_job_end(fa_job *job, int rc);
void fa_job_count(fa_job *job, const fa_trial *trial); /* a trial that ended, now or earlier */
/* Records where an attempt ended, counts it and tells the caller. */
void fa_job_settle(fa_job *job, int index, fa_status status, const char *reason);
/* Ends an attempt as the one with the same code has ended. */
void fa_job_settle_twin(fa_job *job, int index);
void fa_job_settle_twins(fa_job *job, int index); /* all of this one's */
void fa_job_advance(fa_job *job); /* gives idle workers work, moves to the next stage */
void fa_job_emit(fa_job *job, fa_event_kind kind, const fa_trial *trial);
/* Writes what the store has not seen, cubins and trials, in one transaction; ends a job that it
 * fails in. */
int fa_job_flush(fa_job *job);
/* Whether an attempt (or the reference) whose worker was killed from outside gets another chance;
 * takes it. A few are enough for bad luck, and bound what the out-of-memory killer costs. */
bool fa_job_may_retry(fa_job *job, int index);
void fa_job_forget_fresh(fa_attempt *attempt);

/* worker_start.c: a compile worker that loads NVRTC and then says {"rc":…}; its environment is empty.
 * strict_ms: 0, or how long a compile of source from outside may take, in the strict sandbox. */
int fa_compile_worker_start(fa_loop *loop, const char *path, const fa_nvrtc_location *nvrtc,
                            int strict_ms, const fa_child_events *events, void *context, fa_child **ret_child,
                            fa_diag *diag);
/* The first message to one: the headers that sources may include. */
int fa_compile_worker_headers(fa_child *child, const fa_templates *templates, fa_diag *diag);
/* candidate.c */
/* What a cubin is stored and looked up by: all that went into it. */
void fa_cubin_key(const fa_tuner *tuner, const char *source, const char *architecture,
                  const char *nvrtc_identity, char ret_key[FA_HASH_HEX]);
/* The source of a candidate for the target, its architecture and its cubin key. */
int fa_render_candidate(fa_tuner *tuner, const fa_target *target, const fa_candidate *candidate,
                        const char *nvrtc_identity, fa_buf *ret_source, char *ret_architecture,
                        size_t size, char ret_key[FA_HASH_HEX], fa_diag *diag);
/* Why a cubin may not go on, or FA_STATUS_COMPILED. */
fa_status fa_gate_cubin(const fa_gpu *gpu, const fa_trial *trial, const fa_cubin_info *info,
                        const char *log, char *ret_reason, size_t size);
/* job_compile.c */
/* Starts every worker before it is known what for; they load NVRTC meanwhile. */
void fa_job_compile_prestart(fa_job *job);
void fa_job_compile_start(fa_job *job);
void fa_job_compile_advance(fa_job *job);
bool fa_job_compile_done(const fa_job *job);
void fa_job_compile_stop(fa_job *job);

/* job_measure.c */
int fa_job_measure_start(fa_job *job);
void fa_job_measure_advance(fa_job *job);
bool fa_job_measure_done(const fa_job *job);
void fa_job_measure_stop(fa_job *job);

/* job_finish.c */
/* Chooses who is raced; 0 when no race is needed. */
int fa_job_choose_finalists(fa_job *job);
/* The winner's index, or FA_JOB_NOBODY; fills ties, default and counts of the answer. */
int fa_job_choose_winner(fa_job *job, fa_answer *answer);
int fa_job_store_winner(fa_job *job, int index, fa_answer *answer, fa_diag *diag);
/* 0 when what was to be verified passed, else FA_JOB_NOBODY; fills the answer's trial, cubin key and
 * compiler either way. */
int fa_job_verified(const fa_job *job, fa_answer *answer);
/* Orders finished trials: measured by time, then compiled by prediction; ties by config text. */
int fa_trial_compare(const fa_trial *a, const fa_trial *b);

/* explain.c */
bool fa_trial_finished(const fa_trial *trial); /* measured or compiled */
/* Orders trials wherever they ended: the finished as above, then what was not tried, then by gate,
 * the one reached last first. */
int fa_trial_compare_ends(const fa_trial *a, const fa_trial *b);

#endif
