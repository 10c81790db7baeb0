/* SPDX-License-Identifier: Apache-2.0 */
#include "problem_row.h"

#include <string.h>

void fa_db_problem_bind(fa_binder *binder, const fa_problem *problem)
{
    char key[FA_PROBLEM_KEY_MAX];
    fa_problem_key(problem, key);
    fa_bind_copy(binder, key);
    fa_bind_json(binder, fa_problem_to_json(problem));
}

/* Whether the document lacks nothing that this version writes. A complete document that
 * is refused nevertheless holds something that only a newer version knows: a field, or a value. */
static bool has_all_members(const cJSON *json, bool *ret_no_memory)
{
    static const fa_problem any;
    cJSON *ours = fa_problem_to_json(&any);
    bool all = ours != NULL;
    for (const cJSON *member = ours != NULL ? ours->child : NULL; member != NULL && all;
         member = member->next)
        all = cJSON_GetObjectItemCaseSensitive(json, member->string) != NULL;
    *ret_no_memory = ours == NULL;
    cJSON_Delete(ours);
    return all;
}

/* Whether the document has a member that is no field here: of a newer version, which leaves it out where
 * it has its default. */
static bool has_other_members(const cJSON *json, const fa_problem *problem)
{
    const fa_operation *operation = fa_operation_of(problem);
    for (const cJSON *member = json->child; member != NULL; member = member->next)
        if (strcmp(member->string, "operation") != 0 &&
            fa_operation_field_index(operation, member->string) < 0)
            return true;
    return false;
}

/* Whether the document's operation is one of a template directory, whose fields may have been others when
 * the row was written, and may be again: what does not fit them is no damage. */
static bool is_of_a_directory(const cJSON *json)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(json, "operation");
    const fa_operation *operation = NULL;
    return cJSON_IsString(name) && fa_operation_find(name->valuestring, &operation, NULL) == 0 &&
           operation != fa_operation_of(NULL);
}

void fa_db_problem_read(fa_reader *reader, fa_problem *ret_problem)
{
    char key[FA_PROBLEM_KEY_MAX], key_now[FA_PROBLEM_KEY_MAX];
    fa_read_copy(reader, key, sizeof key);
    fa_problem problem = {0};
    cJSON *json = fa_read_json(reader, 4096);
    int rc = json != NULL ? fa_problem_from_json(json, &problem, NULL) : 0;
    if (rc != 0) {
        bool no_memory = false;
        bool newer =
            has_all_members(json, &no_memory) || rc == FA_ENOTSUP || is_of_a_directory(json);
        fa_read_fail(reader, no_memory ? FA_ENOMEM : newer ? FA_EVERSION : FA_ECORRUPT);
    } else if (json != NULL) {
        fa_problem_key(&problem, key_now);
        if (strcmp(key, key_now) != 0)
            fa_read_fail(reader, has_other_members(json, &problem) || is_of_a_directory(json)
                                     ? FA_EVERSION
                                     : FA_ECORRUPT);
    }
    cJSON_Delete(json);
    *ret_problem = problem;
}
