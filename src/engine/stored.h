/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners and cubins as lookups see them: the local store first, then system bundles.
 */
#ifndef FA_ENGINE_STORED_H
#define FA_ENGINE_STORED_H

#include "store.h"
#include "target.h"

/* The stored winner of a target's scope as an answer, with its cubin when ret_cubin is not NULL.
 * FA_ENOTFOUND when there is none. */
int fa_records_lookup(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                      fa_cubin_record *ret_cubin, fa_diag *diag);
/* Winners of any GPU for problems that differ from the target's in their lengths at most. */
int fa_records_like(fa_tuner *tuner, const fa_target *target, fa_winner_visit *visit, void *context,
                    fa_diag *diag);
/* A cubin by key: the store's, else a system bundle's. */
int fa_records_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin, fa_diag *diag);
/* Whether there is one; the store's bytes are not compared with their hash. */
bool fa_records_has_cubin(fa_tuner *tuner, const char *key);
/* 0 when a store's winner of a scope is made of this cubin; FA_ENOTFOUND when it is not, or there is none. */
int fa_records_hold(fa_store *store, const fa_scope *scope, const char *cubin_key, fa_diag *diag);
/* Sets in_local and in_fleet of an answer whose winner is stored under `scope`. ask: connects to the shared store
 * where it is not connected. */
void fa_records_place(fa_tuner *tuner, const fa_scope *scope, bool ask, fa_answer *answer);

#endif
