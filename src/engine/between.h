/* SPDX-License-Identifier: Apache-2.0
 *
 * Lengths between buckets: which of a bucket's configs to take there.
 */
#ifndef FA_ENGINE_BETWEEN_H
#define FA_ENGINE_BETWEEN_H

#include "session.h"

#include "hash.h"

enum { FA_ALTERNATIVES_MAX = 16 };

/* A config that was tried at a bucket and promises more than the bucket's winner at other lengths. */
typedef struct fa_alternative {
    fa_trial trial; /* as on record, with the grid for those lengths */
    char cubin_key[FA_HASH_HEX];
    char entry[FA_NAME_MAX];
    char nvrtc[256];
    int32_t driver_version; /* it was proved under; 0: predicted */
    double us;              /* what it would take there */
} fa_alternative;

typedef struct fa_alternatives {
    fa_alternative alternative[FA_ALTERNATIVES_MAX]; /* the fastest first */
    int count;
    double winner_us; /* what the bucket's winner would take there */
} fa_alternatives;

/* Those of the winner of `bucket` on a GPU for the asked lengths; none where the store has no trials
 * beside the winner's. `work` is held; caller frees. */
int fa_alternatives_find(fa_tuner *tuner, const fa_scope *bucket, const fa_trial *winner,
                         const fa_problem *asked, const fa_gpu *gpu,
                         fa_alternatives **ret_alternatives, fa_diag *diag);

#endif
