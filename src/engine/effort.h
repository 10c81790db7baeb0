/* SPDX-License-Identifier: Apache-2.0
 *
 * What an answer is worth.
 */
#ifndef FA_ENGINE_EFFORT_H
#define FA_ENGINE_EFFORT_H

#include "fa_tune.h"

/* Whether an answer is as good as the effort asks for. exact: the bucket's is not enough; whole: a race
 * of the top few is not. */
bool fa_answer_satisfies(const fa_answer *answer, fa_effort effort, bool exact, bool whole);
bool fa_origin_is_timed(fa_origin origin); /* somebody has measured it, here or elsewhere */

#endif
