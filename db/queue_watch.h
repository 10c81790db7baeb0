/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking at the queue of the fleet: how far it is, and who holds what.
 */
#ifndef FA_DB_QUEUE_WATCH_H
#define FA_DB_QUEUE_WATCH_H

#include "queue.h"

typedef struct fa_queue_counts {
    int64_t pending, running, done, failed; /* items */
    int64_t expired;                        /* of those running: their claim has run out */
    int64_t compiled;                       /* of those not yet ended */
    int64_t refused;                        /* ends of claims that had been lost */
} fa_queue_counts;
/* Of one sweep, or of all that were entered for the fleet (id 0). */
int fa_store_queue_counts(fa_store *store, int64_t id, fa_queue_counts *ret_counts, fa_diag *diag);

/* Who holds which item of a sweep. */
typedef struct fa_queue_holder {
    int32_t position;
    fa_sweep_item item;
    fa_queue_stage stage;
    char holder[FA_HOLDER_MAX];
    int64_t left_ms; /* of its claim; not above 0: it has run out */
} fa_queue_holder;
/* In the order of items. A non-zero return stops and is returned. */
typedef int fa_queue_holder_visit(void *context, const fa_queue_holder *holder);
int fa_store_queue_holders_each(fa_store *store, int64_t id, fa_queue_holder_visit *visit,
                                void *context, fa_diag *diag);

#endif
