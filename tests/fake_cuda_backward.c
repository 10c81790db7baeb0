/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of kernel_templates/attn_bwd on the CPU: their entries, those of the reference among them. The main launch
 * computes the gradients, and the launches beside it nothing.
 *
 * Invariant: no byte is touched that fake_memory has not granted.
 */
#include "fake_cuda_numbers.h"

#include "../kernel_templates/attn_bwd/attn_bwd_params.h"

#include <stdlib.h>

typedef struct fa_attn_bwd_strides strides;

/* A tensor of the caller: elements of the kernel's type, or fp32. */
struct view {
    void *host;
    strides by;
    bool fp32;
};

enum { Q, K, V, O, D_O, DQ, DK, DV, VIEWS };

struct backward {
    struct fa_attn_bwd_params p;
    const struct fake_build *build;
    struct view view[VIEWS];
    float *lse, *d_sinks;
    const float *sinks;
    int *starts_q, *starts_k; /* NULL: all sequences are of one length */
    int sequences, longest_k;
};

static float *floats_at(const void *address, size_t count, bool write)
{
    return fake_memory((uint64_t)(uintptr_t)address, count * sizeof(float), write);
}

static bool take_view(struct backward *c, int which, const void *address, const strides *by,
                      int heads, int rows, int columns, bool write, bool fp32)
{
    int batch = c->starts_q != NULL ? 1 : c->p.batch;
    size_t last =
        (size_t)((batch - 1) * by->batch + (heads - 1) * by->head + (rows - 1) * by->row) +
        (size_t)columns;
    c->view[which] = (struct view){.by = *by, .fp32 = fp32};
    if (batch < 1 || rows < 1)
        return true;
    c->view[which].host = fake_memory((uint64_t)(uintptr_t)address, last * (fp32 ? 4 : 2), write);
    return c->view[which].host != NULL;
}

/* outputs: whether gradients are wanted, in fp32 by the reference; else O and the LSE are. */
static bool map(const struct fake_build *build, void **arguments, bool outputs, bool fp32,
                struct backward *ret)
{
    struct backward c = {.build = build};
    memcpy(&c.p, arguments[0], sizeof c.p);
    const struct fa_attn_bwd_params *p = &c.p;
    size_t count = (size_t)p->batch + 1;
    if (build->varlen) {
        c.starts_q =
            fake_memory((uint64_t)(uintptr_t)p->cu_seqlens_q, count * sizeof(int), !outputs);
        c.starts_k =
            fake_memory((uint64_t)(uintptr_t)p->cu_seqlens_k, count * sizeof(int), !outputs);
        if (c.starts_q == NULL || c.starts_k == NULL)
            return false;
    }
    c.sequences = p->batch;
    c.longest_k = p->seq_k;
    int64_t batches = build->varlen ? 1 : p->batch;
    size_t rows = (size_t)((batches - 1) * p->lse_strides.batch +
                           (p->heads_q - 1) * p->lse_strides.head + p->seq_q);
    if (batches > 0 && p->seq_q > 0 && (c.lse = floats_at(p->lse, rows, !outputs)) == NULL)
        return false;
    if (build->sinks && (c.sinks = floats_at(p->sinks, (size_t)p->heads_q, false)) == NULL)
        return false;
    if (outputs && p->d_sinks != NULL &&
        (c.d_sinks = floats_at(p->d_sinks, (size_t)p->heads_q, true)) == NULL)
        return false;
    int hq = p->heads_q, hk = p->heads_kv, d = p->head_dim, dv = p->head_dim_v;
    bool ok = take_view(&c, Q, p->q, &p->q_strides, hq, p->seq_q, d, false, false) &&
              take_view(&c, K, p->k, &p->k_strides, hk, p->seq_k, d, false, false) &&
              take_view(&c, V, p->v, &p->v_strides, hk, p->seq_k, dv, false, false) &&
              take_view(&c, O, p->o, &p->o_strides, hq, p->seq_q, dv, !outputs, false);
    if (ok && outputs)
        ok = take_view(&c, D_O, p->d_o, &p->d_o_strides, hq, p->seq_q, dv, false, false) &&
             take_view(&c, DQ, p->dq, &p->dq_strides, hq, p->seq_q, d, true, fp32) &&
             take_view(&c, DK, p->dk, &p->dk_strides, hk, p->seq_k, d, true, fp32) &&
             take_view(&c, DV, p->dv, &p->dv_strides, hk, p->seq_k, dv, true, fp32);
    *ret = c;
    return ok;
}

/* One head of one sequence. */
struct place {
    int64_t batch, head, first_q, first_k;
    int rows, keys;
};

static struct place place_of(const struct backward *c, int sequence, int head)
{
    struct place at = {sequence, head, 0, 0, c->p.seq_q, c->p.seq_k};
    if (c->starts_q != NULL)
        at = (struct place){0,
                            head,
                            c->starts_q[sequence],
                            c->starts_k[sequence],
                            c->starts_q[sequence + 1] - c->starts_q[sequence],
                            c->starts_k[sequence + 1] - c->starts_k[sequence]};
    return at;
}

static int64_t offset(const struct backward *c, int which, const struct place *at, int row)
{
    const strides *by = &c->view[which].by;
    bool of_keys = which == K || which == V || which == DK || which == DV;
    int64_t head = of_keys ? at->head / (c->p.heads_q / c->p.heads_kv) : at->head;
    return at->batch * by->batch + head * by->head +
           ((of_keys ? at->first_k : at->first_q) + row) * by->row;
}

static void read_row(const struct backward *c, int which, const struct place *at, int row,
                     int columns, double *ret)
{
    const uint16_t *from = (const uint16_t *)c->view[which].host + offset(c, which, at, row);
    for (int i = 0; i < columns; i++)
        ret[i] = (double)value(c->build, from[i]);
}

static void write_row(const struct backward *c, int which, const struct place *at, int row,
                      int columns, const double *from)
{
    for (int64_t i = 0, to = offset(c, which, at, row); i < columns; i++)
        if (c->view[which].fp32)
            ((float *)c->view[which].host)[to + i] = (float)from[i];
        else
            ((uint16_t *)c->view[which].host)[to + i] = storage(c->build, (float)from[i]);
}

static float *lse_of(const struct backward *c, const struct place *at, int row)
{
    return c->lse + at->batch * c->p.lse_strides.batch + at->head * c->p.lse_strides.head +
           at->first_q + row;
}

static bool sees(const struct backward *c, const struct place *at, int row, int key)
{
    int ahead = key - row - (c->build->causal == 2 ? 0 : at->keys - at->rows);
    bool window = c->build->window != 0;
    return !(c->build->causal != 0 && ahead > 0) &&
           !(window && c->p.window_left >= 0 && ahead < -c->p.window_left) &&
           !(window && c->p.window_right >= 0 && ahead > c->p.window_right);
}

static double dot(const double *a, const double *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Rows in double: of one head's keys and what is summed for them, and of one query. */
struct sums {
    double *k, *v, *dk, *dv, *score, *q, *o, *d_o, *dq;
};

/* The scores of a row; -infinity where it does not see the key. */
static void score_row(const struct backward *c, const struct place *at, int row,
                      const struct sums *s)
{
    for (int j = 0; j < at->keys; j++) {
        double score = (double)c->p.softmax_scale *
                       dot(s->q, s->k + (size_t)j * (size_t)c->p.head_dim, c->p.head_dim);
        if (c->build->softcap)
            score = (double)c->p.softcap * tanh(score / (double)c->p.softcap);
        s->score[j] = sees(c, at, row, j) ? score : -INFINITY;
    }
}

static void forward_row(const struct backward *c, const struct place *at, int row,
                        const struct sums *s)
{
    double top = c->sinks != NULL ? (double)c->sinks[at->head] : -INFINITY, total = 0;
    memset(s->o, 0, (size_t)c->p.head_dim_v * sizeof *s->o);
    for (int j = 0; j < at->keys; j++)
        top = fmax(top, s->score[j]);
    if (isfinite(top))
        total = c->sinks != NULL ? exp((double)c->sinks[at->head] - top) : 0;
    for (int j = 0; j < at->keys && isfinite(top); j++)
        total += exp(s->score[j] - top);
    for (int j = 0; j < at->keys && total > 0; j++)
        for (int i = 0; i < c->p.head_dim_v; i++)
            s->o[i] += exp(s->score[j] - top) / total *
                       s->v[(size_t)j * (size_t)c->p.head_dim_v + (size_t)i];
    write_row(c, O, at, row, c->p.head_dim_v, s->o);
    *lse_of(c, at, row) = total > 0 ? (float)(top + log(total)) : -INFINITY;
}

static void backward_row(const struct backward *c, const struct place *at, int row,
                         const struct sums *s)
{
    int d = c->p.head_dim, d_v = c->p.head_dim_v;
    double lse = (double)*lse_of(c, at, row);
    read_row(c, O, at, row, d_v, s->o);
    read_row(c, D_O, at, row, d_v, s->d_o);
    double delta = dot(s->o, s->d_o, d_v);
    memset(s->dq, 0, (size_t)d * sizeof *s->dq);
    for (int j = 0; j < at->keys && isfinite(lse); j++) {
        const double *k = s->k + (size_t)j * (size_t)d, *v = s->v + (size_t)j * (size_t)d_v;
        double weight = exp(s->score[j] - lse),
               slope = weight * (dot(s->d_o, v, d_v) - delta) * (double)c->p.softmax_scale;
        if (weight == 0)
            continue;
        if (c->build->softcap)
            slope *=
                1 - (s->score[j] / (double)c->p.softcap) * (s->score[j] / (double)c->p.softcap);
        for (int i = 0; i < d; i++) {
            s->dq[i] += slope * k[i];
            s->dk[(size_t)j * (size_t)d + (size_t)i] += slope * s->q[i];
        }
        for (int i = 0; i < d_v; i++)
            s->dv[(size_t)j * (size_t)d_v + (size_t)i] += weight * s->d_o[i];
    }
    write_row(c, DQ, at, row, d, s->dq);
    if (c->d_sinks != NULL && c->sinks != NULL && isfinite(lse))
        c->d_sinks[at->head] -= (float)(exp((double)c->sinks[at->head] - lse) * delta);
}

/* All query heads of one key head, in one sequence. */
static void run_group(const struct backward *c, int sequence, int head_kv, bool forward,
                      const struct sums *s)
{
    int group = c->p.heads_q / c->p.heads_kv, d = c->p.head_dim, d_v = c->p.head_dim_v;
    struct place at = place_of(c, sequence, head_kv * group);
    memset(s->dk, 0, (size_t)at.keys * (size_t)d * sizeof *s->dk);
    memset(s->dv, 0, (size_t)at.keys * (size_t)d_v * sizeof *s->dv);
    for (int j = 0; j < at.keys; j++) {
        read_row(c, K, &at, j, d, s->k + (size_t)j * (size_t)d);
        read_row(c, V, &at, j, d_v, s->v + (size_t)j * (size_t)d_v);
    }
    for (int h = 0; h < group; h++) {
        at.head = head_kv * group + h;
        for (int row = 0; row < at.rows; row++) {
            read_row(c, Q, &at, row, d, s->q);
            score_row(c, &at, row, s);
            (forward ? forward_row : backward_row)(c, &at, row, s);
        }
    }
    for (int j = 0; j < at.keys && !forward; j++) {
        write_row(c, DK, &at, j, d, s->dk + (size_t)j * (size_t)d);
        write_row(c, DV, &at, j, d_v, s->dv + (size_t)j * (size_t)d_v);
    }
}

static bool run(const struct backward *c, bool forward)
{
    size_t keys = (size_t)c->longest_k + 1, d = (size_t)c->p.head_dim,
           d_v = (size_t)c->p.head_dim_v;
    double *room = calloc(2 * keys * (d + d_v) + keys + 2 * (d + d_v), sizeof *room), *next = room;
    struct sums s;
    const struct {
        double **at;
        size_t size;
    } parts[] = {{&s.k, keys * d},    {&s.v, keys * d_v}, {&s.dk, keys * d},
                 {&s.dv, keys * d_v}, {&s.score, keys},   {&s.q, d},
                 {&s.dq, d},          {&s.o, d_v},        {&s.d_o, d_v}};
    for (size_t i = 0; room != NULL && i < sizeof parts / sizeof *parts; next += parts[i].size, i++)
        *parts[i].at = next;
    for (int h = 0; room != NULL && c->d_sinks != NULL && h < c->p.heads_q; h++)
        c->d_sinks[h] = 0;
    for (int b = 0; room != NULL && b < c->sequences; b++)
        for (int h = 0; h < c->p.heads_kv; h++)
            run_group(c, b, h, forward, &s);
    free(room);
    return room != NULL;
}

/* Where sequences begin, as any are: of growing lengths. */
static void make_starts(const struct backward *c)
{
    for (int64_t b = 0; c->starts_q != NULL && b <= c->sequences; b++) {
        int64_t whole = (int64_t)c->sequences * c->sequences;
        c->starts_q[b] = whole > 0 ? (int)(c->p.seq_q * b * b / whole) : 0;
        c->starts_k[b] = whole > 0 ? (int)(c->p.seq_k * b * b / whole) : 0;
    }
}

bool fake_backward_known(const char *entry)
{
    return strncmp(entry, "attn_bwd", 8) == 0 || strcmp(entry, "inputs") == 0;
}

bool fake_backward_inputs(const struct fake_build *build, void **arguments)
{
    struct backward c;
    if (!map(build, arguments, false, false, &c))
        return false;
    make_starts(&c);
    return run(&c, true);
}

bool fake_backward_reference(const struct fake_build *build, void **arguments)
{
    struct backward c;
    return map(build, arguments, true, true, &c) && run(&c, false);
}

bool fake_backward_run(const char *entry, const struct fake_build *build, void **arguments,
                       const struct fake_damage *damage)
{
    struct backward c;
    if (strcmp(entry, "attn_bwd") != 0)
        return true;
    if (!map(build, arguments, true, false, &c) || !run(&c, false))
        return false;
    uint16_t *o = damage->spoil ? fake_memory((uint64_t)(uintptr_t)c.p.o, sizeof *o, true) : NULL;
    if (o != NULL)
        *o ^= 1;
    if (damage->wrong && c.view[DQ].host != NULL)
        *(uint16_t *)c.view[DQ].host =
            storage(build, value(build, *(uint16_t *)c.view[DQ].host) + 1);
    return true;
}
