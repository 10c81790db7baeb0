/* SPDX-License-Identifier: Apache-2.0
 *
 * The service's texts: what is written reads back as it was, and nothing that somebody else wrote is
 * believed before it is checked.
 */
#include "fa_tune.h"

#include "check.h"
#include "error.h"
#include "json.h"
#include "problem.h"

#include <locale.h>
#include <stdint.h>

enum { ROUNDS = 300 };

/* ---- chance ---------------------------------------------------------------------------------*/
static uint64_t state = 88172645463325252u;

static uint64_t bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static int32_t below(int32_t n)
{
    return (int32_t)(bits() % (uint64_t)n);
}

/* Positive, of any size, with all of its bits in use. */
static double real(void)
{
    return ldexp((double)(bits() >> 11 | 1), below(90) - 80);
}

static int32_t count(void)
{
    return below(3) == 0 ? 0 : below(INT32_MAX);
}

/* Up to size - 1 bytes of what JSON has to escape, and of what it has not. */
static void text(char *ret, size_t size)
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

static fa_problem random_problem(void)
{
    int32_t kv = 1 + below(64);
    return (fa_problem){.dtype = (fa_dtype)below(2), .causal = (fa_causal)below(3),
                        .layout = (fa_layout)below(2), .head_dim = 8 + 8 * below(32),
                        .batch = count(), .heads_q = kv * (1 + below(8)), .heads_kv = kv,
                        .seq_q = count(), .seq_k = count(), .want_lse = below(2),
                        .unaligned = below(2)};
}

static void random_trial(fa_trial *t)
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

static void random_answer(fa_answer *a)
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
}

static void random_progress(fa_progress *p, fa_trial *trial, fa_trial *best)
{
    memset(p, 0, sizeof *p);
    p->kind = (fa_event_kind)below(3);
    p->stage = (fa_stage)below(4);
    int32_t *counts[] = {&p->space, &p->in_budget, &p->compiled, &p->clean, &p->proved, &p->measured,
                         &p->failed, &p->resumed, &p->compile_workers, &p->reused};
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

static void random_spent(fa_sweep_spent *spent)
{
    *spent = (fa_sweep_spent){.seconds = real(), .cost = below(2) ? real() : 0,
                              .trials = (int64_t)(bits() >> 11), .compiled = (int64_t)(bits() >> 11),
                              .reused = (int64_t)(bits() >> 11)};
}

static void random_sweep(fa_sweep *s)
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

static bool same_trial(const fa_trial *a, const fa_trial *b)
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

static bool same_gpu(const fa_gpu *a, const fa_gpu *b)
{
    return SAME_TEXT(name) && SAME(sm) && SAME(sm_count) && SAME(smem_per_block) &&
           SAME(smem_per_sm) && SAME(smem_reserved) && SAME(regs_per_sm) && SAME(threads_per_sm) &&
           SAME(blocks_per_sm) && SAME(l2_bytes) && SAME(memory_bus_bits) && SAME(clock_mhz) &&
           SAME(bandwidth_gbs) && SAME(tensor_tflops) && SAME(present) && SAME(ordinal) &&
           SAME_TEXT(uuid);
}

static bool same_answer(const fa_answer *a, const fa_answer *b)
{
    return fa_problem_equal(&a->problem, &b->problem) && same_gpu(&a->gpu, &b->gpu) &&
           SAME(origin) && same_trial(&a->trial, &b->trial) && SAME_TEXT(entry) &&
           SAME_TEXT(cubin_key) && SAME_TEXT(nvrtc) && SAME(driver_version) && SAME(unix_time) &&
           SAME(default_us) && SAME(tune_s) && SAME(space) && SAME(in_budget) && SAME(compiled) &&
           SAME(clean) && SAME(proved) && SAME(measured) && SAME(failed) && SAME(ties) &&
           SAME(from_store) && fa_problem_equal(&a->from_problem, &b->from_problem) &&
           SAME_TEXT(from_gpu) && SAME_TEXT(why) && SAME(top_few) && SAME(promised_us) &&
           SAME(promised_measured_us) && SAME(promised_rank) && SAME(from_system);
}

static bool same_progress(const fa_progress *a, const fa_progress *b)
{
    if ((a->trial == NULL) != (b->trial == NULL) || (a->best == NULL) != (b->best == NULL))
        return false;
    return SAME(kind) && SAME(stage) && SAME(space) && SAME(in_budget) && SAME(compiled) &&
           SAME(clean) && SAME(proved) && SAME(measured) && SAME(failed) && SAME(resumed) &&
           SAME(compile_workers) && SAME(reused) && SAME(elapsed_s) && SAME(left_s) &&
           SAME(default_us) && (a->trial == NULL || same_trial(a->trial, b->trial)) &&
           (a->best == NULL || same_trial(a->best, b->best));
}

static bool same_spent(const fa_sweep_spent *a, const fa_sweep_spent *b)
{
    return SAME(seconds) && SAME(cost) && SAME(trials) && SAME(compiled) && SAME(reused);
}

static bool same_sweep(const fa_sweep *a, const fa_sweep *b)
{
    return SAME_TEXT(key) && SAME_TEXT(plan) && SAME(state) && SAME(budget.seconds) &&
           SAME(budget.trials) && SAME(budget.cost) && SAME(budget.price) &&
           same_spent(&a->spent, &b->spent) && SAME(items) && SAME(done) && SAME(failed) &&
           SAME(created) && SAME(updated);
}

/* ---- round trips ----------------------------------------------------------------------------*/
static void asks_read_back_as_they_were(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        fa_ask ask = {.size = sizeof ask, .problem = random_problem(), .ordinal = below(1024),
                      .effort = (fa_effort)below(4), .again = below(2), .exact = below(2),
                      .first_contact = below(2), .timeout_ms = count()}, back;
        const fa_ask *a = &ask, *b = &back;
        char *json = NULL;
        fa_diag diag = {{0}};
        text(ask.gpu, sizeof ask.gpu);
        text(ask.uuid, sizeof ask.uuid);
        CHECK_OK(fa_ask_write(&ask, &json, &diag), diag);
        CHECK(strchr(json, '\n') == NULL);
        CHECK_OK(fa_ask_read(json, strlen(json), &back, &diag), diag);
        CHECK(fa_problem_equal(&a->problem, &b->problem));
        CHECK(SAME_TEXT(gpu) && SAME_TEXT(uuid) && SAME(ordinal) && SAME(effort) && SAME(again) &&
              SAME(exact) && SAME(first_contact) && SAME(timeout_ms) && SAME(size));
        free(json);
    }
}

static void answers_read_back_as_they_were(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        fa_answer answer, back;
        char *json = NULL;
        fa_diag diag = {{0}};
        random_answer(&answer);
        CHECK_OK(fa_answer_write(&answer, &json, &diag), diag);
        CHECK(strchr(json, '\n') == NULL);
        CHECK_OK(fa_answer_read(json, strlen(json), &back, &diag), diag);
        CHECK(same_answer(&answer, &back));
        free(json);
    }
}

static void progress_reads_back_as_it_was(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        fa_progress progress, back;
        fa_trial trial, best, trial_back, best_back;
        char *json = NULL;
        fa_diag diag = {{0}};
        random_progress(&progress, &trial, &best);
        CHECK_OK(fa_progress_write(&progress, &json, &diag), diag);
        CHECK_OK(fa_progress_read(json, strlen(json), &back, &trial_back, &best_back, &diag), diag);
        CHECK(same_progress(&progress, &back));
        free(json);
    }
}

static void sweeps_read_back_as_they_were(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        fa_sweep sweep, back;
        char *json = NULL;
        fa_diag diag = {{0}};
        random_sweep(&sweep);
        CHECK_OK(fa_sweep_write(&sweep, &json, &diag), diag);
        CHECK_OK(fa_sweep_read(json, strlen(json), &back, &diag), diag);
        CHECK(same_sweep(&sweep, &back));
        free(json);
    }
}

static void events_of_sweeps_read_back_as_they_were(void)
{
    static fa_sweep_parts parts, back_parts;
    for (int i = 0; i < ROUNDS; i++) {
        fa_sweep_progress p = {.sweep = &parts.sweep, .item = &parts.item}, back;
        char *json = NULL;
        fa_diag diag = {{0}};
        random_sweep(&parts.sweep);
        memset(&parts.item, 0, sizeof parts.item);
        parts.item.problem = random_problem();
        text(parts.item.gpu, sizeof parts.item.gpu);
        text(parts.item.reason, sizeof parts.item.reason);
        parts.item.state = (fa_item_state)below(4);
        parts.item.attempts = count();
        random_spent(&parts.item.spent);
        random_progress(&parts.tune, &parts.trial, &parts.best);
        random_answer(&parts.answer);
        p.event = (fa_sweep_event)below(4);
        p.index = below(parts.sweep.items);
        p.tune = below(2) ? &parts.tune : NULL;
        p.answer = below(2) ? &parts.answer : NULL;
        p.elapsed_s = real();
        p.left_s = below(2) ? real() : -1;
        CHECK_OK(fa_sweep_event_write(&p, &json, &diag), diag);
        CHECK_OK(fa_sweep_event_read(json, strlen(json), &back, &back_parts, &diag), diag);
        const fa_sweep_progress *a = &p, *b = &back;
        CHECK(SAME(event) && SAME(index) && SAME(elapsed_s) && SAME(left_s));
        CHECK(same_sweep(p.sweep, back.sweep));
        CHECK(fa_problem_equal(&p.item->problem, &back.item->problem));
        CHECK(SAME_TEXT(item->gpu) && SAME_TEXT(item->reason) && SAME(item->state) &&
              SAME(item->attempts) && same_spent(&p.item->spent, &back.item->spent));
        CHECK((p.tune == NULL) == (back.tune == NULL));
        CHECK((p.answer == NULL) == (back.answer == NULL));
        CHECK(p.tune == NULL || same_progress(p.tune, back.tune));
        CHECK(p.answer == NULL || same_answer(p.answer, back.answer));
        free(json);
    }
}

static void the_largest_sweep_asked_for_reads_back_as_it_was(void)
{
    fa_sweep_item *items = calloc(FA_SWEEP_ITEMS_MAX, sizeof *items), *back_items = NULL;
    fa_sweep_request request = {.size = sizeof request, .items = items, .plan = "a \"plan\"",
                                .count = FA_SWEEP_ITEMS_MAX, .effort = FA_EFFORT_PATIENT,
                                .again = true, .restart = true, .exact = true, .ordinal = 3,
                                .budget = {.seconds = 0.1, .trials = 7, .cost = 1.0 / 3, .price = 2}};
    fa_sweep_request back;
    char plan[512], *json = NULL;
    fa_diag diag = {{0}};
    CHECK(items != NULL);
    for (int i = 0; i < FA_SWEEP_ITEMS_MAX; i++) {
        items[i].problem = random_problem();
        text(items[i].gpu, sizeof items[i].gpu);
    }
    CHECK_OK(fa_sweep_ask_write(&request, &json, &diag), diag);
    CHECK_OK(fa_sweep_ask_read(json, strlen(json), &back, &back_items, plan, &diag), diag);
    const fa_sweep_request *a = &request, *b = &back;
    CHECK(SAME(count) && SAME(effort) && SAME(again) && SAME(restart) && SAME(exact) &&
          SAME(ordinal) && SAME(budget.seconds) && SAME(budget.trials) && SAME(budget.cost) &&
          SAME(budget.price) && back.items == back_items && back.plan == plan);
    CHECK_TEXT(back.plan, "a \"plan\"");
    for (int i = 0; i < FA_SWEEP_ITEMS_MAX; i++)
        CHECK(fa_problem_equal(&items[i].problem, &back_items[i].problem) &&
              strcmp(items[i].gpu, back_items[i].gpu) == 0);
    free(items);
    free(back_items);
    free(json);
}

static void a_failure_keeps_its_code_and_sentence(void)
{
    char *json = NULL;
    int code = 0;
    fa_diag message, diag = {{0}};
    CHECK_OK(fa_failure_write(FA_ENOTFOUND, "nothing \"stored\"", &json, &diag), diag);
    CHECK_TEXT(json, "{\"error\":{\"code\":\"FA_ENOTFOUND\",\"message\":\"nothing \\\"stored\\\"\"}}");
    CHECK_OK(fa_failure_read(json, strlen(json), &code, &message, &diag), diag);
    CHECK_INT(code, FA_ENOTFOUND);
    CHECK_TEXT(message.text, "nothing \"stored\"");
    free(json);
    static const char odd[] = "{\"error\":{\"code\":\"FA_ENEW\",\"message\":\"m\"}}";
    CHECK_OK(fa_failure_read(odd, strlen(odd), &code, &message, &diag), diag);
    CHECK_INT(code, FA_EIO);
    CHECK_INT(fa_failure_read("{}", 2, &code, &message, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "\"error\" must be an object");
}

static void a_locale_with_a_decimal_comma_changes_nothing(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    fa_answer answer, back;
    char *json = NULL, *plain = NULL;
    fa_diag diag = {{0}};
    bool set = false;
    random_answer(&answer);
    answer.default_us = 1.5;
    CHECK_OK(fa_answer_write(&answer, &plain, &diag), diag);
    for (size_t i = 0; i < 3 && !set; i++)
        set = setlocale(LC_NUMERIC, names[i]) != NULL;
    int rc = set ? fa_answer_write(&answer, &json, &diag) : 0;
    int read = set && rc == 0 ? fa_answer_read(json, strlen(json), &back, &diag) : 0;
    setlocale(LC_NUMERIC, "C");
    if (set) {
        CHECK_OK(rc, diag);
        CHECK_OK(read, diag);
        CHECK_TEXT(json, plain);
        CHECK(same_answer(&answer, &back));
    }
    free(json);
    free(plain);
    if (!set)
        SKIP("no locale with a decimal comma is installed");
}

/* ---- asks by hand ---------------------------------------------------------------------------*/
static void an_ask_of_four_numbers_is_enough(void)
{
    static const char json[] =
        "{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8,\"seq_q\":512}}";
    fa_ask ask;
    fa_diag diag = {{0}};
    fa_problem expected = {.head_dim = 64, .batch = 4, .heads_q = 8, .heads_kv = 8, .seq_q = 512,
                           .seq_k = 512};
    CHECK_OK(fa_ask_read(json, strlen(json), &ask, &diag), diag);
    CHECK(fa_problem_equal(&ask.problem, &expected));
    CHECK_INT(ask.effort, FA_EFFORT_MEASURE);
    CHECK_INT(ask.size, sizeof ask);
}

static void an_ask_with_a_mistake_names_it(void)
{
    static const struct {
        const char *json, *sentence;
    } wrong[] = {
        {"", "not valid JSON"},
        {"[]", "must be a JSON object"},
        {"{}", "\"problem\" must be an object"},
        {"{\"problem\":{}}", "\"head_dim\" is missing"},
        {"{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8}}", "\"seq_q\" is missing"},
        {"{\"problem\":{\"head_dim\":60,\"batch\":4,\"heads_q\":8,\"seq_q\":1}}", "head_dim is 60"},
        {"{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":\"8\",\"seq_q\":1}}", "heads_q"},
        {"{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8,\"seq_q\":1e99}}", "seq_q"},
        {"{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8,\"seq_q\":1,\"seq\":1}}",
         "there is no key \"seq\""},
        {"{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8,\"seq_q\":1,\"seq_q\":1}}",
         "\"seq_q\" stands twice"},
        {"{\"problem\":{\"operation\":\"gemm\",\"head_dim\":64,\"batch\":4,\"heads_q\":8,"
         "\"seq_q\":1}}", "operation \"gemm\" is not known"},
        {"{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8,\"seq_q\":1},\"efort\":\"cached\"}",
         "there is no key \"efort\""},
        {"{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8,\"seq_q\":1},\"effort\":\"most\"}",
         "there is no effort \"most\""},
        {"{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8,\"seq_q\":1},\"gpu\":\"L\\u00074\"}",
         "control bytes"},
        {"{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8,\"seq_q\":1},\"gpu\":\"\xff\"}",
         "not UTF-8"},
        {"{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8,\"seq_q\":1},\"gpu\":\"\xc2\x9b\"}",
         "control bytes"},
        {"{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8,\"seq_q\":1},\"timeout_ms\":-1}",
         "timeout_ms"},
        {"{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8,\"seq_q\":1},\"ordinal\":1.5}",
         "ordinal"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fa_ask ask = {.ordinal = 77};
        fa_diag diag = {{0}};
        CHECK_INT(fa_ask_read(wrong[i].json, strlen(wrong[i].json), &ask, &diag), FA_EINVAL);
        CHECK_HAS(diag.text, wrong[i].sentence);
        CHECK_INT(ask.ordinal, 77);
    }
}

static void texts_beyond_the_limits_are_refused_before_they_are_parsed(void)
{
    char *huge = malloc(FA_SWEEP_ASK_TEXT_MAX + 2);
    fa_ask ask;
    fa_answer answer;
    fa_sweep_request request;
    fa_sweep_item *items;
    char plan[512];
    fa_diag diag = {{0}};
    CHECK(huge != NULL);
    memset(huge, '[', FA_SWEEP_ASK_TEXT_MAX + 2); /* would end a parser that recurses */
    CHECK_INT(fa_ask_read(huge, FA_ASK_TEXT_MAX, &ask, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "nested deeper");
    CHECK_INT(fa_ask_read(huge, FA_ASK_TEXT_MAX + 1, &ask, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "16384 is the most");
    CHECK_INT(fa_answer_read(huge, FA_ANSWER_TEXT_MAX + 1, &answer, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "is the most");
    CHECK_INT(fa_sweep_ask_read(huge, FA_SWEEP_ASK_TEXT_MAX + 1, &request, &items, plan, &diag),
              FA_EINVAL);
    CHECK_HAS(diag.text, "is the most");
    free(huge);
}

static void control_bytes_and_broken_utf8_in_sentences_are_replaced_when_written(void)
{
    fa_answer answer, back;
    char *json = NULL;
    fa_diag diag = {{0}};
    random_answer(&answer);
    strcpy(answer.why, "one\ntwo\x1b[31m \xff\xc3 \xc2\x85 \xed\xa0\x80 ok");
    CHECK_OK(fa_answer_write(&answer, &json, &diag), diag);
    CHECK_OK(fa_answer_read(json, strlen(json), &back, &diag), diag);
    CHECK_TEXT(back.why, "one two [31m ?? ?? ??? ok");
    free(json);
}

/* ---- hostile texts --------------------------------------------------------------------------*/
/* One reader with a text that it takes. */
struct reader {
    const char *name;
    char *json;
    int (*read)(const char *text, size_t size, fa_diag *diag);
    const char *const *optional; /* keys that may be absent or, derived from others, anything */
};

static int read_ask(const char *json, size_t size, fa_diag *diag)
{
    fa_ask ask;
    return fa_ask_read(json, size, &ask, diag);
}

static int read_answer(const char *json, size_t size, fa_diag *diag)
{
    fa_answer answer;
    return fa_answer_read(json, size, &answer, diag);
}

static int read_progress(const char *json, size_t size, fa_diag *diag)
{
    fa_progress progress;
    fa_trial trial, best;
    return fa_progress_read(json, size, &progress, &trial, &best, diag);
}

static int read_sweep(const char *json, size_t size, fa_diag *diag)
{
    fa_sweep sweep;
    return fa_sweep_read(json, size, &sweep, diag);
}

static int read_event(const char *json, size_t size, fa_diag *diag)
{
    static fa_sweep_parts parts;
    fa_sweep_progress progress;
    return fa_sweep_event_read(json, size, &progress, &parts, diag);
}

static int read_sweep_ask(const char *json, size_t size, fa_diag *diag)
{
    fa_sweep_request request;
    fa_sweep_item *items = NULL;
    char plan[512];
    int rc = fa_sweep_ask_read(json, size, &request, &items, plan, diag);
    free(items);
    return rc;
}

static int read_failure(const char *json, size_t size, fa_diag *diag)
{
    fa_diag message;
    int code;
    return fa_failure_read(json, size, &code, &message, diag);
}

enum { READERS = 7 };

static const char *const answer_optional[] = {"speedup_over_default", "tflops", NULL};
static const char *const ask_optional[] = {"operation", "gpu", "uuid", "ordinal", "effort", "again",
                                           "exact", "first_contact", "timeout_ms", "dtype", "causal",
                                           "layout", "heads_kv", "seq_k", "lse", "unaligned", "plan",
                                           "restart", "budget", "seconds", "trials", "cost",
                                           "price", NULL};
static const char *const sweep_optional[] = {"left", NULL};
static const char *const event_optional[] = {"operation", "speedup_over_default", "tflops", "left",
                                             "tune", "answer", "dtype", "causal", "layout",
                                             "heads_kv", "seq_k", "lse", "unaligned", NULL};
static const char *const none[] = {NULL};

/* Texts in which every field that may be null is not. */
static bool readers(struct reader ret[READERS])
{
    static fa_sweep_parts parts;
    fa_trial trial, best;
    fa_progress progress;
    do
        random_answer(&parts.answer);
    while (parts.answer.trial.median_us == 0 || parts.answer.trial.tolerance == 0 ||
           parts.answer.trial.threads == 0 || parts.answer.trial.registers == 0 ||
           parts.answer.promised_rank == 0 || parts.answer.default_us == 0 ||
           parts.answer.from_gpu[0] == 0 || parts.answer.trial.config.count == 0);
    do
        random_progress(&progress, &trial, &best);
    while (progress.trial == NULL || progress.best == NULL || progress.left_s < 0);
    parts.tune = progress;
    do
        random_sweep(&parts.sweep);
    while (parts.sweep.budget.seconds == 0 || parts.sweep.budget.trials == 0);
    parts.item = (fa_sweep_item){.problem = random_problem()};
    fa_sweep_progress event = {.sweep = &parts.sweep, .item = &parts.item, .tune = &parts.tune,
                               .answer = &parts.answer};
    fa_sweep_request request = {.size = sizeof request, .items = &parts.item, .count = 1,
                                .plan = "p", .budget = parts.sweep.budget};
    fa_ask ask = {.size = sizeof ask, .problem = random_problem()};
    struct reader all[READERS] = {{"ask", NULL, read_ask, ask_optional},
                                  {"answer", NULL, read_answer, answer_optional},
                                  {"progress", NULL, read_progress, none},
                                  {"sweep", NULL, read_sweep, sweep_optional},
                                  {"event", NULL, read_event, event_optional},
                                  {"sweep ask", NULL, read_sweep_ask, ask_optional},
                                  {"failure", NULL, read_failure, none}};
    bool good = fa_ask_write(&ask, &all[0].json, NULL) == 0 &&
                fa_answer_write(&parts.answer, &all[1].json, NULL) == 0 &&
                fa_progress_write(&progress, &all[2].json, NULL) == 0 &&
                fa_sweep_write(&parts.sweep, &all[3].json, NULL) == 0 &&
                fa_sweep_event_write(&event, &all[4].json, NULL) == 0 &&
                fa_sweep_ask_write(&request, &all[5].json, NULL) == 0 &&
                fa_failure_write(FA_EIO, "m", &all[6].json, NULL) == 0;
    memcpy(ret, all, sizeof all);
    return good;
}

static bool listed(const char *const *names, const char *name)
{
    for (; *names != NULL; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static int read_json(const struct reader *reader, const cJSON *json, fa_diag *diag)
{
    char *printed = cJSON_PrintUnformatted(json);
    char *copy = malloc(strlen(printed)); /* exactly as long: reading beyond it is seen */
    memcpy(copy, printed, strlen(printed));
    int rc = reader->read(copy, strlen(printed), diag);
    free(copy);
    cJSON_free(printed);
    return rc;
}

static void every_text_is_refused_when_it_is_cut_at_any_byte(void)
{
    struct reader reader[READERS];
    CHECK(readers(reader));
    for (int r = 0; r < READERS; r++) {
        size_t size = strlen(reader[r].json);
        fa_diag diag;
        CHECK_OK(reader[r].read(reader[r].json, size, &diag), diag);
        for (size_t cut = 0; cut < size; cut++) {
            char *copy = malloc(cut > 0 ? cut : 1);
            memcpy(copy, reader[r].json, cut);
            int rc = reader[r].read(copy, cut, &diag);
            free(copy);
            CHECK_INT(rc, FA_EINVAL);
        }
        free(reader[r].json);
    }
}

/* A value in a document, found by its number in the order of the text. */
struct place {
    int left;
    cJSON *parent, *item;
    bool optional; /* it, or what holds it, is listed */
    bool tunable;  /* a tunable's value or name, which are anybody's */
};

static void find_place(const struct reader *reader, cJSON *parent, bool optional, bool tunable,
                       struct place *place)
{
    for (cJSON *item = parent->child; item != NULL && place->item == NULL; item = item->next) {
        bool here = optional || (item->string != NULL && listed(reader->optional, item->string));
        if (place->left-- == 0) {
            place->parent = parent;
            place->item = item;
            place->optional = here;
            place->tunable = tunable;
            return;
        }
        find_place(reader, item, here,
                   item->string != NULL && strcmp(item->string, "tunables") == 0, place);
    }
}

static bool always(const cJSON *item)
{
    (void)item;
    return true;
}

static bool was_number(const cJSON *item)
{
    return cJSON_IsNumber(item) != 0;
}

static bool was_text(const cJSON *item)
{
    return cJSON_IsString(item) != 0;
}

static bool was_flag(const cJSON *item)
{
    return cJSON_IsBool(item) != 0;
}

/* With every value in turn replaced by `value` (NULL: left out), a reader refuses the text wherever
 * `must` says so, and reads on or refuses elsewhere. Returns how often it had to; < 0: it did not. */
static int replace_each(const struct reader *reader, const char *value,
                        bool (*must)(const cJSON *was), bool optional_too)
{
    int refused = 0;
    for (int n = 0;; n++) {
        fa_diag diag = {{0}};
        cJSON *root = cJSON_Parse(reader->json);
        struct place place = {.left = n};
        find_place(reader, root, false, false, &place);
        if (place.item == NULL) {
            cJSON_Delete(root);
            return refused;
        }
        char key[64];
        snprintf(key, sizeof key, "%s", place.item->string != NULL ? place.item->string : "[]");
        bool needed = must(place.item) && (optional_too || !place.optional) && !place.tunable;
        if (value == NULL)
            cJSON_Delete(cJSON_DetachItemViaPointer(place.parent, place.item));
        else if (place.item->string != NULL)
            cJSON_ReplaceItemInObjectCaseSensitive(place.parent, key, cJSON_CreateRaw(value));
        else
            cJSON_ReplaceItemViaPointer(place.parent, place.item, cJSON_CreateRaw(value));
        int rc = read_json(reader, root, &diag);
        cJSON_Delete(root);
        refused += needed;
        if ((rc != 0 && rc != FA_EINVAL) || (needed && rc == 0)) {
            printf("# %s: \"%s\" as %s gave %d\n", reader->name, key,
                   value != NULL ? value : "nothing", rc);
            return -1;
        }
        if (rc != 0 && diag.text[0] == 0)
            return -1;
    }
}

static void every_field_that_is_missing_or_of_a_wrong_type_is_told(void)
{
    struct reader reader[READERS];
    CHECK(readers(reader));
    for (int r = 0; r < READERS; r++) {
        bool ask = reader[r].optional == ask_optional; /* what is there must be right */
        CHECK(replace_each(&reader[r], NULL, always, false) > 0);
        CHECK(replace_each(&reader[r], "[]", always, ask) > 0);
        CHECK(replace_each(&reader[r], "[[[[[[[[\"x\"]]]]]]]]", always, ask) > 0);
        CHECK(replace_each(&reader[r], "\"x\"", was_number, ask) >= 0);
        CHECK(replace_each(&reader[r], "\"x\"", was_flag, ask) >= 0);
        CHECK(replace_each(&reader[r], "12", was_text, ask) > 0);
        CHECK(replace_each(&reader[r], "12", was_flag, ask) >= 0);
        CHECK(replace_each(&reader[r], "null", was_flag, ask) >= 0);
        free(reader[r].json);
    }
}

static void every_number_out_of_range_is_told(void)
{
    struct reader reader[READERS];
    CHECK(readers(reader));
    for (int r = 0; r < READERS; r++) {
        bool ask = reader[r].optional == ask_optional;
        static const char *const values[] = {"-2", "1e999", "-1e999", "NaN", "Infinity", "-Infinity",
                                             "0x10", "1e", "--1"};
        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
            CHECK(replace_each(&reader[r], values[i], was_number, ask) >= 0);
        free(reader[r].json);
    }
}

static void every_text_that_is_too_long_or_unclean_is_told(void)
{
    static char longer[2100];
    struct reader reader[READERS];
    memset(longer, 'a', sizeof longer - 1);
    longer[0] = longer[sizeof longer - 2] = '"';
    CHECK(readers(reader));
    for (int r = 0; r < READERS; r++) {
        if (strcmp(reader[r].name, "failure") != 0) /* its message is cut to the sentence's size */
            CHECK(replace_each(&reader[r], longer, was_text, true) > 0);
        CHECK(replace_each(&reader[r], "\"\\u0000\"", was_text, true) >= 0);
        CHECK(replace_each(&reader[r], "\"a\\u001bb\"", was_text, true) > 0);
        CHECK(replace_each(&reader[r], "\"\\ud800\"", was_text, true) > 0);
        CHECK(replace_each(&reader[r], "\"\xc0\xaf\"", was_text, true) > 0);
        CHECK(replace_each(&reader[r], "\"\xf4\x90\x80\x80\"", was_text, true) > 0);
        free(reader[r].json);
    }
}

static void texts_with_random_bytes_changed_are_read_or_refused(void)
{
    struct reader reader[READERS];
    int refused = 0;
    CHECK(readers(reader));
    for (int r = 0; r < READERS; r++) {
        size_t size = strlen(reader[r].json);
        for (int i = 0; i < 4 * ROUNDS; i++) {
            char *copy = malloc(size);
            fa_diag diag;
            memcpy(copy, reader[r].json, size);
            for (int k = 0; k <= i % 4; k++)
                copy[below((int32_t)size)] = (char)bits();
            int rc = reader[r].read(copy, size, &diag);
            free(copy);
            CHECK(rc == 0 || rc == FA_EINVAL);
            refused += rc != 0;
        }
        free(reader[r].json);
    }
    CHECK(refused > READERS * ROUNDS);
}

int main(void)
{
    TEST(asks_read_back_as_they_were);
    TEST(answers_read_back_as_they_were);
    TEST(progress_reads_back_as_it_was);
    TEST(sweeps_read_back_as_they_were);
    TEST(events_of_sweeps_read_back_as_they_were);
    TEST(the_largest_sweep_asked_for_reads_back_as_it_was);
    TEST(a_failure_keeps_its_code_and_sentence);
    TEST(a_locale_with_a_decimal_comma_changes_nothing);
    TEST(an_ask_of_four_numbers_is_enough);
    TEST(an_ask_with_a_mistake_names_it);
    TEST(texts_beyond_the_limits_are_refused_before_they_are_parsed);
    TEST(control_bytes_and_broken_utf8_in_sentences_are_replaced_when_written);
    TEST(every_text_is_refused_when_it_is_cut_at_any_byte);
    TEST(every_field_that_is_missing_or_of_a_wrong_type_is_told);
    TEST(every_number_out_of_range_is_told);
    TEST(every_text_that_is_too_long_or_unclean_is_told);
    TEST(texts_with_random_bytes_changed_are_read_or_refused);
    return check_done();
}
