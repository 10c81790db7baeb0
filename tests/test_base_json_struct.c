/* SPDX-License-Identifier: Apache-2.0
 *
 * A struct as a JSON object by a table of its members: both directions, what null and absence mean, and
 * what is refused.
 */
#include "check.h"

#include "json.h"

#include <stdlib.h>

struct inner {
    int32_t count;
};

struct sample {
    int32_t count;
    int64_t large;
    double real;
    bool flag;
    char text[8];
    int choice;
    struct inner inner;
};

static const char *const colours[] = {"red", "green", NULL};
static const fa_member inner_members[] = {FA_MEMBER("count", COUNT, struct inner, count),
                                          {.key = NULL}};
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, struct sample, member, __VA_ARGS__)
static const fa_member members[] = {
    ROW(count, COUNT, .rules = FA_MEMBER_UNKNOWN, .most = 100),
    ROW(large, COUNT64, .rules = FA_MEMBER_LEFT_OUT),
    ROW(real, REAL),
    ROW(flag, FLAG, .rules = FA_MEMBER_OPTIONAL),
    ROW(text, TEXT),
    ROW(choice, CHOICE, .names = colours),
    ROW(inner, STRUCT, .rules = FA_MEMBER_STRICT, .members = inner_members),
    {.key = NULL},
};

static char *print(const struct sample *sample)
{
    cJSON *json = fa_struct_to_json(members, sample);
    char *text = fa_json_print(json);
    cJSON_Delete(json);
    return text;
}

static int read_text(const char *text, struct sample *ret, fa_diag *diag)
{
    cJSON *json = NULL;
    int rc = fa_json_parse(text, strlen(text), "sample", &json, diag);
    if (rc == 0)
        rc = fa_struct_from_strict_json(json, members, ret, "sample", diag);
    cJSON_Delete(json);
    return rc;
}

TEST(what_is_not_known_is_null_or_left_out)
{
    const struct sample sample = {.count = 0};
    struct sample back = {.count = 5, .large = 6, .flag = true};
    fa_diag diag = {{0}};
    char *text = print(&sample);
    CHECK_TEXT(text, "{\"count\":null,\"real\":0,\"flag\":false,\"text\":\"\","
                     "\"choice\":\"red\",\"inner\":{\"count\":0}}");
    CHECK_OK(read_text(text, &back, &diag), diag);
    CHECK(back.count == 0 && !back.flag);
    CHECK(back.large == 6); /* absent: left alone */
    free(text);
}

TEST(every_mistake_names_its_member)
{
    static const struct {
        const char *json, *sentence;
    } wrong[] = {
        {"{\"real\":1}", "\"count\" is missing"},
        {"{\"count\":101}", "\"count\" is 101: must be 0 to 100"},
        {"{\"count\":1,\"real\":null}", "\"real\" must be a number"},
        {"{\"count\":1,\"real\":-1}", "\"real\" is -1: must not be negative"},
        {"{\"count\":1,\"real\":1,\"text\":\"12345678\"}", "longer than 7 bytes"},
        {"{\"count\":1,\"real\":1,\"text\":\"\",\"choice\":\"blue\"}",
         "there is no choice \"blue\": use red or green"},
        {"{\"count\":1,\"real\":1,\"text\":\"\",\"choice\":\"red\",\"inner\":[]}",
         "\"inner\" must be an object"},
        {"{\"count\":1,\"real\":1,\"text\":\"\",\"choice\":\"red\","
         "\"inner\":{\"count\":1,\"count\":2}}",
         "inner: the key \"count\" appears twice"},
        {"{\"cuont\":1}", "sample: the key \"cuont\" is unknown: did you mean \"count\"?"},
        {"{\"text\":\"\\ud800\"}", "not valid JSON"},
        {"{\"text\":\"\\udc00\\ud800\"}", "not valid JSON"},
        {"{\"count\":+1}", "not valid JSON"},
        {"{\"count\":.5}", "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct sample sample;
        fa_diag diag = {{0}};
        CHECK_INT(read_text(wrong[i].json, &sample, &diag), FA_EINVAL);
        CHECK_HAS(diag.text, wrong[i].sentence);
    }
}

/* A text that cJSON has no memory for is told apart from one that is no JSON. */
TEST(an_escaped_nul_byte_is_no_json)
{
    static const char text[] = "{\"text\":\"a\\\0b\"}";
    cJSON *json = NULL;
    fa_diag diag = {{0}};
    CHECK_INT(fa_json_parse(text, sizeof text - 1, "sample", &json, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "not valid JSON");
}
