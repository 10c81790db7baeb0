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
/* One stored winner: whether it runs for a target, what is said of it, what is known of its proof under this driver, and
 * whether another config of its bucket promises more. */

/* What is known of a cubin's proof under a driver. `work` is held. */
bool fa_reproof_mark(fa_tuner *tuner, const char *cubin_key, const char *silicon,
                     int32_t driver_version, fa_verification *ret_mark);
/* Seconds for which a cubin whose proof ran out of time is still passed over; 0: it may be tried again. */
int64_t fa_reproof_rest_s(const fa_verification *mark);
/* Keeps a mark in the store, or in the session where the store cannot; `work` is held. */
void fa_reproof_keep(fa_tuner *tuner, const fa_scope *scope, const fa_verification *mark);

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
/* Makes a match, whose kind is known, of its answer as it is stored: its geometry for the asked problem, or why it is
 * not usable; what is said of it; another of the bucket's configs where that promises more at the asked lengths, with
 * its cubin when ret_cubin is not NULL; and what this driver is known to make of a cubin that another one proved. */
void fa_match_judge(fa_tuner *tuner, const fa_target *target, fa_match *match,
                    fa_cubin_record *ret_cubin);
/* The same for a winner of the target's own silicon, whose kind follows from its answer. */
void fa_match_judge_own(fa_tuner *tuner, const fa_target *target, fa_match *match,
                        fa_cubin_record *ret_cubin);
/* Geometry and words alone, of a winner whose cubin is loaded: it reads no store. */
void fa_match_judge_loaded(fa_tuner *tuner, const fa_target *target, fa_match *match);
/* The model's time of an untimed answer for the asked lengths, where its own is for its bucket's. */
void fa_match_predict(fa_tuner *tuner, const fa_target *target, fa_answer *answer);
/* A winner that has just been stored under the target's scope, as a lookup would answer with it. */
int fa_lookup_of_winner(fa_tuner *tuner, const fa_target *target, const fa_winner_record *winner,
                        fa_answer *ret_answer, fa_diag *diag);

/* ---- lookup.c --------------------------------------------------------------------------------*/
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

/* ---- reproof.c -------------------------------------------------------------------------------*/
/* Proves a found winner of another driver's time once more in a worker; marks and winner are
 * updated. On success found's answer and cubin are as they may be launched now. FA_ENOKERNEL: it failed and
 * is dropped; FA_ETIMEOUT: its time ran out, and lookups pass it over for a while. A note says so;
 * after any other error the next look finds it again. FA_EBUSY: effort is CACHED, and another process
 * has measured on this GPU for longer than that waits. `work` is held. */
int fa_reproof_verify(fa_tuner *tuner, const fa_target *target, fa_effort effort, fa_lookup *found,
                      fa_diag *diag);
/* Whether somebody else's answer is for the kernel that the templates here render for its config, and
 * is launched as they say: its parameters are then ours too. `work` is held. */
bool fa_reproof_is_ours(fa_tuner *tuner, const fa_target *target, const fa_answer *answer);
/* Proves somebody else's cubin as it is, launched as the answer says, in a worker; keeps nothing.
 * FA_ENOKERNEL: it failed; FA_ETIMEOUT, FA_EBUSY: as above. `work` is held. */
int fa_reproof_prove(fa_tuner *tuner, const fa_target *target, fa_effort effort,
                     const fa_answer *answer, const fa_cubin_record *cubin, fa_diag *diag);

#endif
