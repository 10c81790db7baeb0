/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents that are made while memory runs out: whole or not printed, and nothing leaks or is used after it
 * was given back.
 */
#include "check.h"

#include "buf.h"
#include "failing_allocator.h"
#include "json.h"

static const char wanted[] = "{\"text\":\"a\",\"number\":1.5,\"known\":null,\"flag\":true,\"list\":[{\"n\":0},"
                             "{\"n\":1}],\"object\":{\"none\":null},\"item\":\"b\"}";

static char *make(void)
{
    FA_ENDS(fa_json_end) cJSON *json = cJSON_CreateObject();
    fa_json_add_text(json, "text", "a");
    fa_json_add_text(json, "left out", NULL);
    fa_json_add_number(json, "number", 1.5);
    fa_json_add_known(json, "known", 0, false);
    fa_json_add_bool(json, "flag", true);
    cJSON *list = fa_json_add_array(json, "list");
    for (int i = 0; i < 2; i++) {
        cJSON *item = cJSON_CreateObject();
        fa_json_add_number(item, "n", i);
        fa_json_push(list, item);
    }
    fa_json_add(fa_json_add_object(json, "object"), "none", cJSON_CreateNull());
    fa_json_add(json, "item", cJSON_CreateString("b"));
    char *text = fa_json_print(json);
    return text;
}

TEST(a_document_is_whole_or_not_printed)
{
    char *text = make();
    CHECK(text != NULL);
    CHECK_TEXT(text, wanted);
    free(text);
    if (!FAILING_ALLOCATOR)
        SKIP("the sanitizer has an allocator of its own");
    for (int lasting = 0; lasting < 2; lasting++) {
        bool failed = true;
        long n = 1;
        for (; failed; n++) {
            allocator_fail(n, lasting);
            text = make();
            failed = allocator_stop();
            CHECK((text == NULL) == failed);
            free(text);
        }
        CHECK(n > 20);
    }
}

TEST(a_number_has_the_fewest_digits_that_read_back)
{
    static const struct {
        double value;
        const char *text;
    } numbers[] = {
        {0.1, "0.1"},
        {1.0 / 3, "0.3333333333333333"},
        {2.0 / 3, "0.6666666666666666"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1 + 2.220446049250313e-16, "1.0000000000000002"},
        {123456789012.125, "123456789012.125"},
        {-0.0, "0"},
        {-5, "-5"},
        {999999999999999, "999999999999999"},
        {9007199254740992, "9007199254740992"},
        {1e300, "1e+300"},
        {-2.5e-7, "-2.5e-07"},
        {NAN, "null"},
        {-INFINITY, "null"},
    };
    cJSON *list = cJSON_CreateArray(), *read;
    FA_ENDS(fa_buf_free) fa_buf text = {0};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        fa_json_push(list, cJSON_CreateNumber(numbers[i].value));
        fa_buf_printf(&text, "%c%s", i == 0 ? '[' : ',', numbers[i].text);
    }
    fa_buf_text(&text, "]");
    FA_ENDS(fa_free_at) char *first = fa_json_print(list);
    CHECK_TEXT(first, text.data);
    CHECK_INT(fa_json_parse(first, strlen(first), "", &read, NULL), 0);
    FA_ENDS(fa_free_at) char *second = fa_json_print(read);
    CHECK_TEXT(second, first);
    cJSON_Delete(list);
    cJSON_Delete(read);
}

TEST(a_document_is_printed_as_it_was_read)
{
    static const char text[] = "{\"a\":[1,2.5,[],{}],\"b\":{\"c\":null,\"d\":{\"e\":[true,false]}},"
                               "\"\\\"\\\\\":\"\\b\\f\\n\\r\\t\\u0001\\u001f/\u00e9\"}";
    cJSON *read;
    CHECK_INT(fa_json_parse(text, sizeof text - 1, "", &read, NULL), 0);
    FA_ENDS(fa_free_at) char *line = fa_json_print(read);
    CHECK_TEXT(line, text);
    cJSON_Delete(read);
}

/* A text that cJSON has no memory for is told apart from one that is no JSON. */
TEST(an_escaped_nul_byte_is_no_json)
{
    static const char text[] = "{\"text\":\"a\\\0b\"}";
    cJSON *json = NULL;
    fa_diag diag = {{0}};
    CHECK_FAILS(fa_json_parse(text, sizeof text - 1, "sample", &json, &diag), FA_EINVAL,
                "not valid JSON");
}
