/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of attention: their code, of attention.c, and their docstrings, of call_docs.c.
 */
#ifndef FA_PYTHON_ATTENTION_H
#define FA_PYTHON_ATTENTION_H

#include "errors.h"

extern const char attention_doc[], attention_varlen_doc[], attention_decode_doc[];
int attention_init(void);
/* Functions of the module, by the vector calling convention. */
PyObject *attention(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *attention_varlen(PyObject *self, PyObject *const *args, Py_ssize_t count,
                           PyObject *names);
PyObject *attention_decode(PyObject *self, PyObject *const *args, Py_ssize_t count,
                           PyObject *names);
/* attention() by the kernel given and for its problem only. */
PyObject *attention_by(const fa_kernel *kernel, PyObject *const *args, Py_ssize_t count,
                       PyObject *names);

#endif
