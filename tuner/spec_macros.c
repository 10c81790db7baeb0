/* SPDX-License-Identifier: Apache-2.0
 *
 * The macros that a specification gives its source, tunables and names of "defines": none has another value in it, and each
 * has an effect.
 *
 * Whether a directive of the source counts is the preprocessor's to say: one that would change a macro is replaced by an
 * #error, which it meets where the directive stands.
 *
 * Workload: the author's files, once for each specification that is read.
 */
#include "spec_reading.h"

#include "problem.h"
#include "spec.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

const char *fa_source_find(const char *text, const char *name)
{
    const size_t size = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += size)
        if ((at == text || !is_word(at[-1])) && !is_word(at[size]))
            return at;
    return NULL;
}

/* A line that goes on is one to the preprocessor. */
static const char *past_blanks(const char *at)
{
    for (at += strspn(at, " \t\f\v"); at[0] == '\\' && at[1] == '\n';)
        at += 2 + strspn(at + 2, " \t\f\v");
    return at;
}

/* Past the word, if it stands here; else NULL. */
static const char *past_word(const char *at, const char *word)
{
    const size_t size = strlen(word);
    return strncmp(at, word, size) == 0 && !is_word(at[size]) ? past_blanks(at + size) : NULL;
}

/* ---- macros that the source changes -----------------------------------------------------------*/
/* The macro of the specification that the line defines, or undefines; NULL: it does neither. */
static const cJSON *find_change(const cJSON *json, const char *line, bool *ret_defines)
{
    static const char *const keys[] = {"tune", "defines"};
    char name[FA_NAME_MAX];
    line = past_blanks(line);
    if (*line != '#')
        return NULL;
    line = past_blanks(line + 1);
    const char *at = past_word(line, "define");
    *ret_defines = at != NULL;
    if (at == NULL && (at = past_word(line, "undef")) == NULL)
        return NULL;
    size_t size = 0;
    while (is_word(at[size]))
        size++;
    if (size >= sizeof name)
        return NULL;
    snprintf(name, sizeof name, "%.*s", (int)size, at);
    for (int i = 0; i < 2; i++) {
        const cJSON *macro = cJSON_GetObjectItemCaseSensitive(fa_spec_member(json, keys[i]), name);
        if (macro != NULL)
            return macro;
    }
    return NULL;
}

/* Behind the first letter of where code last reads a macro, not where that is defined, or asked whether it is; 0: nowhere. */
static size_t last_read(const char *code, const char *name)
{
    static const char *const guards[] = {"define",  "undef",   "ifdef",    "ifndef",
                                         "defined", "defines", "undefines" /* an #error's */};
    size_t last = 0;
    for (const char *at = code; (at = fa_source_find(at, name)) != NULL; at += strlen(name)) {
        const char *end = at;
        while (end > code && strchr(" \t(", end[-1]) != NULL)
            end--;
        const char *word = end;
        while (word > code && is_word(word[-1]))
            word--;
        bool read = true;
        for (size_t i = 0; i < sizeof guards / sizeof *guards; i++)
            read = read && past_word(word, guards[i]) == NULL;
        if (read)
            last = (size_t)(at - code) + 1;
    }
    return last;
}

bool fa_source_reads(const char *code, const char *name)
{
    return last_read(code, name) > 0;
}

/* Where each macro is last read, looked for once, however often it is undefined. */
struct reads {
    struct {
        const cJSON *macro;
        size_t last;
    } of[FA_MAX_TUNABLES + FA_DEFINES_MAX];
    int count;
};

static size_t find_last(struct reads *reads, const char *code, const cJSON *macro)
{
    int i = 0;
    while (i < reads->count && reads->of[i].macro != macro)
        i++;
    if (i == reads->count) {
        reads->of[reads->count].macro = macro;
        reads->of[reads->count++].last = last_read(code, macro->string);
    }
    return reads->of[i].last;
}

int fa_source_guard(const cJSON *json, fa_buf *text)
{
    fa_buf out = {0};
    char *code = fa_source_code(text->data);
    bool changed = false;
    struct reads reads = {.count = 0};
    if (code == NULL)
        return FA_ENOMEM;
    for (const char *line = code, *end; *line != 0; line = end) {
        bool defines, continues = line > code + 1 && line[-2] == '\\';
        end = strchrnul(line, '\n');
        const char *rest = end;
        end += *end != 0;
        const cJSON *macro = continues ? NULL : find_change(json, line, &defines);
        if (macro != NULL && (defines || find_last(&reads, code, macro) > (size_t)(rest - code))) {
            const char *name = macro->string;
            const bool tunable = fa_spec_member(fa_spec_member(json, "tune"), name) == macro;
            fa_buf_printf(&out, "#error " FA_SPEC_REFUSED "the source %s %s, a %s: ",
                          defines ? "defines" : "undefines", name,
                          tunable ? "tunable" : "name of \"defines\"");
            if (defines)
                fa_buf_printf(&out, "put #ifndef %s around it\n", name);
            else
                fa_buf_text(&out, "do that behind its last use\n");
            changed = true;
        } else {
            fa_buf_append(&out, text->data + (line - code), (size_t)(end - line));
        }
    }
    free(code);
    if (!changed || out.failed) {
        const bool failed = out.failed;
        fa_buf_free(&out);
        return failed ? FA_ENOMEM : 0;
    }
    fa_buf_free(text);
    *text = out;
    return 0;
}

/* ---- macros that nothing reads ----------------------------------------------------------------*/
/* Appends the texts of the specification that may read a macro; a grid alone tells a kernel nothing that does not look
 * how large it is. */
static void put_texts(fa_buf *out, const cJSON *json, bool grid_counts)
{
    static const char *const others[] = {"tune", "default", "defines", "name", "source"};
    const cJSON *item;
    cJSON_ArrayForEach (item, json) {
        bool counts = true;
        for (size_t i = 0; item->string != NULL && i < sizeof others / sizeof *others; i++)
            counts = counts && strcmp(item->string, others[i]) != 0;
        if (!counts || (item->string != NULL && strcmp(item->string, "grid") == 0 && !grid_counts))
            continue;
        if (cJSON_IsString(item))
            fa_buf_printf(out, " %s\n", item->valuestring);
        else
            put_texts(out, item, grid_counts);
    }
}

/* Appends the expressions of those "defines" that something reads, until no more come to it. */
static void put_defines(fa_buf *texts, const char *code, const cJSON *defines)
{
    bool live[FA_DEFINES_MAX] = {false}, found = true;
    while (found && !texts->failed) {
        const cJSON *item;
        int at = 0;
        found = false;
        cJSON_ArrayForEach (item, defines) {
            char room[32];
            const char *text = fa_json_expression(item, room);
            if (!live[at] && text != NULL &&
                (fa_source_reads(code, item->string) ||
                 fa_source_find(texts->data, item->string) != NULL)) {
                fa_buf_printf(texts, " %s\n", text);
                live[at] = found = true;
            }
            at++;
        }
    }
}

int fa_spec_check_macros(struct fa_spec_reading *r, const char *source)
{
    static const char *const keys[] = {"tune", "defines"}, *const kinds[] = {"tunable", "define"};
    static const char *const handles[] = {"cudaTextureObject_t", "cudaSurfaceObject_t"};
    static const char *const looks[] = {"gridDim", "nctaid", "atomic", "this_grid", "grid_group"};
    const cJSON *item;
    fa_buf texts = {0};
    char *code = fa_source_code(source);
    bool grid_counts = false, any_name = code == NULL || strstr(code, "##") != NULL;
    for (size_t i = 0; code != NULL && i < sizeof looks / sizeof *looks; i++)
        grid_counts = grid_counts || strstr(code, looks[i]) != NULL;
    fa_buf_text(&texts, "\n");
    put_texts(&texts, r->json, grid_counts);
    if (!any_name)
        put_defines(&texts, code, fa_spec_member(r->json, "defines"));
    int rc = code == NULL || texts.failed
                 ? fa_fail(r->diag, FA_ENOMEM, "%s: out of memory", r->where)
                 : 0;
    for (int i = 0; i < 2 && rc == 0 && !any_name; i++)
        cJSON_ArrayForEach (item, fa_spec_member(r->json, keys[i]))
            if (r->found.text[0] == 0 && !fa_source_reads(code, item->string) &&
                fa_source_find(texts.data, item->string) == NULL)
                fa_fail(&r->found, FA_EMANIFEST, "%s: %s %s: the source never uses the %s %s",
                        r->where, keys[i], item->string, kinds[i], item->string);
    for (int i = 0; i < 2 && code != NULL && r->found.text[0] == 0; i++)
        if (fa_source_find(code, handles[i]) != NULL)
            fa_fail(&r->found, FA_EMANIFEST,
                    "%s: arguments: the source takes %s, a handle that the host makes: none can be "
                    "drawn for a proof",
                    r->where, handles[i]);
    fa_buf_free(&texts);
    free(code);
    return rc;
}
