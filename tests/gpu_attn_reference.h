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
    return value_of(t->dtype, t->bits[b * t->at.batch_stride + h * t->at.head_stride +
                                      s * t->at.row_stride + d]);
}

static inline int fetch_tensor(const fa_attn_case *c, int tensor, const void *device,
                               struct host_tensor *ret)
{
    uint64_t span = 0;
    fa_attn_tensor_span(c, tensor, &span);
    ret->bits = malloc(span * 2 + 1);
    ret->at = c->tensor[tensor];
    ret->dtype = c->problem.dtype;
    return fa_copy_from_device(world.driver, ret->bits, (fa_device_ptr)(uintptr_t)device, span * 2,
                               &diag);
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
static inline int reference_error(const fa_attn_case *c, fa_prover *prover, double *ret_o,
                                  double *ret_lse)
{
    const struct fa_attn_params *p = fa_attn_prover_params(prover, 0);
    const void *const device[3] = {p->q, p->k, p->v};
    struct host_tensor t[3] = {0};
    fa_device_ptr lse_at = 0;
    int rows = 0, rc = 0, dim = c->problem.head_dim;
    fa_device_ptr o_at = fa_attn_prover_reference(prover, 0, &lse_at, &rows);
    float *o = malloc((size_t)rows * (size_t)dim * 4), *lse = malloc((size_t)rows * 4);
    double want[512], scale[512], want_lse;
    for (int i = 0; rc == 0 && i < 3; i++)
        rc = fetch_tensor(c, i, device[i], &t[i]);
    if (rc == 0)
        rc = fa_copy_from_device(world.driver, o, o_at, (size_t)rows * (size_t)dim * 4, &diag);
    if (rc == 0)
        rc = fa_copy_from_device(world.driver, lse, lse_at, (size_t)rows * 4, &diag);
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
    free(o);
    free(lse);
    return rc;
}

#endif
