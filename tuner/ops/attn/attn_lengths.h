/* SPDX-License-Identifier: Apache-2.0
 *
 * The sequences of a proof's case: how long each is, which pages it has, and the lists that a kernel reads of
 * them on the device.
 *
 * Invariants: equal cases give equal lists. Pages of a sequence lie anywhere in the pool, every other sequence
 * begins with the page that the first one begins with, and some pages belong to none; entries of a block table
 * behind a sequence's end name no page.
 *
 * May be used by: tuner/ops. Thread-safety: pure.
 */
#ifndef FA_TUNER_OPS_ATTN_LENGTHS_H
#define FA_TUNER_OPS_ATTN_LENGTHS_H

#include "attn_cases.h"

/* Of sequence b. */
int32_t fa_attn_length_q(const fa_attn_case *what, int32_t b);
int32_t fa_attn_length_k(const fa_attn_case *what, int32_t b);

/* Sets total_q, total_k and num_pages from the case's problem, seed and `ragged`. */
void fa_attn_lengths_total(fa_attn_case *what);

/* Where the lists stand in one array of 32-bit words. */
typedef struct fa_attn_lists {
    size_t cu_seqlens_q, cu_seqlens_k, seqused_k, block_table, used, sinks, k_scale, v_scale;
    size_t words;
    int32_t table_stride; /* entries of a sequence */
    int32_t blocks;       /* numbers in `used`: keys of each page, of each sequence, or of all */
} fa_attn_lists;

fa_attn_lists fa_attn_lists_plan(const fa_attn_case *what);
/* `words`: room for lists->words of them. FA_ENOMEM. */
int fa_attn_lists_fill(const fa_attn_case *what, const fa_attn_lists *lists, int32_t *words,
                       fa_diag *diag);

/* What stands behind the dense arguments; `lists_at`: the device address of the words. */
void fa_attn_lists_params(const fa_attn_case *what, const fa_attn_lists *lists, uint64_t lists_at,
                          struct fa_attn_serving_params *params);

#endif
