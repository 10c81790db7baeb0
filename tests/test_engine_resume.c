/* SPDX-License-Identifier: Apache-2.0
 *
 * Tunes that go on from what earlier ones left in the store: whole, cut short, or damaged since.
 */
#include "engine_fixture.h"

static int tune_again(engine_fixture *f, fa_answer *answer, fa_diag *diag)
{
    fa_request request = small_request(NULL, FA_EFFORT_MEASURE);
    request.again = true;
    return fa_tune(f->tuner, &request, answer, diag);
}

/* Changes the store behind the library's back; %s in sql is a cubin's key. */
static bool damage(const engine_fixture *f, const char *sql, const char *key)
{
    char text[256];
    snprintf(text, sizeof text, sql, key);
    return fixture_sql(f, text);
}

struct ends {
    int measured, raced, load_failed, crashed, timed_out;
};

static struct ends count_ends(engine_fixture *f)
{
    struct ends ends = {0};
    fa_request request = small_request(NULL, FA_EFFORT_CACHED);
    int count;
    FA_ENDS(fa_free_at) fa_study_trial *row = fixture_explain(f->tuner, &request, &count);
    for (int i = 0; i < count; i++) {
        const fa_trial *trial = &row[i].trial;
        ends.measured += trial->status == FA_STATUS_MEASURED;
        ends.raced += trial->status == FA_STATUS_MEASURED && trial->raced;
        ends.load_failed += trial->status == FA_STATUS_LOAD_FAILED;
        ends.crashed += trial->status == FA_STATUS_CRASHED;
        ends.timed_out += trial->status == FA_STATUS_TIMEOUT;
    }
    ends.measured -= count < 0;
    return ends;
}

static const char *const damages[] = {
    "DELETE FROM cubin WHERE key = '%s'",
    "UPDATE cubin SET bytes = x'7f454c46' WHERE key = '%s'",
};

TEST(a_kernel_whose_cubin_is_gone_is_compiled_and_measured_again)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        engine_fixture f;
        const fa_kernel *kernel;
        fa_answer answer = {.size = sizeof answer};
        CHECK(fixture_open(&f, ""));
        CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag),
                 diag);
        answer = *fa_kernel_answer(kernel);
        fa_close(&f.tuner);
        CHECK(damage(&f, damages[i], answer.cubin_key));
        CHECK_OK(fixture_session(&f, &diag), diag);
        CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag),
                 diag);
        answer = *fa_kernel_answer(kernel);
        CHECK_INT(answer.origin, FA_ORIGIN_MEASURED);
        CHECK_INT(answer.measured + answer.failed, answer.in_budget);
        CHECK_INT(count_ends(&f).load_failed, 0);
        fixture_close(&f);
    }
}

TEST(a_predicted_winner_whose_cubin_is_gone_is_compiled_again)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        engine_fixture f;
        fa_answer answer = {.size = sizeof answer};
        void *cubin = NULL;
        size_t size = 0;
        fa_request request = small_request("L4", FA_EFFORT_MEASURE);
        CHECK(fixture_open(&f, NULL));
        CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
        fa_close(&f.tuner);
        CHECK(damage(&f, damages[i], answer.cubin_key));
        CHECK_OK(fixture_session(&f, &diag), diag);
        CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
        CHECK_INT(answer.origin, FA_ORIGIN_PREDICTED);
        CHECK_INT(answer.compiled, answer.in_budget);
        CHECK_OK(fa_answer_cubin(f.tuner, &answer, &cubin, &size, &diag), diag);
        CHECK(size > 1000);
        free(cubin);
        fixture_close(&f);
    }
}

static int cancel_after_three(void *context, const fa_progress *progress)
{
    (void)context;
    return progress->measured >= 3;
}

/* Effort predict finds them and tries a few more: still not the whole space. */
ENGINE_TEST(a_few_measured_configs_do_not_make_a_measured_winner)
{
    const fa_kernel *kernel;
    fa_answer answer = {.size = sizeof answer};
    CHECK(fixture_open(&f, ""));
    fa_request request = small_request(NULL, FA_EFFORT_MEASURE);
    request.progress = cancel_after_three;
    CHECK_INT(fa_tune(f.tuner, &request, &answer, &diag), FA_ECANCELED);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_PREDICTED);
    CHECK(fa_kernel_answer(kernel)->driver_version > 0);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    answer = *fa_kernel_answer(kernel);
    CHECK_INT(answer.origin, FA_ORIGIN_MEASURED);
    CHECK_INT(answer.measured + answer.failed, answer.in_budget);
}

ENGINE_TEST(what_an_old_driver_refused_is_tried_again_under_a_new_one)
{
    fa_answer answer = {.size = sizeof answer};
    CHECK(fixture_open(&f, "driver 12080\nfault BLOCK_M= load_failure"));
    CHECK_INT(tune_again(&f, &answer, &diag), FA_ENOKERNEL);
    CHECK(count_ends(&f).load_failed > 0);
    CHECK(fixture_restart(&f, "driver 13000"));
    CHECK_OK(tune_again(&f, &answer, &diag), diag);
    CHECK_INT(answer.measured, answer.in_budget);
}

/* The card was slower in that race than in the probes of what lost there: the race's best is raced
 * again all the same. */
ENGINE_TEST(what_an_earlier_race_timed_is_not_held_against_probes)
{
    fa_answer first = {.size = sizeof first}, second = {.size = sizeof second};
    CHECK(fixture_open(&f, "time * 115\ntime BLOCK_M=64; 100"));
    CHECK_OK(tune_again(&f, &first, &diag), diag);
    CHECK(first.trial.raced && first.trial.median_us < 110);
    CHECK(damage(&f,
                 "UPDATE trial SET median_us = median_us * 1.3, low_us = low_us * 1.3, "
                 "high_us = high_us * 1.3 WHERE raced = 1",
                 ""));
    CHECK_OK(tune_again(&f, &second, &diag), diag);
    CHECK(second.trial.raced && second.trial.median_us < 110);
    CHECK(second.from_store == false);
}

/* Finalists from an earlier run are loaded again for the race; one takes the worker down with those
 * that were loaded before it. */
ENGINE_TEST(a_finalist_that_crashes_does_not_cost_the_others_their_race)
{
    fa_answer first = {.size = sizeof first}, second = {.size = sizeof second};
    CHECK(fixture_open(&f, "time * 90\ntime BLOCK_M=64;BLOCK_N=32;STAGES=2 93"));
    CHECK_OK(tune_again(&f, &first, &diag), diag);
    CHECK_INT(first.failed, 0);
    CHECK(fixture_restart(&f, "time * 90\nfault BLOCK_M=64;BLOCK_N=32;STAGES=2 crash"));
    CHECK_OK(tune_again(&f, &second, &diag), diag);
    struct ends ends = count_ends(&f);
    printf("# %d measured, %d raced, %d crashed\n", ends.measured, ends.raced, ends.crashed);
    CHECK(ends.crashed >= 1);
    CHECK_INT(second.failed, ends.crashed);
    CHECK_INT(second.measured, ends.measured);
    CHECK_INT(second.measured + second.failed, second.in_budget);
    CHECK(second.trial.raced);
    CHECK(ends.raced >= 2);
}

/* By then the worker hangs in the first finalist that does. */
static int kill_in_final(void *context, const fa_progress *progress)
{
    int *ticks = context;
    if (progress->stage == FA_STAGE_FINAL && progress->kind == FA_EVENT_PROGRESS && ++*ticks == 15)
        kill_worker("measure");
    return 0;
}

ENGINE_TEST(a_kill_from_outside_costs_no_finalist)
{
    int ticks = 0;
    fa_answer answer = {.size = sizeof answer};
    fa_request request = {.size = sizeof request,
                          .problem = small_problem,
                          .effort = FA_EFFORT_MEASURE,
                          .again = true,
                          .progress = kill_in_final,
                          .context = &ticks};
    CHECK(fixture_open(&f, "time * 90"));
    CHECK_OK(tune_again(&f, &answer, &diag), diag);
    CHECK(fixture_restart(&f, "time * 90\nfault BLOCK_M=64;BLOCK_N=32;STAGES=2 hang"));
    CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
    CHECK(ticks >= 15);
    CHECK_INT(count_ends(&f).crashed, 0);
    CHECK_INT(answer.measured + answer.failed, answer.in_budget);
    CHECK(answer.trial.raced);
}

/* Tunes again in a session of its own with this limit; -1: it failed, else how many ran out of it. */
static int timeouts_with(engine_fixture *f, int32_t limit_ms)
{
    fa_answer answer = {.size = sizeof answer};
    fa_options options = fixture_options(f);
    fa_request request = small_request(NULL, FA_EFFORT_MEASURE);
    request.again = true;
    options.trial_timeout_ms = limit_ms;
    fa_close(&f->tuner);
    if (fa_open(&options, &f->tuner, NULL) != 0 || fa_tune(f->tuner, &request, &answer, NULL) != 0)
        return -1;
    return count_ends(f).timed_out;
}

/* A kernel that hangs, or a machine that was busy: nobody can tell. */
ENGINE_TEST(what_ran_out_of_time_is_tried_again)
{
    CHECK(fixture_open(&f, "fault BLOCK_M=64;BLOCK_N=32;STAGES=2 hang"));
    CHECK(timeouts_with(&f, 2500) > 0);
    CHECK(fixture_script(&f, "")); /* nothing hangs any more */
    CHECK_INT(timeouts_with(&f, 2500), 0);
}
