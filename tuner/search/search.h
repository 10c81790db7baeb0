/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking for the cheapest point of a finite space that is too large to be tried whole.
 *
 * A space is some parameters with so many values each, in an order that means something, and a function that says
 * which points exist. It is never built: points are drawn, and walked from to their neighbours. The caller asks
 * for points and tells what they cost, in any order, so that compiles run ahead of measurements:
 *
 *     fa_search *search;
 *     int rc = fa_search_open(&space, &(fa_search_options){.evaluations = 100}, &search, diag);
 *     while (rc == 0 && fa_search_propose(search, 8, points) > 0)
 *         for each point: fa_search_tell(search, point, cost or FA_SEARCH_UNBUILT or FA_SEARCH_FAILED);
 *
 * What was on record before is told first: nothing is proposed twice. What breaks a restriction is never proposed,
 * and what could not be built costs no evaluation. The same seed, space and answers give the same proposals. One
 * thread uses a search at a time; it calls nothing but the space's function.
 */
#ifndef FA_SEARCH_H
#define FA_SEARCH_H

#include "family.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FA_SEARCH_DIMS_MAX = 48, FA_SEARCH_VALUES_MAX = 256 };

typedef struct fa_search_space {
    int dims;
    /* of each parameter, 1 to FA_SEARCH_VALUES_MAX; their product is at most 2^62 */
    int32_t values[FA_SEARCH_DIMS_MAX];
    /* Whether this point exists: an index for each parameter. */
    bool (*valid)(void *context, const int32_t *point);
    /* Whether a point may begin with the first `count` values. NULL: not known; rare points are then drawn slowly. */
    bool (*begins)(void *context, const int32_t *point, int count);
    /* How often 2 divides the number that a value of a parameter is, as fa_search_twos() counts. NULL: not known. */
    int (*twos)(void *context, int dim, int32_t value);
    void *context;
} fa_search_space;

/* 0 of what is no whole number above 0. */
int fa_search_twos(double number);

/* Costs are finite and above 0. Anything else told counts as FA_SEARCH_FAILED. */
#define FA_SEARCH_UNBUILT (-1.0) /* it did not compile: costs no evaluation */
#define FA_SEARCH_FAILED (-2.0)  /* it ran, and failed */

typedef struct fa_search_options {
    const char *strategy; /* as fa_search_check() allows; NULL: "auto" */
    int64_t evaluations;  /* what may be spent, above 0; costs and failures count */
    uint64_t seed;
    int64_t expected;     /* what is likely to be spent where a clock may end it; 0: evaluations */
} fa_search_options;

#define FA_NO_POINT UINT64_MAX

typedef struct fa_known {
    uint64_t rank;
    double cost; /* 0: under way; FA_SEARCH_UNBUILT, FA_SEARCH_FAILED */
} fa_known;

/* A search, and what is known of its space. A point's rank is its number among all combinations, whether they exist or not. */
typedef struct fa_search {
    const struct fa_strategy *strategy; /* at work: what "auto" chose */
    void *state;                        /* of the strategy; all 0 at first */
    fa_search_space space;
    uint64_t size;                    /* combinations */
    double phase[FA_SEARCH_DIMS_MAX]; /* of the sequence of draws */
    double step[FA_SEARCH_DIMS_MAX];
    double choices; /* the most that a point drawn value by value was one of */
    int64_t evaluations, spent, pending /* proposed, and not told */, expected /* to be spent */;
    uint64_t seed, random, drawn;
    fa_known *known; /* in the order in which they became so */
    size_t count, capacity;
    uint32_t *slot; /* hash table of index + 1 */
    size_t slots;
    uint64_t scan;  /* every point before this rank was proposed or does not exist */
    bool no_memory; /* a strategy found none: the search is at its end */
} fa_search;

/* The name of the i-th strategy; NULL past the last. */
const char *fa_search_strategy(int i);
/* Checks how a space is to be searched (fa_request). *strategy, where it is not NULL, becomes the name that is valid
 * for good. FA_EINVAL with a sentence. */
int fa_search_check(const char **strategy, int32_t evaluations, double seconds, fa_diag *diag);

/* FA_EINVAL: the space is too large; FA_ENOMEM. */
int fa_search_open(const fa_search_space *space, const fa_search_options *options,
                   fa_search **ret_search, fa_diag *diag);
void fa_search_close(fa_search *search); /* NULL is allowed */

/* Up to `count` points that were neither proposed nor told, each `dims` indices, one after the other. Returns how
 * many: fewer, or 0, when the budget is spent by what is told and under way, when the strategy waits for costs of
 * what is under way, or when nothing is left; 0 with nothing under way ends the search. FA_ENOMEM. */
int fa_search_propose(fa_search *search, int count, int32_t *ret_points);

/* As if the point had been proposed. FA_EINVAL for what is no point of the space or known, FA_ENOMEM. */
int fa_search_join(fa_search *search, const int32_t *point);

/* What a point costs; of a point that was never proposed, too. The first that is told of a point stays.
 * FA_EINVAL for what is no point of the space, FA_ENOMEM. */
int fa_search_tell(fa_search *search, const int32_t *point, double cost);

/* A strategy. */
typedef struct fa_strategy {
    const char *name;
    size_t size; /* of fa_search.state */
    /* A point that exists and is not known; FA_NO_POINT: nothing now. */
    uint64_t (*next)(fa_search *walk);
} fa_strategy;

uint64_t fa_walk_rank(const fa_search *walk, const int32_t *point);
/* NULL: not known. */
fa_known *fa_walk_find(const fa_search *walk, uint64_t rank);

/* ---- space.c ---------------------------------------------------------------------------------*/
/* The space of a problem on a GPU as points to be searched: never built, each config judged when it is asked about. A point has
 * the family where several serve (the first parameter), then an index into the domain of each tunable; families with
 * fewer tunables or values than others leave the rest at 0. Not for several threads at once. */
typedef struct fa_points {
    fa_search_space space; /* points exist where a config holds to the constraints and the budget */
    int rc; /* FA_EMANIFEST: an expression had no value where a point was asked about */
    fa_diag diag;
    fa_candidate judged; /* the point that was last asked about */
    int count;
    struct {
        fa_point point; /* whose preset is the default config, which may not exist */
        bool empty;     /* whatever the tunables are */
    } family[];         /* those that serve */
} fa_points;

/* The families, which must outlive it, as fa_space_enumerate() chooses them. */
int fa_points_open(const fa_task *task, fa_points **ret_points, fa_diag *diag);
void fa_points_close(fa_points **points); /* NULL and pointer to NULL are allowed */

/* The config of a point that exists, as fa_space_one() judges it. */
void fa_points_candidate(fa_points *points, const int32_t *point, fa_candidate *ret_candidate);
/* The point of a config; false: it is none of the space. */
bool fa_points_find(fa_points *points, const fa_config *config, int32_t *ret_point);
/* From now on no point of the family, of that index in the list, exists; false: none of another family does either. */
bool fa_points_give_up(fa_points *points, int family);

#endif
