/* SPDX-License-Identifier: Apache-2.0
 *
 * How an item of the fleet's queue is to be tuned, which is kept with it; and the error where there is no queue.
 */
#ifndef FA_WORK_FLEET_QUEUE_H
#define FA_WORK_FLEET_QUEUE_H

#include "fa_tune.h"

typedef struct fa_queued_request {
    fa_effort effort;
    bool again, exact;
    double price; /* of a GPU's hour */
} fa_queued_request;
int fa_queued_request_read(const char *text, fa_queued_request *ret_request, fa_diag *diag);

/* FA_ESTORE, with what to set: this tuner has no queue. */
int fa_fail_without_fleet(fa_diag *diag);

#endif
