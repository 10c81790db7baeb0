/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of kernel_templates/attn_bwd on the CPU, those of the reference among them, by the definition and in double. The
 * main launch computes the gradients, and the launches beside it nothing.
 *
 * Invariant: no byte is touched that fake_memory has not granted.
 */
#include "fake_cuda_numbers.h"

#define D_LSE 1
#include "../kernel_templates/attn_bwd/attn_bwd_params.h"

#include <stddef.h>
#include <stdlib.h>

typedef struct fa_attn_bwd_strides strides;

enum { Q, K, V, O, D_O, DQ, DK, DV, COLUMNS_MOST = 512 };

struct backward {
    struct fa_attn_bwd_params p;
    const struct fake_build *build;
    int *starts_q, *starts_k; /* NULL: all sequences are of one length */
    bool forward, fp32;       /* makes O and the LSE; gradients are of fp32 */
    bool outside;             /* something was asked for that lies in no block */
    struct fake_held held;
    float *const *d_buffer; /* of the launch, as many as there are buffers */
};

/* One head of one sequence, and its arrays: K and V and what is summed for them, the scores and rows of a query. */
struct work {
    int sequence, head, rows, keys;
    double *k, *v, *dk, *dv, *score, *slope, *natural;
    double q[COLUMNS_MOST], o[COLUMNS_MOST], d_o[COLUMNS_MOST], dq[COLUMNS_MOST];
};

static void *granted(struct backward *c, const void *address, int64_t offset, size_t bytes,
                     bool write)
{
    void *at = fake_memory((uint64_t)(uintptr_t)address + (uint64_t)offset, bytes, write);
    c->outside = c->outside || at == NULL;
    return at;
}

/* Of a row, in an array of one number for each: the LSE, or its gradient. */
static float *number_of(struct backward *c, const struct work *w, int row, const float *array,
                        const struct fa_attn_bwd_head_strides *by)
{
    int64_t first = c->starts_q != NULL ? c->starts_q[w->sequence] : w->sequence * by->batch;
    int64_t at = first + w->head * by->head + row;
    return granted(c, array, at * 4, sizeof(float), c->forward);
}

static float *lse_of(struct backward *c, const struct work *w, int row)
{
    return number_of(c, w, row, c->p.lse, &c->p.lse_strides);
}

/* The weight of the sink in front of all keys, by its logarithm. */
static double sink_of(struct backward *c, int head)
{
    const float *sink =
        c->build->sinks ? granted(c, c->p.sinks, head * 4, sizeof *sink, false) : NULL;
    return sink != NULL ? (double)*sink : -INFINITY;
}

static int columns_of(const struct backward *c, int which)
{
    bool of_v = which == V || which == O || which == D_O || which == DV;
    return of_v ? c->p.head_dim_v : c->p.head_dim;
}

static void *row_of(struct backward *c, int which, const struct work *w, int row, int size)
{
    const struct fa_attn_bwd_params *p = &c->p;
    const void *const base[] = {p->q, p->k, p->v, p->o, p->d_o, p->dq, p->dk, p->dv};
    const strides *const all[] = {&p->q_strides,   &p->k_strides,  &p->v_strides,  &p->o_strides,
                                  &p->d_o_strides, &p->dq_strides, &p->dk_strides, &p->dv_strides};
    const strides *by = all[which];
    bool keys = which == K || which == V || which == DK || which == DV;
    const int *starts = keys ? c->starts_k : c->starts_q;
    int head = keys ? w->head / (p->heads_q / p->heads_kv) : w->head;
    int64_t at = starts != NULL ? starts[w->sequence] * by->row : w->sequence * by->batch;
    at += head * by->head + row * by->row;
    return granted(c, base[which], at * size, (size_t)(columns_of(c, which) * size),
                   which >= DQ || (which == O && c->forward));
}

static void read_row(struct backward *c, int which, const struct work *w, int row, double *ret)
{
    const uint16_t *from = row_of(c, which, w, row, 2);
    for (int i = 0; from != NULL && i < columns_of(c, which); i++)
        ret[i] = (double)value(c->build, from[i]);
}

static void write_row(struct backward *c, int which, const struct work *w, int row,
                      const double *from)
{
    const bool fp32 = c->fp32 && which >= DQ;
    void *to = row_of(c, which, w, row, fp32 ? 4 : 2);
    for (int i = 0; to != NULL && i < columns_of(c, which); i++)
        if (fp32)
            ((float *)to)[i] = (float)from[i];
        else
            ((uint16_t *)to)[i] = storage(c->build, (float)from[i]);
}

static bool sees(const struct backward *c, const struct work *w, int row, int key)
{
    int ahead = key - row - (c->build->causal == 2 ? 0 : w->keys - w->rows);
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

/* What dropout makes of a weight. */
static double kept(const struct backward *c, const struct work *w, int row, int key)
{
    return fake_dropout(&c->held, (int64_t)w->sequence * c->p.heads_q + w->head, row, key);
}

static void forward_row(struct backward *c, struct work *w, int row)
{
    const double sink = sink_of(c, w->head);
    double top = sink, total = 0;
    int columns = c->p.head_dim_v;
    memset(w->o, 0, sizeof w->o);
    for (int j = 0; j < w->keys; j++)
        top = fmax(top, w->score[j]);
    for (int j = 0; j < w->keys && isfinite(top); j++)
        total += exp(w->score[j] - top);
    total += isfinite(top) ? exp(sink - top) : 0;
    for (int j = 0; j < w->keys && total > 0; j++)
        for (int i = 0; i < columns; i++)
            w->o[i] += exp(w->score[j] - top) / total * kept(c, w, row, j) * w->v[j * columns + i];
    write_row(c, O, w, row, w->o);
    float *lse = lse_of(c, w, row);
    if (lse != NULL)
        *lse = total > 0 ? (float)(top + log(total)) : -INFINITY;
}

static void places_of(const struct backward *c, const struct work *w, int row, int key,
                      int64_t place[FA_PLACES])
{
    const int64_t is[FA_PLACES] = {w->sequence,
                                   w->head,
                                   w->head / (c->p.heads_q / c->p.heads_kv),
                                   row + (c->build->causal == 2 ? 0 : w->keys - w->rows),
                                   key,
                                   w->rows,
                                   w->keys};
    memcpy(place, is, sizeof is);
}

/* ds: by what the loss changes with a bent score. Each read of an element by the difference around it. */
static void add_to_buffers(struct backward *c, const struct work *w, int row, int key, double ds)
{
    int64_t place[FA_PLACES];
    const double step = 1e-5;
    places_of(c, w, row, key, place);
    for (c->held.site = 0;; c->held.site++) {
        double at[2];
        for (int i = 0; i < 2; i++) {
            c->held.reads = 0, c->held.step = i == 0 ? -step : step;
            at[i] =
                snippet_value(&c->build->score, w->natural[key], place, fake_read_held, &c->held);
        }
        c->held.step = 0;
        if (c->held.reads <= c->held.site)
            return;
        if (!c->held.list[c->held.buffer].wanted)
            continue;
        float *to = granted(c, c->d_buffer[c->held.buffer], 4 * c->held.element, 4, true);
        if (to != NULL)
            *to += (float)(ds * (at[1] - at[0]) / (2 * step));
    }
}

static void backward_row(struct backward *c, struct work *w, int row)
{
    int d = c->p.head_dim, d_v = c->p.head_dim_v;
    const float *stored = lse_of(c, w, row);
    double lse = stored != NULL ? (double)*stored : -INFINITY;
    read_row(c, O, w, row, w->o);
    read_row(c, D_O, w, row, w->d_o);
    double delta = dot(w->o, w->d_o, d_v);
    const float *d_lse = c->build->d_lse && isfinite(lse)
                             ? number_of(c, w, row, c->p.d_lse, &c->p.d_lse_strides)
                             : NULL;
    delta -= d_lse != NULL ? (double)*d_lse : 0;
    memset(w->dq, 0, sizeof w->dq);
    for (int j = 0; j < w->keys && isfinite(lse); j++) {
        double weight = exp(w->score[j] - lse), *dk = w->dk + j * d, *dv = w->dv + j * d_v;
        if (weight == 0)
            continue;
        const double share = kept(c, w, row, j);
        double slope = weight * (share * dot(w->d_o, w->v + j * d_v, d_v) - delta) *
                       (double)c->p.softmax_scale;
        if (c->held.buffers != NULL && c->build->score.expr != NULL)
            add_to_buffers(c, w, row, j, slope / (double)c->p.softmax_scale);
        slope *= w->slope[j];
        for (int i = 0; i < d; i++) {
            w->dq[i] += slope * w->k[j * d + i];
            dk[i] += slope * w->q[i];
        }
        for (int i = 0; i < d_v; i++)
            dv[i] += weight * share * w->d_o[i];
    }
    write_row(c, DQ, w, row, w->dq);
    if (c->p.d_sinks != NULL && isfinite(lse)) {
        float *sum = granted(c, c->p.d_sinks, w->head * 4, sizeof *sum, true);
        if (sum != NULL)
            *sum -= (float)(exp(sink_of(c, w->head) - lse) * delta);
    }
}

/* What softmax takes of a scaled product, and by what that changes it; of a text by the difference around it. */
static void bend(const struct backward *c, struct work *w, int row, int key, double score)
{
    const double cap = (double)c->p.softcap, step = 1e-6, capped = cap * tanh(score / cap);
    const bool softcap = c->build->softcap != 0;
    int64_t place[FA_PLACES];
    places_of(c, w, row, key, place);
    score = softcap ? capped : score;
    w->natural[key] = score;
    w->slope[key] = softcap ? 1 - capped / cap * (capped / cap) : 1;
    if (c->build->score.expr != NULL) {
        w->slope[key] *=
            (snippet_value(&c->build->score, score + step, place, fake_read_held, &c->held) -
             snippet_value(&c->build->score, score - step, place, fake_read_held, &c->held)) /
            (2 * step);
        score = snippet_value(&c->build->score, score, place, fake_read_held, &c->held);
    }
    w->score[key] = sees(c, w, row, key) && (c->build->mask.expr == NULL ||
                                             snippet_value(&c->build->mask, 0, place,
                                                           fake_read_held, &c->held) != 0)
                        ? score
                        : -INFINITY;
}

/* All query heads of one key head, in one sequence. */
static void run_group(struct backward *c, int head_kv, struct work *w)
{
    int group = c->p.heads_q / c->p.heads_kv, d = c->p.head_dim, d_v = c->p.head_dim_v;
    w->head = head_kv * group;
    memset(w->dk, 0, (size_t)w->keys * (size_t)(d + d_v) * sizeof *w->dk); /* and dv behind it */
    for (int j = 0; j < w->keys; j++) {
        read_row(c, K, w, j, w->k + j * d);
        read_row(c, V, w, j, w->v + j * d_v);
    }
    for (int h = 0; h < group; h++, w->head++)
        for (int row = 0; row < w->rows; row++) {
            read_row(c, Q, w, row, w->q);
            for (int j = 0; j < w->keys; j++)
                bend(c, w, row, j, (double)c->p.softmax_scale * dot(w->q, w->k + j * d, d));
            (c->forward ? forward_row : backward_row)(c, w, row);
        }
    w->head = head_kv * group;
    for (int j = 0; j < w->keys && !c->forward; j++) {
        write_row(c, DK, w, j, w->dk + j * d);
        write_row(c, DV, w, j, w->dv + j * d_v);
    }
}

static bool run(struct backward *c)
{
    const struct fa_attn_bwd_params *p = &c->p;
    size_t keys = (size_t)p->seq_k + 1, d = (size_t)p->head_dim, d_v = (size_t)p->head_dim_v;
    struct work w = {.rows = p->seq_q, .keys = p->seq_k};
    double *room = calloc(keys * (2 * d + 2 * d_v + 3), sizeof *room);
    for (int h = 0; !c->forward && p->d_sinks != NULL && h < p->heads_q; h++) {
        float *sum = granted(c, p->d_sinks, h * 4, sizeof *sum, true);
        if (sum != NULL)
            *sum = 0;
    }
    for (; room != NULL && w.sequence < p->batch; w.sequence++) {
        if (c->starts_q != NULL) {
            w.rows = c->starts_q[w.sequence + 1] - c->starts_q[w.sequence];
            w.keys = c->starts_k[w.sequence + 1] - c->starts_k[w.sequence];
        }
        keys = (size_t)w.keys;
        w.k = room, w.v = w.k + keys * d, w.dk = w.v + keys * d_v;
        w.dv = w.dk + keys * d, w.score = w.dv + keys * d_v, w.slope = w.score + keys;
        w.natural = w.slope + keys;
        for (int h = 0; h < p->heads_kv; h++)
            run_group(c, h, &w);
    }
    free(room);
    return room != NULL && !c->outside;
}

/* Where sequences begin, as any are: of growing lengths. */
static void make_starts(const struct backward *c)
{
    int64_t all = c->p.batch, whole = all * all > 0 ? all * all : 1;
    for (int64_t b = 0; b <= all; b++) {
        c->starts_q[b] = (int)(c->p.seq_q * b * b / whole);
        c->starts_k[b] = (int)(c->p.seq_k * b * b / whole);
    }
}

/* Without D_LSE the struct has neither the address nor the strides. */
static void take_params(struct fa_attn_bwd_params *p, const char *from, bool d_lse)
{
    const size_t address = offsetof(struct fa_attn_bwd_params, d_lse),
                 strides = offsetof(struct fa_attn_bwd_params, d_lse_strides),
                 gap = d_lse ? 0 : sizeof p->d_lse,
                 rest = strides + (d_lse ? 0 : sizeof p->d_lse_strides);
    memcpy(p, from, address);
    memcpy((char *)p + address + gap, from + address, strides - address - gap);
    memcpy((char *)p + rest, from + strides - gap, sizeof *p - rest);
}

/* Behind the struct's integers and that of d_buffers. Gradients begin with zeros. */
static void take_buffers(struct backward *c, const char *from)
{
    const size_t gap = c->build->d_lse ? 0 : sizeof c->p.d_lse + sizeof c->p.d_lse_strides;
    const int count = fa_buffers_read(c->build->buffers, c->held.list, NULL);
    if (count <= 0)
        return;
    c->held.buffers =
        (const void *)(from +
                       (offsetof(struct fa_attn_bwd_params, window_right) + 8 - gap + 7) / 8 * 8);
    c->d_buffer = (const void *)&c->held.buffers[count];
    for (int i = 0; i < count && !c->forward; i++) {
        const struct fa_attn_buffer_params *b = &c->held.buffers[i];
        size_t elements = c->held.list[i].wanted;
        for (int d = 0; d < FA_ATTN_BUFFER_DIMS; d++)
            elements *= (size_t)b->last[d] + 1;
        float *to = elements > 0 ? granted(c, c->d_buffer[i], 0, 4 * elements, true) : NULL;
        if (to != NULL)
            memset(to, 0, 4 * elements);
    }
}

bool fake_backward_run(const char *entry, const struct fake_build *build, void **arguments,
                       const struct fake_damage *damage)
{
    struct backward c = {.build = build};
    c.forward = strcmp(entry, "inputs") == 0, c.fp32 = strcmp(entry, "reference") == 0;
    if (!c.forward && !c.fp32 && strcmp(entry, "attn_bwd") != 0)
        return true;
    take_params(&c.p, arguments[0], build->d_lse);
    take_buffers(&c, arguments[0]);
    size_t bytes = ((size_t)c.p.batch + 1) * sizeof(int);
    if (build->varlen) {
        c.starts_q = granted(&c, c.p.cu_seqlens_q, 0, bytes, c.forward);
        c.starts_k = granted(&c, c.p.cu_seqlens_k, 0, bytes, c.forward);
        if (c.outside)
            return false;
        if (c.forward)
            make_starts(&c);
    }
    if (!run(&c))
        return false;
    const struct work first = {.rows = 0};
    uint16_t *o = damage->spoil ? fake_memory((uint64_t)(uintptr_t)c.p.o, sizeof *o, true) : NULL;
    uint16_t *dq = damage->wrong && c.p.batch * c.p.seq_q > 0 ? row_of(&c, DQ, &first, 0, 2) : NULL;
    if (o != NULL)
        *o ^= 1;
    if (dq != NULL)
        *dq = storage(build, value(build, *dq) + 1);
    return true;
}
