/* SPDX-License-Identifier: Apache-2.0
 *
 * The one argument of every RMS norm kernel, as operation.json implies it: tensors, scalars, integers.
 */
#ifndef RMS_NORM_PARAMS_H
#define RMS_NORM_PARAMS_H

struct rms_norm_params {
    const void *x; /* [rows, columns] */
    const void *w; /* [columns] */
    void *y;       /* [rows, columns] */
    float epsilon;
    int rows, columns;
};

#endif
