/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundles between sessions: what is exported here is imported there, or refused with the store's
 * bytes as they were; who is trusted; which of two winners stays; and system bundles.
 */
#include "engine_fixture.h"

#include "../db/bundle_format.h"
#include "bundles.h"
#include "error.h"
#include "keys.h"

#include <fcntl.h>
#include <sys/wait.h>

static char config[400], bundle[400], other_store[300];
static fa_diag diag;

/* A fixture with a device, whose store holds a predicted winner for an L4 and one measured here; a
 * place for keys; and the names used below. */
static bool open_place(engine_fixture *f)
{
    const fa_kernel *kernel;
    if (!fixture_open(f, ""))
        return false;
    snprintf(config, sizeof config, "%s/config", f->directory);
    snprintf(bundle, sizeof bundle, "%s/out.fab", f->directory);
    snprintf(other_store, sizeof other_store, "%s/other.db", f->directory);
    setenv("XDG_CONFIG_HOME", config, 1);
    setenv("FA_TUNE_SYSTEM", "", 1);
    return fa_get_best_kernel(f->tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag) == 0;
}

static bool make_key(void)
{
    char key[FA_KEY_TEXT_MAX];
    return fa_keygen(NULL, key, NULL, 0, &diag) == 0;
}

static int export_all(engine_fixture *f, bool no_signature)
{
    fa_export_options options = {.size = sizeof options,
                                 .file = bundle,
                                 .no_signature = no_signature};
    return fa_export(f->tuner, &options, NULL, &diag);
}

/* Another machine: another store, no GPU unless the script names one. */
static bool restart_elsewhere(engine_fixture *f, const char *script)
{
    snprintf(f->store, sizeof f->store, "%s", other_store);
    return fixture_restart(f, script);
}

static int import(engine_fixture *f, bool allow_unsigned, bool dry_run, fa_bundle_info *info)
{
    fa_import_options options = {.size = sizeof options,
                                 .file = bundle,
                                 .allow_unsigned = allow_unsigned,
                                 .dry_run = dry_run};
    return fa_import(f->tuner, &options, info, &diag);
}

static bool same_file(const char *path, const fa_buf *before)
{
    fa_buf now;
    bool same = fa_buf_read_file(&now, path, 1 << 28) == 0 && now.size == before->size &&
                memcmp(now.data, before->data, now.size) == 0;
    fa_buf_free(&now);
    return same;
}

static int count_one(void *context, const fa_answer *answer)
{
    (void)answer;
    ++*(int *)context;
    return 0;
}

static int winners_in(fa_tuner *tuner)
{
    int count = 0;
    fa_list_winners(tuner, count_one, &count, NULL);
    return count;
}

/* ---- there and back -------------------------------------------------------------------------*/
static int find_measured(void *context, const fa_answer *answer)
{
    fa_answer *found = context;
    if (answer->origin != FA_ORIGIN_PREDICTED)
        *found = *answer;
    return 0;
}

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
    CHECK_INT(fa_buf_read_file(&evidence, bundle, 1 << 26), 0);
    const char first[] = "\"imported\":{\"origin\":\"measured\",\"signer\":\"";
    CHECK(memmem(evidence.data, evidence.size, first, sizeof first - 1) != NULL);
    CHECK(memmem(evidence.data, evidence.size, "\"samples_us\":[", 14) != NULL);
    CHECK(memmem(evidence.data, evidence.size, "\"host\"", 6) == NULL);
    fa_buf_free(&evidence);
    fa_buf_free(&before);
    fixture_close(&f);
}

static void a_bundle_shows_and_verifies_without_a_store_or_a_gpu(void)
{
    engine_fixture f;
    fa_bundle_info info;
    char elsewhere[500];
    CHECK(open_place(&f));
    CHECK(make_key());
    CHECK_OK(export_all(&f, false), diag);
    fa_close(&f.tuner);
    snprintf(elsewhere, sizeof elsewhere, "%s/nobody", f.directory);
    setenv("XDG_CONFIG_HOME", elsewhere, 1);
    CHECK_OK(fa_bundle_inspect(bundle, NULL, NULL, &info, &diag), diag);
    CHECK_INT(info.winners, 2);
    CHECK(info.is_signed && !info.trusted);
    fixture_close(&f);
}

/* ---- refusals -------------------------------------------------------------------------------*/
static void a_signer_nobody_trusts_is_refused_until_it_is_trusted(void)
{
    engine_fixture f;
    fa_buf before;
    char elsewhere[500], key[FA_KEY_TEXT_MAX];
    fa_bundle_info info;
    CHECK(open_place(&f));
    CHECK_OK(fa_keygen(NULL, key, NULL, 0, &diag), diag);
    CHECK_OK(export_all(&f, false), diag);
    CHECK(restart_elsewhere(&f, NULL));
    snprintf(elsewhere, sizeof elsewhere, "%s/them", f.directory);
    setenv("XDG_CONFIG_HOME", elsewhere, 1);
    CHECK_INT(fa_buf_read_file(&before, other_store, 1 << 28), 0);
    CHECK_INT(import(&f, true, false, &info), FA_EUNTRUSTED);
    CHECK_HAS(diag.text, key);
    CHECK_HAS(diag.text, "fa-tune trust add");
    CHECK(same_file(other_store, &before));
    CHECK_OK(fa_trust_add(key, "the lab", &diag), diag);
    CHECK_OK(import(&f, false, false, &info), diag);
    CHECK_TEXT(info.name, "the lab");
    CHECK_INT(info.added, 2);
    fa_buf_free(&before);
    fixture_close(&f);
}

static void unsigned_needs_saying_so_at_both_ends(void)
{
    engine_fixture f;
    fa_buf before;
    fa_bundle_info info;
    CHECK(open_place(&f));
    CHECK_INT(export_all(&f, false), FA_ENOTFOUND); /* no key yet */
    CHECK_HAS(diag.text, "fa-tune keygen");
    CHECK_INT(access(bundle, F_OK), -1);
    CHECK_OK(export_all(&f, true), diag);
    CHECK(restart_elsewhere(&f, NULL));
    CHECK_INT(fa_buf_read_file(&before, other_store, 1 << 28), 0);
    CHECK_INT(import(&f, false, false, &info), FA_EUNTRUSTED);
    CHECK_HAS(diag.text, "is not signed");
    CHECK(same_file(other_store, &before));
    CHECK_OK(import(&f, true, false, &info), diag);
    CHECK_INT(info.added, 2);
    fa_buf_free(&before);
    fixture_close(&f);
}

static void what_is_damaged_is_refused_and_the_store_stays_as_it_was(void)
{
    static const struct {
        size_t keep;
        long at; /* from the start, or from the end when negative */
        int code;
        const char *sentence;
    } damage[] = {
        {50, 0, FA_ECORRUPT, "is cut short"},      {0, 0, FA_ECORRUPT, "is no bundle"},
        {0, 8, FA_EVERSION, "newer fa-tune"},      {0, 90, FA_ECORRUPT, "does not match"},
        {0, -5, FA_ECORRUPT, "does not match"},    {0, 24, FA_ECORRUPT, ""},
        {0, -20000, FA_ECORRUPT, "does not match"},
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
        CHECK_OK(fa_bundle_replace_file(bundle, now.data, now.size, &diag), diag);
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

/* ---- bundles made by hand -------------------------------------------------------------------*/
/* A winner of the fixture's store with its cubin, to be changed and bundled. */
struct made {
    fa_winner_record winner;
    fa_cubin_record cubin;
};

static int take_winner(void *context, const fa_winner_record *winner)
{
    struct made *made = context;
    if (winner->origin != FA_ORIGIN_MEASURED)
        return 0;
    made->winner = *winner;
    made->winner.evidence = strdup(winner->evidence);
    return 0;
}

static bool take_made(engine_fixture *f, struct made *made)
{
    *made = (struct made){0};
    return fa_store_winners_each(f->tuner->store, take_winner, made, &diag) == 0 &&
           made->winner.evidence != NULL &&
           fa_store_cubin_get(f->tuner->store, made->winner.cubin_key, &made->cubin, &diag) == 0;
}

static void free_made(struct made *made)
{
    fa_winner_record_free(&made->winner);
    fa_cubin_record_free(&made->cubin);
}

static const fa_sign_secret *signing; /* what bundle_made signs with; NULL: with nothing */

/* `count` winners like this one, of growing lengths. */
static bool bundle_made(const struct made *made, int count)
{
    fa_bundle_writer *writer = NULL;
    bool good = fa_bundle_writer_new(&writer, &diag) == 0;
    for (int i = 0; good && i < count; i++) {
        fa_winner_record winner = made->winner;
        winner.scope.problem.seq_k += i;
        good = fa_bundle_add(writer, &winner, made->cubin.bytes, made->cubin.size, &diag) == 0;
    }
    good = good && fa_bundle_write(writer, bundle, signing, NULL, &diag) == 0;
    fa_bundle_writer_free(&writer);
    return good;
}

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

/* ---- system bundles -------------------------------------------------------------------------*/
static char noted[1024];

static void note(void *context, const char *sentence)
{
    (void)context;
    snprintf(noted, sizeof noted, "%s", sentence);
}

/* A session on an empty store of its own, with a device and with this list of system bundles. */
static bool session_with(engine_fixture *f, const char *list)
{
    fa_close(&f->tuner);
    unlink(other_store);
    snprintf(f->store, sizeof f->store, "%s", other_store);
    setenv("FA_TUNE_SYSTEM", list, 1);
    fa_options options = fixture_options(f);
    options.log = note;
    noted[0] = 0;
    return fa_open(&options, &f->tuner, &diag) == 0;
}

static void a_system_bundle_answers_from_where_it_lies_and_the_own_store_comes_first(void)
{
    engine_fixture f;
    const fa_kernel *kernel;
    char list[1000];
    void *bytes = NULL;
    size_t size;
    CHECK(open_place(&f));
    CHECK(make_key());
    CHECK_OK(export_all(&f, false), diag);
    setenv("XDG_CONFIG_HOME", "/nowhere", 1); /* its signer is a stranger */
    snprintf(list, sizeof list, "/no/such/place::%s", f.directory);
    CHECK(session_with(&f, list));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_IMPORTED);
    CHECK(fa_kernel_answer(kernel)->driver_version > 0);
    CHECK_OK(fa_answer_cubin(f.tuner, fa_kernel_answer(kernel), &bytes, &size, &diag), diag);
    free(bytes);
    CHECK_INT(winners_in(f.tuner), 0); /* nothing was imported */
    CHECK_TEXT(noted, "");
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PATIENT, &kernel, &diag), diag);
    fa_close(&f.tuner);
    CHECK_OK(fixture_session(&f, &diag), diag);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_MEASURED);
    fixture_close(&f);
}

static void a_system_bundle_that_others_can_write_or_that_is_damaged_is_noted_and_not_used(void)
{
    engine_fixture f;
    const fa_kernel *kernel;
    CHECK(open_place(&f));
    CHECK_OK(export_all(&f, true), diag); /* unsigned is fine where only its owner can write */
    CHECK(session_with(&f, bundle));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(chmod(bundle, 0666), 0);
    CHECK(session_with(&f, bundle));
    CHECK_INT(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag),
              FA_ENOTFOUND);
    CHECK_HAS(noted, "other users can write the file");
    CHECK_INT(chmod(bundle, 0600), 0);
    fa_buf bytes;
    CHECK_INT(fa_buf_read_file(&bytes, bundle, 1 << 26), 0);
    bytes.data[bytes.size - 9000] ^= 1; /* in a cubin: the front is right, the part is not */
    bytes.data[bytes.size - bytes.size / 2] ^= 1;
    CHECK_OK(fa_bundle_replace_file(bundle, bytes.data, bytes.size, &diag), diag);
    CHECK(session_with(&f, bundle));
    CHECK_INT(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag),
              FA_ENOTFOUND);
    CHECK_HAS(noted, "does not match its SHA-256");
    fa_buf_free(&bytes);
    fixture_close(&f);
}

/* ---- keys -----------------------------------------------------------------------------------*/
static int list_key(void *context, const fa_trusted_key *key)
{
    fa_buf_printf(context, "%s:%s:%d\n", key->key, key->name, key->own);
    return 0;
}

static void keys_are_listed_renamed_removed_and_never_written_over(void)
{
    static const char stranger[] = "AB00000000000000000000000000000000000000000000000000000000000001";
    static const char lower[] = "ab00000000000000000000000000000000000000000000000000000000000001";
    char directory[300], own[FA_KEY_TEXT_MAX], again[FA_KEY_TEXT_MAX], path[400], expected[400];
    fa_buf out = {0};
    struct stat st;
    snprintf(directory, sizeof directory, "%s/keys-XXXXXX", getenv("FA_TEST_BUILD"));
    CHECK(mkdtemp(directory) != NULL);
    setenv("XDG_CONFIG_HOME", directory, 1);
    CHECK_OK(fa_keygen(NULL, own, path, sizeof path, &diag), diag);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_mode & 07777, 0600);
    CHECK_INT(fa_keygen(NULL, again, NULL, 0, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "never written over");
    CHECK_INT(fa_trust_add("AB", NULL, &diag), FA_EINVAL);
    CHECK_INT(fa_trust_add(stranger, "two\nlines", &diag), FA_EINVAL);
    CHECK_OK(fa_trust_add(stranger, "first", &diag), diag);
    CHECK_OK(fa_trust_add(stranger, "the lab's", &diag), diag);
    CHECK_OK(fa_trust_list(list_key, &out, &diag), diag);
    snprintf(expected, sizeof expected, "%s:your own:1\n%s:the lab's:0\n", own, lower);
    CHECK_TEXT(out.data, expected);
    CHECK_INT(fa_trust_remove("nobody", &diag), FA_ENOTFOUND);
    CHECK_OK(fa_trust_remove("the lab's", &diag), diag);
    fa_buf_clear(&out);
    CHECK_OK(fa_trust_list(list_key, &out, &diag), diag);
    snprintf(expected, sizeof expected, "%s:your own:1\n", own);
    CHECK_TEXT(out.data, expected);
    /* Somebody else could have written the list. */
    snprintf(path, sizeof path, "%s/fa-tune/trusted-keys", directory);
    CHECK_INT(chmod(path, 0666), 0);
    CHECK_INT(fa_trust_list(list_key, &out, &diag), FA_ESTORE);
    CHECK_INT(chmod(path, 0600), 0);
    CHECK(write_text(path, "not a key\n"));
    CHECK_INT(fa_trust_list(list_key, &out, &diag), FA_ECORRUPT);
    CHECK_HAS(diag.text, "line 1");
    fa_buf_free(&out);
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    CHECK_INT(system(command), 0);
}

int main(void)
{
    TEST(what_was_measured_there_is_imported_and_launchable_here);
    TEST(a_second_import_changes_nothing_and_an_export_of_it_tells_the_first_origin);
    TEST(a_bundle_shows_and_verifies_without_a_store_or_a_gpu);
    TEST(a_signer_nobody_trusts_is_refused_until_it_is_trusted);
    TEST(unsigned_needs_saying_so_at_both_ends);
    TEST(what_is_damaged_is_refused_and_the_store_stays_as_it_was);
    TEST(a_cubin_that_is_not_what_its_winner_says_is_refused);
    TEST(winners_of_other_templates_are_counted_as_unserved);
    TEST(conflicts_resolve_by_origin_then_interval_then_driver_then_time);
    TEST(a_dry_run_tells_all_and_changes_nothing_even_on_a_read_only_store);
    TEST(an_import_that_is_killed_leaves_all_or_nothing);
    TEST(evidence_of_another_gpu_than_the_winners_is_not_shown_as_its_gpu);
    TEST(what_nobody_signed_is_not_launched_before_it_is_proved_here);
    TEST(a_signed_proof_holds_only_for_the_bytes_that_it_was_about);
    TEST(a_system_bundle_answers_from_where_it_lies_and_the_own_store_comes_first);
    TEST(a_system_bundle_that_others_can_write_or_that_is_damaged_is_noted_and_not_used);
    TEST(keys_are_listed_renamed_removed_and_never_written_over);
    return check_done();
}
