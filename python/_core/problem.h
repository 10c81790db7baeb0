/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems of attention as dicts and keywords.
 */
#ifndef FA_PYTHON_PROBLEM_H
#define FA_PYTHON_PROBLEM_H

#include "errors.h"

int problem_init(void);
/* The field of attention's problems with this name, or -1 without an exception. */
int problem_find(PyObject *name);
/* Sets a field from a bool, an int or a choice's name. */
int problem_set(fa_problem *problem, int field, PyObject *value);
/* -1 with NotSupported for the name of a feature of attention that is not covered. */
int problem_refuse_feature(PyObject *name);
int problem_from_dict(PyObject *dict, fa_problem *ret_problem);
PyObject *problem_to_dict(const fa_problem *problem);
PyObject *problem_complete(PyObject *self, PyObject *dict);
PyObject *problem_specification(PyObject *self, PyObject *args);
PyObject *problem_fields(PyObject *self, PyObject *name);
int effort_from(PyObject *name, fa_effort *ret_effort);

#endif
