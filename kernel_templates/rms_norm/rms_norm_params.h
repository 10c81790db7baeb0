/* SPDX-License-Identifier: Apache-2.0
 *
 * The one argument of every RMS norm kernel, passed by value, as operation.json implies it: the addresses of the tensors, the
 * strides of their rows (in elements; columns have stride 1), epsilon, the integer fields.
 *
 * Addresses are 16-byte aligned and strides and columns multiples of 8, unless the problem is unaligned. Without a residual, residual
 * and sum are not read. y may be x, and sum may be x or the residual: an element is read before it is written, by the same thread.
 */
#ifndef FA_RMS_NORM_PARAMS_H
#define FA_RMS_NORM_PARAMS_H

struct fa_rms_norm_params {
    const void *x;        /* [rows, columns] */
    const void *w;        /* [columns] */
    const void *residual; /* [rows, columns] */
    void *y;              /* [rows, columns] */
    void *sum;            /* [rows, columns] */
    long long x_row, residual_row, y_row, sum_row;
    float epsilon;
    int rows, columns;
};

#endif
