/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "buf.h"
#include "error.h"
#include "fa_problem.h"
#include "json.h"
#include "problem.h"

static const fa_problem plain = {
    .head_dim = 64, .batch = 4, .heads_q = 8, .heads_kv = 8, .seq_q = 512, .seq_k = 512};

/* What a caller does not name is 0 by the language's rules in what the view covers, and there alone. */
_Static_assert(offsetof(fa_problem, unused) + sizeof plain.unused ==
                   offsetof(fa_problem, value) + sizeof plain.value,
               "the view of attention's fields covers all values");

TEST(work_and_traffic_are_the_sums_that_the_file_lists)
{
    fa_problem p = {
        .head_dim = 64, .batch = 3, .heads_q = 8, .heads_kv = 2, .seq_q = 100, .seq_k = 300};
    CHECK(fa_problem_work(&p, "flops") == 4.0 * 3 * 8 * 64 * 100 * 300);
    CHECK(fa_problem_work(&p, "bytes") == 2.0 * 64 * (2 * 3 * 8 * 100 + 2 * 3 * 2 * 300));
    p.causal = FA_CAUSAL_TOP_LEFT;
    p.want_lse = true;
    CHECK(fa_problem_work(&p, "flops") == 2.0 * 3 * 8 * 64 * 100 * 300);
    CHECK(fa_problem_work(&p, "bytes") ==
          2.0 * 64 * (2 * 3 * 8 * 100 + 2 * 3 * 2 * 300) + 4.0 * 3 * 8 * 100);
}

static int parse_problem(const char *text, fa_diag *diag)
{
    FA_ENDS(fa_json_end) cJSON *json = NULL;
    fa_problem problem = plain;
    int rc = fa_json_parse(text, strlen(text), "test", &json, diag);
    if (rc == 0)
        rc = fa_problem_from_json(json, false, "*", &problem, diag);
    return rc;
}

TEST(hostile_json_problems_are_refused_with_a_sentence)
{
    fa_diag diag;
    CHECK_FAILS(parse_problem("{\"seq_q\": 2147483648}", &diag), FA_EINVAL, "seq_q");
    CHECK_INT(parse_problem("{\"seq_q\": 1.5}", &diag), FA_EINVAL);
    CHECK_INT(parse_problem("{\"seq_q\": \"512\"}", &diag), FA_EINVAL);
    CHECK_INT(parse_problem("{\"seq_q\": 1e400}", &diag), FA_EINVAL);
    CHECK_FAILS(parse_problem("{\"dtype\": \"fp8\"}", &diag), FA_EINVAL, "fp8");
    CHECK_INT(parse_problem("[]", &diag), FA_EINVAL);
    CHECK_INT(parse_problem("{\"seq_q\": 1} {}", &diag), FA_EINVAL);
    CHECK_FAILS(parse_problem("{\"seq_q\": 1, \"seq_q\": 2}", &diag), FA_EINVAL, "appears twice");
    CHECK_INT(parse_problem("{\"seq_q\":", &diag), FA_EINVAL);
    CHECK_INT(parse_problem("{\"seq_q\": 7}", &diag), 0);
}

/* Keys are compared in pairs, and a worker's message may hold a million. */
TEST(more_keys_than_any_document_needs_are_refused)
{
    fa_diag diag;
    cJSON *json = NULL;
    FA_ENDS(fa_buf_free) fa_buf many = {0};
    for (int i = 0; i <= 1024; i++)
        fa_buf_printf(&many, "%c\"k%d\":0", i == 0 ? '{' : ',', i);
    fa_buf_text(&many, "}");
    int rc = fa_json_parse(many.data, many.size, "test", &json, &diag);
    CHECK_FAILS(rc, FA_EINVAL, "1024 keys");
    CHECK(json == NULL);
}

TEST(configs_survive_json_and_hostile_names_do_not)
{
    fa_config a = {.family = "attn_fwd_sm80", .count = 2, .tunable = {{"M", 128}, {"N", -1}}};
    fa_config back;
    fa_diag diag;
    cJSON *json = fa_config_to_json(&a);
    CHECK_OK(fa_config_from_json(json, &back, &diag), diag);
    CHECK(fa_config_equal(&a, &back));
    cJSON_Delete(json);
    json = cJSON_Parse("{\"family\":\"f\",\"tunables\":{\"M; DROP TABLE\":1}}");
    CHECK_INT(fa_config_from_json(json, &back, &diag), FA_EINVAL);
    cJSON_Delete(json);
    json = cJSON_Parse("{\"family\":\"../f\",\"tunables\":{}}");
    CHECK_INT(fa_config_from_json(json, &back, &diag), FA_EINVAL);
    cJSON_Delete(json);
}

TEST(sentences_escape_control_bytes)
{
    fa_diag diag;
    fa_fail(&diag, FA_EIO, "name is \"%s\"", "a\x1b[31mb\nc");
    CHECK_TEXT(diag.text, "name is \"a\\x1b[31mb c\"");
    fa_fail(&diag, FA_EIO, "%s",
            "\xc2\x9b\x31m \xc3\x9b"); /* U+009B is a control byte, and a part of others */
    CHECK_TEXT(diag.text, "\\u009b1m \xc3\x9b");
    fa_fail(&diag, FA_EIO, "a%sb", "\xe2\x80\xae\xe2\x81\xa6\xe2\x80\x8f"); /* what reorders text */
    CHECK_TEXT(diag.text, "a\\u202e\\u2066\\u200fb");
    fa_fail(&diag, FA_EIO, "%s",
            "\xe2\x80\xa6 \xc2\xb5s \xe2\x80"); /* what does not, and a cut one */
    CHECK_TEXT(diag.text, "\xe2\x80\xa6 \xc2\xb5s \xe2\x80");
}

/* ---- buckets --------------------------------------------------------------------------------*/
static fa_problem of_lengths(int32_t seq_q, int32_t seq_k)
{
    return (fa_problem){
        .head_dim = 64, .batch = 3, .heads_q = 6, .heads_kv = 2, .seq_q = seq_q, .seq_k = seq_k};
}

/* Every length up to 70,000, then ever fewer up to the longest. */
static int32_t next_length(int32_t length)
{
    int64_t next = length < 70000 ? (int64_t)length + 1 : (int64_t)length + length / 997;
    return length == INT32_MAX ? -1 : next > INT32_MAX ? INT32_MAX : (int32_t)next;
}

TEST(a_bucket_is_its_own_bucket_and_longer_lengths_have_no_shorter_one)
{
    int32_t before = 0;
    int64_t buckets = 0;
    for (int32_t n = 0; n >= 0; n = next_length(n)) {
        int32_t bucket = fa_length_bucket(n, false);
        CHECK_INT(fa_length_bucket(bucket, false), bucket);
        CHECK(bucket >= before);
        buckets += bucket != before;
        before = bucket;
    }
    CHECK_INT(buckets, 16 + 8 * 27 - 1); /* 2^31 is no length */
}

TEST(a_length_and_its_bucket_differ_by_half_a_step_at_most)
{
    for (int32_t n = 1; n >= 0 && n < 1 << 30; n = next_length(n)) {
        double ratio = (double)fa_length_bucket(n, false) / n;
        CHECK(ratio <= 1.0607 && 1 / ratio <= 1.0607);
        if (n <= 16)
            CHECK_INT(fa_length_bucket(n, false), n);
        if (n >= 512)
            CHECK_INT(fa_length_bucket(n, false) % 64, 0);
    }
    CHECK(fa_length_bucket(INT32_MAX, false) > 1 << 30);
    static const int32_t buckets[][3] = {
        {512, false, 512},   {543, false, 512},   {544, false, 576}, {1919, false, 1920},
        {2172, false, 2048}, {2173, false, 2304}, {0, false, 0},     {1, true, 8},
        {130, true, 136},    {512, true, 512},    {1390, true, 1392}};
    for (size_t i = 0; i < sizeof buckets / sizeof *buckets; i++)
        CHECK_INT(fa_length_bucket(buckets[i][0], buckets[i][1] != 0), buckets[i][2]);
}

TEST(buckets_keep_what_a_mask_depends_on)
{
    for (int32_t q = 1; q < 3000; q += 7) {
        for (int32_t k = 0; k < 3000; k += 11) {
            fa_problem p = of_lengths(q, k), bucket = fa_problem_bucket(&p);
            CHECK(q != k || bucket.seq_q == bucket.seq_k);
            CHECK(q < k || bucket.seq_q >= bucket.seq_k);
            CHECK(q > k || bucket.seq_q <= bucket.seq_k);
            CHECK((q == 1) == (bucket.seq_q == 1) && (k == 0) == (bucket.seq_k == 0));
            CHECK(bucket.batch == 3 && bucket.heads_q == 6 && bucket.heads_kv == 2);
        }
    }
    fa_problem empty = of_lengths(0, 100);
    empty.batch = 0;
    fa_problem bucket = fa_problem_bucket(&empty);
    CHECK(bucket.batch == 1 && bucket.seq_q == 1 && bucket.seq_k == 104);
}

/* ---- tables of fields -----------------------------------------------------------------------*/
TEST(keys_and_json_of_attention_are_those_of_earlier_stores)
{
    fa_problem p = {.dtype = FA_BF16,
                    .causal = FA_CAUSAL_TOP_LEFT,
                    .layout = FA_BSHD,
                    .head_dim = 96,
                    .batch = 2,
                    .heads_q = 12,
                    .heads_kv = 4,
                    .seq_q = 17,
                    .seq_k = 1023,
                    .want_lse = 1,
                    .unaligned = 1};
    char key[FA_PROBLEM_KEY_MAX];
    fa_problem_key(&plain, key);
    CHECK_TEXT(key,
               "attn_fwd fp16 causal=none bhsd d=64 b=4 hq=8 hkv=8 sq=512 sk=512 lse=0 aligned=1");
    fa_problem_key(&p, key);
    CHECK_TEXT(key, "attn_fwd bf16 causal=top-left bshd d=96 b=2 hq=12 hkv=4 sq=17 sk=1023 lse=1 "
                    "aligned=0");
    fa_problem_shape(&p, key);
    CHECK_TEXT(key, "attn_fwd bf16 causal=top-left bshd d=96 b=2 hq=12 hkv=4 lse=1 aligned=0");
    FA_ENDS(fa_json_end) cJSON *json = fa_problem_to_json(&p);
    char *text = cJSON_PrintUnformatted(json);
    CHECK_TEXT(text,
               "{\"operation\":\"attn_fwd\",\"dtype\":\"bf16\",\"causal\":\"top-left\","
               "\"layout\":\"bshd\",\"head_dim\":96,\"batch\":2,\"heads_q\":12,\"heads_kv\":4,"
               "\"seq_q\":17,\"seq_k\":1023,\"lse\":true,\"unaligned\":true}");
    cJSON_free(text);
}

#define MEMBER(name) {#name, offsetof(fa_problem, name)},
#define VIEW(X)                                                                             \
    X(dtype)                                                                                \
    X(causal)                                                                               \
    X(layout)                                                                               \
    X(head_dim)                                                                             \
    X(batch)                                                                                \
    X(heads_q)                                                                              \
    X(heads_kv) X(seq_q) X(seq_k) X(want_lse) X(unaligned) X(varlen) X(lengths_k) X(page)   \
        X(window) X(window_left) X(window_right) X(softcap) X(sinks) X(kv_dtype)            \
            X(batch_invariant) X(mean_q) X(mean_k) X(head_dim_v) X(v_in_k) X(score) X(mask) \
                X(q_dtype) X(buffers)

TEST(the_typed_view_of_a_problem_lies_over_the_fields_of_its_table)
{
    static const struct {
        const char *name;
        size_t at;
    } members[] = {VIEW(MEMBER)};
    const fa_operation *attention = fa_operation_of(NULL);
    CHECK_INT(attention->field_count, (long long)(sizeof members / sizeof *members));
    CHECK_INT(sizeof(fa_problem), sizeof(void *) + FA_PROBLEM_VALUES * sizeof(int32_t));
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const bool wants = strncmp(members[i].name, "want_", 5) == 0;
        CHECK_TEXT(attention->field[i].name, members[i].name + (wants ? 5 : 0));
        CHECK_INT(members[i].at, offsetof(fa_problem, value) + i * sizeof(int32_t));
    }
}

static const char row_sum[] = "{\"name\":\"row_sum\",\"title\":\"sum of rows\",\"sizes\":{"
                              "\"dtype\":{\"choices\":[\"fp16\",\"fp32\"],\"key\":\"\"},"
                              "\"rows\":{\"length\":true,\"nonempty\":true,\"default\":7},"
                              "\"columns\":{\"min\":1,\"max\":4096,\"follows\":\"rows\"},"
                              "\"mean\":{\"default\":false,\"optional\":true}}}";

/* Registers row_sum. */
TEST(callers_set_and_get_fields_by_their_names)
{
    const fa_operation *sum = NULL;
    fa_problem p, back;
    fa_diag diag;
    FA_ENDS(fa_free_at) char *json = NULL;
    fa_field_info info = {.size = sizeof info};
    CHECK_OK(fa_operation_register(row_sum, strlen(row_sum), "test", &sum, &diag), diag);
    CHECK_OK(fa_find_operation("row_sum", &sum, &diag), diag);
    CHECK_INT(fa_make_problem(sum, &p), 0);
    CHECK_OK(fa_set_field(&p, "dtype", "fp32", &diag), diag);
    CHECK_OK(fa_set_field(&p, "rows", "99", &diag), diag);
    CHECK_OK(fa_set_field(&p, "mean", "true", &diag), diag);
    CHECK_OK(fa_problem_write(&p, &json, &diag), diag);
    CHECK_TEXT(json, "{\"operation\":\"row_sum\",\"dtype\":\"fp32\",\"rows\":99,\"columns\":7,"
                     "\"mean\":true}");
    CHECK_OK(fa_problem_read(json, strlen(json), &back, &diag), diag);
    CHECK(fa_problem_equal(&p, &back));
    CHECK_INT(fa_operation_field(sum, 0, &info), 0);
    CHECK_TEXT(info.choices[1], "fp32");
    CHECK_INT(fa_operation_field(sum, 4, &info), FA_ENOTFOUND);
    static const char *const bad[][2] = {{"dtype", "fp8"},    {"rows", "-1"},  {"rows", "1x"},
                                         {"rows", ""},        {"mean", "2"},   {"mean", NULL},
                                         {"columns", "4097"}, {"height", "1"}, {NULL, "1"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_INT(fa_set_field(&p, bad[i][0], bad[i][1], &diag), FA_EINVAL);
    CHECK(fa_problem_equal(&p, &back));
    char name[FA_NAME_MAX];
    CHECK_OK(fa_spec_name(NULL, name, sizeof name, &diag), diag);
    CHECK_TEXT(name, "attn_fwd");
}

/* Registers the document with the first place of `from` as `to`. */
static int change(const char *document, const char *from, const char *to,
                  const fa_operation **ret_operation, fa_diag *diag)
{
    char text[2048];
    const char *at = strstr(document, from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - document), document, to, at + strlen(from));
    return fa_operation_register(text, strlen(text), "test", ret_operation, diag);
}

TEST(tables_that_are_not_valid_are_refused_with_a_sentence)
{
    static const struct {
        const char *from, *to, *sentence;
    } bad[] = {
        {"4096", "4095", "test: operation row_sum is known with another \"sizes\""},
        {"row_sum", "row-sum", "test: \"name\" must be an identifier"},
        {"\"optional\":true", "\"shown_as\":\"flag\"",
         "test: sizes mean: there is no shown_as \"flag\": use value, nonzero or not"},
        {"\"rows\"", "\"dtype\"", "sizes dtype appears twice"},
        {"\"follows\":\"rows\"", "\"follows\":\"mean\"", "\"follows\" must name an earlier field"},
        {"\"optional\"", "\"optinal\"",
         "sizes mean: the key \"optinal\" is unknown: did you mean \"optional\"?"},
        {"\"sizes\"", "\"tolerance\":{\"absolut\":1},\"sizes\"",
         "test: \"tolerance\": the key \"absolut\" is unknown: did you mean \"absolute\"?"},
        {"\"sizes\"", "\"tolerance\":[2],\"sizes\"", "\"tolerance\" must be an object"},
        {"\"sizes\"", "\"strategy\":\"random\",\"sizes\"", "test: the key \"strategy\" is unknown"},
        {"\"sizes\"", "\"arguments\":[{\"shap\":[]}],\"sizes\"",
         "test: arguments[0]: the key \"shap\" is unknown: did you mean \"shape\"?"},
        {"\"sizes\"", "\"shorthands\":[{\"opt\":\"--x\"}],\"sizes\"", "\"option\" is missing"},
        {"\"sizes\"", "\"shorthands\":[{\"option\":\"--x\"}],\"sizes\"", "\"help\" is missing"},
        {"\"sizes\"",
         "\"shorthands\":[{\"option\":\"--x\",\"help\":\"x\",\"set\":{\"a\":1}}],\"sizes\"",
         "\"set\" takes texts"},
        {"\"default\":7", "\"default\":-1", "sizes rows: its default is -1: use 0 to"},
        {"\"max\":4096", "\"max\":0", "the range is empty"},
        {"[\"fp16\",\"fp32\"]", "[]", "\"choices\" must be 1 to 16 names"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fa_diag diag;
        const fa_operation *operation;
        CHECK_FAILS(change(row_sum, bad[i].from, bad[i].to, &operation, &diag), FA_EINVAL,
                    bad[i].sentence);
    }
}

TEST(what_kernels_read_tells_whether_tensor_cores_are_a_ceiling)
{
    static const char scaled[] = "{\"name\":\"scaled\",\"title\":\"scaled\",\"sizes\":{\"type\":{"
                                 "\"choices\":[\"fp16\",\"fp32\"]},\"n\":1},"
                                 "\"arguments\":[{\"name\":\"x\",\"type\":\"type\",\"shape\":[]},"
                                 "{\"name\":\"statistics\",\"type\":\"fp32\",\"shape\":[]},"
                                 "{\"name\":\"y\",\"type\":\"fp32\",\"shape\":[],\"is\":\"out\"}]}";
    const fa_operation *operation = NULL;
    fa_diag diag;
    CHECK_OK(fa_operation_register(scaled, sizeof scaled - 1, "test", &operation, &diag), diag);
    fa_problem p = {.operation = operation};
    CHECK(!fa_problem_reads_fp32(&p) && !fa_problem_reads_fp32(&plain));
    p.value[0] = 1;
    CHECK(fa_problem_reads_fp32(&p));
}

/* Kernels of both would be passed and proved as the first one says. */
TEST(an_operation_of_a_known_name_differs_in_words_alone)
{
    static const char row_max[] =
        "{\"name\":\"row_max\",\"title\":\"maximum of rows\",\"reference\":\"row_max.cu\","
        "\"sizes\":{\"rows\":{}},\"flops\":\"2\","
        "\"bytes\":\"4\",\"arguments\":[{\"name\":\"x\",\"type\":\"fp32\",\"shape\":[]},"
        "{\"name\":\"floor\",\"value\":1}],\"tolerance\":{\"ulps\":2}}";
    static const struct {
        const char *from, *to, *sentence;
    } changes[] = {
        {"ulps\":2", "ulps\":1000", "operation row_max is known with another \"tolerance\": give"},
        {",\"tolerance\":{\"ulps\":2}", "", "known with another \"tolerance\""},
        {"fp32", "fp16", "known with another \"arguments\""},
        {"\"value\":1", "\"value\":2", "known with another \"arguments\""},
        {"row_max.cu", "row_min.cu", "known with another \"reference\""},
        {"\"2\"", "\"3\"", "known with another \"flops\""},
        {"\"4\"", "\"8\"", "known with another \"bytes\""},
        {"\"2\"", "[[2,\"rows\"]]", "\"flops\" must be a string"},
        {"maximum of", "largest of", NULL},
    };
    const fa_operation *first = NULL, *again = NULL;
    fa_diag diag;
    CHECK_OK(fa_operation_register(row_max, sizeof row_max - 1, "test", &first, &diag), diag);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        int rc = change(row_max, changes[i].from, changes[i].to, &again, &diag);
        CHECK_INT(rc, changes[i].sentence != NULL ? FA_EINVAL : 0);
        if (changes[i].sentence != NULL)
            CHECK_HAS(diag.text, changes[i].sentence);
    }
    CHECK(again == first);
}

TEST(what_serving_asks_for_joins_the_key_and_the_json_and_goes_both_ways)
{
    fa_problem p = plain, back = {0};
    char key[FA_PROBLEM_KEY_MAX];
    FA_ENDS(fa_buf_free) fa_buf words = {0};
    fa_diag diag;
    p.lengths_k = FA_LENGTHS_SEQUSED;
    p.page = 64;
    p.window = 1;
    p.window_left = -1;
    p.mean_k = 300;
    fa_problem bucket = fa_problem_bucket(&p);
    CHECK_INT(bucket.mean_k, 288);
    fa_problem_key(&p, key);
    CHECK_HAS(key, " aligned=1 lk=seqused page=64 window=1 wl=-1 mk=300");
    fa_problem_shape(&p, key);
    CHECK(strstr(key, "mk=") == NULL);
    fa_problem_words(&words, &p, " ", false);
    CHECK_HAS(words.data, "lengths of keys seqused");
    FA_ENDS(fa_json_end) cJSON *json = fa_problem_to_json(&p);
    CHECK_OK(fa_problem_from_json(json, true, NULL, &back, &diag), diag);
    CHECK(fa_problem_equal(&p, &back));
    p.mean_k = p.seq_k + 1;
    CHECK_FAILS(fa_problem_check(&p, &diag), FA_EINVAL, ": use at most seq_k, which is ");
    p.mean_k = p.seq_k;
    CHECK_OK(fa_problem_check(&p, &diag), diag);
    p.window = 0;
    CHECK_FAILS(fa_problem_check(&p, &diag), FA_EINVAL,
                "window_left is -1, which needs window: set");
    p.window = 1;
    p.causal = FA_CAUSAL_TOP_LEFT;
    CHECK_FAILS(fa_problem_check(&p, &diag), FA_EINVAL,
                "lengths_k does not go with causal=top-left");
}

TEST(a_problem_of_an_operation_that_is_not_known_is_no_mistake_of_its_text)
{
    fa_diag diag;
    CHECK_FAILS(parse_problem("{\"operation\": \"conv\"}", &diag), FA_ENOTSUP,
                "problem: operation \"conv\" is not known: use attn_bwd, attn_fwd");
}

/* Their keys are looked at here, and not in every process. */
TEST(built_in_documents_are_what_their_files_say_and_can_be_read)
{
    for (int i = 0; i < fa_operations_builtin_count; i++) {
        char path[512];
        fa_buf text = {0};
        fa_diag diag = {{0}};
        cJSON *file = NULL;
        const fa_operation *operation = NULL;
        fa_operation *read = NULL;
        snprintf(path, sizeof path, "%s/../%s", getenv("FA_TEST_TEMPLATES"),
                 fa_operations_builtin[i].where);
        CHECK_INT(fa_buf_read_file(&text, path, 1 << 20), 0);
        CHECK_OK(fa_json_parse(text.data, text.size, path, &file, &diag), diag);
        CHECK_OK(fa_operation_make(file, file, path, &read, &diag), diag);
        CHECK_OK(fa_operation_find(read->name, &operation, &diag), diag);
        CHECK_INT(read->field_count, operation->field_count);
        char *here = cJSON_Print(file), *built_in = cJSON_Print(operation->document);
        CHECK(here != NULL && built_in != NULL);
        CHECK_TEXT(built_in, here);
        free(here);
        free(built_in);
        fa_operation_free(&read);
        fa_buf_free(&text);
    }
}
