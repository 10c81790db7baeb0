/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention as serving engines call it, in double precision on the CPU from the contract's words alone: which keys
 * a query sees is asked of every key, and where a sequence begins follows from the lengths before it.
 */
#ifndef FA_TESTS_GPU_ATTN_SERVING_H
#define FA_TESTS_GPU_ATTN_SERVING_H

#include "gpu_attn_reference.h"

enum { SERVING_KINDS = 8 };

/* Each thing that engines ask for, at least once. */
static inline fa_problem serving_problem(int kind)
{
    static const int dims[SERVING_KINDS] = {64, 128, 256, 64, 128, 192, 512, 64};
    fa_problem p = problem_of(kind % 2 == 0 ? FA_BF16 : FA_FP16,
                              kind == 1 || kind == 7 ? FA_CAUSAL_NONE : FA_CAUSAL_BOTTOM_RIGHT,
                              dims[kind], 5, 6, 2, 37, 201);
    p.layout = kind % 3 == 0 ? FA_BHSD : FA_BSHD;
    p.varlen = kind == 2 || kind == 4;
    p.lengths_k = kind == 2   ? FA_LENGTHS_CU_SEQLENS
                  : kind == 7 ? FA_LENGTHS_FIXED
                              : FA_LENGTHS_SEQUSED;
    p.page = kind == 1 || kind == 6 ? 16 : kind == 3 || kind == 4 ? 64 : 0;
    p.window = kind == 0 || kind == 4 || kind == 7;
    p.window_left = p.window ? 20 : 0;
    p.window_right = kind == 0 || kind == 7 ? 3 : 0;
    p.softcap = kind == 1 || kind == 4;
    p.sinks = kind == 0 || kind == 3;
    p.kv_dtype = kind == 3 ? FA_KV_FP8 : FA_KV_SAME;
    p.head_dim_v = kind == 5 ? 128 : 0;
    return p;
}

/* What is on the device, here. */
struct serving_copy {
    const fa_attn_case *what;
    uint16_t *q;
    void *k, *v;
    int32_t *words;
    fa_attn_lists lists;
};

static inline int copy_serving(const fa_attn_case *c, const fa_bench *prover,
                               struct serving_copy *ret)
{
    ret->what = c;
    ret->lists = fa_attn_lists_plan(c);
    ret->words = malloc(ret->lists.words * sizeof(int32_t) + 1);
    int rc = fa_attn_lists_fill(c, &ret->lists, ret->words, &diag);
    if (rc == 0)
        rc = fetch_tensor(prover, FA_ATTN_Q, (void **)&ret->q);
    if (rc == 0)
        rc = fetch_tensor(prover, FA_ATTN_K, &ret->k);
    return rc != 0 ? rc : fetch_tensor(prover, FA_ATTN_V, &ret->v);
}

static inline void free_serving(struct serving_copy *s)
{
    free(s->q);
    free(s->k);
    free(s->v);
    free(s->words);
}

static inline double e4m3_of_bits(uint8_t x)
{
    int exponent = x >> 3 & 15, fraction = x & 7;
    double size = exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, exponent - 10);
    return x & 0x80 ? -size : size;
}

/* Element d of key j of sequence b. */
static inline double key_element(const struct serving_copy *s, int tensor, int b, int kv, int j, int d)
{
    const fa_problem *p = &s->what->problem;
    const int64_t *stride = (const int64_t *)s->what->tensor[tensor].stride;
    int64_t at = kv * stride[1] + d, before = 0;
    for (int i = 0; i < b; i++)
        before += fa_attn_length_k(s->what, i);
    if (p->page > 0)
        at += s->words[s->lists.block_table + (size_t)(b * s->lists.table_stride + j / p->page)] *
                  stride[0] +
              j % p->page * stride[2];
    else
        at += p->lengths_k == FA_LENGTHS_CU_SEQLENS ? (before + j) * stride[2]
                                                    : b * stride[0] + j * stride[2];
    const void *bits = tensor == FA_ATTN_K ? s->k : s->v;
    return p->kv_dtype == FA_KV_FP8 ? e4m3_of_bits(((const uint8_t *)bits)[at])
                                    : value_of(p->dtype, ((const uint16_t *)bits)[at]);
}

static inline bool sees(const fa_problem *p, int64_t stands, int64_t j)
{
    return (p->causal == FA_CAUSAL_NONE || j <= stands) &&
           (!p->window || ((p->window_left < 0 || j >= stands - p->window_left) &&
                           (p->window_right < 0 || j <= stands + p->window_right)));
}

static inline float word_float(const struct serving_copy *s, size_t at)
{
    float x;
    memcpy(&x, &s->words[at], sizeof x);
    return x;
}

/* Row i of sequence b, head h, whose first query is row `at` of Q where sequences are packed. */
static inline void attend_serving(const struct serving_copy *s, int b, int h, int i, int64_t before,
                                  double *o, double *scale, double *lse)
{
    static double score[4096];
    const fa_problem *p = &s->what->problem;
    const int64_t *stride = (const int64_t *)s->what->tensor[FA_ATTN_Q].stride;
    int kv = h / (p->heads_q / p->heads_kv), dim_v = (int)s->what->tensor[FA_ATTN_O].extent[3];
    int keys = fa_attn_length_k(s->what, b), queries = fa_attn_length_q(s->what, b);
    int64_t q =
        h * stride[1] + (p->varlen ? (before + i) * stride[2] : b * stride[0] + i * stride[2]);
    double k_scale = 1, v_scale = 1, cap = (double)s->what->softcap, largest = -INFINITY, total = 0;
    if (p->kv_dtype == FA_KV_FP8) {
        k_scale = (double)word_float(s, s->lists.k_scale + (size_t)kv);
        v_scale = (double)word_float(s, s->lists.v_scale + (size_t)kv);
    }
    memset(o, 0, sizeof(double) * (size_t)dim_v);
    memset(scale, 0, sizeof(double) * (size_t)dim_v);
    for (int j = 0; j < keys; j++) {
        double dot = 0;
        score[j] = -INFINITY;
        if (!sees(p, (int64_t)i + keys - queries, j))
            continue;
        for (int d = 0; d < p->head_dim; d++)
            dot += value_of(p->dtype, s->q[q + d]) * key_element(s, FA_ATTN_K, b, kv, j, d);
        score[j] = dot * k_scale * (double)s->what->softmax_scale;
        if (p->softcap)
            score[j] = cap * tanh(score[j] / cap);
        largest = score[j] > largest ? score[j] : largest;
    }
    double sink = p->sinks ? (double)word_float(s, s->lists.sinks + (size_t)h) : -INFINITY;
    largest = sink > largest ? sink : largest;
    bool any = largest > -INFINITY;
    for (int j = 0; any && j < keys; j++)
        total += score[j] = exp(score[j] - largest);
    if (any)
        total += exp(sink - largest);
    for (int j = 0; any && j < keys; j++)
        for (int d = 0; score[j] > 0 && d < dim_v; d++) {
            double part = score[j] / total * v_scale * key_element(s, FA_ATTN_V, b, kv, j, d);
            o[d] += part;
            scale[d] += fabs(part);
        }
    *lse = any ? largest + log(total) : -INFINITY;
}

/* Row `id` of the outputs, as attn_ref_serving.cu numbers them. */
static inline void attend_row(const struct serving_copy *s, int64_t id, double *o, double *scale,
                              double *lse)
{
    const fa_problem *p = &s->what->problem;
    int64_t before = 0;
    int b = 0;
    if (!p->varlen) {
        attend_serving(s, (int)(id / p->seq_q / p->heads_q), (int)(id / p->seq_q % p->heads_q),
                       (int)(id % p->seq_q), 0, o, scale, lse);
        return;
    }
    int64_t row = id % s->what->total_q;
    for (; row >= before + fa_attn_length_q(s->what, b); b++)
        before += fa_attn_length_q(s->what, b);
    attend_serving(s, b, (int)(id / s->what->total_q), (int)(row - before), before, o, scale, lse);
}

/* As reference_error. */
static inline int serving_error(const fa_attn_case *c, fa_bench *prover, double *ret_o,
                                double *ret_lse)
{
    struct serving_copy s = {0};
    const struct fa_proof_tensor *of = prover->at[0].of;
    const float *o = (void *)of[FA_ATTN_O].host, *lse = (void *)of[FA_ATTN_LSE].host;
    int rows = (int)of[FA_ATTN_LSE].count, dim = (int)c->tensor[FA_ATTN_O].extent[3];
    double want[512], scale[512], want_lse;
    int rc = copy_serving(c, prover, &s);
    *ret_o = *ret_lse = 0;
    for (int64_t i = 0; rc == 0 && i < rows; i++) {
        attend_row(&s, i, want, scale, &want_lse);
        for (int d = 0; d < dim; d++) {
            double e = fabs((double)o[i * dim + d] - want[d]) / (0x1p-22 * scale[d] + 1e-30);
            *ret_o = e <= *ret_o ? *ret_o : e; /* NaN goes through */
        }
        if (isinf(want_lse) && (double)lse[i] == want_lse)
            continue;
        double e = fabs((double)lse[i] - want_lse) / (0x1p-22 + 0x1p-22 * fabs(want_lse));
        *ret_lse = e <= *ret_lse ? *ret_lse : e;
    }
    free_serving(&s);
    return rc;
}

#endif
