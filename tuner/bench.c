/* SPDX-License-Identifier: Apache-2.0
 *
 * Timing: candidates on the prover's first case; and what their samples say: medians, their intervals, and what the
 * rounds of a race have in common.
 *
 * Workload: a probe of a few launches per proved candidate, a race of tens of rounds between a few.
 * Invariants: only proved kernels are launched; L2 is flushed before every timed launch and outside
 * its events; the queue is full before the device reaches a timed launch, so that the host is not
 * in the time; what was timed is checked again, and a kernel that was wrong there loses its proof.
 */
#include "bench.h"

#include "error.h"
#include "hash.h"
#include "op.h"
#include "prover.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = FA_BENCH_SAMPLES_MAX };

struct fa_bench {
    fa_driver *driver;
    fa_prover *prover;
    fa_device_ptr flush;
    size_t flush_bytes;
    uint64_t seed, draws;
    fa_event start[PAIRS], stop[PAIRS];
};

struct fa_bench_kernel {
    fa_prover_kernel kernel;
    bool proved;
    double proof_us; /* fa_proof.launch_us of its last proof */
};

int fa_bench_cases(const fa_problem *problem, uint64_t seed, fa_problem ret_case[FA_BENCH_CASES])
{
    return fa_op_of(problem)->cases(problem, seed, ret_case);
}

/* ---- open and close -------------------------------------------------------------------------*/
static int make_events(fa_bench *bench, fa_diag *diag)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < PAIRS; i++) {
        rc = fa_event_create(bench->driver, &bench->start[i], diag);
        if (rc == 0)
            rc = fa_event_create(bench->driver, &bench->stop[i], diag);
    }
    return rc;
}

int fa_bench_open(fa_driver *driver, const fa_bench_setup *setup, fa_bench **ret_bench,
                  fa_diag *diag)
{
    fa_bench *bench = calloc(1, sizeof *bench);
    if (bench == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    bench->driver = driver;
    bench->seed = setup->seed;
    bench->flush_bytes = fa_prover_flush_bytes(setup->gpu);
    int rc = fa_prover_open(driver, setup, &bench->prover, diag);
    if (rc == 0 && (rc = fa_device_alloc(driver, bench->flush_bytes, &bench->flush, diag)) != 0)
        rc = fa_fail_in(diag, fa_prover_memory_error(driver, rc),
                        "allocating %zu MiB to flush L2 with", bench->flush_bytes >> 20);
    if (rc == 0)
        rc = make_events(bench, diag);
    if (rc != 0) {
        fa_bench_close(&bench);
        return rc;
    }
    *ret_bench = bench;
    return 0;
}

void fa_bench_close(fa_bench **bench)
{
    fa_bench *b = *bench;
    if (b == NULL)
        return;
    *bench = NULL;
    for (int i = 0; i < PAIRS; i++) {
        fa_event_destroy(b->driver, &b->start[i]);
        fa_event_destroy(b->driver, &b->stop[i]);
    }
    fa_prover_close(&b->prover);
    fa_device_free(b->driver, &b->flush);
    free(b);
}

/* ---- candidates -----------------------------------------------------------------------------*/
static int check_launches(const fa_launches *launches, int index, fa_diag *diag)
{
    if (launches->count < 1 || launches->count > FA_LAUNCHES_MAX || launches->workspace_bytes < 0 ||
        launches->counters < 0)
        return fa_fail(diag, FA_EINVAL,
                       "case %d has %d launches, a workspace of %lld bytes and %lld counters",
                       index, launches->count, (long long)launches->workspace_bytes,
                       (long long)launches->counters);
    for (int i = 0; i < launches->count; i++) {
        const fa_launch_shape *l = &launches->at[i];
        if (l->threads < 1 || l->threads > 1024 || l->smem_bytes < 0 ||
            (uint64_t)l->block[0] * l->block[1] * l->block[2] != (uint64_t)l->threads)
            return fa_fail(diag, FA_EINVAL, "a block of %d threads with %d B of shared memory",
                           l->threads, l->smem_bytes);
        if (l->grid[0] > INT32_MAX || l->grid[1] > 65535 || l->grid[2] > 65535)
            return fa_fail(diag, FA_EINVAL, "case %d has a grid of %u x %u x %u", index, l->grid[0],
                           l->grid[1], l->grid[2]);
    }
    return 0;
}

/* Takes what is the same for all cases from the first, grids, the largest workspace and the most counters. */
static int take_launches(const fa_bench_candidate *candidate, fa_prover_kernel *kernel,
                         fa_diag *diag)
{
    const fa_launches *first = &candidate->launches[0];
    int rc = check_launches(first, 0, diag);
    for (int c = 0; rc == 0 && c < FA_BENCH_CASES && candidate->launches[c].count > 0; c++) {
        const fa_launches *one = &candidate->launches[c];
        rc = check_launches(one, c, diag);
        kernel->launches[c] = *first;
        kernel->launches[c].splits = one->splits;
        for (int i = 0; i < first->count; i++)
            memcpy(kernel->launches[c].at[i].grid, one->at[i].grid, sizeof one->at[i].grid);
        if (kernel->workspace_bytes < (size_t)one->workspace_bytes)
            kernel->workspace_bytes = (size_t)one->workspace_bytes;
        if (kernel->counters < (size_t)one->counters)
            kernel->counters = (size_t)one->counters;
    }
    return rc;
}

static int load_launches(fa_bench *bench, const fa_bench_candidate *candidate,
                         fa_prover_kernel *kernel, fa_diag *diag)
{
    int rc =
        fa_module_load(bench->driver, candidate->cubin, candidate->size, &kernel->module, diag);
    for (int i = 0; rc == 0 && i < candidate->launches[0].count; i++) {
        const fa_cubin_entry entry = {candidate->cubin, candidate->size,
                                      .name = candidate->entry[i]};
        rc = fa_module_function(kernel->module, entry.name, candidate->launches[0].at[i].smem_bytes,
                                &kernel->function[i], diag);
        if (rc == 0)
            rc = fa_prover_load(bench->prover, entry, kernel, diag);
    }
    return rc;
}

int fa_bench_admit(const fa_bench *bench, const fa_bench_candidate *candidate, fa_diag *diag)
{
    size_t most = 0, room = fa_prover_room(bench->prover);
    for (int c = 0; c < FA_BENCH_CASES && candidate->launches[c].count > 0; c++) {
        const fa_launches *launches = &candidate->launches[c];
        size_t bytes = (size_t)launches->workspace_bytes + 4 * (size_t)launches->counters;
        most = bytes > most ? bytes : most;
    }
    return most <= room ? 0
                        : fa_fail(diag, FA_ENOMEM,
                                  "a workspace of %zu MiB, and %zu MiB are left of the tune's "
                                  "budget of GPU memory: raise \"memory\"",
                                  most >> 20, room >> 20);
}

int fa_bench_load(fa_bench *bench, const fa_bench_candidate *candidate,
                  fa_bench_kernel **ret_kernel, fa_diag *diag)
{
    fa_bench_kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    int rc = take_launches(candidate, &kernel->kernel, diag);
    if (rc == 0)
        rc = load_launches(bench, candidate, &kernel->kernel, diag);
    if (rc != 0) {
        fa_bench_unload(bench, &kernel);
        return rc;
    }
    *ret_kernel = kernel;
    return 0;
}

void fa_bench_unload(fa_bench *bench, fa_bench_kernel **kernel)
{
    (void)bench;
    if (*kernel == NULL)
        return;
    fa_module_unload(&(*kernel)->kernel.module);
    free((*kernel)->kernel.extra);
    free(*kernel);
    *kernel = NULL;
}

bool fa_bench_kernel_proved(const fa_bench_kernel *kernel)
{
    return kernel->proved;
}

int fa_bench_verify(fa_bench *bench, fa_bench_kernel *kernel, fa_proof *ret_proof, fa_diag *diag)
{
    fa_proof proof;
    kernel->proved = false;
    int rc = fa_prover_prove(bench->prover, &kernel->kernel, &proof, diag);
    if (rc != 0)
        return rc;
    kernel->proved = proof.passed;
    kernel->proof_us = proof.launch_us;
    *ret_proof = proof;
    return 0;
}

/* ---- timing ---------------------------------------------------------------------------------*/
static int may_time(fa_bench *bench, const fa_bench_kernel *kernel, fa_diag *diag)
{
    if (!kernel->proved)
        return fa_fail(diag, FA_EINVAL, "only a proved kernel is timed");
    if (fa_prover_is_empty(bench->prover))
        return fa_fail(diag, FA_EINVAL, "the problem is empty: there is nothing to time");
    return 0;
}

/* One timed launch, its events in pair `at`. */
static int timed_launch(fa_bench *bench, const fa_bench_kernel *kernel, int at, fa_diag *diag)
{
    fa_stream stream = fa_prover_stream(bench->prover);
    int rc;
    if ((rc = fa_fill32(bench->driver, bench->flush, (uint32_t)++bench->draws,
                        bench->flush_bytes / 4, stream, diag)) != 0 ||
        (rc = fa_prover_restore(bench->prover, &kernel->kernel, diag)) != 0 ||
        (rc = fa_event_record(bench->driver, bench->start[at], stream, diag)) != 0 ||
        (rc = fa_prover_launch(bench->prover, &kernel->kernel, diag)) != 0)
        return rc;
    return fa_event_record(bench->driver, bench->stop[at], stream, diag);
}

static int read_sample(fa_bench *bench, int at, float *ret_us, fa_diag *diag)
{
    double us = 0;
    int rc = fa_event_elapsed_us(bench->driver, bench->start[at], bench->stop[at], &us, diag);
    if (rc == 0 && !(us > 0 && us < 1e12))
        rc = fa_fail(diag, FA_ECUDA, "an event pair says %g us: the device's clock is not usable",
                     us);
    if (rc == 0)
        *ret_us = (float)us;
    return rc;
}

/* After timing: the output of case 0 as it is now, poisoned before the launches. */
static int check_timed(fa_bench *bench, fa_bench_kernel *kernel, fa_diag *diag)
{
    fa_proof proof;
    int rc = fa_prover_check(bench->prover, &proof, diag);
    if (rc != 0 || proof.passed)
        return rc;
    kernel->proved = false;
    return fa_fail(diag, FA_ECORRUPT, "launches differ: right when proved, but when timed %s",
                   proof.reason);
}

/* How many launches of a kernel are worth timing whose proof's took so long; 0: that one says enough. Of a proof's launch,
 * whose queue is empty, up to 50 us may be the host's part. */
static int launches_for(double proof_us, const fa_probe *probe)
{
    enum { LEAST = 3, NO_CHANCE = 2, LAUNCHING_US = 50 };
    double fit = probe->budget_us / proof_us;
    int launches = fit > LEAST ? (fit < probe->count ? (int)fit : probe->count) : LEAST;
    double over_us = probe->best_us > 0 ? proof_us - LAUNCHING_US : 0;
    if (over_us > 2 * probe->best_us)
        return 0;
    if (over_us > 1.5 * probe->best_us)
        launches = NO_CHANCE;
    return launches < probe->count ? launches : probe->count;
}

int fa_bench_probe(fa_bench *bench, fa_bench_kernel *kernel, const fa_probe *probe,
                   float *ret_samples_us, int *ret_count, fa_diag *diag)
{
    if (probe->count < 1 || probe->count > PAIRS)
        return fa_fail(diag, FA_EINVAL, "a probe of %d launches: use 1 to %d", probe->count, PAIRS);
    int rc;
    if ((rc = may_time(bench, kernel, diag)) != 0)
        return rc;
    int launches = launches_for(kernel->proof_us, probe);
    if (launches == 0) { /* the proof has looked at what it wrote */
        ret_samples_us[0] = (float)kernel->proof_us;
        *ret_count = 1;
        return 0;
    }
    rc = fa_prover_poison(bench->prover, diag);
    for (int i = 0; rc == 0 && i < launches; i++)
        rc = timed_launch(bench, kernel, i, diag);
    for (int i = 0; rc == 0 && i < launches; i++)
        rc = read_sample(bench, i, &ret_samples_us[i], diag);
    if (rc == 0)
        rc = check_timed(bench, kernel, diag);
    if (rc == 0)
        *ret_count = launches;
    return rc;
}

/* 0..count-1 in a random order (Fisher and Yates). */
static void shuffle(fa_bench *bench, int *order, int count)
{
    for (int i = 0; i < count; i++) {
        uint64_t random = fa_random(bench->seed, ++bench->draws);
        int j = (int)(random % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
}

struct race {
    fa_bench *bench;
    fa_bench_kernel *const *kernels;
    int count, rounds; /* of the kernels; of the race in all */
    float *samples;    /* of a kernel one behind the other */
};

/* Rounds first..first+rounds of a race, one synchronisation. */
static int race_rounds(const struct race *race, int first, int rounds, fa_diag *diag)
{
    fa_bench *bench = race->bench;
    int order[PAIRS], rc = 0, count = race->count;
    for (int r = 0; rc == 0 && r < rounds; r++) {
        shuffle(bench, order, count);
        for (int i = 0; rc == 0 && i < count; i++)
            rc = timed_launch(bench, race->kernels[order[i]], r * count + order[i], diag);
    }
    for (int r = 0; rc == 0 && r < rounds; r++)
        for (int i = 0; rc == 0 && i < count; i++)
            rc = read_sample(bench, r * count + i, &race->samples[i * race->rounds + first + r],
                             diag);
    return rc;
}

/* One more launch of each, checked; every kernel is, also when an earlier one was wrong. */
static int check_raced(fa_bench *bench, fa_bench_kernel *const *kernels, int count, fa_diag *diag)
{
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        int rc;
        if ((rc = fa_prover_poison(bench->prover, diag)) != 0 ||
            (rc = fa_prover_restore(bench->prover, &kernels[i]->kernel, diag)) != 0 ||
            (rc = fa_prover_launch(bench->prover, &kernels[i]->kernel, diag)) != 0 ||
            (rc = check_timed(bench, kernels[i], wrong == 0 ? diag : NULL)) != 0) {
            if (rc != FA_ECORRUPT)
                return rc;
            wrong = rc;
        }
    }
    return wrong;
}

int fa_bench_race(fa_bench *bench, fa_bench_kernel *const *kernels, int count, int rounds,
                  float *ret_samples_us, fa_diag *diag)
{
    int rc = 0;
    if (count < 1 || count > PAIRS || rounds < 1 || rounds > FA_BENCH_SAMPLES_MAX)
        return fa_fail(diag, FA_EINVAL, "a race of %d kernels over %d rounds: use 1 to %d", count,
                       rounds, PAIRS);
    for (int i = 0; rc == 0 && i < count; i++)
        rc = may_time(bench, kernels[i], diag);
    for (int i = 0; rc == 0 && i < count; i++)
        rc = timed_launch(bench, kernels[i], i, diag); /* warm-up */
    const struct race race = {bench, kernels, count, rounds, ret_samples_us};
    int at_once = PAIRS / count;
    for (int r = 0; rc == 0 && r < rounds; r += at_once) {
        int some = rounds - r < at_once ? rounds - r : at_once;
        rc = race_rounds(&race, r, some, diag);
    }
    return rc != 0 ? rc : check_raced(bench, kernels, count, diag);
}

int fa_bench_profile(fa_bench *bench, const fa_bench_kernel *kernel, int count, fa_diag *diag)
{
    int rc = may_time(bench, kernel, diag);
    if (rc == 0)
        rc = fa_profiler_turn(bench->driver, true, diag);
    for (int i = 0; i < count && rc == 0; i++) {
        rc = fa_prover_restore(bench->prover, &kernel->kernel, diag);
        if (rc == 0)
            rc = fa_prover_launch(bench->prover, &kernel->kernel, diag);
    }
    if (rc == 0)
        rc = fa_stream_synchronize(bench->driver, fa_prover_stream(bench->prover), diag);
    return rc != 0 ? rc : fa_profiler_turn(bench->driver, false, diag);
}

/* ---- samples --------------------------------------------------------------------------------*/
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
