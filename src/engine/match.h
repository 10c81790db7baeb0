/* SPDX-License-Identifier: Apache-2.0
 *
 * One stored winner, seen from a target: whether it runs there, what is said of it, and whether another
 * config of its bucket promises more.
 */
#ifndef FA_ENGINE_MATCH_H
#define FA_ENGINE_MATCH_H

#include "fa_contact.h"

#include "target.h"

/* A winner that may serve the target. */
typedef struct fa_match {
    fa_step_kind kind;
    fa_answer answer; /* for the asked problem: grid, and for a transferred one the model's time */
    fa_scope scope;   /* that it is stored under */
    double distance;  /* octaves for NEAREST, of the GPUs for TRANSFERRED */
    bool usable;      /* its config runs the asked problem on this GPU, and nothing refused it */
    char why[512];    /* why it is not */
    int rc; /* FA_ENOMEM or FA_EIO: that kept it from being known, and is no fault of the match */
} fa_match;

/* Whether a lookup that may not tune can give this match as its answer. */
bool fa_match_serves(const fa_target *target, const fa_match *match);
/* Geometry of the config for the asked problem on this GPU; a match that was stored for just that keeps
 * its own and costs nothing. */
void fa_match_fit(fa_tuner *tuner, const fa_target *target, fa_match *match);
/* The answer's origin and its sentence, once it is known what is asked. */
void fa_match_explain(const fa_target *target, fa_match *match);
/* Takes another of the bucket's configs where that promises more at the asked lengths, with its cubin
 * when ret_cubin is not NULL, and says so. What keeps it from being taken leaves the match as it is. */
void fa_match_refine(fa_tuner *tuner, const fa_target *target, fa_match *match,
                     fa_cubin_record *ret_cubin);
/* What this driver is known to make of a cubin that another one proved. */
void fa_match_apply_verification(fa_tuner *tuner, const fa_target *target, fa_match *match);
/* All of the above for a winner of the target's own silicon, once its answer is known. */
void fa_match_judge_own(fa_tuner *tuner, const fa_target *target, fa_match *match,
                        fa_cubin_record *ret_cubin);
/* The model's time of an untimed answer for the asked lengths, where its own is for its bucket's. */
void fa_match_predict(fa_tuner *tuner, const fa_target *target, fa_answer *answer);
/* A winner that has just been stored under the target's scope, as a lookup would answer with it. */
int fa_lookup_of_winner(fa_tuner *tuner, const fa_target *target, const fa_winner_record *winner,
                        fa_answer *ret_answer, fa_diag *diag);
/* How unlike two GPUs are: 0 for the same figures; those of one major architecture come first. */
double fa_gpu_distance(const fa_gpu *a, const fa_gpu *b);

#endif
