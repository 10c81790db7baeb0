/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources of winners besides the local store: system bundles, a store that many hosts share, a service. The engine knows
 * them by this table alone; fa_open lists them in the order in which they are asked.
 */
#ifndef FA_ENGINE_SOURCE_H
#define FA_ENGINE_SOURCE_H

#include "request.h"

/* Not an error: the source cannot be used (a note has said so) or has no answer. */
enum { FA_SOURCE_NONE = 1 };

/* The right to tune a key, which one tuner among all hosts has; its content is the source's own. */
typedef struct fa_source_lease fa_source_lease;

struct fa_source;

/* A source sets the functions that it has, and leaves the others NULL. */
typedef struct fa_source_class {
    void (*close)(struct fa_source *source);

    /* A source that answers in this machine's place; `work` is not held. Each returns 0,
     * FA_SOURCE_NONE or the request's own failure. */
    int (*tune)(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag);
    int (*answer_cubin)(fa_tuner *tuner, const char *key, void **ret_bytes, size_t *ret_size,
                        fa_diag *diag);
    /* For a device that is here: an answer for its architecture, driver and effort, with its cubin. */
    int (*kernel)(fa_tuner *tuner, const fa_target *target, const fa_problem *problem,
                  fa_effort effort, fa_answer *ret_answer, fa_cubin_record *ret_cubin,
                  fa_diag *diag);
    bool (*believed)(const fa_tuner *tuner);          /* whether its measurements are trusted */
    int (*give_up)(fa_tuner *tuner, const char *why); /* for a while; FA_SOURCE_NONE */

    /* Winners beside the local store's; `work` is held for these and all that follow. */
    int (*find)(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                fa_cubin_record *ret_cubin);
    int (*each)(fa_tuner *tuner, const fa_problem *like, fa_winner_visit *visit, void *context);
    int (*cubin)(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin);

    /* A store that many hosts share. look: brings what it has for a target into the local store, and
     * tells whether there is more than before. */
    bool (*look)(fa_tuner *tuner, const fa_target *target);
    int (*fetch_cubin)(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin);
    fa_store *(*store)(fa_tuner *tuner); /* NULL: it does not answer */
    void (*store_failed)(fa_tuner *tuner, int rc, const fa_diag *why);
    const char *(*location)(const fa_tuner *tuner); /* NULL: not reached */
    /* Waits for the lease of a target's key; *ret_lease is NULL if the source does not answer.
     * *ret_found: meanwhile another host has made what the request asks for. FA_ECANCELED. */
    int (*lease_take)(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                      fa_source_lease **ret_lease, bool *ret_found, fa_answer *ret_answer,
                      fa_diag *diag);
    void (*lease_end)(fa_tuner *tuner, fa_source_lease **lease); /* *lease may be NULL */
    /* Inside the transaction that stores a scope's winner; and after the tune. */
    int (*remember)(fa_tuner *tuner, const fa_scope *scope, fa_diag *diag);
    void (*publish)(fa_tuner *tuner, const fa_scope *scope, const fa_source_lease *lease);
} fa_source_class;

/* The first member of a source's own state; `id` is an address that no other kind of source has. */
typedef struct fa_source {
    const fa_source_class *is;
    const void *id;
} fa_source;

void fa_source_add(fa_tuner *tuner, fa_source *source);
/* The source of this kind; NULL: none. */
fa_source *fa_source_of(const fa_tuner *tuner, const void *id);

/* Each asks the sources in their order until one has an answer: FA_SOURCE_NONE when none has. */
int fa_sources_tune(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer,
                    fa_diag *diag);
int fa_sources_answer_cubin(fa_tuner *tuner, const char *key, void **ret_bytes, size_t *ret_size,
                            fa_diag *diag);
/* The same for what is beside the local store: FA_ENOTFOUND when none has it. */
int fa_sources_find(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                    fa_cubin_record *ret_cubin);
int fa_sources_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin);
int fa_sources_fetch_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin);
/* All winners; a non-zero return of visit stops and is returned. */
int fa_sources_each(fa_tuner *tuner, const fa_problem *like, fa_winner_visit *visit, void *context);

bool fa_sources_share(const fa_tuner *tuner); /* whether one shares a store with other hosts */
bool fa_sources_look(fa_tuner *tuner, const fa_target *target);
/* The shared store, with the class whose store_failed is to hear of failures; NULL: none. */
fa_store *fa_sources_store(fa_tuner *tuner, const fa_source_class **ret_class);
const char *fa_sources_location(
    const fa_tuner *tuner); /* of the shared store; NULL: none reached */

typedef struct fa_source_leases {
    fa_source_lease *of[FA_SOURCES_MAX];
} fa_source_leases;
int fa_sources_lease_take(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                          fa_source_leases *leases, bool *ret_found, fa_answer *ret_answer,
                          fa_diag *diag);
void fa_sources_lease_end(fa_tuner *tuner, fa_source_leases *leases);
int fa_sources_remember(fa_tuner *tuner, const fa_scope *scope, fa_diag *diag);
void fa_sources_publish(fa_tuner *tuner, const fa_scope *scope, const fa_source_leases *leases);

#endif
