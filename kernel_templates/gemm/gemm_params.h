/* SPDX-License-Identifier: Apache-2.0
 *
 * The one argument of every kernel of C = A B^T, passed by value, as operation.json implies it: the addresses of the
 * tensors, their strides, the integer fields. B lies as the weights of a linear layer do: a row for each column of C.
 *
 * Strides are in elements, of rows; columns have stride 1. Addresses are 16-byte aligned, strides and n and k multiples of 8.
 */
#ifndef FA_GEMM_PARAMS_H
#define FA_GEMM_PARAMS_H

struct fa_gemm_params {
    const void *a; /* [m, k] */
    const void *b; /* [n, k] */
    void *c;       /* [m, n] */
    long long a_row, b_row, c_row;
    int m, n, k;
};

#endif
