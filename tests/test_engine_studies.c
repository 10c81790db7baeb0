/* SPDX-License-Identifier: Apache-2.0
 *
 * Studies: what the store holds about a problem comes back whole, in the order of fa_explain(),
 * with and without the GPU and the templates that it was made with.
 */
#include "engine_fixture.h"

#include "session.h"

static engine_fixture fixture;

enum { TRIALS_MAX = 4096 };

struct seen {
    int studies;
    fa_study study;
    int trials, tried, ranked, defaults, samples, wrong;
    char config[TRIALS_MAX][FA_CONFIG_TEXT_MAX + FA_NAME_MAX];
};
static struct seen seen, explained;

static void keep_config(struct seen *into, const fa_trial *trial)
{
    char text[FA_CONFIG_TEXT_MAX];
    fa_config_text(&trial->config, text);
    if (into->trials < TRIALS_MAX)
        snprintf(into->config[into->trials], sizeof into->config[0], "%s %s", trial->config.family,
                 text);
    into->trials++;
}

/* Of the studies but the fixture's own, of an L4, the last, and its configs. */
static int look(fa_tuner *tuner)
{
    fa_study *study = NULL;
    FA_ENDS(fa_free_at) fa_study_trial *trial = NULL;
    size_t studies = 0, trials = 0;
    memset(&seen, 0, sizeof seen);
    int rc = fa_list_studies(tuner, &study, &studies, &diag);
    for (size_t i = 0; i < studies; i++)
        if (strstr(study[i].silicon, " x56 ") != NULL) {
            seen.studies++;
            seen.study = study[i];
        }
    free(study);
    if (rc == 0 && seen.studies > 0)
        rc = fa_list_study_trials(tuner, &seen.study, &trial, &trials, &diag);
    for (size_t i = 0; i < trials; i++) {
        keep_config(&seen, &trial[i].trial);
        seen.tried += trial[i].tried;
        seen.ranked += trial[i].rank > 0;
        seen.defaults += trial[i].is_default;
        seen.samples += trial[i].sample_count;
        seen.wrong +=
            (trial[i].rank != 0 && trial[i].rank != seen.ranked) ||
            (trial[i].sample_count > 0 && !(trial[i].samples_us[trial[i].sample_count - 1] > 0)) ||
            (trial[i].tried && strstr(trial[i].environment, "nvrtc") == NULL);
    }
    return rc;
}

TEST(silicon_that_nothing_was_tried_on_has_no_study)
{
    CHECK(fixture_open(&fixture, "time * 90\ntime BLOCK_M=64;BLOCK_N=32;STAGES=2 30"));
    CHECK_OK(look(fixture.tuner), diag);
    CHECK_INT(seen.studies, 0);
}

TEST(a_tuned_problem_comes_back_whole_in_the_order_of_explain)
{
    fa_request request = small_request(NULL, FA_EFFORT_MEASURE);
    fa_answer answer = {.size = sizeof answer};
    CHECK_OK(fa_tune(fixture.tuner, &request, &answer, &diag), diag);
    CHECK_OK(look(fixture.tuner), diag);
    CHECK_INT(seen.studies, 1);
    CHECK_INT(seen.study.size, sizeof(fa_study));
    CHECK(seen.study.current && seen.study.has_winner);
    CHECK(fa_problem_equal(&seen.study.problem, &small_problem));
    CHECK_TEXT(seen.study.winner.cubin_key, answer.cubin_key);
    CHECK(seen.study.winner.tune_s > 0);
    CHECK(seen.study.gpu.tensor_tflops > 0);
    CHECK_INT(seen.trials, answer.space);
    CHECK_INT(seen.tried, answer.in_budget);
    CHECK_INT(seen.study.trials, seen.tried);
    CHECK_INT(seen.ranked, answer.measured);
    CHECK_INT(seen.defaults, 1);
    CHECK_INT(seen.wrong, 0);
    CHECK(seen.samples >= seen.ranked);
    memset(&explained, 0, sizeof explained);
    int count;
    FA_ENDS(fa_free_at) fa_study_trial *row = fixture_explain(fixture.tuner, &request, &count);
    for (int i = 0; i < count; i++)
        keep_config(&explained, &row[i].trial);
    CHECK_INT(explained.trials, seen.trials);
    for (int i = 0; i < seen.trials && i < TRIALS_MAX; i++)
        CHECK_TEXT(seen.config[i], explained.config[i]);
}

TEST(without_the_gpu_it_is_the_same)
{
    int trials = seen.trials, tried = seen.tried;
    CHECK(fixture_restart(&fixture, NULL));
    CHECK_OK(look(fixture.tuner), diag);
    CHECK_INT(seen.studies, 1);
    CHECK(seen.study.current && seen.study.has_winner);
    CHECK_INT(seen.trials, trials);
    CHECK_INT(seen.tried, tried);
}

TEST(with_other_templates_what_was_tried_comes_back)
{
    int tried = seen.tried;
    fa_options options = {.size = sizeof options, .store = fixture.store};
    fa_tuner *other = NULL;
    CHECK_OK(fa_open(&options, &other, &diag), diag); /* the built-in ones */
    int rc = look(other);
    fa_close(&other);
    CHECK_OK(rc, diag);
    CHECK(!seen.study.current && seen.study.has_winner);
    CHECK_INT(seen.trials, tried);
    CHECK_INT(seen.tried, tried);
    CHECK_INT(seen.defaults, 0);
}

/* Nothing is forgotten where nothing was named, nor what has changed since it was listed. */
TEST(forgetting_takes_what_was_listed_and_nothing_else)
{
    fa_request request = small_request(NULL, FA_EFFORT_MEASURE);
    fa_answer answer = {.size = sizeof answer};
    fa_forgotten did;
    CHECK(fixture_restart(&fixture, ""));
    CHECK_OK(fa_tune(fixture.tuner, &request, &answer, &diag), diag);
    CHECK_OK(look(fixture.tuner), diag);
    CHECK_INT(seen.studies, 1);
    for (int i = 0; i < 3; i++) {
        fa_study study = seen.study;
        size_t count = i > 0;
        study.trials -= i == 1;
        study.unix_time -= i == 2;
        CHECK_OK(fa_forget(fixture.tuner, i > 0 ? &study : NULL, &count, false, &did, &diag), diag);
        CHECK(count == 0 && did.winners == 0 && did.trials == 0 && did.cubins == 0);
    }
    CHECK_OK(look(fixture.tuner), diag);
    CHECK_INT(seen.studies, 1);
    CHECK_OK(fa_forget(fixture.tuner, NULL, NULL, false, &did, &diag), diag);
    CHECK(did.winners >= 1);
    CHECK_OK(look(fixture.tuner), diag);
    CHECK_INT(seen.studies, 0);
}

TEST(what_is_no_study_is_refused)
{
    fa_study none = {0};
    fa_study *study;
    fa_study_trial *trial;
    size_t count = 1;
    CHECK_INT(fa_list_studies(fixture.tuner, NULL, NULL, &diag), FA_EINVAL);
    CHECK_INT(fa_list_studies(NULL, &study, &count, &diag), FA_EINVAL);
    CHECK_INT(fa_forget(fixture.tuner, NULL, &count, true, NULL, &diag), FA_EINVAL);
    CHECK_FAILS(fa_list_study_trials(fixture.tuner, &none, &trial, &count, &diag), FA_EINVAL,
                "fa_list_studies");
    fa_report_options report = {.size = sizeof report, .format = (fa_report_format)1};
    char *text = NULL;
    CHECK_INT(fa_write_report(fixture.tuner, &report, &text, &count, &diag), FA_EINVAL);
    report = (fa_report_options){.size = 8};
    CHECK_INT(fa_write_report(fixture.tuner, &report, &text, &count, &diag), FA_EINVAL);
    CHECK_INT(fa_write_report(NULL, &report, &text, &count, &diag), FA_EINVAL);
}

TEST(what_is_no_sweep_is_refused)
{
    fa_sweep_item item = {.problem = small_problem};
    const fa_sweep_request good = {
        .size = sizeof good,
        .items = &item,
        .count = 1,
        .each = {.size = sizeof good.each, .effort = FA_EFFORT_MEASURE}};
    fa_sweep_request bad[] = {good, good, good, good, good, good, good, good};
    bad[0].size = 3;
    bad[1].items = NULL;
    bad[2].count = 0;
    bad[3].count = FA_SWEEP_ITEMS_MAX + 1;
    bad[4].each.effort = FA_EFFORT_CACHED;
    bad[7].each.size = 0;
    bad[5].budget.seconds = NAN;
    bad[6].budget.trials = -1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        diag.text[0] = 0;
        CHECK_INT(fa_run_sweep(fixture.tuner, &bad[i], NULL, &diag), FA_EINVAL);
        CHECK(diag.text[0] != 0);
    }
    CHECK_INT(fa_run_sweep(NULL, &good, NULL, &diag), FA_EINVAL);
    CHECK_INT(fa_list_sweeps(fixture.tuner, NULL, NULL, &diag), FA_EINVAL);
    CHECK_INT(fa_list_sweep_items(fixture.tuner, NULL, NULL, NULL, &diag), FA_EINVAL);
    fixture_close(&fixture);
}
