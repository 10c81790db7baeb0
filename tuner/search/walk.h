/* SPDX-License-Identifier: Apache-2.0
 *
 * What every strategy of a search stands on: points as numbers, which of them are known, draws and neighbours.
 */
#ifndef FA_SEARCH_WALK_H
#define FA_SEARCH_WALK_H

#include "search.h"

#define FA_NO_POINT UINT64_MAX

typedef struct fa_known {
    uint64_t rank;
    double cost; /* 0: under way; FA_SEARCH_UNBUILT, FA_SEARCH_FAILED */
} fa_known;

/* A strategy. */
typedef struct fa_strategy {
    const char *name;
    size_t size; /* of fa_walk.state */
    /* A point that exists and is not known; FA_NO_POINT: nothing now. */
    uint64_t (*next)(fa_search *walk);
} fa_strategy;

extern const fa_strategy fa_strategy_exhaustive, fa_strategy_random, fa_strategy_surrogate;

/* A search, and what is known of its space. A point's rank is its number among all combinations, whether they exist or not. */
typedef struct fa_search {
    const fa_strategy *strategy;
    void *state; /* of the strategy; all 0 at first */
    fa_search_space space;
    uint64_t size;                    /* combinations */
    double phase[FA_SEARCH_DIMS_MAX]; /* of the sequence of draws */
    double step[FA_SEARCH_DIMS_MAX];
    double choices; /* the most that a point drawn value by value was one of */
    int64_t evaluations, spent, pending;
    int64_t expected; /* to be spent */
    uint64_t seed, random, drawn;
    fa_known *known; /* in the order in which they became so */
    size_t count, capacity;
    uint32_t *slot; /* hash table of index + 1 */
    size_t slots;
    uint64_t scan; /* every point before this rank was proposed or does not exist */
    bool no_memory; /* a strategy found none: the search is at its end */
} fa_walk;          /* as strategies know it */

int fa_walk_init(fa_walk *walk, const fa_search_space *space, const fa_search_options *options);
void fa_walk_free(fa_walk *walk);

uint64_t fa_walk_rank(const fa_walk *walk, const int32_t *point);
void fa_walk_point(const fa_walk *walk, uint64_t rank, int32_t *ret_point);
bool fa_walk_valid(const fa_walk *walk, uint64_t rank);
/* NULL: not known. */
fa_known *fa_walk_find(const fa_walk *walk, uint64_t rank);
/* Joins a point that is under way. NULL: out of memory. */
fa_known *fa_walk_add(fa_walk *walk, uint64_t rank);

/* [0, below). */
uint32_t fa_walk_below(fa_walk *walk, uint32_t below);

/* A point that exists and is not known, evenly spread over the space by a sequence of low discrepancy, or drawn value by
 * value where points are rare and space.begins is known; FA_NO_POINT: there is none, or it is too rare to be found. */
uint64_t fa_walk_draw(fa_walk *walk);
/* How many points differ from one in a single parameter, whether they exist or not; and the k-th of them. */
uint32_t fa_walk_neighbours(const fa_walk *walk);
uint64_t fa_walk_neighbour(const fa_walk *walk, uint64_t rank, uint32_t k);

#endif
