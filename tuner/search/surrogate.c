/* SPDX-License-Identifier: Apache-2.0
 *
 * The strategy that learns: a Gaussian process over the logarithms of what was measured says where the next point
 * is expected to gain most. It is asked about a pool of points drawn from the whole space, the neighbours of the
 * best, and whatever lies uphill from there.
 *
 * Points under way count as if they had cost what the model expects, so that a batch spreads. Configs that fail, or do
 * not compile, count as if they were slow.
 */
#include "walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POOL = 512, REFRESHED = 24, ELITE = 5, NEAR_MAX = 96, FAILED_MAX = 192, PENDING_MAX = 64 };

struct surrogate {
    bool ready, broken;
    fa_gp gp;
    int axis[FA_SEARCH_DIMS_MAX]; /* the parameters that have a choice */
    size_t known;                 /* of which the model was made */
    int64_t learnt;               /* at this many evaluations the lengths were last learnt */
    double goal;                  /* the logarithm of the cost that a point is to be below */
    uint64_t *pool;
    int pooled, oldest;
};

/* A point with what may be gained there. */
struct hope {
    uint64_t rank;
    double gain;
};

/* Where they only grow with the values, as with 16, 32, 64, the order says it all. */
static void place_twos(const fa_search_space *space, int axis, uint8_t *ret)
{
    bool grow = true;
    for (int i = 0; i < space->values[axis]; i++) {
        ret[i] = (uint8_t)space->twos(space->context, axis, i);
        grow = grow && (i == 0 || ret[i] >= ret[i - 1]);
    }
    if (grow)
        memset(ret, 0, (size_t)space->values[axis]);
}

static bool begin(fa_walk *walk, struct surrogate *s)
{
    const fa_search_space *space = &walk->space;
    int dims = 0, values[FA_SEARCH_DIMS_MAX] = {1};
    for (int d = 0; d < space->dims; d++)
        if (space->values[d] > 1) {
            values[dims] =
                space->values[d] < FA_GP_VALUES_MAX ? space->values[d] : FA_GP_VALUES_MAX;
            s->axis[dims++] = d;
        }
    s->ready = true;
    s->pool = malloc(POOL * sizeof *s->pool);
    if (fa_gp_init(&s->gp, dims > 0 ? dims : 1, values) != 0 || s->pool == NULL)
        return false;
    for (int d = 0; d < dims && space->twos != NULL; d++)
        if (space->values[s->axis[d]] == values[d])
            place_twos(space, s->axis[d], s->gp.twos[d]);
    return true;
}

static void surrogate_end(void *state)
{
    struct surrogate *s = state;
    fa_gp_free(&s->gp);
    free(s->pool);
}

/* Where there are more values than the model takes, neighbours are one to it. */
static void place(const fa_walk *walk, const struct surrogate *s, uint64_t rank, uint8_t *ret_x)
{
    int32_t point[FA_SEARCH_DIMS_MAX];
    fa_walk_point(walk, rank, point);
    for (int d = 0; d < s->gp.dims; d++) {
        int64_t values = walk->space.values[s->axis[d]], value = point[s->axis[d]];
        ret_x[d] = (uint8_t)(values == s->gp.values[d] ? value : value * FA_GP_VALUES_MAX / values);
    }
}

static int compare_costs(const void *a, const void *b)
{
    const fa_known *x = a, *y = b;
    return (x->cost > y->cost) - (x->cost < y->cost);
}

/* Those that have a cost, the cheapest first, and how many they are; NULL: out of memory. */
static fa_known *sorted(const fa_walk *walk, int *ret_count)
{
    fa_known *list = malloc((walk->count + 1) * sizeof *list);
    *ret_count = 0;
    for (size_t i = 0; list != NULL && i < walk->count; i++)
        if (walk->known[i].cost > 0)
            list[(*ret_count)++] = walk->known[i];
    if (list != NULL)
        qsort(list, (size_t)*ret_count, sizeof *list, compare_costs);
    return list;
}

/* The model of what is told and under way. At first only a gain as large as the best's over the middle counts, at the end
 * any: points a little better than a good one wait until the rest of the space is known. What is worse than the middle by
 * more than that counts as if by as much: how bad it is must not shape the model where it matters. So do the latest of
 * those that failed. */
static void model(fa_walk *walk, struct surrogate *s, const fa_known *list, int count)
{
    uint8_t x[FA_SEARCH_DIMS_MAX];
    fa_gp *gp = &s->gp;
    double least = log(list[0].cost), middle = log(list[count / 2].cost);
    double cap = 2 * middle - least;
    gp->count = 0;
    s->goal = least - (middle - least) * fmax(0, 1 - (double)walk->spent / (double)walk->expected);
    for (int i = 0; i < count && i < FA_GP_POINTS_MAX - FAILED_MAX - PENDING_MAX; i++) {
        place(walk, s, list[i].rank, x);
        fa_gp_add(gp, x, fmin(log(list[i].cost), cap));
    }
    int failed = 0;
    for (size_t i = walk->count; i-- > 0 && failed < FAILED_MAX;) {
        if (walk->known[i].cost >= 0)
            continue;
        failed++;
        place(walk, s, walk->known[i].rank, x);
        fa_gp_add(gp, x, cap);
    }
    if (walk->spent >= s->learnt + (s->learnt / 20) + 1) {
        fa_gp_learn(gp, s->learnt == 0 ? 30 : 8);
        s->learnt = walk->spent;
    }
    fa_gp_solve(gp);
    int told = gp->count;
    for (size_t i = walk->count; i-- > 0 && gp->count < FA_GP_POINTS_MAX;) {
        if (walk->known[i].cost != 0)
            continue;
        place(walk, s, walk->known[i].rank, x);
        int now = gp->count;
        gp->count = told; /* expected by what is told alone */
        double expected = fa_gp_mean(gp, x);
        gp->count = now;
        fa_gp_add(gp, x, expected);
    }
    if (gp->count > told)
        fa_gp_solve(gp);
}

static double expected_gain(double ahead, double deviation)
{
    double z = ahead / deviation;
    return fmax(
        ahead * 0.5 * erfc(-z * M_SQRT1_2) + deviation * exp(-z * z / 2) * 0.3989422804014327, 0);
}

/* Takes the point if more is expected to be gained there. */
static void consider(const fa_walk *walk, const struct surrogate *s, uint64_t rank,
                     struct hope *best)
{
    uint8_t x[FA_SEARCH_DIMS_MAX];
    if (rank == FA_NO_POINT || rank == best->rank || fa_walk_find(walk, rank) != NULL ||
        !fa_walk_valid(walk, rank))
        return;
    place(walk, s, rank, x);
    double ahead = s->goal - fa_gp_mean(&s->gp, x);
    if (expected_gain(ahead, fa_gp_deviation_most(&s->gp)) <= best->gain)
        return;
    double gain = expected_gain(ahead, fa_gp_deviation(&s->gp));
    if (gain > best->gain)
        *best = (struct hope){rank, gain};
}

/* The neighbours of a point, or some of them where they are many. */
static void consider_near(fa_walk *walk, const struct surrogate *s, uint64_t rank,
                          struct hope *best)
{
    uint32_t count = fa_walk_neighbours(walk), tried = count < NEAR_MAX ? count : NEAR_MAX;
    for (uint32_t k = 0; k < tried; k++)
        consider(walk, s,
                 fa_walk_neighbour(walk, rank, tried == count ? k : fa_walk_below(walk, count)),
                 best);
}

static void refresh(fa_walk *walk, struct surrogate *s)
{
    int fresh = s->pooled < POOL ? POOL : REFRESHED;
    for (int i = 0; i < fresh; i++) {
        uint64_t rank = fa_walk_draw(walk);
        if (rank == FA_NO_POINT)
            break;
        s->pool[s->oldest] = rank;
        s->oldest = (s->oldest + 1) % POOL;
        s->pooled += s->pooled < POOL;
    }
}

static uint64_t surrogate_next(fa_walk *walk, void *state, int32_t *ret_tag)
{
    struct surrogate *s = state;
    (void)ret_tag;
    if (!s->ready)
        s->broken = !begin(walk, s);
    int count = 0, first = 4 + s->gp.dims;
    fa_known *list = s->broken ? NULL : sorted(walk, &count);
    if (list == NULL) {
        walk->no_memory = true;
        return FA_NO_POINT;
    }
    if (count + walk->pending < first || count < 4) {
        free(list);
        return fa_walk_draw(walk);
    }
    struct hope best = {FA_NO_POINT, -1};
    model(walk, s, list, count);
    refresh(walk, s);
    for (int i = 0; i < ELITE && i < count; i++) {
        consider_near(walk, s, list[i].rank, &best);
        for (int k = 0; k < 24; k++)
            consider(walk, s, fa_walk_mutate(walk, list[i].rank, 0.3), &best);
    }
    for (int i = 0; i < s->pooled; i++)
        consider(walk, s, s->pool[i], &best);
    free(list);
    for (int i = 0; i < 30; i++) { /* uphill from the best of them */
        uint64_t from = best.rank;
        if (from == FA_NO_POINT)
            return fa_walk_draw(walk);
        consider_near(walk, s, from, &best);
        if (best.rank == from)
            break;
    }
    return best.rank;
}

const fa_strategy fa_strategy_surrogate = {.name = "surrogate",
                                           .summary =
                                               "a Gaussian process learns where to look next",
                                           .size = sizeof(struct surrogate),
                                           .next = surrogate_next,
                                           .end = surrogate_end};
