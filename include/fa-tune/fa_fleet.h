/* SPDX-License-Identifier: Apache-2.0
 *
 * The fleet: many hosts that share winners, cubins and a queue of problems through one database.
 * Part of fa_tune.h.
 *
 *     FA_TUNE_STORE=postgresql://user@host/database
 *     FA_TUNE_STORE=sqlite:///path/of/a/file      (containers of one machine)
 *
 * Every host keeps its local store (FA_TUNE_LOCAL_STORE, else the file in the cache directory), and
 * works on that when the database is gone; what it tuned meanwhile is published by the next call that
 * gets through to that very database, never to another. A lookup that finds nothing good enough in the local store asks the database and
 * copies what it has; a tune takes the key's lease there first, so that one host tunes a key and the
 * others take its result. FA_TUNE_LEASE: seconds without a sign of life after which a lease or a
 * claim goes to another (30).
 *
 * A sweep that is entered into the fleet's queue is worked on by fa_run_worker() on any number of
 * hosts. An item is claimed under a fence that grows with every claim: whoever lost its claim cannot
 * publish, is counted as refused, and its result stays in its local store.
 */
#ifndef FA_FLEET_H
#define FA_FLEET_H

#include "fa_tuner.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- results that wait ----------------------------------------------------------------------*/
/* Results in the local store that are to be published as soon as their fleet's store is there again. */
typedef struct fa_waiting {
    const char *fleet; /* its address, without user and password; during the visit */
    int64_t results;
} fa_waiting;
typedef int fa_waiting_visit(void *context, const fa_waiting *waiting);
/* One for each fleet, whichever this tuner has. A non-zero return stops and is returned. */
FA_API int fa_list_waiting(fa_tuner *tuner, fa_waiting_visit *visit, void *context, fa_diag *diag);

/* ---- the queue ------------------------------------------------------------------------------*/
/* Enters a sweep into the fleet's queue, or comes back to the one that fa_run_sweep() would go on
 * with: what failed is open again, what is done stays, `restart` forgets. The request is that
 * of fa_run_sweep(); its progress is not called, and its items name GPU types ("" is the type of the
 * device here). Returns at once. FA_ESTORE: no store is shared with other hosts. FA_EIO and others:
 * the database does not answer, and nothing was entered. */
struct fa_sweep_request; /* fa_sweep.h */
FA_API int fa_enqueue_sweep(fa_tuner *tuner, const struct fa_sweep_request *request,
                            fa_sweep *ret_sweep, fa_diag *diag);

/* The sweeps in the fleet's queue, the one last worked on first. A non-zero return stops and is
 * returned. */
typedef int fa_queue_visit(void *context, const fa_queue *queue);
FA_API int fa_list_queues(fa_tuner *tuner, fa_queue_visit *visit, void *context, fa_diag *diag);

/* Nobody takes further items of a sweep until it is entered again; those that are held come to their
 * end. FA_ENOTFOUND: no such sweep is in the queue. */
FA_API int fa_stop_queue(fa_tuner *tuner, const char *key, fa_diag *diag);

typedef int fa_queue_holding_visit(void *context, const fa_queue_holding *holding);
FA_API int fa_list_queue_holdings(fa_tuner *tuner, const char *key, fa_queue_holding_visit *visit,
                                  void *context, fa_diag *diag);

/* ---- a worker -------------------------------------------------------------------------------*/
typedef enum fa_work_event {
    FA_WORK_IDLE = 0,   /* nothing to do, or the database does not answer; about twice a second */
    FA_WORK_BEGINS = 1, /* an item was claimed */
    FA_WORK_TUNES = 2,  /* `tune` is set; at least every 100 ms */
    FA_WORK_ENDS = 3    /* `end` is set, and what it says */
} fa_work_event;

typedef enum fa_work_end {
    FA_WORK_DONE = 0,        /* published, or compiled for those who measure */
    FA_WORK_FAILED = 1,      /* for `reason`, which the queue keeps */
    FA_WORK_HANDED_BACK = 2, /* stopped: anybody may take it */
    FA_WORK_REFUSED = 3,     /* came too late */
    FA_WORK_UNPUBLISHED = 4  /* stopped while the database was gone: the next call publishes it */
} fa_work_end;

typedef struct fa_worker_report {
    int32_t measured, compiled; /* items done, by stage */
    int32_t failed, handed_back, refused, unpublished;
} fa_worker_report;

typedef struct fa_worker_progress {
    fa_work_event event;
    fa_work_stage stage;
    const fa_sweep_item *item;   /* NULL when idle */
    const fa_progress *tune;
    const fa_answer *answer;     /* of one that is done */
    fa_work_end end;
    const char *reason;          /* why it failed; why the worker is idle, or "" */
    const fa_worker_report *report;
    double idle_s;               /* for so long already */
} fa_worker_progress;

typedef struct fa_worker_request {
    size_t size;        /* sizeof(fa_worker_request) */
    const char *gpu;    /* catalogue name of a GPU type. Present here: measures on it; else compiles
                           for it. NULL: the device `ordinal`; without a device compiles for any */
    int32_t ordinal;
    bool once;          /* ends after one item */
    double idle_exit_s; /* ends when there was nothing to do for so long; 0: never */
    /* Called on this thread; a non-zero return stops the worker, which hands back what it holds:
     * FA_ECANCELED. */
    int (*progress)(void *context, const fa_worker_progress *progress);
    void *context;
} fa_worker_request;

/* Takes items from the fleet's queue until it is told to stop. 0: one item, with `once`; or nothing to
 * do for idle_exit_s. FA_EIO: that long, but in the end because the database did not answer. What no other item would escape (no NVRTC, a full disk…) ends it after its item
 * was handed back. *ret_report is set however it ends; it may be NULL. */
FA_API int fa_run_worker(fa_tuner *tuner, const fa_worker_request *request,
                         fa_worker_report *ret_report, fa_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
