/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA C++ as text: where its lines, words, comments and literals end, without a compiler.
 *
 * Workload: texts of some tens of kilobytes, a few times each; time linear in their size.
 */
#include "code.h"

#include <stdio.h>
#include <string.h>

const char *fa_code_find(const char *text, const char *name)
{
    const size_t size = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += size)
        if ((at == text || !fa_code_is_word(at[-1])) && !fa_code_is_word(at[size]))
            return at;
    return NULL;
}

void fa_code_blank(char *text, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (text[i] != '\n')
            text[i] = ' ';
}

size_t fa_code_line_end(const char *text, size_t at)
{
    while (text[at] != 0 && (text[at] != '\n' || (at > 0 && text[at - 1] == '\\')))
        at++;
    return at;
}

/* Past the literal that opens at `at`; a raw one ends with ) and the word before its parenthesis. */
static size_t end_of_literal(const char *text, size_t at)
{
    char quote = text[at], mark[24];
    size_t word = strcspn(text + at + 1, "( \n");
    if (quote == '"' && at > 0 && text[at - 1] == 'R' && text[at + 1 + word] == '(' && word < 17) {
        snprintf(mark, sizeof mark, ")%.*s\"", (int)word, text + at + 1);
        const char *end = strstr(text + at, mark);
        return end != NULL ? (size_t)(end - text) + word + 2 : strlen(text);
    }
    for (at++; text[at] != 0 && text[at] != quote && text[at] != '\n';)
        at += text[at] == '\\' && text[at + 1] != 0 ? 2 : 1;
    return text[at] != 0 ? at + 1 : at;
}

char *fa_code_of(const char *text, bool literals)
{
    char *code = strdup(text);
    for (size_t at = 0, end; code != NULL && code[at] != 0; at = end) {
        const bool quoted =
            code[at] == '"' || (code[at] == '\'' && (at == 0 || !fa_code_is_word(code[at - 1])));
        end = at + 1;
        if (strncmp(code + at, "//", 2) == 0) {
            end = fa_code_line_end(code, at);
        } else if (strncmp(code + at, "/*", 2) == 0) {
            const char *close = strstr(code + at + 2, "*/");
            end = close != NULL ? (size_t)(close + 2 - code) : strlen(code);
        } else if (quoted) {
            end = end_of_literal(code, at);
        }
        if (quoted ? literals : end > at + 1)
            fa_code_blank(code, at, end);
    }
    return code;
}
