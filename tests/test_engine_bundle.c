/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundles between sessions: which winners of a bundle are believed, which of two stays, and bundles that answer from
 * where they lie. The bytes of a bundle are test_db_bundle.c's; what a person sees, and keys, test_cli_bundle.py's.
 */
#include "engine_fixture.h"

#include "bundle.h"
#include "bundle_files.h"
#include "lookup.h"
#include "store.h"
#include "session.h"

/* ---- places and bundles --------------------------------------------------------------------*/
static char config[400], bundle[400], other_store[300];

/* A fixture with a device, whose store holds a predicted winner for an L4 and one measured here; a
 * key; and the names used below. */
static bool open_place(engine_fixture *f)
{
    const fa_kernel *kernel;
    char key[FA_KEY_TEXT_MAX];
    if (!fixture_open(f, ""))
        return false;
    snprintf(config, sizeof config, "%s/config", f->directory);
    snprintf(bundle, sizeof bundle, "%s/out.fab", f->directory);
    snprintf(other_store, sizeof other_store, "%s/other.db", f->directory);
    setenv("XDG_CONFIG_HOME", config, 1);
    setenv("FA_TUNE_SYSTEM", "", 1);
    return fa_keygen(key, NULL, 0, &diag) == 0 &&
           fa_get_best_kernel(f->tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag) == 0;
}

static int export_all(engine_fixture *f, bool no_signature)
{
    fa_export_options options = {
        .size = sizeof options, .file = bundle, .no_signature = no_signature};
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

static int winners_in(fa_tuner *tuner)
{
    FA_ENDS(fa_free_at) fa_answer *answer = NULL;
    size_t count = 0;
    fa_list_winners(tuner, &answer, &count, NULL, NULL);
    return (int)count;
}

/* The one that was timed. */
static fa_answer measured_in(fa_tuner *tuner)
{
    fa_answer *answer = NULL, found = {0};
    size_t count = 0;
    fa_list_winners(tuner, &answer, &count, NULL, &diag);
    for (size_t i = 0; i < count; i++)
        if (answer[i].origin != FA_ORIGIN_PREDICTED)
            found = answer[i];
    free(answer);
    return found;
}

/* ---- bundles made by hand -------------------------------------------------------------------*/
/* A winner of an open place with its cubin, to be changed and bundled. */
struct made {
    fa_winner_record winner;
    fa_cubin_record cubin;
};

static bool take_made(engine_fixture *f, struct made *made)
{
    fa_winner_record *row = NULL;
    size_t count = 0;
    *made = (struct made){0};
    if (!open_place(f) || fa_store_winners(f->tuner->store, NULL, &row, &count, NULL, &diag) != 0)
        return false;
    for (size_t i = 0; i < count; i++)
        if (row[i].origin == FA_ORIGIN_MEASURED && made->winner.evidence == NULL) {
            made->winner = row[i];
            made->winner.evidence = strdup(row[i].evidence);
        }
    free(row);
    return made->winner.evidence != NULL &&
           fa_store_cubin_get(f->tuner->store, made->winner.cubin_key, &made->cubin, &diag) == 0;
}

static void free_made(struct made *made)
{
    fa_winner_record_free(&made->winner);
    fa_cubin_record_free(&made->cubin);
}

static const fa_secret_key *signing; /* what bundle_made signs with; NULL: with nothing */

/* `count` winners like this one, of growing lengths. */
static bool bundle_made(const struct made *made, int count)
{
    fa_store *part = NULL;
    bool good = fa_portable_new(&part, &diag) == 0;
    for (int i = 0; good && i < count; i++) {
        fa_winner_record winner = made->winner;
        winner.scope.problem.seq_k += i;
        good = fa_bundle_add(part, &winner, made->cubin.bytes, made->cubin.size, &diag) == 0;
    }
    good = good && fa_bundle_write(part, bundle, signing, NULL, &diag) == 0;
    fa_store_close(&part);
    return good;
}

/* ---- there and back -------------------------------------------------------------------------*/
/* Of all winners of the bundle. */
static bool read_evidence(fa_buf *ret_evidence)
{
    fa_bundle *opened = NULL;
    *ret_evidence = (fa_buf){0};
    FA_ENDS(fa_free_at) fa_winner_record *row = NULL;
    size_t count = 0;
    bool good = fa_bundle_open(bundle, false, &opened, &diag) == 0 &&
                fa_bundle_read(opened, &diag) == 0 &&
                fa_bundle_winners(opened, &row, &count, &diag) == 0;
    for (size_t i = 0; i < count; i++)
        fa_buf_text(ret_evidence, row[i].evidence);
    fa_bundle_close(&opened);
    return good;
}

ENGINE_TEST(what_was_measured_there_is_imported_and_launchable_here)
{
    fa_bundle_info info;
    fa_answer there = {0}, here = {0};
    const fa_kernel *kernel;
    fa_buf before, evidence;
    CHECK(open_place(&f));
    there = measured_in(f.tuner);
    CHECK_INT(there.origin, FA_ORIGIN_MEASURED);
    CHECK_OK(export_all(&f, false), diag);
    CHECK(restart_elsewhere(&f, NULL));
    CHECK_OK(import(&f, false, false, &info), diag);
    CHECK_INT(info.winners, 2);
    CHECK_INT(info.added, 2);
    CHECK_INT(info.unserved, 0);
    CHECK(info.is_signed && info.trusted);
    here = measured_in(f.tuner);
    CHECK_INT(here.origin, FA_ORIGIN_IMPORTED);
    CHECK(here.trial.median_us == there.trial.median_us && here.unix_time == there.unix_time);
    CHECK_INT(here.driver_version, there.driver_version);
    CHECK_INT(here.space, there.space);
    /* A second import changes nothing, and an export says where the winner comes from. */
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
    CHECK(fixture_restart(&f, ""));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_IMPORTED);
    CHECK_TEXT(fa_kernel_answer(kernel)->cubin_key, there.cubin_key);
}

/* ---- killed ---------------------------------------------------------------------------------*/
static void import_in_child(const engine_fixture *f)
{
    fa_tuner *tuner = NULL;
    fa_options options = fixture_options(f);
    fa_import_options import = {.size = sizeof import, .file = bundle, .allow_unsigned = true};
    _exit(fa_open(&options, &tuner, NULL) != 0 || fa_import(tuner, &import, NULL, NULL) != 0);
}

ENGINE_TEST(an_import_that_is_killed_leaves_all_or_nothing)
{
    enum { COUNT = 150, ROUNDS = 25 };
    struct made made;
    int killed = 0;
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
}

/* ---- winners that are not what they say -----------------------------------------------------*/
/* Bundles this and imports it; `word` is in the refusal's sentence. */
static void check_refused(engine_fixture *f, const struct made *made, const char *word)
{
    fa_bundle_info info;
    CHECK(bundle_made(made, 1));
    CHECK_FAILS(import(f, true, false, &info), FA_ECORRUPT, word);
}

ENGINE_TEST(a_cubin_that_is_not_what_its_winner_says_is_refused)
{
    fa_buf before;
    fa_bundle_info info;
    struct made made;
    CHECK(take_made(&f, &made));
    CHECK(restart_elsewhere(&f, NULL));
    CHECK_INT(fa_buf_read_file(&before, other_store, 1 << 28), 0);
    struct made other = made;
    other.winner.scope.silicon[4] = '6'; /* sm_89 is sm_86 now */
    check_refused(&f, &other, "sm_89");
    other = made;
    other.winner.trial.registers++;
    check_refused(&f, &other, "registers");
    other = made;
    other.winner.trial.threads = 1024;
    check_refused(&f, &other, "threads");
    other = made;
    strcpy(other.winner.entry, "another_kernel");
    check_refused(&f, &other, "another_kernel");
    other = made;
    other.cubin.bytes = "\177ELF is not all that makes a cubin";
    other.cubin.size = 32;
    check_refused(&f, &other, "");
    CHECK(same_file(other_store, &before));
    CHECK(bundle_made(&made, 1));
    CHECK_OK(import(&f, true, false, &info), diag);
    fa_buf_free(&before);
    free_made(&made);
}

static fa_gpu gpu_shown(void)
{
    FA_ENDS(fa_free_at) fa_bundle_item *item = NULL;
    size_t count = 0;
    fa_gpu gpu = {.sm_count = -1};
    fa_bundle_inspect(bundle, &item, &count, NULL, &diag);
    if (count > 0)
        gpu = item->answer->gpu;
    return gpu;
}

ENGINE_TEST(evidence_of_another_gpu_than_the_winners_is_not_shown_as_its_gpu)
{
    struct made made;
    CHECK(take_made(&f, &made));
    CHECK(bundle_made(&made, 1));
    CHECK(gpu_shown().sm_count > 0);
    char *count = strstr(made.winner.evidence, "\"sm_count\":");
    CHECK(count != NULL);
    count[strlen("\"sm_count\":")] = '9'; /* its first digit */
    CHECK(bundle_made(&made, 1));
    fa_gpu gpu = gpu_shown();
    CHECK_INT(gpu.sm_count, 0);
    CHECK_TEXT(gpu.name, made.winner.gpu_name);
    free_made(&made);
}

/* ---- which of two stays ---------------------------------------------------------------------*/
ENGINE_TEST(conflicts_resolve_by_origin_then_interval_then_driver_then_time)
{
    static const struct {
        fa_origin stored, incoming; /* as the bundle says it */
        double narrower;            /* the incoming interval's width, as a factor */
        int driver;
        int64_t later;
        fa_bundle_change change;
    } rows[] = {
        {FA_ORIGIN_MEASURED, FA_ORIGIN_MEASURED, 0.1, 1, 1, FA_BUNDLE_KEPT},
        {FA_ORIGIN_PREDICTED, FA_ORIGIN_MEASURED, 9, -1, -1, FA_BUNDLE_REPLACED},
        {FA_ORIGIN_TRANSFERRED, FA_ORIGIN_MEASURED, 9, 0, 0, FA_BUNDLE_REPLACED},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_PREDICTED, 1, 1, 1, FA_BUNDLE_KEPT},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 0.5, -1, -1, FA_BUNDLE_REPLACED},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 2, 1, 1, FA_BUNDLE_KEPT},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 1, 1, -1, FA_BUNDLE_REPLACED},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 1, -1, 1, FA_BUNDLE_KEPT},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 1, 0, 1, FA_BUNDLE_REPLACED},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 1, 0, -1, FA_BUNDLE_KEPT},
        {FA_ORIGIN_IMPORTED, FA_ORIGIN_MEASURED, 1, 0, 0, FA_BUNDLE_SAME},
    };
    struct made made;
    fa_secret_key secret;
    CHECK(take_made(&f, &made));
    CHECK_OK(fa_keys_secret(NULL, &secret, &diag), diag);
    signing = &secret;
    CHECK(restart_elsewhere(&f, NULL));
    made.winner.trial.low_us = made.winner.trial.median_us * 0.99;
    made.winner.trial.high_us = made.winner.trial.median_us * 1.01;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fa_bundle_info told;
        fa_winner_record stored = made.winner, left = {0};
        stored.origin = rows[i].stored;
        CHECK_OK(fa_store_winner_put(f.tuner->store, &stored, &made.cubin, true, NULL, &diag),
                 diag);
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
        CHECK_OK(import(&f, true, false, &told), diag);
        CHECK_INT(told.replaced, rows[i].change == FA_BUNDLE_REPLACED);
        CHECK_INT(told.kept, rows[i].change == FA_BUNDLE_KEPT);
        CHECK_INT(told.same, rows[i].change == FA_BUNDLE_SAME);
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
}

/* ---- whose proof is believed ----------------------------------------------------------------*/
ENGINE_TEST(what_nobody_signed_is_not_launched_before_it_is_proved_here)
{
    fa_bundle_info info;
    fa_answer here = {0};
    const fa_kernel *kernel;
    CHECK(open_place(&f));
    CHECK_OK(export_all(&f, true), diag);
    CHECK(restart_elsewhere(&f, NULL));
    CHECK_OK(import(&f, true, false, &info), diag);
    here = measured_in(f.tuner);
    CHECK_INT(here.origin, FA_ORIGIN_IMPORTED);
    CHECK_INT(here.driver_version, 0);
    CHECK_OK(import(&f, true, false, &info), diag);
    CHECK_INT(info.same, 2);
    CHECK(fixture_restart(&f, ""));
    CHECK_FAILS(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag),
                FA_ENOTFOUND, "no GPU has proved");
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK(fa_kernel_answer(kernel)->driver_version != 0);
}

ENGINE_TEST(a_signed_proof_holds_only_for_the_bytes_that_it_was_about)
{
    fa_secret_key secret;
    struct made made;
    FA_ENDS(fa_winner_record_free) fa_winner_record left = {0};
    CHECK(take_made(&f, &made));
    CHECK_OK(fa_keys_secret(NULL, &secret, &diag), diag);
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
    free_made(&made);
}

ENGINE_TEST(a_dry_run_tells_all_and_changes_nothing_even_on_a_read_only_store)
{
    fa_buf before;
    fa_bundle_info info;
    struct made made;
    CHECK(take_made(&f, &made));
    CHECK(bundle_made(&made, 3));
    CHECK_INT(fa_buf_read_file(&before, f.store, 1 << 28), 0);
    CHECK_OK(import(&f, true, true, &info), diag);
    CHECK_INT(info.added, 2);
    CHECK_INT(info.kept, 1); /* its own is measured */
    CHECK(same_file(f.store, &before));
    CHECK_INT(winners_in(f.tuner), 2);
    fa_store_close(&f.tuner->store);
    CHECK_OK(fa_store_open(f.store, FA_STORE_READ_ONLY, NULL, &f.tuner->store, NULL, &diag), diag);
    CHECK_OK(import(&f, true, true, &info), diag);
    CHECK_INT(import(&f, true, false, &info), FA_EREADONLY);
    CHECK(same_file(f.store, &before));
    fa_buf_free(&before);
    free_made(&made);
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

ENGINE_TEST(a_system_bundle_answers_from_where_it_lies_and_the_own_store_comes_first)
{
    const fa_kernel *kernel;
    char list[1000];
    FA_ENDS(fa_free_at) void *bytes = NULL;
    size_t size;
    CHECK(open_place(&f));
    CHECK_OK(export_all(&f, false), diag);
    setenv("XDG_CONFIG_HOME", "/nowhere", 1); /* its signer is a stranger */
    snprintf(list, sizeof list, "/no/such/place::%s", f.directory);
    CHECK(session_with(&f, list));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_IMPORTED);
    CHECK(fa_kernel_answer(kernel)->driver_version > 0);
    CHECK_OK(fa_answer_cubin(f.tuner, fa_kernel_answer(kernel), &bytes, &size, &diag), diag);
    CHECK_INT(winners_in(f.tuner), 0); /* nothing was imported */
    CHECK_TEXT(noted, "");
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PATIENT, &kernel, &diag), diag);
    fa_close(&f.tuner);
    CHECK_OK(fixture_session(&f, &diag), diag);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_MEASURED);
}

ENGINE_TEST(a_system_bundle_that_others_can_write_or_that_is_damaged_is_noted_and_not_used)
{
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
    char *at = bytes.data; /* in each cubin */
    while ((at = memmem(at, bytes.size - (size_t)(at - bytes.data), "\177ELF", 4)) != NULL)
        *(at += 40) ^= 1;
    CHECK_OK(fa_output_write(bundle, bytes.data, bytes.size, &diag), diag);
    CHECK(session_with(&f, bundle));
    CHECK_INT(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag),
              FA_ENOTFOUND);
    CHECK_HAS(noted, "does not match its hash");
    fa_buf_free(&bytes);
}

/* Where one is not, an import says "predicted" in place of its time: see system/README.md. */
ENGINE_TEST(measured_winners_that_are_shipped_are_of_these_templates)
{
    FA_ENDS(fa_lines_free) fa_lines lines = {0};
    fa_tuner *tuner = NULL;
    int found[2] = {0}; /* by whether they hold */
    CHECK(fixture_open(&f, NULL));
    const fa_options options = {.size = sizeof options, .store = f.store};
    const fa_import_options shipped = {.file = bundle};
    snprintf(bundle, sizeof bundle, "%s/system/records.jsonl", getenv("FA_TEST_SOURCE"));
    CHECK_OK(fa_open(&options, &tuner, &diag), diag);
    CHECK_OK(fa_tuner_families(tuner, &diag), diag);
    CHECK_OK(fa_lines_read(&shipped, &lines, &diag), diag);
    for (size_t i = 0; i < lines.count; i++)
        if (lines.line[i].answer.origin == FA_ORIGIN_MEASURED)
            found[fa_record_holds(tuner, &lines.line[i].answer)]++;
    fa_close(&tuner);
    CHECK(found[0] == 0 && found[1] > 0);
}
