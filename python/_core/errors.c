/* SPDX-License-Identifier: Apache-2.0
 *
 * Exceptions, whose classes live in fa_tune/_errors.py, where a person reads them, and other Python.
 */
#include "errors.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const names[ERROR_CLASSES] = {
    [ERROR_ANY] = "Error",          [ERROR_SHAPE] = "ShapeError",
    [ERROR_DTYPE] = "DtypeError",   [ERROR_DEVICE] = "DeviceError",
    [ERROR_TENSOR] = "TensorError", [ERROR_ARGUMENT] = "ArgumentError",
    [ERROR_NOT_TUNED] = "NotTuned", [ERROR_CAPTURE] = "CaptureError",
    [ERROR_FORKED] = "ForkedError", [ERROR_NOT_SUPPORTED] = "NotSupported",
};
static PyObject *classes[ERROR_CLASSES];

static const struct {
    int code;
    enum error_class which;
} of_codes[] = {
    {FA_EINVAL, ERROR_ARGUMENT},       {FA_EALIGN, ERROR_ARGUMENT},
    {FA_ENOTFOUND, ERROR_NOT_TUNED},   {FA_ENODEVICE, ERROR_DEVICE},
    {FA_ENODRIVER, ERROR_DEVICE},      {FA_EFORKED, ERROR_FORKED},
    {FA_ENOTSUP, ERROR_NOT_SUPPORTED}, {FA_EMANIFEST, ERROR_ARGUMENT},
};

int errors_init(void)
{
    PyObject *module = PyImport_ImportModule("fa_tune._errors");
    for (int i = 0; module != NULL && i < ERROR_CLASSES; i++)
        if ((classes[i] = PyObject_GetAttrString(module, names[i])) == NULL)
            break;
    Py_XDECREF(module);
    return PyErr_Occurred() ? -1 : 0;
}

static void raise(enum error_class which, int code, const char *text)
{
    PyObject *error = PyObject_CallFunction(classes[which], "s", text);
    PyObject *number = PyLong_FromLong(code);
    if (error != NULL && number != NULL && PyObject_SetAttrString(error, "code", number) == 0)
        PyErr_SetObject(classes[which], error);
    Py_XDECREF(number);
    Py_XDECREF(error);
}

int fail(enum error_class which, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    raise(which, FA_EINVAL, text);
    return -1;
}

bool failed_as(enum error_class which)
{
    return PyErr_ExceptionMatches(classes[which]) != 0;
}

int fail_with(int code, const fa_diag *diag)
{
    enum error_class which = ERROR_ANY;
    if (PyErr_Occurred())
        return -1;
    if (code == FA_ENOMEM) {
        PyErr_SetString(PyExc_MemoryError, diag->text);
        return -1;
    }
    for (size_t i = 0; i < sizeof of_codes / sizeof *of_codes; i++)
        if (of_codes[i].code == code)
            which = of_codes[i].which;
    raise(which, code, diag->text[0] != 0 ? diag->text : fa_strerror(code));
    return -1;
}

/* ---- what is written in Python --------------------------------------------------------------*/
/* A module that is there already costs a look into sys.modules; an import is a tenth of a small layer's forward pass. */
static PyObject *find_module(const char *name)
{
    PyObject *key = PyUnicode_FromString(name);
    PyObject *found = key != NULL ? PyImport_GetModule(key) : NULL;
    Py_XDECREF(key);
    return found != NULL || PyErr_Occurred() ? found : PyImport_ImportModule(name);
}

PyObject *call_helper(const char *module, const char *name, const char *format, ...)
{
    PyObject *from = find_module(module), *function = NULL, *args = NULL, *result = NULL;
    va_list list;
    if (from != NULL)
        function = PyObject_GetAttrString(from, name);
    va_start(list, format);
    if (function != NULL)
        args = Py_VaBuildValue(format, list);
    va_end(list);
    if (args != NULL)
        result = PyObject_CallObject(function, args);
    Py_XDECREF(args);
    Py_XDECREF(function);
    Py_XDECREF(from);
    return result;
}

PyObject *call_helper_with(const char *module, const char *name, PyObject *words)
{
    PyObject *from = find_module(module), *none = PyTuple_New(0), *result = NULL;
    PyObject *function = from != NULL ? PyObject_GetAttrString(from, name) : NULL;
    if (function != NULL && none != NULL && words != NULL)
        result = PyObject_Call(function, none, words);
    Py_XDECREF(function);
    Py_XDECREF(none);
    Py_XDECREF(from);
    return result;
}

PyObject *json_loads(const char *text)
{
    return call_helper("json", "loads", "(s)", text);
}
