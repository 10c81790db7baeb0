/* SPDX-License-Identifier: Apache-2.0
 *
 * The call of a kernel of any operation but attention forward.
 */
#ifndef FA_PYTHON_OPERATION_CALL_H
#define FA_PYTHON_OPERATION_CALL_H

#include "errors.h"

enum { OPERATION_ARGUMENTS = 24 }; /* of a kernel, and the stream */

/* The outputs that were not passed: one, a tuple of several, or None. The arguments are as those of a vectorcall. */
PyObject *operation_call(const fa_kernel *kernel, PyObject *const *args, Py_ssize_t count,
                         PyObject *names);

#endif
