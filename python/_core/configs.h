/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FA_PYTHON_CONFIGS_H
#define FA_PYTHON_CONFIGS_H

#include "errors.h"

/* configs(problem, gpu, device) */
PyObject *configs_list(PyObject *self, PyObject *args);

#endif
