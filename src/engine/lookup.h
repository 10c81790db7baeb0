/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of trust: which stored winners may serve a target.
 */
#ifndef FA_ENGINE_LOOKUP_H
#define FA_ENGINE_LOOKUP_H

#include "match.h"

enum { FA_MATCHES_MAX = 24 };

typedef struct fa_matches {
    fa_match match[FA_MATCHES_MAX]; /* in the order of trust */
    int count;
} fa_matches;

/* All matches of a target, usable or not; caller frees. `work` is held. */
int fa_matches_collect(fa_tuner *tuner, const fa_target *target, fa_matches **ret_matches,
                       fa_diag *diag);
/* The first match that serves, with its cubin when ret_cubin is not NULL and the scope that it is
 * stored under when ret_scope is not. FA_ENOTFOUND: none; FA_ECORRUPT: none, and a cubin is gone.
 * ret_matches, where it is not NULL: the matches where they had to be collected, which the caller frees. */
int fa_matches_find(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                    fa_cubin_record *ret_cubin, fa_scope *ret_scope, fa_matches **ret_matches,
                    fa_diag *diag);
/* The same; where nobody has timed the very thing here, the stores of other hosts are looked into
 * first. exact: the bucket's is not enough. */
int fa_lookup(fa_tuner *tuner, const fa_target *target, bool exact, fa_answer *ret_answer,
              fa_cubin_record *ret_cubin, fa_scope *ret_scope, fa_diag *diag);

#endif
