/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in double precision on the CPU, row by row, and how far off the reference kernel is.
 */
#ifndef FA_TESTS_GPU_ATTN_REFERENCE_H
#define FA_TESTS_GPU_ATTN_REFERENCE_H

#include "gpu_attn_fixture.h"

static inline double value_of(fa_dtype dtype, uint16_t bits)
{
    int exponent = dtype == FA_BF16 ? bits >> 7 & 255 : bits >> 10 & 31;
    int fraction = dtype == FA_BF16 ? bits & 127 : bits & 1023;
    int width = dtype == FA_BF16 ? 7 : 10, bias = dtype == FA_BF16 ? 127 : 15;
    double x = exponent == 0 ? ldexp(fraction, 1 - bias - width)
                             : ldexp(fraction + (1 << width), exponent - bias - width);
    return bits & 0x8000 ? -x : x;
}

struct host_tensor {
    uint16_t *bits;
    fa_attn_tensor at;
    fa_dtype dtype;
};

static inline double element(const struct host_tensor *t, int64_t b, int64_t h, int64_t s, int d)
{
    const uint64_t *stride = t->at.stride;
    return value_of(t->dtype, t->bits[(uint64_t)b * stride[0] + (uint64_t)h * stride[1] +
                                      (uint64_t)s * stride[2] + (uint64_t)d]);
}

/* From its first element on. */
static inline int fetch_tensor(const fa_bench *prover, int tensor, void **ret_elements)
{
    const struct fa_proof_tensor *of = &prover->at[0].of[tensor];
    size_t bytes = (size_t)(of->place.units - of->place.first) *
                   fa_element_size(prover->at[0].tensors.at[tensor].element);
    *ret_elements = malloc(bytes);
    return fa_copy_from_device(world.driver, *ret_elements, of->first, bytes, &diag);
}

/* One row in double: o[head_dim], the sum of |weight * v| of each element, LSE. */
static inline void attend(const fa_attn_case *c, const struct host_tensor t[3], int64_t row,
                          double *o, double *scale, double *lse)
{
    const fa_problem *p = &c->problem;
    int64_t s = row % p->seq_q, h = row / p->seq_q % p->heads_q, b = row / p->seq_q / p->heads_q;
    int64_t kv = h / (p->heads_q / p->heads_kv), visible = p->seq_k;
    static double score[4096];
    double largest = -INFINITY, total = 0;
    if (p->causal != FA_CAUSAL_NONE && s + fa_attn_causal_offset(p) + 1 < visible)
        visible = s + fa_attn_causal_offset(p) + 1;
    memset(o, 0, sizeof(double) * (size_t)p->head_dim);
    memset(scale, 0, sizeof(double) * (size_t)p->head_dim);
    for (int64_t j = 0; j < visible; j++) {
        double dot = 0;
        for (int d = 0; d < p->head_dim; d++)
            dot += element(&t[0], b, h, s, d) * element(&t[1], b, kv, j, d);
        score[j] = dot * (double)c->softmax_scale;
        largest = score[j] > largest ? score[j] : largest;
    }
    for (int64_t j = 0; j < visible; j++)
        total += score[j] = exp(score[j] - largest);
    for (int64_t j = 0; j < visible; j++) {
        for (int d = 0; d < p->head_dim; d++) {
            double part = score[j] / total * element(&t[2], b, kv, j, d);
            o[d] += part;
            scale[d] += fabs(part);
        }
    }
    *lse = visible > 0 ? largest + log(total) : -INFINITY;
}

/* Largest error of the reference, relative to what its file promises (2^-18 of the sum of
 * |weight * v|; LSE 2^-20 and 2^-24 of its magnitude, twice that allowed). */
static inline int reference_error(const fa_attn_case *c, fa_bench *prover, double *ret_o,
                                  double *ret_lse)
{
    const struct fa_proof_tensor *of = prover->at[0].of;
    const float *o = (void *)of[FA_ATTN_O].host, *lse = (void *)of[FA_ATTN_LSE].host;
    struct host_tensor t[3];
    int rows = (int)of[FA_ATTN_LSE].count, rc = 0, dim = c->problem.head_dim;
    double want[512], scale[512], want_lse;
    for (int i = 0; i < 3; i++) {
        t[i] = (struct host_tensor){NULL, c->tensor[i], c->problem.dtype};
        if (rc == 0)
            rc = fetch_tensor(prover, i, (void **)&t[i].bits);
    }
    *ret_o = *ret_lse = 0;
    for (int64_t i = 0; rc == 0 && i < rows; i++) {
        attend(c, t, i, want, scale, &want_lse);
        for (int d = 0; d < dim; d++) {
            double e = fabs((double)o[i * dim + d] - want[d]) / (0x1p-18 * scale[d] + 1e-30);
            *ret_o = e <= *ret_o ? *ret_o : e; /* NaN goes through */
        }
        if (isinf(want_lse) && (double)lse[i] == want_lse)
            continue;
        double e = fabs((double)lse[i] - want_lse) / (0x1p-19 + 0x1p-23 * fabs(want_lse));
        *ret_lse = e <= *ret_lse ? *ret_lse : e;
    }
    for (int i = 0; i < 3; i++)
        free(t[i].bits);
    return rc;
}

#endif
