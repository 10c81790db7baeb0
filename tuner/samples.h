/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of timed launches. Pure arithmetic.
 *
 * May be used by: tuner, worker, engine.
 */
#ifndef FA_TUNER_SAMPLES_H
#define FA_TUNER_SAMPLES_H

#include "fa_types.h"

enum { FA_BENCH_SAMPLES_MAX = 200 };

/* Takes what all of a round share out of a race's samples, in place: a power limit that lowers the
 * clock in mid-race would else decide it, by which kernel had more launches before than after. Each
 * round is scaled so that its geometric mean is the median of all rounds' (rounds as the blocks of a
 * randomised block design, Fisher 1935). samples_us as from fa_bench_race, at most
 * FA_BENCH_SAMPLES_MAX rounds. FA_EINVAL, FA_ENOMEM: nothing was changed. */
int fa_race_level(float *samples_us, int count, int rounds);

/* Median and a distribution-free 95% confidence interval of it (order statistics of the binomial
 * distribution; for fewer than 6 samples the range). Non-finite or non-positive samples make it
 * FA_EINVAL. */
int fa_samples_summary(const float *samples_us, int count, double *ret_median_us,
                       double *ret_low_us, double *ret_high_us);

#endif
