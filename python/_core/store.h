/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps, what is stored and the doctor's findings, as dicts in the form of docs/json.md.
 */
#ifndef FA_PYTHON_STORE_H
#define FA_PYTHON_STORE_H

#include "errors.h"

/* Functions of the module. */
PyObject *store_sweep(PyObject *self, PyObject *args);
PyObject *store_winners(PyObject *self, PyObject *unused);
PyObject *store_report(PyObject *self, PyObject *args);
PyObject *store_forget(PyObject *self, PyObject *args);
PyObject *store_export(PyObject *self, PyObject *args);
PyObject *store_import(PyObject *self, PyObject *args);
PyObject *store_doctor(PyObject *self, PyObject *unused);
PyObject *store_kept(PyObject *self, PyObject *args);
PyObject *store_keep(PyObject *self, PyObject *args);
PyObject *store_gpu(PyObject *self, PyObject *args);
PyObject *store_gpu_types(PyObject *self, PyObject *args);

#endif
