/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of trust: which stored winners may serve a problem on a GPU, and in which order; and for servers that do not
 * wait for the store, which loaded kernel is the nearest that is right for a problem.
 *
 *   the very lengths, where somebody had them tuned exactly
 *   their bucket on this silicon: measured here, on another board, or imported
 *   the nearest measured problem on this silicon
 *   transferred from the nearest GPU whose winner this one can run
 *   predicted for the bucket
 *
 * Workload: a hit in one of the first two places reads one row and looks no further; a miss reads the few rows of the
 * same shape. A few hundred cubins are loaded at the most.
 * Invariants: nothing is served whose geometry does not hold for the asked problem on this GPU, and nothing that this
 * driver was seen to get wrong.
 */
#include "lookup.h"

#include "request.h"
#include "stored.h"
#include "problem.h"
#include "store.h"

#include "catalogue.h"
#include "error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double NEAREST_OCTAVES = 2;
enum { NEAREST_MAX = 4, TRANSFERRED_MAX = 8 };
_Static_assert(2 + NEAREST_MAX + TRANSFERRED_MAX == FA_MATCHES_MAX, "room for the own ones");

/* The winners for the problem itself or its bucket. */
struct own {
    fa_match match[2];
    int count;
};

/* ---- the others -----------------------------------------------------------------------------*/
static double apart(double a, double b)
{
    return a > 0 && b > 0 ? fabs(log2(a / b)) : 1; /* not known: as if it were the double */
}

/* How unlike two GPUs are: 0 for the same figures; those of one major architecture come first. */
static double gpu_distance(const fa_gpu *a, const fa_gpu *b)
{
    enum { ANOTHER_MAJOR = 1000 };
    return (a->sm / 10 != b->sm / 10 ? ANOTHER_MAJOR : 0) + abs(a->sm - b->sm) / 10.0 +
           apart(a->sm_count, b->sm_count) + apart(a->smem_per_block, b->smem_per_block) +
           apart(a->smem_per_sm, b->smem_per_sm) + apart((double)a->l2_bytes, (double)b->l2_bytes) +
           apart(a->bandwidth_gbs, b->bandwidth_gbs) + apart(a->tensor_tflops, b->tensor_tflops);
}

struct collecting {
    const fa_target *target;
    fa_match *match;
    size_t count, capacity;
};

static int compare_matches(const void *a, const void *b)
{
    const fa_match *x = a, *y = b;
    if (x->kind != y->kind)
        return (int)x->kind - (int)y->kind;
    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    return (x->answer.unix_time < y->answer.unix_time) -
           (x->answer.unix_time > y->answer.unix_time);
}

static int take_other(struct collecting *c, const fa_winner_record *winner)
{
    const fa_target *target = c->target;
    const fa_problem *problem = &winner->scope.problem;
    const fa_problem bucket = fa_problem_bucket(&target->asked);
    bool here = strcmp(winner->scope.silicon, target->scope.silicon) == 0;
    bool tuned = fa_problem_equal(problem, &target->problem);
    if (!fa_origin_is_timed(winner->origin) ||
        (here ? tuned || fa_problem_equal(problem, &target->asked)
              : !tuned && !fa_problem_equal(problem, &bucket)))
        return 0;
    fa_match match = {.scope = winner->scope, .kind = here ? FA_STEP_NEAREST : FA_STEP_TRANSFERRED};
    fa_answer *answer = &match.answer;
    int rc = fa_records_answer(winner, here ? &target->gpu : NULL, answer, NULL);
    if (rc != 0)
        return rc;
    if (here) {
        match.distance = fa_problem_distance(problem, &target->asked);
        if (match.distance < 0 || match.distance > NEAREST_OCTAVES)
            return 0;
    } else {
        /* The GPU's facts as they were stored, else the catalogue's. */
        if (answer->gpu.sm <= 0 && fa_catalogue_find(winner->gpu_name, &answer->gpu, NULL) != 0)
            return 0;
        match.distance = gpu_distance(&answer->gpu, &target->gpu);
        snprintf(answer->from_gpu, sizeof answer->from_gpu, "%s", answer->gpu.name);
        answer->origin = FA_ORIGIN_TRANSFERRED;
        answer->gpu = target->gpu;
        answer->driver_version = 0;
        answer->cubin_key[0] = 0;
        answer->default_us = 0;
        answer->ties = answer->space = answer->in_budget = answer->compiled = 0;
        answer->clean = answer->proved = answer->measured = answer->failed = 0;
        answer->shortlist_only = true;
    }
    return fa_append(&c->match, &c->count, &c->capacity, &match, sizeof match);
}

/* ---- all of them ----------------------------------------------------------------------------*/
/* Reads the own ones, exact before bucket, until one serves, which is then the last, with its cubin: 0; or all of
 * them, with ret_cubin NULL. Else FA_ENOTFOUND, FA_ECORRUPT when a cubin is gone, or what made reading fail. */
static int read_own(fa_tuner *tuner, const fa_target *target, struct own *own,
                    fa_cubin_record *ret_cubin, fa_diag *diag)
{
    const fa_problem *problem[] = {&target->asked, &target->problem};
    int none = FA_ENOTFOUND;
    for (int i = fa_problem_equal(problem[0], problem[1]); i < 2; i++) {
        fa_match *match = &own->match[own->count];
        fa_target there = *target;
        there.problem = there.scope.problem = *problem[i];
        *match = (fa_match){.scope = there.scope};
        fa_cubin_record_free(ret_cubin);
        int rc = fa_records_lookup(tuner, &there, &match->answer, ret_cubin,
                                   none == FA_ECORRUPT ? NULL : diag);
        if (rc == FA_ECORRUPT)
            none = rc;
        if (rc == FA_ECORRUPT || rc == FA_ENOTFOUND)
            continue;
        if (rc != 0)
            return rc;
        fa_match_judge_own(tuner, target, match, ret_cubin);
        if (match->rc != 0)
            return fa_fail(diag, match->rc, "%s", match->why);
        own->count++;
        if (ret_cubin != NULL && match->usable && fa_origin_is_timed(match->answer.origin))
            return 0;
    }
    return none;
}

/* The own ones and the nearest few of the others, judged, in the order of trust. */
static int collect(fa_tuner *tuner, const fa_target *target, const struct own *own,
                   fa_matches **ret_matches, fa_diag *diag)
{
    int room[] = {[FA_STEP_NEAREST] = NEAREST_MAX, [FA_STEP_TRANSFERRED] = TRANSFERRED_MAX};
    struct collecting c = {.target = target};
    fa_matches *matches = calloc(1, sizeof *matches);
    fa_winner_record *winner = NULL;
    size_t winners = 0;
    int rc = matches == NULL ? FA_ENOMEM : fa_records_like(tuner, target, &winner, &winners, diag);
    for (size_t i = 0; rc == 0 && i < winners; i++)
        rc = take_other(&c, &winner[i]);
    free(winner);
    if (rc == FA_ENOMEM)
        fa_fail(diag, rc, "out of memory for a lookup");
    if (c.count > 0)
        qsort(c.match, c.count, sizeof *c.match, compare_matches);
    for (int i = 0; rc == 0 && i < own->count; i++)
        matches->match[matches->count++] = own->match[i];
    for (size_t i = 0; rc == 0 && i < c.count; i++) {
        fa_match *match = &c.match[i];
        if (room[match->kind]-- <= 0)
            continue;
        fa_match_judge(tuner, target, match, NULL);
        if (match->rc != 0)
            rc = fa_fail(diag, match->rc, "%s", match->why);
        matches->match[matches->count++] = *match;
    }
    free(c.match);
    if (rc != 0) {
        free(matches);
        return rc;
    }
    qsort(matches->match, (size_t)matches->count, sizeof *matches->match, compare_matches);
    *ret_matches = matches;
    return 0;
}

int fa_matches_collect(fa_tuner *tuner, const fa_target *target, fa_matches **ret_matches,
                       fa_diag *diag)
{
    struct own own = {.count = 0};
    int rc = read_own(tuner, target, &own, NULL, diag);
    return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? collect(tuner, target, &own, ret_matches, diag)
                                                   : rc;
}

/* Why no match serves: the first of this silicon's that was refused. */
static int tell_nothing(const fa_target *target, const fa_matches *matches, fa_diag *diag)
{
    for (int i = 0; i < matches->count; i++)
        if (!matches->match[i].usable &&
            strcmp(matches->match[i].scope.silicon, target->scope.silicon) == 0)
            return fa_fail(diag, FA_ENOTFOUND,
                           "no winner that is stored serves this problem on %s: %s",
                           target->gpu.name, matches->match[i].why);
    return fa_fail(diag, FA_ENOTFOUND, "no winner is stored for this problem on %s",
                   target->gpu.name);
}

/* The first of the matches that serves and whose cubin is there; NULL: none. `known` is a cubin that was
 * read and checked; it becomes that of the match, unless nobody wants one. */
static const fa_match *choose(fa_tuner *tuner, const fa_target *target, const fa_matches *matches,
                              fa_cubin_record *known, bool wanted)
{
    for (int i = 0; i < matches->count; i++) {
        const fa_match *match = &matches->match[i];
        const char *key = match->answer.cubin_key;
        if (!fa_match_serves(target, match))
            continue;
        if (known->bytes != NULL && strcmp(known->key, key) == 0)
            return match;
        if (!wanted && fa_records_has_cubin(tuner, key))
            return match;
        fa_cubin_record_free(known);
        if (wanted && fa_records_cubin(tuner, key, known, NULL) == 0)
            return match;
    }
    return NULL;
}

static int look(fa_tuner *tuner, const fa_target *target, bool with_cubin, fa_lookup *found,
                fa_diag *diag)
{
    struct own own = {.count = 0};
    fa_diag first = {{0}}; /* why the own winner does not serve */
    const fa_match *match = NULL;
    int nothing = read_own(tuner, target, &own, &found->cubin, &first), rc = 0;
    if (nothing == 0)
        match = &own.match[own.count - 1];
    else if (nothing != FA_ENOTFOUND && nothing != FA_ECORRUPT)
        return fa_fail(diag, nothing, "%s", first.text);
    else if ((rc = collect(tuner, target, &own, &found->matches, diag)) != 0)
        return rc;
    else if ((match = choose(tuner, target, found->matches, &found->cubin, with_cubin)) == NULL)
        return nothing == FA_ECORRUPT ? fa_fail(diag, nothing, "%s", first.text)
                                      : tell_nothing(target, found->matches, diag);
    found->answer = match->answer;
    found->scope = match->scope;
    fa_match_predict(tuner, target, &found->answer);
    return 0;
}

int fa_look(fa_tuner *tuner, const fa_target *target, unsigned flags, fa_lookup *ret_found,
            fa_diag *diag)
{
    bool with_cubin = (flags & FA_LOOK_CUBIN) != 0;
    *ret_found = (fa_lookup){.matches = NULL};
    int rc = look(tuner, target, with_cubin, ret_found, diag);
    if (rc != 0 || !with_cubin)
        fa_cubin_record_free(&ret_found->cubin);
    return rc;
}

void fa_lookup_free(fa_lookup *found)
{
    fa_cubin_record_free(&found->cubin);
    free(found->matches);
    *found = (fa_lookup){.matches = NULL};
}

/* ---- of what is loaded ----------------------------------------------------------------------*/
struct nearest {
    fa_tuner *tuner;
    const fa_target *target;
    fa_match match[2]; /* the best so far, and the one that is tried */
    int count;         /* of best ones: 0 or 1 */
    int rc;            /* why nothing more is tried */
};

/* Distances may be equal: then by key, so that processes agree that have loaded the same kernels in another order. */
static bool take_nearer(void *context, const fa_answer *answer)
{
    struct nearest *n = context;
    fa_match *best = &n->match[0], *match = &n->match[1];
    double distance = fa_problem_apart(&answer->from_problem, &n->target->asked);
    bool nearer =
        n->count == 0 || distance < best->distance ||
        (!(distance > best->distance) && strcmp(answer->cubin_key, best->answer.cubin_key) < 0);
    if (distance < 0 || answer->driver_version == 0 || !nearer)
        return true;
    *match = (fa_match){.kind = FA_STEP_NEAREST,
                        .answer = *answer,
                        .scope = n->target->scope,
                        .distance = distance};
    match->scope.problem = answer->from_problem;
    fa_match_judge_loaded(n->tuner, n->target, match);
    n->rc = match->rc;
    if (match->usable) {
        *best = *match;
        n->count = 1;
    }
    return n->rc == 0;
}

int fa_look_among_loaded(fa_tuner *tuner, const fa_target *target, uint64_t context,
                         fa_answer *ret_answer, fa_diag *diag)
{
    struct nearest *n = calloc(1, sizeof *n);
    if (n == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a lookup");
    n->tuner = tuner;
    n->target = target;
    fa_kernel_table_answers(&tuner->kernels, context, take_nearer, n);
    int rc = n->rc;
    if (rc != 0)
        fa_fail(diag, rc, "%s", n->match[1].why);
    else if (n->count == 0)
        rc = fa_fail(diag, FA_ENOTFOUND,
                     "no kernel that is loaded in this process is right for this problem");
    else
        *ret_answer = n->match[0].answer;
    free(n);
    return rc;
}
