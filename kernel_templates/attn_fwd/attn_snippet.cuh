// SPDX-License-Identifier: Apache-2.0
//
// A user's score and mask (fa_snippet.cuh) over tiles of scores: which steps of keys a tile sees at all, and what becomes of a score.
//
// Purpose: what the families share that take snippets. Includers define SCORE_SNIPPET and MASK_SNIPPET, and say of a tile:
// its batch, heads and lengths (Places), the positions of its queries and the first key of a step.
// Invariants: whoever walks the steps of a tile looks at the same numbers, so all find the same steps. No table says them.
#ifndef ATTN_SNIPPET_CUH
#define ATTN_SNIPPET_CUH

#include "attn_serving_params.h"
#include "fa_shared.cuh"
#if DROPOUT
#include "attn_dropout.cuh"
#endif

#if BUFFER_COUNT > 0
#define AND_BUFFERS(...) , __VA_ARGS__
#define HELD_OF(places) (places).buffers
#else
#define AND_BUFFERS(...)
#define HELD_OF(places) 0
#endif
// Of the tensor that snippet_of_key reads: an element's bytes, 64 times where its elements are of queries and keys; and 1: they are of keys, 2: of
// both; 0: there is none.
#if SCORE_FETCH_BYTES >= 128
#define SCORE_FETCHES 2
#elif SCORE_FETCH_BYTES > 0
#define SCORE_FETCHES 1
#else
#define SCORE_FETCHES 0
#endif
#if MASK_FETCH_BYTES >= 128
#define MASK_FETCHES 2
#elif MASK_FETCH_BYTES > 0
#define MASK_FETCHES 1
#else
#define MASK_FETCHES 0
#endif

namespace {

// What a snippet is told of a tile beside its queries and keys.
struct Places {
    int batch, head, kv_head, len_q, len_k;
#if BUFFER_COUNT > 0
    const fa_attn_buffer_params *buffers;
    u32 memo = 0;   // of a warp that walks steps: kMemoBytes of its shared memory, zeros at first; 0: it has none
#endif
};

#if SCORE_SNIPPET || MASK_SNIPPET
// A position as a number that does not change from key to key, and one `ahead` of a thread's first key.
FA_DEVICE SnippetCount<float> query_place(int q) { return {q, (float)q}; }
FA_DEVICE SnippetCount<SnippetLine> key_place(int first, float same, int ahead) { return {first + ahead, {same, 1.0f, ahead}}; }
#endif

// held: where tensors are read, or KeyReads.
#if SCORE_SNIPPET
template <class Q, class K, class Held> FA_DEVICE float bent_score(float natural, const Places &w, Q q, K k, const Held &held) {
    return snippet_score<SnippetFast>(SnippetScore{natural}, w.batch, w.head, w.kv_head, q, k, w.len_q, w.len_k AND_BUFFERS(held));
}
#if SCORE_ADDS
template <class Q, class K, class Held> FA_DEVICE float added_score(const Places &w, Q q, K k, const Held &held) {
    return snippet_score<SnippetRest>(SnippetNothing(), w.batch, w.head, w.kv_head, q, k, w.len_q, w.len_k AND_BUFFERS(held));
}
#endif
template <class Q, class K> FA_DEVICE float bent_score(float natural, const Places &w, Q q, K k) { return bent_score(natural, w, q, k, HELD_OF(w)); }
#endif

#if SCORE_FETCHES || MASK_FETCHES
// What a text reads of a tensor for scores as wgmma leaves them: score 4 * j + 2 * half + e is of the query 8 * half and the key
// 8 * j + e behind the first. All are fetched before the first is used, those of two keys together where they lie so.
enum Fetching { kFetchProbe, kFetchPairs, kFetchSingly, kFetched, kFetchWhere };
struct KeyRow {
    const void *at;   // key 0
    i64 stride;       // in elements
    int last;
};
template <Fetching kMode> struct KeyReads {
    const fa_attn_buffer_params *buffers;
    u32 *raw;        // at a score's number, or that of the first of two of 16 bits; those of keys alone at the numbers of half 0
    int i;           // the score
    int reach = 0;   // kFetchProbe: keys up to the last, and whether pairs can be read
    bool *pairs = nullptr;
    KeyRow *row = nullptr;   // kFetchWhere: its row; pairs: whether it and `reach` more are for the copy engine

    __device__ __forceinline__ auto operator[](int which) const {
        if constexpr (kMode == kFetched) return buffers[which];
        else return SnippetSilent{0, 0.0f};
    }
    template <class T, bool kColumn, class K, class... I> __device__ __forceinline__ auto of_key(int which, K k, I... index) const {
        using X = decltype(snippet_element(T()));
        constexpr int kWords = sizeof(T) == 8 ? 2 : 1, kLast = sizeof...(I);
        const int at = kColumn ? i / 4 * 4 + i % 2 * kWords : i, high = i % 2 * 16;
        if constexpr (kMode == kFetched) {
            if constexpr (sizeof(T) == 8) return snippet_element((T)((u64)raw[at + 1] << 32 | raw[at]));
            else if constexpr (sizeof(T) == 2) return snippet_element(T{(u16)(raw[at - i % 2] >> high)});
            else if constexpr (SnippetKind<X>::real) return bits_to_float(raw[at]);
            else return (X)raw[at];
        } else {
            const fa_attn_buffer_params &is = buffers[which];
            i64 row = 0;
            int d = 0;
            ((row += is.stride[d] * snippet_held(index, is.last[d]), ++d), ...);
            if constexpr (kMode == kFetchSingly) {
                const T *x = (const T *)is.at + (row + is.stride[kLast] * snippet_held(k.whole, is.last[kLast]));
                if constexpr (sizeof(T) == 2) raw[at - i % 2] = (i % 2 != 0 ? raw[at - i % 2] : 0) | (u32)*(const u16 *)x << high;
                else
                    for (int word = 0; word < kWords; ++word)
                        asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(raw[at + word]) : "l"((const u32 *)x + word));
            } else if constexpr (kMode == kFetchWhere) {
                u64 odd = (u64)is.at | (u64)k.whole * sizeof(T);
                for (d = 0; d < kLast; ++d) odd |= is.stride[d] * sizeof(T);
                *this->row = {(const T *)is.at + row, is.stride[kLast], is.last[kLast]};
                *pairs = is.stride[kLast] == 1 && odd % 16 == 0 && k.whole >= 0 && k.whole + reach <= is.last[kLast];
            } else {
                const int ahead = k.real.ahead;   // an offset that is known when the kernel is compiled
                const T *x = (const T *)is.at + (row + (k.whole - ahead)) + ahead;
                if constexpr (kMode == kFetchProbe)
                    *pairs &= is.stride[kLast] == 1 && k.whole >= 0 && k.whole + reach <= is.last[kLast] && (u64)x % (2 * sizeof(T)) == 0;
                else if constexpr (sizeof(T) == 8)
                    asm volatile("ld.global.nc.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(raw[at]), "=r"(raw[at + 1]), "=r"(raw[at + 2]), "=r"(raw[at + 3]) : "l"(x));
                else if constexpr (sizeof(T) == 4)
                    asm volatile("ld.global.nc.v2.b32 {%0,%1}, [%2];" : "=r"(raw[at]), "=r"(raw[at + 1]) : "l"(x));
                else
                    asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(raw[at]) : "l"(x));
            }
            return X();
        }
    }
};
template <Fetching kMode> struct SnippetFetches<KeyReads<kMode>> { enum { is = 1 }; };
// Of the scores from `first` to `end`; text(i, held) says what becomes of a score. kFetches: the text's.
template <int kFetches, class Text> FA_DEVICE void fetch_of_keys(u32 *raw, const fa_attn_buffer_params *buffers, int first, int end, const Text &text) {
    bool pairs = true;
#pragma unroll
    for (int half = 0; half < kFetches; ++half)
        text(first + half * 2, KeyReads<kFetchProbe>{buffers, raw, first + half * 2, (end - first) * 2 - 7, &pairs});
    if (pairs) {
#pragma unroll
        for (int i = first; i < end; i += 2)
            if (kFetches > 1 || i % 4 == 0) text(i, KeyReads<kFetchPairs>{buffers, raw, i});
    } else {
#pragma unroll
        for (int i = first; i < end; ++i)
            if (kFetches > 1 || i % 4 < 2) text(i, KeyReads<kFetchSingly>{buffers, raw, i});
    }
}
#endif

#if MASK_SNIPPET
template <class Q, class K, class Held> FA_DEVICE bool is_visible(const Places &w, Q q, K k, const Held &held) {
    return snippet_mask<SnippetFast>(w.batch, w.head, w.kv_head, q, k, w.len_q, w.len_k AND_BUFFERS(held));
}
template <class Q, class K> FA_DEVICE bool is_visible(const Places &w, Q q, K k) { return is_visible(w, q, k, HELD_OF(w)); }

// Bit i: of lane i.
FA_DEVICE u32 warp_ballot(bool x) {
    u32 all;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }" : "=r"(all) : "r"((u32)x));
    return all;
}
FA_DEVICE int highest_bit(u32 x) {
    int bit;
    asm("bfind.u32 %0, %1;" : "=r"(bit) : "r"(x));
    return bit;
}

#if BUFFER_COUNT > 0
constexpr u32 kMemoBytes = 4096;

FA_DEVICE int warp_least(int x) {
    int y;
    asm volatile("redux.sync.min.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
}
FA_DEVICE int warp_most(int x) {
    int y;
    asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
}

// A buffer of whole numbers under spans of indices: the elements there say what the result's span is. The lanes of a warp, of which
// each asks for spans of its own, read those of one lane after another together, of four lanes at a time.
struct SeenBuffer {
    static constexpr int kMost = 1023;   // elements: what has more is not looked at
    const fa_attn_buffer_params &is;
    int whole;
    float real;
    u32 memo, common;   // what this lane found last about one of its steps, what all lanes did about queries; 0: nothing is kept

    // By one dimension's span. more < 0: there is too much, and nothing is read.
    template <class T, class I> __device__ __forceinline__ void narrow(SnippetSpan<I> span, int d, const T *&at, i64 &step, int &more) const {
        const int low = snippet_held(span.low, is.last[d]), count = snippet_held(span.high, is.last[d]) - low;
        at += is.stride[d] * low;
        if (count == 0) return;
        step = is.stride[d];
        more = more != 0 || count >= kMost ? -1 : count;
    }
    template <class T, class... I> __device__ __forceinline__ auto look(I... index) const {
        if constexpr (SnippetKind<decltype(snippet_element(T()))>::real) return snippet_any_real();
        else return look_at<T, decltype(snippet_element(T()))>(index...);
    }
    template <class T, class X, class... I> __device__ __forceinline__ SnippetSpan<X> look_at(I... index) const {
        const SnippetSpan<X> any = sizeof(X) == 8 ? SnippetSpan<X>{(X)-kMostElement, (X)kMostElement} : snippet_any_bits<X>();
        const T *at = (const T *)is.at;
        i64 step = 1;
        int d = 0, more = 0;   // elements behind the first
        (narrow(index, d++, at, step, more), ...);
        const u64 own = (u64)at;
        const int other = (from_lane((int)own, 0) ^ (int)own) | (from_lane((int)(own >> 32), 0) ^ (int)(own >> 32)) | (from_lane(more, 0) ^ more);
        const bool alike = !warp_any(other != 0);
        // What keys say is the same for all tiles of a sequence, what queries say for all steps of a tile. Addresses have less than 52 bits, so elements that lie elsewhere, or
        // are more or of another type, have another tag; those with gaps between them are not kept.
        const u64 tag = own ^ (u64)(u32)(more & 1023) << 52 ^ (u64)(sizeof(T) / 4) << 62;
        const bool keeps = memo != 0 && !warp_any(step != 1 && more != 0);
        const u32 place = alike ? common + (u32)(own >> 9 & 7) * 16 : memo;
        int kept[4] = {};
        if (keeps) load_shared(kept, place);
        if (keeps && !warp_any(((u64)(u32)kept[1] << 32 | (u32)kept[0]) != tag)) return span_of<X>(any, kept[2], kept[3], more);
        // Alike, lanes read the elements together; else each its own, of which a few are under way at a time.
        constexpr int kLoads = 8;
        const int by = alike ? 32 : 1, lane = alike ? (int)(threadIdx.x % 32) : 0;
        const T *from = at + step * lane;
        int least = 2147483647, most = -2147483647 - 1;
#pragma unroll 1
        for (int left = more - lane; left >= 0; left -= kLoads * by) {
            X x[kLoads];
#pragma unroll
            for (int j = 0; j < kLoads; ++j, from += step * by) x[j] = snippet_element(j * by <= left ? *from : *at);
#pragma unroll
            for (int j = 0; j < kLoads; ++j) {   // what is further away is not known well
                const int near = x[j] < (X)(-2147483647 - 1) ? -2147483647 - 1 : x[j] > (X)2147483647 ? 2147483647 : (int)x[j];
                least = near < least ? near : least, most = near > most ? near : most;
            }
        }
        kept[2] = alike ? warp_least(least) : least, kept[3] = alike ? warp_most(most) : most;
        if (keeps) store_shared(place, (u32)tag, (u32)(tag >> 32), kept[2], kept[3]);
        return span_of<X>(any, kept[2], kept[3], more);
    }
    template <class X> FA_DEVICE SnippetSpan<X> span_of(SnippetSpan<X> any, int least, int most, int more) {
        return {more < 0 || least == -2147483647 - 1 ? any.low : (X)least, more < 0 || most == 2147483647 ? any.high : (X)most};
    }
};
struct SeenBuffers {
    const fa_attn_buffer_params *buffers;
    u32 memo, common;
    __device__ __forceinline__ SeenBuffer operator[](int i) const { return {buffers[i], buffers[i].whole, buffers[i].real, memo, common}; }
};
// This warp's, for its lanes.
FA_DEVICE void clear_memo(u32 memo) {
    for (u32 at = threadIdx.x % 32 * 16; at < kMemoBytes; at += 512) store_shared(memo + at, 0, 0, 0, 0);
}
#endif

// The steps of kKeys keys of a tile that some of its queries see by the mask, from the last to the first. All lanes of a warp walk
// together: each looks at a step of 32.
template <int kKeys> struct SeenSteps {
    int first = 0;               // of the steps that were looked at last
    u32 seen = 0, whole = 0;     // of those which are still to come; bits of steps that every query sees whole

    __device__ __forceinline__ explicit SeenSteps(int steps) : first((steps + 31) / 32 * 32) {}

    // Whether some of the queries at [from, to] see the keys from `key` on, and whether all see all that there are.
    FA_DEVICE SnippetSpan<int> look(const Places &w, int from, int to, int key) {
        using As = SnippetSpans;
        const int last = (key + kKeys < w.len_k ? key + kKeys : w.len_k) - 1;
        return snippet_mask<As>(As::whole(w.batch), As::whole(w.head), As::whole(w.kv_head), SnippetSpan<int>{from, to}, SnippetSpan<int>{key, last},
                                As::whole(w.len_q), As::whole(w.len_k) AND_BUFFERS(SeenBuffers{w.buffers, w.memo == 0 ? 0 : w.memo + ((u32)key / (32 * kKeys) % 8 * 32 + threadIdx.x % 32) * 16,
                                                                                w.memo + kMemoBytes - 128}));
    }
    // Of the 32 steps before `first`, of `steps` in all, the first of which begins at `key0`.
    __device__ __forceinline__ void look_on(const Places &w, int from, int to, int key0, int steps) {
        first -= 32;
        const int step = first + (int)(threadIdx.x % 32);
        const bool is = step < steps;
        const SnippetSpan<int> sees = look(w, from, to, key0 + (is ? step : 0) * kKeys);
        seen = warp_ballot(is && sees.high != 0);
        whole = warp_ballot(is && sees.low != 0);
    }
    // The next step, -1: there is none; and whether every query sees it whole.
    __device__ __forceinline__ int next(const Places &w, int from, int to, int key0, int steps, bool &ret_whole) {
        while (seen == 0 && first > 0) look_on(w, from, to, key0, steps);
        if (seen == 0) return -1;
        const int bit = highest_bit(seen);
        seen ^= 1u << bit;
        ret_whole = (whole >> bit & 1) != 0;
        return first + bit;
    }
    // How many there are.
    FA_DEVICE int count(const Places &w, int from, int to, int key0, int steps) {
        int count = 0;
        for (SeenSteps walk(steps); walk.first > 0;) {
            walk.look_on(w, from, to, key0, steps);
            for (u32 left = walk.seen; left != 0; left &= left - 1) ++count;
        }
        return count;
    }
};
#endif

} // namespace

#endif
