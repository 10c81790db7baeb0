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

// From a score to the exponent of which exp2 is taken: factor * tanh(x), x = score * rate. Where x is not beyond
// kNear the tangent is x times a polynomial of x^2, of degree 2, off by 8.3e-6 of itself at most (least squares, weighted anew
// until the largest errors are equal), for the softmax needs the exponential unit; its last coefficient is positive, so that
// -inf stays -inf. Elsewhere it is 1 - 2 / (1 + exp2(2 log2(e) x)).
struct Bend {
    static constexpr float kNear = 0.42f, kNearTanh = 0.39693043f;   // and its tangent
    float exponent;           // what scores are multiplied by when they have been bent
    float factor, cap_rate;   // softcap * log2(e); 2 log2(e) * rate

    // What follows from it is computed anew in every step: there are no registers to keep it.
    __device__ __forceinline__ float rate() const {
        float rate = cap_rate * (0.5f * kLn2);
        asm volatile("" : "+f"(rate));
        return rate;
    }
    __device__ __forceinline__ float near_score() const { return kNear * reciprocal(rate()); }
    __device__ __forceinline__ float in_full(float score) const {
        const float tangent = 1.0f - 2.0f * reciprocal(1.0f + exp2_fast(score * cap_rate));
        return score == neg_infinity() ? score : factor * tangent;
    }
    // The score that an exponent comes of, kNear's at most.
    __device__ __forceinline__ float score_of(float bent) const {
        const float y = bent * reciprocal(factor);
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
    __device__ __forceinline__ void bend(Scores &s, bool far) const {
        if (far) {
#pragma unroll
            for (int i = 0; i < kScores; ++i) s[i] = in_full(s[i]);
            return;
        }
        const Coefficients c = coefficients();
#pragma unroll
        for (int i = 0; i < kScores; ++i) {
            const float y = s[i] * s[i];
            s[i] *= (c.c2 * y + c.c1) * y + c.c0;
        }
    }
};

// As settle_scores, but scores become exponents.
template <class Kind>
FA_DEVICE bool settle_bent_scores(Scores &s, Rows &rows, float (&shrink)[2], const Bend &scale, bool masked,
                                  const typename Kind::Params &p, const typename Kind::Work &work, int row, int key) {
    if (masked) Kind::mask(s, p, work, row, key);
    bool grown = false, far = false;
    if (warp_any(scale.may_be_far(s) | may_outgrow(s, rows))) {
        float top[2];
        row_tops(top, s);
        far = warp_any(scale.is_far(s, max2(top[0], top[1])));
        grown = warp_any(scale.in_full(top[0]) > rows.reference[0] + kSlack || scale.in_full(top[1]) > rows.reference[1] + kSlack);
#pragma unroll
        for (int half = 0; half < 2 && grown; ++half) {
            const float raised = max2(rows.reference[half], scale.in_full(quad_max(top[half])));
            shrink[half] = exp2_fast(rows.reference[half] - raised);
            rows.reference[half] = raised;
            rows.sum[half] *= shrink[half];
            const float limit = scale.score_of(raised + kSlack);
            rows.limit[half] = limit > 0.0f ? (int)float_to_bits(limit) : kAnyScore;
        }
    }
    scale.bend(s, far);
    return grown;
}

} // namespace

#endif
