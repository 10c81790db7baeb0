/* SPDX-License-Identifier: Apache-2.0
 *
 * New tensors: outputs and workspaces.
 *
 * Workload: one or two a call, most often of the shape of the last one. PyTorch makes its own, by the shortest way
 * that it has; other libraries by their exchange table; what has none is asked in Python.
 */
#include "tensor_new.h"

#include <string.h>

/* ---- by the exchange table ------------------------------------------------------------------*/
static void keep_error(void *context, const char *kind, const char *message)
{
    (void)context;
    PyErr_Format(PyExc_RuntimeError, "%s: %s", kind, message);
}

static dl_managed *allocate(const dl_exchange *exchange, const int64_t *shape, int dims,
                            dl_dtype dtype, dl_device device)
{
    int64_t sizes[TENSOR_DIMS];
    memcpy(sizes, shape, (size_t)dims * sizeof *shape);
    dl_tensor prototype = {.device = device, .ndim = dims, .dtype = dtype, .shape = sizes};
    dl_managed *managed = NULL;
    if (exchange->allocate(&prototype, &managed, NULL, keep_error) == 0 && managed != NULL)
        return managed;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError,
                        "the tensors' library could not allocate device memory");
    return NULL;
}

dl_managed *tensor_scratch(const tensor *like, size_t size)
{
    int64_t bytes = (int64_t)size;
    return allocate(like->exchange, &bytes, 1, (dl_dtype){DL_UINT, 8, 1}, like->device);
}

static PyObject *make_object(const tensor *like, const int64_t *shape, int dims, dl_dtype dtype,
                             char **ret_data)
{
    void *object = NULL;
    dl_managed *managed = allocate(like->exchange, shape, dims, dtype, like->device);
    if (managed == NULL)
        return NULL;
    *ret_data = (char *)managed->tensor.data + managed->tensor.byte_offset;
    return like->exchange->managed_to_object(managed, &object) == 0 ? object : NULL;
}

/* Where a tensor that was just made has its elements; drops it where that cannot be told. */
static PyObject *with_data(PyObject *object, const tensor *like, place *place, char **ret_data)
{
    dl_tensor borrowed;
    tensor made = {0};
    if (object == NULL)
        return NULL;
    if (like->exchange != NULL && like->exchange->borrow != NULL) {
        if (like->exchange->borrow(object, &borrowed) != 0)
            Py_CLEAR(object);
        else
            *ret_data = (char *)borrowed.data + borrowed.byte_offset;
        return object;
    }
    if (tensor_take(&made, object, "out", place) != 0)
        Py_CLEAR(object);
    else
        *ret_data = made.data;
    tensor_release(&made);
    return object;
}

/* ---- by PyTorch, past its dispatcher ---------------------------------------------------------*/
/* Tuples of the last contiguous shape of so many dimensions. */
static struct sizes {
    PyObject *size, *stride; /* NULL: none yet */
    int64_t shape[TENSOR_DIMS];
} last_sizes[TENSOR_DIMS + 1];

static PyObject *tuple_of(const int64_t *number, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) {
        PyObject *item = PyLong_FromLongLong(number[i]);
        if (item == NULL || PyTuple_SetItem(tuple, i, item) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* The sizes and contiguous strides: new references. */
static int take_sizes(const int64_t *shape, int dims, PyObject **ret_size, PyObject **ret_stride)
{
    struct sizes *last = &last_sizes[dims];
    size_t bytes = (size_t)dims * sizeof *shape;
    if (last->size == NULL || memcmp(last->shape, shape, bytes) != 0) {
        int64_t stride[TENSOR_DIMS], step = 1;
        for (int i = dims - 1; i >= 0; step *= shape[i] > 1 ? shape[i] : 1, i--)
            stride[i] = step;
        PyObject *size = tuple_of(shape, dims), *strides = tuple_of(stride, dims);
        if (size == NULL || strides == NULL) {
            Py_XDECREF(size);
            Py_XDECREF(strides);
            return -1;
        }
        Py_XDECREF(last->size);
        Py_XDECREF(last->stride);
        last->size = size;
        last->stride = strides;
        memcpy(last->shape, shape, bytes);
    }
    Py_INCREF(last->size);
    Py_INCREF(last->stride);
    *ret_size = last->size;
    *ret_stride = last->stride;
    return 0;
}

static PyObject *torch_dtype(const struct torch_functions *torch, dl_dtype dtype)
{
    if (dtype.bits == 16)
        return dtype.code == DL_FLOAT ? torch->float16 : torch->bfloat16;
    return dtype.bits == 32 && dtype.code == DL_FLOAT ? torch->float32 : NULL;
}

/* NULL without an exception: it is to be made by the interface that PyTorch promises. That function allocates on the
 * thread's current device, which need not be the tensor's. */
static PyObject *make_quickly(const tensor *like, const int64_t *shape, int dims, dl_dtype dtype,
                              char **ret_data)
{
    PyObject *size, *stride, *type, *made;
    dl_tensor borrowed;
    if (!like->plain || like->torch == NULL || like->torch->empty_strided == NULL ||
        like->exchange == NULL || like->exchange->borrow == NULL ||
        (type = torch_dtype(like->torch, dtype)) == NULL ||
        take_sizes(shape, dims, &size, &stride) != 0) {
        PyErr_Clear();
        return NULL;
    }
    made = PyObject_CallFunctionObjArgs(like->torch->empty_strided, size, stride, type, NULL);
    Py_DECREF(size);
    Py_DECREF(stride);
    if (made != NULL && (like->exchange->borrow(made, &borrowed) != 0 ||
                         borrowed.device.type != like->device.type ||
                         borrowed.device.id != like->device.id || borrowed.ndim != dims))
        Py_CLEAR(made);
    if (made != NULL)
        *ret_data = (char *)borrowed.data + borrowed.byte_offset;
    else
        PyErr_Clear();
    return made;
}

/* ---- by whatever there is ---------------------------------------------------------------------*/
PyObject *tensor_new(const tensor *like, const int64_t *shape, int dims, dl_dtype dtype,
                     place *place, char **ret_data)
{
    char name[64];
    if (like->exchange != NULL && like->torch == NULL)
        return make_object(like, shape, dims, dtype, ret_data);
    PyObject *object = make_quickly(like, shape, dims, dtype, ret_data);
    if (object != NULL)
        return object;
    PyObject *sizes = tuple_of(shape, dims);
    if (sizes == NULL)
        return NULL;
    object = call_helper("fa_tune._producers", "empty", "(ONsi)", like->object, sizes,
                         dtype_name(dtype, name, sizeof name), (int)place->device);
    return with_data(object, like, place, ret_data);
}

static bool is_contiguous(const tensor *t)
{
    int64_t stride = 1;
    for (int i = t->dims - 1; i >= 0; stride *= t->shape[i], i--)
        if (t->shape[i] > 1 && t->stride[i] != stride)
            return false;
    return true;
}

PyObject *tensor_like(const tensor *like, const int64_t *shape, int dims, place *place,
                      char **ret_data)
{
    if (like->torch == NULL)
        return tensor_new(like, shape, dims, like->dtype, place, ret_data);
    PyObject *object = make_quickly(like, shape, dims, like->dtype, ret_data);
    if (object != NULL)
        return object;
    if (is_contiguous(like)) /* as is what is like it, which saves reading a keyword */
        return with_data(PyObject_CallFunctionObjArgs(like->torch->empty_like, like->object, NULL),
                         like, place, ret_data);
    PyObject *only = PyTuple_New(1);
    if (only != NULL) {
        Py_INCREF(like->object);
        PyTuple_SetItem(only, 0, like->object);
        object = PyObject_Call(like->torch->empty_like, only, like->torch->contiguous);
    }
    Py_XDECREF(only);
    return with_data(object, like, place, ret_data);
}
