// SPDX-License-Identifier: Apache-2.0
//
// A user's score and mask (fa_snippet.cuh) over tiles of scores: which steps of keys a tile sees at all, and what becomes of a score.
//
// Purpose: what the families share that take snippets. Includers define SCORE_SNIPPET and MASK_SNIPPET, and say of a tile:
// its batch, heads and lengths (Places), the positions of its queries and the first key of a step.
// Invariants: whoever walks the steps of a tile looks at the same numbers, so all find the same steps. No table says them.
#ifndef ATTN_SNIPPET_CUH
#define ATTN_SNIPPET_CUH

#include "fa_numeric.cuh"

namespace {

// What a snippet is told of a tile beside its queries and keys.
struct Places {
    int batch, head, kv_head, len_q, len_k;
};

#if SCORE_SNIPPET || MASK_SNIPPET
// A position as a number that does not change from key to key, and one `ahead` of a thread's first key.
FA_DEVICE SnippetCount<float> query_place(int q) { return {q, (float)q}; }
FA_DEVICE SnippetCount<SnippetLine> key_place(int first, float same, int ahead) { return {first + ahead, {same, 1.0f, ahead}}; }
#endif

#if SCORE_SNIPPET
template <class Q, class K> FA_DEVICE float bent_score(float natural, const Places &w, Q q, K k) {
    return snippet_score<SnippetFast>(SnippetScore{natural}, w.batch, w.head, w.kv_head, q, k, w.len_q, w.len_k);
}
#endif

#if MASK_SNIPPET
template <class Q, class K> FA_DEVICE bool is_visible(const Places &w, Q q, K k) {
    return snippet_mask<SnippetFast>(w.batch, w.head, w.kv_head, q, k, w.len_q, w.len_k);
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
                                As::whole(w.len_q), As::whole(w.len_k));
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
