/* SPDX-License-Identifier: Apache-2.0
 *
 * A grid of problems as one job that can be interrupted at any moment, and baselines: what others'
 * kernels take for the same problems. Part of fa_tune.h.
 *
 * A sweep's items, budget and spending are in the store: they are its queue. Items are tuned one after another,
 * as fa_tune() does, by the process that runs the sweep and by any worker on the same store; what was measured
 * is in the store too, so that after a kill -9 the next run loses at most the trial that was under way.
 *
 * A fleet is many hosts whose FA_TUNE_STORE is one PostgreSQL database, postgresql://user@host/database: they
 * share winners, cubins and the queue. While the server does not answer, a file (FA_TUNE_LOCAL_STORE, else the
 * one in the cache directory) serves in its place, and fa_push() brings its winners to the server later.
 */
#ifndef FA_SWEEP_H
#define FA_SWEEP_H

#include "fa_bundle.h"

/* ---- sweeps ---------------------------------------------------------------------------------*/
enum { FA_SWEEP_ITEMS_MAX = 10000 };

typedef enum fa_sweep_event {
    FA_SWEEP_ITEM_BEGINS = 0,
    FA_SWEEP_ITEM_TUNES = 1, /* `tune` is set; at least every 100 ms */
    FA_SWEEP_ITEM_ENDS = 2,  /* done, with its answer, or failed, with its reason */
    FA_SWEEP_ITEM_KNOWN = 3, /* an earlier run, or another process, has done it */
    FA_SWEEP_IDLE = 4,       /* of a worker: nothing to do, or no server, as `reason` says */
} fa_sweep_event;

typedef struct fa_sweep_progress {
    fa_sweep_event event;
    const fa_sweep *sweep; /* counts and spending as they stand; NULL: a worker's */
    int32_t index;         /* of the item */
    /* At its end: done, failed, or pending: handed back, or compiled where there is an answer. */
    const fa_sweep_item *item;
    const fa_progress *tune;
    const fa_answer *answer; /* of an item that is done or compiled */
    const char *reason;      /* of FA_SWEEP_IDLE, or "" */
    double elapsed_s;        /* of this run */
} fa_sweep_progress;

typedef struct fa_sweep_request {
    size_t size; /* sizeof(fa_sweep_request) */
    const fa_sweep_item *items; /* problem and gpu are read; kept until the call returns */
    int32_t count;              /* 1 to FA_SWEEP_ITEMS_MAX */
    const char *plan;           /* words for lists; may be NULL */
    bool restart;               /* forget an earlier run: its queue and spending, not its winners */
    fa_sweep_budget budget;
    /* Called on this thread; a non-zero return stops the sweep: FA_ECANCELED, all is kept. */
    int (*progress)(void *context, const fa_sweep_progress *progress);
    void *context;
    /* Only enters the sweep into the queue, for workers, or comes back to the one of the same request: what failed is open
     * again, what is done stays. Items name GPU types ("" is the type of the device here), and progress is not called.
     * FA_EIO: the server does not answer, and nothing was entered. */
    bool enqueue;
    /* How each item is tuned: size, ordinal, effort (PREDICT, MEASURE or PATIENT), again, exact, same_bits, strategy,
     * evaluations and seconds are read. Last, for it may grow. */
    fa_request each;
} fa_sweep_request;

/* Runs a sweep, or goes on with the one of the same items, effort, `again`, `exact`, `same_bits` and bounds of each item's search. An item whose winner
 * is stored is done, unless `again`; one that fails keeps its reason and the others go on, and the
 * next run tries it again. Returns 0 when every item has ended or the budget is spent: *ret_sweep's
 * state and counts tell which. Processes that run one sweep at once share its items. */
FA_API int fa_run_sweep(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                        fa_diag *diag);

/* Stored sweeps, the one last worked on first, and one's items in their order. FA_ENOTFOUND: no such sweep. */
FA_API int fa_list_sweeps(fa_tuner *tuner, fa_sweep **ret_sweeps, size_t *ret_count, fa_diag *diag);
FA_API int fa_list_sweep_items(fa_tuner *tuner, const char *key, fa_sweep_item **ret_items,
                               size_t *ret_count, fa_diag *diag);

/* ---- the queue ------------------------------------------------------------------------------*/
/* Nobody takes further items of a sweep until it is entered again; those under way come to their
 * end. FA_ENOTFOUND: there is no such sweep. */
FA_API int fa_stop_sweep(fa_tuner *tuner, const char *key, fa_diag *diag);

typedef struct fa_worker_request {
    size_t size;        /* sizeof(fa_worker_request) */
    const char *gpu;    /* catalogue name of a GPU type. Present here: measures on it; else compiles
                           for it. NULL: the device `ordinal`; without a device compiles for any */
    int32_t ordinal;
    bool once;          /* ends after one item */
    double idle_exit_s; /* ends when there was nothing to do for so long; 0: never */
    /* Called on this thread, about every second when idle; a non-zero return stops the worker, which hands back
     * what it holds: FA_ECANCELED. */
    int (*progress)(void *context, const fa_sweep_progress *progress);
    void *context;
} fa_worker_request;

/* Takes items from the store's queue until it is told to stop. 0: one item, with `once`; or nothing to
 * do for idle_exit_s. FA_EIO: that long, but in the end because the server did not answer. What no
 * other item would escape (no NVRTC, a full disk…) ends it after its item was handed back. */
FA_API int fa_run_worker(fa_tuner *tuner, const fa_worker_request *request, fa_diag *diag);

/* ---- what was kept while the server did not answer -------------------------------------------*/
/* Brings the winners of the local file to the server that is this tuner's store, each with its cubin and the trials
 * that a bundle has, weighed as an import weighs, and says what became of them. The file stays as it is. FA_ESTORE: the store is no server's; FA_EIO: it
 * does not answer. */
FA_API int fa_push(fa_tuner *tuner, fa_bundle_info *ret_pushed, fa_diag *diag);

/* ---- baselines ------------------------------------------------------------------------------*/
/* A line of a file that fa_import() takes:
 *
 *   {"gpu": "H200", "peer": "pytorch-fa2", "median_us": 41.2,
 *    "problem": {"dtype": "fp16", "causal": "none", "head_dim": 64, "batch": 4, "heads_q": 8,
 *                "heads_kv": 8, "seq_q": 512, "seq_k": 512},
 *    "low_us": 41.0, "high_us": 41.5, "sample_count": 50, "unix_time": 1760000000,
 *    "source": "PyTorch 2.11"}
 *
 * The second half may be left out, and of the problem what has no size of its own; keys that are not known are
 * passed over. "dry_run": true makes a line bad: its time is made up, to show the form. A line of the same problem, GPU
 * and peer as one before it or in the store replaces that one. */

/* Every baseline in the store. */
FA_API int fa_list_baselines(fa_tuner *tuner, fa_baseline **ret_baselines, size_t *ret_count,
                             fa_diag *diag);

/* Whether a baseline is for what an answer answers: the same problem on the same GPU type, under any of its names. */
FA_API bool fa_baseline_concerns(const fa_baseline *baseline, const fa_answer *answer);

#endif
