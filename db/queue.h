/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of the fleet: items of sweeps, for workers on many hosts.
 */
#ifndef FA_DB_QUEUE_H
#define FA_DB_QUEUE_H

#include "leases.h"
#include "sweeps.h"
#include "winners.h"

/* A host without a GPU compiles an item's space into the store; one with a GPU compiles what is
 * missing and measures. Compiling first is never needed. */
typedef enum fa_queue_stage { FA_STAGE_COMPILE = 0, FA_STAGE_MEASURE = 1 } fa_queue_stage;
enum { FA_QUEUE_REQUEST_MAX = 1024, FA_QUEUE_GPUS_MAX = 8 };

/* As fa_store_sweep_enter(), for any worker of the fleet to take from. Every item names its GPU
 * type. request: text for the workers, how the items are to be tuned, at most
 * FA_QUEUE_REQUEST_MAX - 1 bytes. Items under a live claim stay with it. Wakes who waits. */
int fa_store_queue_enter(fa_store *store, const fa_sweep *sweep, const fa_sweep_item *items,
                         int32_t count, bool restart, const char *request, int64_t *ret_id,
                         fa_diag *diag);

/* An item taken. Whoever takes it later gets a higher fence, and what is said under a lower one is
 * refused with FA_EBUSY. Ends that are refused, but not given-back items, are counted in the sweep.
 * Whoever did not hear the answer may say an end again: it counts once. */
typedef struct fa_queue_claim {
    fa_store_claim item;
    fa_queue_stage stage;
    bool compiled; /* some host has compiled its space already */
    char holder[FA_HOLDER_MAX];
    char request[FA_QUEUE_REQUEST_MAX];
} fa_queue_claim;
/* An item of one of these GPU types (up to FA_QUEUE_GPUS_MAX; none: of any) that is pending, or
 * whose claim has run out, of a sweep that is running; the earliest sweep's first. To measure,
 * those compiled come first; to compile, only those that are not. FA_ENOTFOUND, without a
 * sentence, when there is none. */
int fa_store_queue_claim(fa_store *store, const char *const *gpus, size_t gpu_count,
                         fa_queue_stage stage, const char *holder, int64_t lease_ms,
                         fa_queue_claim *ret_claim, fa_sweep_item *ret_item, fa_diag *diag);
int fa_store_queue_renew(fa_store *store, const fa_queue_claim *claim, int64_t lease_ms,
                         fa_diag *diag);
/* Ends of a claim; each adds what was spent (may be NULL) to item and sweep, closes a sweep that is
 * done or has spent its budget, and wakes who waits.
 * publish: winner, cubin (may be NULL when stored) and "done" in one transaction. */
int fa_store_queue_publish(fa_store *store, const fa_queue_claim *claim,
                           const fa_winner_record *winner, const fa_cubin_record *cubin,
                           const fa_sweep_spent *spent, bool *ret_kept, fa_diag *diag);
/* Its cubins are in the store: pending again, for those who measure. */
int fa_store_queue_compiled(fa_store *store, const fa_queue_claim *claim,
                            const fa_sweep_spent *spent, fa_diag *diag);
int fa_store_queue_fail(fa_store *store, const fa_queue_claim *claim, const char *reason,
                        const fa_sweep_spent *spent, fa_diag *diag);
/* Pending again, for anybody. */
int fa_store_queue_give_back(fa_store *store, const fa_queue_claim *claim,
                             const fa_sweep_spent *spent, fa_diag *diag);

extern const char *const fa_db_stage_names[]; /* as they are stored, by fa_queue_stage */

#endif
