/* SPDX-License-Identifier: Apache-2.0
 *
 * configs(): every config of a problem and where it ended.
 */
#include "configs.h"

#include "problem.h"
#include "session.h"

#include <stdlib.h>

/* Called without the GIL. The library writes a trial inside of an event of its progress. */
static int take(void *context, int32_t rank, const fa_trial *trial)
{
    const fa_progress event = {.kind = FA_EVENT_TRIAL, .trial = trial};
    char *text = NULL;
    PyGILState_STATE state = PyGILState_Ensure();
    int rc = fa_progress_write(&event, &text, NULL);
    PyObject *dict = rc == 0 ? json_loads(text) : PyErr_NoMemory();
    PyObject *row = dict != NULL ? PyDict_GetItemString(dict, "trial") : NULL;
    PyObject *place = row != NULL ? PyLong_FromLong(rank) : NULL;
    if (place == NULL || PyDict_SetItemString(row, "rank", place) != 0 ||
        PyList_Append(context, row) != 0)
        rc = FA_ECANCELED; /* the exception is set */
    Py_XDECREF(place);
    Py_XDECREF(dict);
    PyGILState_Release(state);
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
    int rc = fa_explain(tuner, &request, take, list, NULL, &diag);
    session_acquire(state);
    if (rc == 0)
        return list;
    Py_DECREF(list);
    if (!PyErr_Occurred())
        fail_with(rc, &diag);
    return NULL;
}
