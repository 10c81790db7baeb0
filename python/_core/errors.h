/* SPDX-License-Identifier: Apache-2.0
 *
 * Exceptions, and calls of what is written in Python. Part of the extension fa_tune._core, which is built
 * for CPython's limited API, so that one binary serves every Python from 3.10 on, and links the library
 * and neither CUDA nor any tensor library.
 *
 * All functions of the extension are called with the GIL held unless they say otherwise, and return -1 or
 * NULL with a Python exception set where they fail.
 */
#ifndef FA_PYTHON_ERRORS_H
#define FA_PYTHON_ERRORS_H

#include <Python.h>
#include "fa_tune.h"

#include <stdbool.h>

enum error_class {
    ERROR_ANY,
    ERROR_SHAPE,
    ERROR_DTYPE,
    ERROR_DEVICE,
    ERROR_TENSOR,
    ERROR_ARGUMENT,
    ERROR_NOT_TUNED,
    ERROR_CAPTURE,
    ERROR_FORKED,
    ERROR_NOT_SUPPORTED,
    ERROR_CLASSES
};
int errors_init(void);
/* Sets the exception and returns -1. Cold: the code that leads to a failure lies apart from that of a call that
 * succeeds, which the processor then fetches in fewer lines. */
int fail(enum error_class which, const char *format, ...)
    __attribute__((cold, format(printf, 2, 3)));
/* The exception for what the library answered; one that is set already stays. Returns -1. */
int fail_with(int code, const fa_diag *diag) __attribute__((cold));
/* Whether the exception that is set is of that class. */
bool failed_as(enum error_class which) __attribute__((cold));

/* Calls MODULE.NAME with arguments as Py_BuildValue makes a tuple of them. */
PyObject *call_helper(const char *module, const char *name, const char *format, ...)
    __attribute__((cold));
/* MODULE.NAME(**words); NULL for words passes. */
PyObject *call_helper_with(const char *module, const char *name, PyObject *words);
PyObject *json_loads(const char *text);

#endif
