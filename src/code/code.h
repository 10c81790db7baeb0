/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA C++ as text: where its lines, words, comments and literals end, without a compiler.
 */
#ifndef FA_CODE_CODE_H
#define FA_CODE_CODE_H

#include "buf.h"

#include <stdbool.h>
#include <stddef.h>

/* A word in a text, or none, of size 0. */
typedef struct fa_code_word {
    const char *at;
    size_t size;
} fa_code_word;

fa_code_word fa_code_word_at(const char *at);
bool fa_code_is(fa_code_word word, const char *text);
/* Past the blanks of a line, which may continue in the next. */
const char *fa_code_past_blanks(const char *at);
/* The word behind the # of the directive that the line is. */
fa_code_word fa_code_directive(const char *line);
/* The next occurrence of the name, which is no part of a longer one; NULL: there is none. */
const char *fa_code_find(const char *text, const char *name);
/* Blanks text[from..to), but for line ends. */
void fa_code_blank(char *text, size_t from, size_t to);
/* A copy whose comments are blank, and its literals if `literals` (free()); NULL: no memory. */
char *fa_code_of(const char *text, bool literals);

/* ---- the device part of what is written for nvcc ----------------------------------------------*/
typedef struct fa_cut fa_cut;

/* The kernel's and the answer's, which may be ""; the author's headers follow. */
enum { FA_CUT_SOURCES = 2 };

struct fa_cut_text {
    char *text;   /* NULL ends a list */
    bool library; /* it stays whole */
};
/* Reads texts, which live as long, and blanks host functions and host variables in them, unless options make these the device's.
 * `usual` is what nvcc includes before every source, `macros` are lines that define those of the specification. FA_ENOMEM. */
int fa_cut_read(const struct fa_cut_text *texts, const char *usual, const char *macros,
                bool keeps_host, fa_cut **ret_cut);
void fa_cut_free(fa_cut **cut); /* NULL is allowed */

struct fa_source_kernel {
    char name[FA_NAME_MAX];
    char *end;     /* its last byte; NULL: in a header, or a device function has its name, too */
    bool template; /* it is a pattern of kernels, and none itself */
};
/* Those of one source and of the headers; returns how many. */
int fa_cut_kernels(const fa_cut *cut, size_t source, struct fa_source_kernel *ret, int most);

char *fa_cut_parameters(const fa_cut *cut, const char *kernel); /* as written (free()) */

/* Keeps the declarations that a word of `used` reaches, and what they reach. FA_ENOMEM. */
int fa_cut_reach(fa_cut *cut, const char *used);
bool fa_cut_reaches(const fa_cut *cut, const char *macro); /* before fa_cut_apply() */
bool fa_cut_has(const fa_cut *cut, const char *text); /* in the code; of %…, in its literals */
/* Blanks all others. What is to stand before the sources is appended to ret_before: what they use and nvcc includes by
 * itself. FA_ENOMEM. */
int fa_cut_apply(fa_cut *cut, fa_buf *ret_before);
/* The reached words that may be names of cub's parts, each after a blank. */
const char *fa_cut_blocks(const fa_cut *cut);
/* A line for each host function or variable of the sources, "NAME in line 12". */
const char *fa_cut_left(const fa_cut *cut);

#endif
