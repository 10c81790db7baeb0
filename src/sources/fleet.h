/* SPDX-License-Identifier: Apache-2.0
 *
 * The fleet's store beside the local one: winners and cubins that many hosts share.
 *
 * The local store stays what every lookup and every tune works on. The fleet's is asked when the
 * local one has no good enough answer, before a tune (is somebody at it?) and after one (here is the
 * result). It may be gone at any moment: then the local store is all there is, what was to be
 * published waits in the local outbox, and the next call that gets through publishes it.
 *
 * Invariants: nothing here fails a request because the fleet does not answer; one that does not is
 * tried again after a while only; what comes from it is checked before it enters the local store.
 * Thread-safety: as the tuner's `work` mutex, which every function here takes as held, unless it says
 * otherwise.
 */
#ifndef FA_SOURCES_FLEET_H
#define FA_SOURCES_FLEET_H

#include "hash.h"
#include "store.h"
#include "source.h"

enum { FA_FLEET_MISSES = 64 };

typedef struct fa_fleet {
    fa_source source;
    char location[FA_STORE_PATH_MAX]; /* as fa_store_open takes it; may hold a password */
    char shown[FA_STORE_PATH_MAX];    /* without one */
    char identity[FA_STORE_PATH_MAX]; /* which store it is, whoever asks: no user and no password */
    char holder[FA_HOLDER_MAX];       /* this tuner among all: host, process and a random number */
    int32_t lease_ms;                 /* after so long without a sign of life it is given up */
    fa_store *store;                  /* NULL: not connected */
    atomic_bool reached;              /* the last try got through */
    bool noted;                       /* that it does not answer */
    fa_diag why;                      /* it does not */
    int32_t failures;                 /* in a row */
    uint64_t asked_ns;                /* since when the present call waits for it */
    uint64_t retry_ns;                /* not before */
    bool working;                     /* a worker's tune: the worker publishes it under its claim */
    pthread_t worker;                 /* the worker's thread, where `working` */
    struct {                          /* of which it knew nothing a moment ago */
        char key[FA_HASH_HEX];
        uint64_t until_ns;
    } missed[FA_FLEET_MISSES];
    int next_missed;
    void (*connected)(fa_tuner *tuner); /* after each connection that was made */
} fa_fleet;

/* ---- fleet_address.c ------------------------------------------------------------------------*/
/* Sets location, shown and identity. */
int fa_fleet_address(fa_fleet *fleet, const char *location, fa_diag *diag);

/* ---- fleet.c --------------------------------------------------------------------------------*/
/* For fa_open. */
int fa_fleet_make(fa_tuner *tuner, const fa_options *options, fa_source **ret_source,
                  fa_diag *diag);
fa_fleet *fa_fleet_of(const fa_tuner *tuner); /* NULL: there is none */
/* Whether the calling thread is a worker with an item. */
bool fa_fleet_is_worker(const fa_fleet *fleet);
/* Nothing is connected yet. location "": none, and *ret_fleet is NULL. */
int fa_fleet_new(const char *location, fa_fleet **ret_fleet, fa_diag *diag);
void fa_fleet_free(fa_fleet **fleet);
/* The fleet's store, connected if it is time to try; NULL: there is none, or it does not answer. */
fa_store *fa_fleet_store(fa_tuner *tuner);
/* Whether a call that failed so is worth a second try: the connection was lost, and that makes a new
 * one. A server that says nothing has kept the caller waiting for long enough. */
bool fa_fleet_is_worth_retry(const fa_tuner *tuner, int rc);
/* After a call of the fleet's store failed: lets go of it when that is why, and tells so once. */
void fa_fleet_failed(fa_tuner *tuner, int rc, const fa_diag *why);

/* The name under which items for a GPU are queued: the catalogue's, where it knows the GPU. */
void fa_fleet_gpu_type(const fa_gpu *gpu, char ret_name[64]);

/* ---- fleet_pull.c ---------------------------------------------------------------------------*/
/* Copies into the local store what the fleet has for a target: its own winner with its cubin, else
 * the nearest ones. True when the local store has more than before. now: its own alone, also when
 * the fleet had nothing a moment ago. */
bool fa_fleet_pull(fa_tuner *tuner, const fa_target *target, bool now);
/* For a winner that goes into a store. A key is of what a cubin was compiled from and says nothing
 * about its bytes: the proof is of those that the winner comes with, and where the store has others,
 * which stay, nothing is proved. */
void fa_fleet_void_other_proof(fa_store *store, fa_winner_record *winner, const fa_cubin_record *cubin);
/* A compiled kernel by its key, for a tune that would compile it. FA_ENOTFOUND also when the fleet
 * is not connected. */
int fa_fleet_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin);

/* ---- fleet_lease.c --------------------------------------------------------------------------*/
/* Signs of life from a thread with a connection of its own, every third of the lease. */
typedef struct fa_heartbeat fa_heartbeat;
/* FA_EBUSY: what was held is lost, or the store has no time. */
typedef int fa_heartbeat_body(fa_store *store, void *context, fa_diag *diag);
int fa_heartbeat_start(const fa_fleet *fleet, fa_heartbeat_body *body, void *context,
                       fa_heartbeat **ret_heartbeat, fa_diag *diag);
void fa_heartbeat_stop(fa_heartbeat **heartbeat); /* waits for the thread; NULL is allowed */

/* The right to tune a key. */
struct fa_source_lease {
    fa_store_lease lease;
    int32_t lease_ms;
    bool held; /* false: the fleet does not answer, and there is nobody to ask */
    fa_heartbeat *heartbeat;
};
/* As fa_source_class tells. */
int fa_fleet_lease_take(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                        bool again, fa_source_lease **ret_lease, bool *ret_found,
                        fa_answer *ret_answer, fa_diag *diag);
void fa_fleet_lease_end(fa_tuner *tuner, fa_source_lease **lease);

/* ---- fleet_publish.c ------------------------------------------------------------------------*/
/* Remembers in the local store that a scope's winner is to be published; inside the transaction that
 * stores it. Nothing without a fleet, nor in a worker's tune, which goes out under its claim. */
int fa_fleet_remember(fa_tuner *tuner, const fa_scope *scope, fa_diag *diag);
/* Publishes a scope's winner with its cubin and trials, under a lease that is held; what could not be
 * published stays remembered. A worker's tune is left to the worker. */
void fa_fleet_publish(fa_tuner *tuner, const fa_scope *scope, const fa_source_lease *lease);
/* Publishes what is remembered, for a second or two at the most. */
void fa_fleet_catch_up(fa_tuner *tuner);
/* The scope's trials: inside a batch of the fleet's store. */
int fa_fleet_share_trials(fa_tuner *tuner, const fa_scope *scope, fa_diag *diag);
/* The cubins that others will want: of its fastest, or of all that are clean. Outside any batch: hosts
 * share cubins of one source in any order, and would wait for one another in a ring. */
int fa_fleet_share_cubins(fa_tuner *tuner, const fa_scope *scope, bool all, fa_diag *diag);

#endif
