/* SPDX-License-Identifier: Apache-2.0
 *
 * What every strategy stands on, and the strategies that need no model: every point in order, and points spread evenly
 * over the space.
 */
#include "search.h"

#include "hash.h"

#include <math.h>
#include <stdlib.h>

/* Draws that find nothing before points are drawn value by value, if they can be, and before the rest is looked through in
 * order, and how much of it then is. */
enum { DRAWS_FEW = 64, DESCENTS_MAX = 1000, DRAWS_MAX = 200000, SCAN_MAX = 1 << 20 };

/* [0, 1). */
static double uniform(fa_search *walk)
{
    return (double)(fa_random(walk->seed, walk->random++) >> 11) * 0x1p-53;
}

int fa_walk_init(fa_search *walk, const fa_search_space *space, const fa_search_options *options)
{
    *walk = (fa_search){.space = *space,
                        .evaluations = options->evaluations,
                        .expected = options->evaluations,
                        .seed = options->seed,
                        .size = 1,
                        .slots = 256};
    walk->slot = calloc(walk->slots, sizeof *walk->slot);
    if (options->expected > 0 && options->expected < options->evaluations)
        walk->expected = options->expected;
    /* The additive sequence of the generalised golden ratio: g^(dims + 1) = g + 1. */
    double ratio = 2;
    for (int i = 0; i < 60; i++)
        ratio = pow(1 + ratio, 1.0 / (space->dims + 1));
    for (int d = 0; d < space->dims; d++) {
        if (walk->size > (UINT64_C(1) << 62) / (uint64_t)space->values[d])
            return FA_EINVAL;
        walk->size *= (uint64_t)space->values[d];
        walk->step[d] = pow(1 / ratio, d + 1);
        walk->phase[d] = uniform(walk);
    }
    return walk->slot != NULL ? 0 : FA_ENOMEM;
}

uint64_t fa_walk_rank(const fa_search *walk, const int32_t *point)
{
    uint64_t rank = 0;
    for (int d = 0; d < walk->space.dims; d++)
        rank = rank * (uint64_t)walk->space.values[d] + (uint64_t)point[d];
    return rank;
}

void fa_walk_point(const fa_search *walk, uint64_t rank, int32_t *ret_point)
{
    for (int d = walk->space.dims - 1; d >= 0; d--) {
        ret_point[d] = (int32_t)(rank % (uint64_t)walk->space.values[d]);
        rank /= (uint64_t)walk->space.values[d];
    }
}

bool fa_walk_valid(const fa_search *walk, uint64_t rank)
{
    int32_t point[FA_SEARCH_DIMS_MAX];
    fa_walk_point(walk, rank, point);
    return walk->space.valid(walk->space.context, point);
}

/* ---- what is known --------------------------------------------------------------------------*/
static size_t slot_of(const fa_search *walk, uint64_t rank)
{
    size_t at = (size_t)fa_random(rank, 0) & (walk->slots - 1);
    while (walk->slot[at] != 0 && walk->known[walk->slot[at] - 1].rank != rank)
        at = (at + 1) & (walk->slots - 1);
    return at;
}

fa_known *fa_walk_find(const fa_search *walk, uint64_t rank)
{
    uint32_t index = walk->slot[slot_of(walk, rank)];
    return index != 0 ? &walk->known[index - 1] : NULL;
}

fa_known *fa_walk_add(fa_search *walk, uint64_t rank)
{
    if (walk->count == walk->capacity) {
        size_t capacity = walk->capacity != 0 ? walk->capacity * 2 : 64;
        fa_known *known = realloc(walk->known, capacity * sizeof *known);
        if (known == NULL)
            return NULL;
        walk->known = known;
        walk->capacity = capacity;
    }
    if ((walk->count + 1) * 2 > walk->slots) {
        uint32_t *slot = calloc(walk->slots * 2, sizeof *slot);
        if (slot == NULL)
            return NULL;
        free(walk->slot);
        walk->slot = slot;
        walk->slots *= 2;
        for (size_t i = 0; i < walk->count; i++)
            slot[slot_of(walk, walk->known[i].rank)] = (uint32_t)i + 1;
    }
    size_t at = slot_of(walk, rank);
    walk->known[walk->count] = (fa_known){.rank = rank};
    walk->slot[at] = (uint32_t)++walk->count;
    walk->pending++;
    return &walk->known[walk->count - 1];
}

/* ---- draws ----------------------------------------------------------------------------------*/
uint32_t fa_walk_below(fa_search *walk, uint32_t below)
{
    return (uint32_t)((fa_random(walk->seed, walk->random++) >> 32) * below >> 32);
}

static bool is_new(const fa_search *walk, uint64_t rank)
{
    return fa_walk_find(walk, rank) == NULL && fa_walk_valid(walk, rank);
}

/* The first in the order of ranks; FA_NO_POINT. */
static uint64_t next_point(fa_search *walk)
{
    for (int i = 0; i < SCAN_MAX && walk->scan < walk->size; i++, walk->scan++)
        if (is_new(walk, walk->scan))
            return walk->scan;
    return FA_NO_POINT;
}

/* A point drawn value by value, each from those that a point may go on with: of so many choices in all. FA_NO_POINT: no
 * value went on. */
static uint64_t descend(fa_search *walk, double *ret_choices)
{
    const fa_search_space *space = &walk->space;
    int32_t point[FA_SEARCH_DIMS_MAX];
    *ret_choices = 1;
    for (int d = 0; d < space->dims; d++) {
        int32_t chosen = 0;
        uint32_t count = 0;
        for (point[d] = 0; point[d] < space->values[d]; point[d]++)
            if (space->begins(space->context, point, d + 1) && fa_walk_below(walk, ++count) == 0)
                chosen = point[d];
        if (count == 0)
            return FA_NO_POINT;
        point[d] = chosen;
        *ret_choices *= count;
    }
    return fa_walk_rank(walk, point);
}

/* A point that is one of few choices is drawn too often by as much: it is taken as much more rarely. */
static uint64_t draw_rare(fa_search *walk)
{
    uint64_t last = FA_NO_POINT;
    for (int i = 0; i < DESCENTS_MAX; i++) {
        double choices;
        uint64_t rank = descend(walk, &choices);
        if (rank == FA_NO_POINT || !is_new(walk, rank))
            continue;
        last = rank;
        walk->choices = fmax(walk->choices, choices);
        if (uniform(walk) * walk->choices < choices)
            break;
    }
    return last != FA_NO_POINT ? last : next_point(walk);
}

uint64_t fa_walk_draw(fa_search *walk)
{
    int32_t point[FA_SEARCH_DIMS_MAX];
    for (int i = 0; i < (walk->space.begins != NULL ? DRAWS_FEW : DRAWS_MAX); i++) {
        double n = (double)++walk->drawn;
        for (int d = 0; d < walk->space.dims; d++) {
            double x = walk->phase[d] + n * walk->step[d];
            point[d] = (int32_t)((x - floor(x)) * walk->space.values[d]);
        }
        uint64_t rank = fa_walk_rank(walk, point);
        if (is_new(walk, rank))
            return rank;
    }
    return walk->space.begins != NULL ? draw_rare(walk) : next_point(walk);
}

/* ---- neighbours -----------------------------------------------------------------------------*/
uint32_t fa_walk_neighbours(const fa_search *walk)
{
    uint32_t count = 0;
    for (int d = 0; d < walk->space.dims; d++)
        count += (uint32_t)walk->space.values[d] - 1;
    return count;
}

uint64_t fa_walk_neighbour(const fa_search *walk, uint64_t rank, uint32_t k)
{
    int32_t point[FA_SEARCH_DIMS_MAX];
    int d = 0;
    fa_walk_point(walk, rank, point);
    for (; k >= (uint32_t)walk->space.values[d] - 1; d++)
        k -= (uint32_t)walk->space.values[d] - 1;
    point[d] = (int32_t)k < point[d] ? (int32_t)k : (int32_t)k + 1;
    return fa_walk_rank(walk, point);
}

/* ---- strategies: all, and any ---------------------------------------------------------------*/
const fa_strategy fa_strategy_exhaustive = {.name = "exhaustive", .next = next_point};

const fa_strategy fa_strategy_random = {.name = "random", .next = fa_walk_draw};
