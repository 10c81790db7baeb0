/* SPDX-License-Identifier: Apache-2.0
 *
 * The specification in the first comment of CUDA C++, and which of its kernels is meant.
 *
 * Workload: a text of some tens of kilobytes, a few times for each specification.
 */
#include "spec_reading.h"

#include "error.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS_MAX = 64 };

char *fa_source_head(const char *text, fa_diag *diag)
{
    static const char word[] = "fa-tune";
    const char *at = text + strspn(text, " \t\r\n");
    while (strncmp(at, "//", 2) == 0) { /* a licence may stand above */
        at += strcspn(at, "\n");
        at += strspn(at, " \t\r\n");
    }
    const char *end = strncmp(at, "/*", 2) == 0 ? strstr(at, "*/") : NULL;
    const char *from = strncmp(at, "/*", 2) == 0 ? at + 2 + strspn(at + 2, "* \t\r\n") : NULL;
    if (from != NULL && end == NULL && strncmp(from, word, sizeof word - 1) == 0) {
        fa_fail(diag, FA_EMANIFEST,
                "the comment with the specification does not end: */ is missing");
        return NULL;
    }
    if (end == NULL || strncmp(from, word, sizeof word - 1) != 0 ||
        (from = memchr(from, '{', (size_t)(end - from))) == NULL) {
        fa_fail(
            diag, FA_EMANIFEST,
            "there is no specification: let the file begin with a comment, /* fa-tune {\"kernel\": …, "
            "\"arguments\": […], \"block\": …, \"grid\": …} */ (docs/your-own-kernel.md)");
        return NULL;
    }
    char *head = strndup(text, (size_t)(end - text));
    if (head == NULL)
        fa_fail(diag, FA_ENOMEM, "out of memory for a specification");
    else
        fa_code_blank(head, 0, (size_t)(from - text));
    return head;
}

/* ---- the types of numbers --------------------------------------------------------------------*/
/* The word for a parameter's type; NULL where there is none. */
static const char *known_type(const char *parameter)
{
    static const char *const types[][3] = {
        {"double", "f64"},         {"float", "f32"},        {"half", "f16"},
        {"__half", "f16"},         {"bool", "bool"},        {"__nv_bfloat16", "bf16"},
        {"int8_t", "i8"},          {"uint8_t", "u8"},       {"int64_t", "i64"},
        {"uint64_t", "u64"},       {"size_t", "u64"},       {"uint32_t", "u32"},
        {"uint", "u32"},           {"int32_t", "i32"},      {"long", "i64", "u64"},
        {"char", "i8", "u8"},      {"short", "i16", "u16"}, {"int", "i32", "u32"},
        {"unsigned", "u32", "u32"}};
    const bool is_unsigned = fa_code_find(parameter, "unsigned") != NULL;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (fa_code_find(parameter, types[i][0]) != NULL)
            return types[i][is_unsigned && types[i][2] != NULL ? 2 : 1];
    return NULL;
}

/* Its name: the last word before what brackets hold. */
static void name_of(const char *parameter, char ret[FA_NAME_MAX])
{
    size_t end = strcspn(parameter, "[="), from;
    while (end > 0 && !fa_code_is_word(parameter[end - 1]))
        end--;
    for (from = end; from > 0 && fa_code_is_word(parameter[from - 1]); from--)
        continue;
    snprintf(ret, FA_NAME_MAX, "%.*s", (int)(end - from), parameter + from);
}

/* Cuts the first parameter off a list. */
static char *next_parameter(char **rest)
{
    char *first = *rest, *at = first;
    int depth = 0;
    for (; at != NULL && *at != 0 && (*at != ',' || depth > 0); at++)
        depth += (strchr("(<[{", *at) != NULL) - (strchr(")>]}", *at) != NULL);
    *rest = at != NULL && *at != 0 ? at + 1 : NULL;
    if (at != NULL)
        *at = 0;
    return first;
}

/* Of a number: what the parameter's words say before its name, by which no type is known. */
static void add_type(cJSON *argument, char *parameter)
{
    static const char *const told[] = {"type", "shape", "fields"};
    char name[FA_NAME_MAX];
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (parameter == NULL || cJSON_HasObjectItem(argument, told[i]))
            return;
    name_of(parameter, name);
    const char *word = name[0] != 0 ? fa_code_find(parameter, name) : NULL;
    while (word != NULL && fa_code_find(word + 1, name) != NULL)
        word = fa_code_find(word + 1, name);
    if (word != NULL && word > parameter + strspn(parameter, " \t\r\n"))
        parameter[word - parameter] = 0;
    const char *type = strpbrk(parameter, "*[&") == NULL ? known_type(parameter) : NULL;
    if (type != NULL && cJSON_IsObject(argument))
        fa_json_add_text(argument, "type", type);
}

static cJSON *called(cJSON *arguments, const char *name)
{
    cJSON *argument;
    cJSON_ArrayForEach (argument, arguments)
        if (name != NULL && strcmp(fa_spec_text(argument, "name"), name) == 0)
            return argument;
    return NULL;
}

static bool is_passed(const cJSON *argument)
{
    return fa_spec_member(argument, "symbol") == NULL ||
           cJSON_IsTrue(fa_spec_member(argument, "parameter"));
}

/* One of several launches whose kernel takes some arguments takes those of its parameters' names, if all have one. */
static void add_names(cJSON *launch, cJSON *arguments, const char *parameters)
{
    char name[FA_NAME_MAX], *copy = strdup(parameters != NULL ? parameters : ""), *rest = copy,
                            *one;
    cJSON *argument, *names = cJSON_CreateArray();
    int passed = 0;
    bool all = copy != NULL && copy[0] != 0;
    cJSON_ArrayForEach (argument, arguments)
        passed += is_passed(argument);
    while (all && (one = next_parameter(&rest)) != NULL) {
        name_of(one, name);
        argument = called(arguments, name);
        all = argument != NULL && is_passed(argument);
        fa_json_push(names, cJSON_CreateString(name));
    }
    if (all && cJSON_GetArraySize(names) != passed)
        fa_json_add(launch, "arguments", names);
    else
        cJSON_Delete(names);
    free(copy);
}

void fa_source_types(struct fa_spec_reading *r)
{
    cJSON *argument, *arguments = cJSON_GetObjectItemCaseSensitive(r->json, "arguments");
    for (int i = 0; i < r->launches; i++) {
        cJSON *launch =
            cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(r->json, "launches"), i);
        char *parameters = fa_cut_parameters(r->cut, r->entry[i]), *rest = parameters;
        if (launch != NULL && fa_spec_member(launch, "arguments") == NULL)
            add_names(launch, arguments, parameters);
        const cJSON *name, *names = fa_spec_member(launch, "arguments");
        cJSON_ArrayForEach (name, names)
            add_type(called(arguments, cJSON_GetStringValue(name)), next_parameter(&rest));
        const cJSON *all = names == NULL ? arguments : NULL;
        cJSON_ArrayForEach (argument, all)
            if (is_passed(argument))
                add_type(argument, next_parameter(&rest));
        free(parameters);
    }
}

/* ---- kernels ---------------------------------------------------------------------------------*/
/* "space::name<arguments>": the name alone; false: it is no such text, which goes into the source. */
static bool read_expression(const char *text, char ret_name[FA_NAME_MAX])
{
    static const char allowed[] = " ,:<>()+-*/%&|=!?";
    size_t end = strcspn(text, "<");
    for (const char *at = text; *at != 0; at++)
        if (!fa_code_is_word(*at) && strchr(allowed, *at) == NULL)
            return false;
    while (end > 0 && text[end - 1] == ' ')
        end--;
    size_t from = end;
    while (from > 0 && fa_code_is_word(text[from - 1]))
        from--;
    snprintf(ret_name, FA_NAME_MAX, "%.*s", (int)(end - from), text + from);
    return end - from < FA_NAME_MAX && fa_is_identifier(ret_name) &&
           (from == 0 || text[from - 1] == ':') && strstr(text, "//") == NULL &&
           strstr(text, "/*") == NULL;
}

void fa_source_kernel(struct fa_spec_reading *r, const char *place, int source, const char *named,
                      const char *other, char ret_name[FA_NAME_MAX])
{
    struct fa_source_kernel kernel[KERNELS_MAX + 1], *found = NULL;
    char name[FA_NAME_MAX] = "";
    const char *left = fa_cut_left(r->cut);
    const bool none = strncmp(left, "nothing", 7) == 0, instance = strchr(named, '<') != NULL;
    int candidates = 0;
    const int count = fa_cut_kernels(r->cut, (size_t)source, kernel, KERNELS_MAX);
    fa_buf names = {0};
    if (named[0] != 0 && !read_expression(named, name)) {
        fa_spec_fault(r,
                      "%s\"%.100s\" is no kernel: write its name, with the arguments of a "
                      "template, as in \"conv<BLOCK, float>\"",
                      place, named);
        return;
    }
    for (int i = 0; i < count; i++) {
        fa_buf_printf(&names, "%s%s", i == 0 ? "" : ", ", kernel[i].name);
        if (name[0] != 0 ? strcmp(kernel[i].name, name) != 0 : strcmp(kernel[i].name, other) == 0)
            continue;
        found = &kernel[i];
        candidates++;
    }
    if (count == 0)
        fa_spec_fault(r, "%sthere is no __global__ function in it%s%.*s", place,
                      none ? "; of it is left out " : "", none ? (int)strcspn(left, "\n") : 0,
                      left);
    else if (candidates != 1)
        fa_spec_fault(r,
                      name[0] != 0 ? "%sthere is no kernel %s in it, but %.500s"
                                   : "%s\"kernel\"%s must say which one is meant: %.500s",
                      place, name, names.data != NULL ? names.data : "others");
    else if (found->template != instance)
        fa_spec_fault(r,
                      instance ? "%s%s is no template: name it without arguments"
                               : "%s%s is a template: name its arguments too, as in \"kernel\": "
                                 "\"conv<BLOCK, float>\"",
                      place, found->name);
    else
        snprintf(ret_name, FA_NAME_MAX, "%s", found->name);
    fa_buf_free(&names);
}
