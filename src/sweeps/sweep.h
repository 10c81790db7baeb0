/* SPDX-License-Identifier: Apache-2.0
 *
 * What sweeps and the fleet's workers share.
 */
#ifndef FA_WORK_SWEEP_H
#define FA_WORK_SWEEP_H

#include "fa_tune.h"

/* ---- sweep.c --------------------------------------------------------------------------------*/
/* Checks a caller's request; a shorter struct of an older version is completed with zeros. */
int fa_sweep_request_copy(const fa_sweep_request *request, fa_sweep_request *ret, fa_diag *diag);
/* Whether the error would make every other item fail too. */
bool fa_sweep_is_fatal(int rc);
/* What an event of a tune adds to the account. *seen holds the tune's counts at the event before and
 * begins as zeros. */
fa_sweep_spent fa_spent_of_event(fa_progress *seen, const fa_progress *tune);

/* ---- fleet_queue.c --------------------------------------------------------------------------*/
/* How an item of the fleet's queue is to be tuned, which is kept with it. */
typedef struct fa_queued_request {
    fa_effort effort;
    bool again, exact;
    double price; /* of a GPU's hour */
    char strategy[16]; /* of the search of its space; "": the default */
    int32_t evaluations;
    double seconds_each;
} fa_queued_request;
int fa_queued_request_read(const char *text, fa_queued_request *ret_request, fa_diag *diag);

/* FA_ESTORE, with what to set: this tuner has no queue. */
int fa_fail_without_fleet(fa_diag *diag);

#endif
