/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of a specification are read with, and the line that a sentence is about: sentences of every reader begin
 * with the place in the document ("grid[1]: …", "tunable BLOCK: …", "\"sizes\" must …"), whose words are looked up in the
 * text.
 *
 * Workload of the look: once for a specification that is refused. The text was parsed, or was not: every look ends at its
 * end.
 */
#include "spec_reading.h"

#include "error.h"
#include "problem.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MAX = 64 };

/* ---- the text --------------------------------------------------------------------------------*/
static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *skip_text(const char *at)
{
    for (at++; *at != 0 && *at != '"'; at++)
        at += at[0] == '\\' && at[1] != 0;
    return at + (*at != 0);
}

static const char *skip_value(const char *at)
{
    int depth = 0;
    for (at = skip_space(at); *at != 0;) {
        if (*at == '"') {
            at = skip_text(at);
            if (depth == 0)
                return at;
            continue;
        }
        if (depth == 0 && strchr(",]}", *at) != NULL)
            return at;
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        at++;
    }
    return at;
}

/* The key of an object's member; NULL: there is none. */
static const char *find_key(const char *object, const char *key)
{
    size_t size = strlen(key);
    object = skip_space(object);
    for (const char *at = *object == '{' ? skip_space(object + 1) : ""; *at == '"';) {
        if (strncmp(at + 1, key, size) == 0 && at[1 + size] == '"')
            return at;
        at = skip_space(skip_text(at));
        at = *at == ':' ? skip_space(skip_value(at + 1)) : "";
        at = *at == ',' ? skip_space(at + 1) : "";
    }
    return NULL;
}

static const char *value_of(const char *key)
{
    const char *at = skip_space(skip_text(key));
    return *at == ':' ? skip_space(at + 1) : at;
}

static const char *find_element(const char *array, long index)
{
    const char *at = *array == '[' ? skip_space(array + 1) : NULL;
    while (at != NULL && index-- > 0) {
        at = skip_space(skip_value(at));
        at = *at == ',' ? skip_space(at + 1) : NULL;
    }
    return at;
}

/* A key of this name wherever it is. */
static const char *find_anywhere(const char *json, const char *key)
{
    char quoted[WORD_MAX + 2];
    int size = snprintf(quoted, sizeof quoted, "\"%s\"", key);
    for (const char *at = json; (at = strstr(at, quoted)) != NULL; at++)
        if (*skip_space(at + size) == ':')
            return at;
    return NULL;
}

/* ---- the sentence ----------------------------------------------------------------------------*/
/* The word that stands here, in quotes or not; "": none does. */
static const char *read_word(const char *at, char ret[WORD_MAX])
{
    size_t size = 0;
    at += *at == ' ' || *at == '"';
    at += *at == '"';
    while ((isalnum((unsigned char)at[size]) || at[size] == '_') && size + 1 < WORD_MAX)
        size++;
    snprintf(ret, WORD_MAX, "%.*s", (int)size, at);
    return at + size + (at[size] == '"');
}

/* What "grid[1]", "tune BLOCK" and the like stand for. */
static const char *find_place(const char *json, const char *sentence)
{
    char word[WORD_MAX], member[WORD_MAX];
    const char *rest = read_word(sentence, word), *key = find_key(json, word);
    if (key == NULL)
        return NULL;
    const char *found = key, *value = value_of(key);
    while (*rest == '[') {
        char *end;
        const char *element = find_element(value, strtol(rest + 1, &end, 10));
        if (element != NULL)
            found = value = element;
        rest = *end == ']' ? end + 1 : end;
    }
    if (*rest == ':')
        rest++;
    read_word(rest, member);
    const char *deeper = member[0] != 0 ? find_key(value, member) : NULL;
    return deeper != NULL ? deeper : found;
}

/* The first key that the sentence has in quotes. */
static const char *find_quoted(const char *json, const char *sentence)
{
    char word[WORD_MAX];
    for (const char *at = sentence; (at = strchr(at, '"')) != NULL; at++) {
        read_word(at, word);
        const char *found = word[0] != 0 ? find_anywhere(json, word) : NULL;
        if (found != NULL)
            return found;
    }
    return NULL;
}

static bool skip_name(const char **sentence, const char *before, const char *name,
                      const char *ending)
{
    char begin[512];
    int size = snprintf(begin, sizeof begin, "%s%s%s: ", before, name, ending);
    if (size >= (int)sizeof begin || strncmp(*sentence, begin, (size_t)size) != 0)
        return false;
    *sentence += size;
    return true;
}

void fa_spec_locate(const char *where, const char *name, const char *json, bool beside,
                    fa_diag *diag)
{
    static const char syntax[] = "not valid JSON in line ",
                      behind[] = "text after the JSON value at offset ";
    char text[sizeof diag->text];
    const char *sentence = memcpy(text, diag->text, sizeof text);
    long line = 1;
    while (skip_name(&sentence, "", where, "") || skip_name(&sentence, "", name, ".json") ||
           skip_name(&sentence, "operation ", name, "") || skip_name(&sentence, "", name, ""))
        continue;
    if (sentence == text)
        return;
    if (strncmp(sentence, syntax, sizeof syntax - 1) == 0) {
        line = strtol(sentence + sizeof syntax - 1, NULL, 10);
    } else if (strncmp(sentence, behind, sizeof behind - 1) == 0) {
        size_t size = strtoul(sentence + sizeof behind - 1, NULL, 10);
        for (size_t i = 0; i < size; i++)
            line += json[i] == '\n';
    } else {
        const char *begin = skip_space(json), *found = find_place(begin, sentence);
        if (found == NULL)
            found = find_quoted(begin, sentence);
        for (const char *at = json; at < (found != NULL ? found : begin); at++)
            line += *at == '\n';
    }
    if (beside && strchr(json, '\n') == NULL)
        fa_fail(diag, FA_EMANIFEST, "%s: %s", where, sentence);
    else
        fa_fail(diag, FA_EMANIFEST, "%s:%ld: %s", where, line, sentence);
}

/* ---- what the parts of a specification are read with -----------------------------------------*/
int fa_spec_fault(const struct fa_spec_reading *r, const char *format, ...)
{
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fa_fail(r->diag, FA_EMANIFEST, "%s: %s", r->where, text);
}

const cJSON *fa_spec_member(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNull(item) ? NULL : item;
}

const char *fa_spec_text(const cJSON *json, const char *key)
{
    const char *text = cJSON_GetStringValue(fa_spec_member(json, key));
    return text != NULL ? text : "";
}

const cJSON *fa_spec_macro(const cJSON *json, const char *name, size_t size, const char **ret_key)
{
    static const char *const keys[] = {"tune", "defines"};
    const cJSON *macro;
    for (int i = 0; i < 2; i++)
        cJSON_ArrayForEach (macro, fa_spec_member(json, *ret_key = keys[i]))
            if (strlen(macro->string) == size && strncmp(macro->string, name, size) == 0)
                return macro;
    return NULL;
}

int fa_spec_check_keys(const struct fa_spec_reading *r, const cJSON *object, const char *place,
                       const char *const *keys)
{
    char where[300];
    snprintf(where, sizeof where, "%.200s%s%.60s", r->where, place[0] != 0 ? ": " : "", place);
    return fa_json_check_keys(object, keys, where, r->diag) == 0 ? 0 : FA_EMANIFEST;
}

bool fa_spec_is_name(const char *text, size_t size)
{
    return fa_is_identifier(text) && strlen(text) < size &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(text);
}

int fa_spec_check_launches(const struct fa_spec_reading *r, int *ret_count)
{
    static const char *const keys[] = {"kernel",        "block", "cluster",     "grid",
                                       "shared_memory", "work",  "cooperative", "when",
                                       "arguments",     NULL};
    const cJSON *launch, *list = fa_spec_member(r->json, "launches");
    int count = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0, rc = 0, at = 0;
    *ret_count = list == NULL ? 1 : count;
    if (list == NULL)
        return 0;
    if (count < 1 || count > FA_LAUNCHES_MAX)
        return fa_spec_fault(r, "\"launches\" must be an array of 1 to %d launches",
                             FA_LAUNCHES_MAX);
    for (int i = 0; keys[i] != NULL; i++)
        if (fa_spec_member(r->json, keys[i]) != NULL && keys[i + 1] != NULL)
            return fa_spec_fault(r, "\"%s\" is given beside \"launches\": put it into each launch",
                                 keys[i]);
    cJSON_ArrayForEach (launch, list) {
        char place[32];
        snprintf(place, sizeof place, "launches[%d]", at++);
        if (rc == 0 && (!cJSON_IsObject(launch) || fa_spec_text(launch, "kernel")[0] == 0))
            rc = fa_spec_fault(r, "%s must be an object with a \"kernel\"", place);
        if (rc == 0)
            rc = fa_spec_check_keys(r, launch, place, keys);
        if (rc == 0 && r->file == NULL && fa_spec_member(launch, "arguments") != NULL)
            rc = fa_spec_fault(
                r, "%s: \"arguments\" are a single kernel's: a family's take one struct", place);
    }
    return rc;
}

const cJSON *fa_spec_launch(const struct fa_spec_reading *r, int launch)
{
    const cJSON *list = fa_spec_member(r->json, "launches");
    return list != NULL ? cJSON_GetArrayItem(list, launch) : r->json;
}
