/* SPDX-License-Identifier: Apache-2.0 */
#include "problem.h"

#include "error.h"
#include "json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int fa_problem_check(const fa_problem *p, fa_diag *diag)
{
    if (p->dtype != FA_FP16 && p->dtype != FA_BF16)
        return fa_fail(diag, FA_EINVAL, "dtype is %d: use fp16 or bf16", (int)p->dtype);
    if (p->causal < FA_CAUSAL_NONE || p->causal > FA_CAUSAL_TOP_LEFT)
        return fa_fail(diag, FA_EINVAL, "causal is %d: use none, bottom-right or top-left",
                       (int)p->causal);
    if (p->layout != FA_BHSD && p->layout != FA_BSHD)
        return fa_fail(diag, FA_EINVAL, "layout is %d: use bhsd or bshd", (int)p->layout);
    if (p->head_dim < 8 || p->head_dim > 256 || p->head_dim % 8 != 0)
        return fa_fail(diag, FA_EINVAL,
                       "head_dim is %d: use a multiple of 8 from 8 to 256 (pad the tensors)",
                       p->head_dim);
    if (p->batch < 0)
        return fa_fail(diag, FA_EINVAL, "batch is %d: use 0 to 2147483647", p->batch);
    if (p->heads_q < 1 || p->heads_q > 65535)
        return fa_fail(diag, FA_EINVAL, "heads_q is %d: use 1 to 65535", p->heads_q);
    if (p->heads_kv < 1 || p->heads_kv > p->heads_q || p->heads_q % p->heads_kv != 0)
        return fa_fail(diag, FA_EINVAL, "heads_kv is %d: must divide heads_q, which is %d",
                       p->heads_kv, p->heads_q);
    if (p->seq_q < 0)
        return fa_fail(diag, FA_EINVAL, "seq_q is %d: use 0 to 2147483647", p->seq_q);
    if (p->seq_k < 0)
        return fa_fail(diag, FA_EINVAL, "seq_k is %d: use 0 to 2147483647", p->seq_k);
    return 0;
}

fa_problem fa_problem_exact(const fa_problem *problem)
{
    fa_problem exact = *problem;
    if (exact.batch == 0)
        exact.batch = 1;
    if (exact.seq_q == 0)
        exact.seq_q = 1;
    return exact;
}

int32_t fa_length_bucket(int32_t length)
{
    enum { EXACT = 16, PER_OCTAVE = 8 };
    if (length <= EXACT)
        return length;
    int64_t step = 1;
    while (step * 2 * PER_OCTAVE <= length)
        step *= 2;
    int64_t below = length / step * step, above = below + step;
    /* Nearer in ratio: length / below against above / length. */
    int64_t bucket = (int64_t)length * length < below * above ? below : above;
    return bucket <= INT32_MAX ? (int32_t)bucket : (int32_t)below;
}

fa_problem fa_problem_bucket(const fa_problem *problem)
{
    fa_problem bucket = fa_problem_exact(problem);
    bucket.seq_q = fa_length_bucket(bucket.seq_q);
    bucket.seq_k = fa_length_bucket(bucket.seq_k);
    return bucket;
}

static double length_distance(int32_t a, int32_t b)
{
    if (a == b)
        return 0;
    return a <= 1 || b <= 1 ? -1 : fabs(log2((double)a / b));
}

double fa_problem_distance(const fa_problem *a, const fa_problem *b)
{
    fa_problem other = *b;
    other.seq_q = a->seq_q;
    other.seq_k = a->seq_k;
    double q = length_distance(a->seq_q, b->seq_q), k = length_distance(a->seq_k, b->seq_k);
    if (!fa_problem_equal(a, &other) || q < 0 || k < 0)
        return -1;
    return q > k ? q : k;
}

void fa_problem_key(const fa_problem *p, char ret_key[FA_PROBLEM_KEY_MAX])
{
    snprintf(ret_key, FA_PROBLEM_KEY_MAX,
             "attn_fwd %s causal=%s %s d=%d b=%d hq=%d hkv=%d sq=%d sk=%d lse=%d aligned=%d",
             fa_dtype_name(p->dtype), fa_causal_name(p->causal), fa_layout_name(p->layout),
             p->head_dim, p->batch, p->heads_q, p->heads_kv, p->seq_q, p->seq_k, p->want_lse,
             !p->unaligned);
}

int32_t fa_problem_causal_offset(const fa_problem *p)
{
    return p->causal == FA_CAUSAL_BOTTOM_RIGHT ? p->seq_k - p->seq_q : 0;
}

/* Sum over queries of the number of visible keys. */
static double visible_pairs(const fa_problem *p)
{
    double sq = p->seq_q, sk = p->seq_k;
    if (p->causal == FA_CAUSAL_NONE)
        return sq * sk;
    double offset = fa_problem_causal_offset(p);
    double first = -offset > 0 ? -offset : 0;      /* first query that sees a key */
    double full = sk - 1 - offset;                 /* first query that sees them all */
    double last = full < sq ? full : sq;           /* queries [first, last) see part of them */
    double pairs = 0;
    if (last > first)
        pairs += (last - first) * (offset + 1) + (last - first) * (first + last - 1) / 2;
    else
        last = first;
    if (sq > last)
        pairs += (sq - last) * sk;
    return pairs;
}

double fa_problem_flops(const fa_problem *p)
{
    return 4.0 * p->batch * p->heads_q * p->head_dim * visible_pairs(p);
}

double fa_problem_nominal_flops(const fa_problem *p)
{
    double flops = 4.0 * p->batch * p->heads_q * p->head_dim * (double)p->seq_q * (double)p->seq_k;
    return p->causal == FA_CAUSAL_NONE ? flops : flops / 2;
}

bool fa_problem_equal(const fa_problem *a, const fa_problem *b)
{
    return a->dtype == b->dtype && a->causal == b->causal && a->layout == b->layout &&
           a->head_dim == b->head_dim && a->batch == b->batch && a->heads_q == b->heads_q &&
           a->heads_kv == b->heads_kv && a->seq_q == b->seq_q && a->seq_k == b->seq_k &&
           a->want_lse == b->want_lse && a->unaligned == b->unaligned;
}

cJSON *fa_problem_to_json(const fa_problem *p)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "operation", "attn_fwd");
    cJSON_AddStringToObject(json, "dtype", fa_dtype_name(p->dtype));
    cJSON_AddStringToObject(json, "causal", fa_causal_name(p->causal));
    cJSON_AddStringToObject(json, "layout", fa_layout_name(p->layout));
    cJSON_AddNumberToObject(json, "head_dim", p->head_dim);
    cJSON_AddNumberToObject(json, "batch", p->batch);
    cJSON_AddNumberToObject(json, "heads_q", p->heads_q);
    cJSON_AddNumberToObject(json, "heads_kv", p->heads_kv);
    cJSON_AddNumberToObject(json, "seq_q", p->seq_q);
    cJSON_AddNumberToObject(json, "seq_k", p->seq_k);
    cJSON_AddBoolToObject(json, "lse", p->want_lse);
    if (cJSON_AddBoolToObject(json, "unaligned", p->unaligned) == NULL) {
        cJSON_Delete(json);
        return NULL;
    }
    return json;
}

static int read_int32(const cJSON *json, const char *key, int32_t *ret, fa_diag *diag)
{
    int64_t value;
    int rc = fa_json_int(json, key, INT32_MIN, INT32_MAX, &value, "problem", diag);
    if (rc == 0)
        *ret = (int32_t)value;
    return rc == FA_ENOTFOUND ? 0 : rc;
}

#define READ_NAME(field, kind)                                                                 \
    do {                                                                                       \
        const char *text_;                                                                     \
        int rc_ = fa_json_text(json, #field, &text_, "problem", diag);                         \
        if (rc_ == 0 && fa_##kind##_parse(text_, &problem.field) != 0)                         \
            return fa_fail(diag, FA_EINVAL, "problem: %s \"%s\" is not known", #field, text_); \
        if (rc_ != 0 && rc_ != FA_ENOTFOUND)                                                   \
            return rc_;                                                                        \
    } while (0)

int fa_problem_from_json(const cJSON *json, fa_problem *ret_problem, fa_diag *diag)
{
    fa_problem problem = *ret_problem;
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "problem: must be a JSON object");
    READ_NAME(dtype, dtype);
    READ_NAME(causal, causal);
    READ_NAME(layout, layout);
    const struct {
        const char *key;
        int32_t *value;
    } numbers[] = {{"head_dim", &problem.head_dim}, {"batch", &problem.batch},
                   {"heads_q", &problem.heads_q},   {"heads_kv", &problem.heads_kv},
                   {"seq_q", &problem.seq_q},       {"seq_k", &problem.seq_k}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int rc = read_int32(json, numbers[i].key, numbers[i].value, diag);
        if (rc != 0)
            return rc;
    }
    int rc = fa_json_bool(json, "lse", &problem.want_lse, "problem", diag);
    if (rc == 0 || rc == FA_ENOTFOUND)
        rc = fa_json_bool(json, "unaligned", &problem.unaligned, "problem", diag);
    if (rc != 0 && rc != FA_ENOTFOUND)
        return rc;
    rc = fa_problem_check(&problem, diag);
    if (rc == 0)
        *ret_problem = problem;
    return rc;
}
