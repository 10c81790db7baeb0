/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the GPU that is nearest to its limit bounds a kernel: from 60% of its peak on, as Nsight Compute counts
 * ("speed of light"). Below that, warps wait, and what most of them wait for is the bound. SMs without work come before
 * both: shares of the peak are those of busy SMs.
 *
 * Which tunables move a bound is not written down anywhere: it is read off the space. A bound is moved by one property of a
 * config (its grid, its shared memory, …), and a tunable moves that if the property differs between the config and those
 * that differ from it in this tunable and in as few others as possible. Tunables that can change alone come first, and
 * of these the tunable with the largest effect on the measured time.
 */
#include "bound.h"

#include "buf.h"
#include "problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEAR_PEAK = 60, SMS_IDLE = 70, TOLD = 4 }; /* percent, percent, tunables */
enum { MOST_RESIDENT = 32 };                       /* blocks that any SM holds */

/* ---- what moves it --------------------------------------------------------------------------*/
/* In the order in which one stands for another. */
enum property { BLOCKS, TILE, SMEM, THREADS, RESIDENT, PROPERTIES };
static const char *const property_words[] = {[BLOCKS] = "the number of blocks",
                                             [TILE] = "the tile of a block",
                                             [SMEM] = "the shared memory of a block",
                                             [THREADS] = "the threads of a block",
                                             [RESIDENT] = "the blocks that an SM holds"};

/* Whether the grid just fills the GPU. So does that of a persistent kernel, whose blocks take tile after tile: their
 * number says nothing of the tile. */
static bool fills_gpu(const fa_trial *trial, int32_t sms)
{
    const double blocks = (double)trial->grid[0] * trial->grid[1] * trial->grid[2];
    const int32_t most = trial->blocks_per_sm > 0 ? trial->blocks_per_sm : MOST_RESIDENT;
    return sms > 0 && fmod(blocks, sms) == 0 && blocks <= (double)sms * most;
}

/* Whether the property is known of both and differs. */
static bool differs(enum property property, int32_t sms, const fa_trial *a, const fa_trial *b)
{
    switch (property) {
    case TILE:
        return differs(BLOCKS, sms, a, b) && !fills_gpu(a, sms) && !fills_gpu(b, sms);
    case SMEM: /* by more than barriers take */
        return a->smem_bytes >= 0 && b->smem_bytes >= 0 &&
               64 * labs((long)a->smem_bytes - b->smem_bytes) > a->smem_bytes;
    case THREADS:
        return a->threads > 0 && b->threads > 0 && a->threads != b->threads;
    case RESIDENT:
        return a->blocks_per_sm > 0 && b->blocks_per_sm > 0 && a->blocks_per_sm != b->blocks_per_sm;
    default:
        return a->grid[0] > 0 && b->grid[0] > 0 && memcmp(a->grid, b->grid, sizeof a->grid) != 0;
    }
}

struct mover {
    const char *name;
    int others;    /* tunables that differ besides, in the nearest configs */
    bool moves;    /* in one of these the property differs */
    double effect; /* largest |ln(time ÷ time)| among these; 0: not timed */
};

/* Looks at one config that differs in the tunable and in `others` more. */
static void look_at(struct mover *mover, int others, enum property property, int32_t sms,
                    const fa_trial *self, const fa_trial *trial)
{
    if (others > mover->others)
        return;
    if (others < mover->others)
        *mover = (struct mover){.name = mover->name, .others = others};
    mover->moves = mover->moves || differs(property, sms, self, trial);
    if (self->median_us > 0 && trial->median_us > 0)
        mover->effect = fmax(mover->effect, fabs(log(trial->median_us / self->median_us)));
}

static int compare_movers(const void *a, const void *b)
{
    const struct mover *x = a, *y = b;
    if (x->moves != y->moves)
        return x->moves ? -1 : 1;
    if (x->others != y->others)
        return x->others < y->others ? -1 : 1;
    return x->effect != y->effect ? (x->effect < y->effect) - (x->effect > y->effect)
                                  : strcmp(x->name, y->name);
}

/* Sorts the config's tunables, those that move the property first. Returns how many do. */
static int find_movers(enum property property, const fa_profile *profile, const fa_trial *trials,
                       size_t count, struct mover mover[FA_MAX_TUNABLES])
{
    const fa_config *config = &profile->config;
    const fa_trial *self = NULL;
    int moving = 0;
    for (size_t i = 0; i < count && self == NULL; i++)
        self = fa_config_equal(&trials[i].config, config) ? &trials[i] : NULL;
    for (int t = 0; t < config->count; t++)
        mover[t] = (struct mover){.name = config->tunable[t].name, .others = FA_MAX_TUNABLES};
    for (size_t i = 0; i < count && self != NULL; i++) {
        bool other[FA_MAX_TUNABLES] = {false};
        int differ = 0;
        if (strcmp(trials[i].config.family, config->family) != 0 || trials[i].threads <= 0)
            continue; /* nothing is known of an impossible one */
        for (int t = 0; t < config->count; t++) {
            int32_t value;
            other[t] = !fa_config_get(&trials[i].config, config->tunable[t].name, &value) ||
                       value != config->tunable[t].value;
            differ += other[t];
        }
        for (int t = 0; t < config->count; t++)
            if (other[t])
                look_at(&mover[t], differ - 1, property, profile->gpu.sm_count, self, &trials[i]);
    }
    qsort(mover, (size_t)config->count, sizeof *mover, compare_movers);
    while (moving < config->count && mover[moving].moves)
        moving++;
    return moving;
}

/* Appends which tunables move the bound. Where none changes the property, the next one is tried: the tile of a
 * persistent kernel shows in its shared memory alone. */
static void put_movers(enum property wanted, const fa_profile *profile, const fa_trial *trials,
                       size_t count, fa_buf *out)
{
    struct mover mover[FA_MAX_TUNABLES];
    enum property found = wanted;
    int moving = 0;
    for (int p = wanted; p < PROPERTIES && moving == 0; p++) {
        found = (enum property)p;
        moving = find_movers(found, profile, trials, count, mover);
    }
    if (moving == 0) {
        fa_buf_text(out, "no tunable of its space moves that");
        return;
    }
    fa_buf_printf(out, "%s moves that: ",
                  wanted == TILE && found == SMEM ? "the size of its tiles in shared memory"
                                                  : property_words[found]);
    for (int i = 0; i < moving && i < TOLD; i++)
        fa_buf_printf(out, "%s%s", i == 0 ? "" : ", ", mover[i].name);
}

/* ---- what bounds it -------------------------------------------------------------------------*/
static const struct {
    fa_bound bound;
    size_t at; /* of the share of the peak */
    const char *words;
    enum property moved_by;
} units[] = {
    {FA_BOUND_TENSOR, offsetof(fa_profile_launch, tensor), "the tensor cores", TILE},
    {FA_BOUND_SPECIAL, offsetof(fa_profile_launch, special), "the special functions", TILE},
    {FA_BOUND_ISSUE, offsetof(fa_profile_launch, issue), "the issue slots", TILE},
    {FA_BOUND_SHARED, offsetof(fa_profile_launch, shared), "shared memory", SMEM},
    {FA_BOUND_L2, offsetof(fa_profile_launch, l2), "the L2 cache", TILE},
    {FA_BOUND_MEMORY, offsetof(fa_profile_launch, memory), "the GPU's memory", TILE},
};

static const struct {
    const char *reason, *words;
    enum property moved_by;
} waits[] = {
    {"long_scoreboard", "waits for global memory", SMEM},
    {"lg_throttle", "full queues to global memory", THREADS},
    {"tex_throttle", "full queues of texture loads", THREADS},
    {"short_scoreboard", "waits for shared memory", SMEM},
    {"mio_throttle", "full queues to shared memory", SMEM},
    {"barrier", "waits at barriers", THREADS},
    {"membar", "waits at memory fences", THREADS},
    {"sleeping", "warps that sleep", THREADS},
    {"gmma", "waits for wgmma", SMEM},
    {"math_pipe_throttle", "busy arithmetic pipes", THREADS},
    {"wait", "the latency of instructions", RESIDENT},
    {"drain", "stores at the end of blocks", BLOCKS},
    {"dispatch_stall", "the dispatcher", RESIDENT},
    {"no_instruction", "misses of the instruction cache", TILE},
    {"branch_resolving", "branches", RESIDENT},
    {"imc_miss", "misses of the constant cache", RESIDENT},
};

static double share_at(const fa_profile_launch *launch, size_t at)
{
    double share;
    memcpy(&share, (const char *)launch + at, sizeof share);
    return share;
}

/* Most of the warps wait for it; a warp that could run while another does waits for nothing. NULL: none was counted. */
static const fa_profile_stall *longest_wait(const fa_profile_launch *launch)
{
    for (int i = 0; i < FA_PROFILE_STALLS && launch->stall[i].reason[0] != 0; i++)
        if (strcmp(launch->stall[i].reason, "not_selected") != 0)
            return &launch->stall[i];
    return NULL;
}

/* Appends the wait and what it is known by. */
static enum property put_wait(const fa_profile_stall *stall, fa_buf *out)
{
    size_t i = 0;
    const size_t count = sizeof waits / sizeof *waits;
    while (i < count && strcmp(waits[i].reason, stall->reason) != 0)
        i++;
    fa_buf_printf(out, "%s (%s %.1f, and no unit reaches %d%% of its peak)",
                  i < count ? waits[i].words : "waits", stall->reason, stall->warps, NEAR_PEAK);
    return i < count ? waits[i].moved_by : RESIDENT;
}

/* Appends what bounds the launch. */
static fa_bound put_bound(const fa_profile_launch *launch, enum property *ret_moved_by, fa_buf *out)
{
    const fa_profile_stall *stall = longest_wait(launch);
    size_t most = 0;
    for (size_t i = 1; i < sizeof units / sizeof *units; i++)
        if (share_at(launch, units[i].at) > share_at(launch, units[most].at))
            most = i;
    double share = share_at(launch, units[most].at);
    *ret_moved_by = BLOCKS;
    if (launch->busy >= 0 && launch->busy < SMS_IDLE) {
        fa_buf_printf(out, "SMs without work (busy %.0f%% of the time)", launch->busy);
        return FA_BOUND_IDLE;
    }
    if (share >= NEAR_PEAK) {
        *ret_moved_by = units[most].moved_by;
        fa_buf_printf(out, "%s (%.0f%% of the peak", units[most].words, share);
        if (units[most].bound == FA_BOUND_SHARED && launch->conflicts >= 1)
            fa_buf_printf(out, ", %.0f%% of it bank conflicts", launch->conflicts);
        fa_buf_text(out, ")");
        return units[most].bound;
    }
    if (share < 0 || stall == NULL)
        return FA_BOUND_UNKNOWN;
    *ret_moved_by = put_wait(stall, out);
    return FA_BOUND_LATENCY;
}

void fa_bound_tell(fa_profile *profile, const fa_trial *trials, size_t count)
{
    enum property moved_by;
    fa_buf words = {0}, out = {0};
    double total_us = 0;
    profile->longest = 0;
    for (int i = 0; i < profile->launch_count; i++) {
        total_us += fmax(profile->launch[i].time_us, 0);
        if (profile->launch[i].time_us > profile->launch[profile->longest].time_us)
            profile->longest = i;
    }
    const fa_profile_launch *launch = &profile->launch[profile->longest];
    profile->bound = put_bound(launch, &moved_by, &words);
    fa_buf_text(&out, launch->kernel);
    if (profile->launch_count > 1 && launch->time_us > 0)
        fa_buf_printf(&out, ", %.0f%% of the time of %d launches,",
                      100 * launch->time_us / total_us, profile->launch_count);
    if (profile->bound == FA_BOUND_UNKNOWN) {
        fa_buf_text(&out,
                    " has a bound that cannot be told: this GPU or this ncu counts too little");
    } else {
        fa_buf_printf(&out, " is bound by %s; ", words.data != NULL ? words.data : "");
        put_movers(moved_by, profile, trials, count, &out);
    }
    snprintf(profile->sentence, sizeof profile->sentence, "%s", out.data != NULL ? out.data : "");
    fa_buf_free(&words);
    fa_buf_free(&out);
}
