/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of a specification are read with, and the line that a sentence is about: sentences of every reader begin
 * with the place in the document ("grid[1]: …", "tunable BLOCK: …", "\"sizes\" must …"), whose words are looked up in the
 * text.
 *
 * And the specification's operation: itself, with what was found out about its answer, its sizes and how far from it is
 * right.
 *
 * Workload of the look: once for a specification that is refused. The text was parsed, or was not: every look ends at its
 * end.
 */
#include "spec_reading.h"

#include "family.h"
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

/* The first place from here on that has this word in quotes, as a key if one is meant; NULL: there is none. */
static const char *find(const char *at, const char *word, bool key)
{
    char quoted[WORD_MAX + 2];
    int size = snprintf(quoted, sizeof quoted, "\"%s\"", word);
    if (word[0] == 0)
        return NULL;
    while ((at = strstr(at, quoted)) != NULL && key && *skip_space(at + size) != ':')
        at++;
    return at;
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

/* What "grid[1]", "tune BLOCK" and the like stand for: the key, or the name that follows in it. */
static const char *find_place(const char *json, const char *sentence)
{
    char word[WORD_MAX];
    const char *rest = read_word(sentence, word), *found = find(json, word, true);
    rest += *rest == '[' ? strcspn(rest, "]") + 1 : 0;
    read_word(rest + (*rest == ':'), word);
    const char *name = found != NULL && sentence[0] != '"' ? find(found, word, false) : NULL;
    return name != NULL ? name : found;
}

/* The first key, wherever it is, that the sentence has in quotes. */
static const char *find_quoted(const char *json, const char *sentence)
{
    char word[WORD_MAX];
    const char *found = NULL;
    for (; found == NULL && (sentence = strchr(sentence, '"')) != NULL; sentence++) {
        read_word(sentence, word);
        found = find(json, word, true);
    }
    return found;
}

void fa_spec_locate(const char *where, const char *name, const char *json, bool beside,
                    fa_diag *diag)
{
    static const char syntax[] = "not valid JSON in line ",
                      behind[] = "text after the JSON value at offset ";
    const char *const begins[][3] = {
        {"", where, ": "}, {"", name, ".json: "}, {"operation ", name, ": "}, {"", name, ": "}};
    char text[sizeof diag->text], begin[512];
    const char *sentence = memcpy(text, diag->text, sizeof text), *found = skip_space(json);
    const char *at;
    long line = 1;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        int size =
            snprintf(begin, sizeof begin, "%s%s%s", begins[i][0], begins[i][1], begins[i][2]);
        if (size < (int)sizeof begin && strncmp(sentence, begin, (size_t)size) == 0) {
            sentence += size;
            i = (size_t)-1; /* from the first again */
        }
    }
    if (sentence == text)
        return;
    if (strncmp(sentence, behind, sizeof behind - 1) == 0)
        found = json + strtoul(sentence + sizeof behind - 1, NULL, 10);
    else if ((at = find_place(found, sentence)) != NULL ||
             (at = find_quoted(found, sentence)) != NULL)
        found = at;
    for (at = json; at < found; at++)
        line += *at == '\n';
    if (strncmp(sentence, syntax, sizeof syntax - 1) == 0)
        line = strtol(sentence + sizeof syntax - 1, NULL, 10);
    if (beside && strchr(json, '\n') == NULL)
        fa_fail(diag, FA_EMANIFEST, "%s: %s", where, sentence);
    else
        fa_fail(diag, FA_EMANIFEST, "%s:%ld: %s", where, line, sentence);
}

/* ---- what the parts of a specification are read with -----------------------------------------*/
int fa_spec_fault(struct fa_spec_reading *r, const char *format, ...)
{
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return r->rc != 0 ? r->rc : (r->rc = fa_fail(r->diag, FA_EMANIFEST, "%s: %s", r->where, text));
}

void fa_spec_memory(struct fa_spec_reading *r, bool enough)
{
    if (!enough && r->rc == 0)
        r->rc = fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where);
}

const char *fa_spec_text(const cJSON *json, const char *key)
{
    const char *text = fa_json_string(json, key);
    return text != NULL ? text : "";
}

void fa_spec_check_keys(struct fa_spec_reading *r, const cJSON *object, const char *place,
                        const char *const *keys)
{
    char where[300];
    snprintf(where, sizeof where, "%.200s%s%.60s", r->where, place[0] != 0 ? ": " : "", place);
    if (r->rc == 0 && fa_json_check_keys(object, keys, where, r->diag) != 0)
        r->rc = FA_EMANIFEST;
}

bool fa_spec_is_name(const char *text, size_t size)
{
    return fa_is_identifier(text) && strlen(text) < size &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(text);
}

int fa_spec_check_launches(struct fa_spec_reading *r)
{
    static const char *const keys[] = {"kernel",    "block",       "grid",         "shared_memory",
                                       "work",      "cooperative", "programmatic", "when",
                                       "arguments", NULL};
    const cJSON *launch, *list = fa_json_member(r->json, "launches");
    const int count = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    int at = 0;
    if (list == NULL)
        return 1;
    if (count < 1 || count > FA_LAUNCHES_MAX)
        fa_spec_fault(r, "\"launches\" must be an array of 1 to %d launches", FA_LAUNCHES_MAX);
    for (int i = 0; keys[i] != NULL; i++)
        if (fa_json_member(r->json, keys[i]) != NULL && keys[i + 1] != NULL)
            fa_spec_fault(r, "\"%s\" is given beside \"launches\": put it into each launch",
                          keys[i]);
    cJSON_ArrayForEach (launch, list) {
        char place[32];
        snprintf(place, sizeof place, "launches[%d]", at++);
        if (!cJSON_IsObject(launch) || fa_spec_text(launch, "kernel")[0] == 0)
            fa_spec_fault(r, "%s must be an object with a \"kernel\"", place);
        fa_spec_check_keys(r, launch, place, keys);
        if (r->file == NULL && fa_json_member(launch, "arguments") != NULL)
            fa_spec_fault(r, "%s: \"arguments\" are a single kernel's: a family's take one struct",
                          place);
    }
    return r->rc == 0 ? count : 0;
}

const cJSON *fa_spec_launch(struct fa_spec_reading *r, int launch)
{
    const cJSON *list = fa_json_member(r->json, "launches");
    return list != NULL ? cJSON_GetArrayItem(list, launch) : r->json;
}

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
    enum { OF_TYPE = 84 /* of fp32: 1e-5 */ };
    drop_nulls(r->json);
    cJSON_DeleteItemFromObjectCaseSensitive(r->json, "name");
    fa_json_add_text(r->json, "name", r->name);
    fa_json_add_text(r->json, "title", r->name);
    fa_json_add_text(r->json, "specification", r->hash);
    fix_sizes(r);
    add_answer(r);
    /* Unless "atol" says otherwise, what is near 0 may differ by that part of the output's largest element. */
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
