/* SPDX-License-Identifier: Apache-2.0
 *
 * A problem as columns of a row, for tables that do not ask for its parts.
 */
#include "internal.h"

#include "../src/base/json.h"

#include <string.h>

void fa_db_problem_bind(fa_binder *binder, const fa_problem *problem)
{
    char key[FA_PROBLEM_KEY_MAX];
    fa_problem_key(problem, key);
    cJSON *json = fa_problem_to_json(problem);
    char *text = json != NULL ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    fa_bind_copy(binder, key);
    fa_bind_copy(binder, text);
    if (binder->rc == 0 && text == NULL)
        binder->rc = FA_ENOMEM;
    cJSON_free(text);
}

void fa_db_problem_read(fa_reader *reader, fa_problem *ret_problem)
{
    char key[FA_PROBLEM_KEY_MAX], key_now[FA_PROBLEM_KEY_MAX];
    fa_read_copy(reader, key, sizeof key);
    const char *text = fa_read_text(reader, false);
    size_t size = strlen(text);
    fa_problem problem = {0};
    cJSON *json = NULL;
    if (size > 4096 || fa_json_parse(text, size, "problem", &json, NULL) != 0 ||
        fa_problem_from_json(json, &problem, NULL) != 0) {
        reader->ok = false;
    } else {
        fa_problem_key(&problem, key_now);
        reader->ok = reader->ok && strcmp(key, key_now) == 0;
    }
    cJSON_Delete(json);
    *ret_problem = problem;
}
