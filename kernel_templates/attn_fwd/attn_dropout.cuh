// SPDX-License-Identifier: Apache-2.0
//
// Dropout of attention: which weights are kept. Only sources whose problem has the buffers dropout and dropout_seed include it.
//
// Purpose: O = (P * kept / (1 - p)) V, P being the softmax over all keys. Whether a weight is kept follows from its head, query and key, so that
// all families, configs and passes draw the same bits.
// The bits: p is t / 256, t being the whole number next to 256 p, at most 255. The weights of 16 queries by 16 keys of a head have 16 calls of
// Philox4x32-7, with the seed's first element as the key. The counter of query q and key k (of their sequence, from 0 on) is
// {q / 16 * 4 + q % 8 / 2, k / 16 * 4 + k % 8 / 2, sequence * heads_q + head, the seed's second element}: what comes out is four words, for the
// queries 2a, 2a + 1, 2a + 8 and 2a + 9, of bytes for the keys 2b, 2b + 1, 2b + 8 and 2b + 9: word q % 16 / 8 * 2 + (q + k / 16) % 2, byte
// k % 16 / 8 * 2 + (k + q / 16) % 2, so that every other square has its neighbours swapped. A weight is kept if its byte is t or more.
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
        const i64 word = query % 16 / 8 * 2 + (query + key / 16) % 2, byte = key % 16 / 8 * 2 + (key + query / 16) % 2;
        return ((word == 0 ? x[0] : word == 1 ? x[1] : word == 2 ? x[2] : x[3]) >> byte * 8 & 255) >= threshold;
    }
};

template <u32 kBytes> FA_DEVICE u32 bytes_of_two(u32 a, u32 b) {
    u32 y;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "n"(kBytes));
    return y;
}

// Of the elements of an accumulator of 16 rows and kSixteens times 16 columns, of which a lane has of rows g and g + 8 (half 1) the columns
// 8j + 2t and 8j + 2t + 1: element 4j + 2 half + e. Rows are queries, or (kRowsAreKeys) keys.
template <bool kRowsAreKeys, int kSixteens> struct Dropped {
    u32 words[kSixteens][2];   // of 16 columns the bytes of four elements each: those of a half, or where rows are keys of both of 8 columns
    u32 low, high, least;      // which bytes are the first two elements, and the others; the threshold

    // Of the rows and columns from these on, which are multiples of 16. The whole warp calls it.
    __device__ __forceinline__ void find(const Dropout &of, int row, int column) {
        const u32 lane = threadIdx.x % 32, parity = lane / 4 % 2, first_parity = (u32)column / 16 % 2;
        const u32 rows = (u32)row / 4 + lane / 8, columns = (u32)column / 4 + lane % 4;
        const bool turned = row / 16 % 2 != 0, is_first = parity == first_parity;
        low = turned ? 0x4041 : 0x4140, high = turned ? 0x4243 : 0x4342;
        least = (0x6400 + of.threshold) * 0x10001;
#pragma unroll
        for (int i = 0; i < kSixteens; i += 2) {
            const bool two = i + 1 < kSixteens;
            const u32 own = columns + (u32)i * 4 + (two && !is_first ? 4 : 0);
            u32 x[4];
            of.draw(x, kRowsAreKeys ? own : rows, kRowsAreKeys ? rows : own);
            if constexpr (kRowsAreKeys) {   // bytes of two queries each
                const u32 a = bytes_of_two<0x6240>(x[0], x[1]), b = bytes_of_two<0x6240>(x[2], x[3]);
                x[1] = bytes_of_two<0x7351>(x[0], x[1]), x[3] = bytes_of_two<0x7351>(x[2], x[3]);
                x[0] = a, x[2] = b;
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const u32 kept = x[half * 2], other = two ? shuffle_xor(x[half * 2 + 1], 4) : x[half * 2 + 1];
                words[i][half] = is_first ? kept : other;
                if (two) words[i + 1][half] = is_first ? other : kept;
            }
        }
    }
    // Elements i and i + 1 as two halves: 1024 and their byte; ones where they are kept, which float or bits are made of.
    __device__ __forceinline__ u32 numbers(int i) const {
        u32 y;
        const int which = kRowsAreKeys ? i / 4 % 2 : i / 2 % 2, others = kRowsAreKeys ? i / 2 % 2 : i / 4 % 2;
        asm("prmt.b32 %0, %1, %2, %3;" : "=r"(y) : "r"(words[i / 8][which]), "r"(0x64646464u), "r"(others == 0 ? low : high));
        return y;
    }
    __device__ __forceinline__ u32 ones(int i) const {
        u32 y;
        asm("set.ge.f16x2.f16x2 %0, %1, %2;" : "=r"(y) : "r"(numbers(i)), "r"(least));
        return y;
    }
    __device__ __forceinline__ u32 mask(int i) const {
        u32 y;
        asm("set.ge.u32.f16x2 %0, %1, %2;" : "=r"(y) : "r"(numbers(i)), "r"(least));
        return y;
    }
    // 1 or 0.
    __device__ __forceinline__ float factor(int i) const { return to_float<false>((u16)(ones(i / 2 * 2) >> i % 2 * 16)); }
    // Elements that are not kept become 0, of floats or of pairs of 16 bits.
    template <int kCount> __device__ __forceinline__ void apply(float (&x)[kCount]) const {
#pragma unroll
        for (int i = 0; i < kCount; ++i) x[i] *= factor(i);
    }
    template <int kCount> __device__ __forceinline__ void apply(u32 (&x)[kCount], int first = 0) const {
#pragma unroll
        for (int i = 0; i < kCount; ++i) x[i] &= mask(first + 2 * i);
    }
};

} // namespace

#endif
