/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA C++ as text: where its lines, words, comments and literals end, without a compiler.
 */
#ifndef FA_CODE_CODE_H
#define FA_CODE_CODE_H

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static inline bool fa_code_is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* A word in a text, or none, of size 0. */
typedef struct fa_code_word {
    const char *at;
    size_t size;
} fa_code_word;

static inline fa_code_word fa_code_word_at(const char *at)
{
    fa_code_word word = {at, 0};
    while (fa_code_is_word(at[word.size]))
        word.size++;
    return word;
}

static inline bool fa_code_is(fa_code_word word, const char *text)
{
    return strlen(text) == word.size && strncmp(word.at, text, word.size) == 0;
}

/* Past the blanks of a line, which may continue in the next. */
static inline const char *fa_code_past_blanks(const char *at)
{
    for (at += strspn(at, " \t\f\v"); at[0] == '\\' && at[1] == '\n';)
        at += 2 + strspn(at + 2, " \t\f\v");
    return at;
}

/* The word behind the # of the directive that the line is. */
static inline fa_code_word fa_code_directive(const char *line)
{
    line = fa_code_past_blanks(line);
    return *line == '#' ? fa_code_word_at(fa_code_past_blanks(line + 1)) : (fa_code_word){line, 0};
}

/* The next occurrence of the name, which is no part of a longer one; NULL: there is none. */
const char *fa_code_find(const char *text, const char *name);
/* Blanks text[from..to), but for line ends. */
void fa_code_blank(char *text, size_t from, size_t to);
/* The end of the line, with those that continue it, in which `at` is. */
size_t fa_code_line_end(const char *text, size_t at);
/* A copy whose comments are blank, and its literals if `literals` (free()); NULL: no memory. */
char *fa_code_of(const char *text, bool literals);

#endif
