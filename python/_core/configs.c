/* SPDX-License-Identifier: Apache-2.0
 *
 * configs(): every config of a problem and where it ended.
 */
#include "configs.h"

#include "problem.h"
#include "session.h"

#include <stdlib.h>

/* The library writes a trial inside of an event of its progress. */
static int append(PyObject *list, const fa_study_trial *config)
{
    const fa_progress event = {.kind = FA_EVENT_TRIAL, .trial = &config->trial};
    char *text = NULL;
    int rc = fa_progress_write(&event, &text, NULL);
    PyObject *dict = rc == 0 ? json_loads(text) : PyErr_NoMemory();
    PyObject *row = dict != NULL ? PyDict_GetItemString(dict, "trial") : NULL;
    PyObject *place = row != NULL ? PyLong_FromLong(config->rank) : NULL;
    if (place == NULL || PyDict_SetItemString(row, "rank", place) != 0 ||
        PyList_Append(list, row) != 0)
        rc = FA_ECANCELED; /* the exception is set */
    Py_XDECREF(place);
    Py_XDECREF(dict);
    free(text);
    return rc;
}

PyObject *configs_list(PyObject *self, PyObject *args)
{
    fa_request request = {.size = sizeof request, .effort = FA_EFFORT_MEASURE};
    fa_diag diag = {{0}};
    PyObject *problem;
    int device;
    (void)self;
    if (!PyArg_ParseTuple(args, "Ozi:configs", &problem, &request.gpu, &device) ||
        problem_from_dict(problem, &request.problem) != 0)
        return NULL;
    request.ordinal = device;
    fa_tuner *tuner = session_tuner();
    PyObject *list = tuner != NULL ? PyList_New(0) : NULL;
    if (list == NULL)
        return NULL;
    PyThreadState *state = session_release();
    fa_study_trial *config = NULL;
    size_t count = 0;
    int rc = fa_explain(tuner, &request, &config, &count, NULL, &diag);
    session_acquire(state);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = append(list, &config[i]);
    free(config);
    if (rc == 0)
        return list;
    Py_DECREF(list);
    if (!PyErr_Occurred())
        fail_with(rc, &diag);
    return NULL;
}
