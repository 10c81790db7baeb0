/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model: an SM as a set of throughputs that resident warps overlap more or less well.
 *
 * Workload: some thousand predictions per tuning, each O(row tiles of one head) and without memory
 * of its own, so that equal inputs give equal outputs.
 * Unit: clocks of one SM, until the last step turns them into microseconds.
 *
 * One tile is BLOCK_M queries by BLOCK_N keys of one block. It costs tensor, shared-memory,
 * exponential, arithmetic and L2 clocks. A lone warp pays their sum; many warps pay the largest;
 * in between a p-norm whose p grows with the warps of a scheduler. What is pure latency (barriers,
 * exposed loads, a block's start and end) is shared by the blocks of an SM.
 */
#include "attn_model.h"

#include "model.h"

#include <math.h>

/* Coefficients of what no data sheet gives. Fitted to 4,470 measured configs of attn_fwd_sm80 on an
 * H200 (67 problems: head dims 32 to 256, 32 to 16,384 tokens a row, fp16 and bf16, with and
 * without the causal mask), held near physical guesses; launch was set by hand.
 * With a head dim and mask left out of the fit, the best of the first eight choices for it stays
 * within 2.9% of the best of all, the first choice within 2 to 5% on average and 9% at worst. */
static const struct coefficients {
    /* of the tensor rate: the best inner loop, at the clock that power leaves */
    double tensor_share;
    double overlap;   /* p - 1 of one warp per scheduler */
    double overlap_per_warp; /* what each further warp adds to p */
    double overlap_per_slab; /* what each further 16-row slab of a warp adds: parallelism in it */
    double fp32_per_score;   /* FP32 and integer lane operations per score: softmax, packing */
    double issue_per_mma;    /* issue slots per matrix instruction, ldmatrix and addresses too */
    double l2_bytes;         /* per clock and SM */
    double tile_clocks;      /* latency of a tile: barriers, first fragments, row maxima */
    double single_stage;     /* and of loads that only STAGES = 1 exposes */
    double mask_per_score;   /* lane operations per score of a masked tile */
    double block_clocks;     /* start of a block to its first product, and its end */
    double block_row_clocks; /* and per query row: Q in, O out */
    double smoothing;        /* of the last wave: 0 in lockstep, 1 perfectly spread */
    double launch_us;
    /* clang-format off */
} coefficient = {
    .tensor_share = 0.6, .overlap = 1.8, .overlap_per_warp = 0.8, .overlap_per_slab = 0.5,
    .fp32_per_score = 5.6, .issue_per_mma = 1.5, .l2_bytes = 60, .tile_clocks = 190,
    .single_stage = 225, .mask_per_score = 2.5, .block_clocks = 1850, .block_row_clocks = 7,
    .smoothing = 0.48, .launch_us = 3.2,
};
/* clang-format on */

enum {
    SCHEDULERS = 4, /* per SM */
    REGISTERS_MAX = 255,
    WARP = 32,
    RESIDENT_MAX = 16 /* blocks of an SM that are told apart */
};

/* ---- a config, a problem and a GPU as the model sees them -------------------------------------*/
struct shape {
    double block_m, block_n, head; /* head: padded head dimension */
    double warps, slabs;           /* slabs of 16 rows per warp */
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
    if (registers <= 0) {
        /* Before there is a cubin: what the manifest counts, what a compiler adds to it, and the cap of the launch bounds. */
        int32_t least = candidate->estimated_registers > 0 ? candidate->estimated_registers : 128;
        int32_t cap = launch_registers(threads, hint), usual = least + least / 8 + 16;
        registers = usual < cap ? usual : cap;
    }
    struct shape s = {
        .block_m = fmax(fa_model_tunable(candidate, "BLOCK_M", 64), 1),
        .block_n = fmax(fa_model_tunable(candidate, "BLOCK_N", 64), 1),
        .head = fa_attn_model_head(candidate, problem),
        .warps = warps > 0 ? warps : 1,
        .q_in_registers = fa_model_tunable(candidate, "Q_IN_REGS", 0) != 0,
        .single_stage = fa_model_tunable(candidate, "STAGES", 1) < 2,
        .blocks = fa_model_occupancy(gpu, threads, registers, trial->smem_bytes),
    };
    s.slabs = s.block_m / 16 / s.warps * fa_model_tunable(candidate, "COLUMN_WARPS", 1);
    return s;
}

/* ---- one tile ------------------------------------------------------------------------------*/
/* Clocks of an SM per tile and block while `resident` blocks share it. */
static double tile_clocks(const struct shape *s, const fa_gpu *gpu, int resident)
{
    const fa_model_rates *a = fa_model_rates_of(gpu);
    double rate = fa_model_mma_rate(gpu);
    double scores = s->block_m * s->block_n;
    double kv_bytes = 2 * s->block_n * s->head * 2, q_bytes = s->block_m * s->head * 2;
    /* Every warp reads all keys and values of the tile; its queries too unless it keeps them. */
    double smem = s->warps * kv_bytes + (s->q_in_registers ? 0 : q_bytes) + kv_bytes;
    double products = scores / 128 * s->head / 16 * 2 * (gpu->sm < 80 ? 2 : 1);
    double fragments = s->warps * 2 * s->block_n * s->head / 256;
    double part[] = {
        4 * scores * s->head / (rate * coefficient.tensor_share),
        smem / a->smem_bytes,
        scores / a->exponentials,
        scores * coefficient.fp32_per_score / a->fp32_lanes +
            (products + fragments) * coefficient.issue_per_mma / SCHEDULERS,
        kv_bytes / coefficient.l2_bytes,
    };
    double warps = resident * s->warps / SCHEDULERS;
    double p = 1 + coefficient.overlap + coefficient.overlap_per_warp * (warps - 1) +
               coefficient.overlap_per_slab * (s->slabs - 1);
    double clocks = fa_model_p_norm(part, (int)(sizeof part / sizeof *part), p > 1 ? p : 1);
    double latency = coefficient.tile_clocks + (s->single_stage ? coefficient.single_stage : 0);
    return clocks + latency / resident;
}

/* ---- all tiles -----------------------------------------------------------------------------*/
/* What so many blocks with these tiles cost an SM that holds `resident` blocks. */
static double clocks_of(const struct shape *s, const fa_gpu *gpu, double blocks,
                        fa_attn_model_steps tiles, int resident)
{
    const double fixed =
        (coefficient.block_clocks + coefficient.block_row_clocks * s->block_m) / resident;
    const double per_masked =
        coefficient.mask_per_score * s->block_m * s->block_n / fa_model_rates_of(gpu)->fp32_lanes;
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
        fa_attn_model_steps row = fa_attn_model_steps_of(problem, (blocks - 1 - rank) * s->block_m,
                                                         s->block_m, s->block_n);
        tiles[count] = row.all;
        masked += row.masked;
    }
    double clocks = clocks_of(s, gpu, 1, (fa_attn_model_steps){0, masked}, 1);
    for (int running = count; running > 0; running--)
        clocks += (tiles[running - 1] - tiles[running]) * running * tile_clocks(s, gpu, running);
    return clocks;
}

/* Clocks until the last SM is done. */
static double makespan(const struct shape *s, const fa_problem *problem, const fa_gpu *gpu)
{
    fa_attn_model_steps head = fa_attn_model_steps_of_head(problem, s->block_m, s->block_n);
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
        double shortest = clocks_of(s, gpu, 1, (fa_attn_model_steps){1, 1}, resident) * resident;
        return fmax(spread + shortest * (1 - coefficient.smoothing), first);
    }
    double wave = sms * resident, waves = floor(blocks / wave), rest = blocks - waves * wave;
    double steps = waves * resident * mean;
    if (rest > 0) {
        int last = (int)ceil(rest / sms);
        steps += last * clocks_of(s, gpu, of_head, head, last) / of_head;
    }
    double smooth = coefficient.smoothing * (waves > 0 ? 1 : 0);
    return fmax(smooth * spread + (1 - smooth) * steps, first);
}

void fa_attn_predict(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                     fa_trial *trial)
{
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
            trial->predicted_us =
                fa_attn_specialised_us(candidate, problem, gpu, trial->blocks_per_sm);
        return;
    }
    struct shape shape = make_shape(candidate, problem, gpu, trial->registers);
    trial->blocks_per_sm = shape.blocks;
    if (shape.blocks < 1)
        return;
    if (fa_model_tunable(candidate, "SPLITS", 0) > 0) {
        trial->predicted_us =
            fa_attn_split_us(candidate, problem, gpu, shape.blocks, fa_model_mma_rate(gpu));
        return;
    }
    double clock = gpu->clock_mhz > 0 ? gpu->clock_mhz : 1000;
    fa_problem mean = fa_attn_mean_problem(problem);
    double us = makespan(&shape, &mean, gpu) / clock;
    trial->predicted_us =
        coefficient.launch_us + fmax(us, fa_model_memory_us(fa_attn_bytes(&mean), gpu));
}
