/* SPDX-License-Identifier: Apache-2.0
 *
 * A caller's request: checked and completed; what is decided before it is looked up; its wait for a lock; and which
 * answers are good enough for it.
 */
#ifndef FA_ENGINE_REQUEST_H
#define FA_ENGINE_REQUEST_H

#include "fa_tune.h"
#include "store.h"
#include "session.h"

/* Copies a caller's struct that begins with its size and may be of an older, shorter version; the rest of
 * *ret is 0. FA_EINVAL with the sentence `why`. */
int fa_copy_sized(void *ret, size_t size, const void *given, const char *why, fa_diag *diag);
/* Checks a caller's request and completes one of an older, shorter struct. */
int fa_request_copy(const fa_request *request, fa_request *ret_request, fa_diag *diag);

/* The lock that all tunes into the store share, so that no cubin which one of them relies on is forgotten
 * meanwhile (fa_forget() acquires it). */
#define FA_TUNES_LOCK "tunes"
/* Waits for a lock beside the store; the request's progress may cancel. ret_waited may be NULL. `work` is held, but
 * not meanwhile. */
int fa_request_wait(fa_tuner *tuner, const fa_request *request, const char *name,
                    fa_lock **ret_lock, bool *ret_waited, fa_diag *diag);
/* Waits until no other tune of this tuner runs its workers; the caller unlocks `tuning`. As above. */
int fa_request_turn(fa_tuner *tuner, const fa_request *request, fa_diag *diag);
/* Calls the request's progress, if any; true: it cancels. `work` is held, but not meanwhile; locks that another tune
 * needs are. */
bool fa_request_report(fa_tuner *tuner, const fa_request *request, const fa_progress *progress);
/* FA_EBUSY inside of it: for tunes, and for what else waits for such locks. */
int fa_callback_check(fa_diag *diag);

/* Everything that is decided before a winner is looked up. */
typedef struct fa_target {
    fa_problem problem; /* to be tuned: the bucket, or the asked one itself */
    fa_problem asked;   /* made not empty */
    fa_gpu gpu;
    fa_scope scope; /* of `problem` */
} fa_target;

/* Of the request only problem, gpu, ordinal and exact count. `work` is held. */
int fa_target_resolve(fa_tuner *tuner, const fa_request *request, fa_target *ret_target,
                      fa_diag *diag);

enum {
    FA_SEARCH_EVALUATIONS = 500 /* of a space too large to be tried whole, where nothing bounds them */
};

/* The request; or *own, as its operation's specification says, where the request says nothing of the search. */
const fa_request *fa_request_with_search(const fa_request *request, fa_request *own);

/* Of the inputs that the caller gives for proofs of the problem; 0: none. */
int32_t fa_contents_of(const fa_problem *problem);
/* Whether an answer is as good as what is asked for; with first_contact, that of a race of the top few or of a smaller
 * search is. */
bool fa_answer_satisfies(const fa_answer *answer, const fa_request *request);
bool fa_origin_is_timed(fa_origin origin); /* somebody has measured it, here or elsewhere */

#endif
