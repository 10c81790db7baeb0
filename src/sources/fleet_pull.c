/* SPDX-License-Identifier: Apache-2.0
 *
 * From the fleet's store into the local one: a winner with its cubin, seen from here.
 *
 * Workload: one or two rows for each problem that this host has not seen. Whoever can write the
 * fleet's store is believed about times and proofs, as whoever can write the local file is; what a
 * row says is checked all the same, because a row may be damaged or of another version.
 */
#include "bundle_check.h"
#include "fleet.h"

#include "catalogue.h"
#include "error.h"
#include "stored.h"
#include "lookup.h"
#include "pool.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MISS_MS = 5000, NEAREST_MOST = 2, OTHERS_MOST = 4 };
static const double octaves_most = 2;

/* ---- checking -------------------------------------------------------------------------------*/
/* The cubin is what the winner says, and the winner is launched as its config says. */
static int check_winner(fa_tuner *tuner, const fa_target *target, const fa_winner_record *winner,
                        const fa_cubin_record *cubin, const fa_answer *answer, fa_diag *diag)
{
    const fa_trial *trial = &winner->trial;
    fa_candidate today;
    fa_gpu gpu = target->gpu;
    int rc = fa_bundle_check_cubin(winner, cubin->bytes, cubin->size, diag);
    if (rc == 0 && strcmp(winner->scope.silicon, target->scope.silicon) != 0) {
        gpu = answer->gpu;
        if (gpu.sm == 0)
            rc = fa_catalogue_find(winner->gpu_name, &gpu, diag);
    }
    if (rc == 0)
        rc = fa_tuner_families(tuner, diag);
    if (rc == 0)
        rc = fa_space_one(fa_families_for(tuner, &winner->scope.problem), &trial->config,
                          &winner->scope.problem, &gpu, &today, diag);
    if (rc == 0 && today.trial.status != FA_STATUS_PENDING)
        rc = fa_fail(diag, FA_ECORRUPT, "its config does not fit the GPU: %.200s",
                     today.trial.reason);
    if (rc == 0 &&
        (today.trial.threads != trial->threads || today.trial.smem_bytes != trial->smem_bytes ||
         memcmp(today.trial.grid, trial->grid, sizeof trial->grid) != 0 ||
         strcmp(winner->entry,
                fa_family_entry(
                    fa_families_for(tuner, &winner->scope.problem)->family[today.family])) != 0))
        rc = fa_fail(diag, FA_ECORRUPT, "it is launched otherwise than its config says");
    return rc;
}

void fa_fleet_void_other_proof(fa_store *store, fa_winner_record *winner,
                               const fa_cubin_record *cubin)
{
    fa_cubin_record there = {0};
    if (fa_store_cubin_get(store, winner->cubin_key, &there, NULL) == 0 &&
        (there.size != cubin->size || memcmp(there.bytes, cubin->bytes, there.size) != 0))
        winner->driver_version = 0;
    fa_cubin_record_free(&there);
}

/* ---- storing --------------------------------------------------------------------------------*/
struct candidate_winner {
    fa_tuner *tuner;
    fa_winner_record *winner;
    const fa_cubin_record *cubin;
    bool kept; /* the local store took it */
};

/* Whether the local store has a winner that may be served and is as good. */
static int is_better_than_local(struct candidate_winner *candidate, bool *ret_better, fa_diag *diag)
{
    fa_store *store = candidate->tuner->store;
    fa_winner_record own = {0};
    fa_cubin_record cubin = {0};
    const char *why;
    *ret_better = true;
    int rc = fa_store_winner_get(store, &candidate->winner->scope, &own, NULL, diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
    if (fa_store_cubin_get(store, own.cubin_key, &cubin, NULL) == 0)
        *ret_better = fa_bundle_weigh(&own, candidate->winner, &why) == FA_BUNDLE_REPLACED;
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&own);
    return 0;
}

static int store_if_better(void *context, fa_diag *diag)
{
    struct candidate_winner *candidate = context;
    bool better = false;
    fa_fleet_void_other_proof(candidate->tuner->store, candidate->winner, candidate->cubin);
    int rc = is_better_than_local(candidate, &better, diag);
    if (rc == 0 && better)
        rc = fa_store_winner_replace(candidate->tuner->store, candidate->winner, candidate->cubin,
                                     diag);
    candidate->kept = rc == 0 && better;
    return rc;
}

/* ---- pulling --------------------------------------------------------------------------------*/
/* One scope's winner. True when the local store took it; *ret_found when the fleet has one that
 * somebody measured. */
static bool pull_winner(fa_tuner *tuner, const fa_target *target, const fa_scope *scope,
                        bool *ret_found)
{
    fa_winner_record winner = {0};
    fa_cubin_record cubin = {0};
    fa_answer answer;
    fa_diag why = {{0}};
    struct candidate_winner candidate = {.tuner = tuner, .winner = &winner, .cubin = &cubin};
    int rc = fa_store_winner_get(fa_fleet_of(tuner)->store, scope, &winner, &cubin, &why);
    if (fa_fleet_is_worth_retry(tuner, rc))
        rc = fa_store_winner_get(fa_fleet_of(tuner)->store, scope, &winner, &cubin, &why);
    if (rc != 0) {
        if (rc == FA_ECORRUPT)
            fa_note(tuner, "a winner of the fleet's is not used: %s", why.text);
        fa_fleet_failed(tuner, rc, &why);
        return false;
    }
    rc = fa_records_answer(&winner, NULL, &answer, &why);
    if (rc == 0)
        rc = check_winner(tuner, target, &winner, &cubin, &answer, &why);
    if (rc == 0) {
        if (winner.origin == FA_ORIGIN_MEASURED && strcmp(answer.gpu.uuid, target->gpu.uuid) != 0)
            winner.origin = FA_ORIGIN_MEASURED_SAME_SILICON;
        *ret_found = *ret_found || winner.trial.status == FA_STATUS_MEASURED;
        rc = fa_store_batch(tuner->store, store_if_better, &candidate, &why);
    }
    if (rc != 0)
        fa_note(tuner, "a winner of the fleet's is not used: %s", why.text);
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&winner);
    return candidate.kept;
}

/* Winners of other lengths and of other GPUs, for what a lookup makes of them. */
struct others {
    const fa_target *target;
    fa_scope nearest[NEAREST_MOST], other[OTHERS_MOST];
    double distance[NEAREST_MOST];
    int nearest_count, other_count;
};

static void add_nearest_scope(struct others *others, const fa_scope *scope)
{
    double distance = fa_problem_distance(&scope->problem, &others->target->asked);
    if (!(distance >= 0 && distance <= octaves_most))
        return;
    int at = others->nearest_count < NEAREST_MOST ? others->nearest_count++ : NEAREST_MOST;
    for (; at > 0 && others->distance[at - 1] > distance; at--) {
        if (at == NEAREST_MOST)
            continue;
        others->nearest[at] = others->nearest[at - 1];
        others->distance[at] = others->distance[at - 1];
    }
    if (at == NEAREST_MOST)
        return;
    others->nearest[at] = *scope;
    others->distance[at] = distance;
}

static int add_other_scope(void *context, const fa_winner_record *winner)
{
    struct others *others = context;
    const fa_scope *scope = &winner->scope;
    if (winner->trial.status != FA_STATUS_MEASURED)
        return 0;
    if (strcmp(scope->silicon, others->target->scope.silicon) == 0)
        add_nearest_scope(others, scope);
    else if (fa_problem_equal(&scope->problem, &others->target->problem) &&
             others->other_count < OTHERS_MOST)
        others->other[others->other_count++] = *scope;
    return 0;
}

static bool pull_others(fa_tuner *tuner, const fa_target *target)
{
    struct others others = {.target = target};
    fa_diag why = {{0}};
    bool some = false, found = false;
    int rc = fa_store_winners_like(fa_fleet_of(tuner)->store, &target->scope, add_other_scope,
                                   &others, &why);
    if (rc != 0)
        fa_fleet_failed(tuner, rc, &why);
    for (int i = 0; i < others.nearest_count && fa_fleet_of(tuner)->store != NULL; i++)
        some = pull_winner(tuner, target, &others.nearest[i], &found) || some;
    for (int i = 0; i < others.other_count && fa_fleet_of(tuner)->store != NULL; i++)
        some = pull_winner(tuner, target, &others.other[i], &found) || some;
    return some;
}

/* ---- misses ---------------------------------------------------------------------------------*/
static bool was_missed(const fa_fleet *fleet, const char *key)
{
    uint64_t now = fa_clock_ns();
    for (int i = 0; i < FA_FLEET_MISSES; i++)
        if (now < fleet->missed[i].until_ns && strcmp(fleet->missed[i].key, key) == 0)
            return true;
    return false;
}

static void remember_miss(fa_fleet *fleet, const char *key)
{
    int at = fleet->next_missed;
    fleet->next_missed = (at + 1) % FA_FLEET_MISSES;
    snprintf(fleet->missed[at].key, sizeof fleet->missed[at].key, "%s", key);
    fleet->missed[at].until_ns = fa_clock_ns() + (uint64_t)MISS_MS * 1000000;
}

bool fa_fleet_pull(fa_tuner *tuner, const fa_target *target, bool now)
{
    fa_fleet *fleet = fa_fleet_of(tuner);
    fa_scope exact = target->scope;
    char key[FA_HASH_HEX];
    bool some = false, found = false;
    exact.problem = target->asked;
    fa_scope_key(&exact, key);
    if (fleet == NULL || fa_store_is_read_only(tuner->store) || (!now && was_missed(fleet, key)) ||
        fa_fleet_store(tuner) == NULL)
        return false;
    if (!fa_problem_equal(&target->asked, &target->problem))
        some = pull_winner(tuner, target, &exact, &found);
    if (fleet->store != NULL)
        some = pull_winner(tuner, target, &target->scope, &found) || some;
    if (fleet->store != NULL && !found && !now)
        some = pull_others(tuner, target) || some;
    if (!found)
        remember_miss(fleet, key);
    return some;
}

int fa_fleet_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin)
{
    fa_diag why = {{0}};
    if (fa_fleet_of(tuner) == NULL || fa_fleet_of(tuner)->store == NULL)
        return FA_ENOTFOUND;
    fa_fleet_of(tuner)->asked_ns = fa_clock_ns();
    int rc = fa_store_cubin_get(fa_fleet_of(tuner)->store, key, ret_cubin, &why);
    if (rc != 0)
        fa_fleet_failed(tuner, rc, &why);
    return rc;
}
