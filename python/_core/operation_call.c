/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of a kernel by the list of arguments that its operation has: tensors by DLPack, scalars as floats.
 *
 * Workload: a few times for each layer of a step. Invariant: every tensor has the shape, type and device that the kernel was
 * made for, before anything is launched.
 */
#include "operation_call.h"

#include "session.h"
#include "tensor_new.h"

#include <stdlib.h>
#include <string.h>

struct operation_call {
    const fa_kernel *kernel;
    int count, first; /* arguments; the first tensor that was passed */
    fa_argument argument[OPERATION_ARGUMENTS];
    PyObject *given[OPERATION_ARGUMENTS], *stream; /* borrowed; NULL: not passed */
    PyObject *made[OPERATION_ARGUMENTS];           /* outputs: owned, or NULL */
    tensor tensor[OPERATION_ARGUMENTS];
    fa_tensor_arg passed[OPERATION_ARGUMENTS];
    union {
        float fp32;
        double fp64;
        uint16_t half;
        uint64_t bits; /* of an integer, in the low ones */
    } scalar[OPERATION_ARGUMENTS];
    const void *at[OPERATION_ARGUMENTS];
    dl_managed *workspace;
    place place;
};

/* ---- arguments ------------------------------------------------------------------------------*/
static int take_name(struct operation_call *c, PyObject *name, PyObject *value)
{
    for (int i = 0; i < c->count; i++) {
        if (PyUnicode_CompareWithASCIIString(name, c->argument[i].name) != 0)
            continue;
        if (c->given[i] != NULL)
            return PyErr_Format(PyExc_TypeError, "the kernel got %s twice", c->argument[i].name),
                   -1;
        c->given[i] = value;
        return 0;
    }
    if (PyUnicode_CompareWithASCIIString(name, "stream") != 0)
        return PyErr_Format(PyExc_TypeError, "the kernel has no argument %R", name), -1;
    c->stream = value;
    return 0;
}

static int take_arguments(struct operation_call *c, PyObject *const *args, Py_ssize_t count,
                          PyObject *names)
{
    Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
    for (c->count = 0; c->count < OPERATION_ARGUMENTS; c->count++) {
        c->argument[c->count].size = sizeof *c->argument;
        if (fa_kernel_argument(c->kernel, c->count, &c->argument[c->count]) != 0)
            break;
        if (strcmp(c->argument[c->count].name, "a buffer") == 0)
            return fail(
                ERROR_NOT_SUPPORTED,
                "a kernel with buffers is called by attention(…, buffers=…) and its backward() alone");
    }
    if (count > c->count)
        return PyErr_Format(PyExc_TypeError, "the kernel takes %d arguments, not %zd", c->count,
                            count),
               -1;
    for (Py_ssize_t i = 0; i < count; i++)
        c->given[i] = args[i];
    for (Py_ssize_t i = 0; i < named; i++)
        if (take_name(c, PyTuple_GetItem(names, i), args[count + i]) != 0)
            return -1;
    c->first = -1;
    for (int i = c->count - 1; i >= 0; i--) {
        if (c->given[i] == Py_None)
            c->given[i] = NULL;
        if (c->given[i] != NULL && c->argument[i].tensor)
            c->first = i;
        if (c->given[i] == NULL && c->argument[i].needed && !c->argument[i].output)
            return PyErr_Format(PyExc_TypeError, "the kernel needs %s", c->argument[i].name), -1;
    }
    return c->first >= 0 ? 0 : fail(ERROR_ARGUMENT, "pass a tensor, which says where to work");
}

static int take_integer(struct operation_call *c, int i)
{
    const char *dtype = c->argument[i].dtype;
    const bool negative = dtype[0] == 'i';
    const int bits =
        dtype[0] == 'b' ? 1 : (int)strtol(dtype + strcspn(dtype, "0123456789"), NULL, 10);
    PyObject *index = PyNumber_Index(c->given[i]);
    long long value = index == NULL ? 0
                      : negative    ? PyLong_AsLongLong(index)
                                    : (long long)PyLong_AsUnsignedLongLong(index);
    unsigned long long above = (unsigned long long)value;
    if (bits < 64) /* what its bits do not hold */
        above = negative ? (above + (1ull << (bits - 1))) >> bits : above >> bits;
    Py_XDECREF(index);
    if (PyErr_Occurred() != NULL || (bits < 64 && above != 0)) {
        PyErr_Clear();
        return fail(ERROR_ARGUMENT, "%s must be an int of %d bits%s", c->argument[i].name, bits,
                    negative ? "" : ", 0 or more");
    }
    memcpy(&c->scalar[i], &value, (size_t)(bits + 7) / 8); /* its low bytes come first */
    return 0;
}

/* To the nearest, of two as near the even one. */
static uint16_t half_of(float value)
{
    uint32_t word, sign, tiny;
    memcpy(&word, &value, sizeof word);
    sign = word >> 16 & 0x8000u;
    word &= INT32_MAX;
    if (word >= 0x38800000u)
        return (uint16_t)(sign | (word + 0xc8000fffu + (word >> 13 & 1)) >> 13);
    value =
        (value < 0 ? -value : value) + 0.5f; /* whose last bit is that of the smallest numbers */
    memcpy(&tiny, &value, sizeof tiny);
    return (uint16_t)(sign | (tiny - 0x3f000000u));
}

static uint16_t bfloat_of(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return (uint16_t)((word + 0x7fffu + (word >> 16 & 1)) >> 16);
}

static int take_scalar(struct operation_call *c, int i)
{
    const char *dtype = c->argument[i].dtype;
    const bool half = strcmp(dtype, "fp16") == 0, bfloat = strcmp(dtype, "bf16") == 0,
               fraction = dtype[0] == 'f' || bfloat;
    double number = fraction ? PyFloat_AsDouble(c->given[i]) : 0;
    c->at[i] = &c->scalar[i];
    if (!fraction)
        return take_integer(c, i);
    if (PyErr_Occurred() != NULL) {
        PyErr_Clear();
        return fail(ERROR_ARGUMENT, "%s must be a number", c->argument[i].name);
    }
    if (half && !(number < 65520 && number > -65520))
        return fail(ERROR_ARGUMENT, "%s must be a number that fp16 has", c->argument[i].name);
    if (half || bfloat)
        c->scalar[i].half = half ? half_of((float)number) : bfloat_of((float)number);
    else if (strcmp(dtype, "fp32") == 0)
        c->scalar[i].fp32 = (float)number;
    else
        c->scalar[i].fp64 = number;
    return 0;
}

/* ---- tensors --------------------------------------------------------------------------------*/
static dl_dtype dtype_of(const fa_argument *argument)
{
    static const struct {
        const char *begins;
        uint8_t code;
    } codes[] = {{"bf", DL_BFLOAT},
                 {"fp8_e4m3", DL_FLOAT8_E4M3FN},
                 {"fp8_e5m2", DL_FLOAT8_E5M2},
                 {"fp", DL_FLOAT},
                 {"int", DL_INT},
                 {"uint", DL_UINT},
                 {"bool", DL_BOOL},
                 {"complex", DL_COMPLEX}};
    const char *name = argument->dtype;
    size_t i = 0;
    while (i + 1 < sizeof codes / sizeof *codes &&
           strncmp(name, codes[i].begins, strlen(codes[i].begins)) != 0)
        i++;
    long bits = strtol(name + strcspn(name, "0123456789"), NULL, 10); /* of a bool none are told */
    return (dl_dtype){codes[i].code, (uint8_t)(bits > 0 ? bits : 8), 1};
}

static int check_tensor(const struct operation_call *c, const tensor *t, const fa_argument *is)
{
    char has[128], needs[128];
    dl_dtype wanted = dtype_of(is);
    if (t->dtype.code != wanted.code || t->dtype.bits != wanted.bits)
        return fail(ERROR_DTYPE, "%s is %s and needs %s", is->name,
                    dtype_name(t->dtype, has, sizeof has), dtype_name(wanted, needs, sizeof needs));
    if (t->dims != is->dims || memcmp(t->shape, is->shape, (size_t)t->dims * sizeof *t->shape) != 0)
        return fail(ERROR_SHAPE, "%s has the shape %s and needs %s", is->name,
                    shape_text(t->shape, t->dims, has, sizeof has),
                    shape_text(is->shape, is->dims, needs, sizeof needs));
    if (t->device.id != c->place.device || c->place.device != fa_kernel_device(c->kernel))
        return fail(ERROR_DEVICE, "%s is on CUDA device %d and the kernel on %d", is->name,
                    (int)t->device.id, (int)fa_kernel_device(c->kernel));
    return is->output && t->read_only
               ? fail(ERROR_ARGUMENT, "%s is read-only: pass a tensor that may be written",
                      is->name)
               : 0;
}

/* Strides of all dimensions but the last. Those of dimensions of one element say nothing: they are as if packed. */
static int take_strides(struct operation_call *c, int i)
{
    const tensor *t = &c->tensor[i];
    int64_t packed = 1, reach = 0;
    bool empty = false, contiguous = true;
    for (int d = t->dims - 1; d >= 0; d--) {
        int64_t stride = t->shape[d] > 1 ? t->stride[d] : packed;
        contiguous = contiguous && stride == packed;
        empty = empty || t->shape[d] == 0;
        if (d == t->dims - 1 && stride != 1)
            contiguous = false, reach = -1;
        else if (d < t->dims - 1 && d < 3)
            c->passed[i].stride[d] = stride;
        if (d < t->dims - 1 && reach >= 0)
            reach |= t->shape[d] > 1 && stride != 0;
        packed *= t->shape[d];
    }
    bool repeats = !contiguous && reach == 0; /* all strides 0, which would say contiguous */
    if (!empty && !contiguous && (!c->argument[i].strided || reach < 0 || repeats))
        return fail(ERROR_SHAPE, "%s %s%s: pass %s.contiguous()", c->argument[i].name,
                    repeats ? "repeats one row for every position" : "is not contiguous",
                    c->argument[i].strided && !repeats ? " in its last dimension" : "",
                    c->argument[i].name);
    if (contiguous || empty)
        memset(c->passed[i].stride, 0, sizeof c->passed[i].stride);
    return 0;
}

static int take_tensor(struct operation_call *c, int i)
{
    if (tensor_take(&c->tensor[i], c->given[i], c->argument[i].name, &c->place) != 0 ||
        check_tensor(c, &c->tensor[i], &c->argument[i]) != 0 || take_strides(c, i) != 0)
        return -1;
    c->passed[i].data = c->tensor[i].data;
    c->at[i] = &c->passed[i];
    return 0;
}

static int make_output(struct operation_call *c, int i)
{
    const fa_argument *is = &c->argument[i];
    char *data = NULL;
    if (is->dims > TENSOR_DIMS)
        return fail(ERROR_SHAPE, "%s has more than %d dimensions: pass it", is->name, TENSOR_DIMS);
    c->made[i] =
        tensor_new(&c->tensor[c->first], is->shape, is->dims, dtype_of(is), &c->place, &data);
    c->passed[i].data = data;
    c->at[i] = &c->passed[i];
    return c->made[i] != NULL ? 0 : -1;
}

static int take_all(struct operation_call *c)
{
    const int first = c->first;
    if (tensor_place(&c->tensor[first], c->given[first], c->argument[first].name, c->stream,
                     &c->place) != 0)
        return -1;
    for (int i = 0; i < c->count; i++) {
        if (c->given[i] == NULL)
            continue;
        if ((c->argument[i].tensor ? take_tensor(c, i) : take_scalar(c, i)) != 0)
            return -1;
    }
    return tensors_refuse_grad(&c->place, "a kernel");
}

/* ---- the launch -----------------------------------------------------------------------------*/
static int launch(struct operation_call *c, fa_tuner *tuner, fa_diag *diag)
{
    const tensor *first = &c->tensor[c->first];
    fa_args args = {.size = sizeof args, .count = c->count, .at = c->at};
    size_t bytes = fa_kernel_workspace(c->kernel);
    for (int i = 0; i < c->count; i++)
        if (c->given[i] == NULL && c->argument[i].output && c->argument[i].needed &&
            make_output(c, i) != 0)
            return -1;
    if (bytes > 0 && first->exchange != NULL && (c->stream == NULL || c->stream == Py_None)) {
        if ((c->workspace = tensor_scratch(first, bytes)) == NULL)
            return -1;
        args.workspace = (char *)c->workspace->tensor.data + c->workspace->tensor.byte_offset;
        args.workspace_bytes = bytes;
    }
    int rc = fa_launch_args(c->kernel, &args, c->place.stream, diag);
    if (rc == 0 && c->place.wait) {
        PyThreadState *state = session_release();
        rc = fa_wait_for_stream(tuner, c->place.stream, diag);
        session_acquire(state);
    }
    return rc == 0 ? 0 : fail_with(rc, diag);
}

static int run(struct operation_call *c)
{
    fa_tuner *tuner = session_tuner();
    fa_diag diag = {{0}};
    bool entered = false;
    if (tuner == NULL || take_all(c) != 0)
        return -1;
    int rc = session_enter(c->place.device, &entered, &diag);
    if (rc != 0)
        return fail_with(rc, &diag);
    int done = launch(c, tuner, &diag);
    if (entered)
        fa_leave_device(tuner);
    return done;
}

/* Takes over what was made. */
static PyObject *result_of(struct operation_call *c)
{
    Py_ssize_t count = 0, at = 0;
    for (int i = 0; i < c->count; i++)
        count += c->made[i] != NULL;
    if (count == 0)
        Py_RETURN_NONE;
    PyObject *tuple = count > 1 ? PyTuple_New(count) : NULL, *one = NULL;
    if (count > 1 && tuple == NULL)
        return NULL;
    for (int i = 0; i < c->count; i++) {
        if (c->made[i] == NULL)
            continue;
        if (tuple != NULL)
            PyTuple_SetItem(tuple, at++, c->made[i]);
        else
            one = c->made[i];
        c->made[i] = NULL;
    }
    return tuple != NULL ? tuple : one;
}

PyObject *operation_call(const fa_kernel *kernel, PyObject *const *args, Py_ssize_t count,
                         PyObject *names)
{
    struct operation_call c;
    memset(&c, 0, sizeof c);
    c.kernel = kernel;
    c.place.wide = true;
    session_begin(); /* what is called meanwhile may run any Python, and the kernel is to live */
    bool done = take_arguments(&c, args, count, names) == 0 && run(&c) == 0;
    PyObject *result = done ? result_of(&c) : NULL;
    for (int i = 0; i < c.count; i++) {
        tensor_release(&c.tensor[i]);
        Py_XDECREF(c.made[i]);
    }
    if (c.workspace != NULL && c.workspace->deleter != NULL)
        c.workspace->deleter(c.workspace);
    session_end();
    return result;
}
