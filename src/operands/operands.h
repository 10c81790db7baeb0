/* SPDX-License-Identifier: Apache-2.0
 *
 * What snippets compute with: their names; tensors and numbers that a call passes.
 *
 * Workload: a list of buffers for each source that is rendered, and for each launch of a kernel whose problem has some.
 * A list of buffers is a text, "slope:f32[:] doc:i32[:,:] a:f32": a tensor of one dimension, one of two, and a number. Types are f32,
 * f16, bf16, i32, i64 (beyond 2^61 read as that: sums have 64 bits) and u8, which is a bool's, too; numbers are f32 or i32.
 * Behind the dimensions of one whose gradient is wanted stands "*".
 * Invariant: no index reaches outside a tensor: it is that of the nearest element.
 */
#ifndef FA_OPERANDS_H
#define FA_OPERANDS_H

#include "attn_serving_params.h"
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

#endif
