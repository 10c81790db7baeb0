/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents that are made while memory runs out: whole or not printed, and nothing leaks or is used after it
 * was given back.
 */
#include "check.h"

#include "failing_allocator.h"
#include "json.h"
#include "json_make.h"

#include <stdlib.h>

static const char wanted[] = "{\"text\":\"a\",\"number\":1.5,\"known\":null,\"flag\":true,\"list\":[{\"n\":0},"
                             "{\"n\":1}],\"object\":{\"none\":null},\"item\":\"b\"}";

static char *make(void)
{
    cJSON *json = cJSON_CreateObject();
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
    fa_json_add_null(fa_json_add_object(json, "object"), "none");
    fa_json_add(json, "item", cJSON_CreateString("b"));
    char *text = fa_json_print(json);
    cJSON_Delete(json);
    return text;
}

static void a_document_is_whole_or_not_printed(void)
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

static void a_mark_deep_inside_is_seen_and_one_beside_is_not(void)
{
    cJSON *json = cJSON_CreateObject();
    cJSON *whole = fa_json_add_object(json, "whole");
    cJSON *broken = fa_json_add_object(fa_json_add_object(json, "outer"), "broken");
    CHECK(!fa_json_add(broken, "key", NULL));
    CHECK(!fa_json_add_number(NULL, "key", 1));
    CHECK(fa_json_print(json) == NULL);
    CHECK(fa_json_print_tidy(json) == NULL);
    CHECK(fa_json_print(NULL) == NULL);
    char *text = fa_json_print(whole);
    CHECK(text != NULL);
    CHECK_TEXT(text, "{}");
    free(text);
    cJSON_Delete(json);
}

int main(void)
{
    TEST(a_document_is_whole_or_not_printed);
    TEST(a_mark_deep_inside_is_seen_and_one_beside_is_not);
    return check_done();
}
