/* SPDX-License-Identifier: Apache-2.0
 *
 * Which winners of a bundle are believed: those that are what they say, and of two the better one.
 */
#include "bundle_fixture.h"

#include "keys.h"

static void a_cubin_that_is_not_what_its_winner_says_is_refused(void)
{
    engine_fixture f;
    fa_buf before;
    fa_bundle_info info;
    struct made made;
    CHECK(open_place(&f));
    CHECK(take_made(&f, &made));
    CHECK(restart_elsewhere(&f, NULL));
    CHECK_INT(fa_buf_read_file(&before, other_store, 1 << 28), 0);
    struct made other = made;
    other.winner.scope.silicon[4] = '6'; /* sm_89 is sm_86 now */
    CHECK(bundle_made(&other, 1));
    CHECK_INT(import(&f, true, false, &info), FA_ECORRUPT);
    CHECK_HAS(diag.text, "is for sm_89");
    other = made;
    other.winner.trial.registers++;
    CHECK(bundle_made(&other, 1));
    CHECK_INT(import(&f, true, false, &info), FA_ECORRUPT);
    CHECK_HAS(diag.text, "registers");
    other = made;
    other.winner.trial.threads = 1024;
    CHECK(bundle_made(&other, 1));
    CHECK_INT(import(&f, true, false, &info), FA_ECORRUPT);
    CHECK_HAS(diag.text, "threads");
    other = made;
    strcpy(other.winner.entry, "another_kernel");
    CHECK(bundle_made(&other, 1));
    CHECK_INT(import(&f, true, false, &info), FA_ECORRUPT);
    CHECK_HAS(diag.text, "another_kernel");
    other = made;
    other.cubin.bytes = "\177ELF is not all that makes a cubin";
    other.cubin.size = 32;
    CHECK(bundle_made(&other, 1));
    CHECK_INT(import(&f, true, false, &info), FA_ECORRUPT);
    CHECK(same_file(other_store, &before));
    CHECK(bundle_made(&made, 1));
    CHECK_OK(import(&f, true, false, &info), diag);
    fa_buf_free(&before);
    free_made(&made);
    fixture_close(&f);
}

static void winners_of_other_templates_are_counted_as_unserved(void)
{
    engine_fixture f;
    fa_bundle_info info;
    struct made made;
    CHECK(open_place(&f));
    CHECK(take_made(&f, &made));
    memset(made.winner.scope.templates, 'a', 64);
    CHECK(bundle_made(&made, 2));
    CHECK(restart_elsewhere(&f, NULL));
    CHECK_OK(import(&f, true, false, &info), diag);
    CHECK_INT(info.added, 2);
    CHECK_INT(info.unserved, 2);
    free_made(&made);
    fixture_close(&f);
}

static int hear_gpu(void *context, const fa_bundle_item *item)
{
    *(fa_gpu *)context = item->answer->gpu;
    return 0;
}

static void evidence_of_another_gpu_than_the_winners_is_not_shown_as_its_gpu(void)
{
    engine_fixture f;
    struct made made;
    fa_gpu gpu = {.sm_count = -1};
    CHECK(open_place(&f));
    CHECK(take_made(&f, &made));
    CHECK(bundle_made(&made, 1));
    CHECK_OK(fa_bundle_inspect(bundle, hear_gpu, &gpu, NULL, &diag), diag);
    CHECK(gpu.sm_count > 0);
    char *count = strstr(made.winner.evidence, "\"sm_count\":");
    CHECK(count != NULL);
    count[strlen("\"sm_count\":")] = '9'; /* its first digit */
    CHECK(bundle_made(&made, 1));
    CHECK_OK(fa_bundle_inspect(bundle, hear_gpu, &gpu, NULL, &diag), diag);
    CHECK_INT(gpu.sm_count, 0);
    CHECK_TEXT(gpu.name, made.winner.gpu_name);
    free_made(&made);
    fixture_close(&f);
}

/* ---- which of two stays ---------------------------------------------------------------------*/
struct told {
    fa_bundle_change change;
    char why[64];
    fa_origin stored;
    bool had;
};

static int hear(void *context, const fa_bundle_item *item)
{
    struct told *told = context;
    told->change = item->change;
    snprintf(told->why, sizeof told->why, "%s", item->why);
    told->had = item->stored != NULL;
    if (told->had)
        told->stored = item->stored->origin;
    return 0;
}

static void conflicts_resolve_by_origin_then_interval_then_driver_then_time(void)
{
    static const struct {
        fa_origin stored, incoming; /* as the bundle says it */
        double narrower;            /* the incoming interval's width, as a factor */
        int driver;
        int64_t later;
        fa_bundle_change change;
        const char *why;
    } rows[] = {
        {FA_ORIGIN_MEASURED, FA_ORIGIN_MEASURED, 0.1, 1, 1, FA_BUNDLE_KEPT, "origin is better"},
        {FA_ORIGIN_PREDICTED, FA_ORIGIN_MEASURED, 9, -1, -1, FA_BUNDLE_REPLACED, "origin is better"},
        {FA_ORIGIN_TRANSFERRED, FA_ORIGIN_MEASURED, 9, 0, 0, FA_BUNDLE_REPLACED, "origin"},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_PREDICTED, 1, 1, 1, FA_BUNDLE_KEPT, "origin"},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 0.5, -1, -1, FA_BUNDLE_REPLACED, "narrower"},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 2, 1, 1, FA_BUNDLE_KEPT, "narrower"},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 1, 1, -1, FA_BUNDLE_REPLACED, "newer driver"},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 1, -1, 1, FA_BUNDLE_KEPT, "newer driver"},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 1, 0, 1, FA_BUNDLE_REPLACED, "it is newer"},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 1, 0, -1, FA_BUNDLE_KEPT, "is newer"},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 1, 0, 0, FA_BUNDLE_SAME, ""},
    };
    engine_fixture f;
    struct made made;
    fa_sign_secret secret;
    CHECK(open_place(&f));
    CHECK(make_key());
    CHECK_OK(fa_keys_secret(NULL, &secret, &diag), diag);
    signing = &secret;
    CHECK(take_made(&f, &made));
    CHECK(restart_elsewhere(&f, NULL));
    made.winner.trial.low_us = made.winner.trial.median_us * 0.99;
    made.winner.trial.high_us = made.winner.trial.median_us * 1.01;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct told told = {0};
        fa_winner_record stored = made.winner, left = {0};
        stored.origin = rows[i].stored;
        CHECK_OK(fa_store_winner_replace(f.tuner->store, &stored, &made.cubin, &diag), diag);
        struct made incoming = made;
        double middle = made.winner.trial.median_us, half = middle * 0.01 * rows[i].narrower;
        incoming.winner.origin = rows[i].incoming;
        if (rows[i].narrower < 1 || rows[i].narrower > 1) {
            incoming.winner.trial.low_us = middle - half;
            incoming.winner.trial.high_us = middle + half;
        }
        incoming.winner.driver_version += rows[i].driver;
        incoming.winner.unix_time += rows[i].later;
        CHECK(bundle_made(&incoming, 1));
        fa_import_options options = {.size = sizeof options, .file = bundle,
                                     .allow_unsigned = true, .visit = hear, .context = &told};
        CHECK_OK(fa_import(f.tuner, &options, NULL, &diag), diag);
        if (told.change != rows[i].change)
            printf("# row %zu: %s\n", i, told.why);
        CHECK_INT(told.change, rows[i].change);
        CHECK_HAS(told.why, rows[i].why);
        CHECK(told.had);
        CHECK_OK(fa_store_winner_get(f.tuner->store, &made.winner.scope, &left, NULL, &diag), diag);
        CHECK_INT(left.driver_version, rows[i].change == FA_BUNDLE_REPLACED
                                           ? incoming.winner.driver_version
                                           : stored.driver_version);
        CHECK_INT(left.unix_time, rows[i].change == FA_BUNDLE_REPLACED ? incoming.winner.unix_time
                                                                       : stored.unix_time);
        fa_winner_record_free(&left);
    }
    signing = NULL;
    free_made(&made);
    fixture_close(&f);
}

/* ---- whose proof is believed ----------------------------------------------------------------*/
static void what_nobody_signed_is_not_launched_before_it_is_proved_here(void)
{
    engine_fixture f;
    fa_bundle_info info;
    fa_answer here = {0};
    const fa_kernel *kernel;
    CHECK(open_place(&f));
    CHECK_OK(export_all(&f, true), diag);
    CHECK(restart_elsewhere(&f, NULL));
    CHECK_OK(import(&f, true, false, &info), diag);
    CHECK_OK(fa_list_winners(f.tuner, find_measured, &here, &diag), diag);
    CHECK_INT(here.origin, FA_ORIGIN_IMPORTED);
    CHECK_INT(here.driver_version, 0);
    CHECK_OK(import(&f, true, false, &info), diag);
    CHECK_INT(info.same, 2);
    CHECK(fixture_restart(&f, ""));
    CHECK_OK(fa_driver_open(&f.driver, &diag), diag);
    CHECK_OK(fa_driver_retain_context(f.driver, 0, &diag), diag);
    CHECK_INT(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag),
              FA_ENOTFOUND);
    CHECK_HAS(diag.text, "no GPU has proved");
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK(fa_kernel_answer(kernel)->driver_version != 0);
    fixture_close(&f);
}

static void a_signed_proof_holds_only_for_the_bytes_that_it_was_about(void)
{
    engine_fixture f;
    fa_sign_secret secret;
    struct made made;
    fa_winner_record left = {0};
    CHECK(open_place(&f));
    CHECK(make_key());
    CHECK_OK(fa_keys_secret(NULL, &secret, &diag), diag);
    CHECK(take_made(&f, &made));
    signing = &secret;
    CHECK(bundle_made(&made, 1));
    signing = NULL;
    CHECK(restart_elsewhere(&f, NULL));
    /* The same key is here already, with other bytes. */
    fa_cubin_record other = made.cubin;
    other.size = made.cubin.size + 4;
    other.bytes = calloc(1, other.size);
    memcpy(other.bytes, made.cubin.bytes, made.cubin.size);
    CHECK_OK(fa_store_cubin_put(f.tuner->store, &other, &diag), diag);
    free(other.bytes);
    CHECK_OK(import(&f, false, false, NULL), diag);
    CHECK_OK(fa_store_winner_get(f.tuner->store, &made.winner.scope, &left, NULL, &diag), diag);
    CHECK_INT(left.origin, FA_ORIGIN_IMPORTED);
    CHECK_INT(left.driver_version, 0);
    fa_winner_record_free(&left);
    free_made(&made);
    fixture_close(&f);
}

static void a_dry_run_tells_all_and_changes_nothing_even_on_a_read_only_store(void)
{
    engine_fixture f;
    fa_buf before;
    fa_bundle_info info;
    struct made made;
    CHECK(open_place(&f));
    CHECK(take_made(&f, &made));
    CHECK(bundle_made(&made, 3));
    CHECK_INT(fa_buf_read_file(&before, f.store, 1 << 28), 0);
    CHECK_OK(import(&f, true, true, &info), diag);
    CHECK_INT(info.added, 2);
    CHECK_INT(info.kept, 1); /* its own is measured */
    CHECK(same_file(f.store, &before));
    CHECK_INT(winners_in(f.tuner), 2);
    fa_store_close(&f.tuner->store);
    CHECK_OK(fa_store_open(f.store, FA_STORE_READ_ONLY, &f.tuner->store, NULL, &diag), diag);
    CHECK_OK(import(&f, true, true, &info), diag);
    CHECK_INT(import(&f, true, false, &info), FA_EREADONLY);
    CHECK(same_file(f.store, &before));
    fa_buf_free(&before);
    free_made(&made);
    fixture_close(&f);
}

int main(void)
{
    TEST(a_cubin_that_is_not_what_its_winner_says_is_refused);
    TEST(winners_of_other_templates_are_counted_as_unserved);
    TEST(conflicts_resolve_by_origin_then_interval_then_driver_then_time);
    TEST(a_dry_run_tells_all_and_changes_nothing_even_on_a_read_only_store);
    TEST(evidence_of_another_gpu_than_the_winners_is_not_shown_as_its_gpu);
    TEST(what_nobody_signed_is_not_launched_before_it_is_proved_here);
    TEST(a_signed_proof_holds_only_for_the_bytes_that_it_was_about);
    return check_done();
}
