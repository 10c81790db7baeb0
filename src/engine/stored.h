/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners and cubins as lookups see them, stored winners as answers, and what lists and reports read.
 */
#ifndef FA_ENGINE_STORED_H
#define FA_ENGINE_STORED_H

#include "fa_tune.h"
#include "store.h"
#include "request.h"

/* A stored winner as an answer; gpu NULL: of no GPU in particular. 0 or FA_ENOMEM. */
__attribute__((warn_unused_result)) int fa_records_answer(const fa_winner_record *winner,
                                                          const fa_gpu *gpu, fa_answer *ret_answer,
                                                          fa_diag *diag);
/* {"gpu":…,"uuid":…,"driver":…,"nvrtc":…,"library":…}: where trials were made. Caller frees. */
char *fa_records_environment(const fa_gpu *gpu, int driver_version, const char *nvrtc,
                             int32_t contents);
int32_t fa_records_contents(const char *environment); /* of the inputs, fa_spec_contents() */
/* The driver and the NVRTC that an environment names; false: not both. */
bool fa_records_tools(const char *environment, int32_t *ret_driver, char *ret_nvrtc, size_t size);
/* Whether an environment names this NVRTC, and this driver too unless driver_version is 0. */
bool fa_records_same_tools(const char *environment, int driver_version, const char *nvrtc);
/* The counts, times and ties of an answer as a winner's evidence. Caller frees. */
char *fa_records_evidence(const fa_answer *answer);

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

/* ---- lists ----------------------------------------------------------------------------------*/
/* Every winner of the shared store, newest first, then those of the local one whose scopes the shared
 * one has not; without a shared store the local ones. `work` is held. A non-zero return stops and is returned. */
typedef int fa_listed_winner_visit(void *context, fa_store *store, const fa_winner_record *winner);
int fa_listed_winners_each(fa_tuner *tuner, fa_listed_winner_visit *visit, void *context,
                           fa_diag *diag);
/* A scope's winner as these lists have it. FA_ENOTFOUND, FA_ECORRUPT. */
int fa_listed_winner(fa_tuner *tuner, const fa_scope *scope, fa_winner_record *ret_winner,
                     fa_diag *diag);
/* The same of scopes. */
int fa_listed_scopes_each(fa_tuner *tuner, fa_scope_visit *visit, void *context, fa_diag *diag);

#endif
