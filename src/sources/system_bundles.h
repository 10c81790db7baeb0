/* SPDX-License-Identifier: Apache-2.0
 *
 * System bundles: read where they lie, after the user's own store has said that it has nothing.
 */
#ifndef FA_SOURCES_SYSTEM_BUNDLES_H
#define FA_SOURCES_SYSTEM_BUNDLES_H

#include "source.h"

typedef struct fa_system fa_system;

/* For fa_open. */
int fa_system_make(fa_tuner *tuner, fa_source **ret_source, fa_diag *diag);

/* Without a session. A bundle that is damaged or not to be believed is noted and passed over. NULL: out
 * of memory. */
fa_system *fa_system_new(void (*note)(void *context, const char *sentence), void *context);
void fa_system_free(fa_system **system);
/* Adds their winners of fa_bundle_winners_like(), each with its origin here. */
void fa_system_list(fa_system *system, const fa_problem *like, fa_list *list);

#endif
