/* SPDX-License-Identifier: Apache-2.0
 *
 * The operation of a kernel specification: the specification itself, with what was found out about its answer, its sizes, and
 * how far from it is right.
 */
#include "spec_reading.h"

#include "family.h"

#include <stdio.h>
#include <string.h>

/* ---- sizes ----------------------------------------------------------------------------------*/
/* Sizes that "defines" reads are fixed, for problems that differ in them are other kernels; a kernel of constants alone has a
 * size that nobody sets. */
static void fix_sizes(struct fa_spec_reading *r)
{
    const cJSON *item;
    char room[32];
    cJSON *size, *sizes = cJSON_GetObjectItemCaseSensitive(r->json, "sizes");
    if (sizes == NULL)
        sizes = fa_json_add_object(r->json, "sizes");
    if (cJSON_IsObject(sizes) && sizes->child == NULL) {
        size = fa_json_add_object(sizes, "one");
        fa_json_add_number(size, "default", 1);
        fa_json_add_bool(size, "fixed", true);
    }
    for (int i = 0; (size = cJSON_GetArrayItem(sizes, i)) != NULL; i++) {
        bool fixed = false;
        cJSON_ArrayForEach (item, fa_json_member(r->json, "defines")) {
            const char *text = fa_json_expression(item, room);
            fixed = fixed || (text != NULL && size->string != NULL &&
                              fa_code_find(text, size->string) != NULL);
        }
        if (fixed && cJSON_IsNumber(size)) {
            cJSON *object = cJSON_CreateObject();
            fa_json_add_number(object, "default", size->valuedouble);
            fa_spec_memory(r, cJSON_ReplaceItemInObjectCaseSensitive(sizes, size->string, object));
            size = cJSON_GetArrayItem(sizes, i);
        }
        if (fixed && cJSON_IsObject(size)) {
            cJSON_DeleteItemFromObjectCaseSensitive(size, "fixed");
            fa_json_add_bool(size, "fixed", true);
        }
    }
}

/* ---- the answer -----------------------------------------------------------------------------*/
static void add_answer(struct fa_spec_reading *r)
{
    static const char *const keys[] = {"kernel",        "source",    "block", "grid",
                                       "shared_memory", "arguments", NULL};
    const cJSON *is = fa_json_member(r->json, "answer"), *given = fa_json_member(is, "given");
    char file[FA_NAME_MAX + 16];
    if (given != NULL && (!cJSON_IsString(given) || is->child->next != NULL))
        fa_spec_fault(r, "answer: \"given\" must be a text, and alone");
    if (is == NULL || given != NULL)
        return;
    if (cJSON_IsObject(is))
        fa_spec_check_keys(r, is, "answer", keys);
    if (!cJSON_IsObject(is)) {
        cJSON_DeleteItemFromObjectCaseSensitive(r->json, "answer");
        fa_json_add_object(r->json, "answer");
    }
    cJSON *answer = cJSON_GetObjectItemCaseSensitive(r->json, "answer");
    cJSON_DeleteItemFromObjectCaseSensitive(answer, "kernel");
    fa_json_add_text(answer, "kernel", r->answer);
    snprintf(file, sizeof file, "%s%s.cu", r->name, r->answer_source != NULL ? "_answer" : "");
    fa_json_add_text(r->json, "reference", file);
}

/* A number of 0 or more; -1 where it is not told. */
static double tolerance_of(struct fa_spec_reading *r, const char *key)
{
    const cJSON *item = fa_json_member(r->json, key);
    const double number = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (item != NULL && !(number >= 0 && number < 1e30))
        fa_spec_fault(r, "\"%s\" must be a number of 0 or more", key);
    return number;
}

/* Unless "atol" says otherwise, what is near 0 may differ by that part of the output's largest element. */
static void add_tolerance(struct fa_spec_reading *r)
{
    enum { OF_TYPE = 84 /* of fp32: 1e-5 */ };
    cJSON *tolerance = fa_json_add_object(r->json, "tolerance");
    const double rtol = tolerance_of(r, "rtol"), atol = tolerance_of(r, "atol");
    if (rtol >= 0)
        fa_json_add_number(tolerance, "relative", rtol);
    else
        fa_json_add_number(tolerance, "ulps", OF_TYPE / 2);
    if (atol < 0)
        fa_json_add_number(tolerance, "of_largest", OF_TYPE / 2);
    fa_json_add_number(tolerance, "absolute", atol > 0 ? atol : 1e-30);
}

/* null says as much as nothing. */
static void drop_nulls(cJSON *json)
{
    for (cJSON *item = json->child, *next; item != NULL; item = next) {
        next = item->next;
        if (cJSON_IsNull(item) && cJSON_IsObject(json))
            cJSON_Delete(cJSON_DetachItemViaPointer(json, item));
        else
            drop_nulls(item);
    }
}

void fa_spec_make_operation(struct fa_spec_reading *r)
{
    drop_nulls(r->json);
    cJSON_DeleteItemFromObjectCaseSensitive(r->json, "name");
    fa_json_add_text(r->json, "name", r->name);
    fa_json_add_text(r->json, "title", r->name);
    fa_json_add_text(r->json, "specification", r->hash);
    fix_sizes(r);
    add_answer(r);
    add_tolerance(r);
}
