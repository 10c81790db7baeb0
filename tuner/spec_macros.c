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

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- macros that the source changes -----------------------------------------------------------*/
/* The macro of the specification that the line defines, or undefines; NULL: it does neither. */
static const cJSON *find_change(const cJSON *json, const char *line, const char **ret_key,
                                bool *ret_defines)
{
    const fa_code_word word = fa_code_directive(line);
    *ret_defines = fa_code_is(word, "define");
    if (!*ret_defines && !fa_code_is(word, "undef"))
        return NULL;
    const fa_code_word name = fa_code_word_at(fa_code_past_blanks(word.at + word.size));
    return fa_spec_macro(json, name.at, name.size, ret_key);
}

void fa_source_guard(const cJSON *json, fa_buf *text)
{
    fa_buf out = {0};
    char *code = fa_code_of(text->data, false);
    bool changed = false;
    for (const char *line = code != NULL ? code : "", *end; *line != 0; line = end) {
        bool defines, continues = line > code + 1 && line[-2] == '\\';
        end = strchrnul(line, '\n');
        const char *rest = end;
        end += *end != 0;
        const char *key;
        const cJSON *macro = continues ? NULL : find_change(json, line, &key, &defines);
        if (macro != NULL && (defines || fa_code_find(rest, macro->string) != NULL)) {
            const char *name = macro->string;
            fa_buf_printf(&out, "#error " FA_SPEC_REFUSED "the source %s %s, a %s: ",
                          defines ? "defines" : "undefines", name,
                          strcmp(key, "tune") == 0 ? "tunable" : "name of \"defines\"");
            if (defines)
                fa_buf_printf(&out, "put #ifndef %s around it\n", name);
            else
                fa_buf_text(&out, "do that behind its last use\n");
            changed = true;
        } else {
            fa_buf_append(&out, text->data + (line - code), (size_t)(end - line));
        }
    }
    if (code == NULL || out.failed) {
        text->failed = true;
    } else if (changed) {
        fa_buf_free(text);
        *text = out;
        out = (fa_buf){0};
    }
    fa_buf_free(&out);
    free(code);
}

/* ---- macros that nothing reads ----------------------------------------------------------------*/
static const char *const handles[] = {"cudaTextureObject_t", "cudaSurfaceObject_t"};

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

void fa_spec_reach(struct fa_spec_reading *r)
{
    static const char *const looks[] = {"gridDim", "%nctaid", "atomic", "this_grid", "grid_group"};
    const cJSON *values, *value;
    fa_buf used = {0};
    bool grid_counts = false;
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        grid_counts = grid_counts || fa_cut_has(r->cut, looks[i]);
    fa_buf_printf(&used, "%s\n", r->answer);
    for (int i = 0; i < r->launches; i++)
        fa_buf_printf(&used, "%s\n", r->entry[i]);
    cJSON_ArrayForEach (values, fa_spec_member(r->json, "tune"))
        cJSON_ArrayForEach (value, values) /* which may be names */
            if (cJSON_IsString(value))
                fa_buf_printf(&used, " %s\n", value->valuestring);
    put_texts(&used, r->json, grid_counts);
    fa_spec_memory(r, !used.failed && fa_cut_reach(r->cut, used.data) == 0);
    fa_buf_free(&used);
}

void fa_spec_put_macros(struct fa_spec_reading *r, fa_buf *ret_text)
{
    const cJSON *item;
    char room[32];
    cJSON_ArrayForEach (item, fa_spec_member(r->json, "tune"))
        fa_buf_printf(ret_text, "#define %s\n", item->string);
    cJSON_ArrayForEach (item, fa_spec_member(r->json, "defines")) {
        const char *text = fa_json_expression(item, room);
        fa_buf_printf(ret_text, "#define %s %s\n", item->string, text != NULL ? text : "");
    }
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
        fa_buf_printf(ret_text, "#define %s\n", handles[i]);
}

void fa_spec_check_macros(struct fa_spec_reading *r)
{
    static const char *const keys[] = {"tune", "defines"}, *const kinds[] = {"tunable", "define"};
    const cJSON *item;
    for (int i = 0; i < 2 && !fa_cut_has(r->cut, "##"); i++) /* else any name may be made */
        cJSON_ArrayForEach (item, fa_spec_member(r->json, keys[i]))
            if (r->spec->fault.text[0] == 0 && !fa_cut_reaches(r->cut, item->string))
                fa_fail(&r->spec->fault, FA_EMANIFEST, "%s: %s %s: the source never uses the %s %s",
                        r->where, keys[i], item->string, kinds[i], item->string);
    for (size_t i = 0; i < sizeof handles / sizeof *handles && r->spec->fault.text[0] == 0; i++)
        if (fa_cut_reaches(r->cut, handles[i]))
            fa_fail(&r->spec->fault, FA_EMANIFEST,
                    "%s: arguments: the source takes %s, a handle that the host makes: none can be "
                    "drawn for a proof",
                    r->where, handles[i]);
}
