/* SPDX-License-Identifier: Apache-2.0
 *
 * A loaded kernel as a Python object.
 */
#ifndef FA_PYTHON_KERNEL_H
#define FA_PYTHON_KERNEL_H

#include "errors.h"

extern PyTypeObject *kernel_type; /* set when the module is made */

PyObject *kernel_wrap(const fa_kernel *kernel, int device);
/* NULL, without an exception: it is something else. */
const fa_kernel *kernel_unwrap(PyObject *object);
/* NULL, with an exception: its tuner has ended. */
const fa_kernel *kernel_alive(PyObject *object);
void kernel_free(PyObject *object);
int kernel_device_of(PyObject *object);
size_t kernel_size(void);

#endif
