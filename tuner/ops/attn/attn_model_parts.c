/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys rows see by masks and windows, and the cost model of kernels that split the keys: a block takes BLOCK_M
 * packed rows (query heads of a key head, times queries) and one of SPLITS parts of the keys; its warps stream keys on
 * their own.
 *
 * Workload: as attn_model.c's. Unit: clocks of one SM, until the last step turns them into microseconds.
 *
 * Memory decides, so what is told apart is how a config keeps it busy: bytes on their way against the
 * latency, blocks against the places for them, and the parts' cost at the end. With many rows the products
 * decide: each warp pays for its rows times all keys of its group.
 */
#include "attn_model.h"

#include "attn_launch.h"
#include "model.h"

#include <math.h>

/* Coefficients of what no data sheet gives, set by hand to some 40 configs of nine problems on an H200 (head dim 128, one to
 * four queries, 16 MB to 1 GB of keys and values); those of the launch and of parts to 28 more problems (1 to 16 queries of 64
 * keys and more), in all of which this family was the fastest. */
static const struct coefficients {
    double memory_share;  /* of the data sheet's bandwidth */
    double latency_us;    /* from asking for a tile to its arrival on a busy GPU */
    double tensor_share;  /* of the tensor rate */
    double chain;         /* clocks of a warp's step that nothing of its own overlaps */
    double chain_per_dim; /* and per column of K: a chain of products */
    double chain_per_key; /* and per key of the tile: exponentials, packing */
    double block_clocks;  /* of a block: start, first fetch, adding up its groups */
    double combine_us;    /* the last block's work, where keys are split */
    double part_us;       /* and per part */
    double smoothing;     /* of the last wave: 0 in lockstep, 1 perfectly spread */
    double launch_us;
} coefficient = {
    .memory_share = 0.9,
    .latency_us = 1.1,
    .tensor_share = 0.5,
    .chain = 250,
    .chain_per_dim = 2,
    .chain_per_key = 6,
    .block_clocks = 4500,
    .combine_us = 1.8,
    .part_us = 0.12,
    .smoothing = 0.7,
    .launch_us = 3.8,
};

fa_problem fa_attn_mean_problem(const fa_problem *problem)
{
    fa_problem mean = *problem;
    if (problem->varlen && problem->mean_q > 0 && problem->mean_q < problem->seq_q)
        mean.seq_q = problem->mean_q;
    if (problem->lengths_k != FA_LENGTHS_FIXED && problem->mean_k > 0 &&
        problem->mean_k < problem->seq_k)
        mean.seq_k = problem->mean_k;
    return mean;
}

double fa_attn_bytes(const fa_problem *p)
{
    double rows = 2.0 * p->batch * p->heads_q * p->seq_q + 2.0 * p->batch * p->heads_kv * p->seq_k;
    return rows * p->head_dim * 2;
}

bool fa_attn_is_split(const fa_candidate *candidate)
{
    return fa_model_tunable(candidate, "SPLITS", 0) > 0;
}

static double at_least_1(const fa_candidate *candidate, const char *name, int32_t absent)
{
    return fmax(fa_model_tunable(candidate, name, absent), 1);
}

/* Of the keys that SEEN promises at most, how many a tile of rows sees on average. */
static double mean_keys(const fa_candidate *candidate, const fa_problem *problem)
{
    double most = at_least_1(candidate, "SEEN", problem->seq_k);
    double mean = at_least_1(candidate, "SEEN_MEAN", problem->seq_k);
    if (problem->causal != FA_CAUSAL_NONE)
        mean = fmin(mean, fmax(mean - fa_attn_mean_problem(problem).seq_q / 2.0, mean / 2));
    return fmin(mean, most);
}

/* Clocks of an SM per step of one block's groups while `resident` blocks share it. */
static double step_clocks(const fa_candidate *candidate, double resident, double tensor_flops)
{
    double rows = at_least_1(candidate, "BLOCK_M", 16), keys = at_least_1(candidate, "BLOCK_N", 16);
    double columns = at_least_1(candidate, "D_TILE", 64) + at_least_1(candidate, "DV_TILE", 64);
    double groups = at_least_1(candidate, "GROUPS", 1), warps = candidate->trial.threads / 32.0;
    double part[] = {
        2 * rows * keys * groups * columns / (tensor_flops * coefficient.tensor_share),
        (warps / groups + 1) * keys * groups * columns * 2 /
            128,                   /* K and V: in, and out per warp */
        rows * keys * groups / 16, /* exponentials */
    };
    double slabs = at_least_1(candidate, "SLABS", 1);
    double chain = coefficient.chain + coefficient.chain_per_dim * columns / 2 * slabs +
                   coefficient.chain_per_key * keys * slabs;
    return fmax(fa_model_p_norm(part, 3, 2), chain / resident);
}

double fa_attn_split_us(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                        int32_t blocks, double tensor_flops)
{
    double clock = gpu->clock_mhz > 0 ? gpu->clock_mhz : 1000, sms = fmax(gpu->sm_count, 1);
    double parts = fmax(candidate->trial.grid[1], 1), units = fmax(candidate->trial.grid[0], 1);
    double most = at_least_1(candidate, "SEEN", problem->seq_k),
           mean = mean_keys(candidate, problem);
    units *= fmax(fa_attn_mean_problem(problem).seq_q, 1) / fmax(problem->seq_q, 1);
    double keys = fmin(most / parts, mean);    /* of one block */
    double all = units * fmax(mean / keys, 1); /* blocks that have some */
    double resident = fmin(blocks, ceil(all / sms));
    double step = at_least_1(candidate, "STEP_KEYS", 64);
    double steps = ceil(keys / step);
    double columns = at_least_1(candidate, "D_TILE", 64) + at_least_1(candidate, "DV_TILE", 64);

    double work = steps * step_clocks(candidate, resident, tensor_flops) +
                  coefficient.block_clocks / resident;
    double waves = all / (sms * resident);
    double smooth = waves > 1 ? coefficient.smoothing : 0;
    double compute_us = (smooth * waves + (1 - smooth) * ceil(waves)) * resident * work / clock;

    double stages = at_least_1(candidate, "STAGES", 2);
    double on_the_way = (stages - 1) * step * columns * 2 * fmin(all, sms * resident);
    double bandwidth =
        gpu->bandwidth_gbs * 1e3 * coefficient.memory_share; /* bytes per microsecond */
    bandwidth = fmin(bandwidth, on_the_way / coefficient.latency_us);
    double memory_us =
        bandwidth > 0 ? fmax(fa_attn_bytes(problem) * mean / most / bandwidth, 0) : 0;

    double part[] = {compute_us, memory_us};
    return coefficient.launch_us + fa_model_p_norm(part, 2, 6) +
           (parts > 1 ? coefficient.combine_us + coefficient.part_us * parts : 0);
}

/* ---- keys and heads ---------------------------------------------------------------------------*/
/* Masks and windows as the cost models see them. */

fa_attn_model_keys fa_attn_model_keys_of(const fa_problem *problem, double row0, double rows)
{
    fa_attn_model_keys keys = {.end = problem->seq_k, .clear_end = problem->seq_k};
    const double diagonal = row0 + fa_attn_causal_offset(problem);
    const bool causal = problem->causal != FA_CAUSAL_NONE;
    if (causal || (problem->window && problem->window_right >= 0)) {
        double right = causal ? 0 : problem->window_right;
        keys.end = fmin(fmax(diagonal + right + rows, 0), problem->seq_k);
        keys.clear_end = fmin(fmax(diagonal + right + 1, 0), problem->seq_k);
    }
    if (problem->window && problem->window_left >= 0) {
        keys.first = fmin(fmax(diagonal - problem->window_left, 0), keys.end);
        keys.clear_first = fmax(diagonal + rows - 1 - problem->window_left, 0);
    }
    return keys;
}

double fa_attn_model_head(const fa_candidate *candidate, const fa_problem *problem)
{
    int32_t keys = fa_model_tunable(candidate, "D_TILE", (problem->head_dim + 15) / 16 * 16);
    double head = (keys + (double)fa_model_tunable(candidate, "DV_TILE", keys)) / 2;
    return head >= 1 ? head : problem->head_dim;
}
