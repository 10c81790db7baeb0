/* SPDX-License-Identifier: Apache-2.0
 *
 * The one argument of every L1 norm kernel, as operation.json implies it: tensors, scalars, integers.
 */
#ifndef L1_NORM_PARAMS_H
#define L1_NORM_PARAMS_H

struct l1_norm_params {
    const void *x; /* [rows, columns] */
    const void *w; /* [columns] */
    void *y;       /* [rows, columns] */
    float epsilon;
    int rows, columns;
};

#endif
