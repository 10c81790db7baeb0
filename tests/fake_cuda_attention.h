/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on the CPU for the fake CUDA driver: tensors of a launch and rows of the result.
 */
#ifndef FA_TESTS_FAKE_CUDA_ATTENTION_H
#define FA_TESTS_FAKE_CUDA_ATTENTION_H

#include "fake_cuda.h"

#include "attn_params.h"

struct fake_tensor {
    uint16_t *host; /* of element (0, 0, 0, 0) */
    int64_t batch_stride, head_stride, row_stride;
    int64_t elements; /* from the first to the last, both included */
};

struct fake_attention {
    const struct fa_attn_params *p;
    const struct fake_build *build;
    struct fake_tensor q, k, v;
    int64_t rows; /* batch * heads_q * seq_q */
};

/* False: a tensor does not lie inside one block. */
bool fake_map_inputs(const struct fa_attn_params *p, const struct fake_build *build,
                     struct fake_attention *ret);
bool fake_map_output(const struct fa_attn_params *p, const struct fake_build *build, bool write,
                     struct fake_tensor *ret_o, float **ret_lse);
uint16_t *fake_row(const struct fake_tensor *t, int64_t b, int64_t h, int64_t s);

/* K transposed and V of one (batch, kv head), as float, in panels: rows d of kt are columns of K, rows j of v are keys. */
struct fake_keys {
    float *kt, *v, *scores; /* scores: of some rows, a row seq_k and one more */
    int64_t b, h_kv;
};

bool fake_keys_create(const struct fake_attention *a, struct fake_keys *ret);
void fake_keys_free(struct fake_keys *keys);

/* Rows of one (b, h), in rising order: o[count][head_dim] and lse[count]. lowp: the weights and the output
 * are rounded to the data type. */
void fake_attend(const struct fake_attention *a, struct fake_keys *keys, int64_t b, int64_t h,
                 const int64_t *s, int count, bool lowp, float *ret_o, float *ret_lse);

bool fake_run_forward(const struct fake_build *build, void **arguments,
                      const struct fake_damage *damage);

#endif
