/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of trust: which stored winners may serve a target.
 */
#ifndef FA_ENGINE_LOOKUP_H
#define FA_ENGINE_LOOKUP_H

#include "fa_contact.h"

#include "target.h"

enum { FA_MATCHES_MAX = 24 };

/* A winner that may serve the target. */
typedef struct fa_match {
    fa_step_kind kind;
    fa_answer answer; /* for the asked problem: grid, and for a transferred one the model's time */
    fa_scope scope;   /* that it is stored under */
    double distance;  /* octaves for NEAREST, of the GPUs for TRANSFERRED */
    bool usable;      /* its config runs the asked problem on this GPU, and nothing refused it */
    char why[512];    /* why it is not */
} fa_match;

typedef struct fa_matches {
    fa_match match[FA_MATCHES_MAX]; /* in the order of trust */
    int count;
} fa_matches;

/* All matches of a target, usable or not; caller frees. `work` is held. */
int fa_matches_collect(fa_tuner *tuner, const fa_target *target, fa_matches **ret_matches,
                       fa_diag *diag);
/* Whether a lookup that may not tune can give this match as its answer. */
bool fa_match_serves(const fa_target *target, const fa_match *match);
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
/* A winner that has just been stored under the target's scope, as a lookup would answer with it. */
void fa_lookup_of_winner(fa_tuner *tuner, const fa_target *target, const fa_winner_record *winner,
                         fa_answer *ret_answer);
/* How unlike two GPUs are: 0 for the same figures; those of one major architecture come first. */
double fa_gpu_distance(const fa_gpu *a, const fa_gpu *b);

#endif
