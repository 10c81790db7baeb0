/* SPDX-License-Identifier: Apache-2.0
 *
 * The call of attention.
 */
#ifndef FA_PYTHON_ATTENTION_H
#define FA_PYTHON_ATTENTION_H

#include "errors.h"

extern const char attention_doc[];
int attention_init(void);
/* The module's attention(), by the vector calling convention. */
PyObject *attention(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
/* The same, by the kernel given and for its problem only. */
PyObject *attention_by(const fa_kernel *kernel, PyObject *const *args, Py_ssize_t count,
                       PyObject *names);

#endif
