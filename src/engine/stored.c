/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners and cubins of the local store, and of system bundles behind it.
 */
#include "stored.h"

#include "problem.h"
#include "store.h"

#include "error.h"
#include "evidence.h"
#include "source.h"

#include <string.h>

/* The user's own comes first, but a guess of his own gives way to what somebody has measured. */
static bool take_other(fa_tuner *tuner, const fa_target *target, fa_origin own,
                       fa_answer *ret_answer, fa_cubin_record *ret_cubin)
{
    fa_answer answer;
    fa_cubin_record cubin = {0};
    if (fa_origin_trust(own) <= fa_origin_trust(FA_ORIGIN_IMPORTED) ||
        fa_sources_find(tuner, target, &answer, &cubin) != 0)
        return false;
    bool better = fa_origin_trust(answer.origin) < fa_origin_trust(own);
    if (better)
        *ret_answer = answer;
    if (better && ret_cubin != NULL)
        *ret_cubin = cubin;
    else
        fa_cubin_record_free(&cubin);
    return better;
}

int fa_records_lookup(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                      fa_cubin_record *ret_cubin, fa_diag *diag)
{
    fa_winner_record winner = {0};
    fa_cubin_record cubin = {0};
    int rc = fa_store_winner_get(tuner->store, &target->scope, &winner, &cubin, diag);
    if (rc == FA_ENOTFOUND && fa_sources_find(tuner, target, ret_answer, ret_cubin) == 0)
        return 0;
    if (rc == FA_ENOTFOUND)
        return fa_fail(diag, rc, "no winner is stored for this problem on %s", target->gpu.name);
    if (rc != 0)
        return rc;
    bool replaced = take_other(tuner, target, winner.origin, ret_answer, ret_cubin);
    if (!replaced)
        rc = fa_records_answer(&winner, &target->gpu, ret_answer, diag);
    fa_winner_record_free(&winner);
    if (rc == 0 && !replaced && ret_cubin != NULL)
        *ret_cubin = cubin;
    else
        fa_cubin_record_free(&cubin);
    return rc;
}

int fa_records_hold(fa_store *store, const fa_scope *scope, const char *cubin_key, fa_diag *diag)
{
    fa_winner_record winner = {0};
    int rc = fa_store_winner_get(store, scope, &winner, NULL, diag);
    if (rc == 0 && strcmp(winner.cubin_key, cubin_key) != 0)
        rc = FA_ENOTFOUND;
    fa_winner_record_free(&winner);
    return rc;
}

void fa_records_place(fa_tuner *tuner, const fa_scope *scope, bool ask, fa_answer *answer)
{
    const fa_source_class *shared = NULL;
    fa_winner_record own = {0};
    fa_diag why = {{0}};
    answer->in_local = !answer->from_system;
    if (!answer->in_local || (!ask && fa_sources_location(tuner) == NULL))
        return;
    fa_store *store = fa_sources_store(tuner, &shared);
    if (store == NULL)
        return;
    /* The answer's own cubin may be another config's, which serves these lengths better than the winner. */
    bool known = fa_store_winner_get(tuner->store, scope, &own, NULL, NULL) == 0;
    int rc = fa_records_hold(store, scope, known ? own.cubin_key : answer->cubin_key, &why);
    answer->in_fleet = rc == 0;
    if (rc != 0)
        shared->store_failed(tuner, rc, &why);
    fa_winner_record_free(&own);
}

struct looking {
    const fa_scope *scope;
    fa_winner_visit *visit;
    void *context;
};

static int visit_like(void *context, const fa_winner_record *winner)
{
    const struct looking *looking = context;
    if (!fa_problem_alike(&winner->scope.problem, &looking->scope->problem) ||
        strcmp(winner->scope.templates, looking->scope->templates) != 0 ||
        strcmp(winner->scope.policy, looking->scope->policy) != 0)
        return 0;
    return looking->visit(looking->context, winner);
}

int fa_records_like(fa_tuner *tuner, const fa_target *target, fa_winner_visit *visit, void *context,
                    fa_diag *diag)
{
    struct looking looking = {&target->scope, visit, context};
    int rc = fa_store_winners_like(tuner->store, &target->scope, visit, context, diag);
    return rc != 0 ? rc : fa_sources_each(tuner, &target->scope.problem, visit_like, &looking);
}

int fa_records_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin, fa_diag *diag)
{
    int rc = fa_store_cubin_get(tuner->store, key, ret_cubin, diag);
    return rc == FA_ENOTFOUND && fa_sources_cubin(tuner, key, ret_cubin) == 0 ? 0 : rc;
}

bool fa_records_has_cubin(fa_tuner *tuner, const char *key)
{
    fa_cubin_record cubin = {0};
    bool here = false;
    if (fa_store_cubin_exists(tuner->store, key, &here, NULL) != 0 || here)
        return here;
    here = fa_sources_cubin(tuner, key, &cubin) == 0;
    fa_cubin_record_free(&cubin);
    return here;
}
