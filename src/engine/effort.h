/* SPDX-License-Identifier: Apache-2.0
 *
 * What an answer is worth.
 */
#ifndef FA_ENGINE_EFFORT_H
#define FA_ENGINE_EFFORT_H

#include "fa_tune.h"

typedef struct fa_wanted {
    fa_effort effort;
    bool exact; /* the bucket's winner is not enough */
    bool whole; /* the winner of a race of the top few is not enough */
} fa_wanted;
fa_wanted fa_wanted_by(const fa_request *request);

/* Whether an answer is as good as what is wanted. */
bool fa_answer_satisfies(const fa_answer *answer, fa_wanted wanted);
bool fa_origin_is_timed(fa_origin origin); /* somebody has measured it, here or elsewhere */

#endif
