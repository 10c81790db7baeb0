/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundles between sessions: what is exported here is imported there, or refused with the store's
 * bytes as they were.
 */
#include "bundle_fixture.h"

#include <sys/wait.h>

/* ---- there and back -------------------------------------------------------------------------*/
static void what_was_measured_there_is_imported_and_launchable_here(void)
{
    engine_fixture f;
    fa_bundle_info info;
    fa_answer there = {0}, here = {0};
    const fa_kernel *kernel;
    CHECK(open_place(&f));
    CHECK(make_key());
    CHECK_OK(fa_list_winners(f.tuner, find_measured, &there, &diag), diag);
    CHECK_INT(there.origin, FA_ORIGIN_MEASURED);
    CHECK_OK(export_all(&f, false), diag);
    CHECK(restart_elsewhere(&f, NULL));
    CHECK_OK(import(&f, false, false, &info), diag);
    CHECK_INT(info.winners, 2);
    CHECK_INT(info.added, 2);
    CHECK_INT(info.unserved, 0);
    CHECK(info.is_signed && info.trusted);
    CHECK_OK(fa_list_winners(f.tuner, find_measured, &here, &diag), diag);
    CHECK_INT(here.origin, FA_ORIGIN_IMPORTED);
    CHECK(here.trial.median_us == there.trial.median_us && here.unix_time == there.unix_time);
    CHECK_INT(here.driver_version, there.driver_version);
    CHECK_INT(here.space, there.space);
    CHECK(fixture_restart(&f, ""));
    CHECK_OK(fa_driver_open(&f.driver, &diag), diag);
    CHECK_OK(fa_driver_retain_context(f.driver, 0, &diag), diag);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_IMPORTED);
    CHECK_TEXT(fa_kernel_answer(kernel)->cubin_key, there.cubin_key);
    fixture_close(&f);
}

static int add_evidence(void *context, const fa_winner_record *winner)
{
    fa_buf_text(context, winner->evidence);
    return 0;
}

/* Of all winners of the bundle. */
static bool read_evidence(fa_buf *ret_evidence)
{
    fa_bundle *opened = NULL;
    *ret_evidence = (fa_buf){0};
    bool good = fa_bundle_open(bundle, false, &opened, &diag) == 0 &&
                fa_bundle_read(opened, &diag) == 0 &&
                fa_bundle_winners(opened, NULL, add_evidence, ret_evidence) == 0;
    fa_bundle_close(&opened);
    return good;
}

static void a_second_import_changes_nothing_and_an_export_of_it_tells_the_first_origin(void)
{
    engine_fixture f;
    fa_bundle_info info;
    fa_buf before, evidence;
    CHECK(open_place(&f));
    CHECK(make_key());
    CHECK_OK(export_all(&f, false), diag);
    CHECK(restart_elsewhere(&f, NULL));
    CHECK_OK(import(&f, false, false, &info), diag);
    CHECK_INT(fa_buf_read_file(&before, other_store, 1 << 28), 0);
    CHECK_OK(import(&f, false, false, &info), diag);
    CHECK_INT(info.same, 2);
    CHECK(same_file(other_store, &before));
    CHECK_OK(export_all(&f, false), diag);
    CHECK(read_evidence(&evidence));
    CHECK_HAS(evidence.data, "\"imported\":{\"origin\":\"measured\",\"signer\":\"");
    CHECK_HAS(evidence.data, "\"samples_us\":[");
    CHECK(strstr(evidence.data, "\"host\"") == NULL);
    fa_buf_free(&evidence);
    fa_buf_free(&before);
    fixture_close(&f);
}

/* ---- refusals -------------------------------------------------------------------------------*/
static void what_is_damaged_is_refused_and_the_store_stays_as_it_was(void)
{
    static const struct {
        size_t keep;
        long at; /* from the start, or from the end when negative */
        int code;
        const char *sentence;
    } damage[] = {
        {50, 0, FA_ECORRUPT, "was cut short"},
        {0, 0, FA_ECORRUPT, "is no bundle"},
        {0, 63, FA_EVERSION, "the fa-tune that made it"},
        {0, 140, FA_ECORRUPT, "does not match"},
        {0, -5, FA_EUNTRUSTED, "signature does not match"},
        {0, -100, FA_ECORRUPT, "does not match its SHA-256"},
        {0, -20000, FA_ECORRUPT, "does not match its SHA-256"},
    };
    engine_fixture f;
    fa_buf good, before, now = {0};
    fa_bundle_info info;
    CHECK(open_place(&f));
    CHECK(make_key());
    CHECK_OK(export_all(&f, false), diag);
    CHECK_INT(fa_buf_read_file(&good, bundle, 1 << 26), 0);
    CHECK(good.size > 40000);
    CHECK(restart_elsewhere(&f, NULL));
    CHECK_INT(fa_buf_read_file(&before, other_store, 1 << 28), 0);
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        fa_buf_clear(&now);
        fa_buf_append(&now, good.data, damage[i].keep != 0 ? good.size * damage[i].keep / 100
                                                           : good.size);
        size_t at = damage[i].at >= 0 ? (size_t)damage[i].at : good.size - (size_t)-damage[i].at;
        if (damage[i].keep == 0)
            now.data[at] = (char)(now.data[at] ^ 0x40);
        CHECK_OK(fa_output_write(bundle, now.data, now.size, &diag), diag);
        CHECK_INT(import(&f, true, false, &info), damage[i].code);
        CHECK_HAS(diag.text, damage[i].sentence);
        CHECK_INT(fa_bundle_inspect(bundle, NULL, NULL, NULL, &diag), damage[i].code);
        CHECK(same_file(other_store, &before));
        CHECK_INT(winners_in(f.tuner), 0);
    }
    fa_buf_free(&now);
    fa_buf_free(&good);
    fa_buf_free(&before);
    fixture_close(&f);
}

/* ---- killed ---------------------------------------------------------------------------------*/
static void import_in_child(const engine_fixture *f)
{
    fa_tuner *tuner = NULL;
    fa_options options = fixture_options(f);
    fa_import_options import = {.size = sizeof import, .file = bundle, .allow_unsigned = true};
    _exit(fa_open(&options, &tuner, NULL) == 0 && fa_import(tuner, &import, NULL, NULL) == 0 ? 0
                                                                                              : 1);
}

static void an_import_that_is_killed_leaves_all_or_nothing(void)
{
    enum { COUNT = 150, ROUNDS = 25 };
    engine_fixture f;
    struct made made;
    int killed = 0;
    CHECK(open_place(&f));
    CHECK(take_made(&f, &made));
    CHECK(bundle_made(&made, COUNT));
    CHECK(restart_elsewhere(&f, NULL));
    fa_close(&f.tuner);
    for (int round = 0; round < ROUNDS; round++) {
        fflush(stdout);
        unlink(other_store);
        pid_t child = fork();
        if (child == 0)
            import_in_child(&f);
        usleep((useconds_t)(1000 + round * 997 % 40000));
        kill(child, SIGKILL);
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        killed += WIFSIGNALED(status);
        CHECK_OK(fixture_session(&f, &diag), diag);
        int count = winners_in(f.tuner);
        if (count != 0 && count != COUNT)
            printf("# %d of %d winners after round %d\n", count, COUNT, round);
        CHECK(count == 0 || count == COUNT);
        CHECK(WIFSIGNALED(status) || count == COUNT);
        fa_close(&f.tuner);
    }
    CHECK(killed > 0);
    free_made(&made);
    fixture_close(&f);
}

int main(void)
{
    TEST(what_was_measured_there_is_imported_and_launchable_here);
    TEST(a_second_import_changes_nothing_and_an_export_of_it_tells_the_first_origin);
    TEST(what_is_damaged_is_refused_and_the_store_stays_as_it_was);
    TEST(an_import_that_is_killed_leaves_all_or_nothing);
    return check_done();
}
