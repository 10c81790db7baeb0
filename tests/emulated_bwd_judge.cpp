// SPDX-License-Identifier: Apache-2.0
//
// Judges a backward kernel on the CPU: proves it on one problem.
// emulated_bwd_d_lse_judge.cpp is this for those that take the gradient of the LSE.
//
// Purpose: gradients against sums in double, straight from their definition. Inputs are random, forward's part of them
// is computed here. Tensors lie in memory with gaps between rows and heads; gaps and outputs are NaN before the
// launches, workspaces too, and gaps must be so afterwards.
#ifndef D_LSE
#define D_LSE 0
#endif
#ifndef BUFFER_COUNT
#define BUFFER_COUNT 0
#endif
#include "../kernel_templates/attn_fwd/attn_serving_params.h"
#include "../kernel_templates/attn_bwd/attn_bwd_params.h"

#include "dropout.h"
#include "emulated_bwd_judge.hpp"

#include <algorithm>
#include <vector>

namespace test {

using namespace emu;

constexpr u16 kPoison = 0x7fa5;
static u64 seed;
static Rendered rendered;

static float to_float(u16 x) { return rendered.bf16 ? brain_value(x) : half_value(x); }
static u16 from_float(float x) { return rendered.bf16 ? brain_of(x) : half_of(x); }

static float random_value() {   // nearly normal, exact in fp16 and in bf16
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    int sum = 0;
    for (int i = 0; i < 4; i++) sum += (int)(seed >> (20 + 8 * i) & 63);
    return (float)(sum - 126) / 32.0f;
}

// [batch][heads][rows][columns], somewhere in memory.
struct Tensor {
    int heads, rows, columns;
    i64 batch_stride, head_stride, row_stride;
    std::vector<u16> memory;

    Tensor(int batch, int heads, int rows, int columns, int gap, bool between_heads)
        : heads(heads), rows(rows), columns(columns) {
        row_stride = between_heads ? (i64)heads * columns + gap : columns + gap;
        head_stride = between_heads ? columns : rows * row_stride;
        batch_stride = between_heads ? rows * row_stride : heads * head_stride + gap;
        memory.assign((size_t)(batch * batch_stride + gap + 64), kPoison);
    }
    u16 *at(int b, int h, int row) { return memory.data() + b * batch_stride + h * head_stride + row * row_stride; }
    const u16 *at(int b, int h, int row) const { return const_cast<Tensor *>(this)->at(b, h, row); }
    // Packed, so that a number is made of each element once.
    std::vector<double> values(int batch) {
        std::vector<double> all;
        all.reserve((size_t)batch * heads * rows * columns);
        each(batch, [&](u16 &x, int, int, int, int) { all.push_back(to_float(x)); });
        return all;
    }
    fa_attn_bwd_strides strides() const { return {batch_stride, head_stride, row_stride}; }
    template <class F> void each(int batch, F f) {
        for (int b = 0; b < batch; b++)
            for (int h = 0; h < heads; h++)
                for (int r = 0; r < rows; r++)
                    for (int d = 0; d < columns; d++) f(at(b, h, r)[d], b, h, r, d);
    }
};

static int failures;

// A batch of a dense problem, or one of the sequences that lie behind one another: its first rows and how many it has.
struct Span {
    int batch, first_q, len_q, first_k, len_k;
};

// Sequences of any lengths, some of them empty; of the reference those that it makes. `starts` gets one for each and the end.
static void draw_starts(std::vector<int> &starts, int count, int mean, int period) {
    int end = 0;
    for (int b = 0; b <= count; b++) {
        if (rendered.kind == kReference) {
            starts.push_back((int)rendered.start_of(b, count, count * mean, period));
            continue;
        }
        starts.push_back(end);
        const int kind = (int)fabs(random_value() * 32) % 4;
        end += kind == 0 ? 0 : kind == 1 ? mean : (int)fabs(random_value() * 32) % (2 * mean + 1);
    }
}

// An output against what it should be; then its gaps.
static void compare(const char *name, Tensor &got, int batch, const std::vector<double> &wanted) {
    double largest = 0, worst = 0;
    size_t i = 0;
    for (double x : wanted) largest = std::max(largest, fabs(x));
    const double allowed = largest * (rendered.bf16 ? 0x1p-7 : 0x1p-10) + 1e-5;
    got.each(batch, [&](u16 &x, int b, int h, int r, int d) {
        const double error = fabs(to_float(x) - wanted[i++]);
        if (!(error <= allowed) && failures++ < 8)
            printf("%s[%d][%d][%d][%d] is %g, wanted %g\n", name, b, h, r, d, to_float(x), wanted[i - 1]);
        worst = std::max(worst, error);
        x = kPoison;
    });
    for (u16 x : got.memory)
        if (x != kPoison && failures++ < 8) printf("%s: a gap was written to\n", name);
    printf("%s: %.2g of %.2g allowed\n", name, worst, allowed);
}

static void run(const char *what, const char *wrong) {
    if (wrong != nullptr) printf("%s: %s\n", what, wrong), exit(1);
}

// Those of the reference, packed floats: near enough to sums in double to judge any kernel.
static void compare(const char *name, const std::vector<float> &got, const std::vector<double> &wanted) {
    double largest = 0, worst = 0;
    for (double x : wanted) largest = std::max(largest, fabs(x));
    const double allowed = 2e-5 * largest + 1e-6;
    for (size_t i = 0; i < wanted.size(); i++) {
        const double error = got[i] == wanted[i] ? 0 : fabs(got[i] - wanted[i]);
        if (!(error <= allowed) && failures++ < 8) printf("%s[%zu] is %g, wanted %g\n", name, i, got[i], wanted[i]);
        worst = std::max(worst, error);
    }
    printf("%s: %.2g of %.2g allowed\n", name, worst, allowed);
}

// The reference takes what the host computed of forward. What its `inputs` makes of it comes last.
static int prove_reference(fa_attn_bwd_params p, int batch, Tensor &o, std::vector<float> &lse, const std::vector<double> &wanted_q,
                           const std::vector<double> &wanted_k, const std::vector<double> &wanted_v,
                           const std::vector<double> &wanted_sinks) {
    std::vector<float> dq(wanted_q.size() + 1, NAN), dk(wanted_k.size() + 1, NAN), dv(wanted_v.size() + 1, NAN);
    std::vector<double> wanted_o, wanted_lse(lse.begin(), lse.end() - 1);
    o.each(batch, [&](u16 &x, int, int, int, int) { wanted_o.push_back(to_float(x)); });
    std::vector<float> d_sinks(wanted_sinks.size(), NAN);
    p.dq = dq.data(), p.dk = dk.data(), p.dv = dv.data(), p.d_sinks = d_sinks.data();
    const u32 grid[3] = {3, 1, 1};
    run("the reference", launch(rendered.reference, &p, grid, rendered.side_threads, 0));
    compare("dQ", dq, wanted_q);
    compare("dK", dk, wanted_k);
    compare("dV", dv, wanted_v);
    compare("d_sinks", d_sinks, wanted_sinks);
    if (dq.back() == dq.back() || dk.back() == dk.back() || dv.back() == dv.back()) failures++, printf("an end was passed\n");
    std::fill(lse.begin(), lse.end(), NAN);
    o.memory.assign(o.memory.size(), kPoison);
    run("the inputs", launch(rendered.inputs, &p, grid, rendered.side_threads, 0));
    lse.pop_back();
    compare("O", o, batch, wanted_o);
    for (size_t i = 0; i < lse.size(); i++)
        if (!(lse[i] == wanted_lse[i] || fabs(lse[i] - wanted_lse[i]) <= 1e-5 * (1 + fabs(wanted_lse[i]))) && failures++ < 8)
            printf("LSE[%zu] is %g, wanted %g\n", i, lse[i], wanted_lse[i]);
    return failures == 0 ? 0 : 1;
}
// What the texts of test_emulated_bwd.py read, and the gradients of its floats.
struct Held {
    struct One {
        std::vector<int> sizes;
        std::vector<u32> memory;   // of 4 or 2 bytes
        std::vector<float> got;
        std::vector<double> wanted;
        i64 at(int x, int y = 0) const {
            const int first = std::max(0, std::min(x, sizes[0] - 1));
            return sizes.size() == 1 ? first : (i64)first * sizes[1] + std::max(0, std::min(y, sizes[1] - 1));
        }
    } bias, doc, pair, slope, table;
    fa_attn_buffer_params params[7] = {};
    const u64 drawn[2] = {seed * 0x9e3779b97f4a7c15u, seed};   // of dropout
    One *all[5] = {&bias, &doc, &pair, &slope, &table};

    explicit Held(int heads) {
        const std::vector<int> sizes[5] = {{70}, {2, 90}, {30, 50}, {heads}, {heads, 45}};
        for (int i = 0; i < 5; i++) {
            One &one = *all[i];
            size_t count = 1;
            for (int size : one.sizes = sizes[i]) count *= (size_t)size;
            one.memory.resize(count), one.got.assign(count + 1, rendered.kind == kReference ? 0.0f : NAN), one.wanted.resize(count);
            for (size_t at = 0; at < count; at++) {
                const float x = random_value() / (i == 3 ? 64 : 2);
                if (i == 1) one.memory[at] = (u32)(at % 90 / 40);
                else if (i == 2) ((u16 *)one.memory.data())[at] = brain_of(x);
                else memcpy(&one.memory[at], &x, 4);
            }
            params[i].at = one.memory.data();
            params[i].stride[one.sizes.size() - 1] = 1;
            if (one.sizes.size() > 1) params[i].stride[0] = one.sizes[1];
            for (size_t d = 0; d < one.sizes.size(); d++) params[i].last[d] = one.sizes[d] - 1;
        }
        params[5].real = drawn[1] % 2 ? 0.7f : 0.3f;
        params[6].at = drawn, params[6].stride[0] = params[6].last[0] = 1;
    }
    double value(const One &one, i64 at) const {
        float x;
        memcpy(&x, &one.memory[&one == &pair ? 0 : at], 4);
        return &one == &pair ? brain_value(((const u16 *)one.memory.data())[at]) : x;
    }
    void add(const int place[7], double ds) {   // of one score, by what it changes the loss
        const int h = place[1], q = place[3], k = place[4];
        slope.wanted[slope.at(h)] += ds * (k - q);
        table.wanted[table.at(h, k - q + 20)] += ds;
        bias.wanted[bias.at(k)] += ds * value(pair, pair.at(q, k));
        pair.wanted[pair.at(q, k)] += ds * value(bias, bias.at(k));
        bias.wanted[bias.at(q)] += ds;
    }
    void compare() {
        One *all_wanted[] = {&bias, &slope, &pair, &table};
        for (int bit = 0; bit < 4; bit++) {
            One *one = all_wanted[bit];
            if (!(rendered.wanted >> bit & 1)) continue;
            double largest = 0;
            for (double x : one->wanted) largest = std::max(largest, fabs(x));
            for (size_t i = 0; i < one->wanted.size(); i++) {
                const double error = fabs(one->got[i] - one->wanted[i]);
                if (!(error <= largest * 1e-4 + 1e-4) && failures++ < 8) printf("buffer %d [%zu] is %g, wanted %g\n", (int)(one - &bias), i, one->got[i], one->wanted[i]);
            }
            if (rendered.kind != kReference && one->got.back() == one->got.back()) failures++, printf("the end of a gradient was passed\n");
        }
    }
};
static Held *given;   // null: none
// What dropout makes of a weight.
static double kept(int heads, const int place[7], int query) {
    if (!rendered.dropout) return 1;
    return dropout_factor(given->params[5].real, (const uint64_t *)given->drawn, (i64)place[0] * heads + place[1], query, place[4]);
}
struct Problem {
    int batch, heads_q, heads_kv, seq_q, seq_k, left, right, gap;
    u32 threads, bytes;
    bool repeats;   // the rows of dO are one row, as the gradient of a sum has it
    u32 dq_bytes;
};

static void prove_launches(const Problem &x, const fa_attn_bwd_params &p, int batch, int count) {
    const Rendered &r = rendered;
    const auto tiles_of = [&](int seq, int rows) { return (i64)(r.varlen ? seq / rows + count : (seq + rows - 1) / rows); };
    const i64 heads = (i64)p.heads_q * batch;
    if (r.kind == kShort) {   // LSE and delta where a launch makes them
        const auto blocks_of = [&](int rows, int heads) { return (u32)(tiles_of(rows, r.block_n) * heads * batch); };
        const u32 blocks[3] = {std::max(1u, r.parts == 0 ? blocks_of(p.seq_q, p.heads_q) + blocks_of(p.seq_k, p.heads_kv) : blocks_of(std::max(p.seq_q, p.seq_k), p.heads_q)), 1, 1};
        const u32 before[3] = {std::max(1u, (u32)(tiles_of(p.seq_q, 64) * heads)), 1, 1};
        std::vector<float> rows((size_t)before[0] * 128 + 80, NAN);
        Arguments a = {p, (void *)(((uintptr_t)rows.data() + 255) & ~(uintptr_t)255)};
        if (r.prepare != nullptr) run("the first launch", launch(r.prepare, &a, before, r.side_threads, 0));
        return run("the launch", launch(r.main, &a, blocks, x.threads, x.bytes));
    }
    const i64 tiles = tiles_of(p.seq_q, r.block_m), rows = tiles * r.block_m * heads;
    i64 floats = rows * (2 + r.columns) + (r.deterministic ? tiles * heads : 0);
    u32 side_bytes = 576;
    if (r.kind == kWide)   // no sums of dQ; four tensor maps (of each sequence) and the numbers of two jobs
        floats = rows * 2 + (r.varlen ? count : 1) * 128 + 4;
    const i64 key_tiles = tiles_of(p.seq_k, r.block_n) * p.heads_kv * batch;
    if (r.kind == kHopper)   // four tensor maps (of each sequence), the next job's number, the sequences' ranking, and two counters a tile or four a head
        floats = rows * (2 + r.columns) + (r.varlen ? (4 * count + 1) * 32 + 8 * (count + 1) : 5 * 32) +
                 (r.in_passing ? (i64)4 * p.heads_kv * r.parts * count : 2 * tiles * heads);
    if (r.parts > 1) floats += key_tiles * (r.parts * r.part_floats + r.arrivals);
#if BUFFER_COUNT
    if (r.wanted != 0) floats += 12 * D_BUFFERS;
#endif
    if (r.mask != nullptr && (!r.deterministic || r.kind == kWide)) floats += tiles_of(p.seq_k, r.block_n) * heads * (4 + 2 * ((tiles + 31) / 32));   // lists
    if (r.mask != nullptr && r.kind == kWide) floats += tiles_of(p.seq_q, 128) * heads * (4 + 2 * ((tiles_of(p.seq_k, r.dq_keys) + 31) / 32));   // of queries
    std::vector<float> space((size_t)floats + 80, NAN);
    float *workspace = (float *)(((uintptr_t)space.data() + 255) & ~(uintptr_t)255);
    Arguments a = {p, workspace};
    const u32 query_blocks = (u32)(tiles * heads), key_blocks = (u32)(key_tiles * std::max(r.parts, 1));
    const bool several = r.kind != kAmpere;   // each of Hopper's few blocks takes several jobs
    const u32 first[3] = {several ? query_blocks + (r.varlen ? (u32)count : 1) : std::max(1u, query_blocks), 1, 1};
    const u32 second[3] = {std::max(1u, several ? std::min(key_blocks, 2u) : key_blocks), 1, 1};
    const u32 of_dq[3] = {std::max(1u, std::min((u32)(tiles_of(p.seq_q, 128) * heads), 2u)), 1, 1};
    const int held = 128 * (r.columns + r.columns_v + 16);   // bytes of tiles
    const u32 buffers = std::max(r.columns, r.columns_v) > 128 ? 51424 : (u32)(held + std::max(held, 18432));
    const u32 of_buffers = r.wanted != 0 ? (u32)std::max((i64)1, tiles_of(p.seq_k, 64) * heads) : 0;
    const u32 third[3] = {(r.kind == kWide || r.in_passing ? 0 : query_blocks) + (u32)p.heads_q + of_buffers, 1, 1};
    run("the first launch", launch(r.prepare, &a, first, r.side_threads, side_bytes));
    blocks_at_once = r.kind == kHopper ? 2 : 1;   // which wait for one another
    run("the main launch", launch(r.main, &a, second, x.threads, x.bytes));
    blocks_at_once = 1;
    if (r.dq != nullptr) run("the launch of dQ", launch(r.dq, &a, of_dq, x.threads, x.dq_bytes));
    run("the last launch", launch(r.finish, &a, third, r.side_threads, 32 + (r.wanted != 0 ? buffers : 0)));
#if BUFFER_COUNT
    const u32 fourth[3] = {(D_BUFFERS + 511) / 512, 2, 1};
    if (r.wanted != 0) run("the launch that rounds", launch(r.finish, &a, fourth, r.side_threads, 0));
#endif
    for (const float *y = workspace + floats; y < space.data() + space.size(); y++)
        if (*y == *y && failures++ < 8) printf("the end of the workspace was passed\n");
}

// What forward wrote, and the gradients, by their definition.
struct Wanted {
    std::vector<double> q, k, v, sinks;
};

struct Inputs {
    Tensor q, k, v, o, d_o;
    std::vector<float> lse, sinks, d_lse;
};

static bool sees(const Problem &x, const Span &s, int i, int j, const int place[7]) {
    const int ahead = j - i - (rendered.causal == 2 ? 0 : s.len_k - s.len_q);
    return (rendered.mask == nullptr || rendered.mask(place)) && !(rendered.causal && ahead > 0) && !(rendered.window && x.left >= 0 && ahead < -x.left) &&
           !(rendered.window && x.right >= 0 && ahead > x.right);
}

constexpr double kScale = 0.125, kCap = 1.5;

// Fills in the output and the logarithms of its sums, too.
static Wanted differentiate(const Problem &x, const std::vector<Span> &spans, int batch, Inputs &in) {
    const int columns = rendered.head_dim, columns_v = rendered.head_dim_v, group = x.heads_q / x.heads_kv;
    const std::vector<double> qs = in.q.values(batch), ks = in.k.values(batch), vs = in.v.values(batch), d_os = in.d_o.values(batch);
    Wanted wanted = {std::vector<double>(qs.size()), std::vector<double>(ks.size()), std::vector<double>(vs.size()),
                     std::vector<double>((size_t)x.heads_q)};
    for (const Span &s : spans)
        for (int h = 0; h < x.heads_q; h++)
            for (int own = 0; own < s.len_q; own++) {
                const int g = h / group, i = s.first_q + own;
                const size_t row = ((size_t)s.batch * x.heads_q + h) * in.q.rows + i;
                const size_t first_key = ((size_t)s.batch * x.heads_kv + g) * in.k.rows + s.first_k;
                const double *q = qs.data() + row * columns, *d_o = d_os.data() + row * columns_v;
                std::vector<double> score(s.len_k), slope(s.len_k, 1.0), out(columns_v);
                double sum = rendered.sinks ? exp(in.sinks[h]) : 0, delta = 0;
                int place[7] = {(int)(&s - spans.data()), h, g, own + (rendered.causal == 2 ? 0 : s.len_k - s.len_q), 0, s.len_q, s.len_k};
                for (int &j = place[4]; j < s.len_k; j++) {
                    if (!sees(x, s, own, j, place)) continue;
                    const double *k = ks.data() + (first_key + j) * columns, *v = vs.data() + (first_key + j) * columns_v;
                    for (int d = 0; d < columns; d++) score[j] += q[d] * k[d] * kScale;
                    if (rendered.softcap) score[j] = kCap * tanh(score[j] / kCap), slope[j] = 1 - score[j] * score[j] / (kCap * kCap);
                    if (rendered.bend != nullptr) {
                        constexpr double kStep = 1e-6;
                        slope[j] *= (rendered.bend(score[j] + kStep, place) - rendered.bend(score[j] - kStep, place)) / (2 * kStep);
                        score[j] = rendered.bend(score[j], place);
                    }
                    const double weight = exp(score[j]);
                    sum += weight;
                    const double share = weight * kept(x.heads_q, place, own);
                    for (int d = 0; d < columns_v; d++) out[d] += share * v[d];
                }
                in.lse[row] = (float)log(sum);   // -inf: it sees nothing
                u16 *o = in.o.at(s.batch, h, i);
                for (int d = 0; d < columns_v; d++) {
                    o[d] = from_float(sum > 0 ? (float)(out[d] / sum) : 0.0f);
                    delta += to_float(o[d]) * d_o[d];
                }
                float &d_lse = in.d_lse[((size_t)h * batch + s.batch) * in.q.rows + i];
                if (sum > 0) delta -= d_lse;
                else d_lse = NAN;   // as autograd says of what is -inf; no kernel reads it
                if (rendered.sinks) wanted.sinks[h] -= exp(in.sinks[h]) / sum * delta;
                for (int &j = place[4] = 0; j < s.len_k; j++) {
                    if (!sees(x, s, own, j, place)) continue;
                    const double weight = exp(score[j]) / sum, share = kept(x.heads_q, place, own);
                    const size_t key = first_key + j;
                    const double *k = ks.data() + key * columns, *v = vs.data() + key * columns_v;
                    double dp = 0, *wanted_q = &wanted.q[row * columns], *wanted_k = &wanted.k[key * columns], *wanted_v = &wanted.v[key * columns_v];
                    for (int d = 0; d < columns_v; d++) {
                        dp += d_o[d] * v[d] * share;
                        wanted_v[d] += weight * share * d_o[d];
                    }
                    const double ds = weight * (dp - delta) * slope[j] * kScale;
                    if (given != nullptr) given->add(place, weight * (dp - delta));
                    for (int d = 0; d < columns; d++) {
                        wanted_q[d] += ds * k[d];
                        wanted_k[d] += ds * q[d];
                    }
                }
            }
    return wanted;
}

static int prove(Problem x) {
    const bool between = x.seq_q % 2 == 1;
    const int count = x.batch, batch = rendered.varlen ? 1 : count, columns = rendered.head_dim, columns_v = rendered.head_dim_v;
    std::vector<Span> spans;
    std::vector<int> starts_q, starts_k;
    if (rendered.varlen) {
        draw_starts(starts_q, count, x.seq_q, 4);
        draw_starts(starts_k, count, x.seq_k, 3);
        x.seq_q = starts_q.back(), x.seq_k = starts_k.back();
        for (std::vector<int> *starts : {&starts_q, &starts_k}) starts->push_back(1 << 30);   // behind the end, which no kernel reads
    }
    for (int b = 0; b < count; b++)
        if (rendered.varlen) spans.push_back({0, starts_q[b], starts_q[b + 1] - starts_q[b], starts_k[b], starts_k[b + 1] - starts_k[b]});
        else spans.push_back({b, 0, x.seq_q, 0, x.seq_k});
    Inputs in = {{batch, x.heads_q, x.seq_q, columns, x.gap, between},   {batch, x.heads_kv, x.seq_k, columns, x.gap, between},
                 {batch, x.heads_kv, x.seq_k, columns_v, x.gap, between}, {batch, x.heads_q, x.seq_q, columns_v, x.gap, between},
                 {batch, x.heads_q, x.seq_q, columns_v, x.gap, !between}, std::vector<float>((size_t)batch * x.heads_q * x.seq_q + 1),
                 std::vector<float>((size_t)x.heads_q), std::vector<float>((size_t)batch * x.heads_q * x.seq_q)};
    Tensor dq(batch, x.heads_q, x.seq_q, columns, x.gap, between), dk(batch, x.heads_kv, x.seq_k, columns, x.gap, between);
    Tensor dv(batch, x.heads_kv, x.seq_k, columns_v, x.gap, !between);
    std::vector<float> d_sinks((size_t)x.heads_q, NAN);
    if (x.repeats) in.d_o.row_stride = 0;
    for (Tensor *t : {&in.q, &in.k, &in.v, &in.d_o}) t->each(batch, [](u16 &e, int, int, int, int) { e = from_float(random_value()); });
    for (float &sink : in.sinks) sink = random_value();
    for (float &slope : in.d_lse) slope = D_LSE ? random_value() : 0.0f;
#if BUFFER_COUNT
    Held buffers(x.heads_q);
    given = &buffers, held = buffers.params;
#endif
    const Wanted wanted = differentiate(x, spans, batch, in);
    const fa_attn_bwd_head_strides lse_strides = {(i64)x.heads_q * x.seq_q, x.seq_q};
    const fa_attn_bwd_params p = {
        in.q.at(0, 0, 0), in.k.at(0, 0, 0), in.v.at(0, 0, 0), in.o.at(0, 0, 0), in.lse.data(), in.sinks.data(), in.d_o.at(0, 0, 0),
        dq.at(0, 0, 0), dk.at(0, 0, 0), dv.at(0, 0, 0), d_sinks.data(), starts_q.data(), starts_k.data(),
#if D_LSE
        in.d_lse.data(),
#endif
        in.q.strides(), in.k.strides(), in.v.strides(), in.o.strides(), lse_strides, in.d_o.strides(), dq.strides(), dk.strides(), dv.strides(),
#if D_LSE
        {x.seq_q, (i64)batch * x.seq_q},
#endif
        (float)kScale, (float)kCap,
        columns, columns_v, count, x.heads_q, x.heads_kv, x.seq_q, x.seq_k, x.left, x.right,
#if BUFFER_COUNT
        D_BUFFERS, {buffers.params[0], buffers.params[1], buffers.params[2], buffers.params[3], buffers.params[4], buffers.params[5], buffers.params[6]},
        {rendered.wanted & 1 ? buffers.bias.got.data() : nullptr, nullptr, rendered.wanted & 4 ? buffers.pair.got.data() : nullptr,
         rendered.wanted & 2 ? buffers.slope.got.data() : nullptr, rendered.wanted & 8 ? buffers.table.got.data() : nullptr},
#endif
    };
    if (rendered.kind == kReference) {
        const std::vector<int> given_q = starts_q, given_k = starts_k;
        const int failed = prove_reference(p, batch, in.o, in.lse, wanted.q, wanted.k, wanted.v, wanted.sinks);
        if (given != nullptr) given->compare();
        if (given_q != starts_q || given_k != starts_k) return printf("the inputs made other sequences\n"), 1;
        return failed + failures;
    }
    prove_launches(x, p, batch, count);
    compare("dQ", dq, batch, wanted.q);
    compare("dK", dk, batch, wanted.k);
    compare("dV", dv, batch, wanted.v);
    if (given != nullptr) given->compare();
    for (int h = 0; h < x.heads_q; h++)
        if (!(fabs(d_sinks[h] - wanted.sinks[h]) <= 1e-4 * (1 + fabs(wanted.sinks[h]))) && failures++ < 8)
            printf("d_sinks[%d] is %g, wanted %g\n", h, d_sinks[h], wanted.sinks[h]);
    return failures == 0 ? 0 : 1;
}

int judge(const Rendered &kernel, char **words) {
    int x[13] = {};
    for (int i = 0; i < 13 && words[i + 1] != nullptr; i++) x[i] = atoi(words[i + 1]);
    seed = (u64)x[10];
    dice = (u32)x[10];
    rendered = kernel;
    return prove({x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], (u32)x[8], (u32)x[9], x[11] != 0, (u32)x[12]});
}

}  // namespace test
