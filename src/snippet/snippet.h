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

/* What the kernels of a problem read of tensors, for manifests. */
typedef struct fa_snippet_reads {
    int fetch_bytes
        [2]; /* of a key, that families fetch ahead for the score, and for a mask that is for all queries */
    int mask_lists; /* bits of the names of a mask that reads a tensor by query and key */
} fa_snippet_reads;

/* The function template snippet_score or snippet_mask (`mask`: true where a key is seen) of the score, if any, and the places:
 * fa_snippet.cuh. Sets what the text reads. FA_EINVAL with a sentence about it. */
int fa_snippet_print(const char *text, const fa_buffer *buffers, int count, bool mask, fa_buf *out,
                     fa_snippet_reads *reads, fa_diag *diag);
/* Those of a problem, with what they need in front, and dropout. Texts and reads may be NULL. FA_EINVAL where a text is none,
 * dropout has not its two buffers, or gradients have no room. */
int fa_snippets_print(const fa_problem *problem, fa_buf *ret_text, fa_snippet_reads *ret_reads,
                      fa_diag *diag);

#endif
