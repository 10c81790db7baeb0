/* SPDX-License-Identifier: Apache-2.0
 *
 * Text into the JSON reader that everything from outside goes through, and its typed getters.
 */
#include "fuzz.h"

#include "json.h"

long fuzz_taken;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fa_diag diag;
    cJSON *json = NULL;
    int rc = fa_json_parse((const char *)data, size, "fuzz", &json, &diag);
    FUZZ_CHECK((rc == 0) == (json != NULL));
    FUZZ_CHECK(rc == 0 || rc == FA_EINVAL); /* there is memory for it */
    FUZZ_CHECK(rc == 0 || diag.text[0] != 0);
    fuzz_taken += rc == 0;
    for (const cJSON *item = json != NULL ? json->child : NULL; item != NULL; item = item->next) {
        char copy[8];
        const char *text = NULL;
        double number;
        int64_t whole;
        bool yes;
        if (item->string == NULL)
            continue;
        if (fa_json_int(json, item->string, -5, 1000000, &whole, "fuzz", &diag) == 0)
            FUZZ_CHECK(whole >= -5 && whole <= 1000000);
        if (fa_json_number(json, item->string, &number, "fuzz", &diag) == 0)
            FUZZ_CHECK(number - number == 0); /* finite */
        fa_json_bool(json, item->string, &yes, "fuzz", &diag);
        if (fa_json_copy(json, item->string, copy, sizeof copy, "fuzz", &diag) == 0)
            FUZZ_CHECK(fa_json_text(json, item->string, &text, "fuzz", &diag) == 0 &&
                       strcmp(text, copy) == 0);
    }
    cJSON_Delete(json);
    return 0;
}
