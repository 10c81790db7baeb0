/* SPDX-License-Identifier: Apache-2.0 */
#include "gp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A priori a length is about this, within a factor of e^width; that of a step to any other value, and the noise,
 * likewise. */
static const double length_guess = 0.7, length_width = 1.6;
static const double step_guess = 2.0;
static const double noise_guess = 1e-3, noise_width = 1.5;

int fa_gp_init(fa_gp *gp, int dims)
{
    size_t most = FA_GP_POINTS_MAX, square = most * most;
    *gp = (fa_gp){.dims = dims, .noise = noise_guess};
    for (int d = 0; d < dims; d++) {
        gp->length[d] = length_guess;
        gp->length[dims + d] = step_guess;
    }
    gp->x = malloc(most * (size_t)dims * sizeof(double));
    gp->y = malloc(most * sizeof(double));
    gp->factor = malloc(square * sizeof(double));
    gp->inverse = malloc(square * sizeof(double));
    gp->weight = malloc(most * sizeof(double));
    gp->scratch = malloc(most * sizeof(double));
    return gp->x != NULL && gp->y != NULL && gp->factor != NULL && gp->inverse != NULL &&
                   gp->weight != NULL && gp->scratch != NULL
               ? 0
               : FA_ENOMEM;
}

void fa_gp_free(fa_gp *gp)
{
    free(gp->x);
    free(gp->y);
    free(gp->factor);
    free(gp->inverse);
    free(gp->weight);
    free(gp->scratch);
}

void fa_gp_add(fa_gp *gp, const double *x, double y)
{
    memcpy(gp->x + (size_t)gp->count * (size_t)gp->dims, x, (size_t)gp->dims * sizeof *x);
    gp->y[gp->count++] = y;
}

static const double *point(const fa_gp *gp, int i)
{
    return gp->x + (size_t)i * (size_t)gp->dims;
}

/* By how many lengths two points differ in a parameter and, from dims on, by its having another value at all. */
static double apart(const fa_gp *gp, const double *a, const double *b, int d)
{
    double by = d < gp->dims ? a[d] - b[d] : a[d - gp->dims] != b[d - gp->dims];
    return by / gp->length[d];
}

static double root5_distance(const fa_gp *gp, const double *a, const double *b)
{
    double sum = 0;
    for (int d = 0; d < gp->dims; d++) {
        if (a[d] == b[d])
            continue;
        double by = (a[d] - b[d]) / gp->length[d], step = 1 / gp->length[gp->dims + d];
        sum += by * by + step * step;
    }
    return sqrt(5 * sum);
}

double fa_gp_kernel(const fa_gp *gp, const double *a, const double *b)
{
    double r = root5_distance(gp, a, b);
    return (1 + r + r * r / 3) * exp(-r);
}

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

/* Kernel, its Cholesky factor, and the weights of a prediction. The noise on the diagonal keeps it positive. */
void fa_gp_solve(fa_gp *gp)
{
    double sum = 0;
    for (int i = 0; i < gp->count; i++)
        sum += gp->y[i];
    gp->mean = gp->count > 0 ? sum / gp->count : 0;
    for (int i = 0; i < gp->count; i++) {
        double *row = gp->factor + (size_t)i * FA_GP_POINTS_MAX;
        for (int j = 0; j <= i; j++) {
            const double *other = gp->factor + (size_t)j * FA_GP_POINTS_MAX;
            double value = i == j ? 1 + gp->noise : fa_gp_kernel(gp, point(gp, i), point(gp, j));
            value -= dot(row, other, j);
            row[j] = i == j ? sqrt(fmax(value, 1e-9)) : value / other[j];
        }
        gp->weight[i] = gp->y[i] - gp->mean;
    }
    forward(gp, 0, gp->weight);
    sum = 0;
    for (int i = 0; i < gp->count; i++)
        sum += gp->weight[i] * gp->weight[i];
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

/* How the logarithm of the posterior grows with the logarithms of the lengths and, last, of the noise. */
static void gradient(fa_gp *gp, double *ret)
{
    int lengths = 2 * gp->dims;
    fa_gp_solve(gp);
    invert(gp);
    memset(ret, 0, (size_t)(lengths + 1) * sizeof *ret);
    for (int i = 0; i < gp->count; i++)
        for (int j = 0; j <= i; j++) {
            double share = gp->weight[i] * gp->weight[j] / gp->variance -
                           gp->inverse[(size_t)i * FA_GP_POINTS_MAX + (size_t)j];
            if (i == j) {
                ret[lengths] += 0.5 * share * gp->noise;
                continue;
            }
            const double *a = point(gp, i), *b = point(gp, j);
            double r = root5_distance(gp, a, b), slope = 5.0 / 3 * (1 + r) * exp(-r);
            for (int d = 0; d < lengths; d++) {
                double by = apart(gp, a, b, d);
                ret[d] += share * slope * by * by;
            }
        }
    for (int d = 0; d < lengths; d++)
        ret[d] -= log(gp->length[d] / (d < gp->dims ? length_guess : step_guess)) /
                  (length_width * length_width);
    ret[lengths] -= log(gp->noise / noise_guess) / (noise_width * noise_width);
}

/* Steps by the signs of the gradient alone (Rprop): no line search, and no scale to choose. */
void fa_gp_learn(fa_gp *gp, int steps)
{
    double now[2 * FA_SEARCH_DIMS_MAX + 1],
        before[2 * FA_SEARCH_DIMS_MAX + 1] = {0}, step[2 * FA_SEARCH_DIMS_MAX + 1];
    int lengths = 2 * gp->dims;
    for (int d = 0; d <= lengths; d++)
        step[d] = 0.2;
    for (int i = 0; i < steps && gp->count > 2; i++) {
        gradient(gp, now);
        for (int d = 0; d <= lengths; d++) {
            double agree = now[d] * before[d];
            step[d] = agree > 0 ? fmin(step[d] * 1.3, 1) : agree < 0 ? step[d] * 0.5 : step[d];
            before[d] = now[d];
            double *what = d < lengths ? &gp->length[d] : &gp->noise;
            double most = d < lengths ? 30 : 0.3, least = d < lengths ? 0.02 : 1e-6;
            *what = fmin(fmax(*what * exp(now[d] > 0 ? step[d] : -step[d]), least), most);
        }
    }
}

double fa_gp_mean(const fa_gp *gp, const double *x)
{
    double mean = gp->mean;
    for (int i = 0; i < gp->count; i++) {
        gp->scratch[i] = fa_gp_kernel(gp, x, point(gp, i));
        mean += gp->scratch[i] * gp->weight[i];
    }
    return mean;
}

double fa_gp_predict(const fa_gp *gp, const double *x, double *ret_deviation)
{
    double mean = fa_gp_mean(gp, x), left = 1;
    forward(gp, 0, gp->scratch);
    for (int i = 0; i < gp->count; i++)
        left -= gp->scratch[i] * gp->scratch[i];
    *ret_deviation = sqrt(gp->variance * fmax(left, 1e-9));
    return mean;
}
