/* SPDX-License-Identifier: Apache-2.0
 *
 * The operation of a kernel specification: the specification itself, with what was found out about its answer, its sizes, and
 * how far from it is right.
 */
#include "spec_reading.h"

#include "expr.h"
#include "family.h"
#include "problem.h"
#include "search.h"
#include "tensors.h"
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- sizes ----------------------------------------------------------------------------------*/
/* Whether a macro is made of the size: problems that differ in it are then other kernels. */
static bool is_defined(struct fa_spec_reading *r, const char *size)
{
    const cJSON *item;
    char room[32];
    cJSON_ArrayForEach (item, fa_spec_member(r->json, "defines")) {
        const char *text = fa_json_expression(item, room);
        if (text != NULL && fa_code_find(text, size) != NULL)
            return true;
    }
    return false;
}

/* Sizes that "defines" reads are fixed; a kernel of constants alone has a size that nobody sets. */
static int fix_sizes(struct fa_spec_reading *r)
{
    cJSON *size, *sizes = cJSON_GetObjectItemCaseSensitive(r->operation, "sizes");
    if (sizes == NULL)
        sizes = fa_json_add_object(r->operation, "sizes");
    if (cJSON_IsObject(sizes) && sizes->child == NULL) {
        size = fa_json_add_object(sizes, "one");
        fa_json_add_number(size, "default", 1);
        fa_json_add_bool(size, "fixed", true);
    }
    for (int i = 0; (size = cJSON_GetArrayItem(sizes, i)) != NULL; i++) {
        if (size->string == NULL || !is_defined(r, size->string))
            continue;
        if (cJSON_IsNumber(size)) {
            cJSON *object = cJSON_CreateObject();
            fa_json_add_number(object, "default", size->valuedouble);
            if (!cJSON_ReplaceItemInObjectCaseSensitive(sizes, size->string, object))
                return FA_ENOMEM;
            size = cJSON_GetArrayItem(sizes, i);
        }
        cJSON_DeleteItemFromObjectCaseSensitive(size, "fixed");
        if (cJSON_IsObject(size))
            fa_json_add_bool(size, "fixed", true);
    }
    return 0;
}

/* ---- the answer -----------------------------------------------------------------------------*/
static int add_answer(struct fa_spec_reading *r)
{
    static const char *const keys[] = {"kernel", "source", "block", "grid", "arguments", NULL};
    const cJSON *is = fa_spec_member(r->json, "answer"), *given = fa_spec_member(is, "given");
    char file[FA_NAME_MAX + 16];
    if (given != NULL)
        return cJSON_IsString(given) && is->child->next == NULL
                   ? 0
                   : fa_spec_fault(r, "answer: \"given\" must be a text, and alone");
    if (is == NULL || (cJSON_IsObject(is) && fa_spec_check_keys(r, is, "answer", keys) != 0))
        return is == NULL ? 0 : FA_EMANIFEST;
    for (int i = 2; i < 4; i++) {
        const cJSON *sides = fa_spec_member(is, keys[i]), *other = fa_spec_member(is, keys[5 - i]);
        const int count = cJSON_IsArray(sides) ? cJSON_GetArraySize(sides) : 1;
        if (sides == NULL ? other != NULL : count < 1 || count > 3)
            return fa_spec_fault(r, "answer: \"%s\" %s one to three expressions", keys[i],
                                 sides == NULL ? "is missing:" : "must be");
    }
    if (!cJSON_IsObject(is)) {
        cJSON_DeleteItemFromObjectCaseSensitive(r->operation, "answer");
        fa_json_add_object(r->operation, "answer");
    }
    cJSON *answer = cJSON_GetObjectItemCaseSensitive(r->operation, "answer");
    cJSON_DeleteItemFromObjectCaseSensitive(answer, "kernel");
    fa_json_add_text(answer, "kernel", r->answer);
    snprintf(file, sizeof file, "%s%s.cu", r->name, r->answer_source != NULL ? "_answer" : "");
    fa_json_add_text(r->operation, "reference", file);
    return 0;
}

static double number_or(const cJSON *json, const char *key, double preset)
{
    const cJSON *item = fa_spec_member(json, key);
    return cJSON_IsNumber(item) ? item->valuedouble : preset;
}

/* Unless "atol" says otherwise, what is near 0 may differ by that part of the output's largest element. */
static int add_tolerance(struct fa_spec_reading *r)
{
    enum { OF_TYPE = 84 /* of fp32: 1e-5 */ };
    cJSON *tolerance = fa_json_add_object(r->operation, "tolerance");
    const double rtol = number_or(r->json, "rtol", -1), atol = number_or(r->json, "atol", -1);
    const cJSON *given[] = {fa_spec_member(r->json, "rtol"), fa_spec_member(r->json, "atol")};
    for (int i = 0; i < 2; i++)
        if (given[i] != NULL && !(cJSON_IsNumber(given[i]) && given[i]->valuedouble >= 0 &&
                                  given[i]->valuedouble < 1e30))
            return fa_spec_fault(r, "\"%s\" must be a number of 0 or more",
                                 i == 0 ? "rtol" : "atol");
    if (rtol >= 0)
        fa_json_add_number(tolerance, "relative", rtol);
    else
        fa_json_add_number(tolerance, "ulps", OF_TYPE / 2);
    if (atol < 0)
        fa_json_add_number(tolerance, "of_largest", OF_TYPE / 2);
    fa_json_add_number(tolerance, "absolute", atol > 0 ? atol : 1e-30);
    return 0;
}

/* How the space is searched where a request does not say. */
static int check_search(struct fa_spec_reading *r)
{
    const cJSON *strategy = fa_spec_member(r->json, "strategy"),
                *evaluations = fa_spec_member(r->json, "evaluations"),
                *seconds = fa_spec_member(r->json, "seconds");
    const char *name = cJSON_GetStringValue(strategy);
    const double count = number_or(r->json, "evaluations", 0);
    const bool whole = count >= 0 && count <= INT32_MAX && count <= floor(count);
    if (strategy == NULL && evaluations == NULL && seconds == NULL)
        return 0;
    if ((strategy != NULL && name == NULL) ||
        (evaluations != NULL && !cJSON_IsNumber(evaluations)) ||
        (seconds != NULL && !cJSON_IsNumber(seconds)))
        return fa_spec_fault(
            r, "\"strategy\" must be a text, \"evaluations\" and \"seconds\" must be numbers");
    int rc = fa_search_check(&name, whole ? (int32_t)count : -1, number_or(r->json, "seconds", 0),
                             r->diag);
    return rc == 0 ? 0 : fa_fail_in(r->diag, FA_EMANIFEST, "%s", r->where);
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

int fa_spec_make_operation(struct fa_spec_reading *r)
{
    static int (*const steps[])(struct fa_spec_reading *) = {fix_sizes, add_answer, add_tolerance,
                                                             check_search};
    int rc = 0;
    r->operation = cJSON_Duplicate(r->json, true);
    if (r->operation == NULL)
        return fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where);
    drop_nulls(r->operation);
    cJSON_DeleteItemFromObjectCaseSensitive(r->operation, "name");
    fa_json_add_text(r->operation, "name", r->name);
    fa_json_add_text(r->operation, "title", r->name);
    fa_json_add_text(r->operation, "specification", r->hash);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && rc == 0; i++)
        rc = steps[i](r);
    return rc == FA_ENOMEM ? fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where) : rc;
}
