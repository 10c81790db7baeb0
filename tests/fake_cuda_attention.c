/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention forward as a good candidate would compute it, with sums in fp32.
 *
 * Workload: the same problem is launched hundreds of times, so results of whole problems are
 * remembered by what their inputs hold; a launch then costs a copy.
 * Invariant: no byte is touched that fake_memory has not granted.
 */
#include "fake_cuda_attention.h"

#include "fake_cuda_numbers.h"
#include "fake_cuda_serving.h"

#include <stdlib.h>

/* The loops below are written for the vectoriser, and no floating-point exception is asked for. A product and its sum are
 * rounded together where the processor does so. */
#pragma GCC optimize("O3", "no-trapping-math", "fp-contract=fast")

enum { MEMOS = 16, ROWS = 4 /* that are computed side by side */, WIDTH = 16 /* of a panel */ };

/* ---- tensors ---------------------------------------------------------------------------------*/

/* Grants the whole range that [batch, heads, rows, head_dim] with these strides touches. */
static bool map_tensor(const void *address, int64_t batch, int64_t heads, int64_t rows,
                       int head_dim, bool write, struct fake_tensor *ret)
{
    if (batch == 0 || heads == 0 || rows == 0)
        return true;
    if (ret->batch_stride < 0 || ret->head_stride < 0 || ret->row_stride < 0)
        return false;
    ret->elements = (batch - 1) * ret->batch_stride + (heads - 1) * ret->head_stride +
                    (rows - 1) * ret->row_stride + head_dim;
    ret->host = fake_memory((uint64_t)(uintptr_t)address, (size_t)ret->elements * 2, write);
    return ret->host != NULL;
}

bool fake_map_inputs(const struct fa_attn_params *p, const struct fake_build *build,
                     struct fake_attention *ret)
{
    *ret = (struct fake_attention){.p = p, .build = build};
    ret->q = (struct fake_tensor){NULL, p->q_batch_stride, p->q_head_stride, p->q_row_stride, 0};
    ret->k = (struct fake_tensor){NULL, p->k_batch_stride, p->k_head_stride, p->k_row_stride, 0};
    ret->v = (struct fake_tensor){NULL, p->v_batch_stride, p->v_head_stride, p->v_row_stride, 0};
    ret->rows = (int64_t)p->batch * p->heads_q * p->seq_q;
    return p->heads_kv > 0 && p->heads_q % p->heads_kv == 0 &&
           map_tensor(p->q, p->batch, p->heads_q, p->seq_q, build->head_dim, false, &ret->q) &&
           map_tensor(p->k, p->batch, p->heads_kv, p->seq_k, build->head_dim, false, &ret->k) &&
           map_tensor(p->v, p->batch, p->heads_kv, p->seq_k, build->head_dim, false, &ret->v);
}

bool fake_map_output(const struct fa_attn_params *p, const struct fake_build *build, bool write,
                     struct fake_tensor *ret_o, float **ret_lse)
{
    int64_t rows = (int64_t)p->batch * p->heads_q * p->seq_q;
    *ret_lse = NULL;
    *ret_o = (struct fake_tensor){NULL, p->o_batch_stride, p->o_head_stride, p->o_row_stride, 0};
    if (!map_tensor(p->o, p->batch, p->heads_q, p->seq_q, build->head_dim, write, ret_o))
        return false;
    if (p->lse == NULL || rows == 0)
        return true;
    *ret_lse = fake_memory((uint64_t)(uintptr_t)p->lse, (size_t)rows * sizeof(float), write);
    return *ret_lse != NULL;
}

uint16_t *fake_row(const struct fake_tensor *t, int64_t b, int64_t h, int64_t s)
{
    return t->host + b * t->batch_stride + h * t->head_stride + s * t->row_stride;
}

/* Keys 0 .. visible - 1 are seen by query s. */
static int visible_keys(const struct fake_attention *a, int64_t s)
{
    int64_t end = a->p->seq_k;
    if (a->build->causal && s + a->p->causal_offset + 1 < end)
        end = s + a->p->causal_offset + 1;
    return end > 0 ? (int)end : 0;
}

/* ---- attention -------------------------------------------------------------------------------*/

/* Columns in whole panels. */
INLINE size_t padded(int columns)
{
    return ((size_t)columns + WIDTH - 1) / WIDTH * WIDTH;
}

bool fake_keys_create(const struct fake_attention *a, struct fake_keys *ret)
{
    size_t keys = padded(a->p->seq_k), columns = padded(a->build->head_dim);
    *ret = (struct fake_keys){.b = -1};
    ret->kt = calloc(keys * (size_t)a->build->head_dim + 1, sizeof(float));
    ret->v = calloc((size_t)a->p->seq_k * columns + 1, sizeof(float));
    ret->scores = malloc((keys + 1) * ROWS * sizeof(float));
    return ret->kt != NULL && ret->v != NULL && ret->scores != NULL;
}

void fake_keys_free(struct fake_keys *keys)
{
    free(keys->kt);
    free(keys->v);
    free(keys->scores);
}

/* WIDTH columns of all rows lie side by side, a panel behind the other: sums over rows read memory in its order. */
INLINE size_t in_panels(int row, int column, int rows)
{
    return ((size_t)(column / WIDTH) * (size_t)rows + (size_t)row) * WIDTH +
           (size_t)(column % WIDTH);
}

INLINE void values(const struct fake_build *build, const uint16_t *restrict from, int count,
                   float *restrict to)
{
    if (build->bf16)
        for (int i = 0; i < count; i++)
            to[i] = bf16_value(from[i]);
    else
        for (int i = 0; i < count; i++)
            to[i] = half_value(from[i]);
}

INLINE void keys_load(const struct fake_attention *a, int64_t b, int64_t h_kv,
                      struct fake_keys *keys)
{
    int d_count = a->build->head_dim, j_count = a->p->seq_k;
    float row[512];
    if (keys->b == b && keys->h_kv == h_kv)
        return;
    for (int j = 0; j < j_count; j++) {
        const uint16_t *v = fake_row(&a->v, b, h_kv, j);
        values(a->build, fake_row(&a->k, b, h_kv, j), d_count, row);
        for (int d = 0; d < d_count; d++)
            keys->kt[in_panels(d, j, d_count)] = row[d];
        for (int d = 0; d < d_count; d += WIDTH)
            values(a->build, v + d, d_count - d < WIDTH ? d_count - d : WIDTH,
                   keys->v + in_panels(j, d, j_count));
    }
    keys->b = b;
    keys->h_kv = h_kv;
}

/* e^x of x <= 0 to an ulp or two. expf() would compute one at a time. */
INLINE float exponential(float x)
{
    static const float magic = 0x1.8p23f; /* so large that its last bits are those of an integer */
    float shifted = x * 0x1.715476p+0f + magic, k = shifted - magic;
    float r = x - k * 0x1.62e4p-1f - k * 0x1.7f7d1cp-20f, sum = 1.0f / 5040;
    uint32_t bits;
    static const float inverse_factorial[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6,
                                              0.5f,       1,          1};
#pragma GCC unroll 7
    for (int i = 0; i < 7; i++)
        sum = sum * r + inverse_factorial[i];
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23; /* 2^k */
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87 ? 0 : sum * power;
}

/* Adds the rows first..end of panels, each times its factor, one after the other. */
INLINE void add_scaled(float *restrict to, const float *restrict panels, int rows,
                       const float *restrict factor, int first, int end, int columns)
{
    for (int i = 0; i < columns; i += WIDTH, panels += (size_t)rows * WIDTH)
        for (int r = first; r < end; r++)
            for (int c = 0; c < WIDTH; c++)
                to[i + c] += factor[r] * panels[(size_t)r * WIDTH + (size_t)c];
}

/* Eight floats that may lie anywhere. */
typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));

/* The same for ROWS sums at once, each with factors of its own; `first` is 0. What is loaded serves all of them, and the
 * sums stay in registers. */
INLINE void add_scaled_block(float *restrict to, size_t to_stride, const float *restrict panels,
                             int rows, const float *restrict factor, size_t factor_stride, int end,
                             int columns)
{
    const float *restrict f1 = factor + factor_stride, *restrict f2 = f1 + factor_stride,
                          *restrict f3 = f2 + factor_stride;
    for (int i = 0; i < columns; i += WIDTH, panels += (size_t)rows * WIDTH) {
        float *t0 = to + i, *t1 = t0 + to_stride, *t2 = t1 + to_stride, *t3 = t2 + to_stride;
        eight s0 = *(eight *)t0, s1 = *(eight *)t1, s2 = *(eight *)t2, s3 = *(eight *)t3;
        eight u0 = *(eight *)(t0 + 8), u1 = *(eight *)(t1 + 8), u2 = *(eight *)(t2 + 8),
              u3 = *(eight *)(t3 + 8);
        for (int r = 0; r < end; r++) {
            const float *x = panels + (size_t)r * WIDTH;
            eight low = *(const eight *)x, high = *(const eight *)(x + 8);
            s0 += factor[r] * low, u0 += factor[r] * high;
            s1 += f1[r] * low, u1 += f1[r] * high;
            s2 += f2[r] * low, u2 += f2[r] * high;
            s3 += f3[r] * low, u3 += f3[r] * high;
        }
        *(eight *)t0 = s0, *(eight *)(t0 + 8) = u0;
        *(eight *)t1 = s1, *(eight *)(t1 + 8) = u1;
        *(eight *)t2 = s2, *(eight *)(t2 + 8) = u2;
        *(eight *)t3 = s3, *(eight *)(t3 + 8) = u3;
    }
}

/* Weights from scores in place; returns their sum. lowp rounds the weights after summing them. */
INLINE double soften(const struct fake_attention *a, float *scores, int visible, bool lowp,
                     float *ret_largest)
{
    float most[8], sum[8] = {0}, largest = -INFINITY, scale = a->p->softmax_scale;
    double total = 0;
    int j = 0;
    for (int i = 0; i < 8; i++)
        most[i] = -INFINITY;
    for (; j + 8 <= visible; j += 8)
        for (int i = 0; i < 8; i++)
            most[i] = scores[j + i] > most[i] ? scores[j + i] : most[i];
    for (; j < visible; j++)
        most[0] = scores[j] > most[0] ? scores[j] : most[0];
    for (int i = 0; i < 8; i++)
        largest = most[i] > largest ? most[i] : largest;
    for (j = 0; j < visible; j++)
        scores[j] = exponential(scale * (scores[j] - largest));
    for (j = 0; j + 8 <= visible; j += 8)
        for (int i = 0; i < 8; i++)
            sum[i] += scores[j + i];
    for (; j < visible; j++)
        sum[0] += scores[j];
    for (int i = 0; i < 8; i++)
        total += sum[i];
    for (j = 0; lowp && j < visible; j++)
        scores[j] = value(a->build, storage(a->build, scores[j]));
    *ret_largest = largest;
    return total;
}

/* ROWS rows at most. A row that sees fewer keys than the last one has scores of others too, which it does not look at. */
INLINE void attend_rows(const struct fake_attention *a, struct fake_keys *keys, int64_t b,
                        int64_t h, const int64_t *s, int count, bool lowp, float *ret_o,
                        float *ret_lse)
{
    float query[ROWS][512], out[ROWS][512];
    int d_count = a->build->head_dim, most = visible_keys(a, s[count - 1]);
    int fewest = count < ROWS ? 0 : visible_keys(a, s[0]);
    int j_count = a->p->seq_k;
    size_t stride = padded(j_count) + 1;
    for (int r = 0; r < count; r++) {
        const uint16_t *q = fake_row(&a->q, b, h, s[r]);
        values(a->build, q, d_count, query[r]);
        memset(out[r], 0, sizeof out[r]);
        memset(keys->scores + (size_t)r * stride, 0, padded(most) * sizeof(float));
        if (count < ROWS)
            add_scaled(keys->scores + (size_t)r * stride, keys->kt, d_count, query[r], 0, d_count,
                       most);
    }
    if (count == ROWS)
        add_scaled_block(keys->scores, stride, keys->kt, d_count, query[0], 512, d_count, most);
    double total[ROWS];
    float largest[ROWS];
    for (int r = 0; r < count; r++)
        total[r] =
            soften(a, keys->scores + (size_t)r * stride, visible_keys(a, s[r]), lowp, &largest[r]);
    if (fewest > 0)
        add_scaled_block(out[0], 512, keys->v, j_count, keys->scores, stride, fewest, d_count);
    for (int r = 0; r < count; r++) {
        int visible = visible_keys(a, s[r]);
        add_scaled(out[r], keys->v, j_count, keys->scores + (size_t)r * stride, fewest, visible,
                   d_count);
        for (int d = 0; d < d_count; d++) {
            float o = visible == 0 ? 0.0f : (float)((double)out[r][d] / total[r]);
            ret_o[(int64_t)r * d_count + d] = lowp ? value(a->build, storage(a->build, o)) : o;
        }
        ret_lse[r] =
            visible == 0
                ? -INFINITY
                : (float)((double)a->p->softmax_scale * (double)largest[r] + log(total[r]));
    }
}

WIDE void fake_attend(const struct fake_attention *a, struct fake_keys *keys, int64_t b, int64_t h,
                      const int64_t *s, int count, bool lowp, float *ret_o, float *ret_lse)
{
    keys_load(a, b, h / (a->p->heads_q / a->p->heads_kv), keys);
    for (int r = 0; r < count; r += ROWS)
        attend_rows(a, keys, b, h, s + r, count - r < ROWS ? count - r : ROWS, lowp,
                    ret_o + (int64_t)r * a->build->head_dim, ret_lse + r);
}

/* ---- remembered results ----------------------------------------------------------------------*/

struct memo_key {
    uint64_t content[3];     /* hashes of Q, K and V */
    struct fa_attn_params p; /* without outputs */
    struct fake_build build;
};

static struct memo {
    struct memo_key key;
    uint64_t versions[3]; /* of the blocks of Q, K and V when they were hashed */
    uint16_t *o;          /* rows x head_dim, as they are stored */
    float *lse;           /* rows */
    uint64_t used;
} memos[MEMOS];
static uint64_t memo_clock;

void fake_kernel_forget(void)
{
    fake_serving_forget();
    for (int i = 0; i < MEMOS; i++) {
        free(memos[i].o);
        free(memos[i].lse);
        memos[i] = (struct memo){0};
    }
}

/* Everything but the content. */
static struct memo_key key_of(const struct fake_attention *a)
{
    struct memo_key key;
    memset(&key, 0, sizeof key);
    key.p = *a->p;
    key.p.o = NULL;
    key.p.lse = NULL;
    key.p.o_batch_stride = key.p.o_head_stride = key.p.o_row_stride = 0;
    key.build = *a->build;
    return key;
}

static uint64_t hash_tensor(const struct fake_tensor *t)
{
    uint64_t hash = 1, word;
    size_t bytes = (size_t)t->elements * 2, i = 0;
    for (; i + 8 <= bytes; i += 8) {
        memcpy(&word, (const char *)t->host + i, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 32;
    }
    for (; i < bytes; i++)
        hash = (hash ^ ((const uint8_t *)t->host)[i]) * 1099511628211ull;
    return hash;
}

static bool compute_all(const struct fake_attention *a, struct memo *memo)
{
    struct fake_keys keys;
    int64_t heads = a->p->heads_q, seq = a->p->seq_q, count = seq * a->build->head_dim;
    float *o = malloc((size_t)count * sizeof *o + 1); /* of one head */
    int64_t *row = malloc((size_t)seq * sizeof *row);
    bool ok = fake_keys_create(a, &keys) && o != NULL && row != NULL;
    for (int64_t s = 0; ok && s < seq; s++)
        row[s] = s;
    for (int64_t i = 0; ok && i < (int64_t)a->p->batch * heads; i++) {
        fake_attend(a, &keys, i / heads, i % heads, row, (int)seq, false, o, memo->lse + i * seq);
        for (int64_t e = 0; e < count; e++)
            memo->o[i * count + e] = storage(a->build, o[e]);
    }
    free(o);
    free(row);
    fake_keys_free(&keys);
    return ok;
}

static struct memo *find_memo(const struct memo_key *key)
{
    for (int i = 0; i < MEMOS; i++)
        if (memos[i].o != NULL && memcmp(&memos[i].key, key, sizeof *key) == 0)
            return &memos[i];
    return NULL;
}

/* The result of the whole problem; NULL when out of host memory. Unwritten blocks need no hashing;
 * one that was written beside the inputs does. */
static const struct memo *remember(const struct fake_attention *a)
{
    struct memo_key key = key_of(a);
    const void *const addresses[3] = {a->p->q, a->p->k, a->p->v};
    const struct fake_tensor *const tensors[3] = {&a->q, &a->k, &a->v};
    uint64_t versions[3];
    for (int i = 0; i < 3; i++)
        versions[i] = fake_memory_version((uint64_t)(uintptr_t)addresses[i]);
    for (int i = 0; i < MEMOS; i++) {
        memcpy(key.content, memos[i].key.content, sizeof key.content);
        if (memos[i].o != NULL && memcmp(memos[i].versions, versions, sizeof versions) == 0 &&
            memcmp(&memos[i].key, &key, sizeof key) == 0) {
            memos[i].used = ++memo_clock;
            return &memos[i];
        }
    }
    for (int i = 0; i < 3; i++)
        key.content[i] = hash_tensor(tensors[i]);
    struct memo *memo = find_memo(&key);
    if (memo == NULL) {
        memo = &memos[0];
        for (int i = 1; i < MEMOS; i++)
            memo = memos[i].used < memo->used ? &memos[i] : memo;
        free(memo->o);
        free(memo->lse);
        *memo = (struct memo){0};
        memcpy(&memo->key, &key, sizeof key); /* padding too: keys are compared as bytes */
        memo->o = malloc((size_t)a->rows * (size_t)a->build->head_dim * sizeof *memo->o + 1);
        memo->lse = malloc((size_t)a->rows * sizeof(float) + 1);
        if (memo->o == NULL || memo->lse == NULL || !compute_all(a, memo))
            return NULL;
    }
    memcpy(memo->versions, versions, sizeof versions);
    memo->used = ++memo_clock;
    return memo;
}

/* ---- entries ---------------------------------------------------------------------------------*/

static void damage_output(const struct fake_build *build, const struct fake_damage *damage,
                          uint16_t *row, bool last_row)
{
    if (damage->wrong)
        row[0] = storage(build, value(build, row[0]) + 1.0f);
    if (damage->nan && last_row)
        row[build->head_dim - 1] = build->bf16 ? 0x7fc0 : 0x7e00;
}

bool fake_run_forward(const struct fake_build *build, void **arguments,
                      const struct fake_damage *damage)
{
    struct fa_attn_params p;
    struct fake_attention a;
    struct fake_tensor o;
    float *lse;
    memcpy(&p, arguments[0], sizeof p);
    if (!fake_map_inputs(&p, build, &a) || !fake_map_output(&p, build, true, &o, &lse))
        return false;
    if (a.rows == 0)
        return true;
    const struct memo *memo = remember(&a);
    if (memo == NULL)
        return false;
    for (int64_t i = 0; i < a.rows; i++) {
        int64_t s = i % p.seq_q, h = i / p.seq_q % p.heads_q, b = i / p.seq_q / p.heads_q;
        bool last = i == a.rows - 1;
        if (damage->unwritten && last)
            break;
        uint16_t *row = fake_row(&o, b, h, s);
        memcpy(row, memo->o + i * build->head_dim, (size_t)build->head_dim * sizeof *row);
        damage_output(build, damage, row, last);
        if (lse != NULL)
            lse[i] = memo->lse[i];
    }
    if (damage->overrun) {
        uint64_t end = (uint64_t)(uintptr_t)p.o + (uint64_t)o.elements * 2;
        uint8_t *guard = fake_memory(end, 2, true);
        if (guard == NULL)
            return false;
        memset(guard, 0, 2);
    }
    return true;
}
