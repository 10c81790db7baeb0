/* SPDX-License-Identifier: Apache-2.0
 *
 * Records: from a store to lines of text, from those to a bundle, and what becomes of them when
 * templates move on. The first two tests are about the records that this tree ships.
 */
#include "engine_fixture.h"

#include "session.h"

#include "records.h"

static char records[400], bundle[400];
static fa_diag diag;

static void shipped_records(char ret_path[4096])
{
    snprintf(ret_path, 4096, "%s/system/records.jsonl", getenv("FA_TEST_SOURCE"));
}

static void the_shipped_records_can_be_read_and_are_all_there(void)
{
    char path[4096];
    fa_records shipped;
    shipped_records(path);
    CHECK_OK(fa_records_read(path, &shipped, &diag), diag);
    CHECK(shipped.count >= 35 * 48);
    fa_records_free(&shipped);
}

/* Records are made anew before a release and not with each edit of a template: until then this is
 * told, and everything else about them holds. */
static void the_shipped_records_are_written_as_they_were_read(void)
{
    char path[4096], copy[600];
    fa_buf before;
    fa_records read = {0};
    shipped_records(path);
    CHECK_INT(fa_buf_read_file(&before, path, 64 << 20), 0);
    CHECK_OK(fa_records_read(path, &read, &diag), diag);
    snprintf(copy, sizeof copy, "/tmp/fa-tune-records-%d.jsonl", (int)getpid());
    CHECK_OK(fa_records_write(&read, copy, &diag), diag);
    fa_buf after;
    CHECK_INT(fa_buf_read_file(&after, copy, 64 << 20), 0);
    unlink(copy);
    CHECK(after.size == before.size && memcmp(after.data, before.data, after.size) == 0);
    fa_buf_free(&before);
    fa_buf_free(&after);
    fa_records_free(&read);
}

/* Not attention: fields of its own, one of them optional. */
static void records_of_another_operation_come_back(void)
{
    static const char table[] =
        "{\"name\": \"records_op\", \"title\": \"an operation of a test\", \"fields\": ["
        "{\"name\": \"rows\", \"kind\": \"integer\", \"min\": 1, \"length\": true, \"key\": \"r\"},"
        "{\"name\": \"columns\", \"kind\": \"integer\", \"min\": 1, \"default\": 7, \"key\": \"c\"},"
        "{\"name\": \"fast\", \"kind\": \"boolean\"}]}";
    char path[600];
    fa_records made = {0}, read = {0};
    const fa_operation *op = NULL;
    fa_winner_record record = {
        .origin = FA_ORIGIN_PREDICTED, .gpu_name = "L4", .trial = {.predicted_us = 1.5}};
    fa_problem *problem = &record.scope.problem;
    CHECK_OK(fa_operation_register(table, sizeof table - 1, "test", &op, &diag), diag);
    strcpy(record.trial.config.family, "records_sm80");
    problem->operation = op;
    problem->value[0] = 640;
    problem->value[1] = 3;
    problem->value[2] = 1;
    CHECK_OK(fa_records_append(&made, &record, &diag), diag);
    problem->value[2] = 0;
    CHECK_OK(fa_records_append(&made, &record, &diag), diag);
    snprintf(path, sizeof path, "/tmp/fa-tune-records-%d.jsonl", (int)getpid());
    CHECK_OK(fa_records_write(&made, path, &diag), diag);
    CHECK_OK(fa_records_read(path, &read, &diag), diag);
    unlink(path);
    CHECK_INT(read.count, 2);
    CHECK(fa_problem_equal(&read.record[0].scope.problem, problem)); /* flags come last */
    CHECK(read.record[1].scope.problem.operation == op &&
          read.record[1].scope.problem.value[2] == 1);
    fa_records_free(&made);
    fa_records_free(&read);
}

/* Numbers that no 15 digits tell: in the winner itself and in its evidence. */
static void records_that_are_read_and_written_again_are_the_same_bytes(void)
{
    char path[600];
    fa_winner_record record = {.origin = FA_ORIGIN_MEASURED, .gpu_name = "L4"};
    fa_records made = {0}, read = {0};
    fa_buf first, second;
    record.scope.problem = small_problem;
    record.trial = (fa_trial){
        .median_us = 40, .low_us = 40, .high_us = 41, .max_error = 1.0 / 3, .tolerance = 2.0 / 3};
    strcpy(record.trial.config.family, "attn_fwd_sm80");
    record.evidence = strdup("{\"default_us\":0.3333333333333333,\"share\":0.30000000000000004}");
    CHECK_OK(fa_records_append(&made, &record, &diag), diag);
    snprintf(path, sizeof path, "/tmp/fa-tune-records-%d.jsonl", (int)getpid());
    CHECK_OK(fa_records_write(&made, path, &diag), diag);
    CHECK_INT(fa_buf_read_file(&first, path, 1 << 20), 0);
    CHECK_OK(fa_records_read(path, &read, &diag), diag);
    CHECK(read.count == 1 && read.record[0].trial.max_error == 1.0 / 3);
    CHECK_OK(fa_records_write(&read, path, &diag), diag);
    CHECK_INT(fa_buf_read_file(&second, path, 1 << 20), 0);
    unlink(path);
    CHECK_HAS(first.data, "\"max_error\":0.3333333333333333,\"tolerance\":0.6666666666666666");
    CHECK_TEXT(second.data, first.data);
    fa_buf_free(&first);
    fa_buf_free(&second);
    fa_records_free(&made);
    fa_records_free(&read);
}

static void the_shipped_records_are_of_these_templates(void)
{
    char path[4096];
    shipped_records(path);
    int rc = fa_records_check(path, NULL, &diag);
    if (rc == FA_EVERSION)
        SKIP(diag.text);
    CHECK_OK(rc, diag);
}

static bool open_place(engine_fixture *f)
{
    if (!fixture_open(f, NULL))
        return false;
    snprintf(records, sizeof records, "%s/records.jsonl", f->directory);
    snprintf(bundle, sizeof bundle, "%s/all.fab", f->directory);
    setenv("FA_TUNE_SYSTEM", "", 1);
    return true;
}

static int write_records(engine_fixture *f, fa_records_info *info)
{
    fa_records_options options = {.size = sizeof options, .records = records};
    return fa_export_records(f->tuner, &options, info, &diag);
}

static int compile_records(engine_fixture *f, fa_records_info *info, fa_bundle_info *made)
{
    fa_export_options output = {.size = sizeof output, .file = bundle, .no_signature = true};
    fa_records_options options = {.size = sizeof options, .records = records, .output = &output};
    return fa_export_from_records(f->tuner, &options, info, made, &diag);
}

static int take_answer(void *context, const fa_bundle_item *item)
{
    *(fa_answer *)context = *item->answer;
    return 0;
}

/* Makes the stored prediction for an L4 one that was measured. */
static int measure(void *context, const fa_winner_record *winner)
{
    fa_winner_record measured = *winner;
    measured.origin = FA_ORIGIN_MEASURED;
    measured.driver_version = 13000;
    measured.trial.status = FA_STATUS_MEASURED;
    measured.trial.median_us = 40;
    measured.trial.low_us = 39.5;
    measured.trial.high_us = 40.5;
    measured.trial.max_error = 0.001;
    measured.trial.tolerance = 0.002;
    return fa_store_winner_replace(context, &measured, NULL, &diag);
}

/* Puts `text` for the first `what` of the records file. */
static bool edit(const char *what, const char *text)
{
    fa_buf file, out = {0};
    if (fa_buf_read_file(&file, records, 1 << 20) != 0)
        return false;
    const char *at = strstr(file.data, what);
    if (at != NULL) {
        fa_buf_append(&out, file.data, (size_t)(at - file.data));
        fa_buf_text(&out, text);
        fa_buf_text(&out, at + strlen(what));
    }
    bool good = at != NULL && write_text(records, out.data);
    fa_buf_free(&file);
    fa_buf_free(&out);
    return good;
}

static void a_prediction_goes_to_a_line_and_comes_back_in_a_bundle(void)
{
    fa_records_info info;
    fa_bundle_info made;
    fa_answer answer = {.size = sizeof answer};
    fa_buf first, second;
    char first_store[sizeof f.store];
    CHECK(open_place(&f));
    memcpy(first_store, f.store, sizeof first_store);
    CHECK_OK(write_records(&f, &info), diag);
    CHECK_INT(info.winners, 1);
    CHECK_INT(info.predicted, 1);
    /* In a store of its own, so that the cubin is compiled and not found. */
    snprintf(f.store, sizeof f.store, "%s/other.db", f.directory);
    CHECK(fixture_restart(&f, NULL));
    CHECK_OK(compile_records(&f, &info, &made), diag);
    CHECK_INT(made.winners, 1);
    CHECK_INT(info.failed, 0);
    CHECK_INT(fa_buf_read_file(&first, bundle, 1 << 26), 0);
    memcpy(f.store, first_store, sizeof f.store); /* where the cubin is found, and not compiled */
    CHECK(fixture_restart(&f, NULL));
    CHECK_OK(compile_records(&f, &info, &made), diag);
    CHECK_INT(fa_buf_read_file(&second, bundle, 1 << 26), 0);
    CHECK(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    CHECK_OK(fa_bundle_inspect(bundle, take_answer, &answer, &made, &diag), diag);
    CHECK_INT(answer.origin, FA_ORIGIN_PREDICTED);
    CHECK_INT(answer.driver_version, 0);
    CHECK_TEXT(answer.gpu.name, "L4");
    CHECK(answer.trial.registers > 0 && answer.trial.predicted_us > 0);
    CHECK_INT(answer.in_budget > 0 && answer.compiled == answer.in_budget, 1);
    fa_buf_free(&first);
    fa_buf_free(&second);
}

static void a_measured_line_keeps_its_time_while_its_kernel_is_the_same(void)
{
    fa_records_info info;
    fa_bundle_info made;
    fa_answer answer = {.size = sizeof answer};
    CHECK(open_place(&f));
    CHECK_OK(write_records(&f, &info), diag);
    CHECK_OK(fa_store_winners_each(f.tuner->store, measure, f.tuner->store, &diag), diag);
    CHECK_OK(write_records(&f, &info), diag);
    CHECK_INT(info.winners, 1);
    CHECK_INT(info.measured, 1);
    CHECK_OK(compile_records(&f, &info, &made), diag);
    CHECK_OK(fa_bundle_inspect(bundle, take_answer, &answer, &made, &diag), diag);
    CHECK_INT(answer.origin, FA_ORIGIN_MEASURED);
    CHECK_INT(answer.driver_version, 13000);
    CHECK(answer.trial.median_us == 40 && answer.trial.high_us == 40.5);
    /* A line whose kernel is another today: compiled, and no more than predicted. */
    char old[32], new[32];
    snprintf(old, sizeof old, "\"cubin_key\":\"%.8s", answer.cubin_key);
    snprintf(new, sizeof new, "\"cubin_key\":\"%.8s", "00000000");
    CHECK(edit(old, new));
    CHECK_OK(compile_records(&f, &info, &made), diag);
    CHECK_INT(info.predicted, 1);
    CHECK_OK(fa_bundle_inspect(bundle, take_answer, &answer, &made, &diag), diag);
    CHECK_INT(answer.origin, FA_ORIGIN_PREDICTED);
    CHECK_INT(answer.driver_version, 0);
    CHECK(answer.trial.median_us <= 0);
}

/* The day of measuring goes from store to line to bundle. A line without it, as older files have, is dated by its file,
 * and says so; what is exported of that has no day either. */
static void a_measured_line_has_its_day_and_one_without_gets_none(void)
{
    fa_records_info info;
    fa_bundle_info made;
    fa_answer answer = {.size = sizeof answer};
    fa_import_options options = {.size = sizeof options, .file = bundle, .allow_unsigned = true};
    fa_buf dated, first, second;
    char line[64];
    CHECK(open_place(&f));
    CHECK_OK(write_records(&f, &info), diag);
    CHECK_INT(fa_buf_read_file(&dated, records, 1 << 20), 0);
    CHECK(strstr(dated.data, "unix_time") == NULL); /* a prediction's is nothing to keep */
    fa_buf_free(&dated);
    CHECK_OK(fa_store_winners_each(f.tuner->store, measure, f.tuner->store, &diag), diag);
    CHECK_OK(write_records(&f, &info), diag);
    CHECK_OK(compile_records(&f, &info, &made), diag);
    CHECK_OK(fa_bundle_inspect(bundle, take_answer, &answer, &made, &diag), diag);
    CHECK(answer.unix_time > 1764000000 && !answer.undated);
    snprintf(line, sizeof line, "\"unix_time\":%lld,", (long long)answer.unix_time);
    CHECK(edit(line, "") && edit(",\"driver_version\":13000", ""));
    CHECK_INT(fa_buf_read_file(&first, records, 1 << 20), 0);
    CHECK_OK(compile_records(&f, &info, &made), diag);
    CHECK_OK(fa_bundle_inspect(bundle, take_answer, &answer, &made, &diag), diag);
    CHECK(answer.undated && answer.unix_time % 86400 == 0);
    snprintf(f.store, sizeof f.store, "%s/other.db", f.directory);
    CHECK(fixture_restart(&f, NULL));
    CHECK_OK(fa_import(f.tuner, &options, NULL, &diag), diag);
    unlink(records);
    CHECK_OK(write_records(&f, &info), diag);
    CHECK_INT(fa_buf_read_file(&second, records, 1 << 20), 0);
    CHECK_TEXT(second.data, first.data);
    fa_buf_free(&first);
    fa_buf_free(&second);
}

static void a_prediction_does_not_take_the_place_of_a_measured_line(void)
{
    fa_records_info info;
    CHECK(open_place(&f));
    fa_store *store = f.tuner->store;
    fa_winner_record predicted = {0};
    fa_gpu gpu;
    CHECK_OK(fa_gpu_find("L4", &gpu, &diag), diag);
    fa_scope scope = {.problem = small_problem, .policy = FA_MEASURE_POLICY};
    fa_gpu_silicon(&gpu, scope.silicon);
    snprintf(scope.templates, sizeof scope.templates, "%s",
             fa_templates_hash(f.tuner->templates, fa_operation_of(&small_problem)));
    CHECK_OK(fa_store_winner_get(store, &scope, &predicted, NULL, &diag), diag);
    CHECK_OK(fa_store_winners_each(store, measure, store, &diag), diag);
    CHECK_OK(write_records(&f, &info), diag);
    CHECK_OK(fa_store_winner_replace(store, &predicted, NULL, &diag), diag);
    CHECK_OK(write_records(&f, &info), diag);
    CHECK_INT(info.measured, 1);
    CHECK_INT(info.taken, 0);
    fa_winner_record_free(&predicted);
}

static void a_family_that_changes_is_told_and_its_predictions_are_dropped(void)
{
    fa_records_info info;
    char path[600];
    fa_buf text;
    CHECK(open_place(&f));
    CHECK_OK(write_records(&f, &info), diag);
    CHECK_OK(fa_records_check(records, f.templates, &diag), diag);
    snprintf(path, sizeof path, "%s/attn_fwd_sm80.json", f.templates);
    CHECK_INT(fa_buf_read_file(&text, path, 1 << 20), 0);
    fa_buf_text(&text, "\n");
    CHECK(write_text(path, text.data));
    fa_buf_free(&text);
    CHECK_INT(fa_records_check(records, f.templates, &diag), FA_EVERSION);
    CHECK_HAS(diag.text, "attn_fwd_sm80");
    CHECK_HAS(diag.text, "--predict");
    CHECK(fixture_restart(&f, NULL));
    CHECK_INT(write_records(&f, &info), FA_ENOTFOUND); /* the store's are of the old templates */
}

/* A family for another chip comes: what the model chose for the L4 was not chosen from it. */
static void a_family_that_does_not_serve_a_gpu_leaves_its_predictions(void)
{
    fa_records_info info;
    char path[600];
    fa_buf text;
    CHECK(open_place(&f));
    CHECK_OK(write_records(&f, &info), diag);
    snprintf(path, sizeof path, "%s/attn_fwd_sm80.json", f.templates);
    CHECK_INT(fa_buf_read_file(&text, path, 1 << 20), 0);
    cJSON *manifest = cJSON_Parse(text.data);
    cJSON_SetValuestring(cJSON_GetObjectItem(manifest, "name"), "attn_fwd_sm7x");
    cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(manifest, "sm"), "min"), 75);
    cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(manifest, "sm"), "max"), 75);
    char *printed = cJSON_Print(manifest);
    snprintf(path, sizeof path, "%s/attn_fwd_sm7x.json", f.templates);
    CHECK(printed != NULL && write_text(path, printed));
    free(printed);
    cJSON_Delete(manifest);
    fa_buf_free(&text);
    snprintf(path, sizeof path, "%s/attn_fwd_sm7x.cu", f.templates);
    CHECK(write_text(path, "// of Turing\n"));
    CHECK_INT(fa_records_check(records, f.templates, &diag), FA_EVERSION);
    CHECK_HAS(diag.text, "attn_fwd_sm7x");
    CHECK(fixture_restart(&f, NULL));
    CHECK_OK(write_records(&f, &info), diag);
    CHECK_INT(info.dropped, 0);
    CHECK_INT(info.predicted, 1);
    CHECK_OK(fa_records_check(records, f.templates, &diag), diag);
}

int main(void)
{
    TEST(the_shipped_records_can_be_read_and_are_all_there);
    TEST(the_shipped_records_are_written_as_they_were_read);
    TEST(records_of_another_operation_come_back);
    TEST(records_that_are_read_and_written_again_are_the_same_bytes);
    TEST(the_shipped_records_are_of_these_templates);
    ENGINE_TEST(a_prediction_goes_to_a_line_and_comes_back_in_a_bundle);
    ENGINE_TEST(a_measured_line_keeps_its_time_while_its_kernel_is_the_same);
    ENGINE_TEST(a_measured_line_has_its_day_and_one_without_gets_none);
    ENGINE_TEST(a_prediction_does_not_take_the_place_of_a_measured_line);
    ENGINE_TEST(a_family_that_changes_is_told_and_its_predictions_are_dropped);
    ENGINE_TEST(a_family_that_does_not_serve_a_gpu_leaves_its_predictions);
    return check_done();
}
