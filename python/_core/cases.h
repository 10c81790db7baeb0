/* SPDX-License-Identifier: Apache-2.0
 *
 * Data of Python's for the proofs of a kernel specification: fa_tune/_cases.py gives them.
 */
#ifndef FA_PYTHON_CASES_H
#define FA_PYTHON_CASES_H

#include "errors.h"

/* give_cases(operation, contents) */
PyObject *cases_give(PyObject *self, PyObject *args);

#endif
