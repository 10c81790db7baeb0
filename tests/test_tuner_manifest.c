/* SPDX-License-Identifier: Apache-2.0
 *
 * Manifests as hostile input: what is refused, and in which words.
 */
#include "family.h"
#include "tuner_fixture.h"

#define RULE(text) "[{" text "}]"
#define TRUE(why) "\"require\": \"1\", \"why\": \"" why "\""

/* Loading this manifest fails as FA_EMANIFEST with these parts in its sentence. */
static bool refused(const manifest_parts *parts, const char *one, const char *two)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    int rc = fixture_load(&f, parts, &diag);
    bool ok = rc == FA_EMANIFEST && strstr(diag.text, one) != NULL &&
              strstr(diag.text, two) != NULL && strstr(diag.text, "small.json") != NULL;
    if (!ok)
        printf("# rc %d: \"%s\" should hold \"%s\" and \"%s\"\n", rc, diag.text, one, two);
    fixture_free(&f);
    return ok;
}

/* As an expression of a let. */
static bool expression_refused(const char *expression, const char *sentence)
{
    char lets[5000];
    snprintf(lets, sizeof lets, "{\"ROW\": \"HEAD_DIM * 2\", \"X\": \"%s\"}", expression);
    return refused(&(manifest_parts){.lets = lets}, "defines X", sentence);
}

static void a_right_manifest_loads(void)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    int rc = fixture_load(&f, &(manifest_parts){0}, &diag);
    int count = f.families.count;
    char name[80] = "";
    if (count == 1)
        snprintf(name, sizeof name, "%s %s %s|", f.families.family[0]->name,
                 f.families.family[0]->launch[0].entry, f.families.family[0]->arch_suffix);
    fixture_free(&f);
    CHECK_OK(rc, diag);
    CHECK_INT(count, 1);
    CHECK_TEXT(name, "small kernel |");
}

static void built_in_families_load(void)
{
    fa_diag diag = {{0}};
    fa_templates *templates = NULL;
    fa_family_list list = {0};
    CHECK_OK(fa_templates_open(NULL, &templates, &diag), diag);
    int rc = fa_families_load(templates, "attn_fwd", &list, &diag);
    int count = list.count;
    fa_families_free(&list);
    fa_templates_close(&templates);
    CHECK_OK(rc, diag);
    CHECK(count >= 2);
    CHECK(templates == NULL && list.family == NULL);
}

static void lets_may_stand_in_any_order(void)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    fa_space space = {0};
    int rc = fixture_load(&f,
                          &(manifest_parts){.lets = "{\"C\": \"B + BLOCK_M\", \"B\": \"ROW + 1\","
                                                    "\"ROW\": \"HEAD_DIM * 2\"}"},
                          &diag);
    if (rc == 0)
        rc = fa_space_enumerate(&(fa_task){&f.families, &problem_512, &gpu_a100}, &space, &diag);
    fa_candidate first = rc == 0 ? space.candidate[0] : (fa_candidate){0};
    fa_space_free(&space);
    fixture_free(&f);
    CHECK_OK(rc, diag);
    CHECK_INT(first.let_count, 3);
    CHECK_TEXT(first.let[0].name, "C");
    CHECK_INT(first.let[0].value, 64 * 2 + 1 + 64);
    CHECK_INT(first.let[1].value, 129);
    CHECK_INT(first.let[2].value, 128);
}

/* Doubling lets would grow to 2^23 copies if they were pasted into one another. */
static void a_chain_of_doubling_lets_costs_no_more_than_its_length(void)
{
    char lets[2000] = "{\"ROW\": \"HEAD_DIM / 64\"";
    for (int i = 0; i < 23; i++) {
        char one[64], from[16] = "ROW";
        if (i > 0)
            snprintf(from, sizeof from, "L%d", i - 1);
        snprintf(one, sizeof one, ", \"L%d\": \"%s + %s\"", i, from, from);
        strcat(lets, one);
    }
    strcat(lets, "}");
    tuner_fixture f;
    fa_diag diag = {{0}};
    fa_space space = {0};
    int rc = fixture_load(&f,
                          &(manifest_parts){.lets = lets,
                                            .preset = "{\"BLOCK_M\": 64, "
                                                      "\"BLOCK_N\": 64}"},
                          &diag);
    if (rc == 0)
        rc = fa_space_enumerate(&(fa_task){&f.families, &problem_512, &gpu_a100}, &space, &diag);
    int32_t last = rc == 0 ? space.candidate[0].let[23].value : 0;
    fa_space_free(&space);
    fixture_free(&f);
    CHECK_OK(rc, diag);
    CHECK_INT(last, 1 << 23);
}

/* Lines are of the fixture's text: the third has the tunables, the fifth the restrictions. */
static void what_is_wrong_with_a_manifest_is_named(void)
{
    static const struct {
        manifest_parts parts;
        const char *one, *two;
    } wrong[] = {
        {{.lets = "{\"ROW\": \"A\", \"A\": \"B + 1\", \"B\": \"A * 2\"}"},
         "circle",
         "A needs B needs A"},
        {{.lets = "{\"ROW\": \"ROW\"}"}, "circle", "ROW needs ROW"},
        {{.lets = "7"}, "defines", "object"},
        {{.threads = "\"WARPS * 32\""}, "block", "unknown name WARPS"},
        {{.threads = "1.5"}, "block", "integer"},
        {{.threads = "null"}, "block", "missing"},
        {{.memory = "{\"q\": \"BLOCK_M * D_TILE\"}"}, "shared_memory q", "unknown name D_TILE"},
        {{.memory = "{\"Q\": 1}"}, "shared_memory", "\"Q\""},
        {{.memory = "{\"q\": 1, \"q\": 2}"}, "shared_memory", "twice"},
        {{.grid = "[1, 1, 1, 1]"}, "grid", "three"},
        {{.extra = ", \"run_time\": \"BLOCK_N\""}, "\"run_time\"", "an array"},
        {{.extra = ", \"run_time\": [1]"}, "\"run_time\"", "names"},
        {{.extra = ", \"run_time\": [\"ROW\"]"}, "\"ROW\"", "no tunable"},
        {{.extra = ", \"run_time\": [\"BLOCK_N\", \"BLOCK_N\"]"}, "\"BLOCK_N\"", "twice"},
        {{.extra = ", \"run_time\": [\"BLOCK_M\"]"}, "block", "\"run_time\""},
        {{.threads = "\"ROW\"",
          .lets = "{\"ROW\": \"BLOCK_N * 2\"}",
          .extra = ", \"run_time\": [\"BLOCK_N\"]"},
         "block",
         "\"run_time\""},
        {{.extra = ",\n\"smem\": 1"}, "small.json:8: ", "\"smem\""},
        {{.extra = ", \"workspac\": 1"}, "\"workspac\"", "did you mean \"workspace\"?"},
        {{.extra = ", \"takes\": \"page\""}, "\"takes\" must be an array", ""},
        {{.extra = ", \"takes\": [1]"}, "\"\" is no feature of attn_fwd", ""},
        {{.extra = ", \"takes\": [\"head_dim\"]"}, "\"head_dim\" is no feature of attn_fwd", ""},
        {{.extra = ", \"beside_specific\": 1"}, "\"beside_specific\" must be true or false", ""},
        {{.extra = ", \"workspace\": \"PAGE_SIZE\""}, "PAGE_SIZE", ""}, /* it does not take pages */
        {{.extra = ", \"splits\": \"+\""}, "splits", ""},
        {{.preset = "{\"BLOCK_M\": 64}"}, "default BLOCK_N", "missing"},
        {{.preset = "{\"BLOCK_M\": 64, \"BLOCK_N\": 64, \"STAGES\": 2}"}, "\"STAGES\"", "unknown"},
        {{.lets = "{\"ROW\": \"HEAD_DIM + BLOCK_M\"}"}, "default BLOCK_N", "reads a tunable"},
        {{.sm = "{\"min\": 80, \"max\": 90, \"only\": 1}"}, "\"only\"", "unknown"},
        {{.sm = "{\"min\": 80}"}, "\"sm\"", "min and max"},
        {{.sm = "{\"min\": \"80\", \"max\": 90}"}, "min", "number"},
        {{.sm = "{\"min\": 90, \"max\": 80}"}, "max", "90 to 999"},
        {{.constraints = "[\"1\",\n\"1 +\"]"}, "small.json:6: restrictions[1]", ""},
        {{.constraints = RULE("\"why\": \"x\"")}, "restrictions[0]", "an expression"},
        {{.constraints = RULE(TRUE("x") ", \"else\": 1")}, "\"else\"", "unknown"},
        {{.constraints = RULE(TRUE("x") ", \"is\": \"taste\"")}, "restrictions[0]", "does-not-pay"},
        {{.constraints = RULE(TRUE("x") ", \"is\": 1")}, "restrictions[0]", "does-not-pay"},
        {{.constraints = RULE(TRUE("\\u001b[2Jgone"))}, "restrictions[0]", "control bytes"},
        {{.supports = RULE(TRUE("a\\u007f"))}, "supports[0]", "control bytes"},
        {{.supports = RULE(TRUE("x") ", \"is\": \"budget\"")},
         "supports[0]",
         "\"restrictions\" only"},
        {{.supports = RULE("\"require\": \"BLOCK_M > 1\"")}, "supports[0]", "reads a tunable"},
        {{.tunables = "{}"}, "no tunables", ""},
        {{.tunables = "[1, 2]"}, "tune", "object"},
        {{.tunables = "{\"A\": 4}"}, "tune A", "array"},
        {{.tunables = "{\"A\": []}"}, "small.json:3: tune A", "array"},
        {{.tunables = "{\"A\": [0.5, 0.50]}"}, "tune A", "0.5 appears twice"},
        {{.name = "\"../small\""}, "name", "file's name"},
        {{.name = "7"}, "name", "file's name"},
    };
    static const char *const values[] = {"true, \"a\"",
                                         "null",
                                         "1, \"a\"",
                                         "\"a\", 1",
                                         "\"a;b\"",
                                         "\"\"",
                                         "\"a\\\"b\"",
                                         "\"a\\nb\"",
                                         "[1]",
                                         "1e999",
                                         "\"abcdefghijklmnopqrstuvwxyz0123456\""};
    static const char *const names[][2] = {
        {"int", "not a name"}, {"A B", "not a name"},
        {"", "not a name"},    {"FA_SM", "ours"},
        {"HEAD_DIM", "taken"}, {"BLOCK_M", "taken"},
        {"ROW", "taken"},      {"AN_ABSURDLY_LONG_NAME_OF_34_LETTERS", "31"}};
    char text[96];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(refused(&wrong[i].parts, wrong[i].one, wrong[i].two));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        snprintf(text, sizeof text, "{\"A\": [%s]}", values[i]);
        CHECK(refused(&(manifest_parts){.tunables = text}, "tune A", "value"));
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(text, sizeof text, "{\"ROW\": 1, \"%s\": 4}", names[i][0]);
        CHECK(refused(&(manifest_parts){.lets = text}, names[i][0], names[i][1]));
    }
}

static void a_huge_space_is_refused_with_its_size(void)
{
    char tunables[6000] = "{\"BLOCK_M\": [64, 128], \"BLOCK_N\": [32, 64, 128]";
    for (int i = 0; i < 12; i++) {
        char one[400];
        snprintf(one, sizeof one, ", \"T%d\": [0,1,2,3,4,5,6,7,8,9]", i);
        strcat(tunables, one);
    }
    strcat(tunables, "}");
    CHECK(refused(&(manifest_parts){.tunables = tunables}, "6,000,000,000,000 configs",
                  "1,000,000,000,000"));
}

/* What is no arithmetic over the names is refused, and the sentence shows where. */
static void expressions_cannot_reach_beyond_arithmetic(void)
{
    static const struct {
        const char *expression, *sentence;
    } cases[] = {
        {"(SELECT 1)", "unknown name SELECT"},
        {"BLOCK_M in (SELECT 64)", "unknown name SELECT"},
        {"BLOCK_M in names", "\"names\" where ( is expected"},
        {"1) FROM names WHERE (1", "\") FROM"},
        {"1), (2", "\"), (2\""},
        {"1; DROP TABLE names", "\"; DROP"},
        {"1 /* 2", "\"* 2\" where a value"},
        {"'text", "has a text that does not end"},
        {"'a;b'", "\"a;b\", which is the value of no tunable"},
        {"''", "\"\", which is the value of no tunable"},
        {"[BLOCK_M]", "\"[BLOCK_M]\""},
        {"names.BLOCK_M", "unknown name names"},
        {"?1", "\"?1\""},
        {"BLOCK_M\\u00e9", "not printable ASCII"},
        {"BLOCK_M * 1e0", "\"e0\" where a number must end"},
        {"load_extension(1)", "calls load_extension()"},
        {"random()", "calls random()"},
        {"max(BLOCK_M)", "the second of two values"},
        {"ceil_div(1, 2, 3)", "\", 3)\" where ) is expected"},
        {"abs(1, 2)", "\", 2)\""},
        {"1 if 2", "ends where else is expected"},
        {"1 if 2 if 3 else 4", "\"if 3 else 4\" where else is expected"},
        {"1 if else 2", "uses the unknown name else"},
        {"if 1 else 2", "uses the unknown name if"},
        {"BLOCK_M not 1", "\"1\" where in is expected"},
        {"CASE WHEN 1 THEN 2 END", "unknown name CASE"},
        {"iif(1, 2, 3)", "calls iif(), which is unknown"},
        {"BLOCK_M = 1", "\"= 1\" where an operator or the end is expected (as in Python: =="},
        {"BLOCK_M <> 1", "\"> 1\" where a value"},
        {"BLOCK_M AND 1", "\"AND 1\" where an operator"},
        {"BLOCK_M BETWEEN 1 AND 2", "\"BETWEEN 1 AND 2\" where an operator"},
        {"BLOCK_M BLOCK_N", "\"BLOCK_N\" where an operator"},
        {"(BLOCK_M, BLOCK_N)", "\", BLOCK_N)\""},
        {"block_m", "unknown name block_m"},
        {"", "0 bytes"},
        {" ", "ends where a value"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(expression_refused(cases[i].expression, cases[i].sentence));
}

/* A let of this expression in the first config; `rc` is what enumerating the space returned. */
static int32_t value_of(const char *expression, int *ret_rc, fa_diag *diag)
{
    char lets[1200];
    tuner_fixture f;
    fa_space space = {0};
    snprintf(lets, sizeof lets, "{\"ROW\": 128, \"X\": \"%s\"}", expression);
    *ret_rc = fixture_load(&f, &(manifest_parts){.lets = lets}, diag);
    if (*ret_rc == 0)
        *ret_rc =
            fa_space_enumerate(&(fa_task){&f.families, &problem_512, &gpu_a100}, &space, diag);
    int32_t value = *ret_rc == 0 ? space.candidate[0].let[1].value : 0;
    fa_space_free(&space);
    fixture_free(&f);
    return value;
}

static bool gives(const char *expression, int32_t expected)
{
    fa_diag diag = {{0}};
    int rc;
    int32_t value = value_of(expression, &rc, &diag);
    if (rc != 0 || value != expected)
        printf("# %s: %d, not %d %s\n", expression, value, expected, diag.text);
    return rc == 0 && value == expected;
}

/* BLOCK_M is 64. */
static void expressions_mean_what_they_say(void)
{
    static const struct {
        const char *expression;
        int32_t value;
    } cases[] = {
        {"2 + 3 * 4 - 10 / 3 % 2", 13},
        {"-7 / 2", -3},
        {"-7 % 3", -1},
        {"7 // 2 * 100 + -7 // 2", 296},
        {"6 // -3 == -2 and 7.5 // 2 == 3", 1},
        {"2 ** 3 ** 2 - -2 ** 2", 516},
        {"3 * 2 ** 10 % 1000 == 72 and 2 ** -1 * 2 == 1", 1},
        {"2 ** 62 + (2 ** 62 - 1) == 9223372036854775807 and 2 ** 64 > 9223372036854775807", 1},
        {"7 - - 2", 9},
        {"- - - 2", -2},
        {"~0 & 12 | 3", 15},
        {"1 << 4 + 1 >> 1", 16},
        {"ceil_div(7, 2) * 100 + ceil_div(-7, 2)", 397},
        {"min(9, 3, 5) * 100 + max(1, 8, 4) + abs(-3)", 311},
        {"1 < 2 < 3", 1},
        {"3 > 2 > 2", 0},
        {"1 < 3 == 3 >= 3", 1},
        {"64 == BLOCK_M and not BLOCK_M == 32", 1},
        {"not 1 == 2 and 0", 0},
        {"1 or 1 and 0", 1},
        {"64 <= BLOCK_M <= 65 and not 1 <= 3 <= 2", 1},
        {"BLOCK_M in (1, 64)", 1},
        {"5 not in (1, 64, 5 - 0)", 0},
        {"1 if BLOCK_M > 64 else 2 if BLOCK_M == 64 else 3", 2},
        {"(1 if 0 else 2 if BLOCK_M == 64 else 3) * 10 + (4 if BLOCK_M else 5)", 24},
        {"1 + 2 if 0 or BLOCK_M == 1 else 3 + 4", 7},
        {"7 if (0 if 1 else 1) else max(1 if 1 else 2, 3 if 0 else 4)", 4},
        {"1 if BLOCK_M in (1, 2) else 2 if 1 < 2 < 3 else 3", 2},
        {"1 or 1 / 0", 1},
        {"0 and 1 / 0", 0},
        {"1 if 1 / 0 else 4", 4},
        {"3 if 1 else 1 / 0", 3},
        {"1 / 0 if 0 else 3", 3},
        {"9223372036854775807 + 1 > 9223372036854775807", 1},
        {"9223372036854775807 * 4 / 9223372036854775807 == 4", 1},
        {"99999999999999999999 > 9223372036854775807", 1},
        {"4611686018427387904 * 2 - 1 < 9223372036854775807", 0},
        {"(-9223372036854775807 - 1) / -1 > 0", 1},
        {"0.25 + 0.25 == 0.5 and 0.1 * 3 < 0.4", 1},
        {"-0.5 < 0 and 1.5e2 == 150 and 2.5e-1 == 0.25", 1},
        {"3 if 'half' == 'half' else 4", 3},
        {"'half' != 'float' and 'half' in ('float', 'half') and not 'half' == 1", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(gives(cases[i].expression, cases[i].value));
}

/* A let of this expression cannot be worked out, and the sentence says why. */
static bool gives_none(const char *expression, const char *why)
{
    fa_diag diag = {{0}};
    int rc;
    value_of(expression, &rc, &diag);
    if (rc != FA_EMANIFEST || strstr(diag.text, why) == NULL)
        printf("# %s: %d, %s\n", expression, rc, diag.text);
    return rc == FA_EMANIFEST && strstr(diag.text, why) != NULL;
}

static void texts_are_no_numbers_and_fractions_no_integers(void)
{
    CHECK(gives_none("'half'", "is a text, which can only be compared"));
    CHECK(gives_none("'half' + 1", "a text is used as a number"));
    CHECK(gives_none("'half' < 'more'", "a text is used as a number"));
    CHECK(gives_none("-'half'", "a text is used as a number"));
    CHECK(gives_none("not 'half'", "a text is used as a number"));
    CHECK(gives_none("BLOCK_M * 0.3", "is a fraction, where an integer is needed"));
    CHECK(gives_none("4611686018427387904 * 4", "is beyond 64 bits"));
}

static void deep_and_long_expressions_are_refused(void)
{
    char deep[512] = "", lengthy[2000] = "1";
    for (int i = 0; i < 100; i++)
        strcat(deep, "(");
    strcat(deep, "1");
    for (int i = 0; i < 100; i++)
        strcat(deep, ")");
    CHECK(expression_refused(deep, "nested too deeply"));
    memset(deep, '-', 100);
    CHECK(expression_refused(deep, "nested too deeply"));
    CHECK(expression_refused("((1)", "ends where ) is expected"));
    for (int i = 0; i < 700; i++)
        strcat(lengthy, "+1");
    CHECK(expression_refused(lengthy, "use 1 to 1024"));
    lengthy[801] = 0;
    CHECK(gives(lengthy, 401));
    strcpy(lengthy, "1");
    for (int i = 0; i < 200; i++)
        strcat(lengthy, "<9");
    CHECK(gives(lengthy, 0));
    CHECK(refused(&(manifest_parts){.lets = "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["},
                  "nested deeper", ""));
}

/* Cut anywhere, a manifest is refused; never loaded, never a crash. */
static void a_truncated_manifest_is_refused_at_every_length(void)
{
    char text[4000];
    manifest_text(&(manifest_parts){0}, text, sizeof text);
    tuner_fixture f;
    CHECK(fixture_make(&f));
    int wrong = 0;
    for (size_t size = 0; size < strlen(text); size++) {
        fa_diag diag = {{0}};
        fa_family_list list = {0};
        if (!fixture_write(&f, "small.json", text, size) ||
            !fixture_write(&f, "small.cu", "x", 1) ||
            fa_templates_open(f.directory, &f.templates, &diag) != 0)
            wrong++;
        else if (fa_families_load(f.templates, "attn_fwd", &list, &diag) != FA_EMANIFEST ||
                 strstr(diag.text, "small.json") == NULL)
            wrong++;
        fa_families_free(&list);
        fa_templates_close(&f.templates);
    }
    fixture_free(&f);
    CHECK_INT(wrong, 0);
}

static void a_family_serves_the_features_that_its_manifest_takes_and_no_other(void)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    fa_problem p = {
        .head_dim = 64, .batch = 2, .heads_q = 8, .heads_kv = 8, .seq_q = 1, .seq_k = 4096};
    const manifest_parts taker = {.extra = ", \"takes\": [\"lengths_k\", \"page\"],"
                                           " \"splits\": \"PAGE_SIZE / 8\","
                                           " \"workspace\": \"PAGE_SIZE * BATCH\""};
    CHECK_OK(fixture_load(&f, &taker, &diag), diag);
    const fa_family *family = f.families.family[0];
    int dense = fa_family_supports(family, &p, &gpu_a100, &diag);
    p.lengths_k = FA_LENGTHS_SEQUSED;
    p.page = 64;
    int taken = fa_family_supports(family, &p, &gpu_a100, &diag);
    fa_space space = {0};
    int rc = fa_space_enumerate(&(fa_task){&f.families, &p, &gpu_a100}, &space, &diag);
    int splits = rc == 0 ? space.candidate[0].launches.splits : 0;
    int64_t bytes = rc == 0 ? space.candidate[0].launches.workspace_bytes : 0;
    fa_space_free(&space);
    p.kv_dtype = FA_KV_FP8;
    int refused = fa_family_supports(family, &p, &gpu_a100, &diag);
    fixture_free(&f);
    CHECK_INT(dense, 0);
    CHECK_INT(taken, 0);
    CHECK_INT(rc, 0);
    CHECK_INT(splits, 8);
    CHECK_INT(bytes, 128);
    CHECK_INT(refused, FA_ENOTSUP);
    CHECK_TEXT(diag.text, "small does not take kv_dtype = fp8");
}

static void a_manifest_without_its_template_is_refused(void)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    char text[4000];
    manifest_text(&(manifest_parts){0}, text, sizeof text);
    CHECK(fixture_make(&f));
    bool wrote = fixture_write(&f, "small.json", text, strlen(text));
    int rc = fa_templates_open(f.directory, &f.templates, &diag);
    int loaded = rc == 0 ? fa_families_load(f.templates, "attn_fwd", &f.families, &diag) : 0;
    fixture_free(&f);
    CHECK(wrote);
    CHECK_INT(loaded, FA_EMANIFEST);
    CHECK_HAS(diag.text, "no template small.cu");
}

int main(void)
{
    TEST(a_right_manifest_loads);
    TEST(built_in_families_load);
    TEST(lets_may_stand_in_any_order);
    TEST(a_chain_of_doubling_lets_costs_no_more_than_its_length);
    TEST(what_is_wrong_with_a_manifest_is_named);
    TEST(a_huge_space_is_refused_with_its_size);
    TEST(expressions_cannot_reach_beyond_arithmetic);
    TEST(expressions_mean_what_they_say);
    TEST(texts_are_no_numbers_and_fractions_no_integers);
    TEST(deep_and_long_expressions_are_refused);
    TEST(a_truncated_manifest_is_refused_at_every_length);
    TEST(a_family_serves_the_features_that_its_manifest_takes_and_no_other);
    TEST(a_manifest_without_its_template_is_refused);
    return check_done();
}
