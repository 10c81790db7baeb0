/* SPDX-License-Identifier: Apache-2.0
 *
 * Proving and timing candidates: the tensors of one problem on one device, the reference, and what
 * is done with a candidate there. Runs inside the measuring worker only.
 *
 * Workload: up to a few hundred candidates of one problem, each proved (a handful of launches on
 * small ragged cases and one on the problem itself) and then probed; a few finalists are raced.
 * Invariants: nothing is timed before it is proved; candidates never see another's output; every
 * output is poisoned and fenced before each proof; NaN never passes.
 *
 * May be used by: engine. May use: base, gpu. Thread-safety: one thread.
 */
#ifndef FA_TUNER_BENCH_H
#define FA_TUNER_BENCH_H

#include "call.h"
#include "driver.h"
#include "fa_types.h"
#include "tensors.h"

enum { FA_BENCH_CASES = 8 };

/* The problems a candidate is proved on: case 0 is the problem itself, the others are small, ragged and differ by seed.
 * Fields that shape the source stay the problem's. Returns their number; deterministic. For attention: case 0's elements
 * are all checked for being written and finite, and all rows are compared when that is cheap, else 256 sampled ones; the
 * others have lengths off every tile edge, one longer than the other (causal rows with no visible key), padded strides,
 * large magnitudes, a single query, a single key, none. In candidate.c. */
int fa_bench_cases(const fa_problem *problem, uint64_t seed, fa_problem ret_case[FA_BENCH_CASES]);

typedef struct fa_bench fa_bench;
struct fa_proof_type;

/* What is proved and timed. */
typedef struct fa_bench_setup {
    const fa_gpu *gpu;
    const fa_problem *problem;
    const void *reference; /* cubin of the operation's reference for this problem */
    size_t reference_size;
    uint64_t seed;
    const struct fa_case_data *data; /* of the cases, kept open by the caller; NULL: all is drawn */
    size_t memory; /* of the device, for tensors and workspaces; 0: half of what is free */
    const fa_launch_shape *answer; /* its launches for all cases, where it says them; or NULL */
    bool twice;                    /* the problem itself, too, is launched twice in a proof */
    const struct fa_proof_type *type; /* of prover.h; NULL: the operation's */
} fa_bench_setup;

/* Allocates and fills every tensor, computes the references once. The context must be current.
 * FA_ENOMEM when the problem does not fit the device or its budget (the sentence says what it needs). */
int fa_bench_open(fa_driver *driver, const fa_bench_setup *setup, fa_bench **ret_bench,
                  fa_diag *diag);
void fa_bench_close(fa_bench **bench);

typedef struct fa_bench_candidate {
    const void *cubin;
    size_t size;
    const char *entry[FA_LAUNCHES_MAX];
    /* for each case: they differ in grids, shared memory, scratch, splits and `how` alone. A ragged case without any is left out. */
    fa_launches launches[FA_BENCH_CASES];
} fa_bench_candidate;

/* A loaded candidate. */
typedef struct fa_bench_kernel fa_bench_kernel;
/* FA_ENOMEM: the candidate's workspace and counters pass the budget. */
int fa_bench_admit(const fa_bench *bench, const fa_bench_candidate *candidate, fa_diag *diag);
int fa_bench_load(fa_bench *bench, const fa_bench_candidate *candidate,
                  fa_bench_kernel **ret_kernel, fa_diag *diag);
void fa_bench_unload(fa_bench *bench, fa_bench_kernel **kernel);

typedef struct fa_proof {
    bool passed;
    double max_error, tolerance; /* of the worst case, relative to its tolerance */
    double launch_us; /* device time of the last launch on case 0, its launching included; 0: empty */
    /* A hash of each case's outputs, bit for bit, which compares proofs of one seed: 48 bits, as cJSON writes 15 digits;
     * 0: the case's launches differ in bits; negative: it is left out. */
    double bits[FA_BENCH_CASES];
    char reason[512]; /* which case, what was wrong, with numbers */
} fa_proof;
/* Returns non-zero when a launch or the device failed (diag; fa_driver_context_lost tells whether
 * the process must end); a wrong result is 0 with passed = false. */
int fa_bench_verify(fa_bench *bench, fa_bench_kernel *kernel, fa_proof *ret_proof, fa_diag *diag);

typedef struct fa_probe {
    int count; /* launches, at most FA_BENCH_SAMPLES_MAX */
    /* of device time. A kernel of which it has no room for 4 launches gets two, or where another was timed none. */
    double budget_us;
    /* The fastest median so far, or 0. Of 1.5 times that two samples are enough, of twice that and 50 us the proof's launch. */
    double best_us;
} fa_probe;
/* Times launches of a proved kernel (FA_EINVAL otherwise), which its proof has warmed up, with L2 flushed before each.
 * ret_samples_us: room for the count. FA_ECORRUPT: the output was wrong when it was timed (a kernel that is right on some
 * launches only), and the kernel has lost its proof. FA_EINVAL for an empty problem, too: there is nothing to time. */
int fa_bench_probe(fa_bench *bench, fa_bench_kernel *kernel, const fa_probe *probe,
                   float *ret_samples_us, int *ret_count, fa_diag *diag);
/* The same, interleaved round by round in an order shuffled each round, for a fair race, with pauses between slow kernels.
 * ret_samples_us[i * rounds + r]. FA_ECORRUPT: as above; fa_bench_kernel.proved tells which. */
int fa_bench_race(fa_bench *bench, fa_bench_kernel *const *kernels, int count, int rounds,
                  float *ret_samples_us, fa_diag *diag);

/* Calls a proved kernel `count` times between fa_profiler_turn on and off, for a profiler that watches this
 * process. FA_EINVAL: as for a probe. */
int fa_bench_profile(fa_bench *bench, fa_bench_kernel *kernel, int count, fa_diag *diag);

/* ---- statistics of timed launches, pure arithmetic -------------------------------------------*/
enum { FA_BENCH_SAMPLES_MAX = 200 };

/* Takes what all of a round share out of a race's samples, in place: a power limit that lowers the clock in mid-race would
 * else decide it, by which kernel had more launches before than after. Each round is scaled so that its geometric mean is
 * the median of all rounds' (rounds as the blocks of a randomised block design, Fisher 1935). samples_us as from
 * fa_bench_race, at most FA_BENCH_SAMPLES_MAX rounds. FA_EINVAL, FA_ENOMEM: nothing was changed. */
int fa_race_level(float *samples_us, int count, int rounds);

/* Median and a distribution-free 95% confidence interval of it (order statistics of the binomial distribution; for fewer
 * than 6 samples the range). Non-finite or non-positive samples make it FA_EINVAL. */
int fa_samples_summary(const float *samples_us, int count, double *ret_median_us,
                       double *ret_low_us, double *ret_high_us);

/* ---- the data of cases that are not drawn (ops/case_data.c) -----------------------------------*/
/* Inputs and answers of the program that tunes. The engine makes them in its process, where that program's function is
 * (fa_spec_cases), and keeps them in a file without a name; the measuring worker opens it by the descriptor's path and reads
 * what its message says. The file stays as it is. */
typedef struct fa_case_data {
    int fd;
    uint64_t seed;    /* of the cases; this and the next are for the program that tunes alone */
    int32_t contents; /* fa_spec_cases() of the inputs */
    /* Where each tensor's elements begin, in the order of the operation's; -1: an input is drawn, an output has no answer. */
    int64_t input[FA_BENCH_CASES][FA_TENSORS_MAX], answer[FA_BENCH_CASES][FA_TENSORS_MAX];
} fa_case_data;

/* The seed of an input, and its elements, packed. */
uint64_t fa_case_seed(uint64_t seed, int index, int tensor);
void fa_case_draw(const fa_tensor *tensor, uint64_t seed, unsigned char *elements);

/* Calls the function for each case. FA_EINVAL with a sentence for NaN, for a case that is answered in part, and where nothing
 * answers the problem itself although the specification says so; else what the function returned. */
int fa_case_data_make(const fa_problem *cases, int count, uint64_t seed, fa_case_function *function,
                      void *context, fa_case_data **ret_data, fa_diag *diag);
void fa_case_data_close(fa_case_data **data); /* NULL is allowed */

/* The worker's way to it: a path of fa_case_data.fd. */
int fa_case_data_open(const char *path, fa_case_data **ret_data, fa_diag *diag);

/* Bytes of the file from there on; FA_EIO where it ends before. */
int fa_case_data_read(const fa_case_data *data, int64_t at, void *ret_bytes, size_t size,
                      fa_diag *diag);

#endif
