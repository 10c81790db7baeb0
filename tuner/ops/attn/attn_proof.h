/* SPDX-License-Identifier: Apache-2.0
 *
 * The operation "attention forward": which cases prove a kernel, how their tensors lie in memory and how long their
 * sequences are, what a kernel is passed, which rows are compared, and what a result may differ by.
 *
 * Invariants: equal arguments give equal answers; sizes are 64-bit and checked for overflow;
 * an accepted result had no NaN, no unwritten element and no write outside its tensors.
 *
 * May be used by: tuner. May use: base, the structs of kernel_templates.
 */
#ifndef FA_TUNER_OPS_ATTN_PROOF_H
#define FA_TUNER_OPS_ATTN_PROOF_H

#include "attn_launch.h"
#include "prover.h"

/* How one tensor lies in memory, in elements: sequences (or pages; one where they are packed behind one another), heads,
 * rows, and columns, which have stride 1. */
typedef struct fa_attn_tensor {
    uint64_t extent[4], stride[4];
    uint64_t offset; /* of the first element from a 256-byte boundary */
} fa_attn_tensor;

/* A problem with everything that a proof must also fix. Strides of inputs may be 0 (shared); those
 * of the output must not overlap. */
typedef struct fa_attn_case {
    fa_problem problem;
    fa_attn_tensor tensor[FA_ATTN_TENSORS];
    float input_scale[3]; /* standard deviation of Q, K, V */
    float softmax_scale;
    /* Of a problem beyond dense tensors: how long its sequences are, and what follows. */
    uint64_t seed;
    bool ragged;              /* any lengths, zero too; else drawn by the problem's mean */
    int64_t total_q, total_k; /* rows of sequences that lie behind one another */
    int32_t num_pages;
    float softcap;
    bool once;     /* launched once per proof rather than twice: it is large */
    bool all_rows; /* every row is compared, else FA_PROVER_ROWS of them */
} fa_attn_case;

/* The tensors of a problem as its layout packs them, or with gaps between rows and blocks of rows that grow with
 * `pad` and differ from tensor to tensor. Unaligned problems get odd starts and, when padded, odd row strides; others
 * multiples of 16 bytes. `ragged`: sequences of any length up to the problem's, for one that has such. */
fa_attn_case fa_attn_case_make(const fa_problem *problem, int pad, uint64_t seed, bool ragged);

/* The problems of fa_attn_cases. */
int fa_attn_case_problems(const fa_problem *problem, uint64_t seed,
                          fa_problem ret_case[FA_BENCH_CASES]);
/* The cases of fa_bench_cases with their layouts. */
int fa_attn_cases(const fa_problem *problem, uint64_t seed, fa_attn_case ret_case[FA_BENCH_CASES]);

/* Sampled row ids, distinct from call to call only by seed: first and last rows, tile edges, random
 * ones; in order of their place in the sequence, so of the keys that causal rows see. Ids may
 * repeat. `heads` (of all sequences) and `seq` are not 0. */
void fa_attn_sample_rows(int64_t heads, int64_t seq, uint64_t seed,
                         int64_t ret_rows[FA_PROVER_ROWS]);

/* What O and LSE may differ by where the plain low-precision computation is that far from the reference, and finite LSE
 * as large. */
void fa_attn_tolerances(const fa_attn_case *what, double lowp_error, double of_lse, double *ret_o,
                        double *ret_lse);

/* ---- sequences of a case, by its seed --------------------------------------------------------*/
/* Pages of a sequence lie anywhere in the pool, every other sequence begins with the first page of sequence 0, and some
 * pages belong to none; entries of a block table behind a sequence's end name no page. */

/* Of sequence b. */
int32_t fa_attn_length_q(const fa_attn_case *what, int32_t b);
int32_t fa_attn_length_k(const fa_attn_case *what, int32_t b);

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

/* ---- in a prover -----------------------------------------------------------------------------*/
extern const struct fa_proof_type fa_attn_proof;

/* Takes 1..FA_BENCH_CASES cases of one dtype, head_dim and causal kind: as fa_proof_type.take_cases, for tests. */
void fa_attn_proof_take(fa_bench *bench, const fa_attn_case *cases, int count);

#endif
