/* SPDX-License-Identifier: Apache-2.0
 *
 * Snippets: what a user writes of the scores or the mask of attention, as "score - 0.5 * abs(q - k)" or "k <= q or k < 100".
 * From one text come what the fake driver and references compute, and CUDA C++.
 * Workload: one or two for a problem, parsed for each source that is rendered; evaluated by tests.
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

/* What reads a buffer's element, or a number, for evaluations; indices may be outside. */
typedef double fa_snippet_read(const void *data, int buffer, const int64_t index[]);
void fa_snippet_give(fa_snippet *snippet, fa_snippet_read *read, const void *data);

/* In double precision; true is 1. */
double fa_snippet_evaluate(const fa_snippet *snippet, double score, const int64_t place[FA_PLACES]);

/* The function template snippet_score or snippet_mask of the score, if any, and the places: fa_snippet.cuh. */
void fa_snippet_print(const fa_snippet *snippet, fa_buf *out);

#endif
