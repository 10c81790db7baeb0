/* SPDX-License-Identifier: Apache-2.0
 *
 * System bundles, which answer from where they lie, and the keys that bundles are believed by.
 */
#include "bundle_fixture.h"

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
    char *at = bytes.data; /* in each cubin */
    while ((at = memmem(at, bytes.size - (size_t)(at - bytes.data), "\177ELF", 4)) != NULL)
        *(at += 40) ^= 1;
    CHECK_OK(fa_output_write(bundle, bytes.data, bytes.size, &diag), diag);
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

static void check_comments_stay(const char *path, const char *key)
{
#define OTHER "cd00000000000000000000000000000000000000000000000000000000000002"
    char before[600];
    fa_buf text;
    snprintf(before, sizeof before, "# Monday\n\n%s lab\n#gone: " OTHER "\n# no newline", key);
    CHECK(write_text(path, before));
    CHECK_OK(fa_trust_add(key, "the lab", &diag), diag);
    CHECK_OK(fa_trust_add(OTHER, NULL, &diag), diag);
    CHECK_OK(fa_trust_remove("the lab", &diag), diag);
    CHECK_INT(fa_buf_read_file(&text, path, 1000), 0);
    CHECK_TEXT(text.data, "# Monday\n\n#gone: " OTHER "\n# no newline\n" OTHER "\n");
    fa_buf_free(&text);
#undef OTHER
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
    snprintf(path, sizeof path, "%s/fa-tune/trusted-keys", directory);
    check_comments_stay(path, lower);
    /* Somebody else could have written the list. */
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
    TEST(a_system_bundle_answers_from_where_it_lies_and_the_own_store_comes_first);
    TEST(a_system_bundle_that_others_can_write_or_that_is_damaged_is_noted_and_not_used);
    TEST(keys_are_listed_renamed_removed_and_never_written_over);
    return check_done();
}
