/* SPDX-License-Identifier: Apache-2.0
 *
 * System bundles.
 */
#ifndef FA_ENGINE_SYSTEM_BUNDLES_H
#define FA_ENGINE_SYSTEM_BUNDLES_H

#include "target.h"

/* `work` is held for each. The winner of a target, when a system bundle has one: FA_ENOTFOUND else;
 * a bundle that is damaged or not to be believed is noted and passed over. */
int fa_system_lookup(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                     fa_cubin_record *ret_cubin);
/* Bytes and key only: what reads them gates or checks them. */
int fa_system_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin);
/* Every winner, with its origin here; where `like` is given, those that somebody has timed for a
 * problem of its shape, whatever the lengths. A non-zero return stops and is returned. */
int fa_system_each(fa_tuner *tuner, const fa_problem *like, fa_winner_visit *visit, void *context);
void fa_system_close(fa_tuner *tuner);

#endif
