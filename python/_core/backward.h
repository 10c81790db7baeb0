/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of attention: of tensors of PyTorch, for fa_tune's own operators.
 */
#ifndef FA_PYTHON_BACKWARD_H
#define FA_PYTHON_BACKWARD_H

#include "errors.h"

int backward_init(void);
/* A function of the module, by the vector calling convention. */
PyObject *attention_backward(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *names);

#endif
