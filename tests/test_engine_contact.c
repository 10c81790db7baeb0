/* SPDX-License-Identifier: Apache-2.0
 *
 * First contact against the fake driver: proofs at once, races of what is ready, what the model's choice
 * turned out to be, drivers that change, and configs with the same code.
 */
#define CHECK_OWN_MAIN
#include "engine_fixture.h"

#include "buf.h"
#include "problem.h"
#include "session.h"
#include "store.h"

/* ---- first contact --------------------------------------------------------------------------*/
/* An L4 that was tuned for before it came. */
static const char arrived[] = "device name=NVIDIA_L4 sms=58";

/* The store has the L4's predicted winner and all its cubins; then the L4 is there. */
static bool open_first_contact(engine_fixture *f, fa_answer *predicted, const char *script)
{
    char text[1024];
    if (!fixture_open(f, NULL) ||
        tune_for(f, "L4", small_problem, FA_EFFORT_MEASURE, predicted, NULL) != 0)
        return false;
    fa_close(&f->tuner);
    snprintf(text, sizeof text, "log %s\n%s\n%s\n", f->log, arrived, script);
    return write_text(f->script, text) && fixture_device(f) && fixture_session(f, NULL) == 0;
}

ENGINE_TEST(first_contact_proves_at_once_or_races_the_ready_and_keeps_the_truth)
{
    const fa_kernel *kernel;
    fa_answer predicted = {.size = sizeof predicted}, answer = {.size = sizeof answer};
    CHECK(open_first_contact(&f, &predicted, "time * 77"));
    CHECK_INT(predicted.origin, FA_ORIGIN_PREDICTED);
    int64_t cubins =
        fixture_number(&f, "SELECT count(*) FROM cubin WHERE entry <> 'attn_ref_fp32'");
    CHECK_FAILS(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag),
                FA_ENOTFOUND, "predicted");
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_PREDICTED);
    CHECK_INT(fa_kernel_answer(kernel)->proved, 1);
    CHECK(fa_kernel_answer(kernel)->driver_version > 0);
    CHECK(fa_config_equal(&fa_kernel_answer(kernel)->trial.config, &predicted.trial.config));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    answer = *fa_kernel_answer(kernel);
    CHECK_INT(answer.origin, FA_ORIGIN_MEASURED);
    CHECK(answer.shortlist_only);
    CHECK(answer.measured >= 6 && answer.measured <= 8);
    CHECK_INT(fixture_number(&f, "SELECT count(*) FROM cubin WHERE entry <> 'attn_ref_fp32'"),
              cubins);
    /* A race of the few stands for effort measure, and not for the whole space. */
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK(fa_kernel_answer(kernel)->shortlist_only);
    CHECK_OK(tune_for(&f, NULL, small_problem, FA_EFFORT_MEASURE, &answer, &diag), diag);
    CHECK(!answer.shortlist_only && !answer.from_store);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PATIENT, &kernel, &diag), diag);
    CHECK(!fa_kernel_answer(kernel)->shortlist_only);
}

ENGINE_TEST(when_all_that_is_ready_is_wrong_the_whole_space_is_tuned)
{
    const fa_kernel *kernel;
    fa_answer predicted = {.size = sizeof predicted};
    CHECK(open_first_contact(&f, &predicted, ""));
    /* Ready is the winner alone, and it is wrong here. */
    char script[400], keep[200];
    snprintf(keep, sizeof keep,
             "DELETE FROM cubin WHERE entry <> 'attn_ref_fp32' AND key <> '%s'", predicted.cubin_key);
    CHECK(fixture_sql(&f, keep));
    const fa_tunable *t = predicted.trial.config.tunable;
    snprintf(script, sizeof script, "log %s\n%s\nfault BLOCK_M=%d;BLOCK_N=%d;STAGES=%d wrong\n", f.log,
             arrived, t[0].value, t[1].value, t[2].value);
    CHECK(write_text(f.script, script));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_MEASURED);
    CHECK(!fa_kernel_answer(kernel)->shortlist_only);
    CHECK(fa_kernel_answer(kernel)->failed >= 1);
}

/* ---- another driver -------------------------------------------------------------------------*/
ENGINE_TEST(a_winner_is_proved_again_under_another_driver_and_kept)
{
    const fa_kernel *kernel;
    fa_answer first = {.size = sizeof first};
    CHECK(fixture_open(&f, "driver 13000"));
    CHECK_OK(tune_for(&f, NULL, small_problem, FA_EFFORT_MEASURE, &first, &diag), diag);
    CHECK_INT(first.driver_version, 13000);
    int64_t trials = fixture_number(&f, "SELECT count(*) FROM trial");
    CHECK(fixture_restart(&f, "driver 13010"));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->driver_version, 13010);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_MEASURED);
    CHECK_TEXT(fa_kernel_answer(kernel)->cubin_key, first.cubin_key);
    CHECK(fa_kernel_answer(kernel)->trial.median_us == first.trial.median_us);
    CHECK_INT(fixture_number(&f, "SELECT driver_version FROM winner WHERE origin = 'measured'"),
              13010);
    CHECK_INT(fixture_number(&f, "SELECT count(*) FROM trial"), trials);
    /* The next process finds it proved: one that has no worker at all is enough. */
    fa_options options = fixture_options(&f);
    options.worker = "/nowhere/fa-tune-worker";
    fa_close(&f.tuner);
    CHECK_OK(fa_open(&options, &f.tuner, &diag), diag);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    /* Back under the old one it is proved once more, not thrown away. */
    CHECK(fixture_restart(&f, "driver 13000"));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->driver_version, 13000);
}

ENGINE_TEST(a_winner_that_fails_under_another_driver_is_dropped_for_the_next)
{
    const fa_kernel *kernel;
    fa_answer first = {.size = sizeof first};
    static const char faults[] = "driver 13010\nfault BLOCK_M=64;BLOCK_N=32;STAGES=2 wrong";
    CHECK(fixture_open(&f, "driver 13000\ntime * 90\ntime BLOCK_M=64;BLOCK_N=32;STAGES=2 30"));
    CHECK_OK(tune_for(&f, NULL, small_problem, FA_EFFORT_MEASURE, &first, &diag), diag);
    CHECK(fixture_restart(&f, faults));
    CHECK_INT(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag),
              FA_ENOTFOUND);
    CHECK_INT(fixture_number(&f, "SELECT count(*) FROM winner WHERE origin = 'measured'"), 0);
    CHECK_INT(fixture_number(&f, "SELECT passed FROM verification"), 0);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK(!fa_config_equal(&fa_kernel_answer(kernel)->trial.config, &first.trial.config));
    CHECK_INT(fa_kernel_answer(kernel)->driver_version, 13010);
}

/* What another driver measured is on record for the whole space, and is wrong under this one but for the
 * slowest: neither effort may serve it on that record. */
static void what_another_driver_measured_does_not_win_without_a_proof(fa_effort effort)
{
    const fa_kernel *kernel;
    fa_answer first = {.size = sizeof first};
    CHECK(fixture_open(&f, "driver 13000\ntime * 60\ntime BLOCK_M=64;BLOCK_N=32;STAGES=2 30\n"
                           "time BLOCK_M=128;BLOCK_N=64; 90"));
    CHECK_OK(tune_for(&f, NULL, small_problem, FA_EFFORT_MEASURE, &first, &diag), diag);
    CHECK(fixture_restart(&f, "driver 13010\nfault BLOCK_M=64; wrong\nfault BLOCK_N=32; wrong"));
    CHECK_INT(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag),
              FA_ENOTFOUND);
    int rc = fa_get_best_kernel(f.tuner, &small_problem, effort, &kernel, &diag);
    if (rc == 0) {
        char text[FA_CONFIG_TEXT_MAX];
        fa_config_text(&fa_kernel_answer(kernel)->trial.config, text);
        CHECK_HAS(text, "\"BLOCK_M\":128,\"BLOCK_N\":64");
    } else {
        CHECK_INT(rc, FA_ENOKERNEL); /* the model's first few are all wrong */
    }
}

ENGINE_TEST(a_proof_alone_is_made_under_this_driver)
{
    what_another_driver_measured_does_not_win_without_a_proof(FA_EFFORT_PREDICT);
}

ENGINE_TEST(a_tune_proves_under_this_driver_whatever_it_may_serve)
{
    what_another_driver_measured_does_not_win_without_a_proof(FA_EFFORT_MEASURE);
}

/* As if the measured winner had been chosen from templates of which one file is another. */
static bool age_templates(const engine_fixture *f)
{
    char sql[300], key[FA_HASH_HEX];
    fa_scope scope = {.templates = ""};
    fa_winner_record *row = NULL;
    size_t count = 0;
    if (fa_store_winners(f->tuner->store, NULL, &row, &count, NULL, NULL) != 0)
        return false;
    for (size_t i = 0; i < count; i++)
        if (row[i].origin == FA_ORIGIN_MEASURED)
            scope = row[i].scope;
    free(row);
    memset(scope.templates, 'c', FA_HASH_HEX - 1);
    fa_scope_key(&scope, key);
    snprintf(sql, sizeof sql,
             "UPDATE scope SET key = '%s', templates = '%s' "
             "WHERE id = (SELECT scope_id FROM winner WHERE origin = 'measured')",
             key, scope.templates);
    return fixture_sql(f, sql);
}

/* A file of the closure may say what a field means (a window, from which key it counts): what was chosen under
 * other words answers nothing, and stays. */
ENGINE_TEST(a_winner_of_other_templates_is_not_found_and_stays)
{
    const fa_kernel *kernel;
    fa_answer answer = {.size = sizeof answer};
    CHECK(fixture_open(&f, "driver 13000"));
    CHECK_OK(tune_for(&f, NULL, small_problem, FA_EFFORT_MEASURE, &answer, &diag), diag);
    CHECK(age_templates(&f));
    CHECK(fixture_restart(&f, "driver 13000"));
    CHECK_INT(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag),
              FA_ENOTFOUND);
    CHECK_INT(fixture_number(&f, "SELECT count(*) FROM winner WHERE origin = 'measured'"), 1);
    CHECK_OK(tune_for(&f, NULL, small_problem, FA_EFFORT_MEASURE, &answer, &diag), diag);
    CHECK_INT(fixture_number(&f, "SELECT count(*) FROM winner WHERE origin = 'measured'"), 2);
}

/* ---- the same code twice --------------------------------------------------------------------*/
static void hint_at_three_blocks(cJSON *manifest)
{
    cJSON *tunables = cJSON_GetObjectItem(manifest, "tune");
    cJSON_AddItemToArray(cJSON_GetObjectItem(tunables, "MIN_BLOCKS"), cJSON_CreateNumber(3));
    cJSON_DeleteItemFromArray(cJSON_GetObjectItem(tunables, "Q_IN_REGS"), 2);
}

/* Under a hint of 2 or 3 resident blocks ptxas makes the same of some configs. */
ENGINE_TEST(a_config_with_another_ones_code_is_not_tried_twice)
{
    fa_answer answer = {.size = sizeof answer};
    CHECK(fixture_open(&f, "time * 90"));
    CHECK(fixture_change_manifest(&f, f.templates, hint_at_three_blocks));
    CHECK(fixture_restart(&f, "time * 90"));
    CHECK_OK(tune_for(&f, NULL, small_problem, FA_EFFORT_MEASURE, &answer, &diag), diag);
#define MEASURED "SELECT count(DISTINCT config_key) FROM trial WHERE status = 'measured'"
    const int64_t measured = fixture_number(&f, MEASURED);
    const int64_t equal = fixture_number(&f, MEASURED " AND reason LIKE 'the same code as %'");
    CHECK_INT(answer.failed, 0); /* a hint of 3 makes one spill, which is pruned */
    CHECK_INT(measured, answer.clean);
    CHECK(equal >= 1 && equal < measured / 2);
    CHECK(strstr(answer.trial.reason, "the same code") == NULL);
    CHECK_INT(answer.measured, answer.clean);
    CHECK_INT(answer.compiled, answer.in_budget);
}

/* ---- killed outright ------------------------------------------------------------------------*/
ENGINE_TEST(killed_at_first_contact_nothing_is_lost_and_the_next_finishes)
{
    const fa_kernel *kernel;
    fa_answer predicted = {.size = sizeof predicted};
    CHECK(open_first_contact(&f, &predicted, ""));
    for (int i = 0; i < 6; i++) {
        CHECK(fixture_kill_asking(&f, 15000 + 25000 * (useconds_t)i));
        CHECK_INT(fixture_number(&f, "SELECT count(*) FROM winner"), 1);
    }
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_MEASURED);
}

ENGINE_TEST(killed_while_it_proves_again_the_winner_is_as_before_or_proved)
{
    const fa_kernel *kernel;
    fa_answer first = {.size = sizeof first};
    CHECK(fixture_open(&f, "driver 13000"));
    CHECK_OK(tune_for(&f, NULL, small_problem, FA_EFFORT_MEASURE, &first, &diag), diag);
    CHECK(fixture_restart(&f, "driver 13010"));
    for (int i = 0; i < 5; i++) {
        CHECK(fixture_kill_asking(&f, 10000 + 20000 * (useconds_t)i));
        int64_t driver =
            fixture_number(&f, "SELECT driver_version FROM winner WHERE origin = 'measured'");
        CHECK_INT(driver,
                  fixture_number(&f, "SELECT count(*) FROM verification") > 0 ? 13010 : 13000);
    }
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->driver_version, 13010);
    CHECK_TEXT(fa_kernel_answer(kernel)->cubin_key, first.cubin_key);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "child") == 0)
        return fixture_child(argv[2], argv[3]);
    check_all();
    return check_done();
}
