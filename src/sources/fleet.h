/* SPDX-License-Identifier: Apache-2.0
 *
 * The fleet's store beside the local one: winners and cubins that many hosts share.
 *
 * Every lookup and every tune works on the local store. The fleet's store is asked when the local store
 * has no good enough answer, before a tune (does another host tune this key?) and after a tune (to publish
 * the result). It may disappear at any moment: then the local store answers alone, results wait in the
 * local outbox, and the next call that reaches the fleet publishes them.
 *
 * Invariants: no request fails because the fleet does not answer; a fleet that does not answer is tried
 * again after a pause only; every row from the fleet is checked before it enters the local store.
 * Thread-safety: the caller holds the tuner's `work` mutex, unless a function says otherwise.
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
    char identity[FA_STORE_PATH_MAX]; /* the store's name without user and password */
    char holder[FA_HOLDER_MAX];       /* this tuner among all: host, process and a random number */
    int32_t lease_ms;                 /* a lease expires this long after its last renewal */
    fa_store *store;                  /* NULL: not connected */
    atomic_bool reached;              /* the last try got through */
    bool noted;                       /* the user was told that it does not answer */
    fa_diag why;                      /* the reason why it does not answer */
    int32_t failures;                 /* in a row */
    uint64_t asked_ns;                /* when the current call began to wait for it */
    uint64_t retry_ns;                /* no new connection is tried before this time */
    bool working;                     /* a worker's tune: the worker publishes it under its claim */
    pthread_t worker;                 /* the worker's thread, where `working` */
    struct {                          /* keys that the fleet lately had nothing for */
        char key[FA_HASH_HEX];
        uint64_t until_ns;
    } missed[FA_FLEET_MISSES];
    int next_missed;
    void (*connected)(fa_tuner *tuner); /* after each connection that was made */
} fa_fleet;

/* ---- fleet.c --------------------------------------------------------------------------------*/
fa_fleet *fa_fleet_of(const fa_tuner *tuner); /* NULL: there is none */
/* Nothing is connected yet. location "": none, and *ret_fleet is NULL. */
int fa_fleet_new(const char *location, fa_fleet **ret_fleet, fa_diag *diag);
void fa_fleet_free(fa_fleet **fleet);
/* The fleet's store, connected if it is time to try; NULL: there is none, or it does not answer. */
fa_store *fa_fleet_store(fa_tuner *tuner);
/* Whether a call that failed with rc should be tried once more: yes after a lost connection, because the
 * second try opens a new one; no after a timeout, because the caller has waited long enough. */
bool fa_fleet_is_worth_retry(const fa_tuner *tuner, int rc);
/* Call this after a call to the fleet's store failed: disconnects when the connection is the reason, and
 * notes that once. */
void fa_fleet_failed(fa_tuner *tuner, int rc, const fa_diag *why);

/* The name under which items for a GPU are queued: the catalogue's, where it knows the GPU. */
void fa_fleet_gpu_type(const fa_gpu *gpu, char ret_name[64]);

/* Adds a scope to the local outbox, inside the transaction that stores its winner. Does nothing without
 * a fleet, and nothing in a fleet worker's tune: the worker publishes under its claim. */
int fa_fleet_remember(fa_tuner *tuner, const fa_scope *scope, fa_diag *diag);
/* Publishes a scope's winner with its cubin and trials, under a lease that is held; a scope that could not
 * be published stays in the outbox. Does nothing for a fleet worker's tune. */
void fa_fleet_publish(fa_tuner *tuner, const fa_scope *scope, const fa_source_lease *lease);
/* Publishes the outbox, for one or two seconds at most. */
void fa_fleet_catch_up(fa_tuner *tuner);
/* Publishes the scope's trials and the cubins of its fastest configs, for a winner that the fleet has. */
int fa_fleet_share_rest(fa_tuner *tuner, const fa_scope *scope, fa_diag *diag);
/* Publishes the cubins of the scope's fastest configs, or of all clean ones. Call it outside any batch:
 * hosts publish cubins in any order, so that transactions would deadlock. */
int fa_fleet_share_cubins(fa_tuner *tuner, const fa_scope *scope, bool all, fa_diag *diag);
/* Call this before a winner enters a store. A cubin's key names its source, not its bytes, and the proof
 * holds for the bytes that came with the winner. Where the store keeps other bytes under that key, the
 * winner's proof is cleared. */
void fa_fleet_void_other_proof(fa_store *store, fa_winner_record *winner,
                               const fa_cubin_record *cubin);

/* ---- fleet_pull.c ---------------------------------------------------------------------------*/
/* Copies the fleet's winner for a target, with its cubin, into the local store; where the fleet has none,
 * the nearest winners. Returns true when the local store gained a winner. now: looks for the target's own
 * winner alone, even if the fleet had nothing a moment ago. */
bool fa_fleet_pull(fa_tuner *tuner, const fa_target *target, bool now);
/* A compiled kernel by its key, for a tune that would compile it. FA_ENOTFOUND also when the fleet
 * is not connected. */
int fa_fleet_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin);

/* ---- leases (fleet_pull.c) ------------------------------------------------------------------*/
/* A thread with its own connection renews the lease after every third of its duration. */
typedef struct fa_heartbeat fa_heartbeat;
/* FA_EBUSY: the lease is lost, or the store is busy. */
typedef int fa_heartbeat_body(fa_store *store, void *context, fa_diag *diag);
int fa_heartbeat_start(const fa_fleet *fleet, fa_heartbeat_body *body, void *context,
                       fa_heartbeat **ret_heartbeat, fa_diag *diag);
void fa_heartbeat_stop(fa_heartbeat **heartbeat); /* waits for the thread; NULL is allowed */

/* The right to tune a key. */
struct fa_source_lease {
    fa_store_lease lease;
    int32_t lease_ms;
    bool held; /* false: the fleet does not answer, so nothing is leased */
    fa_heartbeat *heartbeat;
};
/* See fa_source_class. */
int fa_fleet_lease_take(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                        fa_source_lease **ret_lease, bool *ret_found, fa_answer *ret_answer,
                        fa_diag *diag);
void fa_fleet_lease_end(fa_tuner *tuner, fa_source_lease **lease);

#endif
