/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of proofs under other drivers than the one that a winner was measured with.
 */
#ifndef FA_ENGINE_MARKS_H
#define FA_ENGINE_MARKS_H

#include "session.h"

/* What is known of a cubin's proof under a driver. `work` is held. */
bool fa_reproof_mark(fa_tuner *tuner, const char *cubin_key, const char *silicon,
                     int32_t driver_version, fa_verification *ret_mark);
/* Seconds for which one whose time ran out is still passed over; 0: it may be tried again. */
int64_t fa_reproof_rest_s(const fa_verification *mark);
/* Keeps a mark in the store, or in the session where the store cannot; `work` is held. */
void fa_reproof_keep(fa_tuner *tuner, const fa_scope *scope, const fa_verification *mark);

#endif
