/* SPDX-License-Identifier: Apache-2.0
 *
 * The loaded kernel that is nearest to a problem and right for it.
 *
 * Workload: once for each problem that a server meets and nobody has tuned; as many answers as there are cubins in the
 * process, a few hundred at most. Invariants: no store is read; what is given was proved on this silicon, is made of a
 * source that the two problems share, and is launched with the threads, the shared memory and the constraints that its
 * family computes for the asked problem.
 */
#include "near.h"

#include "error.h"
#include "match.h"
#include "problem.h"

#include <stdlib.h>

enum { JUDGED_MAX = 16 };

struct nearest {
    const fa_target *target;
    const fa_answer *answer[JUDGED_MAX]; /* the nearest first */
    double distance[JUDGED_MAX];
    int count;
};

static bool take(void *context, const fa_answer *answer)
{
    struct nearest *n = context;
    double distance = fa_problem_apart(&answer->from_problem, &n->target->asked);
    if (distance < 0 || answer->driver_version == 0)
        return true;
    int at = n->count < JUDGED_MAX ? n->count++ : JUDGED_MAX;
    for (; at > 0 && n->distance[at - 1] > distance; at--) {
        if (at == JUDGED_MAX)
            continue;
        n->answer[at] = n->answer[at - 1];
        n->distance[at] = n->distance[at - 1];
    }
    if (at < JUDGED_MAX) {
        n->answer[at] = answer;
        n->distance[at] = distance;
    }
    return true;
}

int fa_near_find(fa_tuner *tuner, const fa_target *target, uint64_t context, fa_answer *ret_answer,
                 fa_diag *diag)
{
    struct nearest nearest = {.target = target};
    fa_match *match = malloc(sizeof *match);
    int rc = match != NULL ? FA_ENOTFOUND : fa_fail(diag, FA_ENOMEM, "out of memory for a lookup");
    if (match != NULL)
        fa_kernel_table_answers(&tuner->kernels, context, take, &nearest);
    for (int i = 0; rc == FA_ENOTFOUND && i < nearest.count; i++) {
        *match = (fa_match){.kind = FA_STEP_NEAREST,
                            .answer = *nearest.answer[i],
                            .scope = target->scope,
                            .distance = nearest.distance[i]};
        match->scope.problem = match->answer.from_problem;
        fa_match_judge_loaded(tuner, target, match);
        if (match->rc != 0)
            rc = fa_fail(diag, match->rc, "%s", match->why);
        else if (match->usable)
            rc = 0;
    }
    if (rc == 0)
        *ret_answer = match->answer;
    else if (rc == FA_ENOTFOUND)
        fa_fail(diag, rc, "no kernel that is loaded in this process is right for this problem");
    free(match);
    return rc;
}
