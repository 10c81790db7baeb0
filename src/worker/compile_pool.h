/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool of compile workers: the same for a tune, for a bundle and for the doctor's trial.
 *
 * Workload: some hundred sources of a quarter of a second each. A worker loads NVRTC once and is then
 * given one source at a time; its environment is empty, because a source could read it.
 * Invariants: every task that was handed out ends once, in ended(); a worker that answers
 * what it was not asked is ended and not believed.
 */
#ifndef FA_WORKER_COMPILE_POOL_H
#define FA_WORKER_COMPILE_POOL_H

#include "buf.h"
#include "manifest.h"
#include "nvrtc.h"
#include "pool.h"

enum { FA_WORKERS_MAX = 256 };

typedef struct fa_compile_task {
    int id;           /* the owner's */
    const char *name; /* of the source in the compiler's sentences */
    char architecture[32];
    char key[FA_HASH_HEX]; /* its cubin's in the store: covers all that goes into it */
    char *source;      /* malloced; the pool frees it */
} fa_compile_task;

typedef struct fa_compile_result {
    int rc; /* 0, or why there is no cubin: `text` says it */
    bool lost;        /* its worker was gone before it answered */
    fa_child_end end; /* and so */
    const char *text, *log;
    double ms;
    void *cubin; /* malloced; who takes it sets it to NULL */
    size_t size;
} fa_compile_result;

/* None of these may free the pool. */
typedef struct fa_compile_events {
    bool (*next)(void *context,
                 fa_compile_task *ret_task); /* for an idle worker; false: none now */
    void (*ended)(void *context, int id, fa_compile_result *result);
    void (*failed)(void *context, int rc, const char *sentence); /* the pool cannot go on */
    void (*changed)(void *context); /* after each of the above: the owner may go on */
} fa_compile_events;

typedef struct fa_compile_setup {
    fa_loop *loop;
    const char *worker_path;
    const fa_nvrtc_location *nvrtc;
    const fa_templates *templates; /* whose headers sources may include; NULL: none */
    int timeout_ms, nice;
} fa_compile_setup;

struct fa_compile_worker {
    struct fa_compile_pool *pool;
    fa_child *child;
    bool ready, busy;
    int id;         /* of its task */
    int64_t serial; /* of its message */
};

/* Zeros, but for the first three, which its owner sets; what they point to must outlive the pool. */
typedef struct fa_compile_pool {
    fa_compile_setup setup;
    const fa_compile_events *events;
    void *context; /* of the events */
    struct fa_compile_worker worker[FA_WORKERS_MAX];
    int count, busy;    /* workers; of them those with a task */
    int starts_in_vain; /* workers that never got ready, in a row */
    bool reads_files;   /* a worker does: the kernel cannot shut the file system */
    int64_t serials;
    bool has_held; /* a task that waits for the worker that is starting for it */
    fa_compile_task held;
} fa_compile_pool;

/* From now on up to `count` workers; never fewer than before. */
void fa_compile_pool_widen(fa_compile_pool *pool, int count);
/* Starts all workers before it is known what for; they load NVRTC meanwhile. */
void fa_compile_pool_start_all(fa_compile_pool *pool);
/* Gives idle workers work, and starts those that there is work for. */
void fa_compile_pool_advance(fa_compile_pool *pool);
void fa_compile_pool_stop(fa_compile_pool *pool); /* ends all workers; tasks are forgotten */

/* One worker, until it has said that it is ready: 0, or why it will never be. */
int fa_compile_worker_try(const char *worker_path, const fa_nvrtc_location *nvrtc, fa_diag *diag);

/* As fa_nvrtc_choose(), for an SM (0: any): where there are several, a worker has to compile with the one that is taken. */
int fa_compiler_choose(const char *worker_path, int sm, fa_nvrtc_location *ret_nvrtc,
                       fa_buf *passed, fa_diag *diag);

#endif
