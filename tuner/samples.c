/* SPDX-License-Identifier: Apache-2.0
 *
 * Medians, their intervals, and what the rounds of a race have in common.
 */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The largest k with P(fewer than k of n samples lie below the median) <= 2.5%; then the k-th
 * smallest and the k-th largest sample enclose the median with at least 95%. 0 when n < 6. */
static int interval_rank(int n)
{
    double log_term = -n * 0.69314718055994531, below = 0; /* log of C(n, i) / 2^n */
    int k = 0;
    for (int i = 0; i < n / 2; i++) {
        below += exp(log_term);
        if (!(below <= 0.025))
            break;
        k = i + 1;
        log_term += log((double)(n - i) / (i + 1));
    }
    return k;
}

int fa_race_level(float *samples_us, int count, int rounds)
{
    float mean[FA_BENCH_SAMPLES_MAX];
    double middle, low, high;
    for (int r = 0; r < rounds; r++) {
        double sum = 0;
        for (int i = 0; i < count; i++)
            sum += log((double)samples_us[i * rounds + r]);
        mean[r] = (float)exp(sum / count);
    }
    int rc = fa_samples_summary(mean, rounds, &middle, &low, &high);
    for (int i = 0; rc == 0 && i < count * rounds; i++)
        samples_us[i] *= (float)(middle / (double)mean[i % rounds]);
    return rc;
}

int fa_samples_summary(const float *samples_us, int count, double *ret_median_us,
                       double *ret_low_us, double *ret_high_us)
{
    if (count < 1)
        return FA_EINVAL;
    for (int i = 0; i < count; i++)
        if (!(samples_us[i] > 0 && samples_us[i] < INFINITY))
            return FA_EINVAL;
    float *sorted = malloc((size_t)count * sizeof *sorted);
    if (sorted == NULL)
        return FA_ENOMEM;
    memcpy(sorted, samples_us, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    int k = interval_rank(count);
    *ret_median_us = ((double)sorted[(count - 1) / 2] + (double)sorted[count / 2]) / 2;
    *ret_low_us = (double)sorted[k > 0 ? k - 1 : 0];
    *ret_high_us = (double)sorted[k > 0 ? count - k : count - 1];
    free(sorted);
    return 0;
}
