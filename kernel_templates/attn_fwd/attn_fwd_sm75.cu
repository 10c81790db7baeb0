// SPDX-License-Identifier: Apache-2.0
//
// FlashAttention forward for Turing: fp16, m16n8k8 matrix products, no asynchronous copies.
//
// Workload: O = softmax(scale * Q K^T) V and LSE, any lengths, GQA, causal with an offset, head dims up
// to 256. One thread block computes BLOCK_M rows of one head; a warp owns SLABS slabs of 16 rows from
// the scores to the output, so warps meet only to exchange tiles of K and V. softmax_scale > 0.
//
// Pipeline, for tile j of keys (the copy of a tile is: global -> registers, later registers -> shared):
//   STAGES=1  fetch V_j | S = Q K_j | place V_j, sync | fetch K_j+1 | softmax, O += P V_j | place K_j+1, sync
//             V_REUSES_K=1: V lies where K lay; one more sync before each place.
//             PREFETCH=0: fetch and place together, no registers held; other warps hide the latency.
//   STAGES=2  fetch K_j+1 | S = Q K_j | place K_j+1, fetch V_j+1 | softmax, O += P V_j | place V_j+1, sync
//
// Invariants: shared memory is [Q][K stages][V stages], swizzled; with Q_IN_REGS=1 Q is staged where K
// and V come later; O leaves through offset 0. Only columns below COLUMNS = HEAD_DIM rounded up to 16
// are ever touched; those past HEAD_DIM and rows past the end are zeros that were never read. The
// loops see the visible keys alone: `limit` is a row's last visible key (-1: none), capped at seq_k-1.
#include "attn_params.h"
#include "mma_sm75.cuh"

#define SLABS (BLOCK_M / (16 * WARPS))
#define THREADS (WARPS * 32)
#define CHUNKS (D_TILE / 8)                  /* 16-byte chunks from row to row in shared memory */
#define COLUMNS ((HEAD_DIM + 15) / 16 * 16)  /* of them in use, as columns */
#define ROW_BYTES (D_TILE * 2)
#define Q_BYTES (BLOCK_M * ROW_BYTES)
#define TILE_BYTES (BLOCK_N * ROW_BYTES)
#define K_AT (Q_IN_REGS ? 0 : Q_BYTES)
#define V_AT (V_REUSES_K ? K_AT : K_AT + STAGES * TILE_BYTES)
#define KV_END (V_AT + STAGES * TILE_BYTES)
#define SHARED_END (KV_END > Q_BYTES ? KV_END : Q_BYTES)

static_assert(SHARED_END == FA_SMEM_BYTES && THREADS == FA_THREADS, "the manifest describes another kernel");
static_assert(!DTYPE_BF16, "Turing multiplies fp16 only");
static_assert(BLOCK_M % (16 * WARPS) == 0 && BLOCK_N % 16 == 0 && COLUMNS <= D_TILE, "tile");
static_assert(STAGES == 1 || (PREFETCH && !V_REUSES_K), "two stages are filled by prefetching");

// A value that the compiler takes for new: what is made of it is computed here, not ahead of the loop over
// tiles or carried through it, where registers are scarce.
FA_DEVICE void renew(const u16 *&pointer) { asm volatile("" : "+l"(pointer)); }
FA_DEVICE u32 renewed(u32 x) { asm volatile("" : "+r"(x)); return x; }

// The part of the problem that one thread block computes.
struct Work {
    int b, h;              // batch and query head
    int first_row, rows;   // of Q and O; 1 <= rows <= BLOCK_M
    int keys;              // that any of the rows sees

    __device__ __forceinline__ Work(const fa_attn_params &p, u32 block) {
        const u32 row_tiles = ((u32)p.seq_q + BLOCK_M - 1) / BLOCK_M;
        const u32 bh = block / row_tiles, tile = block % row_tiles;
        b = (int)(bh / (u32)p.heads_q), h = (int)(bh % (u32)p.heads_q);
        first_row = (int)(CAUSAL ? row_tiles - 1 - tile : tile) * BLOCK_M;   // causal: the longest rows first
        rows = p.seq_q - first_row < BLOCK_M ? p.seq_q - first_row : BLOCK_M;
        keys = limit(p, rows - 1) + 1;
    }

    // The first row of Q and O of the block, the first rows of K and V of its head, the first row of its LSE.
    __device__ __forceinline__ const u16 *q(const fa_attn_params &p) const {
        return (const u16 *)p.q + b * p.q_batch_stride + h * p.q_head_stride + first_row * p.q_row_stride;
    }
    __device__ __forceinline__ const u16 *k(const fa_attn_params &p) const {
        return (const u16 *)p.k + b * p.k_batch_stride + h / (p.heads_q / p.heads_kv) * p.k_head_stride;
    }
    __device__ __forceinline__ const u16 *v(const fa_attn_params &p) const {
        return (const u16 *)p.v + b * p.v_batch_stride + h / (p.heads_q / p.heads_kv) * p.v_head_stride;
    }
    __device__ __forceinline__ u16 *o(const fa_attn_params &p) const {
        return (u16 *)p.o + b * p.o_batch_stride + h * p.o_head_stride + first_row * p.o_row_stride;
    }
    __device__ __forceinline__ float *lse(const fa_attn_params &p) const {
        return p.lse + ((i64)b * p.heads_q + h) * p.seq_q + first_row;
    }

    // The last key that row `row` of the block sees, -1 for none.
    __device__ __forceinline__ int limit(const fa_attn_params &p, int row) const {
        i64 last = p.seq_k - 1;
        if (CAUSAL && (i64)first_row + row + p.causal_offset < last) last = (i64)first_row + row + p.causal_offset;
        return last < 0 ? -1 : (int)last;
    }
};

// ---- Copies. A pass moves ROWS_PER_PASS rows, 16 bytes per thread; a thread stays in its column. The few
// threads left over when the chunks of a row do not divide the block move nothing.

#define CHUNKS_USED (COLUMNS / 8)
#define ROWS_PER_PASS (THREADS / CHUNKS_USED)
#define IDLE_ROW (1 << 20)                   /* past every tile */

template <int kRows> struct Tile {
    static constexpr int kPasses = (kRows + ROWS_PER_PASS - 1) / ROWS_PER_PASS;
    static constexpr bool kExact = kRows % ROWS_PER_PASS == 0 && THREADS % CHUNKS_USED == 0;
};

// What a thread moves in the first pass.
struct Mover {
    int row, column;

    __device__ __forceinline__ Mover()
        : row((int)threadIdx.x / CHUNKS_USED), column((int)threadIdx.x % CHUNKS_USED * 8) {
        if (THREADS % CHUNKS_USED != 0 && row >= ROWS_PER_PASS) row = IDLE_ROW;
    }
    __device__ __forceinline__ const u16 *source(const u16 *first, i64 row_stride) const {
        return first + (row < IDLE_ROW ? row : 0) * row_stride + column;
    }
    __device__ __forceinline__ u32 target(u32 shared, int pass) const {
        const int r = row + pass * ROWS_PER_PASS;
        return shared + r * ROW_BYTES + (column / 8 ^ swizzle<CHUNKS>(r)) * 16;
    }
};


// kCount passes; `source` is the thread's element in the first of them and moves on. Rows from `rows` on are zeros.
template <int kCount> FA_DEVICE void fetch(Vector16 (&held)[kCount], const Mover &mover, const u16 *&source, i64 row_stride,
                                           int first_pass, int rows) {
#pragma unroll
    for (int i = 0; i < kCount; i++) {
        const bool inside = mover.row + (first_pass + i) * ROWS_PER_PASS < rows && (HEAD_DIM % 16 == 0 || mover.column < HEAD_DIM);
        held[i] = inside ? load_global<ALIGNED != 0>(source) : Vector16{0, 0, 0, 0};
        source += ROWS_PER_PASS * row_stride;
        renew(source);
    }
}

template <int kRows, bool kWholePasses, int kCount>
FA_DEVICE void place(u32 shared, const Mover &mover, const Vector16 (&held)[kCount], int first_pass) {
#pragma unroll
    for (int i = 0; i < kCount; i++)
        if ((Tile<kRows>::kExact && kWholePasses) || mover.row + (first_pass + i) * ROWS_PER_PASS < kRows)
            store_vector(mover.target(shared, first_pass + i), held[i]);
}

// Both at once, a few vectors in flight. Returns where the thread would go on.
template <int kRows> FA_DEVICE const u16 *copy(u32 shared, const Mover &mover, const u16 *source, i64 row_stride, int rows) {
    constexpr int kPasses = Tile<kRows>::kPasses, kAtOnce = kPasses < 4 ? kPasses : 4;
    rows = rows < kRows ? rows : kRows;
#pragma unroll 1
    for (int pass = 0; pass < kPasses; pass += kAtOnce) {
        Vector16 held[kAtOnce];
        fetch(held, mover, source, row_stride, pass, rows);
        place<kRows, kPasses % kAtOnce == 0>(shared, mover, held, pass);
    }
    return source - ((kPasses + kAtOnce - 1) / kAtOnce * kAtOnce * ROWS_PER_PASS - kRows) * row_stride;
}

// The tiles of K or of V, one after the other; past the last one they are zeros and nothing is read.
struct Tiles {
    const u16 *source;
    i64 row_stride;
    int rows_left;
    Vector16 held[Tile<BLOCK_N>::kPasses];

    __device__ __forceinline__ Tiles(const Mover &mover, const u16 *first, i64 stride, int rows)
        : source(mover.source(first, stride)), row_stride(stride), rows_left(rows) {}
    __device__ __forceinline__ void fetch_next(const Mover &mover) {
        fetch(held, mover, source, row_stride, 0, rows_left < BLOCK_N ? rows_left : BLOCK_N);
        source -= (Tile<BLOCK_N>::kPasses * ROWS_PER_PASS - BLOCK_N) * row_stride;
        rows_left -= BLOCK_N;
    }
    __device__ __forceinline__ void place_held(u32 shared, const Mover &mover) const { place<BLOCK_N, true>(shared, mover, held, 0); }
    __device__ __forceinline__ void copy_next(u32 shared, const Mover &mover) {
        source = copy<BLOCK_N>(shared, mover, source, row_stride, rows_left);
        rows_left -= BLOCK_N;
    }
};

// ---- Fragments.

// This lane's row address and chunk bit of a 16x16 block. Q and V: matrices ordered rows first; K: columns first.
struct Lane {
    u32 row_address, spread;

    __device__ __forceinline__ Lane(u32 shared, int row, int chunk)
        : row_address(shared + row * ROW_BYTES), spread((u32)(chunk ^ swizzle<CHUNKS>(row)) * 16) {}
    // Block (i, j) of the tile: 16 rows and 16 columns each. Only the low bits of j meet the swizzle, the rest
    // is a constant offset: few distinct addresses, few registers.
    __device__ __forceinline__ u32 block(int i, int j) const {
        constexpr int kSpreads = CHUNKS % 8 == 0 ? 4 : 2;
        return row_address + (spread ^ (u32)(j % kSpreads * 32)) + (i * 16 * ROW_BYTES + j / kSpreads * kSpreads * 32);
    }
};

FA_DEVICE int lane_id() { return threadIdx.x % 32; }
FA_DEVICE int warp_id() { return threadIdx.x / 32; }
FA_DEVICE Lane rows_first(u32 shared) { return Lane(shared, lane_id() % 16, lane_id() / 16); }
FA_DEVICE Lane columns_first(u32 shared) { return Lane(shared, lane_id() / 16 * 8 + lane_id() % 8, lane_id() / 8 % 2); }

typedef u32 QueryFragments[SLABS][COLUMNS / 16][4];
typedef float Scores[SLABS][BLOCK_N / 8][4];
typedef u32 Weights[SLABS][BLOCK_N / 8][2];
typedef float Output[SLABS][COLUMNS / 8][4];

FA_DEVICE void load_queries(QueryFragments &q, const Lane &queries) {
#pragma unroll
    for (int slab = 0; slab < SLABS; slab++)
#pragma unroll
        for (int d = 0; d < COLUMNS / 16; d++) load_matrices(q[slab][d], queries.block(slab, d));
}

// S = Q K^T for this warp's rows; q is in use with Q_IN_REGS=1, `queries` otherwise.
FA_DEVICE void multiply_queries_keys(Scores &s, const QueryFragments &q, const Lane &queries, const Lane &keys) {
#pragma unroll
    for (int slab = 0; slab < SLABS; slab++)
#pragma unroll
        for (int n = 0; n < BLOCK_N / 8; n++) s[slab][n][0] = s[slab][n][1] = s[slab][n][2] = s[slab][n][3] = 0.0f;
#pragma unroll
    for (int d = 0; d < COLUMNS / 16; d++) {
        u32 a[SLABS][4];
#pragma unroll
        for (int slab = 0; slab < SLABS; slab++) {
            if (!Q_IN_REGS) load_matrices(a[slab], queries.block(slab, d));
            else for (int i = 0; i < 4; i++) a[slab][i] = q[slab][d][i];
        }
#pragma unroll
        for (int n = 0; n < BLOCK_N / 16; n++) {
            u32 b[4];
            load_matrices(b, keys.block(n, d));
#pragma unroll
            for (int slab = 0; slab < SLABS; slab++) {
                mma_16x8x8(s[slab][2 * n], a[slab][0], a[slab][1], b[0]);
                mma_16x8x8(s[slab][2 * n + 1], a[slab][0], a[slab][1], b[2]);
                mma_16x8x8(s[slab][2 * n], a[slab][2], a[slab][3], b[1]);
                mma_16x8x8(s[slab][2 * n + 1], a[slab][2], a[slab][3], b[3]);
            }
        }
    }
}

// O += P V
FA_DEVICE void multiply_weights_values(Output &o, const Weights &w, const Lane &values) {
#pragma unroll
    for (int n = 0; n < BLOCK_N / 16; n++) {
#pragma unroll
        for (int d = 0; d < COLUMNS / 16; d++) {
            u32 b[4];
            load_matrices_transposed(b, values.block(n, d));
#pragma unroll
            for (int slab = 0; slab < SLABS; slab++) {
                mma_16x8x8(o[slab][2 * d], w[slab][2 * n][0], w[slab][2 * n][1], b[0]);
                mma_16x8x8(o[slab][2 * d + 1], w[slab][2 * n][0], w[slab][2 * n][1], b[2]);
                mma_16x8x8(o[slab][2 * d], w[slab][2 * n + 1][0], w[slab][2 * n + 1][1], b[1]);
                mma_16x8x8(o[slab][2 * d + 1], w[slab][2 * n + 1][0], w[slab][2 * n + 1][1], b[3]);
            }
        }
    }
}

// ---- Online softmax. A thread has two rows of each slab: lane/4 and lane/4 + 8.

struct Softmax {
    float largest[SLABS][2];  // score so far, the same in the four lanes of a row
    float sum[SLABS][2];      // of this lane's weights
};

FA_DEVICE int row_of(int slab, int half) { return (warp_id() * SLABS + slab) * 16 + half * 8 + lane_id() / 4; }

FA_DEVICE void start(Softmax &m, Output &o) {
#pragma unroll
    for (int slab = 0; slab < SLABS; slab++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            m.largest[slab][half] = neg_infinity();
            m.sum[slab][half] = 0.0f;
        }
#pragma unroll
        for (int d = 0; d < COLUMNS / 8; d++) o[slab][d][0] = o[slab][d][1] = o[slab][d][2] = o[slab][d][3] = 0.0f;
    }
}

// Scores of keys past the row's limit become -inf; `first` is the tile's first key.
FA_DEVICE void mask(Scores &s, const fa_attn_params &p, const Work &work, int first) {
#pragma unroll
    for (int slab = 0; slab < SLABS; slab++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int visible = work.limit(p, row_of(slab, half)) - first - lane_id() % 4 * 2;
#pragma unroll
            for (int n = 0; n < BLOCK_N / 8; n++) {
                if (n * 8 > visible) s[slab][n][2 * half] = neg_infinity();
                if (n * 8 + 1 > visible) s[slab][n][2 * half + 1] = neg_infinity();
            }
        }
}

// P = exp(scale * (S - largest)) and the old sums and O brought to the new maximum.
FA_DEVICE void weigh(Weights &w, Scores &s, Softmax &m, Output &o, float scale_log2) {
#pragma unroll
    for (int slab = 0; slab < SLABS; slab++) {
        float shift[2], correction[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float largest = s[slab][0][2 * half];
#pragma unroll
            for (int n = 0; n < BLOCK_N / 8; n++) largest = max2(largest, max2(s[slab][n][2 * half], s[slab][n][2 * half + 1]));
            largest = max2(m.largest[slab][half], quad_max(largest));
            const float seen = largest == neg_infinity() ? 0.0f : largest;   // no key seen yet: all weights are exp2(-inf)
            shift[half] = seen * scale_log2;
            // The difference first: a maximum that stays gives 1, not what a multiply-add leaves of the product's rounding.
            correction[half] = exp2_fast((m.largest[slab][half] - seen) * scale_log2);
            m.largest[slab][half] = largest;
            m.sum[slab][half] *= correction[half];
        }
#pragma unroll
        for (int n = 0; n < BLOCK_N / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s[slab][n][e] = exp2_fast(s[slab][n][e] * scale_log2 - shift[e / 2]);
                m.sum[slab][e / 2] += s[slab][n][e];
            }
            w[slab][n][0] = pack2<false>(s[slab][n][0], s[slab][n][1]);
            w[slab][n][1] = pack2<false>(s[slab][n][2], s[slab][n][3]);
        }
#pragma unroll
        for (int d = 0; d < COLUMNS / 8; d++)
#pragma unroll
            for (int e = 0; e < 4; e++) o[slab][d][e] *= correction[e / 2];
    }
}

// O / sum to shared memory, LSE to global memory. Rows that saw no key: 0 and -inf.
FA_DEVICE void finish(u32 shared, const Output &o, const Softmax &m, const fa_attn_params &p, const Work &work) {
#pragma unroll
    for (int slab = 0; slab < SLABS; slab++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = row_of(slab, half);
            const float sum = quad_sum(m.sum[slab][half]), inverse = sum == 0.0f ? 0.0f : reciprocal(sum);
            const u32 address = shared + row * ROW_BYTES + lane_id() % 4 * 4;
#pragma unroll
            for (int d = 0; d < COLUMNS / 8; d++)
                store_shared(address + (d ^ swizzle<CHUNKS>(row)) * 16,
                             pack2<false>(o[slab][d][2 * half] * inverse, o[slab][d][2 * half + 1] * inverse));
            if (p.lse && lane_id() % 4 == 0 && row < work.rows)
                work.lse(p)[row] = sum == 0.0f ? neg_infinity()
                                            : m.largest[slab][half] * p.softmax_scale + log2_fast(sum) * 0.693147180559945f;
        }
}

FA_DEVICE void write_output(u32 shared, const fa_attn_params &p, const Work &work) {
#pragma unroll 2
    for (int index = threadIdx.x; index < BLOCK_M * (HEAD_DIM / 8); index += THREADS) {
        const int row = index / (HEAD_DIM / 8), chunk = index % (HEAD_DIM / 8);
        if (row < work.rows)
            store_global<ALIGNED != 0>(work.o(p) + row * p.o_row_stride + chunk * 8,
                                       load_vector(shared + row * ROW_BYTES + (chunk ^ swizzle<CHUNKS>(row)) * 16));
    }
}

// ---- The kernel.

extern "C" __global__ void __launch_bounds__(FA_THREADS, (WARPS_PER_SM + WARPS - 1) / WARPS)
attn_fwd(const __grid_constant__ fa_attn_params p) {
    extern __shared__ __align__(128) unsigned char shared_memory[];
    const u32 shared = shared_address(shared_memory);
    const Work work(p, blockIdx.x);

    const Mover mover;
    copy<BLOCK_M>(shared, mover, mover.source(work.q(p), p.q_row_stride), p.q_row_stride, work.rows);
    __syncthreads();
    const Lane queries = rows_first(shared + warp_id() * SLABS * 16 * ROW_BYTES);
    QueryFragments q;
    if (Q_IN_REGS) load_queries(q, queries);
    if (Q_IN_REGS) __syncthreads();

    Softmax m;
    Output o;
    start(m, o);
    const int first_limit = work.limit(p, warp_id() * SLABS * 16);   // the smallest of this warp

    Tiles k(mover, work.k(p), p.k_row_stride, work.keys), v(mover, work.v(p), p.v_row_stride, work.keys);
    k.copy_next(shared + K_AT, mover);
    if (STAGES == 2) v.copy_next(shared + V_AT, mover);
    __syncthreads();

    u32 stage = 0;                                                   // byte offset of tile j's buffers; NEXT of those of j+1
#define NEXT (STAGES == 2 ? TILE_BYTES - stage : 0)
#pragma unroll 1
    for (int left = work.keys; left > 0; left -= BLOCK_N) {
        const int first = work.keys - left;
        if (STAGES == 2) k.fetch_next(mover);
        if (STAGES == 1 && PREFETCH) v.fetch_next(mover);
        Scores s;
        multiply_queries_keys(s, q, queries, columns_first(shared + K_AT + stage));

        if (STAGES == 2) k.place_held(shared + K_AT + NEXT, mover);
        if (STAGES == 2) v.fetch_next(mover);
        if (STAGES == 1) {
            if (V_REUSES_K) __syncthreads();
            if (PREFETCH) v.place_held(shared + V_AT, mover);
            else v.copy_next(shared + V_AT, mover);
            __syncthreads();
            if (PREFETCH) k.fetch_next(mover);
        }

        if (first_limit - first < BLOCK_N - 1) mask(s, p, work, first);
        Weights w;
        weigh(w, s, m, o, p.softmax_scale_log2);
        multiply_weights_values(o, w, rows_first(shared + V_AT + stage));

        if (STAGES == 2) v.place_held(shared + V_AT + NEXT, mover);
        if (STAGES == 1) {
            if (V_REUSES_K) __syncthreads();
            if (PREFETCH) k.place_held(shared + K_AT, mover);
            else k.copy_next(shared + K_AT, mover);
        }
        __syncthreads();
        stage = NEXT;
    }

    const Work again(p, renewed(blockIdx.x));
    finish(shared, o, m, p, again);
    __syncthreads();
    write_output(shared, p, again);
}
