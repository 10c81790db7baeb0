/* SPDX-License-Identifier: Apache-2.0
 *
 * The type Kernel: what a kernel does when it is called, printed or asked.
 */
#ifndef FA_PYTHON_BOUND_H
#define FA_PYTHON_BOUND_H

#include "errors.h"

int bound_init(PyObject *module);
/* The module's best_kernel(). */
PyObject *bound_best(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *bound_near(PyObject *self, PyObject *args);

#endif
