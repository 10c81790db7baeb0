// SPDX-License-Identifier: Apache-2.0
//
// How a user's score and mask (fa_snippet.cuh) read tensors of a call. Only sources whose problem has buffers include it.
// Invariant: no index reaches outside a tensor.
#ifndef FA_SNIPPET_BUFFERS_CUH
#define FA_SNIPPET_BUFFERS_CUH

#include "fa_snippet.cuh"

namespace {

template <class As> struct SnippetIsOfSpans { enum { is = 0 }; };
template <> struct SnippetIsOfSpans<SnippetSpans> { enum { is = 1 }; };

struct SnippetHalf { u16 bits; };
struct SnippetBrain { u16 bits; };
FA_DEVICE float snippet_element(float x) { return x; }
FA_DEVICE float snippet_element(SnippetHalf x) { return to_float<false>(x.bits); }
FA_DEVICE float snippet_element(SnippetBrain x) { return to_float<true>(x.bits); }
FA_DEVICE int snippet_element(int x) { return x; }
FA_DEVICE int snippet_element(unsigned char x) { return x; }
constexpr i64 kMostElement = 1LL << 61;   // further ones are read as that: sums have 64 bits
FA_DEVICE i64 snippet_element(i64 x) { return x < -kMostElement ? -kMostElement : x > kMostElement ? kMostElement : x; }
// A tensor of which nothing is wanted, while others are fetched.
struct SnippetSilent {
    int whole;
    float real;
};
template <class Buffer> struct SnippetIsSilent { enum { is = 0 }; };
template <> struct SnippetIsSilent<SnippetSilent> { enum { is = 1 }; };
// The nearest index that there is.
template <class I> FA_DEVICE int snippet_held(I index, int last) { return index < 0 ? 0 : index > last ? last : (int)index; }
// An element of a tensor; of spans what the tensor says of all elements that may be meant.
template <class As, class T, class Buffer, class... I> FA_DEVICE auto snippet_load(const Buffer &buffer, I... index) {
    if constexpr (SnippetIsSilent<Buffer>::is) {
        return snippet_element(T());
    } else if constexpr (SnippetIsOfSpans<As>::is) {
        return buffer.template look<T>(index...);
    } else {
        i64 at = 0;
        int d = 0;
        ((at += buffer.stride[d] * snippet_held(index, buffer.last[d]), ++d), ...);
        return snippet_element(((const T *)buffer.at)[at]);
    }
}

#ifdef __CUDACC__
FA_DEVICE int from_lane(int x, int lane) {
    int y;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(y) : "r"(x), "r"(lane));
    return y;
}
FA_DEVICE float from_lane(float x, int lane) { return bits_to_float((u32)from_lane((int)float_to_bits(x), lane)); }
#endif
// The element of a key, whatever the query. Of fast numbers a warp reads those of 32 neighbouring keys together, each lane one, and a lane,
// whose keys begin at twice its number within its quad, gets its own from another: an address and a load serve all queries and
// all four keys of a lane.
template <class As, class T, class Buffer, class K, class... I> FA_DEVICE auto snippet_column(const Buffer &buffer, K k, I... index) {
#ifdef __CUDACC__
    if constexpr (SnippetKind<K>::count && !SnippetIsSilent<Buffer>::is && sizeof(snippet_element(T())) == 4) {
        const int lane = (int)(threadIdx.x % 32), own = lane % 4 * 2, ahead = k.real.ahead;
        return from_lane(snippet_load<As, T>(buffer, index..., k.whole - ahead - own + lane + ahead / 32 * 32), own + ahead % 32);
    }
#endif
    return snippet_load<As, T>(buffer, index..., As::whole(k));
}
// The element of a key that a text reads so often that some fetch it before (attn_snippet.cuh's KeyReads are `held` then): whatever
// the query, or of a query's row.
template <class Held> struct SnippetFetches { enum { is = 0 }; };
template <class As, class T, bool kColumn, class Held, class K, class... I> FA_DEVICE auto snippet_of_key(const Held &held, int which, K k, I... index) {
    if constexpr (SnippetFetches<Held>::is) return held.template of_key<T, kColumn>(which, k, index...);
    else if constexpr (kColumn) return snippet_column<As, T>(held[which], k, index...);
    else return snippet_load<As, T>(held[which], index..., As::whole(k));
}

}  // namespace

#endif
