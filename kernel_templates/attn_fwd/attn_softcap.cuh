// SPDX-License-Identifier: Apache-2.0
//
// Exponents of scores under a softcap, on warpgroups of sm_90a.
//
// Purpose: factor * tanh(score * rate) for all scores of a step, with few instructions more than without a softcap, beside the
// look at the scores that tells whether some row outgrows its reference (attn_wgmma.cuh).
// Invariants: rows' references are of exponents, their limits of scores that are not bent yet and not beyond kNear, so that one
// look at the bits tells both. Masked scores are -inf before and after.
#ifndef ATTN_SOFTCAP_CUH
#define ATTN_SOFTCAP_CUH

#include "attn_serving.cuh"
#include "attn_wgmma.cuh"

namespace {

FA_DEVICE u32 max3(u32 a, u32 b, u32 c) {
    const u32 ab = a > b ? a : b;
    return ab > c ? ab : c;
}

// A curve as attn_wgmma.cuh's Line: from a score to the exponent of which exp2 is taken, factor * tanh(x), x = score * rate.
// Where x is not beyond kNear the tangent is x times a polynomial of x^2, of degree 2, off by 8.3e-6 of itself at most (least
// squares, weighted anew until the largest errors are equal), for the softmax needs the exponential unit; its last
// coefficient is positive, so that -inf stays -inf. Elsewhere it is 1 - 2 / (1 + exp2(2 log2(e) x)).
struct Bend {
    static constexpr float kNear = 0.42f, kNearTanh = 0.39693043f;   // and its tangent
    float factor, cap_rate;   // softcap * log2(e); 2 log2(e) * rate

    // What follows from it is computed anew in every step: there are no registers to keep it.
    __device__ __forceinline__ float rate() const {
        float rate = cap_rate * (0.5f * kLn2);
        asm volatile("" : "+f"(rate));
        return rate;
    }
    __device__ __forceinline__ float near_score() const { return kNear * reciprocal(rate()); }
    __device__ __forceinline__ float exponent_of(float score) const {
        const float tangent = 1.0f - 2.0f * reciprocal(1.0f + exp2_fast(score * cap_rate));
        return score == neg_infinity() ? score : factor * tangent;
    }
    // The score that an exponent comes of, kNear's at most.
    __device__ __forceinline__ float score_of(float exponent) const {
        const float y = exponent * reciprocal(factor);
        return y < kNearTanh ? (log2_fast(1.0f + y) - log2_fast(1.0f - y)) * reciprocal(cap_rate) : near_score();
    }

    // Of exponent = score * (c0 + y * (c1 + y * c2)), y = score^2.
    struct Coefficients {
        float c0, c1, c2;

        // Whether nothing overflows on the way, nor c2 is lost, which keeps -inf.
        __device__ __forceinline__ bool serve() const { return c2 > 1.0e-36f && c2 < 1.0e36f; }
    };
    __device__ __forceinline__ Coefficients coefficients() const {
        const float rate = this->rate(), square = rate * rate, c0 = factor * rate, c1 = c0 * square;
        return {0.99999171f * c0, -0.33248131f * c1, 0.12013641f * c1 * square};
    }

    // Whether some score may lie far below 0, as masked ones do; those far above are beyond every row's limit. The bits of
    // negative floats have, read as numbers without a sign, the order of what is negated.
    __device__ __forceinline__ bool may_be_far(const Scores &s) const {
        u32 most[2] = {};   // two, so that neither waits for the other
#pragma unroll
        for (int i = 0; i < kScores; i += 2) most[i / 2 % 2] = max3(most[i / 2 % 2], float_to_bits(s[i]), float_to_bits(s[i + 1]));
        return max3(most[0], most[1], 0u) > float_to_bits(-near_score()) || !coefficients().serve();
    }
    // Whether some score that is not masked lies beyond kNear; `top` is the largest.
    __device__ __forceinline__ bool is_far(const Scores &s, float top) const {
        const float near = near_score();
        bool far = top > near || !coefficients().serve();
#pragma unroll
        for (int i = 0; i < kScores; ++i) far |= s[i] < -near && s[i] > neg_infinity();
        return far;
    }
    __device__ __forceinline__ void weigh(Scores &s, Rows &rows, bool far) const {
        if (far) {
            exponentials(s, rows, [this](float score, float reference) { return exponent_of(score) - reference; });
            return;
        }
        const Coefficients c = coefficients();
        exponentials(s, rows, [c](float score, float reference) {
            const float y = score * score;
            return score * ((c.c2 * y + c.c1) * y + c.c0) - reference;
        });
    }
};

} // namespace

#endif
