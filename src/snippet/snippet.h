/* SPDX-License-Identifier: Apache-2.0
 *
 * Snippets: what a user writes of the scores or the mask of attention, as "score - 0.5 * abs(q - k)" or "k <= q or k < 100".
 * It becomes CUDA C++, which kernels and references compute.
 * Workload: one or two for a problem, parsed for each source that is rendered.
 *
 * Names: score (real; of a mask it is none); b, h, hk (query head, key head), q, k (positions in the sequence), len_q, len_k
 * (whole numbers), and buffers, as slope[h] and doc[b][q]. It is an expression of expr.h, but `/` is a fraction, and `%` has the
 * sign of the divisor; what is divided by 0 is 0, and so is a shift by no number of bits. Real numbers are IEEE's.
 * Invariant: of whole numbers it is known that they have 64 bits; others are refused.
 */
#ifndef FA_SNIPPET_SNIPPET_H
#define FA_SNIPPET_SNIPPET_H

#include "buf.h"
#include "operands.h"

enum {
    FA_SNIPPET_NODES = 256,
    FA_SNIPPET_POSITIONS = 1 << 23 /* at most, either way: differences are exact as floats */
};

typedef struct fa_snippet fa_snippet;

/* `mask`: true where a key is seen; else a score. buffers: their list, or NULL. FA_EINVAL with a sentence about the text. */
int fa_snippet_parse(const char *text, const char *buffers, bool mask, fa_snippet **ret_snippet,
                     fa_diag *diag);
void fa_snippet_free(fa_snippet **snippet);

/* For tests, in double precision; true is 1. Reads a buffer's element, or a number; indices may be outside. */
typedef double fa_snippet_read(const void *data, int buffer, const int64_t index[]);
double fa_snippet_evaluate(const fa_snippet *snippet, double score, const int64_t place[FA_PLACES],
                           fa_snippet_read *read, const void *data);

/* The function template snippet_score or snippet_mask of the score, if any, and the places: fa_snippet.cuh. */
void fa_snippet_print(const fa_snippet *snippet, fa_buf *out);
/* Those of a problem, with what they need in front. FA_EINVAL where a text is none. */
int fa_snippets_print(const fa_problem *problem, fa_buf *out, fa_diag *diag);

#endif
