/* SPDX-License-Identifier: Apache-2.0
 *
 * Which stored winners may serve a target, in the order of trust, and which of the loaded kernels; and the proof that a
 * winner gets once more under another driver, and somebody else's winner before it is launched.
 */
#ifndef FA_ENGINE_LOOKUP_H
#define FA_ENGINE_LOOKUP_H

#include "fa_contact.h"
#include "hash.h"
#include "request.h"
#include "session.h"

/* ---- match.c ---------------------------------------------------------------------------------*/
/* One stored winner, judged for a target: whether it runs there, its notes, its proof under this driver, and whether
 * another config of its bucket is predicted to be faster. */

/* The mark that an earlier proof of the cubin under this driver left; false: there is none. `work` is held. */
bool fa_reproof_mark(fa_tuner *tuner, const char *cubin_key, const char *silicon,
                     int32_t driver_version, fa_verification *ret_mark);
/* Keeps a mark in the store; in the session where the store cannot be written, or where it is no verdict: then a proof ran
 * out of time, and the next session tries again. `work` is held. */
void fa_reproof_keep(fa_tuner *tuner, const fa_scope *scope, const fa_verification *mark,
                     bool verdict);

/* A winner that may serve the target. */
typedef struct fa_match {
    fa_step_kind kind;
    fa_answer answer; /* for the asked problem: grid, and for a transferred one the model's time */
    fa_scope scope;   /* where it is stored */
    double distance;  /* octaves for NEAREST, of the GPUs for TRANSFERRED */
    bool usable;      /* its config runs the asked problem on this GPU, and no check refused it */
    char why[512];    /* why it is not usable */
    int rc; /* FA_ENOMEM or FA_EIO: it could not be judged, which says nothing about the match */
} fa_match;

/* Whether a lookup that does not tune may answer with this match. */
bool fa_match_serves(const fa_target *target, const fa_match *match);
/* Completes a match whose kind and stored answer are set. Computes its geometry for the asked problem, or why it is not
 * usable, and its notes; takes another config of the bucket if that is predicted to be faster at the asked lengths, with
 * its cubin when ret_cubin is not NULL; and applies what an earlier proof under this driver found. */
void fa_match_judge(fa_tuner *tuner, const fa_target *target, fa_match *match,
                    fa_cubin_record *ret_cubin);
/* The same for a winner of the target's silicon; sets its kind, which follows from the answer. */
void fa_match_judge_own(fa_tuner *tuner, const fa_target *target, fa_match *match,
                        fa_cubin_record *ret_cubin);
/* Computes geometry and notes alone, for a winner whose cubin is loaded; reads no store. */
void fa_match_judge_loaded(fa_tuner *tuner, const fa_target *target, fa_match *match);
/* Sets the predicted time of an untimed answer to that of the asked lengths; as stored it is the bucket's. */
void fa_match_predict(fa_tuner *tuner, const fa_target *target, fa_answer *answer);
/* The answer that a lookup would give for a winner that has just been stored under the target's scope. */
int fa_lookup_of_winner(fa_tuner *tuner, const fa_target *target, const fa_winner_record *winner,
                        fa_answer *ret_answer, fa_diag *diag);

/* ---- lookup.c --------------------------------------------------------------------------------*/
enum { FA_MATCHES_MAX = 14 };

typedef struct fa_matches {
    fa_match match[FA_MATCHES_MAX]; /* in the order of trust */
    int count;
} fa_matches;

/* What a lookup does in addition. */
enum {
    FA_LOOK_CUBIN = 1 /* read the answer's cubin */
};

typedef struct fa_lookup {
    fa_answer answer;      /* of the first match that serves */
    fa_scope scope;        /* where it is stored */
    fa_cubin_record cubin; /* with FA_LOOK_CUBIN */
    /* NULL: the problem has a winner of its own, and the others were not read */
    fa_matches *matches;
} fa_lookup;

/* Looks the target up. *ret_found is always set, for fa_lookup_free(). FA_ENOTFOUND: no winner serves; FA_ECORRUPT: no
 * winner serves because a cubin is missing. `work` is held. */
int fa_look(fa_tuner *tuner, const fa_target *target, unsigned flags, fa_lookup *ret_found,
            fa_diag *diag);
void fa_lookup_free(fa_lookup *found);
/* All matches of a target, usable or not; caller frees. `work` is held. */
int fa_matches_collect(fa_tuner *tuner, const fa_target *target, fa_matches **ret_matches,
                       fa_diag *diag);

/* Answers with the loaded kernel of the problem that is nearest to the asked one. The kernel was proved on this silicon, its
 * source is the same for both problems, its cubin is loaded in the context, and it is launched as its family computes for
 * the asked problem. FA_ENOTFOUND: no kernel is. Reads no store; `work` is held. */
int fa_look_among_loaded(fa_tuner *tuner, const fa_target *target, uint64_t context,
                         fa_answer *ret_answer, fa_diag *diag);

/* ---- reproof.c -------------------------------------------------------------------------------*/
/* Proves a found winner again in a worker, because it was proved under another driver; updates the mark and the stored
 * winner. On success the answer and cubin of `found` may be launched. FA_ENOKERNEL: the proof failed and the winner is
 * dropped; FA_ETIMEOUT: the proof ran out of time, and this session passes the winner over; a note says so in both
 * cases. After any other error the next lookup finds it again. FA_EBUSY: effort is CACHED, which waits only shortly, and
 * another process measures on this GPU. `work` is held. */
int fa_reproof_verify(fa_tuner *tuner, const fa_target *target, fa_effort effort, fa_lookup *found,
                      fa_diag *diag);
/* Whether an answer from elsewhere is for the kernel that the templates here render for its config, with the same launch:
 * its parameters then mean the same here. `work` is held. */
bool fa_reproof_is_ours(fa_tuner *tuner, const fa_target *target, const fa_answer *answer);
/* Proves a cubin from elsewhere in a worker, launched as its answer says; stores nothing. FA_ENOKERNEL: the proof failed;
 * FA_ETIMEOUT, FA_EBUSY: as above. `work` is held. */
int fa_reproof_prove(fa_tuner *tuner, const fa_target *target, fa_effort effort,
                     const fa_answer *answer, const fa_cubin_record *cubin, fa_diag *diag);

#endif
