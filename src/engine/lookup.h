/* SPDX-License-Identifier: Apache-2.0
 *
 * Which stored winners may serve a target, in the order of trust, and which of the loaded kernels.
 */
#ifndef FA_ENGINE_LOOKUP_H
#define FA_ENGINE_LOOKUP_H

#include "match.h"

enum { FA_MATCHES_MAX = 24 };

typedef struct fa_matches {
    fa_match match[FA_MATCHES_MAX]; /* in the order of trust */
    int count;
} fa_matches;

/* What a lookup is to do besides: nothing of it where the flag is not set. */
enum {
    FA_LOOK_CUBIN = 1, /* read the answer's cubin */
    FA_LOOK_HOSTS =
        2 /* where nobody has timed the very thing here, look into other hosts' stores first */
};

typedef struct fa_lookup {
    fa_answer answer;      /* of the first match that serves */
    fa_scope scope;        /* that it is stored under */
    fa_cubin_record cubin; /* with FA_LOOK_CUBIN */
    fa_matches
        *matches; /* NULL: a winner of the problem's own serves, and no other was looked for */
} fa_lookup;

/* Looks the target up. *ret_found is set whatever is returned, for fa_lookup_free(). FA_ENOTFOUND: nothing serves;
 * FA_ECORRUPT: nothing, and a cubin is gone. `work` is held. */
int fa_look(fa_tuner *tuner, const fa_target *target, unsigned flags, fa_lookup *ret_found,
            fa_diag *diag);
void fa_lookup_free(fa_lookup *found);
/* All matches of a target, usable or not; caller frees. `work` is held. */
int fa_matches_collect(fa_tuner *tuner, const fa_target *target, fa_matches **ret_matches,
                       fa_diag *diag);

/* The loaded kernel that is nearest to the target's asked problem and right for it, as an answer for that problem whose cubin
 * is loaded in the context. It was proved on this silicon, is made of a source that the two problems share, and is
 * launched as its family computes for the asked one. FA_ENOTFOUND: none is. Reads no store; `work` is held. */
int fa_look_among_loaded(fa_tuner *tuner, const fa_target *target, uint64_t context,
                         fa_answer *ret_answer, fa_diag *diag);

#endif
