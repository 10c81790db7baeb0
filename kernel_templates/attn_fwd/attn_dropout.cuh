// SPDX-License-Identifier: Apache-2.0
//
// Dropout of attention: which weights are kept. Only sources whose problem has the buffers dropout and dropout_seed include it.
//
// Purpose: O = (P * kept / (1 - p)) V, P being the softmax over all keys. Whether a weight is kept follows from its head, query and key, so that
// all families, configs and passes draw the same bits.
// The bits: p is t / 256, t being the whole number next to 256 p, at most 255. The weights of 16 queries by 16 keys of a head have 16 calls of
// Philox4x32-7, with the seed's first element as the key. The counter of query q and key k (of their sequence, from 0 on) is
// {q / 16 * 4 + q % 8 / 2, k / 16 * 4 + k % 8 / 2, sequence * heads_q + head, the seed's second element}: what comes out is four words, for the
// queries 2a, 2a + 1, 2a + 8 and 2a + 9, of bytes for the keys 2b, 2b + 1, 2b + 8 and 2b + 9. A weight is kept if its byte is t or more.
// Two lanes of an accumulator share a call, whether its rows are queries or keys: each makes one of two, and they exchange halves.
#ifndef ATTN_DROPOUT_CUH
#define ATTN_DROPOUT_CUH

#include "attn_serving_params.h"
#include "fa_numeric.cuh"

namespace {

FA_DEVICE u32 dropout_threshold(const fa_attn_buffer_params *buffers) {
    const int t = (int)(buffers[DROPOUT_AT].real * 256.0f + 0.5f);
    return t < 0 ? 0 : t > 255 ? 255 : (u32)t;
}
// What weights that are kept are multiplied by.
FA_DEVICE float dropout_scale(const fa_attn_buffer_params *buffers) { return 256.0f / (float)(256 - (int)dropout_threshold(buffers)); }

struct Dropout {
    u32 key[2], head, offset, threshold;

    // head: of all sequences.
    __device__ __forceinline__ Dropout(const fa_attn_buffer_params *buffers, i64 head) : head((u32)head), threshold(dropout_threshold(buffers)) {
        const fa_attn_buffer_params &seed = buffers[DROPOUT_SEED_AT];
        asm("ld.global.nc.v2.b32 {%0,%1}, [%2];" : "=r"(key[0]), "=r"(key[1]) : "l"(seed.at));
        asm("ld.global.nc.b32 %0, [%1];" : "=r"(offset) : "l"((const u64 *)seed.at + (seed.last[0] > 0 ? seed.stride[0] : 0)));
    }
    __device__ __forceinline__ void draw(u32 (&x)[4], u32 queries, u32 keys) const {
        u32 a = key[0], b = key[1];
        x[0] = queries, x[1] = keys, x[2] = head, x[3] = offset;
#pragma unroll
        for (int i = 0; i < 7; ++i, a += 0x9e3779b9u, b += 0xbb67ae85u) {
            const u64 y = (u64)0xd2511f53u * x[0], z = (u64)0xcd9e8d57u * x[2];
            x[0] = (u32)(z >> 32) ^ x[1] ^ a, x[1] = (u32)z;
            x[2] = (u32)(y >> 32) ^ x[3] ^ b, x[3] = (u32)y;
        }
    }
    __device__ __forceinline__ bool keeps(i64 query, i64 key) const {
        u32 x[4];
        draw(x, (u32)(query / 16 * 4 + query % 8 / 2), (u32)(key / 16 * 4 + key % 8 / 2));
        const u32 pair = query % 16 / 8 != 0 ? (query % 2 != 0 ? x[3] : x[2]) : (query % 2 != 0 ? x[1] : x[0]);
        return (pair >> (key % 2 + key % 16 / 8 * 2) * 8 & 255) >= threshold;
    }
    // The highest bit of each byte: whether it is at least the threshold. Others may be anything.
    __device__ __forceinline__ u32 compare(u32 x) const {
        const u32 low = (x & 0x7f7f7f7fu) + (128 - threshold % 128) * 0x01010101u, none = threshold < 128 ? 0xffffffffu : 0;
        return (x & low) | (none & (x | low));
    }
};

FA_DEVICE u32 exchange(u32 x) {
    u32 y;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(y) : "r"(x), "r"(4));
    return y;
}
template <u32 kBytes> FA_DEVICE u32 bytes_of_two(u32 a, u32 b) {
    u32 y;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "n"(kBytes));
    return y;
}

// Bits of the elements of an accumulator of 16 rows and kSixteens times 16 columns, of which a lane has of rows g and g + 8 (half 1) the columns
// 8j + 2t and 8j + 2t + 1: element 4j + 2 half + e. Rows are queries, or (kRowsAreKeys) keys.
template <bool kRowsAreKeys, int kSixteens> struct Dropped {
    u32 bits[(kSixteens + 3) / 4];

    __device__ __forceinline__ bool operator[](int i) const {
        return (bits[i / 32] >> (i / 4 % 2 * 16 + i % 2 * 8 + 7 - (i / 8 % 4 * 2 + i / 2 % 2)) & 1) != 0;
    }
    // Of the rows and columns from these on, which are multiples of 16. The whole warp calls it.
    __device__ __forceinline__ void find(const Dropout &of, int row, int column) {
        const u32 lane = threadIdx.x % 32;
        const bool odd = lane / 4 % 2 != 0;
        const u32 rows = (u32)row / 4 + lane / 8, columns = (u32)column / 4 + lane % 4;
#pragma unroll
        for (int i = 0; i < (kSixteens + 3) / 4; ++i) bits[i] = 0;
#pragma unroll
        for (int first = 0; first < kSixteens; first += 2) {
            const bool two = first + 1 < kSixteens;
            const u32 own = columns + (u32)first * 4 + (two && odd ? 4 : 0);
            u32 x[4], of_row[2][2];
            of.draw(x, kRowsAreKeys ? own : rows, kRowsAreKeys ? rows : own);
            if constexpr (kRowsAreKeys) {   // words become of keys
                const u32 a = bytes_of_two<0x5140>(x[0], x[1]), b = bytes_of_two<0x5140>(x[2], x[3]);
                const u32 c = bytes_of_two<0x7362>(x[0], x[1]), d = bytes_of_two<0x7362>(x[2], x[3]);
                x[0] = bytes_of_two<0x5410>(a, b), x[1] = bytes_of_two<0x7632>(a, b);
                x[2] = bytes_of_two<0x5410>(c, d), x[3] = bytes_of_two<0x7632>(c, d);
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const u32 kept = odd ? x[half * 2 + 1] : x[half * 2];
                const u32 other = two ? exchange(odd ? x[half * 2] : x[half * 2 + 1]) : 0;
                of_row[0][half] = two && odd ? other : kept, of_row[1][half] = odd ? kept : other;
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (i < 2 || two) {
                    const int at = (first + i / 2) % 4 * 2 + i % 2;
                    bits[(first + i / 2) / 4] |= of.compare(of_row[i / 2][i % 2]) >> at & 0x80808080u >> at;
                }
        }
    }
    // Elements that are not kept become 0, others are scaled.
    template <int kCount> __device__ __forceinline__ void apply(float (&x)[kCount], float scale) const {
#pragma unroll
        for (int i = 0; i < kCount; ++i) x[i] = (*this)[i] ? x[i] * scale : 0.0f;
    }
    // Those of two 16-bit elements each.
    template <int kCount> __device__ __forceinline__ void apply(u32 (&x)[kCount]) const {
#pragma unroll
        for (int i = 0; i < kCount; ++i) x[i] &= ((*this)[2 * i] ? 0xffffu : 0u) | ((*this)[2 * i + 1] ? 0xffff0000u : 0u);
    }
    template <int kCount> __device__ __forceinline__ void apply(float (&x)[kCount]) const {
#pragma unroll
        for (int i = 0; i < kCount; ++i)
            if (!(*this)[i]) x[i] = 0.0f;
    }
};

} // namespace

#endif
