/* SPDX-License-Identifier: Apache-2.0 */
#include "walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is learnt of a parameter, and the noise as a share of the variance: a priori about the guess, within a factor of
 * e^width, and never beyond the limits. Lengths are shares of the way from the first value to the last. */
enum kind { LENGTH, STEP, TWOS, NOISE };
static const struct {
    double guess, width, least, most;
} prior[] = {
    [LENGTH] = {1.2, 1, 0.02, 50},
    [STEP] = {0.1, 1, 1e-4, 10},
    [TWOS] = {0.2, 0.7, 1e-4, 10},
    [NOISE] = {1e-3, 1.5, 1e-6, 0.3},
};

static enum kind kind_of(const fa_gp *gp, int i)
{
    return (enum kind)(i / gp->dims);
}

static double learnt(const fa_gp *gp, enum kind kind, int d)
{
    return exp(gp->learnt[(int)kind * gp->dims + d]);
}

int fa_gp_init(fa_gp *gp, int dims, const int *values)
{
    size_t most = FA_GP_POINTS_MAX, square = most * most, cells = 0;
    *gp = (fa_gp){.dims = dims};
    for (int d = 0; d < dims; d++) {
        gp->values[d] = values[d];
        cells += (size_t)values[d] * (size_t)(values[d] + 1);
    }
    for (int i = 0; i <= 3 * dims; i++)
        gp->learnt[i] = log(prior[kind_of(gp, i)].guess);
    gp->x = malloc(most * (size_t)dims);
    gp->y = malloc(most * sizeof(double));
    gp->alike[0] = malloc(cells * sizeof(double));
    gp->factor = malloc(square * sizeof(double));
    gp->inverse = malloc(square * sizeof(double));
    gp->weight = malloc(most * sizeof(double));
    gp->scratch = malloc(most * sizeof(double));
    gp->near = malloc(most * sizeof(double));
    if (gp->x == NULL || gp->y == NULL || gp->alike[0] == NULL || gp->factor == NULL ||
        gp->inverse == NULL || gp->weight == NULL || gp->scratch == NULL || gp->near == NULL)
        return FA_ENOMEM;
    for (int d = 0; d < dims; d++) {
        size_t count = (size_t)values[d];
        gp->slope[d] = gp->alike[d] + count * count;
        if (d + 1 < dims)
            gp->alike[d + 1] = gp->slope[d] + count;
    }
    return 0;
}

void fa_gp_free(fa_gp *gp)
{
    free(gp->x);
    free(gp->y);
    free(gp->alike[0]);
    free(gp->factor);
    free(gp->inverse);
    free(gp->weight);
    free(gp->scratch);
    free(gp->near);
}

void fa_gp_add(fa_gp *gp, const uint8_t *x, double y)
{
    for (int d = 0; d < gp->dims; d++)
        gp->x[(size_t)d * FA_GP_POINTS_MAX + (size_t)gp->count] = x[d];
    gp->y[gp->count++] = y;
}

/* ---- how alike points are -------------------------------------------------------------------*/
/* The tables of one parameter: no exponential is left for pairs of points. */
static void tabulate(fa_gp *gp, int d)
{
    int count = gp->values[d];
    double by_order[FA_GP_VALUES_MAX], by_twos[UINT8_MAX + 1];
    double unit = sqrt(5) / learnt(gp, LENGTH, d) / (count > 1 ? count - 1 : 1);
    for (int i = 0; i < count; i++) {
        double r = unit * i, factor = 1 + r + r * r / 3;
        by_order[i] = factor * exp(-r - learnt(gp, STEP, d));
        gp->slope[d][i] = r * r * (1 + r) / 3 / factor;
    }
    for (int i = 0; i <= UINT8_MAX; i++)
        by_twos[i] =
            i == 0 ? 1 : by_twos[i - 1] * (i == 1 ? exp(-learnt(gp, TWOS, d)) : by_twos[1]);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            gp->alike[d][i * count + j] =
                i == j ? 1 : by_order[abs(i - j)] * by_twos[abs(gp->twos[d][i] - gp->twos[d][j])];
}

/* A point and each of the first `count`. */
static void all_alike(const fa_gp *gp, const uint8_t *x, int count, double *ret)
{
    for (int i = 0; i < count; i++)
        ret[i] = 1;
    for (int d = 0; d < gp->dims; d++) {
        const uint8_t *other = gp->x + (size_t)d * FA_GP_POINTS_MAX;
        const double *alike = gp->alike[d] + x[d] * gp->values[d];
        for (int i = 0; i < count; i++)
            ret[i] *= alike[other[i]];
    }
}

static void point(const fa_gp *gp, int i, uint8_t *ret_x)
{
    for (int d = 0; d < gp->dims; d++)
        ret_x[d] = gp->x[(size_t)d * FA_GP_POINTS_MAX + (size_t)i];
}

/* ---- linear algebra -------------------------------------------------------------------------*/
/* Four sums, so that no product waits for the one before it. */
static double dot(const double *a, const double *b, int count)
{
    double sum[4] = {0};
    int i = 0;
    for (; i + 4 <= count; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < count; i++)
        sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* x := L^-1 x, for a vector whose elements before `first` are 0. */
static void forward(const fa_gp *gp, int first, double *x)
{
    for (int i = first; i < gp->count; i++) {
        const double *row = gp->factor + (size_t)i * FA_GP_POINTS_MAX;
        x[i] = (x[i] - dot(row + first, x + first, i - first)) / row[i];
    }
}

static void backward(const fa_gp *gp, double *x)
{
    for (int i = gp->count - 1; i >= 0; i--) {
        const double *row = gp->factor + (size_t)i * FA_GP_POINTS_MAX;
        x[i] /= row[i];
        for (int j = 0; j < i; j++)
            x[j] -= row[j] * x[i];
    }
}

/* The Cholesky factor of the kernel, and the weights of a prediction. The noise on the diagonal keeps it positive. */
void fa_gp_solve(fa_gp *gp)
{
    uint8_t x[FA_SEARCH_DIMS_MAX];
    double sum = 0, noise = learnt(gp, NOISE, 0);
    for (int d = 0; d < gp->dims; d++)
        tabulate(gp, d);
    for (int i = 0; i < gp->count; i++)
        sum += gp->y[i];
    gp->mean = gp->count > 0 ? sum / gp->count : 0;
    for (int i = 0; i < gp->count; i++) {
        double *row = gp->factor + (size_t)i * FA_GP_POINTS_MAX;
        point(gp, i, x);
        all_alike(gp, x, i, row);
        for (int j = 0; j < i; j++) {
            const double *other = gp->factor + (size_t)j * FA_GP_POINTS_MAX;
            row[j] = (row[j] - dot(row, other, j)) / other[j];
        }
        row[i] = sqrt(fmax(1 + noise - dot(row, row, i), 1e-9));
        gp->weight[i] = gp->y[i] - gp->mean;
    }
    forward(gp, 0, gp->weight);
    sum = dot(gp->weight, gp->weight, gp->count);
    gp->variance = gp->count > 0 ? fmax(sum / gp->count, 1e-12) : 1;
    backward(gp, gp->weight);
}

/* The inverse of the kernel, from its factor: a column after the other. */
static void invert(fa_gp *gp)
{
    for (int c = 0; c < gp->count; c++) {
        double *column = gp->inverse + (size_t)c * FA_GP_POINTS_MAX;
        memset(column, 0, (size_t)gp->count * sizeof *column);
        column[c] = 1;
        forward(gp, c, column);
        backward(gp, column);
    }
}

/* ---- learning -------------------------------------------------------------------------------*/
/* What the pairs of one point with those before it add to the gradient; `share` is of each pair. */
static void add_pairs(const fa_gp *gp, int i, const double *share, double *gradient)
{
    for (int d = 0; d < gp->dims; d++) {
        const uint8_t *value = gp->x + (size_t)d * FA_GP_POINTS_MAX, *twos = gp->twos[d];
        double length = 0, step = 0, power = 0;
        for (int j = 0; j < i; j++) {
            length += share[j] * gp->slope[d][abs(value[i] - value[j])];
            step += value[i] != value[j] ? share[j] : 0;
            power += share[j] * abs(twos[value[i]] - twos[value[j]]);
        }
        gradient[d] += length;
        gradient[gp->dims + d] -= step;
        gradient[2 * gp->dims + d] -= power;
    }
}

/* How the logarithm of the posterior grows with what is learnt. */
static void gradient_of(fa_gp *gp, double *ret)
{
    uint8_t x[FA_SEARCH_DIMS_MAX];
    double *share = gp->scratch;
    fa_gp_solve(gp);
    invert(gp);
    memset(ret, 0, (size_t)(3 * gp->dims + 1) * sizeof *ret);
    for (int i = 0; i < gp->count; i++) {
        const double *inverse = gp->inverse + (size_t)i * FA_GP_POINTS_MAX;
        double weight = gp->weight[i] / gp->variance;
        point(gp, i, x);
        all_alike(gp, x, i, share);
        for (int j = 0; j < i; j++)
            share[j] *= weight * gp->weight[j] - inverse[j];
        add_pairs(gp, i, share, ret);
        ret[3 * gp->dims] += 0.5 * (weight * gp->weight[i] - inverse[i]);
    }
    for (int i = 0; i <= 3 * gp->dims; i++) {
        enum kind kind = kind_of(gp, i);
        double by_guess = (log(prior[kind].guess) - gp->learnt[i]) / prior[kind].width;
        ret[i] = ret[i] * (kind == LENGTH ? 1 : exp(gp->learnt[i])) + by_guess / prior[kind].width;
    }
}

/* Steps by the signs of the gradient alone (Rprop): no line search, and no scale to choose. */
void fa_gp_learn(fa_gp *gp, int steps)
{
    double now[FA_GP_LEARNT_MAX], before[FA_GP_LEARNT_MAX] = {0}, step[FA_GP_LEARNT_MAX];
    int count = 3 * gp->dims + 1;
    for (int i = 0; i < count; i++)
        step[i] = 0.2;
    for (int s = 0; s < steps && gp->count > 2; s++) {
        gradient_of(gp, now);
        for (int i = 0; i < count; i++) {
            enum kind kind = kind_of(gp, i);
            double agree = now[i] * before[i];
            step[i] = agree > 0 ? fmin(step[i] * 1.3, 1) : agree < 0 ? step[i] * 0.5 : step[i];
            before[i] = now[i];
            gp->learnt[i] = fmin(
                fmax(gp->learnt[i] + (now[i] > 0 ? step[i] : -step[i]), log(prior[kind].least)),
                log(prior[kind].most));
        }
    }
}

/* ---- predicting -----------------------------------------------------------------------------*/
double fa_gp_mean(const fa_gp *gp, const uint8_t *x)
{
    all_alike(gp, x, gp->count, gp->near);
    return gp->mean + dot(gp->near, gp->weight, gp->count);
}

double fa_gp_deviation(const fa_gp *gp)
{
    memcpy(gp->scratch, gp->near, (size_t)gp->count * sizeof *gp->scratch);
    forward(gp, 0, gp->scratch);
    double left = 1 - dot(gp->scratch, gp->scratch, gp->count);
    return sqrt(gp->variance * fmax(left, 1e-9));
}

/* What would be left if the point that is most alike were the only one. */
double fa_gp_deviation_most(const fa_gp *gp)
{
    double most = 0;
    for (int i = 0; i < gp->count; i++)
        most = fmax(most, gp->near[i]);
    double left = 1 - most * most / (1 + learnt(gp, NOISE, 0));
    return sqrt(gp->variance * fmax(left, 1e-9));
}
