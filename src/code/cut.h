/* SPDX-License-Identifier: Apache-2.0
 *
 * The device part of CUDA C++ that is written for nvcc, found without a compiler: see cut.c.
 */
#ifndef FA_CODE_CUT_H
#define FA_CODE_CUT_H

#include "buf.h"
#include "problem.h"

typedef struct fa_cut fa_cut;

/* The kernel's and the answer's, which may be ""; the author's headers follow. */
enum { FA_CUT_SOURCES = 2 };

struct fa_cut_text {
    char *text;   /* NULL ends a list */
    bool library; /* it stays whole */
};
/* Reads texts, which live as long, and blanks host functions and host variables in them, unless the author's options make
 * them the device's. `macros` are lines that define those of the specification. FA_ENOMEM. */
int fa_cut_read(const struct fa_cut_text *texts, const char *macros, bool keeps_host,
                fa_cut **ret_cut);
void fa_cut_free(fa_cut **cut); /* NULL is allowed */

struct fa_source_kernel {
    char name[FA_NAME_MAX];
    bool template; /* it is a pattern of kernels, and none itself */
};
/* Those of one source and of the headers; returns how many. */
int fa_cut_kernels(const fa_cut *cut, size_t source, struct fa_source_kernel *ret, int most);

/* As the source has them (free()). */
char *fa_cut_parameters(const fa_cut *cut, const char *kernel);

/* Keeps the declarations that a word of `used` reaches, and what they reach. FA_ENOMEM. */
int fa_cut_reach(fa_cut *cut, const char *used);
bool fa_cut_reaches(const fa_cut *cut, const char *macro); /* before fa_cut_apply() */
/* In the author's code, in its literals after a %. */
bool fa_cut_has(const fa_cut *cut, const char *text);
/* Blanks all others. What is to stand before the sources is appended to ret_before: what they use and nvcc includes by
 * itself. FA_ENOMEM. */
int fa_cut_apply(fa_cut *cut, fa_buf *ret_before);
/* The reached words that may be names of cub's parts, each after a blank. */
const char *fa_cut_blocks(const fa_cut *cut);
/* A line for each host function or variable of the sources, "NAME in line 12". */
const char *fa_cut_left(const fa_cut *cut);

#endif
