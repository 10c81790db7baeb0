/* SPDX-License-Identifier: Apache-2.0
 *
 * The operation "attention forward": which cases prove a kernel, how their tensors lie in memory and how long their
 * sequences are, what a kernel is passed, which rows are compared, and when a result is accepted. All but the prover
 * is pure arithmetic on the host and touches no device.
 *
 * Invariants: equal arguments give equal answers; sizes are 64-bit and checked for overflow;
 * an accepted result had no NaN, no unwritten element and no write outside its tensors.
 *
 * May be used by: tuner. May use: base, the structs of kernel_templates.
 */
#ifndef FA_TUNER_OPS_ATTN_CASES_H
#define FA_TUNER_OPS_ATTN_CASES_H

#include "attn_check.h"
#include "attn_serving_params.h"
#include "bench.h"
#include "prover.h"

/* How one tensor lies in memory, in elements; the head dimension has stride 1. */
typedef struct fa_attn_tensor {
    int64_t batch_stride, head_stride, row_stride;
    int64_t offset; /* of the first element from a 256-byte boundary */
} fa_attn_tensor;

enum { FA_ATTN_Q, FA_ATTN_K, FA_ATTN_V, FA_ATTN_O, FA_ATTN_TENSORS };

/* A problem with everything that a proof must also fix. Strides of inputs may be 0 (shared); those
 * of the output must not overlap. */
typedef struct fa_attn_case {
    fa_problem problem;
    fa_attn_tensor tensor[FA_ATTN_TENSORS];
    float input_scale[3]; /* standard deviation of Q, K, V */
    float softmax_scale;
    /* Of a problem beyond dense tensors: how long its sequences are, and what follows. */
    uint64_t seed;
    bool ragged;               /* any lengths, zero too; else drawn by the problem's mean */
    int64_t total_q, total_k;  /* rows of sequences that lie behind one another */
    int32_t num_pages;
    float softcap;
    bool once;     /* launched once per proof rather than twice: it is large */
    bool all_rows; /* every row is compared, else FA_ATTN_SAMPLED_ROWS of them */
} fa_attn_case;

enum { FA_ATTN_SAMPLED_ROWS = 256 };

/* The tensors of a problem as its layout packs them, or with gaps between rows and blocks of rows
 * that grow with `pad` and differ from tensor to tensor. Unaligned problems get odd starts and,
 * when padded, odd row strides; others multiples of 16 bytes. */
fa_attn_case fa_attn_case_packed(const fa_problem *problem);
fa_attn_case fa_attn_case_padded(const fa_problem *problem, int pad);

/* The same with sequences of any length up to the problem's, for one that has such. */
fa_attn_case fa_attn_case_ragged(const fa_problem *problem, int pad, uint64_t seed);

/* The problems of fa_attn_cases. */
int fa_attn_case_problems(const fa_problem *problem, uint64_t seed,
                          fa_problem ret_case[FA_BENCH_CASES]);
/* The cases of fa_bench_cases with their layouts. */
int fa_attn_cases(const fa_problem *problem, uint64_t seed, fa_attn_case ret_case[FA_BENCH_CASES]);

/* Elements from the first to the last one of a tensor (0 when it is empty). Returns false when
 * that overflows. */
bool fa_attn_tensor_span(const fa_attn_case *what, int tensor, uint64_t *ret_elements);

/* The region of a tensor inside `count` elements at `base` of which `first` come before it. */
struct fa_attn_region fa_attn_tensor_region(const fa_attn_case *what, int tensor, uint64_t base,
                                            uint64_t count, uint64_t first);
/* The same for LSE, a packed array of fp32, counted in 16-bit halves. */
struct fa_attn_region fa_attn_lse_region(const fa_attn_case *what, uint64_t base, uint64_t count,
                                         uint64_t first);

/* first[i]: device address of tensor i's first element; lse 0: not wanted. */
struct fa_attn_params fa_attn_params_of(const fa_attn_case *what,
                                        const uint64_t first[FA_ATTN_TENSORS], uint64_t lse);

/* Elements of a row of O. */
int32_t fa_attn_columns_of_o(const fa_attn_case *what);
/* With every sequence as long as the mean one, where the problem says how long that is. */
fa_problem fa_attn_mean_problem(const fa_problem *problem);
/* Bytes of all tensors but LSE, each once. */
double fa_attn_bytes(const fa_problem *problem);

/* The problem whose rows are numbered as the case's: itself, or where queries lie behind one another, one
 * sequence of them all. */
fa_problem fa_attn_row_problem(const fa_attn_case *what);
/* batch * heads_q * seq_q; at most 2^78, so false when it passes 2^62. */
bool fa_attn_rows(const fa_problem *problem, int64_t *ret_rows);
/* True when all rows can be compared at a small cost. */
bool fa_attn_rows_are_few(const fa_problem *problem);
/* Sampled row ids, distinct from call to call only by seed: first and last rows, tile edges, random
 * ones; in order of their place in the sequence, so of the keys that causal rows see. Ids may
 * repeat. The problem must have rows. */
void fa_attn_sample_rows(const fa_problem *problem, uint64_t seed,
                         int64_t ret_rows[FA_ATTN_SAMPLED_ROWS]);

/* What was measured on one case against what is allowed. */
typedef struct fa_attn_verdict {
    bool passed;
    double error, tolerance;         /* of O */
    double lse_error, lse_tolerance; /* 0 when LSE was not wanted */
    char reason[256];                /* empty when passed */
} fa_attn_verdict;
fa_attn_verdict fa_attn_judge(const fa_attn_case *what, const struct fa_attn_compare *seen);

/* "batch 2, heads 4/2, seq 239x203, bhsd, padded": for sentences. */
void fa_attn_case_text(const fa_attn_case *what, char *ret_text, size_t size);

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

/* What stands behind the dense arguments; `lists_at`: the device address of the words. */
void fa_attn_lists_params(const fa_attn_case *what, const fa_attn_lists *lists, uint64_t lists_at,
                          struct fa_attn_serving_params *params);

/* ---- attn_prover.c ---------------------------------------------------------------------------*/
/* Opened by fa_prover_open; tests open it on cases of their own and look inside. */
extern const struct fa_prover_type fa_attn_prover;

/* Takes 1..FA_BENCH_CASES cases of one dtype, head_dim and causal kind; otherwise as fa_prover_open. */
int fa_attn_prover_open(fa_driver *driver, const fa_bench_setup *setup, const fa_attn_case *cases,
                        int count, fa_prover **ret_prover, fa_diag *diag);

/* Device address of what the reference (fp32) says of case `index`: O as rows x head_dim and LSE,
 * in the order of the compared rows; their number. */
fa_device_ptr fa_attn_prover_reference(fa_prover *prover, int index, fa_device_ptr *ret_lse,
                                       int *ret_rows);
/* What kernels are passed for case `index`. */
const struct fa_attn_serving_params *fa_attn_prover_serving(fa_prover *prover, int index);
const struct fa_attn_params *fa_attn_prover_params(fa_prover *prover, int index);

#endif
