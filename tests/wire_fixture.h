/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the service's texts share: values of every kind made by chance, the same in
 * each run, and comparisons of all of their fields.
 */
#ifndef FA_TESTS_WIRE_FIXTURE_H
#define FA_TESTS_WIRE_FIXTURE_H

#include "fa_tune.h"

#include "check.h"
#include "problem.h"

#include <stdint.h>

enum { ROUNDS = 300 };

/* ---- chance ---------------------------------------------------------------------------------*/
static uint64_t state = 88172645463325252u;

static inline uint64_t bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static inline int32_t below(int32_t n)
{
    return (int32_t)(bits() % (uint64_t)n);
}

/* Positive, of any size, with all of its bits in use. */
static inline double real(void)
{
    return ldexp((double)(bits() >> 11 | 1), below(90) - 80);
}

static inline int32_t count(void)
{
    return below(3) == 0 ? 0 : below(INT32_MAX);
}

/* Up to size - 1 bytes of what JSON has to escape, and of what it has not. */
static inline void text(char *ret, size_t size)
{
    static const char *const parts[] = {"a", "Z", "0", "_", " ", "\"", "\\", "/", "µ", "€", "𝄞", "{"};
    size_t used = 0, wanted = (size_t)below((int32_t)size);
    for (;;) {
        const char *part = parts[below(12)];
        if (used + strlen(part) > wanted)
            break;
        memcpy(ret + used, part, strlen(part));
        used += strlen(part);
    }
    ret[used] = 0;
}

static inline fa_problem random_problem(void)
{
    int32_t kv = 1 + below(64);
    return (fa_problem){.dtype = (fa_dtype)below(2), .causal = (fa_causal)below(3),
                        .layout = (fa_layout)below(2), .head_dim = 8 + 8 * below(32),
                        .batch = count(), .heads_q = kv * (1 + below(8)), .heads_kv = kv,
                        .seq_q = count(), .seq_k = count(), .want_lse = below(2),
                        .unaligned = below(2)};
}

static inline void random_trial(fa_trial *t)
{
    memset(t, 0, sizeof *t);
    snprintf(t->config.family, sizeof t->config.family, "attn_fwd_sm%d", below(1000));
    t->config.count = below(FA_MAX_TUNABLES + 1);
    for (int i = 0; i < t->config.count; i++) {
        snprintf(t->config.tunable[i].name, FA_NAME_MAX, "T%d_%d", i, below(100));
        t->config.tunable[i].value = (int32_t)bits();
    }
    t->status = (fa_status)below(FA_STATUS_MEASURED + 1);
    text(t->reason, sizeof t->reason);
    if (below(4) > 0) {
        t->threads = 1 + below(1024);
        t->smem_bytes = count();
    }
    if (below(4) > 0) {
        t->registers = 1 + below(255);
        t->spill_bytes = count();
    }
    t->blocks_per_sm = count();
    for (int i = 0; i < 3; i++)
        t->grid[i] = (uint32_t)bits();
    t->compile_ms = below(2) ? real() : 0;
    t->predicted_us = below(2) ? real() : 0;
    if (below(2)) {
        t->median_us = real();
        t->low_us = real();
        t->high_us = real();
        t->sample_count = count();
    }
    if (below(2)) {
        t->tolerance = real();
        t->max_error = below(8) == 0 ? NAN : real();
    }
    t->raced = below(2);
}

static inline void random_answer(fa_answer *a)
{
    static const char hex[] = "0123456789abcdef";
    memset(a, 0, sizeof *a);
    a->problem = random_problem();
    a->from_problem = random_problem();
    text(a->gpu.name, sizeof a->gpu.name);
    a->gpu.sm = count();
    a->gpu.sm_count = count();
    a->gpu.smem_per_block = count();
    a->gpu.smem_per_sm = count();
    a->gpu.smem_reserved = count();
    a->gpu.regs_per_sm = count();
    a->gpu.threads_per_sm = count();
    a->gpu.blocks_per_sm = count();
    a->gpu.l2_bytes = (int64_t)(bits() >> 25);
    a->gpu.memory_bus_bits = count();
    a->gpu.clock_mhz = count();
    a->gpu.bandwidth_gbs = real();
    a->gpu.tensor_tflops = real();
    a->gpu.present = below(2);
    a->gpu.ordinal = below(10) - 1;
    text(a->gpu.uuid, sizeof a->gpu.uuid);
    a->origin = (fa_origin)below(FA_ORIGIN_NEAREST + 1);
    random_trial(&a->trial);
    text(a->entry, sizeof a->entry);
    for (int i = 0, length = below(8) > 0 ? 64 : 0; i < length; i++)
        a->cubin_key[i] = hex[below(16)];
    text(a->nvrtc, sizeof a->nvrtc);
    a->driver_version = count();
    a->unix_time = (int64_t)(bits() >> 25);
    a->default_us = below(2) ? real() : 0;
    a->tune_s = below(2) ? real() : 0;
    int32_t *funnel[] = {&a->space, &a->in_budget, &a->compiled, &a->clean, &a->proved,
                         &a->measured, &a->failed, &a->ties};
    for (size_t i = 0; i < 8; i++)
        *funnel[i] = count();
    a->from_store = below(2);
    text(a->from_gpu, sizeof a->from_gpu);
    text(a->why, sizeof a->why);
    a->top_few = below(2);
    if (below(2)) {
        a->promised_rank = 1 + below(1000);
        a->promised_us = real();
        a->promised_measured_us = real();
    }
    a->from_system = below(2);
    a->in_local = below(2);
    a->in_fleet = below(2);
}

static inline void random_progress(fa_progress *p, fa_trial *trial, fa_trial *best)
{
    memset(p, 0, sizeof *p);
    p->kind = (fa_event_kind)below(3);
    p->stage = (fa_stage)below(4);
    int32_t *counts[] = {&p->space,           &p->in_budget, &p->compiled, &p->clean,
                         &p->proved,          &p->measured,  &p->failed,   &p->resumed,
                         &p->compile_workers, &p->reused,    &p->ended};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        *counts[i] = count();
    p->elapsed_s = real();
    p->left_s = below(2) ? real() : -1;
    p->default_us = below(2) ? real() : 0;
    if (below(2)) {
        random_trial(trial);
        p->trial = trial;
    }
    if (below(2)) {
        random_trial(best);
        p->best = best;
    }
}

static inline void random_spent(fa_sweep_spent *spent)
{
    *spent = (fa_sweep_spent){.seconds = real(), .cost = below(2) ? real() : 0,
                              .trials = (int64_t)(bits() >> 11), .compiled = (int64_t)(bits() >> 11),
                              .reused = (int64_t)(bits() >> 11)};
}

static inline void random_sweep(fa_sweep *s)
{
    memset(s, 0, sizeof *s);
    text(s->key, sizeof s->key);
    text(s->plan, sizeof s->plan);
    s->state = (fa_sweep_state)below(4);
    s->budget.seconds = below(2) ? real() : 0;
    s->budget.trials = below(2) ? count() : 0;
    s->budget.cost = below(2) ? real() : 0;
    s->budget.price = below(2) ? real() : 0;
    random_spent(&s->spent);
    s->items = 1 + below(FA_SWEEP_ITEMS_MAX);
    s->done = below(s->items);
    s->failed = below(s->items - s->done);
    s->created = (int64_t)(bits() >> 25);
    s->updated = (int64_t)(bits() >> 25);
}

/* ---- the same -------------------------------------------------------------------------------*/
#define SAME(field) (a->field == b->field)
#define SAME_TEXT(field) (strcmp(a->field, b->field) == 0)

static inline bool same_trial(const fa_trial *a, const fa_trial *b)
{
    for (int i = 0; i < a->config.count; i++) /* in their order, too */
        if (!SAME_TEXT(config.tunable[i].name) || !SAME(config.tunable[i].value))
            return false;
    return SAME_TEXT(config.family) && SAME(config.count) && SAME(status) && SAME_TEXT(reason) &&
           SAME(threads) && SAME(smem_bytes) && SAME(registers) && SAME(spill_bytes) &&
           SAME(blocks_per_sm) && SAME(grid[0]) && SAME(grid[1]) && SAME(grid[2]) &&
           SAME(compile_ms) && SAME(predicted_us) && SAME(median_us) && SAME(low_us) &&
           SAME(high_us) && SAME(sample_count) && SAME(tolerance) && SAME(raced) &&
           (SAME(max_error) || (isnan(a->max_error) && isnan(b->max_error)));
}

static inline bool same_gpu(const fa_gpu *a, const fa_gpu *b)
{
    return SAME_TEXT(name) && SAME(sm) && SAME(sm_count) && SAME(smem_per_block) &&
           SAME(smem_per_sm) && SAME(smem_reserved) && SAME(regs_per_sm) && SAME(threads_per_sm) &&
           SAME(blocks_per_sm) && SAME(l2_bytes) && SAME(memory_bus_bits) && SAME(clock_mhz) &&
           SAME(bandwidth_gbs) && SAME(tensor_tflops) && SAME(present) && SAME(ordinal) &&
           SAME_TEXT(uuid);
}

static inline bool same_answer(const fa_answer *a, const fa_answer *b)
{
    return fa_problem_equal(&a->problem, &b->problem) && same_gpu(&a->gpu, &b->gpu) &&
           SAME(origin) && same_trial(&a->trial, &b->trial) && SAME_TEXT(entry) &&
           SAME_TEXT(cubin_key) && SAME_TEXT(nvrtc) && SAME(driver_version) && SAME(unix_time) &&
           SAME(default_us) && SAME(tune_s) && SAME(space) && SAME(in_budget) && SAME(compiled) &&
           SAME(clean) && SAME(proved) && SAME(measured) && SAME(failed) && SAME(ties) &&
           SAME(from_store) && fa_problem_equal(&a->from_problem, &b->from_problem) &&
           SAME_TEXT(from_gpu) && SAME_TEXT(why) && SAME(top_few) && SAME(promised_us) &&
           SAME(promised_measured_us) && SAME(promised_rank) && SAME(from_system) &&
           SAME(in_local) && SAME(in_fleet);
}

static inline bool same_progress(const fa_progress *a, const fa_progress *b)
{
    if ((a->trial == NULL) != (b->trial == NULL) || (a->best == NULL) != (b->best == NULL))
        return false;
    return SAME(kind) && SAME(stage) && SAME(space) && SAME(in_budget) && SAME(compiled) &&
           SAME(clean) && SAME(proved) && SAME(measured) && SAME(failed) && SAME(resumed) &&
           SAME(compile_workers) && SAME(reused) && SAME(ended) && SAME(elapsed_s) &&
           SAME(left_s) && SAME(default_us) &&
           (a->trial == NULL || same_trial(a->trial, b->trial)) &&
           (a->best == NULL || same_trial(a->best, b->best));
}

static inline bool same_spent(const fa_sweep_spent *a, const fa_sweep_spent *b)
{
    return SAME(seconds) && SAME(cost) && SAME(trials) && SAME(compiled) && SAME(reused);
}

static inline bool same_sweep(const fa_sweep *a, const fa_sweep *b)
{
    return SAME_TEXT(key) && SAME_TEXT(plan) && SAME(state) && SAME(budget.seconds) &&
           SAME(budget.trials) && SAME(budget.cost) && SAME(budget.price) &&
           same_spent(&a->spent, &b->spent) && SAME(items) && SAME(done) && SAME(failed) &&
           SAME(created) && SAME(updated);
}

#endif
