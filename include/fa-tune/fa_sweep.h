/* SPDX-License-Identifier: Apache-2.0
 *
 * A grid of problems as one job that can be interrupted at any moment, and baselines: what others'
 * kernels take for the same problems. Part of fa_tune.h.
 *
 * A sweep's queue, budget and spending are in the store. Its items are tuned one after another, as
 * fa_tune() does; what was measured is in the store too, so that after a kill -9 the next run loses
 * at most the trial that was under way.
 */
#ifndef FA_SWEEP_H
#define FA_SWEEP_H

#include "fa_tuner.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sweeps ---------------------------------------------------------------------------------*/
enum { FA_SWEEP_ITEMS_MAX = 10000 };

typedef enum fa_sweep_event {
    FA_SWEEP_ITEM_BEGINS = 0,
    FA_SWEEP_ITEM_TUNES = 1, /* `tune` is set; at least every 100 ms */
    FA_SWEEP_ITEM_ENDS = 2,  /* done, with its answer, or failed, with its reason */
    FA_SWEEP_ITEM_KNOWN = 3  /* an earlier run has done it; these come first */
} fa_sweep_event;

typedef struct fa_sweep_progress {
    fa_sweep_event event;
    const fa_sweep *sweep; /* counts and spending as they stand */
    int32_t index;         /* of the item */
    const fa_sweep_item *item;
    const fa_progress *tune;
    const fa_answer *answer; /* of an item that is done */
    double elapsed_s;        /* of this run */
    double left_s;           /* until every item has ended; < 0: not known yet */
} fa_sweep_progress;

typedef struct fa_sweep_request {
    size_t size; /* sizeof(fa_sweep_request) */
    const fa_sweep_item *items; /* problem and gpu are read; kept until the call returns */
    int32_t count;              /* 1 to FA_SWEEP_ITEMS_MAX */
    const char *plan;           /* words for lists; may be NULL */
    int32_t ordinal;            /* of the device here */
    fa_effort effort;           /* PREDICT, MEASURE or PATIENT */
    bool again;                 /* tune items although winners are stored */
    bool restart;               /* forget an earlier run: its queue and spending, not its winners */
    fa_sweep_budget budget;
    /* Called on this thread; a non-zero return stops the sweep: FA_ECANCELED, all is kept. */
    int (*progress)(void *context, const fa_sweep_progress *progress);
    void *context;
    bool exact;                 /* these very lengths, not their buckets, as in fa_request */
    /* How each item's space is searched and what that may spend: strategy, evaluations and seconds of fa_request. The
     * string is kept until the call returns. */
    const char *strategy;
    int32_t evaluations;
    double seconds_each;
} fa_sweep_request;

/* Runs a sweep, or goes on with the one of the same items, effort, `again`, `exact` and bounds of each item's search. An item whose winner
 * is stored is done, unless `again`; one that fails keeps its reason and the others go on, and the
 * next run tries it again. Returns 0 when every item has ended or the budget is spent: *ret_sweep's
 * state and counts tell which. FA_EBUSY while another process runs this sweep. */
FA_API int fa_run_sweep(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                        fa_diag *diag);

/* The key of the sweep that this request would run. */
FA_API int fa_sweep_key(const fa_sweep_request *request, char ret_key[65], fa_diag *diag);

/* Stored sweeps, the one last worked on first, and one's items in their order. A non-zero return
 * stops and is returned. FA_ENOTFOUND: no such sweep. */
typedef int fa_sweep_visit(void *context, const fa_sweep *sweep);
FA_API int fa_list_sweeps(fa_tuner *tuner, fa_sweep_visit *visit, void *context, fa_diag *diag);
typedef int fa_sweep_item_visit(void *context, int32_t index, const fa_sweep_item *item);
FA_API int fa_list_sweep_items(fa_tuner *tuner, const char *key, fa_sweep_item_visit *visit,
                               void *context, fa_diag *diag);

FA_API const char *fa_name_of_sweep_state(fa_sweep_state state);
FA_API const char *fa_name_of_item_state(fa_item_state state);

/* ---- baselines ------------------------------------------------------------------------------*/
/* Takes a file of JSON lines into the store, all of them or none:
 *
 *   {"gpu": "H200", "peer": "pytorch-fa2", "median_us": 41.2,
 *    "problem": {"dtype": "fp16", "causal": "none", "head_dim": 64, "batch": 4, "heads_q": 8,
 *                "heads_kv": 8, "seq_q": 512, "seq_k": 512},
 *    "low_us": 41.0, "high_us": 41.5, "sample_count": 50, "unix_time": 1760000000,
 *    "source": "PyTorch 2.11"}
 *
 * The second half may be left out, and of the problem "layout", "lse" and "unaligned"; keys that are
 * not known are passed over, and so are empty lines. "dry_run": true makes a line bad: its time is made up,
 * to show the form. A line of the same problem, GPU and peer as one before it or in the store replaces that
 * one. FA_EINVAL names each bad line by its number. */
FA_API int fa_import_baselines(fa_tuner *tuner, const char *path, int32_t *ret_count,
                               fa_diag *diag);

/* Every baseline in the store. A non-zero return stops and is returned. */
typedef int fa_baseline_visit(void *context, const fa_baseline *baseline);
FA_API int fa_list_baselines(fa_tuner *tuner, fa_baseline_visit *visit, void *context,
                             fa_diag *diag);

/* Whether a baseline is for what an answer answers: the same computation on the same GPU type, under
 * any of its names. Where seq_q is seq_k both causal masks are one. */
FA_API bool fa_baseline_concerns(const fa_baseline *baseline, const fa_answer *answer);

#ifdef __cplusplus
}
#endif
#endif
