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
#include <string.h>

/* A loaded cubin, by the nearest problem that it was loaded for. */
struct near {
    const fa_answer *answer;
    double distance;
};

struct nearest {
    const fa_target *target;
    struct near *at;
    size_t count, room;
    bool failed; /* out of memory */
};

static bool take(void *context, const fa_answer *answer)
{
    struct nearest *n = context;
    double distance = fa_problem_apart(&answer->from_problem, &n->target->asked);
    if (distance < 0 || answer->driver_version == 0)
        return true;
    struct near *last = n->count > 0 ? &n->at[n->count - 1] : NULL;
    if (last != NULL && strcmp(last->answer->cubin_key, answer->cubin_key) == 0) {
        if (distance < last->distance)
            *last = (struct near){answer, distance};
        return true;
    }
    if (n->count == n->room) {
        size_t room = n->room > 0 ? n->room * 2 : 16;
        struct near *at = realloc(n->at, room * sizeof *at);
        if (at == NULL) {
            n->failed = true;
            return false;
        }
        n->at = at;
        n->room = room;
    }
    n->at[n->count++] = (struct near){answer, distance};
    return true;
}

/* In processes that have loaded the same kernels in another order, too. */
static int compare(const void *a, const void *b)
{
    const struct near *x = a, *y = b;
    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    return strcmp(x->answer->cubin_key, y->answer->cubin_key);
}

int fa_near_find(fa_tuner *tuner, const fa_target *target, uint64_t context, fa_answer *ret_answer,
                 fa_diag *diag)
{
    struct nearest n = {.target = target};
    fa_match *match = malloc(sizeof *match);
    fa_kernel_table_answers(&tuner->kernels, context, take, &n);
    int rc = match == NULL || n.failed ? fa_fail(diag, FA_ENOMEM, "out of memory for a lookup")
                                       : FA_ENOTFOUND;
    if (rc == FA_ENOTFOUND && n.count > 0)
        qsort(n.at, n.count, sizeof *n.at, compare);
    for (size_t i = 0; rc == FA_ENOTFOUND && i < n.count; i++) {
        *match = (fa_match){.kind = FA_STEP_NEAREST,
                            .answer = *n.at[i].answer,
                            .scope = target->scope,
                            .distance = n.at[i].distance};
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
    free(n.at);
    return rc;
}
