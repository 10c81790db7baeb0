/* SPDX-License-Identifier: Apache-2.0
 *
 * Baselines: a file of JSON lines from anybody, taken wholly or refused with the numbers of its lines. Values of other
 * tuners, and who makes one.
 */
#include "engine_fixture.h"

static char folder[256], store[300], file[300];
static fa_tuner *tuner;

static fa_tuner *session(void)
{
    fa_options options = {.size = sizeof options, .store = store};
    fa_tuner *opened = NULL;
    return fa_open(&options, &opened, &diag) == 0 ? opened : NULL;
}

/* Each with a store of its own. */
static void within_folder(void (*test)(void))
{
    check_make_folder(folder, NULL);
    snprintf(store, sizeof store, "%s/store.db", folder);
    snprintf(file, sizeof file, "%s/lines", folder);
    tuner = session();
    CHECK(tuner != NULL);
    test();
    fa_close(&tuner);
    check_remove_folder(folder);
}
#define OWN_TEST(name) TEST_WITHIN(within_folder, name)

#define PROBLEM                                                                              \
    "\"problem\":{\"dtype\":\"bf16\",\"causal\":\"top-left\",\"head_dim\":64,\"batch\":1,"      \
    "\"heads_q\":2,\"heads_kv\":2,\"seq_q\":128,\"seq_k\":128}"
#define NAMES "\"gpu\":\"NVIDIA H200\",\"peer\":\"pytorch-fa2\""
static const char good_line[] =
    "{" NAMES "," PROBLEM ",\"median_us\":41.5,\"low_us\":41,\"high_us\":42.5,\"sample_count\":50,"
    "\"unix_time\":1760000000,\"source\":\"PyTorch 2.11\",\"unheard\":[1]}";

struct seen {
    int count;
    fa_baseline last;
};

static struct seen seen_now(void)
{
    struct seen seen = {0};
    FA_ENDS(fa_free_at) fa_baseline *baseline = NULL;
    size_t count = 0;
    seen.count = fa_list_baselines(tuner, &baseline, &count, NULL) == 0 ? (int)count : -1;
    if (count > 0)
        seen.last = baseline[count - 1];
    return seen;
}

static int import(int32_t *ret_count)
{
    const fa_import_options options = {.size = sizeof options, .file = file};
    fa_bundle_info info;
    int rc = fa_import(tuner, &options, &info, &diag);
    if (rc == 0)
        *ret_count = info.baselines;
    return rc;
}

OWN_TEST(a_baseline_comes_back_as_it_was_written)
{
    char text[2000];
    int32_t count = -1;
    int before = seen_now().count;
    snprintf(text, sizeof text, "%s\r\n  \r\n\n", good_line);
    CHECK(write_text(file, text));
    CHECK_OK(import(&count), diag);
    CHECK_INT(count, 1);
    fa_close(&tuner);
    tuner = session();
    struct seen seen = seen_now();
    CHECK_INT(seen.count, before + 1);
    CHECK_TEXT(seen.last.gpu_name, "H200"); /* the catalogue's name of it */
    CHECK_TEXT(seen.last.peer, "pytorch-fa2");
    CHECK_TEXT(seen.last.source, "PyTorch 2.11");
    CHECK(seen.last.median_us == 41.5 && seen.last.low_us == 41 && seen.last.high_us == 42.5);
    CHECK_INT(seen.last.sample_count, 50);
    CHECK_INT(seen.last.unix_time, 1760000000);
    CHECK_INT(seen.last.problem.dtype, FA_BF16);
    CHECK_INT(seen.last.problem.causal, FA_CAUSAL_TOP_LEFT);
    CHECK_INT(seen.last.problem.heads_q, 2);
}

OWN_TEST(what_may_be_left_out_is_and_a_later_line_replaces_an_earlier_one)
{
    int32_t count = -1;
    CHECK(write_text(file, "{" NAMES "," PROBLEM ",\"median_us\":9}\n"
                           "{" NAMES "," PROBLEM ",\"median_us\":7}"));
    CHECK_OK(import(&count), diag);
    CHECK_INT(count, 2);
    struct seen seen = seen_now();
    CHECK_INT(seen.count, 1);
    CHECK(seen.last.median_us == 7 && seen.last.low_us == 0 && seen.last.high_us == 0);
    CHECK_TEXT(seen.last.source, "");
    CHECK(seen.last.unix_time > 1760000000);
    fa_close(&tuner);
}

/* Each is a second line behind a good one; none may leave anything in the store. */
OWN_TEST(a_bad_line_is_named_and_nothing_is_taken)
{
    static const struct {
        const char *line, *part;
    } table[] = {
        {"[1]", "must be a JSON object"},
        {"{", "not valid JSON"},
        {"{" NAMES "," PROBLEM ",\"median_us\":1} x", "text after"},
        {"{\"peer\":\"a\"," PROBLEM ",\"median_us\":1}", "\"gpu\" is missing"},
        {"{\"gpu\":\"\",\"peer\":\"a\"," PROBLEM ",\"median_us\":1}", "empty"},
        {"{\"gpu\":\"L4\\u001b[31m\",\"peer\":\"a\"," PROBLEM ",\"median_us\":1}", "printable"},
        {"{\"gpu\":\"L4\",\"peer\":\"a b\"," PROBLEM ",\"median_us\":1}", "letters, digits"},
        {"{\"gpu\":\"L4\",\"peer\":\"\"," PROBLEM ",\"median_us\":1}", "letters, digits"},
        {"{\"gpu\":\"L4\",\"peer\":7," PROBLEM ",\"median_us\":1}", "must be a string"},
        {"{\"gpu\":\"L4\",\"peer\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"," PROBLEM
         ",\"median_us\":1}",
         "longer than 31"},
        {"{" NAMES "," PROBLEM ",\"median_us\":1,\"source\":\"a\\u0007\"}", "printable"},
        {"{" NAMES "," PROBLEM "}", "\"median_us\" is missing"},
        {"{" NAMES "," PROBLEM ",\"median_us\":0}", "above 0"},
        {"{" NAMES "," PROBLEM ",\"median_us\":-4}", "above 0"},
        {"{" NAMES "," PROBLEM ",\"median_us\":1e400}", "median_us"},
        {"{" NAMES "," PROBLEM ",\"median_us\":NaN}", "not valid JSON"},
        {"{" NAMES "," PROBLEM ",\"median_us\":\"1\"}", "must be a number"},
        {"{" NAMES "," PROBLEM ",\"median_us\":1,\"low_us\":2,\"high_us\":3}", "in its interval"},
        {"{" NAMES "," PROBLEM ",\"median_us\":1,\"low_us\":0.5}", "in its interval"},
        {"{" NAMES "," PROBLEM ",\"median_us\":1,\"matmul_tflops\":-1}", "matmul_tflops"},
        {"{" NAMES "," PROBLEM ",\"median_us\":1,\"matmul_tflops\":1e9}", "matmul_tflops"},
        {"{" NAMES "," PROBLEM ",\"median_us\":1,\"sample_count\":-1}", "sample_count"},
        {"{" NAMES "," PROBLEM ",\"median_us\":1,\"unix_time\":1.5}", "whole number"},
        {"{" NAMES ",\"median_us\":1}", "\"problem\" is missing"},
        {"{" NAMES "," PROBLEM ",\"median_us\":1,\"dry_run\":true}", "made up"},
        {"{" NAMES "," PROBLEM ",\"median_us\":1,\"dry_run\":1}", "must be true or false"},
        {"{" NAMES ",\"median_us\":1,\"problem\":3}", "must be an object"},
        {"{" NAMES ",\"median_us\":1,\"problem\":{\"head_dim\":64}}", "batch"},
        {"{" NAMES ",\"median_us\":1," PROBLEM "," PROBLEM "}", "appears twice"},
        {"{" NAMES ",\"median_us\":1,\"problem\":{\"batch\":1,\"heads_q\":8,\"seq_q\":512,"
         "\"head_dim\":64,\"x\":1,\"seq_q\":1024}}",
         "\"seq_q\" appears twice"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[4000];
        int32_t count = -1;
        snprintf(text, sizeof text, "%s\n%s\n", good_line, table[i].line);
        CHECK(write_text(file, text));
        CHECK_INT(import(&count), FA_ECORRUPT);
        CHECK_INT(count, -1);
        CHECK_HAS(diag.text, "line 2");
        CHECK_HAS(diag.text, table[i].part);
        CHECK_HAS(diag.text, file);
        CHECK(strchr(diag.text, '\x1b') == NULL);
        CHECK_INT(seen_now().count, 0);
    }
}

OWN_TEST(a_baseline_concerns_the_same_computation_on_the_same_gpu_type)
{
    fa_baseline b = {.problem = {.causal = FA_CAUSAL_TOP_LEFT, .head_dim = 64, .batch = 1,
                                 .heads_q = 2, .heads_kv = 2, .seq_q = 128, .seq_k = 128},
                     .gpu_name = "H200"};
    fa_answer a = {.problem = b.problem, .gpu = {.name = "NVIDIA H200"}};
    CHECK(fa_baseline_concerns(&b, &a));
    a.problem.causal = FA_CAUSAL_BOTTOM_RIGHT;
    CHECK(!fa_baseline_concerns(&b, &a));
    a.problem.causal = FA_CAUSAL_TOP_LEFT;
    a.problem.want_lse = true;
    CHECK(!fa_baseline_concerns(&b, &a));
    a.problem = b.problem;
    snprintf(a.gpu.name, sizeof a.gpu.name, "NVIDIA L4");
    CHECK(!fa_baseline_concerns(&b, &a));
}

/* ---- values of other tuners -------------------------------------------------------------------*/
/* What a look for the key returns, and whether the value is this one. */
static int look(fa_tuner *by, const char *key, bool hold, const char *value)
{
    FA_ENDS(fa_free_at) fa_kept *kept = NULL;
    size_t count = 0;
    int rc = fa_list_kept(by, key, hold, &kept, &count, &diag);
    if (rc == 0 && (count != 1 || kept->size != (int64_t)strlen(value) ||
                    memcmp(kept->bytes, value, strlen(value)) != 0))
        rc = 1;
    return rc;
}

OWN_TEST(of_two_tuners_one_makes_a_value)
{
    fa_tuner *one = tuner, *two = session();
    CHECK(two != NULL);
    fa_kept value = {.key = "k", .tuner = "triton", .name = "n", .gpu = "g", .made = "{}"};
    CHECK_INT(look(one, "k", false, ""), FA_ENOTFOUND);
    CHECK_INT(look(one, "k", true, ""), FA_ENOTFOUND);
    CHECK_INT(look(two, "k", true, ""), FA_EBUSY);
    CHECK_INT(look(one, "k", true, ""), FA_EBUSY); /* as another thread of its process */
    CHECK_INT(look(two, "k", false, ""), FA_ENOTFOUND);
    CHECK_INT(look(one, "k", false, ""), FA_ENOTFOUND); /* lets go */
    CHECK_INT(look(two, "k", true, ""), FA_ENOTFOUND);
    CHECK_INT(look(two, "other", true, ""), FA_ENOTFOUND);
    value.bytes = "value";
    value.size = 5;
    CHECK_OK(fa_keep(two, &value, &diag), diag);
    CHECK_INT(look(one, "k", true, "value"), 0);
    CHECK_INT(look(one, "other", true, ""), FA_EBUSY);
    fa_close(&two); /* and so does this */
    CHECK_INT(look(one, "other", true, ""), FA_ENOTFOUND);
    value.bytes = NULL;
    CHECK_OK(fa_keep(one, &value, &diag), diag);
    CHECK_INT(look(one, "k", false, ""), FA_ENOTFOUND);
    const char *const bad[] = {"", "a b", "../k", NULL,
                               "0123456789012345678901234567890123456789012345678901234567890123x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        value.key = bad[i];
        CHECK_FAILS(fa_keep(one, &value, &diag), FA_EINVAL, "letters");
    }
    value = (fa_kept){.key = "k", .tuner = "t", .bytes = "b"};
    CHECK_INT(fa_keep(one, &value, &diag), FA_EINVAL);
}
