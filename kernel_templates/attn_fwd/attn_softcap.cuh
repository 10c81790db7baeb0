// SPDX-License-Identifier: Apache-2.0
//
// Exponents of scores under a softcap, on warpgroups of sm_90a.
//
// Purpose: factor * tanh(score * rate) for all scores of a step. A step looks at its scores once, to learn whether some row outgrows
// its reference (attn_wgmma.cuh), and reads few registers, because products that are under way take most of the registers' ports.
// Invariants: rows' references are of exponents, their limits of scores that are not bent yet and not beyond kNear, so that one
// look at the bits tells both. Masked scores are -inf before and after.
#ifndef ATTN_SOFTCAP_CUH
#define ATTN_SOFTCAP_CUH

#include "attn_serving.cuh"
#include "attn_wgmma.cuh"

namespace {

// A curve as attn_wgmma.cuh's Line: from a score to the exponent of which exp2 is taken, factor * tanh(x), x = score * rate.
// Where x is not beyond kNear it is the polynomial of attn_serving_params.h, because the softmax needs the exponential unit; its
// slope is positive, so that -inf stays -inf. Elsewhere the tangent is 1 - 2 / (1 + exp2(2 log2(e) x)).
// Below -kNear the polynomial is less than the curve and falls all the way, so that the weights by both are at most
// exp2(-kNearTanh * factor). In a row whose reference is kFaint or more above that exponent the polynomial serves there too: where
// the factor is kSteep or more, its weight and the right one differ by less than 2^-(kFaint + 10) of the row's largest weight.
// In other rows every step looks for such scores.
struct Bend {
    static constexpr float kNear = 0.42f, kNearTanh = 0.39693043f;   // and its tangent
    static constexpr float kFaint = 18.0f, kSteep = 28.0f;
    float shift, rest, slope;   // of the polynomial
    float factor, cap_rate;     // softcap * log2(e); 2 log2(e) * rate

    // What follows from it is computed anew where it is needed: there are no registers to keep it.
    __device__ __forceinline__ float rate() const {
        float rate = cap_rate * (0.5f * kLn2);
        asm volatile("" : "+f"(rate));
        return rate;
    }
    // Whether the polynomial overflows nowhere on the way, nor loses the slope, which keeps -inf.
    __device__ __forceinline__ bool serves() const { return slope > 1.0e-36f && slope < 1.0e36f && rest < 1.0e36f; }
    __device__ __forceinline__ float near_score() const { return kNear * reciprocal(rate()); }
    __device__ __forceinline__ float exponent_of(float score) const {
        const float tangent = 1.0f - 2.0f * reciprocal(1.0f + exp2_fast(score * cap_rate));
        return score == neg_infinity() ? score : factor * tangent;
    }
    // The limit of a row's scores, of its reference + kSlack: the score that this comes of, kNear's at most; 0, which is no limit,
    // for a row in which scores below -kNear matter.
    __device__ __forceinline__ float score_of(float exponent) const {
        if (exponent - kSlack + kNearTanh * factor < kFaint || factor < kSteep || !serves()) return 0.0f;
        const float y = exponent * reciprocal(factor);
        return y < kNearTanh ? (log2_fast(1.0f + y) - log2_fast(1.0f - y)) * reciprocal(cap_rate) : near_score();
    }

    __device__ __forceinline__ bool may_be_far(const Scores &) const { return false; }
    // Whether some score that is not masked lies beyond kNear; `top` is the largest.
    __device__ __forceinline__ bool is_far(const Scores &s, float top) const {
        const float near = near_score();
        bool far = top > near || !serves();
#pragma unroll
        for (int i = 0; i < kScores; ++i) far |= s[i] < -near && s[i] > neg_infinity();
        return far;
    }
    __device__ __forceinline__ void weigh(Scores &s, Rows &rows, bool far) const {
        if (far) {
            exponentials(s, rows, [this](float score, float reference) { return exponent_of(score) - reference; });
            return;
        }
        exponentials(s, rows, [this](float score, float reference) {
            const float y = score * score + shift;
            return score * slope * (y * y + rest) - reference;
        });
    }
};

} // namespace

#endif
