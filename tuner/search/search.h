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

#include "fa_types.h"

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

typedef struct fa_search fa_search;

/* The name of the i-th strategy; NULL past the last. */
const char *fa_search_strategy(int i);
/* Checks how a space is to be searched (fa_request). *strategy, where it is not NULL, becomes the name that is valid
 * for good. FA_EINVAL with a sentence. */
int fa_search_check(const char **strategy, int32_t evaluations, double seconds, fa_diag *diag);

/* FA_EINVAL: the space is too large; FA_ENOMEM. */
int fa_search_open(const fa_search_space *space, const fa_search_options *options,
                   fa_search **ret_search, fa_diag *diag);
void fa_search_close(fa_search *search); /* NULL is allowed */

/* The strategy at work: what "auto" chose. */
const char *fa_search_name(const fa_search *search);

/* Up to `count` points that were neither proposed nor told, each `dims` indices, one after the other. Returns how
 * many: fewer, or 0, when the budget is spent by what is told and under way, when the strategy waits for costs of
 * what is under way, or when nothing is left; 0 with nothing under way ends the search. FA_ENOMEM. */
int fa_search_propose(fa_search *search, int count, int32_t *ret_points);

/* As if the point had been proposed. FA_EINVAL for what is no point of the space or known, FA_ENOMEM. */
int fa_search_join(fa_search *search, const int32_t *point);

/* What a point costs; of a point that was never proposed, too. The first that is told of a point stays.
 * FA_EINVAL for what is no point of the space, FA_ENOMEM. */
int fa_search_tell(fa_search *search, const int32_t *point, double cost);

/* What was spent, and how many are under way. */
int64_t fa_search_spent(const fa_search *search);
int64_t fa_search_pending(const fa_search *search);

#endif
