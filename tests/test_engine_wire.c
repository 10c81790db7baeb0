/* SPDX-License-Identifier: Apache-2.0
 *
 * The service's texts: what is written reads back as it was, and a mistake in an ask is named.
 */
#include "wire_fixture.h"

#include <locale.h>

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
        fa_answer answer = {.size = sizeof answer}, back = {.size = sizeof back};
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
    fa_answer answer = {.size = sizeof answer}, back = {.size = sizeof back};
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
    fa_answer answer = {.size = sizeof answer};
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
    fa_answer answer = {.size = sizeof answer}, back = {.size = sizeof back};
    char *json = NULL;
    fa_diag diag = {{0}};
    random_answer(&answer);
    strcpy(answer.why, "one\ntwo\x1b[31m \xff\xc3 \xc2\x85 \xed\xa0\x80 ok");
    CHECK_OK(fa_answer_write(&answer, &json, &diag), diag);
    CHECK_OK(fa_answer_read(json, strlen(json), &back, &diag), diag);
    CHECK_TEXT(back.why, "one two [31m ?? ?? ??? ok");
    free(json);
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
    return check_done();
}
