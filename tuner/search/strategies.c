/* SPDX-License-Identifier: Apache-2.0
 *
 * The strategies that need no model. Each has at most a point or a small population in its state: what was told
 * before they began, or comes late from a batch, is taken as it comes.
 */
#include "walk.h"

#include <math.h>

/* ---- all, and any ---------------------------------------------------------------------------*/
static uint64_t exhaustive_next(fa_walk *walk, void *state, int32_t *ret_tag)
{
    (void)state, (void)ret_tag;
    return fa_walk_next(walk);
}

const fa_strategy fa_strategy_exhaustive = {
    .name = "exhaustive", .summary = "every point, in order", .next = exhaustive_next};

static uint64_t random_next(fa_walk *walk, void *state, int32_t *ret_tag)
{
    (void)state, (void)ret_tag;
    return fa_walk_draw(walk);
}

const fa_strategy fa_strategy_random = {
    .name = "random", .summary = "points spread evenly over the space", .next = random_next};

/* ---- greedy ---------------------------------------------------------------------------------*/
/* Climbs by the first gain among the neighbours, in random order; on a hilltop it begins anew, one time in two
 * from the best point with some parameters changed. */
struct greedy {
    bool climbing;
    uint64_t at;
    double cost;
    uint32_t tried, first, stride; /* neighbours, in the order first + i * stride */
};

static uint32_t divisor(uint32_t a, uint32_t b)
{
    return b == 0 ? a : divisor(b, a % b);
}

static void greedy_stand(fa_walk *walk, struct greedy *g, const fa_known *known)
{
    uint32_t count = fa_walk_neighbours(walk);
    *g = (struct greedy){.climbing = true, .at = known->rank, .cost = known->cost};
    if (count == 0)
        return;
    g->first = fa_walk_below(walk, count);
    do
        g->stride = 1 + fa_walk_below(walk, count);
    while (divisor(count, g->stride) != 1);
}

static uint64_t greedy_next(fa_walk *walk, void *state, int32_t *ret_tag)
{
    struct greedy *g = state;
    uint32_t count = fa_walk_neighbours(walk);
    *ret_tag = 0;
    while (g->climbing && g->tried < count) {
        uint32_t k = (uint32_t)((g->first + (uint64_t)g->stride * g->tried++) % count);
        uint64_t rank = fa_walk_neighbour(walk, g->at, k);
        const fa_known *known = fa_walk_find(walk, rank);
        if (known != NULL && known->cost > 0 && known->cost < g->cost)
            greedy_stand(walk, g, known);
        else if (known == NULL && fa_walk_valid(walk, rank))
            return rank;
    }
    if (g->climbing && walk->pending > 0)
        return FA_NO_POINT; /* one of those under way may be higher up */
    g->climbing = false;
    *ret_tag = 1;
    return walk->best != SIZE_MAX && fa_walk_below(walk, 2) == 0
               ? fa_walk_mutate_new(walk, walk->known[walk->best].rank, 0.3)
               : fa_walk_draw(walk);
}

static void greedy_told(fa_walk *walk, void *state, const fa_known *known)
{
    struct greedy *g = state;
    if (known->cost > 0 && (!g->climbing || known->cost < g->cost))
        greedy_stand(walk, g, known);
}

const fa_strategy fa_strategy_greedy = {.name = "greedy",
                                        .summary =
                                            "climbs from neighbour to neighbour, with restarts",
                                        .size = sizeof(struct greedy),
                                        .next = greedy_next,
                                        .told = greedy_told};

/* ---- annealing ------------------------------------------------------------------------------*/
struct annealing {
    bool begun;
    uint64_t at;
    double cost;
};

/* Costs are compared by their ratio, so that a temperature means the same everywhere. */
static void anneal(fa_walk *walk, struct annealing *a, const fa_known *known)
{
    const double hot = 0.5, cold = 0.005;
    double spent = fmin((double)walk->spent / (double)walk->expected, 1);
    double worse = log(known->cost / a->cost);
    if (a->begun && worse > 0 &&
        !(fa_walk_uniform(walk) < exp(-worse / (hot * pow(cold / hot, spent)))))
        return;
    *a = (struct annealing){true, known->rank, known->cost};
}

static uint64_t annealing_next(fa_walk *walk, void *state, int32_t *ret_tag)
{
    struct annealing *a = state;
    (void)ret_tag;
    for (int i = 0; a->begun && i < 32; i++) {
        uint64_t rank = fa_walk_mutate(walk, a->at, 0.1);
        const fa_known *known = rank != FA_NO_POINT ? fa_walk_find(walk, rank) : NULL;
        if (rank != FA_NO_POINT && known == NULL)
            return rank;
        if (known != NULL && known->cost > 0) /* a step over known ground costs nothing */
            anneal(walk, a, known);
    }
    return a->begun ? fa_walk_mutate_new(walk, a->at, 0.2) : fa_walk_draw(walk);
}

static void annealing_told(fa_walk *walk, void *state, const fa_known *known)
{
    if (known->cost > 0)
        anneal(walk, state, known);
}

const fa_strategy fa_strategy_annealing = {.name = "annealing",
                                           .summary =
                                               "random steps, ever fewer of them to worse points",
                                           .size = sizeof(struct annealing),
                                           .next = annealing_next,
                                           .told = annealing_told};

/* ---- evolution ------------------------------------------------------------------------------*/
/* Differential evolution (best/1/bin) on the indices of values, one member after the other, so that a batch
 * is as large as one likes. */
enum { MEMBERS = 8 };
struct evolution {
    int count, turn;
    struct {
        uint64_t rank;
        double cost;
    } member[MEMBERS];
};

static uint64_t evolution_next(fa_walk *walk, void *state, int32_t *ret_tag)
{
    const double weight = 0.7, crossing = 0.6;
    struct evolution *e = state;
    if (e->count <
        MEMBERS) /* more draws than members where some are under way: the best of them stay */
        return fa_walk_draw(walk);
    int best = 0, dims = walk->space.dims, own = e->turn++ % MEMBERS;
    for (int i = 1; i < MEMBERS; i++)
        best = e->member[i].cost < e->member[best].cost ? i : best;
    *ret_tag = own;
    int32_t lead[FA_SEARCH_DIMS_MAX], a[FA_SEARCH_DIMS_MAX], b[FA_SEARCH_DIMS_MAX],
        point[FA_SEARCH_DIMS_MAX];
    fa_walk_point(walk, e->member[best].rank, lead);
    for (int i = 0; i < 16; i++) {
        fa_walk_point(walk, e->member[own].rank, point);
        fa_walk_point(walk, e->member[fa_walk_below(walk, MEMBERS)].rank, a);
        fa_walk_point(walk, e->member[fa_walk_below(walk, MEMBERS)].rank, b);
        int sure = (int)fa_walk_below(walk, (uint32_t)dims);
        for (int d = 0; d < dims; d++) {
            if (d != sure && fa_walk_uniform(walk) >= crossing)
                continue;
            double x = round(lead[d] + weight * (a[d] - b[d]));
            point[d] = (int32_t)fmin(fmax(x, 0), walk->space.values[d] - 1);
        }
        uint64_t rank = fa_walk_rank(walk, point);
        if (fa_walk_find(walk, rank) == NULL && walk->space.valid(walk->space.context, point))
            return rank;
    }
    return fa_walk_mutate_new(walk, e->member[best].rank, 0.1);
}

static void evolution_told(fa_walk *walk, void *state, const fa_known *known)
{
    struct evolution *e = state;
    (void)walk;
    if (!(known->cost > 0))
        return;
    int at = known->tag;
    if (e->count < MEMBERS) {
        at = e->count++;
        e->member[at].cost = INFINITY;
    } else if (at < 0) { /* of the first draws, or on record before */
        at = 0;
        for (int i = 1; i < MEMBERS; i++)
            at = e->member[i].cost > e->member[at].cost ? i : at;
    }
    if (known->cost < e->member[at].cost) {
        e->member[at].rank = known->rank;
        e->member[at].cost = known->cost;
    }
}

const fa_strategy fa_strategy_evolution = {.name = "evolution",
                                           .summary = "differential evolution of eight points",
                                           .size = sizeof(struct evolution),
                                           .next = evolution_next,
                                           .told = evolution_told};
