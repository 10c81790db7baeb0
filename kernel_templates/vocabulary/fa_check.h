/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels of fa_check.cuh are passed, by value.
 *
 * Included by them (compiled by NVRTC) and by the host code that fills it in, so that there is one layout and no copy
 * of it. Plain C types only.
 */
#ifndef FA_CHECK_H
#define FA_CHECK_H

/* Of 16 bits: a NaN of fp16 and of bf16, and twice one of fp32, which no arithmetic or conversion produces (those give
 * 0x7fff and 0x7fffffff). So one 16-bit fill poisons outputs of any type. */
#define FA_CHECK_POISON 0x7fa5u
/* The same for inputs of single bytes: a NaN of both kinds of fp8. */
#define FA_CHECK_POISON_BYTES 0x7f7fu

/* A tensor and the memory around and between its elements, all in units of an element (of complex numbers: of their
 * parts, which are elements). An element with these indexes lies at first + sum of index[i] * stride[i]; all else is
 * poison. */
struct fa_check_tensor {
    void *base;
    unsigned long long units, first;
    unsigned long long dense; /* units from `first` on that are all elements, where `used` is null; 0: it is not known */
    unsigned long long extent[4], stride[4]; /* the last index varies fastest in the order of elements */
    int order[4], levels; /* the indexes of more than one place, by their strides, the largest first; these nest */
    int element;          /* its type: fa_check.cuh */
    unsigned poison;
    const int *used; /* for each index[0] the number of index[2] that hold elements; null: all */
};

/* An input's values: a copy of its elements in their order, or drawn by where they lie. */
struct fa_check_values {
    const void *given; /* null: drawn */
    unsigned long long seed;
    long long from;          /* of integers from .. from + span - 1; span 0: the usual ones */
    unsigned long long span; /* of e4m3, not 0: rows of "fp8_ds_mla" */
    float scale; /* of others the standard deviation of nearly normal numbers; 0: of k / 64 */
};

/* What an output is compared with: |o - wanted| <= absolute + relative * |wanted| + of_largest * *largest. */
struct fa_check_wanted {
    const void *at;
    const unsigned *largest;    /* the bits of a float */
    const long long *rows;      /* the compared rows; null: 0, 1, 2, ... */
    unsigned long long count;   /* elements */
    unsigned long long columns; /* of a row, which lie in the order of elements */
    double relative, of_largest, absolute;
    int element;
};

#endif
