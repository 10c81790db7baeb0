/* SPDX-License-Identifier: Apache-2.0
 *
 * The runner of sweeps: takes items from a feed, tunes one after another as fa_tune() does, and accounts for time,
 * trials and money. A sweep of this host feeds it (sweep.c), or the fleet's queue (fleet_queue.c).
 */
#ifndef FA_SWEEPS_SWEEP_H
#define FA_SWEEPS_SWEEP_H

#include "fa_tune.h"
#include "store.h"

/* ---- the runner (sweep.c) ----------------------------------------------------------------------*/
/* How an item is tuned; the fleet's queue keeps it with a sweep. */
typedef struct fa_item_request {
    fa_effort effort;
    bool again, exact;
    double price; /* of a GPU's hour */
    char strategy[16]; /* of the search of its space; "": the default */
    int32_t evaluations;
    double seconds_each;
} fa_item_request;
fa_item_request fa_item_request_of(const fa_sweep_request *sweep);

typedef struct fa_runner fa_runner;

/* The tuner's `work` is held in progress() alone. */
typedef struct fa_feed {
    /* Takes the next item: sets claim and item, and `how` where it differs. FA_ENOTFOUND ends the run well. */
    int (*next)(fa_runner *runner, fa_diag *diag);
    /* Non-zero: the item is not tuned, and end() hears of it. */
    int (*begin)(fa_runner *runner, fa_diag *why);
    /* Non-zero stops the tune, which then is FA_ECANCELED. */
    int (*progress)(fa_runner *runner, const fa_progress *tune);
    /* Writes the item's end: `tuned` is 0, with the answer, or what failed, with the reason. Non-zero ends the run. */
    int (*end)(fa_runner *runner, int tuned, const fa_diag *why, fa_diag *diag);
} fa_feed;

struct fa_runner {
    const fa_feed *feed;
    fa_tuner *tuner;
    int32_t ordinal; /* of the device here */
    bool on_device;  /* items are tuned for that device, whatever GPU type they name */
    bool here;       /* the item's GPU is in this machine: its time costs money */
    fa_item_request how;
    fa_queue_claim claim;
    fa_sweep_item item; /* the one under way, or that has just ended */
    fa_sweep sweep;     /* its `spent` is added up */
    /* of the item, since the feed last wrote it to the store and set this to zero */
    fa_sweep_spent unwritten;
    fa_answer answer;
    fa_progress seen; /* what the account has seen of the tune under way */
    double accounted_s;
};

/* Until the feed has no item any more or ends the run. */
int fa_runner_run(fa_runner *runner, fa_diag *diag);
/* The request of the runner's item. */
fa_request fa_runner_request(fa_runner *runner);
/* Whether the error would make every other item fail too, or means that nobody wants the item: it goes back. */
bool fa_runner_gives_back(int rc);
double fa_runner_now_s(void); /* monotonic */

/* ---- sweep.c --------------------------------------------------------------------------------*/
/* Checks a caller's request; a shorter struct of an older version is completed with zeros. */
int fa_sweep_request_copy(const fa_sweep_request *request, fa_sweep_request *ret, fa_diag *diag);

#endif
