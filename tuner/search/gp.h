/* SPDX-License-Identifier: Apache-2.0
 *
 * A Gaussian process over the points of a grid: what a point may cost, and how unsure that is. Two points are alike as
 * the product over their parameters says. Of each parameter three numbers are learnt: a length (Matérn 5/2 over the
 * order of values), what any other value costs (96 and 128 threads may be far apart), and what another power of 2 in
 * it costs (64 and 128 are nearer to one another than to 96). Some hundred points; no allocation after init.
 */
#ifndef FA_SEARCH_GP_H
#define FA_SEARCH_GP_H

#include "search.h"

enum {
    FA_GP_POINTS_MAX = 448,
    FA_GP_VALUES_MAX = 256,
    FA_GP_LEARNT_MAX = 3 * FA_SEARCH_DIMS_MAX + 1
};

typedef struct fa_gp {
    int dims, count;
    int values[FA_SEARCH_DIMS_MAX]; /* of each parameter, at most FA_GP_VALUES_MAX */
    uint8_t twos[FA_SEARCH_DIMS_MAX]
                [FA_GP_VALUES_MAX]; /* how often 2 divides a value; all 0 at first */
    double learnt
        [FA_GP_LEARNT_MAX]; /* logarithms: lengths, steps, powers of 2 of each parameter; the noise */
    uint8_t *x;             /* [dims][FA_GP_POINTS_MAX], indices of values */
    double *y;
    double mean, variance;             /* of y, and of the process */
    double *alike[FA_SEARCH_DIMS_MAX]; /* of two values of a parameter: [values][values] */
    double *slope
        [FA_SEARCH_DIMS_MAX]; /* of its logarithm by that of the length, by how far they are apart */
    double *factor, *inverse, *weight, *scratch;
    double *near; /* how alike each point and that of the last fa_gp_mean() are */
} fa_gp;

/* FA_ENOMEM. */
int fa_gp_init(fa_gp *gp, int dims, const int *values);
void fa_gp_free(fa_gp *gp);

/* A point more, which counts from the next fa_gp_learn() or fa_gp_solve() on. */
void fa_gp_add(fa_gp *gp, const uint8_t *x, double y);
/* Some steps from what was learnt before to what makes the points likelier. */
void fa_gp_learn(fa_gp *gp, int steps);
/* Makes ready to predict. */
void fa_gp_solve(fa_gp *gp);
double fa_gp_mean(const fa_gp *gp, const uint8_t *x);
/* The standard deviation at the point of the last fa_gp_mean(); and what it is not above, which costs less. */
double fa_gp_deviation(const fa_gp *gp);
double fa_gp_deviation_most(const fa_gp *gp);

#endif
