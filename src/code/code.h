/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA C++ as text: where its lines, words, comments and literals end, without a compiler.
 */
#ifndef FA_CODE_CODE_H
#define FA_CODE_CODE_H

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>

static inline bool fa_code_is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
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
