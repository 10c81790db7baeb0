/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model of attention forward: an SM as a set of throughputs that resident warps overlap more or less well, for
 * three kinds of kernel: all warps do the same; blocks share the keys of a row; warps are specialised.
 *
 * A family whose manifest has a let CONSUMER_REGS above 0 is warp-specialised: one warpgroup feeds the others, and
 * registers move between them. A family with a let SPLITS, of either kind, cuts the keys into so many parts. In any other family all
 * warps are taken to do the same, with mma.sync. Of every family the model reads, where the manifest has them, the
 * tunables or lets BLOCK_M, BLOCK_N, D_TILE, STAGES and MIN_BLOCKS; of warp-specialised ones PINGPONG,
 * PERSISTENT (1 where they have none) and PACKED_HEADS; of the last kind WARPS, WARPS_PER_SM and Q_IN_REGS.
 *
 * Workload: some thousand predictions per tuning, each O(row tiles of one head). Unit: clocks of one SM, until the last step turns them into microseconds.
 */
#include "attn_launch.h"

#include "model.h"

#include <math.h>

enum {
    SCHEDULERS = 4, /* per SM */
    REGISTERS_MAX = 255,
    WARP = 32,
    RESIDENT_MAX = 16 /* blocks of an SM that are told apart */
};

/* ---- what the kinds share -------------------------------------------------------------------*/
/* With every sequence as long as the mean one, where the problem says how long that is. */
static fa_problem mean_of(const fa_problem *problem)
{
    fa_problem mean = *problem;
    if (problem->varlen && problem->mean_q > 0 && problem->mean_q < problem->seq_q)
        mean.seq_q = problem->mean_q;
    if (problem->lengths_k != FA_LENGTHS_FIXED && problem->mean_k > 0 &&
        problem->mean_k < problem->seq_k)
        mean.seq_k = problem->mean_k;
    return mean;
}

/* Bytes of all tensors but LSE, each once. */
static double bytes_of(const fa_problem *p)
{
    double of_keys = (p->v_in_k ? 1.0 : 2.0) * p->heads_kv * p->seq_k;
    return p->batch * (2.0 * p->heads_q * p->seq_q + of_keys) * p->head_dim * 2;
}

/* Steps of so many keys that a tile of rows takes, and those of them that are masked. */
struct steps {
    double all, masked;
};

/* Of `rows` rows from row0 on, in a sequence as long as the problem says. They meet the keys [first, end); each of them sees
 * [clear_first, clear_end), which may be empty or turned round. */
static struct steps steps_of(const fa_problem *problem, double row0, double rows, double keys)
{
    double first = 0, end = problem->seq_k, clear_first = 0, clear_end = end;
    const double diagonal = row0 + fa_attn_causal_offset(problem);
    const bool causal = problem->causal != FA_CAUSAL_NONE;
    if (causal || (problem->window && problem->window_right >= 0)) {
        double right = causal ? 0 : problem->window_right;
        end = fmin(fmax(diagonal + right + rows, 0), problem->seq_k);
        clear_end = fmin(fmax(diagonal + right + 1, 0), problem->seq_k);
    }
    if (problem->window && problem->window_left >= 0) {
        first = fmin(fmax(diagonal - problem->window_left, 0), end);
        clear_first = fmax(diagonal + rows - 1 - problem->window_left, 0);
    }
    const double all = ceil((end - first) / keys);
    return (struct steps){all, all - fmax(floor((clear_end - clear_first) / keys), 0)};
}

/* Of all tiles of a head. */
static struct steps steps_of_head(const fa_problem *problem, double rows, double keys)
{
    enum { ROWS_MAX = 4096 }; /* tiles that are looked at one by one */
    const bool alike = problem->causal == FA_CAUSAL_NONE && !problem->window;
    const double tiles = ceil(problem->seq_q / rows);
    /* Tiles of a long sequence are taken in strides: their steps grow linearly in between. */
    const double stride = alike ? fmax(tiles, 1) : ceil(tiles / ROWS_MAX);
    struct steps sum = {0};
    for (double tile = 0; tile < tiles; tile += stride) {
        struct steps one = steps_of(problem, tile * rows, rows, keys);
        double times = fmin(stride, tiles - tile);
        sum.all += times * one.all;
        sum.masked += times * one.masked;
    }
    return sum;
}

/* Columns of the products, on average of those with keys and those with values. */
static double head_of(const fa_candidate *candidate, const fa_problem *problem)
{
    int32_t keys = fa_model_tunable(candidate, "D_TILE", (problem->head_dim + 15) / 16 * 16);
    double head = (keys + (double)fa_model_tunable(candidate, "DV_TILE", keys)) / 2;
    return head >= 1 ? head : problem->head_dim;
}

static double at_least_1(const fa_candidate *candidate, const char *name, int32_t absent)
{
    return fmax(fa_model_tunable(candidate, name, absent), 1);
}

/* ---- all warps alike --------------------------------------------------------------------------*/
/* One tile is BLOCK_M queries by BLOCK_N keys of one block. It costs tensor, shared-memory, exponential, arithmetic and L2
 * clocks. A lone warp pays their sum; many warps pay the largest; in between a p-norm whose p grows with the warps of a
 * scheduler. What is pure latency (barriers, exposed loads, a block's start and end) is shared by the blocks of an SM. */

/* Coefficients of what no data sheet gives. Fitted to 4,470 measured configs of attn_fwd_sm80 on an
 * H200 (67 problems: head dims 32 to 256, 32 to 16,384 tokens a row, fp16 and bf16, with and
 * without the causal mask), held near physical guesses; launch was set by hand. */
static const struct {
    double tensor_share, overlap, overlap_per_warp, overlap_per_slab, fp32_per_score, issue_per_mma,
        l2_bytes, tile_clocks, single_stage, mask_per_score, block_clocks, block_row_clocks,
        smoothing, launch_us;
} uniform = {
    .tensor_share = 0.6, /* of the tensor rate, by the best loop at the clock that power leaves */
    .overlap = 1.8,      /* p - 1 of one warp per scheduler */
    .overlap_per_warp = 0.8, /* what each further warp adds to p */
    .overlap_per_slab = 0.5, /* what each further 16-row slab of a warp adds: parallelism in it */
    .fp32_per_score = 5.6,   /* FP32 and integer lane operations per score: softmax, packing */
    .issue_per_mma = 1.5,    /* issue slots per matrix instruction, ldmatrix and addresses too */
    .l2_bytes = 60,          /* per clock and SM */
    .tile_clocks = 190,      /* latency of a tile: barriers, first fragments, row maxima */
    .single_stage = 225,     /* and of loads that only STAGES = 1 exposes */
    .mask_per_score = 2.5,   /* lane operations per score of a masked tile */
    .block_clocks = 1850,    /* start of a block to its first product, and its end */
    .block_row_clocks = 7,   /* and per query row: Q in, O out */
    .smoothing = 0.48,       /* of the last wave: 0 in lockstep, 1 perfectly spread */
    .launch_us = 3.2,
};

struct shape {
    double block_m, block_n;
    double head;         /* padded head dimension; half of it where products are of e4m3 */
    double warps, slabs; /* slabs of 16 rows per warp */
    bool q_in_registers, single_stage;
    int32_t blocks;    /* resident per SM */
};

/* Blocks per SM that the config asks the compiler to make room for. */
static int32_t wanted_blocks(const fa_candidate *candidate, int32_t warps)
{
    int32_t per_sm = fa_model_tunable(candidate, "WARPS_PER_SM", 0);
    int32_t blocks = per_sm > 0 ? per_sm / warps : fa_model_tunable(candidate, "MIN_BLOCKS", 1);
    return blocks > 0 ? blocks : 1;
}

/* Registers per thread that the launch bounds leave when so many blocks are to fit. */
static int32_t launch_registers(int32_t threads, int32_t hint)
{
    int64_t held = 65536 / ((int64_t)threads * hint) / 8 * 8; /* the hint may be any let's value */
    return held > REGISTERS_MAX ? REGISTERS_MAX : (int32_t)held;
}

static struct shape make_shape(const fa_candidate *candidate, const fa_problem *problem,
                               const fa_gpu *gpu, int32_t registers)
{
    const fa_trial *trial = &candidate->trial;
    int32_t threads = trial->threads > 0 ? trial->threads : 128;
    int32_t warps = fa_model_tunable(candidate, "WARPS", (threads + WARP - 1) / WARP);
    int32_t hint = wanted_blocks(candidate, warps > 0 ? warps : 1);
    const bool e4m3 = problem->q_dtype == FA_KV_FP8 &&
                      (gpu->sm == 89 || gpu->sm >= 120); /* others widen it for mma.sync */
    if (registers <= 0) {
        /* Before there is a cubin: what the manifest counts, what a compiler adds to it, and the cap of the launch bounds. */
        int32_t least = candidate->estimated_registers > 0 ? candidate->estimated_registers : 128;
        int32_t cap = launch_registers(threads, hint), usual = least + least / 8 + 16;
        registers = usual < cap ? usual : cap;
    }
    struct shape s = {
        .block_m = at_least_1(candidate, "BLOCK_M", 64),
        .block_n = at_least_1(candidate, "BLOCK_N", 64),
        .head = head_of(candidate, problem) / (e4m3 ? 2 : 1),
        .warps = warps > 0 ? warps : 1,
        .q_in_registers = fa_model_tunable(candidate, "Q_IN_REGS", 0) != 0,
        .single_stage = fa_model_tunable(candidate, "STAGES", 1) < 2,
        .blocks = fa_model_occupancy(gpu, threads, registers, trial->smem_bytes),
    };
    s.slabs = s.block_m / 16 / s.warps * fa_model_tunable(candidate, "COLUMN_WARPS", 1);
    return s;
}

/* Clocks of an SM per tile and block while `resident` blocks share it. */
static double tile_clocks(const struct shape *s, const fa_gpu *gpu, int resident)
{
    const fa_model_rates *a = fa_model_rates_of(gpu);
    double rate = fa_model_mma_rate(gpu), scores = s->block_m * s->block_n;
    double kv_bytes = 2 * s->block_n * s->head * 2, q_bytes = s->block_m * s->head * 2;
    /* Every warp reads all keys and values of the tile; its queries too unless it keeps them. */
    double smem = s->warps * kv_bytes + (s->q_in_registers ? 0 : q_bytes) + kv_bytes;
    double products = scores / 128 * s->head / 16 * 2 * (gpu->sm < 80 ? 2 : 1);
    double fragments = s->warps * 2 * s->block_n * s->head / 256;
    double part[] = {
        4 * scores * s->head / (rate * uniform.tensor_share),
        smem / a->smem_bytes,
        scores / a->exponentials,
        scores * uniform.fp32_per_score / a->fp32_lanes +
            (products + fragments) * uniform.issue_per_mma / SCHEDULERS,
        kv_bytes / uniform.l2_bytes,
    };
    double warps = resident * s->warps / SCHEDULERS;
    double p = 1 + uniform.overlap + uniform.overlap_per_warp * (warps - 1) +
               uniform.overlap_per_slab * (s->slabs - 1);
    double clocks = fa_model_p_norm(part, (int)(sizeof part / sizeof *part), p > 1 ? p : 1);
    double latency = uniform.tile_clocks + (s->single_stage ? uniform.single_stage : 0);
    return clocks + latency / resident;
}

/* What so many blocks with these tiles cost an SM that holds `resident` blocks. */
static double clocks_of(const struct shape *s, const fa_gpu *gpu, double blocks, struct steps tiles,
                        int resident)
{
    const double fixed = (uniform.block_clocks + uniform.block_row_clocks * s->block_m) / resident;
    const double per_masked =
        uniform.mask_per_score * s->block_m * s->block_n / fa_model_rates_of(gpu)->fp32_lanes;
    return blocks * fixed + tiles.all * tile_clocks(s, gpu, resident) + tiles.masked * per_masked;
}

/* Clocks of the SM that is given the longest blocks at the start: the first of the dispatch order (longest rows first) and
 * every `sms`-th after it. They share the SM until the shorter ones end; nothing can make it finish earlier. */
static double first_sm(const struct shape *s, const fa_problem *problem, const fa_gpu *gpu,
                       double blocks, double heads, int resident)
{
    double tiles[RESIDENT_MAX + 1] = {0}, masked = 0;
    int count = 0;
    for (; count < resident && count < RESIDENT_MAX; count++) {
        double rank = floor((double)count * gpu->sm_count / heads);
        if (rank >= blocks)
            break;
        struct steps row =
            steps_of(problem, (blocks - 1 - rank) * s->block_m, s->block_m, s->block_n);
        tiles[count] = row.all;
        masked += row.masked;
    }
    double clocks = clocks_of(s, gpu, 1, (struct steps){0, masked}, 1);
    for (int running = count; running > 0; running--)
        clocks += (tiles[running - 1] - tiles[running]) * running * tile_clocks(s, gpu, running);
    return clocks;
}

/* Clocks until the last SM is done. */
static double makespan(const struct shape *s, const fa_problem *problem, const fa_gpu *gpu)
{
    struct steps head = steps_of_head(problem, s->block_m, s->block_n);
    double heads = (double)problem->batch * problem->heads_q, sms = gpu->sm_count;
    double of_head = ceil(problem->seq_q / s->block_m), blocks = of_head * heads;
    if (!(blocks > 0 && sms > 0))
        return 0;
    int resident = (int)fmin(s->blocks, ceil(blocks / sms));
    double mean = clocks_of(s, gpu, of_head, head, resident) / of_head;
    double spread = mean * blocks / sms;
    double first = first_sm(s, problem, gpu, of_head, heads, resident);
    if (problem->causal != FA_CAUSAL_NONE) {
        /* Longest first: the last blocks to start are the shortest. */
        double shortest = clocks_of(s, gpu, 1, (struct steps){1, 1}, resident) * resident;
        return fmax(spread + shortest * (1 - uniform.smoothing), first);
    }
    double wave = sms * resident, waves = floor(blocks / wave), rest = blocks - waves * wave;
    double steps = waves * resident * mean;
    if (rest > 0) {
        int last = (int)ceil(rest / sms);
        steps += last * clocks_of(s, gpu, of_head, head, last) / of_head;
    }
    double smooth = uniform.smoothing * (waves > 0 ? 1 : 0);
    return fmax(smooth * spread + (1 - smooth) * steps, first);
}

/* Of Hopper, per clock and SM: wgmma FLOP, exponentials, FP32 lanes. */
enum { TENSOR = 4096, EXPONENTIALS = 16, FP32_LANES = 128 };

/* ---- split keys -------------------------------------------------------------------------------*/
/* A block takes BLOCK_M packed rows (query heads of a key head, times queries) and one of SPLITS parts of the keys;
 * its warps stream keys on their own. Memory decides, so what is told apart is how a config keeps it busy: bytes on
 * their way against the latency, blocks against the places for them, and the parts' cost at the end. With many rows
 * the products decide: each warp pays for its rows times all keys of its group. */

/* Coefficients of what no data sheet gives, set by hand to some 40 configs of nine problems on an H200 (head dim 128, one to
 * four queries, 16 MB to 1 GB of keys and values); those of the launch and of parts to 28 more problems (1 to 16 queries of 64
 * keys and more), in all of which this family was the fastest. */
static const struct {
    double memory_share, latency_us, tensor_share, wgmma_share, chain, chain_per_dim, chain_per_key,
        block_clocks, combine_us, part_us, smoothing, launch_us;
} split = {
    .memory_share = 0.9,  /* of the data sheet's bandwidth */
    .latency_us = 1.1,    /* from asking for a tile to its arrival on a busy GPU */
    .tensor_share = 0.5,  /* of the tensor rate of mma.sync */
    .wgmma_share = 0.85,  /* and of warpgroups */
    .chain = 250,         /* clocks of a warp's step that nothing of its own overlaps */
    .chain_per_dim = 2,   /* and per column of K: a chain of products */
    .chain_per_key = 6,   /* and per key of the tile: exponentials, packing */
    .block_clocks = 4500, /* of a block: start, first fetch, adding up its groups */
    .combine_us = 1.8,    /* the last block's work, where keys are split */
    .part_us = 0.12,      /* and per part */
    .smoothing = 0.7,     /* of the last wave: 0 in lockstep, 1 perfectly spread */
    .launch_us = 3.8,
};

/* Clocks of an SM per step of one block's groups while `resident` blocks share it. */
static double split_step_clocks(const fa_candidate *candidate, const fa_gpu *gpu, double resident)
{
    double rows = at_least_1(candidate, "BLOCK_M", 16), keys = at_least_1(candidate, "BLOCK_N", 16);
    double columns = at_least_1(candidate, "D_TILE", 64) + at_least_1(candidate, "DV_TILE", 64);
    double groups = at_least_1(candidate, "GROUPS", 1), warps = candidate->trial.threads / 32.0;
    const bool wgmma = fa_model_tunable(candidate, "CONSUMER_REGS", 0) > 0;
    double part[] = {
        2 * rows * keys * groups * columns /
            (wgmma ? TENSOR * split.wgmma_share : fa_model_mma_rate(gpu) * split.tensor_share),
        /* K and V: in, and out per warp; warpgroups read Q, K and V once, and V lies in K */
        (wgmma ? (3 * keys + rows) / 2 : (warps / groups + 1) * keys * groups) * columns * 2 / 128,
        rows * keys * groups / 16, /* exponentials */
    };
    double chain = split.chain + (split.chain_per_dim * columns / 2 + split.chain_per_key * keys) *
                                     at_least_1(candidate, "SLABS", 1);
    return fmax(fa_model_p_norm(part, 3, 2), chain / resident);
}

/* Microseconds of a launch with `blocks` >= 1 resident per SM. */
static double split_us(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                       int32_t blocks)
{
    double clock = gpu->clock_mhz > 0 ? gpu->clock_mhz : 1000, sms = fmax(gpu->sm_count, 1);
    double parts = fmax(candidate->trial.grid[1], 1), units = fmax(candidate->trial.grid[0], 1);
    /* Of the keys that SEEN promises at most, how many a tile of rows sees on average. */
    double most = at_least_1(candidate, "SEEN", problem->seq_k);
    double mean = at_least_1(candidate, "SEEN_MEAN", problem->seq_k);
    if (problem->causal != FA_CAUSAL_NONE)
        mean = fmin(mean, fmax(mean - mean_of(problem).seq_q / 2.0, mean / 2));
    mean = fmin(mean, most);
    units *= fmax(mean_of(problem).seq_q, 1) / fmax(problem->seq_q, 1);
    double keys = fmin(most / parts, mean);    /* of one block */
    double all = units * fmax(mean / keys, 1); /* blocks that have some */
    double resident = fmin(blocks, ceil(all / sms));
    double step = at_least_1(candidate, "STEP_KEYS", 64), steps = ceil(keys / step);
    double columns = at_least_1(candidate, "D_TILE", 64) + at_least_1(candidate, "DV_TILE", 64);

    double work = steps * split_step_clocks(candidate, gpu, resident) + split.block_clocks / resident;
    double waves = all / (sms * resident);
    double smooth = waves > 1 ? split.smoothing : 0;
    double compute_us = (smooth * waves + (1 - smooth) * ceil(waves)) * resident * work / clock;

    double stages = at_least_1(candidate, "STAGES", 2);
    double on_the_way = (stages - 1) * step * columns * 2 * fmin(all, sms * resident);
    double bandwidth = gpu->bandwidth_gbs * 1e3 * split.memory_share; /* bytes per microsecond */
    bandwidth = fmin(bandwidth, on_the_way / split.latency_us);
    double memory_us = bandwidth > 0 ? fmax(bytes_of(problem) * mean / most / bandwidth, 0) : 0;

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

enum { CAP_EXPONENTIALS = 2 }; /* of a softcap: an exponential and a reciprocal a score */

/* Coefficients of what no data sheet gives, fitted to 3,744 measured configs of attn_fwd_sm90a on an H200 and an H100 (96
 * problems: head dims 64 and 128, 512 to 16,384 tokens, fp16 and bf16, with and without the causal mask) and 13 more. A
 * problem's first choice takes 1% more than the best on average and 12% at worst. */
static const struct {
    double fp32_per_score, overlap, drift, fetch, chain, mask_per_score, start, ends, turnover,
        smoothing, tail, memory_overlap, launch_us;
} special = {
    .fp32_per_score = 6.9, /* FP32 and integer lane operations per score: softmax, packing */
    .overlap = 1.51,       /* p of tensor cores, softmax units and a consumer's own chain */
    .drift = 0.13,         /* less of it without turns, up to head dim 128: consumers align */
    .fetch = 68,           /* clocks of a step that a ring of one stage would expose */
    .chain = 340, /* latency in a consumer's chain: barriers, first fragments, row maxima */
    .mask_per_score = 0.82, /* lane operations per score of a masked step */
    .start = 1020,          /* of a block, to its first fetch */
    .ends = 2230,           /* of a tile, exposed: queries in, output out */
    .turnover = 1330,       /* from tile to tile, whatever overlaps: new rows, rescaling, output */
    .smoothing = 0.59,      /* of the last wave: 0 in lockstep, 1 perfectly spread */
    .tail = 0.084,          /* of a mean tile that the last SM is late, longest tiles first */
    .memory_overlap = 2.5,  /* p of computing and of moving every tensor once */
    .launch_us = 2.6,
};

enum { WARPGROUP = 128 };

/* Clocks of an SM for one step of all consumers at work, each with so many scores; *ret_lone: of one that nothing overlaps. */
static double step_clocks(const fa_candidate *candidate, const fa_problem *problem,
                          const fa_gpu *gpu, double scores, double at_work, double *ret_lone)
{
    double rate = gpu->tensor_tflops * 1e6 / ((double)gpu->sm_count * gpu->clock_mhz);
    if (!(rate > 0 && rate < TENSOR))
        rate = TENSOR;
    const bool turns = fa_model_tunable(candidate, "PINGPONG", 0) != 0 || problem->head_dim > 128;
    const double capped = problem->softcap ? CAP_EXPONENTIALS : 0;
    const double products = 4 * scores * head_of(candidate, problem) / rate;
    const double softmax = fmax(scores * (1 + capped) / EXPONENTIALS,
                                scores * (special.fp32_per_score + 2 * capped) / FP32_LANES);
    const double part[] = {at_work * products, at_work * softmax,
                           products / 2 + softmax + special.chain};
    *ret_lone = products + softmax;
    return fa_model_p_norm(part, 3, special.overlap - (turns ? 0 : special.drift)) +
           special.fetch / at_least_1(candidate, "STAGES", 2);
}

static double specialised_us(const fa_candidate *candidate, const fa_problem *problem,
                             const fa_gpu *gpu, int32_t blocks)
{
    const fa_problem mean = mean_of(problem);
    const double clock = gpu->clock_mhz > 0 ? gpu->clock_mhz : 1000, sms = fmax(gpu->sm_count, 1);
    const int consumers = candidate->trial.threads / WARPGROUP - 1;
    const double block_m = at_least_1(candidate, "BLOCK_M", 64),
                 rows = block_m / fmax(consumers, 1),
                 packed = at_least_1(candidate, "PACKED_HEADS", 1); /* heads of a tile */
    const double keys = at_least_1(candidate, "BLOCK_N", 64);
    const bool persistent = fa_model_tunable(candidate, "PERSISTENT", 1) != 0;
    const double of_head = ceil(mean.seq_q * packed / block_m), queries = block_m / packed;
    const double tiles = of_head * problem->batch * problem->heads_q / packed;
    const double launched = persistent ? fmin(fmax(candidate->trial.grid[0], 1), tiles) : tiles;
    const int resident = (int)fmax(fmin(blocks, ceil(launched / sms)), 1);
    const double at_work = fmin(fmax(consumers, 1), ceil(mean.seq_q * packed / rows)) * resident;
    double lone;
    const double step =
        step_clocks(candidate, problem, gpu, rows * keys, at_work, &lone) / resident;
    const double mask_clocks = special.mask_per_score * block_m * keys / FP32_LANES;
    const double first = special.start + special.ends + lone;
    const double turnover = special.turnover + (persistent ? 0 : first);

    const struct steps head = steps_of_head(&mean, queries, keys);
    const double tile_clocks =
        (head.all * step + head.masked * mask_clocks) / of_head + turnover / resident;
    const double spread = tile_clocks * tiles / sms;
    double clocks = persistent ? first : 0;  /* once a block */
    if (problem->causal != FA_CAUSAL_NONE) { /* longest first, or dealt out evenly */
        const struct steps last = steps_of(&mean, (of_head - 1) * queries, queries, keys);
        clocks += fmax(spread + special.tail * resident * tile_clocks,
                       last.all * step + last.masked * mask_clocks + turnover);
    } else {
        const double wave = persistent ? launched : sms * resident, waves = floor(tiles / wave);
        const double last = fmin(ceil((tiles - waves * wave) / sms), resident);
        const double smooth = waves > 0 && !persistent ? special.smoothing : 0;
        clocks += smooth * spread + (1 - smooth) * (waves * resident + last) * tile_clocks;
    }
    const double us[] = {clocks / clock, fa_model_memory_us(bytes_of(&mean), gpu)};
    return special.launch_us + (tiles > 0 ? fa_model_p_norm(us, 2, special.memory_overlap) : 0);
}
/* ---- the model --------------------------------------------------------------------------------*/
void fa_attn_predict(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                     fa_trial *trial)
{
    const bool splits = fa_model_tunable(candidate, "SPLITS", 0) > 0;
    trial->predicted_us = 0; /* cannot run: ranks last */
    if (fa_model_tunable(candidate, "CONSUMER_REGS", 0) > 0) {
        /* It is launched with all that its launch bounds leave; its warps trade it afterwards. */
        int32_t threads = candidate->trial.threads > 0 ? candidate->trial.threads : 256;
        int32_t hint = wanted_blocks(candidate, (threads + WARP - 1) / WARP);
        int32_t registers =
            trial->registers > 0 ? trial->registers : launch_registers(threads, hint);
        trial->blocks_per_sm =
            fa_model_occupancy(gpu, threads, registers, candidate->trial.smem_bytes);
        if (trial->blocks_per_sm > 0)
            trial->predicted_us = (splits ? split_us : specialised_us)(candidate, problem, gpu,
                                                                       trial->blocks_per_sm);
        return;
    }
    struct shape shape = make_shape(candidate, problem, gpu, trial->registers);
    trial->blocks_per_sm = shape.blocks;
    if (shape.blocks < 1)
        return;
    if (splits) {
        trial->predicted_us = split_us(candidate, problem, gpu, shape.blocks);
        return;
    }
    double clock = gpu->clock_mhz > 0 ? gpu->clock_mhz : 1000;
    fa_problem mean = mean_of(problem);
    trial->predicted_us = uniform.launch_us + fmax(makespan(&shape, &mean, gpu) / clock,
                                                   fa_model_memory_us(bytes_of(&mean), gpu));
}
