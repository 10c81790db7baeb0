// SPDX-License-Identifier: Apache-2.0
//
// The program that test_emulated_bwd.py makes of a backward kernel on the CPU: it proves the kernel on one problem.
//
// Purpose: gradients against sums in double, straight from their definition. Inputs are random, forward's part of them
// is computed here. Tensors lie in memory with gaps between rows and heads; gaps and outputs are NaN before the
// launches, workspaces too, and gaps must be so afterwards. The text in front of this one has the kernels.
#include <vector>

namespace test {

constexpr u16 kPoison = 0x7fa5;
inline u64 seed;

inline float random_value() {   // nearly normal, exact in fp16 and in bf16
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
    double get(int b, int h, int row, int d) const { return to_float<kBf16>(at(b, h, row)[d]); }
    fa_attn_bwd_strides strides() const { return {batch_stride, head_stride, row_stride}; }
    template <class F> void each(int batch, F f) {
        for (int b = 0; b < batch; b++)
            for (int h = 0; h < heads; h++)
                for (int r = 0; r < rows; r++)
                    for (int d = 0; d < columns; d++) f(at(b, h, r)[d], b, h, r, d);
    }
};

inline int failures;

// A batch of a dense problem, or one of the sequences that lie behind one another: its first rows and how many it has.
struct Span {
    int batch, first_q, len_q, first_k, len_k;
};

// Sequences of any lengths, some of them empty; of the reference those that it makes. `starts` gets one for each and the end.
inline void draw_starts(std::vector<int> &starts, int count, int mean, int period) {
    int end = 0;
    for (int b = 0; b <= count; b++) {
#ifdef REFERENCE
        starts.push_back((int)start_of(b, count, count * mean, period));
#else
        starts.push_back(end);
        const int kind = (int)fabs(random_value() * 32) % 4;
        end += kind == 0 ? 0 : kind == 1 ? mean : (int)fabs(random_value() * 32) % (2 * mean + 1);
#endif
    }
    (void)end, (void)period;
}

// An output against what it should be; then its gaps.
inline void compare(const char *name, Tensor &got, int batch, const std::vector<double> &wanted) {
    double largest = 0, worst = 0;
    size_t i = 0;
    for (double x : wanted) largest = std::max(largest, fabs(x));
    const double allowed = largest * (kBf16 ? 0x1p-7 : 0x1p-10) + 1e-5;
    got.each(batch, [&](u16 &x, int b, int h, int r, int d) {
        const double error = fabs(to_float<kBf16>(x) - wanted[i++]);
        if (!(error <= allowed) && failures++ < 8)
            printf("%s[%d][%d][%d][%d] is %g, wanted %g\n", name, b, h, r, d, to_float<kBf16>(x), wanted[i - 1]);
        worst = std::max(worst, error);
        x = kPoison;
    });
    for (u16 x : got.memory)
        if (x != kPoison && failures++ < 8) printf("%s: a gap was written to\n", name);
    printf("%s: %.2g of %.2g allowed\n", name, worst, allowed);
}

inline void run(const char *what, const char *wrong) {
    if (wrong != nullptr) printf("%s: %s\n", what, wrong), exit(1);
}

#ifdef REFERENCE
// Those of the judge, packed floats: near enough to sums in double to judge any kernel.
inline void compare(const char *name, const std::vector<float> &got, const std::vector<double> &wanted) {
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
inline int prove_reference(fa_attn_bwd_params p, int batch, Tensor &o, std::vector<float> &lse, const std::vector<double> &wanted_q,
                           const std::vector<double> &wanted_k, const std::vector<double> &wanted_v,
                           const std::vector<double> &wanted_sinks) {
    std::vector<float> dq(wanted_q.size() + 1, NAN), dk(wanted_k.size() + 1, NAN), dv(wanted_v.size() + 1, NAN);
    std::vector<double> wanted_o, wanted_lse(lse.begin(), lse.end() - 1);
    o.each(batch, [&](u16 &x, int, int, int, int) { wanted_o.push_back(to_float<kBf16>(x)); });
    std::vector<float> d_sinks(wanted_sinks.size(), NAN);
    p.dq = dq.data(), p.dk = dk.data(), p.dv = dv.data(), p.d_sinks = d_sinks.data();
    const u32 grid[3] = {3, 1, 1};
    run("the reference", emu::launch(reference, &p, grid, kThreads, 0));
    compare("dQ", dq, wanted_q);
    compare("dK", dk, wanted_k);
    compare("dV", dv, wanted_v);
    compare("d_sinks", d_sinks, wanted_sinks);
    if (dq.back() == dq.back() || dk.back() == dk.back() || dv.back() == dv.back()) failures++, printf("an end was passed\n");
    std::fill(lse.begin(), lse.end(), NAN);
    o.memory.assign(o.memory.size(), kPoison);
    run("the inputs", emu::launch(inputs, &p, grid, kThreads, 0));
    lse.pop_back();
    compare("O", o, batch, wanted_o);
    for (size_t i = 0; i < lse.size(); i++)
        if (!(lse[i] == wanted_lse[i] || fabs(lse[i] - wanted_lse[i]) <= 1e-5 * (1 + fabs(wanted_lse[i]))) && failures++ < 8)
            printf("LSE[%zu] is %g, wanted %g\n", i, lse[i], wanted_lse[i]);
    return failures == 0 ? 0 : 1;
}
#else
struct Arguments {
    fa_attn_bwd_params p;
    void *workspace;
};
inline void prepare(Arguments a) { attn_bwd_prepare(a.p, a.workspace); }
inline void main_launch(Arguments a) { attn_bwd(a.p, a.workspace); }
inline void finish(Arguments a) { attn_bwd_finish(a.p, a.workspace); }
#ifdef WIDE
inline void dq_launch(Arguments a) { attn_bwd_dq(a.p, a.workspace); }
#endif
#endif

inline int prove(int batch, int heads_q, int heads_kv, int seq_q, int seq_k, int left, int right, int gap, u32 threads, u32 bytes, bool repeats, u32 dq_bytes) {
    const bool between = seq_q % 2 == 1;
    std::vector<Span> spans;
    std::vector<int> starts_q, starts_k;
    const int count = batch, mean_q = seq_q, mean_k = seq_k;
    if (kVarlen) {
        draw_starts(starts_q, count, mean_q, 4);
        draw_starts(starts_k, count, mean_k, 3);
        batch = 1, seq_q = starts_q.back(), seq_k = starts_k.back();
    }
    for (int b = 0; b < count; b++)
        if (kVarlen) spans.push_back({0, starts_q[b], starts_q[b + 1] - starts_q[b], starts_k[b], starts_k[b + 1] - starts_k[b]});
        else spans.push_back({b, 0, seq_q, 0, seq_k});
    Tensor q(batch, heads_q, seq_q, HEAD_DIM, gap, between), k(batch, heads_kv, seq_k, HEAD_DIM, gap, between);
    Tensor v(batch, heads_kv, seq_k, HEAD_DIM_V, gap, between), o(batch, heads_q, seq_q, HEAD_DIM_V, gap, between);
    Tensor d_o(batch, heads_q, seq_q, HEAD_DIM_V, gap, !between), dq(batch, heads_q, seq_q, HEAD_DIM, gap, between);
    Tensor dk(batch, heads_kv, seq_k, HEAD_DIM, gap, between), dv(batch, heads_kv, seq_k, HEAD_DIM_V, gap, !between);
    if (repeats) d_o.row_stride = 0;   // as the gradient of a sum has it
    for (Tensor *t : {&q, &k, &v, &d_o}) t->each(batch, [](u16 &x, int, int, int, int) { x = from_float<kBf16>(random_value()); });
    std::vector<float> lse(batch * heads_q * seq_q + 1), sinks(heads_q), d_sinks(heads_q, NAN);
    for (float &x : sinks) x = random_value();
    const double scale = 0.125, cap = 1.5;
    const int group = heads_q / heads_kv;
    const auto sees = [&](const Span &s, int i, int j) {
        const int ahead = j - i - (CAUSAL == 2 ? 0 : s.len_k - s.len_q);
        return !(CAUSAL && ahead > 0) && !(WINDOW && left >= 0 && ahead < -left) && !(WINDOW && right >= 0 && ahead > right);
    };
    std::vector<double> wanted_q((size_t)batch * heads_q * seq_q * HEAD_DIM), wanted_k((size_t)batch * heads_kv * seq_k * HEAD_DIM);
    std::vector<double> wanted_v((size_t)batch * heads_kv * seq_k * HEAD_DIM_V), wanted_sinks(heads_q);
    for (const Span &s : spans)
        for (int h = 0; h < heads_q; h++)
            for (int own = 0; own < s.len_q; own++) {
                const int g = h / group, b = s.batch, i = s.first_q + own;
                std::vector<double> x(s.len_k), slope(s.len_k, 1.0), out(HEAD_DIM_V);
                double sum = SINKS ? exp(sinks[h]) : 0, delta = 0;
                for (int j = 0; j < s.len_k; j++) {
                    if (!sees(s, own, j)) continue;
                    for (int d = 0; d < HEAD_DIM; d++) x[j] += q.get(b, h, i, d) * k.get(b, g, s.first_k + j, d) * scale;
                    if (SOFTCAP) x[j] = cap * tanh(x[j] / cap), slope[j] = 1 - x[j] * x[j] / (cap * cap);
                    const double weight = exp(x[j]);
                    sum += weight;
                    for (int d = 0; d < HEAD_DIM_V; d++) out[d] += weight * v.get(b, g, s.first_k + j, d);
                }
                const size_t row = ((size_t)b * heads_q + h) * seq_q + i;
                lse[row] = (float)log(sum);   // -inf: it sees nothing
                for (int d = 0; d < HEAD_DIM_V; d++) {
                    o.at(b, h, i)[d] = from_float<kBf16>(sum > 0 ? (float)(out[d] / sum) : 0.0f);
                    delta += o.get(b, h, i, d) * d_o.get(b, h, i, d);
                }
                if (SINKS) wanted_sinks[h] -= exp(sinks[h]) / sum * delta;
                for (int j = 0; j < s.len_k; j++) {
                    if (!sees(s, own, j)) continue;
                    const double weight = exp(x[j]) / sum;
                    const int at = s.first_k + j;
                    const size_t key = ((size_t)b * heads_kv + g) * seq_k + at;
                    double dp = 0;
                    for (int d = 0; d < HEAD_DIM_V; d++) {
                        dp += d_o.get(b, h, i, d) * v.get(b, g, at, d);
                        wanted_v[key * HEAD_DIM_V + d] += weight * d_o.get(b, h, i, d);
                    }
                    const double ds = weight * (dp - delta) * slope[j] * scale;
                    for (int d = 0; d < HEAD_DIM; d++) {
                        wanted_q[row * HEAD_DIM + d] += ds * k.get(b, g, at, d);
                        wanted_k[key * HEAD_DIM + d] += ds * q.get(b, h, i, d);
                    }
                }
            }
    const fa_attn_bwd_head_strides lse_strides = {(i64)heads_q * seq_q, seq_q};
    const fa_attn_bwd_params p = {
        q.at(0, 0, 0), k.at(0, 0, 0), v.at(0, 0, 0), o.at(0, 0, 0), lse.data(), sinks.data(), d_o.at(0, 0, 0),
        dq.at(0, 0, 0), dk.at(0, 0, 0), dv.at(0, 0, 0), d_sinks.data(), starts_q.data(), starts_k.data(), q.strides(), k.strides(),
        v.strides(), o.strides(), lse_strides, d_o.strides(), dq.strides(), dk.strides(), dv.strides(), (float)scale, (float)cap, HEAD_DIM,
        HEAD_DIM_V, count, heads_q, heads_kv, seq_q, seq_k, left, right};
#ifdef REFERENCE
    const std::vector<int> given_q = starts_q, given_k = starts_k;
    const int failed = prove_reference(p, batch, o, lse, wanted_q, wanted_k, wanted_v, wanted_sinks);
    if (given_q != starts_q || given_k != starts_k) return printf("the inputs made other sequences\n"), 1;
    return failed;
#else
    const auto tiles_of = [&](int seq, int rows) { return (i64)(kVarlen ? seq / rows + count : (seq + rows - 1) / rows); };
    const i64 tiles = tiles_of(seq_q, kM), rows = tiles * kM * heads_q * batch;
#ifdef WIDE     // no sums of dQ; four tensor maps (of each sequence) and the numbers of two jobs
    const size_t floats = (size_t)(rows * 2 + (kVarlen ? count : 1) * 128 + 2);
    const u32 side_bytes = 512;
#elif HOPPER    // six tensor maps (of each sequence), the next job's number, the sequences' ranking, and two counters a tile or four a head
    const size_t floats = (size_t)(rows * (2 + kD) + (kVarlen ? (6 * count + 1) * 32 + 8 * (count + 1) : 7 * 32) +
                                   (kInPassing ? 4 * heads_kv * count : 2 * tiles * heads_q * batch));
    const u32 side_bytes = 768;
#else
    const size_t floats = (size_t)(rows * (2 + kD) + (kDeterministic ? tiles * heads_q * batch : 0));
    const u32 side_bytes = 0;
#endif
    std::vector<float> space(floats + 80, NAN);
    float *workspace = (float *)(((uintptr_t)space.data() + 255) & ~(uintptr_t)255);
    Arguments a = {p, workspace};
    const u32 query_blocks = (u32)(tiles * heads_q * batch), key_blocks = (u32)(tiles_of(seq_k, kN) * heads_kv * batch);
    const u32 first[3] = {std::max(1u, query_blocks), 1, 1};
#if HOPPER
    const u32 main_blocks = std::min(key_blocks, 2u);   // which take several jobs
#else
    const u32 main_blocks = key_blocks;
#endif
    const u32 second[3] = {std::max(1u, main_blocks), 1, 1};
#if HOPPER && !defined(WIDE)
    const u32 third[3] = {(kInPassing ? 0 : query_blocks) + (u32)heads_q, 1, 1};
#elif defined(WIDE)
    const u32 dq_blocks[3] = {std::max(1u, std::min((u32)(tiles_of(seq_q, 128) * heads_q * batch), 2u)), 1, 1}, third[3] = {(u32)heads_q, 1, 1};
#else
    const u32 third[3] = {query_blocks + (u32)heads_q, 1, 1};
#endif
    run("the first launch", emu::launch(prepare, &a, first, kSideThreads, side_bytes));
    run("the main launch", emu::launch(main_launch, &a, second, threads, bytes));
#ifdef WIDE
    run("the launch of dQ", emu::launch(dq_launch, &a, dq_blocks, threads, dq_bytes));
#endif
    run("the last launch", emu::launch(finish, &a, third, kSideThreads, 32));
    compare("dQ", dq, batch, wanted_q);
    compare("dK", dk, batch, wanted_k);
    compare("dV", dv, batch, wanted_v);
    for (int h = 0; h < heads_q; h++)
        if (!(fabs(d_sinks[h] - wanted_sinks[h]) <= 1e-4 * (1 + fabs(wanted_sinks[h]))) && failures++ < 8)
            printf("d_sinks[%d] is %g, wanted %g\n", h, d_sinks[h], wanted_sinks[h]);
    for (const float *x = workspace + floats; x < space.data() + space.size(); x++)
        if (*x == *x && failures++ < 8) printf("the end of the workspace was passed\n");
    return failures == 0 ? 0 : 1;
#endif
}

}  // namespace test

int main(int, char **words) {
    int x[13] = {};
    for (int i = 0; i < 13 && words[i + 1] != nullptr; i++) x[i] = atoi(words[i + 1]);
    test::seed = (u64)x[10];
    emu::dice = (u32)x[10];
    return test::prove(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], (u32)x[8], (u32)x[9], x[11] != 0, (u32)x[12]);
}
