// SPDX-License-Identifier: Apache-2.0
//
// How a user's score and mask (fa_snippet.cuh) read tensors of a call. Only sources whose problem has buffers include it.
// Each place where a text reads a tensor has a number, its site. Of one site it can be asked which element is read there, by what that
// element changes the result (MarkedBuffers), and by which places the element is chosen (TiedBuffers): a tensor's gradient is summed by both.
// Invariant: no index reaches outside a tensor.
#ifndef FA_SNIPPET_BUFFERS_CUH
#define FA_SNIPPET_BUFFERS_CUH

#include "attn_serving_params.h"
#include "fa_snippet.cuh"

namespace {

template <class As> struct SnippetIsOfSpans { enum { is = 0 }; };
template <> struct SnippetIsOfSpans<SnippetSpans> { enum { is = 1 }; };
template <class K> struct SnippetIsLine { enum { is = 0 }; };
template <> struct SnippetIsLine<SnippetCount<SnippetLine>> { enum { is = 1 }; };

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
template <class Buffer> struct SnippetReadsBySite { enum { is = 0 }; };
// An element of a tensor; of spans what the tensor says of all elements that may be meant.
template <class As, class T, int kSite, class Buffer, class... I> FA_DEVICE auto snippet_load(const Buffer &buffer, I... index) {
    if constexpr (SnippetIsSilent<Buffer>::is) {
        return snippet_element(T());
    } else if constexpr (SnippetIsOfSpans<As>::is) {
        return buffer.template look<T>(index...);
    } else if constexpr (SnippetReadsBySite<Buffer>::is) {
        return buffer.template read<T, kSite>(index...);
    } else {
        i64 at = 0;
        int d = 0;
        ((at += buffer.stride[d] * snippet_held(index, buffer.last[d]), ++d), ...);
        return snippet_element(((const T *)buffer.at)[at]);
    }
}

// The element of a key, whatever the query. Of fast numbers a warp reads those of 32 neighbouring keys together, each lane one, and a lane,
// whose keys begin at twice its number within its quad, gets its own from another: an address and a load serve all queries and
// all four keys of a lane.
template <class As, class T, int kSite, class Buffer, class K, class... I> FA_DEVICE auto snippet_column(const Buffer &buffer, K k, I... index) {
#ifdef __CUDACC__
    if constexpr (SnippetIsLine<K>::is && !SnippetIsSilent<Buffer>::is && !SnippetReadsBySite<Buffer>::is && sizeof(snippet_element(T())) == 4) {
        const int lane = (int)(threadIdx.x % 32), own = lane % 4 * 2, ahead = k.real.ahead;
        return from_lane(snippet_load<As, T, kSite>(buffer, index..., k.whole - ahead - own + lane + ahead / 32 * 32), own + ahead % 32);
    }
#endif
    return snippet_load<As, T, kSite>(buffer, index..., As::whole(k));
}
// The element of a key that a text reads so often that some fetch it before (attn_snippet.cuh's KeyReads are `held` then): whatever
// the query, or of a query's row.
template <class Held> struct SnippetFetches { enum { is = 0 }; };
template <class As, class T, bool kColumn, int kSite, class Held, class K, class... I> FA_DEVICE auto snippet_of_key(const Held &held, int which, K k, I... index) {
    if constexpr (SnippetFetches<Held>::is) return held.template of_key<T, kColumn>(which, k, index...);
    else if constexpr (kColumn) return snippet_column<As, T, kSite>(held[which], k, index...);
    else return snippet_load<As, T, kSite>(held[which], index..., As::whole(k));
}

// ---- elements of one site
// What is read at the site kWanted is a number with slope 1 (of SnippetSlopes<…, Real>), and its index among the tensor's elements is told.
template <int kWanted, class Real> struct MarkedBuffer {
    const fa_attn_buffer_params &is;
    i64 *index;
    int whole;
    float real;
    template <class T, int kSite, class... I> __device__ __forceinline__ auto read(I... by) const {
        i64 at = 0, packed = 0;
        int d = 0;
        ((at += is.stride[d] * snippet_held(by, is.last[d]), packed = packed * ((i64)is.last[d] + 1) + snippet_held(by, is.last[d]), ++d), ...);
        const auto x = snippet_element(((const T *)is.at)[at]);
        if constexpr (kSite == kWanted) {
            *index = packed;
            return SnippetSlope<Real>{(Real)x, 1};
        } else {
            return x;
        }
    }
};
template <int kWanted, class Real> struct MarkedBuffers {
    const fa_attn_buffer_params *buffers;
    i64 *index;
    __device__ __forceinline__ MarkedBuffer<kWanted, Real> operator[](int i) const { return {buffers[i], index, buffers[i].whole, buffers[i].real}; }
};
template <int kWanted, class Real> struct SnippetReadsBySite<MarkedBuffer<kWanted, Real>> { enum { is = 1 }; };

// A number of which is only known how it follows the places of query and key. `line`: it is q times the one, k times the other, and something
// that is the same for all. Else q and k are 1 and 0 of what follows the query, 0 and 1 the key, 1 and -1 their difference, 1 and 1 both.
struct SnippetTie {
    bool line;
    int q, k;
};
FA_DEVICE SnippetTie snippet_bent(SnippetTie a) { return {a.q == 0 && a.k == 0, a.q != 0, a.k == 0 ? 0 : a.q == -a.k ? -1 : 1}; }
FA_DEVICE SnippetTie snippet_tied(SnippetTie a, SnippetTie b) {
    a = snippet_bent(a), b = snippet_bent(b);
    if (a.line || b.line) return a.line ? b : a;
    return {false, a.q | b.q, a.q == b.q && a.k == b.k ? a.k : 1};
}
FA_DEVICE SnippetTie snippet_sum(SnippetTie a, SnippetTie b, int sign) {
    const int q = a.q + sign * b.q, k = a.k + sign * b.k;
    const bool near = q < 1000 && q > -1000 && k < 1000 && k > -1000;
    return a.line && b.line && near ? SnippetTie{true, q, k} : snippet_tied(a, b);
}
FA_DEVICE SnippetTie operator+(SnippetTie a, SnippetTie b) { return snippet_sum(a, b, 1); }
FA_DEVICE SnippetTie operator-(SnippetTie a, SnippetTie b) { return snippet_sum(a, b, -1); }
FA_DEVICE SnippetTie operator-(SnippetTie a) { return a.line ? SnippetTie{true, -a.q, -a.k} : a; }
#define SNIPPET_TIED(name) FA_DEVICE SnippetTie name(SnippetTie a, SnippetTie b) { return snippet_tied(a, b); }
#define SNIPPET_BENT(name) FA_DEVICE SnippetTie name(SnippetTie a) { return snippet_bent(a); }
SNIPPET_TIED(operator*)
SNIPPET_TIED(operator/)
SNIPPET_TIED(operator<)
SNIPPET_TIED(operator<=)
SNIPPET_TIED(operator>)
SNIPPET_TIED(operator>=)
SNIPPET_TIED(operator==)
SNIPPET_TIED(operator!=)
SNIPPET_TIED(operator&&)
SNIPPET_TIED(operator||)
SNIPPET_TIED(operator&)
SNIPPET_TIED(operator|)
SNIPPET_TIED(snippet_left)
SNIPPET_TIED(snippet_right)
SNIPPET_TIED(snippet_power)
SNIPPET_TIED(snippet_floor_div)
SNIPPET_TIED(snippet_ceil_div)
SNIPPET_TIED(snippet_rest)
SNIPPET_TIED(snippet_min)
SNIPPET_TIED(snippet_max)
SNIPPET_BENT(operator!)
SNIPPET_BENT(operator~)
SNIPPET_BENT(snippet_abs)
SNIPPET_BENT(snippet_exp)
SNIPPET_BENT(snippet_log)
SNIPPET_BENT(snippet_tanh)
SNIPPET_BENT(snippet_sqrt)
SNIPPET_BENT(snippet_floor)
SNIPPET_BENT(snippet_int)
#undef SNIPPET_TIED
#undef SNIPPET_BENT
FA_DEVICE SnippetTie snippet_choose(SnippetTie is, SnippetTie a, SnippetTie b) { return snippet_tied(is, snippet_tied(a, b)); }
FA_DEVICE SnippetTie snippet_tie(SnippetTie x) { return x; }
template <class X> FA_DEVICE SnippetTie snippet_tie(X) { return {true, 0, 0}; }
struct SnippetTies {
    using Real = SnippetTie;
    using Truth = SnippetTie;
    using Whole = SnippetTie;
    template <class X> FA_DEVICE SnippetTie truth(X x) { return snippet_tie(x); }
    template <class X> FA_DEVICE SnippetTie count(X x) { return snippet_tie(x); }
    template <class X> FA_DEVICE SnippetTie whole(X x) { return snippet_tie(x); }
    template <class X> FA_DEVICE SnippetTie large(X x) { return snippet_tie(x); }
    template <class X> FA_DEVICE SnippetTie real(X x) { return snippet_tie(x); }
    template <class X> FA_DEVICE SnippetTie number(X x) { return snippet_tie(x); }
};
template <int kWanted> struct TiedBuffer {
    SnippetTie *tie;   // of the index at the site
    int whole = 0;
    float real = 0.0f;
    template <class T, int kSite, class... I> __device__ __forceinline__ SnippetTie read(I... by) const {
        SnippetTie all = {true, 0, 0};
        ((all = snippet_tied(all, by)), ...);
        if constexpr (kSite == kWanted) *tie = all;
        return all;
    }
};
template <int kWanted> struct TiedBuffers {
    SnippetTie *tie;
    __device__ __forceinline__ TiedBuffer<kWanted> operator[](int) const { return {tie}; }
};
template <int kWanted> struct SnippetReadsBySite<TiedBuffer<kWanted>> { enum { is = 1 }; };

}  // namespace

#endif
