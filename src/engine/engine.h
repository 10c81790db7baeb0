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
#include "driver.h"
#include "lock.h"
#include "manifest.h"
#include "nvrtc.h"
#include "pool.h"
#include "store.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define FA_MEASURE_POLICY "measure-1"

enum { FA_KERNEL_BUCKETS = 1024, FA_COMPILE_TIMEOUT_MS = 30000, FA_TRIAL_TIMEOUT_MS = 20000 };

/* ---- session (session.c) --------------------------------------------------------------------*/
struct fa_tuner {
    char store_path[FA_STORE_PATH_MAX];
    char worker_path[FA_STORE_PATH_MAX];
    int32_t compile_workers;
    uint64_t seed;
    void (*log)(void *context, const char *sentence);
    void *log_context;
    int32_t compile_timeout_ms, trial_timeout_ms;
    int forks; /* of this process, when it was opened */
    fa_templates *templates;
    fa_family_list families;

    /* Guards the store, the driver handle and insertions into the table of kernels: one request at a
     * time looks up, tunes or writes. Readers walk the table without a lock, because entries are
     * published whole and never leave. */
    pthread_mutex_t work;
    fa_store *store;
    fa_driver *driver; /* opened by the first request that needs a device */
    _Atomic(fa_kernel *) kernel[FA_KERNEL_BUCKETS];
    _Atomic(fa_driver *) launch_driver; /* = driver, for the readers */
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
int fa_tuner_families(fa_tuner *tuner, fa_diag *diag); /* loads tuner->families */
void fa_kernels_free(fa_tuner *tuner); /* kernel.c */

/* ---- target (target.c) ----------------------------------------------------------------------*/
/* Everything that is decided before a winner is looked up. */
typedef struct fa_target {
    fa_problem problem; /* the bucket */
    fa_gpu gpu;
    fa_scope scope;
} fa_target;

/* gpu_name NULL: device `ordinal`. `work` is held. */
int fa_target_resolve(fa_tuner *tuner, const fa_problem *problem, const char *gpu_name,
                      int32_t ordinal, fa_target *ret_target, fa_diag *diag);

/* ---- records (records.c) --------------------------------------------------------------------*/
/* The stored winner of a target as an answer, with its cubin when ret_cubin is not NULL.
 * FA_ENOTFOUND when there is none. */
int fa_records_lookup(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                      fa_cubin_record *ret_cubin, fa_diag *diag);
void fa_records_answer(const fa_winner_record *winner, const fa_gpu *gpu, fa_answer *ret_answer);
/* {"gpu":…,"uuid":…,"driver":…,"nvrtc":…,"library":…}: where trials were made. Caller frees. */
char *fa_records_environment(const fa_gpu *gpu, int driver_version, const char *nvrtc);
/* Whether an environment names this NVRTC, and this driver too unless driver_version is 0. */
bool fa_records_same_tools(const char *environment, int driver_version, const char *nvrtc);
/* The counts, times and ties of an answer as a winner's evidence. Caller frees. */
char *fa_records_evidence(const fa_answer *answer);

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
    bool dirty;         /* has an outcome that the store has not seen */
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
    bool measuring; /* the GPU is here: prove and time, else compile and rank */
    bool prove_only; /* effort PREDICT on a present GPU */
    uint64_t seed;
    char *environment;

    fa_space space;
    fa_attempt *attempt; /* [space.count] */
    int *order;          /* [space.count] pending configs, the model's first choice first */
    int order_count, order_next;
    uint32_t (*grid)[FA_BENCH_CASES][3]; /* [space.count], for the proof's cases */
    int case_count;

    fa_nvrtc_location nvrtc;
    uv_loop_t loop;
    sigset_t signals; /* this thread's mask before, and whether a SIGPIPE was pending */
    bool sigpipe_pending;
    uv_timer_t tick;
    uv_prepare_t before_wait; /* writes what came, before the loop sleeps */
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
int fa_request_copy(const fa_request *request, fa_request *ret_request, fa_diag *diag);
/* Waits for the key's lock, looks again, then tunes; `work` is held. *job may hold a job that was
 * begun for this request, whose workers are loading already; it is NULL afterwards (tune.c). */
int fa_tune_target(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                   fa_job **job, fa_answer *ret_answer, fa_diag *diag);
/* job_setup.c. `request` must outlive the job; SIGPIPE is held back from this thread meanwhile. */
int fa_job_new(fa_tuner *tuner, const fa_request *request, fa_job **ret_job, fa_diag *diag);
void fa_job_free(fa_job **job);
int fa_job_set_up(fa_job *job);
int fa_job_set_up_cases(fa_job *job);
/* Runs the tune for a target, once; `work` is held and so is the key's lock. */
int fa_job_run(fa_job *job, const fa_target *target, fa_answer *ret_answer, fa_diag *diag);
/* Leaves the loop with rc and the sentence that stands in job->diag; the first call counts. */
void fa_job_end(fa_job *job, int rc);
void fa_job_count(fa_job *job, const fa_trial *trial); /* a trial that ended, now or earlier */
/* Records where an attempt ended, counts it and tells the caller. */
void fa_job_settle(fa_job *job, int index, fa_status status, const char *reason);
void fa_job_advance(fa_job *job); /* gives idle workers work, moves to the next stage */
void fa_job_emit(fa_job *job, fa_event_kind kind, const fa_trial *trial);
/* Writes what the store has not seen, cubins and trials, in one transaction; ends a job that it
 * fails in. */
int fa_job_flush(fa_job *job);
/* Whether an attempt (or the reference) whose worker was killed from outside gets another chance;
 * takes it. A few are enough for bad luck, and bound what the out-of-memory killer costs. */
bool fa_job_may_retry(fa_job *job, int index);
void fa_job_forget_fresh(fa_attempt *attempt);

/* worker_start.c: a compile worker that loads NVRTC and then says {"rc":…}; its environment is empty. */
int fa_compile_worker_start(uv_loop_t *loop, const char *path, const fa_nvrtc_location *nvrtc,
                            const fa_child_events *events, void *context, fa_child **ret_child,
                            fa_diag *diag);
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
/* Orders finished trials: measured by time, then compiled by prediction; ties by config text. */
int fa_trial_compare(const fa_trial *a, const fa_trial *b);

/* explain.c */
bool fa_trial_finished(const fa_trial *trial); /* measured or compiled */
/* Orders trials wherever they ended: the finished as above, then what was not tried, then by gate,
 * the one reached last first. */
int fa_trial_compare_ends(const fa_trial *a, const fa_trial *b);

#endif
