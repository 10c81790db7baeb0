/* SPDX-License-Identifier: Apache-2.0
 *
 * What attention's cost models share; the model of kernels that split the keys; and that of warp-specialised ones.
 *
 * Workload: as attn_model.c's. Unit: clocks of one SM, until the last step turns them into microseconds.
 */
#include "attn_model.h"

#include "attn_launch.h"
#include "model.h"

#include <math.h>

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

fa_attn_model_steps fa_attn_model_steps_of(const fa_problem *problem, double row0, double rows,
                                           double keys)
{
    const fa_attn_model_keys seen = fa_attn_model_keys_of(problem, row0, rows);
    const double all = ceil((seen.end - seen.first) / keys);
    const double clear = floor((seen.clear_end - seen.clear_first) / keys);
    return (fa_attn_model_steps){all, all - fmax(clear, 0)};
}

fa_attn_model_steps fa_attn_model_steps_of_head(const fa_problem *problem, double rows, double keys)
{
    enum { ROWS_MAX = 4096 }; /* tiles that are looked at one by one */
    const bool alike = problem->causal == FA_CAUSAL_NONE && !problem->window;
    const double tiles = ceil(problem->seq_q / rows);
    /* Tiles of a long sequence are taken in strides: their steps grow linearly in between. */
    const double stride = alike ? fmax(tiles, 1) : ceil(tiles / ROWS_MAX);
    fa_attn_model_steps sum = {0};
    for (double tile = 0; tile < tiles; tile += stride) {
        fa_attn_model_steps one = fa_attn_model_steps_of(problem, tile * rows, rows, keys);
        double times = fmin(stride, tiles - tile);
        sum.all += times * one.all;
        sum.masked += times * one.masked;
    }
    return sum;
}

double fa_attn_model_head(const fa_candidate *candidate, const fa_problem *problem)
{
    int32_t keys = fa_model_tunable(candidate, "D_TILE", (problem->head_dim + 15) / 16 * 16);
    double head = (keys + (double)fa_model_tunable(candidate, "DV_TILE", keys)) / 2;
    return head >= 1 ? head : problem->head_dim;
}

static double at_least_1(const fa_candidate *candidate, const char *name, int32_t absent)
{
    return fmax(fa_model_tunable(candidate, name, absent), 1);
}

/* ---- split keys -------------------------------------------------------------------------------*/
/* A block takes BLOCK_M packed rows (query heads of a key head, times queries) and one of SPLITS parts of the keys; its warps
 * stream keys on their own.
 * Memory decides, so what is told apart is how a config keeps it busy: bytes on their way against the
 * latency, blocks against the places for them, and the parts' cost at the end. With many rows the products
 * decide: each warp pays for its rows times all keys of its group. */

/* Coefficients of what no data sheet gives, set by hand to some 40 configs of nine problems on an H200 (head dim 128, one to
 * four queries, 16 MB to 1 GB of keys and values); those of the launch and of parts to 28 more problems (1 to 16 queries of 64
 * keys and more), in all of which this family was the fastest. */
static const struct {
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
} split = {
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

/* Clocks of an SM per step of one block's groups while `resident` blocks share it. */
static double split_step_clocks(const fa_candidate *candidate, double resident, double tensor_flops)
{
    double rows = at_least_1(candidate, "BLOCK_M", 16), keys = at_least_1(candidate, "BLOCK_N", 16);
    double columns = at_least_1(candidate, "D_TILE", 64) + at_least_1(candidate, "DV_TILE", 64);
    double groups = at_least_1(candidate, "GROUPS", 1), warps = candidate->trial.threads / 32.0;
    double part[] = {
        2 * rows * keys * groups * columns / (tensor_flops * split.tensor_share),
        (warps / groups + 1) * keys * groups * columns * 2 /
            128,                   /* K and V: in, and out per warp */
        rows * keys * groups / 16, /* exponentials */
    };
    double slabs = at_least_1(candidate, "SLABS", 1);
    double chain = split.chain + split.chain_per_dim * columns / 2 * slabs +
                   split.chain_per_key * keys * slabs;
    return fmax(fa_model_p_norm(part, 3, 2), chain / resident);
}

double fa_attn_split_us(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                        int32_t blocks, double tensor_flops)
{
    double clock = gpu->clock_mhz > 0 ? gpu->clock_mhz : 1000, sms = fmax(gpu->sm_count, 1);
    double parts = fmax(candidate->trial.grid[1], 1), units = fmax(candidate->trial.grid[0], 1);
    /* Of the keys that SEEN promises at most, how many a tile of rows sees on average. */
    double most = at_least_1(candidate, "SEEN", problem->seq_k);
    double mean = at_least_1(candidate, "SEEN_MEAN", problem->seq_k);
    if (problem->causal != FA_CAUSAL_NONE)
        mean = fmin(mean, fmax(mean - fa_attn_mean_problem(problem).seq_q / 2.0, mean / 2));
    mean = fmin(mean, most);
    units *= fmax(fa_attn_mean_problem(problem).seq_q, 1) / fmax(problem->seq_q, 1);
    double keys = fmin(most / parts, mean);    /* of one block */
    double all = units * fmax(mean / keys, 1); /* blocks that have some */
    double resident = fmin(blocks, ceil(all / sms));
    double step = at_least_1(candidate, "STEP_KEYS", 64);
    double steps = ceil(keys / step);
    double columns = at_least_1(candidate, "D_TILE", 64) + at_least_1(candidate, "DV_TILE", 64);

    double work = steps * split_step_clocks(candidate, resident, tensor_flops) +
                  split.block_clocks / resident;
    double waves = all / (sms * resident);
    double smooth = waves > 1 ? split.smoothing : 0;
    double compute_us = (smooth * waves + (1 - smooth) * ceil(waves)) * resident * work / clock;

    double stages = at_least_1(candidate, "STAGES", 2);
    double on_the_way = (stages - 1) * step * columns * 2 * fmin(all, sms * resident);
    double bandwidth = gpu->bandwidth_gbs * 1e3 * split.memory_share; /* bytes per microsecond */
    bandwidth = fmin(bandwidth, on_the_way / split.latency_us);
    double memory_us =
        bandwidth > 0 ? fmax(fa_attn_bytes(problem) * mean / most / bandwidth, 0) : 0;

    double part[] = {compute_us, memory_us};
    return split.launch_us + fa_model_p_norm(part, 2, 6) +
           (parts > 1 ? split.combine_us + split.part_us * parts : 0);
}

/* ---- warp-specialised -------------------------------------------------------------------------*/
/* One warpgroup of a block produces (it only starts copies), the others consume, each with its own BLOCK_M / consumers query
 * rows. In a step each consumer multiplies its rows with BLOCK_N keys, takes the softmax and multiplies the weights with
 * the values; its softmax runs under its own product before and under everything of the other consumers. All consumers of
 * an SM share the tensor cores and the softmax units, and none is faster than its own chain of product and softmax: a
 * p-norm of the three. What a tile exposes at its ends is paid for every tile, or once by a persistent block, which
 * fetches the next tile's queries early. */

/* Of Hopper, per clock and SM: wgmma FLOP, exponentials, FP32 lanes. */
enum { TENSOR = 4096, EXPONENTIALS = 16, FP32_LANES = 128 };

enum { CAP_EXPONENTIALS = 2 }; /* of a softcap: an exponential and a reciprocal a score */

/* Coefficients of what no data sheet gives, fitted to 3,744 measured configs of attn_fwd_sm90a on an H200 and an H100 (96
 * problems: head dims 64 and 128, 512 to 16,384 tokens, fp16 and bf16, with and without the causal mask) and 13 more. Of a
 * problem's configs the first choice takes 1% more than the best on average and 12% at worst, the best of the first eight
 * 0.1% and 2%; predicted over measured time is 0.8 to 1.21. */
static const struct coefficients {
    double fp32_per_score;  /* FP32 and integer lane operations per score: softmax, packing */
    double overlap;         /* p of tensor cores, softmax units and a consumer's own chain */
    double drift;           /* less of it where consumers do not take turns: they align */
    double fetch;           /* clocks of a step that a ring of one stage would expose */
    double chain; /* latency in a consumer's chain: barriers, first fragments, row maxima */
    double mask_per_score; /* lane operations per score of a masked step */
    double start;          /* of a block, to its first fetch */
    double ends;           /* of a tile, exposed: queries in, output out */
    double turnover;       /* from tile to tile, whatever overlaps: new rows, rescaling, output */
    double smoothing;      /* of the last wave: 0 in lockstep, 1 perfectly spread */
    double tail;           /* of a mean tile that the last SM is late, longest tiles first */
    double memory_overlap; /* p of computing and of moving every tensor once */
    double launch_us;
    /* clang-format off */
} coefficient = {
    .fp32_per_score = 6.9, .overlap = 1.51, .drift = 0.13, .fetch = 68, .chain = 340, .mask_per_score = 0.82,
    .start = 1020, .ends = 2230, .turnover = 1330, .smoothing = 0.59, .tail = 0.084, .memory_overlap = 2.5,
    .launch_us = 2.6,
};
/* clang-format on */

enum { WARPGROUP = 128 };

/* Clocks of an SM for one step of all consumers at work, each with so many scores; *ret_lone: of one that nothing overlaps. */
static double step_clocks(const fa_candidate *candidate, const fa_problem *problem,
                          const fa_gpu *gpu, double scores, double at_work, double *ret_lone)
{
    double rate = gpu->tensor_tflops * 1e6 / ((double)gpu->sm_count * gpu->clock_mhz);
    if (!(rate > 0 && rate < TENSOR))
        rate = TENSOR;
    const bool turns = fa_model_tunable(candidate, "PINGPONG", 0) != 0;
    const double capped = problem->softcap ? CAP_EXPONENTIALS : 0;
    const double products = 4 * scores * fa_attn_model_head(candidate, problem) / rate;
    const double softmax = fmax(scores * (1 + capped) / EXPONENTIALS,
                                scores * (coefficient.fp32_per_score + 2 * capped) / FP32_LANES);
    const double part[] = {at_work * products, at_work * softmax,
                           products / 2 + softmax + coefficient.chain};
    *ret_lone = products + softmax;
    return fa_model_p_norm(part, 3, coefficient.overlap - (turns ? 0 : coefficient.drift)) +
           coefficient.fetch / at_least_1(candidate, "STAGES", 2);
}

double fa_attn_specialised_us(const fa_candidate *candidate, const fa_problem *problem,
                              const fa_gpu *gpu, int32_t blocks)
{
    const fa_problem mean = fa_attn_mean_problem(problem);
    const double clock = gpu->clock_mhz > 0 ? gpu->clock_mhz : 1000, sms = fmax(gpu->sm_count, 1);
    const int consumers = candidate->trial.threads / WARPGROUP - 1;
    const double block_m = at_least_1(candidate, "BLOCK_M", 64),
                 rows = block_m / fmax(consumers, 1);
    const double keys = at_least_1(candidate, "BLOCK_N", 64);
    const bool persistent = fa_model_tunable(candidate, "PERSISTENT", 0) != 0;
    const double of_head = ceil(mean.seq_q / block_m);
    const double tiles = of_head * problem->batch * problem->heads_q;
    const double launched = persistent ? fmin(fmax(candidate->trial.grid[0], 1), tiles) : tiles;
    const int resident = (int)fmax(fmin(blocks, ceil(launched / sms)), 1);

    const double at_work = fmin(fmax(consumers, 1), ceil(mean.seq_q / rows)) * resident;
    double lone;
    const double step =
        step_clocks(candidate, problem, gpu, rows * keys, at_work, &lone) / resident;
    const double mask_clocks = coefficient.mask_per_score * block_m * keys / FP32_LANES;
    const double first = coefficient.start + coefficient.ends + lone;
    const double turnover = coefficient.turnover + (persistent ? 0 : first);

    const fa_attn_model_steps head = fa_attn_model_steps_of_head(&mean, block_m, keys);
    const double tile_clocks = (head.all * step + head.masked * mask_clocks) / of_head + turnover / resident;
    const double spread = tile_clocks * tiles / sms;
    double clocks = persistent ? first : 0;  /* once a block */
    if (problem->causal != FA_CAUSAL_NONE) { /* longest first, or dealt out evenly */
        const fa_attn_model_steps last =
            fa_attn_model_steps_of(&mean, (of_head - 1) * block_m, block_m, keys);
        clocks += fmax(spread + coefficient.tail * resident * tile_clocks,
                       last.all * step + last.masked * mask_clocks + turnover);
    } else {
        const double wave = persistent ? launched : sms * resident, waves = floor(tiles / wave);
        const double last = fmin(ceil((tiles - waves * wave) / sms), resident);
        const double smooth = waves > 0 && !persistent ? coefficient.smoothing : 0;
        clocks += smooth * spread + (1 - smooth) * (waves * resident + last) * tile_clocks;
    }
    const double us[] = {clocks / clock, fa_model_memory_us(fa_attn_bytes(&mean), gpu)};
    return coefficient.launch_us +
           (tiles > 0 ? fa_model_p_norm(us, 2, coefficient.memory_overlap) : 0);
}
