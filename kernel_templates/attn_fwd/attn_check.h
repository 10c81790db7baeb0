/* SPDX-License-Identifier: Apache-2.0
 *
 * What the checking kernels of attn_checks.cuh report, and the bit patterns they look for.
 *
 * Included by the kernels (compiled by NVRTC) and by the host code that reads the result, so that
 * there is one layout and no copy of it. Plain C types only.
 *
 * The host sets the struct to zero bytes once; every checking kernel then only adds to it, so one
 * result may gather several launches. Maxima are over finite differences: whatever is NaN or
 * infinite where it must not be is counted in `nonfinite` and never enters a maximum. A candidate
 * passes when every count is zero and each maximum is <= its tolerance.
 *
 * Tolerances. Scores of magnitude s carry roundings in every kernel: matrix units add a few products at a
 * time and seem to truncate (m16n8k8 on an H200: errors nine times in ten towards zero, up to 2^-18.3 * s at
 * head_dim 144, where a plain fp32 sum stays below 2^-22); folding the scale into one multiply-add,
 * exp2(x*c - m*c), adds half a unit of m*c. Both shift a weight by that relative amount, which attn_ref_lowp
 * does not show (it subtracts first): with scores near 1e4 a right kernel may be one fp16 step away where
 * lowp is exact. So
 *     max_error     <= 2*max_error_lowp + max|v| * (2^-16 + 2^-22 * max_magnitude_lse)
 *     max_error_lse <= 2^-16 + 2^-24 * head_dim * max_magnitude_lse
 * With scores of ordinary size (below 30) the terms beside 2*max_error_lowp stay below 2^-15 * max|v|.
 */
#ifndef FA_ATTN_CHECK_H
#define FA_ATTN_CHECK_H

/* The poison of outputs before a launch. As a 16-bit element it is a NaN of fp16 and of bf16, as a
 * pair it is a NaN of fp32, and no arithmetic or conversion produces it (those give 0x7fff and
 * 0x7fffffff). So one 16-bit fill poisons O and LSE alike. */
#define FA_POISON_ELEMENT 0x7fa5u
#define FA_POISON_LSE 0x7fa57fa5u

/* The byte of the guard zones before and behind a tensor. */
#define FA_GUARD_BYTE 0xa5u

struct fa_attn_compare {
    float max_error;            /* max |o - ref_o| */
    float max_error_lowp;       /* max |lowp_o - ref_o|: what the data type costs on these inputs */
    float max_error_lse;        /* max |lse - ref_lse|; equal infinities differ by 0 */
    float max_magnitude_lse;    /* max |ref_lse| of the finite ones, also when the problem wants no LSE */
    unsigned int nonfinite;     /* outputs (O, LSE, reference or lowp) that are NaN or infinite */
    unsigned int unwritten;     /* elements of O and LSE that still hold their poison */
    unsigned int guard_damaged; /* guard bytes or elements that were overwritten */
};

/* A tensor and the memory around and between its rows, in 16-bit elements: element first + sum of
 * index[i] * stride[i] belongs to the tensor when every index[i] < extent[i]. Strides nest (each is at
 * least extent * stride of the next, all > 0) and the last is 1. All else of `count` is gap. */
struct fa_attn_region {
    unsigned short *base;
    unsigned long long count, first;
    unsigned long long stride[4], extent[4];
    int levels;
};

/* Keys or values as attn_fill_keys fills them: blocks (pages, sequences) of rows of heads, in elements. */
struct fa_attn_keys {
    void *first;
    long long block_stride, head_stride, row_stride;
    int blocks, heads, rows, columns;
};

#endif
