/* SPDX-License-Identifier: Apache-2.0
 *
 * What every part of a manifest is read with: keys and types, names, texts, and the sentence for what is wrong.
 *
 * Workload: a few hundred calls for a manifest, once per process.
 * Invariants: no text of a manifest comes into a sentence beyond 60 bytes, and none is a name or a sentence
 * before its bytes were looked at.
 */
#include "manifest_reader.h"

#include "error.h"
#include "json.h"
#include "problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char fa_manifest_lower[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

bool fa_manifest_is_word(const char *text, const char *alphabet)
{
    size_t size = strlen(text);
    return size > 0 && size < FA_NAME_MAX && strspn(text, alphabet) == size &&
           (text[0] < '0' || text[0] > '9') && text[0] != '_';
}

bool fa_manifest_is_sentence(const char *text)
{
    size_t size = strlen(text);
    bool clean = size > 0 && size <= FA_MANIFEST_WHY_MAX;
    for (size_t i = 0; clean && i < size; i++)
        clean = (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;
    return clean;
}

int fa_manifest_fault(const struct fa_manifest_reader *r, const char *format, ...)
{
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fa_fail(r->diag, FA_EMANIFEST, "%s: %s", r->where, text);
}

int fa_manifest_check_keys(const struct fa_manifest_reader *r, const cJSON *object,
                           const char *place, const char *const *keys)
{
    char where[256];
    snprintf(where, sizeof where, "%.180s: %.64s", r->where, place);
    return fa_json_check_keys(object, keys, where, r->diag) == 0 ? 0 : FA_EMANIFEST;
}

int fa_manifest_member(const struct fa_manifest_reader *r, const char *key, bool required,
                       cJSON_bool (*is)(const cJSON *), const char *type, const cJSON **ret)
{
    *ret = cJSON_GetObjectItemCaseSensitive(r->json, key);
    if (*ret == NULL)
        return required ? fa_manifest_fault(r, "\"%s\" is missing", key) : 0;
    return is(*ret) ? 0 : fa_manifest_fault(r, "\"%s\" must be %s", key, type);
}

int fa_manifest_take(const struct fa_manifest_reader *r, const cJSON *item, const char *place,
                     fa_expr **ret_expr)
{
    char number[32];
    const char *text = number;
    if (cJSON_IsString(item)) {
        text = item->valuestring;
    } else if (cJSON_IsNumber(item) && item->valuedouble >= -1e9 && item->valuedouble <= 1e9 &&
               item->valuedouble == (double)(int64_t)item->valuedouble) {
        snprintf(number, sizeof number, "%lld", (long long)item->valuedouble);
    } else {
        return fa_manifest_fault(r, "%s must be an expression (a string) or an integer", place);
    }
    int rc = fa_expr_parse(text, r->name, r->name_count, ret_expr, r->diag);
    return rc == 0 ? 0 : fa_fail_in(r->diag, rc, "%s: %s", r->where, place);
}

/* Words that no macro can stand for in a kernel that is to be compiled. */
static bool is_reserved(const char *name)
{
    static const char *const words[] = {
        "auto",   "bool",   "break",     "case",     "char",     "class",    "const",    "continue",
        "do",     "double", "else",      "enum",     "extern",   "float",    "for",      "goto",
        "if",     "inline", "int",       "long",     "return",   "short",    "signed",   "sizeof",
        "static", "struct", "switch",    "template", "this",     "typename", "unsigned", "using",
        "void",   "while",  "threadIdx", "blockIdx", "blockDim", "gridDim"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], name) == 0)
            return true;
    return fa_expr_is_word(name);
}

int fa_manifest_add_name(struct fa_manifest_reader *r, const char *name, const char *place)
{
    if (!fa_is_identifier(name) || is_reserved(name))
        return fa_manifest_fault(r,
                                 "%s: \"%.60s\" is not a name: use at most %d letters, digits and "
                                 "_, a letter first, and no word of expressions or of C++",
                                 place, name, FA_NAME_MAX - 1);
    if (strncmp(name, "FA_", 3) == 0)
        return fa_manifest_fault(r, "%s: \"%s\": names that start with FA_ are ours", place, name);
    for (int i = 0; i < r->name_count; i++)
        if (strcmp(name, r->name[i]) == 0)
            return fa_manifest_fault(r, "%s: the name \"%s\" is taken", place, name);
    if (r->name_count == FA_EXPR_NAMES_MAX)
        return fa_manifest_fault(r, "more than %d names", FA_EXPR_NAMES_MAX);
    r->name[r->name_count++] = name;
    return 0;
}
