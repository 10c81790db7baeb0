/* SPDX-License-Identifier: Apache-2.0
 *
 * Snippets: what a user writes of the scores or the mask of attention, as "score - 0.5 * abs(q - k)" or "k <= q or k < 100".
 * It becomes CUDA C++, which kernels and references compute. And what they compute with: tensors and numbers that a call passes.
 * Workload: one or two for a problem, parsed for each source that is rendered, and a list of buffers for each launch of a kernel
 * whose problem has some; a hit in a process asks for none.
 *
 * Names: score (real; of a mask it is none); b, h, hk (query head, key head), q, k (positions in the sequence), len_q, len_k
 * (whole numbers), and buffers, as slope[h] and doc[b][q]. It is an expression of expr.h, but `/` is a fraction, and `%` has the
 * sign of the divisor; what is divided by 0 is 0, and so is a shift by no number of bits. Real numbers are IEEE's.
 * A list of buffers is a text, "slope:f32[:] doc:i32[:,:] a:f32": a tensor of one dimension, one of two, and a number. Types are f32,
 * f16, bf16, i32, i64 (beyond 2^61 read as that: sums have 64 bits) and u8, which is a bool's, too; numbers are f32 or i32.
 * Behind the dimensions of one whose gradient is wanted stands "*".
 * Invariants: of whole numbers it is known that they have 64 bits; others are refused. No index reaches outside a tensor: it is
 * that of the nearest element.
 */
#ifndef FA_SNIPPET_SNIPPET_H
#define FA_SNIPPET_SNIPPET_H

#include "attn_serving_params.h"
#include "buf.h"
#include "expr.h"

/* What names stand for; SCORE has no place in space. Buffers have numbers from FA_NAME_BUFFERS on. */
typedef enum fa_snippet_place {
    FA_PLACE_B,
    FA_PLACE_H,
    FA_PLACE_HK,
    FA_PLACE_Q,
    FA_PLACE_K,
    FA_PLACE_LEN_Q,
    FA_PLACE_LEN_K,
    FA_PLACES,
    FA_NAME_SCORE = FA_PLACES,
    FA_NAME_BUFFERS,
    FA_NAMES = FA_NAME_BUFFERS + FA_ATTN_BUFFERS
} fa_snippet_place;

typedef struct fa_buffer_type {
    const char *name, *device; /* what fa_snippet.cuh calls it */
    int bytes;
    bool real;
    int64_t low, high; /* of whole numbers */
} fa_buffer_type;

typedef struct fa_buffer {
    char name[24];
    const fa_buffer_type *type;
    int dims;    /* -1: it is a number */
    bool wanted; /* "*" behind its dimensions: its gradient, too */
} fa_buffer;

/* Returns how many there are, of NULL none; FA_EINVAL with a sentence. */
int fa_buffers_read(const char *text, fa_buffer ret[FA_ATTN_BUFFERS], fa_diag *diag);

/* The names that a snippet may use, for fa_expr_parse, and how many; a mask has no score. */
int fa_buffers_names(const fa_buffer *buffers, int count, bool mask, const char *ret[FA_NAMES]);

/* The list of a problem, or NULL; another text of it; for how many elements of gradients there is room. */
const char *fa_buffers_of(const fa_problem *problem);
const char *fa_operand_text(const fa_problem *problem, const char *name);
int64_t fa_buffers_room(const fa_problem *problem);

/* A buffer of a proof: as a caller passes it, but for its address, and as it lies in memory. */
typedef struct fa_buffer_plan {
    fa_attn_buffer is;
    const fa_buffer_type *type;
    uint64_t elements, extent[FA_ATTN_BUFFER_DIMS], stride[FA_ATTN_BUFFER_DIMS];
    int64_t span; /* of whole numbers: from 0 up to less than this */
} fa_buffer_plan;

/* Returns how many there are. A dimension whose index is a place alone is as long as the problem says, another one as all differences
 * of positions; with `gaps` some are shorter, and rows apart. Of gradients there is room for problem.d_buffers elements. */
int fa_buffers_plan(const fa_problem *problem, bool gaps, uint64_t seed,
                    fa_buffer_plan ret[FA_ATTN_BUFFERS]);

/* What a call passes, in the order of the list, as kernels take it; one of it, which takes the elements of its gradient, if that is
 * wanted, from the room. FA_EINVAL, FA_EALIGN with a sentence. */
int fa_buffers_take(const fa_buffer *list, int count, const fa_attn_args *args,
                    struct fa_attn_buffer_params ret[FA_ATTN_BUFFERS], fa_diag *diag);
int fa_buffer_take(const fa_buffer *is, const fa_attn_buffer *given, int64_t *room,
                   struct fa_attn_buffer_params *ret, fa_diag *diag);
/* Buffers, then the address of each one's gradient, or 0, as kernels take them; bytes. gradient: of those that are wanted. */
size_t fa_buffers_pack(const fa_buffer *list, int count,
                       const struct fa_attn_buffer_params *buffers, const uint64_t *gradient,
                       unsigned char *ret);

/* ---- snippets ----------------------------------------------------------------------------------*/
enum {
    FA_SNIPPET_NODES = 256,
    FA_SNIPPET_POSITIONS = 1 << 23 /* at most, either way: differences are exact as floats */
};

/* What the kernels of a problem read of tensors, for manifests. */
typedef struct fa_snippet_reads {
    int fetch_bytes[2]; /* of a key, that families fetch ahead for the score, and for a mask */
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

/* The same problem, where a user's text says what fields say, too: then kernels of the fields serve it, and nothing is compiled.
 * A mask of attention that is comparisons of q - k with whole numbers, joined by "and", is gone, and causal and window say it;
 * any other problem is as it was. */
fa_problem fa_fields_settle(const fa_problem *problem);

#endif
