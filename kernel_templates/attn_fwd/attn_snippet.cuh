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
#include "fa_numeric.cuh"

#if BUFFER_COUNT > 0
#define AND_BUFFERS(...) , __VA_ARGS__
#else
#define AND_BUFFERS(...)
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

#if SCORE_SNIPPET
template <class Q, class K> FA_DEVICE float bent_score(float natural, const Places &w, Q q, K k) {
    return snippet_score<SnippetFast>(SnippetScore{natural}, w.batch, w.head, w.kv_head, q, k, w.len_q, w.len_k AND_BUFFERS(w.buffers));
}
#endif

#if MASK_SNIPPET
template <class Q, class K> FA_DEVICE bool is_visible(const Places &w, Q q, K k) {
    return snippet_mask<SnippetFast>(w.batch, w.head, w.kv_head, q, k, w.len_q, w.len_k AND_BUFFERS(w.buffers));
}

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
// each asks for spans of its own, read those of one lane after another together.
struct SeenBuffer {
    static constexpr int kMost = 1024;   // elements: what has more is not looked at
    const fa_attn_buffer_params &is;
    int whole;
    float real;
    u32 memo;   // what this lane found last about one of its steps; 0: nothing is kept

    // By one dimension's span. more < 0: there is too much, and nothing is read.
    template <class T, class I> __device__ __forceinline__ void narrow(SnippetSpan<I> span, int d, const T *&at, i64 &step, int &more) const {
        const int low = snippet_held(span.low, is.last[d]), count = snippet_held(span.high, is.last[d]) - low;
        at += is.stride[d] * low;
        if (count == 0) return;
        step = is.stride[d];
        more = more != 0 || count >= kMost ? -1 : count;
    }
    template <class T, class... I> __device__ __forceinline__ auto look(I... index) const {
        if constexpr (SnippetKind<decltype(snippet_element(T()))>::real) return SnippetUnknown();
        else return look_at<T, decltype(snippet_element(T()))>(index...);
    }
    template <class T, class X, class... I> __device__ __forceinline__ SnippetSpan<X> look_at(I... index) const {
        const SnippetSpan<X> any = snippet_any_bits<X>();
        const T *at = (const T *)is.at;
        i64 step = 0;
        int d = 0, more = 0;   // elements behind the first
        (narrow(index, d++, at, step, more), ...);
        const u64 own = (u64)at;
        const int other = (from_lane((int)own, 0) ^ (int)own) | (from_lane((int)(own >> 32), 0) ^ (int)(own >> 32)) | (from_lane(more, 0) ^ more);
        const bool alike = !warp_any(other != 0);
        // What keys say is the same for all tiles of a sequence.
        const u64 tag = own ^ (u64)(u32)more << 52;
        int kept[4] = {};
        if (memo != 0 && !alike)
            asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(kept[0]), "=r"(kept[1]), "=r"(kept[2]), "=r"(kept[3]) : "r"(memo) : "memory");
        if (!alike && !warp_any(((u64)(u32)kept[1] << 32 | (u32)kept[0]) != tag)) return span_of<X>(any, kept[2], kept[3], more);
#pragma unroll 1
        for (int lane = 0; lane < (alike ? 1 : 32); ++lane) {
            const u64 low = (u32)from_lane((int)own, lane), high = (u32)from_lane((int)(own >> 32), lane);
            const u64 by_low = (u32)from_lane((int)step, lane), by_high = (u32)from_lane((int)(step >> 32), lane);
            const T *first = (const T *)(high << 32 | low);
            const i64 by = (i64)(by_high << 32 | by_low);
            const int last = from_lane(more, lane);
            int least = 2147483647, most = -2147483647 - 1;
            for (int i = (int)(threadIdx.x % 32); i <= last; i += 32) {
                const X x = snippet_element(first[i * by]);
                const int near = x < (X)(-2147483647 - 1) ? -2147483647 - 1 : x > (X)2147483647 ? 2147483647 : (int)x;
                least = near < least ? near : least, most = near > most ? near : most;
            }
            least = warp_least(least), most = warp_most(most);
            if (alike || lane == (int)(threadIdx.x % 32)) kept[2] = least, kept[3] = most;
        }
        if (memo != 0 && !alike)
            asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" :: "r"(memo), "r"((int)tag), "r"((int)(tag >> 32)), "r"(kept[2]), "r"(kept[3]) : "memory");
        return span_of<X>(any, kept[2], kept[3], more);
    }
    template <class X> FA_DEVICE SnippetSpan<X> span_of(SnippetSpan<X> any, int least, int most, int more) {
        return {more < 0 || least == -2147483647 - 1 ? any.low : (X)least, more < 0 || most == 2147483647 ? any.high : (X)most};
    }
};
struct SeenBuffers {
    const fa_attn_buffer_params *buffers;
    u32 memo;
    __device__ __forceinline__ SeenBuffer operator[](int i) const { return {buffers[i], buffers[i].whole, buffers[i].real, memo}; }
};
// This warp's, for its lanes.
FA_DEVICE void clear_memo(u32 memo) {
    for (u32 at = threadIdx.x % 32 * 16; at < kMemoBytes; at += 512)
        asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" :: "r"(memo + at), "r"(0), "r"(0), "r"(0), "r"(0) : "memory");
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
                                As::whole(w.len_q), As::whole(w.len_k) AND_BUFFERS(SeenBuffers{w.buffers, w.memo == 0 ? 0 : w.memo + ((u32)key / (32 * kKeys) % 8 * 32 + threadIdx.x % 32) * 16}));
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
