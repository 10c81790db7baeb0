/* SPDX-License-Identifier: Apache-2.0
 *
 * fa_tune._core.Kernel: a loaded kernel, bound to its problem, that can be called.
 */
#include "bound.h"

#include "attention.h"
#include "kernel.h"
#include "operation_call.h"
#include "problem.h"
#include "session.h"
#include "tensor_new.h"

#include <stdlib.h>

static PyObject *bound_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    enum { MOST = OPERATION_ARGUMENTS };
    PyObject *flat[MOST], *names = NULL, *name, *value, *result = NULL;
    Py_ssize_t count = PyTuple_Size(args), named = kwargs != NULL ? PyDict_Size(kwargs) : 0, at = 0;
    const fa_kernel *kernel = kernel_alive(self);
    if (kernel == NULL)
        return NULL;
    if (count + named > MOST)
        return PyErr_Format(PyExc_TypeError, "a kernel takes at most %d arguments", MOST);
    for (Py_ssize_t i = 0; i < count; i++)
        flat[i] = PyTuple_GetItem(args, i);
    if (named > 0 && (names = PyTuple_New(named)) == NULL)
        return NULL;
    for (Py_ssize_t i = 0; named > 0 && PyDict_Next(kwargs, &at, &name, &value); i++) {
        Py_INCREF(name);
        PyTuple_SetItem(names, i, name);
        flat[count + i] = value;
    }
    fa_argument argument = {.size = sizeof argument};
    result = fa_kernel_argument(kernel, 0, &argument) == FA_ENOTSUP
                 ? attention_by(kernel, flat, count, names)
                 : operation_call(kernel, flat, count, names);
    Py_XDECREF(names);
    return result;
}

/* The package's object made of a dict, whose reference it takes; NULL passes. */
static PyObject *as_object(const char *module, const char *class, PyObject *told)
{
    PyObject *object = told != NULL ? call_helper(module, class, "(O)", told) : NULL;
    Py_XDECREF(told);
    return object;
}

static PyObject *bound_answer(PyObject *self, void *unused)
{
    const fa_kernel *kernel = kernel_alive(self);
    fa_diag diag = {{0}};
    char *text = NULL;
    (void)unused;
    if (kernel == NULL)
        return NULL;
    int rc = fa_answer_write(fa_kernel_answer(kernel), &text, &diag);
    if (rc != 0) {
        fail_with(rc, &diag);
        return NULL;
    }
    PyObject *told = json_loads(text);
    free(text);
    return as_object("fa_tune._objects", "Answer", told);
}

static PyObject *bound_origin(PyObject *self, void *unused)
{
    const fa_kernel *kernel = kernel_alive(self);
    (void)unused;
    return kernel != NULL
               ? PyUnicode_FromString(fa_name_of_origin(fa_kernel_answer(kernel)->origin))
               : NULL;
}

static PyObject *bound_problem(PyObject *self, void *unused)
{
    const fa_kernel *kernel = kernel_alive(self);
    (void)unused;
    return kernel != NULL ? as_object("fa_tune._problem", "restored",
                                      problem_to_dict(&fa_kernel_answer(kernel)->problem))
                          : NULL;
}

static PyObject *bound_arguments(PyObject *self, void *unused)
{
    const fa_kernel *kernel = kernel_alive(self);
    fa_argument is = {.size = sizeof is};
    PyObject *list = kernel != NULL ? PyList_New(0) : NULL;
    (void)unused;
    for (int i = 0; list != NULL && fa_kernel_argument(kernel, i, &is) == 0; i++) {
        PyObject *one = Py_BuildValue("(ssNN)", is.name, is.dtype,
                                      is.tensor ? tuple_of(is.shape, is.dims) : Py_BuildValue(""),
                                      PyUnicode_FromString(is.updated  ? "inout"
                                                           : is.output ? "out"
                                                                       : "in"));
        if (one == NULL || PyList_Append(list, one) != 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

static PyObject *bound_device(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(kernel_device_of(self));
}

static PyObject *bound_repr(PyObject *self)
{
    const fa_kernel *kernel = kernel_alive(self);
    if (kernel == NULL)
        return NULL;
    const fa_answer *answer = fa_kernel_answer(kernel);
    const fa_config *config = &answer->trial.config;
    PyObject *text = PyUnicode_FromFormat("<fa_tune.Kernel %s", config->family);
    for (int i = 0; text != NULL && i < config->count; i++) {
        char room[40];
        PyObject *more = PyUnicode_FromFormat("%U %s=%s", text, config->tunable[i].name,
                                              fa_name_of_value(config->tunable[i].value, room));
        Py_DECREF(text);
        text = more;
    }
    if (text == NULL)
        return NULL;
    PyObject *whole = PyUnicode_FromFormat(
        "%U, %s, on device %d>", text, fa_name_of_origin(answer->origin), kernel_device_of(self));
    Py_DECREF(text);
    return whole;
}

PyObject *bound_best(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"problem",     "effort",  "device", "progress", "strategy",
                            "evaluations", "seconds", "memory", NULL};
    PyObject *dict, *effort_name = NULL, *progress = NULL;
    fa_request request = {.size = sizeof request, .effort = FA_EFFORT_MEASURE};
    int device = 0;
    long long memory = 0;
    const fa_kernel *kernel;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OiOzidL:best_kernel", words, &dict,
                                     &effort_name, &device, &progress, &request.strategy,
                                     &request.evaluations, &request.seconds, &memory) ||
        (effort_name != NULL && effort_from(effort_name, &request.effort) != 0) ||
        problem_from_dict(dict, &request.problem) != 0)
        return NULL;
    request.ordinal = device;
    request.memory = memory;
    if (session_kernel(&request, progress, &kernel) != 0)
        return NULL;
    if (fa_kernel_answer(kernel) == NULL) /* once made it is there */
        return PyErr_NoMemory();
    return kernel_wrap(kernel, device);
}

PyObject *bound_near(PyObject *self, PyObject *args)
{
    PyObject *dict;
    fa_problem problem;
    int device;
    const fa_kernel *kernel;
    (void)self;
    if (!PyArg_ParseTuple(args, "Oi:near_kernel", &dict, &device) ||
        problem_from_dict(dict, &problem) != 0 ||
        session_near_kernel(&problem, device, &kernel) != 0)
        return NULL;
    if (fa_kernel_answer(kernel) == NULL)
        return PyErr_NoMemory();
    return kernel_wrap(kernel, device);
}

int bound_init(PyObject *module)
{
    static PyGetSetDef properties[] = {
        {"answer", bound_answer, NULL, "how this kernel is known: the document of docs/json.md",
         NULL},
        {"origin", bound_origin, NULL, "the answer's origin, without the rest of it", NULL},
        {"problem", bound_problem, NULL, "what it computes: a dict of the operation's fields",
         NULL},
        {"arguments", bound_arguments, NULL,
         "what it is called with, but of attention: (name, dtype, shape, \"in\", \"out\" or \"inout\"); a number's "
         "shape is None",
         NULL},
        {"device", bound_device, NULL, "the CUDA device that it is loaded on", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)kernel_free},
        {Py_tp_call, (void *)bound_call},
        {Py_tp_repr, (void *)bound_repr},
        {Py_tp_getset, properties},
        {Py_tp_doc,
         "A loaded kernel, bound to one problem: kernel(q, k, v, out=None, …) as "
         "attention(), for tensors of that problem only, without a lookup. Of another "
         "operation: kernel(*tensors, *scalars), in the order of its operation.json or by "
         "name; outputs that are left out are made and returned."},
        {0, NULL},
    };
    PyType_Spec spec = {
        .name = "fa_tune._core.Kernel",
        .basicsize = (int)kernel_size(),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    kernel_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (kernel_type == NULL)
        return -1;
    Py_INCREF(kernel_type);
    return PyModule_AddObject(module, "Kernel", (PyObject *)kernel_type);
}
