/* SPDX-License-Identifier: Apache-2.0
 *
 * A Gaussian process over points in [0, 1]^dims: what a point may cost, and how unsure that is. Matérn 5/2, a
 * length for each parameter and one for its having another value at all, learnt from the points: neighbours in
 * the order of values may be far apart, as 96 and 128 threads are. Some hundred points; no allocation after init.
 */
#ifndef FA_SEARCH_GP_H
#define FA_SEARCH_GP_H

#include "search.h"

enum { FA_GP_POINTS_MAX = 320 };

typedef struct fa_gp {
    int dims, count;
    double length[2 * FA_SEARCH_DIMS_MAX], noise; /* noise: a share of the variance */
    double *x, *y;                            /* as added */
    double mean, variance;                    /* of y, and of the process */
    double *factor, *inverse, *weight, *scratch;
} fa_gp;

/* FA_ENOMEM. */
int fa_gp_init(fa_gp *gp, int dims);
void fa_gp_free(fa_gp *gp);

/* A point more, which counts from the next fa_gp_learn() or fa_gp_solve() on. */
void fa_gp_add(fa_gp *gp, const double *x, double y);
/* Some steps from the lengths of before to those that make the points likelier. */
void fa_gp_learn(fa_gp *gp, int steps);
/* Makes ready to predict. */
void fa_gp_solve(fa_gp *gp);
double fa_gp_kernel(const fa_gp *gp, const double *a, const double *b);
double fa_gp_mean(const fa_gp *gp, const double *x);
/* The mean, and the standard deviation. */
double fa_gp_predict(const fa_gp *gp, const double *x, double *ret_deviation);

#endif
