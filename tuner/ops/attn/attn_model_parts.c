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
 * rows.
 * In a step each consumer multiplies its rows with BLOCK_N keys, takes the softmax and multiplies
 * the weights with the values; its softmax runs under its own product before and under everything
 * of the other consumers. All consumers of an SM share the tensor cores and the softmax units, and
 * none is faster than its own chain of product and softmax: a p-norm of the three. Copies run by
 * themselves: they bind only when the ring of STAGES tiles, or the SM's port to L2, is too narrow.
 * Consumers whose rows see fewer keys sit the first steps out. What a tile exposes at its ends is
 * paid for every tile, or once by a persistent block, which fetches the next tile's queries early. */

/* Of Hopper, per clock and SM: wgmma FLOP, shared memory bytes, exponentials, FP32 lanes, and bytes
 * of the port to L2. */
enum { TENSOR = 4096, SMEM_BYTES = 128, EXPONENTIALS = 16, FP32_LANES = 128, L2_BYTES = 64 };

enum { CAP_EXPONENTIALS = 2 }; /* of a softcap: an exponential and a reciprocal a score */

/* Coefficients of what no data sheet gives. Their form was found on 3,968 measured configs of an
 * earlier attn_fwd_sm90a on an H200; the numbers are fitted to 249 of today's (39 problems: head
 * dims 64, 128 and 256, 512 to 16,384 tokens, fp16, with and without the causal mask), held within
 * a factor of 2 of the earlier ones. Of the configs that were raced, the first choice is the best
 * in the median, 2% from it on average and 18% at worst; predicted over measured time is 0.85 to
 * 1.13. */
static const struct coefficients {
    double tensor_share;    /* of the tensor rate, at the clock that power leaves */
    double operand_share;   /* of shared-memory reads of queries and keys that are not hidden */
    double fp32_per_score;  /* FP32 and integer lane operations per score: softmax, packing */
    double softmax_overlap; /* p of exponentials and arithmetic in one consumer */
    double overlap;         /* p of tensor cores, softmax units and a consumer's own chain */
    double drift; /* less of it where long-lived consumers do not take turns: they align */
    double chain; /* latency in a consumer's chain: barriers, first fragments, row maxima */
    double fetch; /* from a free slot of the ring to its next tile */
    double mask_per_score; /* lane operations per score of a masked step */
    double start;          /* of a block, to its first fetch */
    double ends;           /* of a tile, exposed: queries in, output out */
    double lone_share;     /* and of its first step and last product, which nothing overlaps */
    /* of such ends, where a persistent block's consumer sits a tile's first step out */
    double behind;
    double turnover;       /* from tile to tile, whatever overlaps: new rows, rescaling, output */
    double smoothing;      /* of the last wave: 0 in lockstep, 1 perfectly spread */
    double tail;           /* of a mean block that the last SM is late, longest blocks first */
    double uneven;         /* and where persistent blocks share tiles out evenly */
    double memory_overlap; /* p of computing and of moving every tensor once */
    double launch_us;
    /* clang-format off */
} coefficient = {
    .tensor_share = 0.93, .operand_share = 0.73, .fp32_per_score = 6.7, .softmax_overlap = 1.95,
    .overlap = 1.64, .drift = 0.08, .chain = 380, .fetch = 700, .mask_per_score = 1.1,
    .start = 2380, .ends = 1880, .lone_share = 0.8, .behind = 0.8, .turnover = 720, .smoothing = 0.07,
    .tail = 0.24, .uneven = 0.15, .memory_overlap = 1.6, .launch_us = 3,
};
/* clang-format on */

enum {
    WARPGROUP = 128,
    CONSUMERS_MAX = 7, /* a block has at most eight warpgroups */
    ROWS_MAX = 4096,   /* tiles of a head that are looked at one by one */
};
static const double ring_norm = 8; /* nearly the largest: copies need nobody's time */

/* ---- a config as the model sees it -----------------------------------------------------------*/
struct shape {
    int consumers;
    double rows, block_m, block_n, head; /* rows: of one consumer; head: padded head dimension */
    double stages;
    bool persistent, turns;
    int32_t blocks; /* resident per SM */
    double grid;    /* blocks of the launch; 0: unknown */
};

static struct shape make_shape(const fa_candidate *candidate, const fa_problem *problem,
                               int32_t blocks)
{
    int consumers = candidate->trial.threads / WARPGROUP - 1;
    consumers = consumers < 1 ? 1 : consumers > CONSUMERS_MAX ? CONSUMERS_MAX : consumers;
    const double block_m = at_least_1(candidate, "BLOCK_M", 64 * consumers);
    return (struct shape){.consumers = consumers,
                          .rows = block_m / consumers,
                          .block_m = block_m,
                          .block_n = at_least_1(candidate, "BLOCK_N", 64),
                          .head = fa_attn_model_head(candidate, problem),
                          .stages = at_least_1(candidate, "STAGES", 2),
                          .persistent = fa_model_tunable(candidate, "PERSISTENT", 0) != 0,
                          .turns = fa_model_tunable(candidate, "PINGPONG", 0) != 0,
                          .blocks = blocks,
                          .grid = candidate->trial.grid[0]};
}

/* ---- one step, one tile ----------------------------------------------------------------------*/
/* Clocks of a lone consumer's step: on the tensor cores (Q K^T, then with P V), on the exponential
 * and arithmetic units, and both of these together. */
struct step {
    double scores, products, units, softmax;
};

static struct step make_step(const struct shape *s, const fa_problem *problem, const fa_gpu *gpu)
{
    double rate = gpu->tensor_tflops * 1e6 / ((double)gpu->sm_count * gpu->clock_mhz);
    if (!(rate > 0 && rate < TENSOR))
        rate = TENSOR;
    double product = 2 * s->rows * s->block_n * s->head / rate;
    double operands = (s->rows + s->block_n) * s->head * 2 / SMEM_BYTES;
    double count = s->rows * s->block_n;
    double capped = problem->softcap ? CAP_EXPONENTIALS : 0,
           fp32 = coefficient.fp32_per_score + 2 * capped;
    double part[] = {count * (1 + capped) / EXPONENTIALS, count * fp32 / FP32_LANES};
    struct step step = {
        .scores = fmax(product, operands * coefficient.operand_share) / coefficient.tensor_share,
        .units = fmax(part[0], part[1]),
        .softmax = fa_model_p_norm(part, 2, coefficient.softmax_overlap),
    };
    step.products = step.scores + product / coefficient.tensor_share;
    return step;
}

/* Clocks of an SM for one step of each of `resident` blocks in which `active` consumers work. */
static double step_clocks(const struct shape *s, const struct step *step, int active, int resident)
{
    double consumers = (double)active * resident;
    double part[] = {consumers * step->products, consumers * step->units,
                     step->scores + step->softmax + coefficient.chain};
    bool aligned = s->persistent && !s->turns;
    double p = coefficient.overlap - (aligned ? coefficient.drift : 0);
    double busy = fa_model_p_norm(part, 3, p);
    double bound[] = {busy, (coefficient.fetch + busy) / s->stages,
                      resident * s->block_n * s->head * 4 / L2_BYTES};
    return fa_model_p_norm(bound, 3, ring_norm);
}

/* Steps of tiles by how many consumers work in them, masked steps of single consumers, and the share of
 * consumers that do not see a tile's first step. */
struct work {
    double steps[CONSUMERS_MAX + 1], masked, behind;
};

/* Adds `times` times the tile whose first row is row0. */
static void add_tile(struct work *work, const struct shape *s, const fa_problem *problem,
                     double row0, double times)
{
    double begin = fa_attn_model_keys_of(problem, row0, s->block_m).first, before = 0;
    int valid = (int)fmin(s->consumers, ceil((problem->seq_q - row0) / s->rows)), waiting = 0;
    for (int c = 0; c < valid; c++) {
        fa_attn_model_keys keys = fa_attn_model_keys_of(problem, row0 + c * s->rows, s->rows);
        double steps = ceil((keys.end - begin) / s->block_n);
        double clear = floor((keys.clear_end - begin) / s->block_n) -
                       ceil((keys.clear_first - begin) / s->block_n);
        work->steps[valid - c] += times * (steps - before); /* later rows see no fewer keys */
        work->masked += times * (steps - fmax(clear, 0));
        waiting = steps > before ? c : waiting;
        before = steps;
    }
    work->behind += valid > 0 ? times * waiting / valid : 0;
}

/* Clocks that a tile adds where its ends overlap nothing. */
static double exposed_ends(const struct step *step)
{
    return coefficient.ends + coefficient.lone_share * (step->products + step->softmax);
}

/* Clocks of an SM for one tile of one block while it holds `resident` blocks. */
static double tile_clocks(const struct shape *s, const struct step *step, const struct work *work,
                          int resident)
{
    double clocks = work->masked * coefficient.mask_per_score * s->rows * s->block_n / FP32_LANES;
    for (int active = 1; active <= s->consumers; active++)
        if (work->steps[active] > 0)
            clocks += work->steps[active] * step_clocks(s, step, active, resident) / resident;
    double exposed = s->persistent ? coefficient.behind * work->behind : 1;
    double each = coefficient.turnover + (s->persistent ? 0 : coefficient.start) +
                  exposed * exposed_ends(step);
    return clocks + each / resident;
}

/* ---- all tiles -------------------------------------------------------------------------------*/
/* The tiles of all heads. */
struct load {
    struct work mean, longest; /* per tile; of the last rows' tile */
    double tiles, blocks;      /* of the launch */
};

static struct load make_load(const struct shape *s, const fa_problem *problem)
{
    double tiles = ceil(problem->seq_q / s->block_m);
    double heads = (double)problem->batch * problem->heads_q;
    struct load load = {.tiles = tiles * heads, .blocks = tiles * heads};
    /* Tiles of a long sequence are taken in strides: their steps grow linearly in between. */
    double stride = fmax(ceil(tiles / ROWS_MAX), 1);
    for (double tile = 0; tile < tiles; tile += stride)
        add_tile(&load.mean, s, problem, tile * s->block_m, fmin(stride, tiles - tile) / tiles);
    if (tiles > 0)
        add_tile(&load.longest, s, problem, (tiles - 1) * s->block_m, 1);
    if (s->persistent && s->grid >= 1)
        load.blocks = fmin(s->grid, load.tiles);
    return load;
}

/* Clocks until the last SM is done. */
static double makespan(const struct shape *s, const fa_problem *problem, const fa_gpu *gpu)
{
    struct load load = make_load(s, problem);
    double sms = gpu->sm_count;
    if (!(load.tiles > 0 && sms > 0))
        return 0;
    struct step step = make_step(s, problem, gpu);
    int resident = (int)fmin(s->blocks, ceil(load.blocks / sms));
    double tile = tile_clocks(s, &step, &load.mean, resident);
    double spread = tile * load.tiles / sms;
    double whole = s->persistent ? coefficient.start + exposed_ends(&step) : 0; /* once a block */
    if (problem->causal != FA_CAUSAL_NONE) { /* longest first, or dealt out evenly */
        double late = s->persistent ? coefficient.uneven : coefficient.tail;
        return whole +
               fmax(spread + late * resident * tile, tile_clocks(s, &step, &load.longest, 1));
    }
    double wave = s->persistent ? load.blocks : sms * resident;
    double waves = floor(load.tiles / wave), rest = load.tiles - waves * wave;
    double steps = waves * resident * tile;
    if (rest > 0) {
        int last = (int)fmin(ceil(rest / sms), resident);
        steps += last * tile_clocks(s, &step, &load.mean, last);
    }
    double smooth = waves > 0 && !s->persistent ? coefficient.smoothing : 0;
    return whole + smooth * spread + (1 - smooth) * steps;
}

double fa_attn_specialised_us(const fa_candidate *candidate, const fa_problem *problem,
                              const fa_gpu *gpu, int32_t blocks)
{
    struct shape shape = make_shape(candidate, problem, blocks);
    fa_problem mean = fa_attn_mean_problem(problem);
    double clock = gpu->clock_mhz > 0 ? gpu->clock_mhz : 1000;
    double part[] = {makespan(&shape, &mean, gpu) / clock,
                     fa_model_memory_us(fa_attn_bytes(&mean), gpu)};
    return coefficient.launch_us + fa_model_p_norm(part, 2, coefficient.memory_overlap);
}
