/* SPDX-License-Identifier: Apache-2.0
 *
 * What an answer is worth.
 */
#include "effort.h"

#include "error.h"
#include "problem.h"

bool fa_origin_is_timed(fa_origin origin)
{
    return fa_origin_trust(origin) <= fa_origin_trust(FA_ORIGIN_NEAREST);
}

fa_wanted fa_wanted_by(const fa_request *request)
{
    return (fa_wanted){request->effort, request->exact, !request->first_contact};
}

bool fa_answer_satisfies(const fa_answer *answer, fa_wanted wanted)
{
    if (wanted.effort == FA_EFFORT_CACHED)
        return true;
    if (answer->gpu.present && answer->driver_version == 0)
        return false;
    if (wanted.effort == FA_EFFORT_PREDICT)
        return true;
    fa_problem bucket = fa_problem_bucket(&answer->problem);
    fa_problem itself = fa_problem_exact(&answer->problem);
    bool own = fa_problem_equal(&answer->from_problem, &itself) ||
               (!wanted.exact && fa_problem_equal(&answer->from_problem, &bucket));
    if (fa_origin_is_timed(answer->origin))
        return own && !(wanted.whole && answer->top_few);
    /* Where the GPU is not here, a choice from the whole space is the best possible answer; a choice from
     * the first few configs is not. In a whole space every config compiled, if only to be pruned, or failed. */
    return own && !answer->gpu.present && !answer->top_few &&
           answer->compiled + answer->failed >= answer->in_budget;
}
