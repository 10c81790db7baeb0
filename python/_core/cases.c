/* SPDX-License-Identifier: Apache-2.0
 *
 * From a tune, which runs without the GIL, to _cases.provide(), and back.
 *
 * Workload: up to eight calls a tune. What Python raises ends the tune and stays set until the tune's caller is told.
 */
#include "cases.h"

#include "problem.h"
#include "tensor_new.h"

#include "fa_tune.h"

#include <math.h>
#include <string.h>

enum { GIVEN = 1, ANSWERED = 2 };

static PyObject *number_of(const fa_case_argument *argument)
{
    const char *dtype = argument->is.dtype;
    float narrow = 0;
    double wide = 0;
    int32_t small = 0;
    int64_t large = 0;
    if (strcmp(dtype, "fp32") == 0) {
        memcpy(&narrow, argument->input, sizeof narrow);
        return PyFloat_FromDouble((double)narrow);
    }
    if (strcmp(dtype, "fp64") == 0) {
        memcpy(&wide, argument->input, sizeof wide);
        return PyFloat_FromDouble(wide);
    }
    if (strcmp(dtype, "fp16") == 0 || strcmp(dtype, "bf16") == 0) {
        uint16_t half;
        memcpy(&half, argument->input, sizeof half);
        const int exponent = half >> 10 & 31;
        const uint32_t word = (uint32_t)half << 16;
        memcpy(&narrow, &word, sizeof narrow);
        wide = exponent == 0 ? ldexp(half & 1023, -24) : ldexp((half & 1023) + 1024, exponent - 25);
        wide = half >> 15 != 0 ? -wide : wide;
        return PyFloat_FromDouble(dtype[0] == 'b' ? (double)narrow : wide);
    }
    if (strcmp(dtype, "int32") == 0) {
        memcpy(&small, argument->input, sizeof small);
        return PyLong_FromLong(small);
    }
    memcpy(&large, argument->input, sizeof large);
    return PyLong_FromLongLong(large);
}

/* None where there is none. */
static PyObject *view_of(void *bytes, size_t size)
{
    enum { WRITE = 0x200 /* PyBUF_WRITE, which the limited API of before 3.11 does not spell */ };
    if (bytes == NULL)
        Py_RETURN_NONE;
    return PyMemoryView_FromMemory(bytes, (Py_ssize_t)size, WRITE);
}

/* (name, dtype, shape, input, answer); of a scalar: (name, dtype, None, value, None). */
static PyObject *told(const fa_case_argument *argument)
{
    const fa_argument *is = &argument->is;
    if (!is->tensor)
        return Py_BuildValue("(ssONO)", is->name, is->dtype, Py_None, number_of(argument), Py_None);
    return Py_BuildValue("(ssNNN)", is->name, is->dtype, tuple_of(is->shape, is->dims),
                         view_of(argument->input, argument->bytes),
                         view_of(argument->answer, argument->bytes));
}

static PyObject *told_all(const fa_case_argument *argument, int32_t count)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list != NULL && i < count; i++) {
        PyObject *one = told(&argument[i]);
        if (one == NULL || PyList_Append(list, one) != 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

static int take_marks(PyObject *marks, fa_case_argument *argument, int32_t count)
{
    for (int i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(marks, i);
        long mark = item != NULL ? PyLong_AsLong(item) : -1;
        Py_XDECREF(item);
        if (mark == -1)
            return -1;
        argument[i].given = (mark & GIVEN) != 0;
        argument[i].answered = (mark & ANSWERED) != 0;
    }
    return 0;
}

/* `context`: the operation's name as a string of Python. */
static int provide(void *context, const fa_problem *problem, int32_t index,
                   fa_case_argument *argument, int32_t count)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *fields = problem_to_dict(problem), *list = told_all(argument, count), *marks = NULL;
    if (fields != NULL && list != NULL)
        marks =
            call_helper("fa_tune._cases", "provide", "(OOiO)", context, fields, (int)index, list);
    int rc = marks != NULL ? take_marks(marks, argument, count) : -1;
    Py_XDECREF(marks);
    Py_XDECREF(list);
    Py_XDECREF(fields);
    PyGILState_Release(state);
    return rc == 0 ? 0 : FA_ECANCELED;
}

PyObject *cases_give(PyObject *self, PyObject *args)
{
    PyObject *operation;
    int contents;
    const fa_operation *found = NULL;
    fa_diag diag = {{0}};
    (void)self;
    if (!PyArg_ParseTuple(args, "Ui:give_cases", &operation, &contents))
        return NULL;
    const char *name = PyUnicode_AsUTF8AndSize(operation, NULL);
    int rc = name != NULL ? fa_find_operation(name, &found, &diag) : FA_EINVAL;
    if (rc == 0)
        rc = fa_spec_cases(found, provide, operation, contents, &diag);
    if (rc != 0) {
        fail_with(rc, &diag);
        return NULL;
    }
    Py_INCREF(operation); /* for good, as what is set holds */
    Py_RETURN_NONE;
}
