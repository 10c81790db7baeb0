// SPDX-License-Identifier: Apache-2.0
//
// The judge of attention backward kernels: naive sums in fp32, carried in double where they are long.
//
// Workload: a warp for each row of an output: first all rows of dQ, then those of dK and dV together, then the sinks. Built
// to be right and easy to believe, not fast. `inputs` makes what backward takes from forward: O, rounded, and its LSE.
// Outputs of `reference` are packed arrays of float, whatever they are; strides are of the inputs.
#include "attn_bwd_params.h"
#include "fa_numeric.cuh"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0;
constexpr int kLanes = 32, kColumns = (HEAD_DIM + 31) / 32, kColumnsV = (HEAD_DIM_V + 31) / 32;

FA_DEVICE float value(const u16 *x) { return to_float<kBf16>(*x); }

FA_DEVICE const u16 *row_of(const void *tensor, const fa_attn_bwd_strides &s, i64 b, i64 h, i64 row) {
    return (const u16 *)tensor + b * s.batch + h * s.head + row * s.row;
}

FA_DEVICE bool sees(const fa_attn_bwd_params &p, i64 row, i64 key) {
    const i64 ahead = key - row - (CAUSAL == 2 ? 0 : (i64)p.seq_k - p.seq_q);
    if (CAUSAL && ahead > 0) return false;
    if (WINDOW && p.window_left >= 0 && ahead < -(i64)p.window_left) return false;
    return !(WINDOW && p.window_right >= 0 && ahead > p.window_right);
}

FA_DEVICE double warp_total(double x) {
    for (int mask = 16; mask > 0; mask >>= 1) x += __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
}

// a.b over kCount elements, by all lanes.
template <int kCount> FA_DEVICE double product(const u16 *a, const u16 *b) {
    double sum = 0;
    for (int d = threadIdx.x % kLanes; d < kCount; d += kLanes) sum += (double)value(a + d) * value(b + d);
    return warp_total(sum);
}

// A score, capped; `slope`: of the cap.
FA_DEVICE double score(const fa_attn_bwd_params &p, const u16 *q, const u16 *k, double &slope) {
    const double plain = product<HEAD_DIM>(q, k) * p.softmax_scale;
    slope = 1;
    if (!SOFTCAP) return plain;
    const double tangent = tanh(plain / p.softcap);
    slope = 1 - tangent * tangent;
    return p.softcap * tangent;
}

// P and dS of a row of queries and a key.
struct Pair {
    double weight, ds;
};
FA_DEVICE Pair pair(const fa_attn_bwd_params &p, const u16 *q, const u16 *k, const u16 *d_o, const u16 *v, double lse, double delta) {
    double slope;
    const double weight = exp(score(p, q, k, slope) - lse);
    return {weight, weight * (product<HEAD_DIM_V>(d_o, v) - delta) * slope};
}

FA_DEVICE void one_row(const fa_attn_bwd_params &p, i64 id) {
    const i64 row = id % p.seq_q, head = id / p.seq_q, h = head % p.heads_q, b = head / p.heads_q;
    const i64 h_kv = h / (p.heads_q / p.heads_kv);
    const u16 *q = row_of(p.q, p.q_strides, b, h, row), *d_o = row_of(p.d_o, p.d_o_strides, b, h, row);
    const double delta = product<HEAD_DIM_V>(d_o, row_of(p.o, p.o_strides, b, h, row)), lse = p.lse[id];
    double dq[kColumns] = {};
    for (i64 key = 0; key < p.seq_k; key++) {
        if (!sees(p, row, key)) continue;
        const u16 *k = row_of(p.k, p.k_strides, b, h_kv, key);
        const double ds = pair(p, q, k, d_o, row_of(p.v, p.v_strides, b, h_kv, key), lse, delta).ds;
        for (int c = 0, d = threadIdx.x % kLanes; d < HEAD_DIM; c++, d += kLanes) dq[c] += ds * value(k + d);
    }
    for (int c = 0, d = threadIdx.x % kLanes; d < HEAD_DIM; c++, d += kLanes)
        ((float *)p.dq)[id * HEAD_DIM + d] = (float)(dq[c] * p.softmax_scale);
}

FA_DEVICE void one_key(const fa_attn_bwd_params &p, i64 id) {
    const i64 key = id % p.seq_k, head = id / p.seq_k, h_kv = head % p.heads_kv, b = head / p.heads_kv;
    const u16 *k = row_of(p.k, p.k_strides, b, h_kv, key), *v = row_of(p.v, p.v_strides, b, h_kv, key);
    const int group = p.heads_q / p.heads_kv;
    double dk[kColumns] = {}, dv[kColumnsV] = {};
    for (i64 h = h_kv * group; h < (h_kv + 1) * group; h++)
        for (i64 row = 0; row < p.seq_q; row++) {
            if (!sees(p, row, key)) continue;
            const u16 *q = row_of(p.q, p.q_strides, b, h, row), *d_o = row_of(p.d_o, p.d_o_strides, b, h, row);
            const double delta = product<HEAD_DIM_V>(d_o, row_of(p.o, p.o_strides, b, h, row));
            const Pair x = pair(p, q, k, d_o, v, p.lse[(b * p.heads_q + h) * p.seq_q + row], delta);
            for (int c = 0, d = threadIdx.x % kLanes; d < HEAD_DIM; c++, d += kLanes) dk[c] += x.ds * value(q + d);
            for (int c = 0, d = threadIdx.x % kLanes; d < HEAD_DIM_V; c++, d += kLanes) dv[c] += x.weight * value(d_o + d);
        }
    for (int c = 0, d = threadIdx.x % kLanes; d < HEAD_DIM; c++, d += kLanes)
        ((float *)p.dk)[id * HEAD_DIM + d] = (float)(dk[c] * p.softmax_scale);
    for (int c = 0, d = threadIdx.x % kLanes; d < HEAD_DIM_V; c++, d += kLanes)
        ((float *)p.dv)[id * HEAD_DIM_V + d] = (float)dv[c];
}

FA_DEVICE void one_sink(const fa_attn_bwd_params &p, i64 h) {
    double sum = 0;
    for (i64 b = 0; SINKS && b < p.batch; b++)
        for (i64 row = 0; row < p.seq_q; row++)
            sum += exp((double)p.sinks[h] - p.lse[(b * p.heads_q + h) * p.seq_q + row]) *
                   product<HEAD_DIM_V>(row_of(p.d_o, p.d_o_strides, b, h, row), row_of(p.o, p.o_strides, b, h, row));
    if (threadIdx.x % kLanes == 0) p.d_sinks[h] = (float)-sum;
}

} // namespace

extern "C" __global__ void reference(const __grid_constant__ fa_attn_bwd_params p) {
    const i64 rows = (i64)p.batch * p.heads_q * p.seq_q, keys = (i64)p.batch * p.heads_kv * p.seq_k;
    const i64 first = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / kLanes, step = (i64)gridDim.x * blockDim.x / kLanes;
    for (i64 i = first; i < rows + keys + p.heads_q; i += step)
        if (i < rows) one_row(p, i);
        else if (i < rows + keys) one_key(p, i - rows);
        else one_sink(p, i - rows - keys);
}

// O and LSE of forward, a warp for each row.
extern "C" __global__ void inputs(const __grid_constant__ fa_attn_bwd_params p) {
    const i64 rows = (i64)p.batch * p.heads_q * p.seq_q;
    const i64 first = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / kLanes, step = (i64)gridDim.x * blockDim.x / kLanes;
    for (i64 id = first; id < rows; id += step) {
        const i64 row = id % p.seq_q, head = id / p.seq_q, h = head % p.heads_q, b = head / p.heads_q;
        const i64 h_kv = h / (p.heads_q / p.heads_kv);
        const u16 *q = row_of(p.q, p.q_strides, b, h, row);
        double sum = SINKS ? 1 : 0, largest = SINKS ? (double)p.sinks[h] : (double)neg_infinity(), out[kColumnsV] = {}, slope;
        for (i64 key = 0; key < p.seq_k; key++) {
            if (!sees(p, row, key)) continue;
            const double x = score(p, q, row_of(p.k, p.k_strides, b, h_kv, key), slope), next = x > largest ? x : largest;
            const double shrink = exp(largest - next), weight = exp(x - next);
            const u16 *v = row_of(p.v, p.v_strides, b, h_kv, key);
            for (int c = 0, d = threadIdx.x % kLanes; d < HEAD_DIM_V; c++, d += kLanes) out[c] = out[c] * shrink + weight * value(v + d);
            sum = sum * shrink + weight;
            largest = next;
        }
        u16 *o = (u16 *)row_of(p.o, p.o_strides, b, h, row);
        for (int c = 0, d = threadIdx.x % kLanes; d < HEAD_DIM_V; c++, d += kLanes)
            o[d] = from_float<kBf16>(sum > 0 ? (float)(out[c] / sum) : 0.0f);
        if (threadIdx.x % kLanes == 0) ((float *)p.lse)[id] = sum > 0 ? (float)(largest + log(sum)) : neg_infinity();
    }
}
