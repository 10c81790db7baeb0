/* SPDX-License-Identifier: Apache-2.0
 *
 * What lists and reports read: the shared store, and of the local one what the shared one lacks.
 */
#ifndef FA_ENGINE_LISTING_H
#define FA_ENGINE_LISTING_H

#include "session.h"

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
