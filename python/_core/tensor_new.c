/* SPDX-License-Identifier: Apache-2.0
 *
 * New tensors: outputs and workspaces.
 *
 * Workload: one or two a call, most often of the shape of the last one. PyTorch makes its own, by the shortest way
 * that it has; other libraries by their exchange table; what has none is asked in Python.
 */
#include "tensor_new.h"

#include <string.h>

/* What is asked for: contiguous, on the device of `like`. */
struct wish {
    const tensor *like;
    const int64_t *shape;
    int dims;
    dl_dtype dtype;
};

/* Whether a library made what was asked for; then where its elements are. */
static bool take_made(const struct wish *asked, const dl_tensor *made, char **ret_data)
{
    uint64_t stride = 1;
    bool same = made->ndim == asked->dims && made->device.type == asked->like->device.type &&
                made->device.id == asked->like->device.id &&
                made->dtype.code == asked->dtype.code && made->dtype.bits == asked->dtype.bits &&
                made->dtype.lanes <= 1;
    for (int i = asked->dims - 1; same && i >= 0; stride *= (uint64_t)asked->shape[i], i--)
        same = made->shape[i] == asked->shape[i] &&
               (made->strides == NULL || asked->shape[i] <= 1 || stride == 0 ||
                (uint64_t)made->strides[i] == stride);
    *ret_data = (char *)((uintptr_t)made->data + made->byte_offset);
    return same && (made->data != NULL || stride == 0);
}

static PyObject *fail_made(PyObject *object, const struct wish *asked)
{
    char has[128];
    Py_XDECREF(object);
    if (!PyErr_Occurred())
        fail(ERROR_TENSOR,
             "the library of %s made no contiguous tensor of shape %s on its device: pass out=",
             asked->like->name, shape_text(asked->shape, asked->dims, has, sizeof has));
    return NULL;
}

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

static PyObject *make_object(const struct wish *asked, char **ret_data)
{
    const tensor *like = asked->like;
    void *object = NULL;
    dl_managed *managed =
        allocate(like->exchange, asked->shape, asked->dims, asked->dtype, like->device);
    if (managed == NULL)
        return NULL;
    if (!take_made(asked, &managed->tensor, ret_data)) {
        if (managed->deleter != NULL)
            managed->deleter(managed);
        return fail_made(NULL, asked);
    }
    return like->exchange->managed_to_object(managed, &object) == 0 && object != NULL
               ? object
               : fail_made(NULL, asked);
}

/* Where a tensor that was just made has its elements; drops it where that cannot be told. */
static PyObject *with_data(PyObject *object, const struct wish *asked, place *place,
                           char **ret_data)
{
    tensor made = {0};
    if (object == NULL)
        return NULL;
    bool right = tensor_take(&made, object, "out", place) == 0;
    if (right) {
        const dl_tensor view = {.data = made.data,
                                .device = made.device,
                                .ndim = made.dims,
                                .dtype = made.dtype,
                                .shape = made.shape,
                                .strides = made.stride};
        right = take_made(asked, &view, ret_data);
    }
    tensor_release(&made);
    return right ? object : fail_made(object, asked);
}

/* ---- by PyTorch, past its dispatcher ---------------------------------------------------------*/
/* Tuples of the last contiguous shape of so many dimensions. */
static struct sizes {
    PyObject *size, *stride; /* NULL: none yet */
    int64_t shape[TENSOR_DIMS];
} last_sizes[TENSOR_DIMS + 1];

PyObject *tuple_of(const int64_t *number, int count)
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
static PyObject *make_quickly(const struct wish *asked, char **ret_data)
{
    const tensor *like = asked->like;
    PyObject *size, *stride, *type, *made;
    dl_tensor borrowed = {.data = NULL};
    if (!like->plain || like->torch == NULL || like->torch->empty_strided == NULL ||
        like->exchange == NULL || like->exchange->borrow == NULL ||
        (type = torch_dtype(like->torch, asked->dtype)) == NULL ||
        take_sizes(asked->shape, asked->dims, &size, &stride) != 0) {
        PyErr_Clear();
        return NULL;
    }
    made = PyObject_CallFunctionObjArgs(like->torch->empty_strided, size, stride, type, NULL);
    Py_DECREF(size);
    Py_DECREF(stride);
    if (made != NULL &&
        (like->exchange->borrow(made, &borrowed) != 0 || !take_made(asked, &borrowed, ret_data)))
        Py_CLEAR(made);
    if (made == NULL)
        PyErr_Clear();
    return made;
}

/* ---- by whatever there is ---------------------------------------------------------------------*/
PyObject *tensor_new(const tensor *like, const int64_t *shape, int dims, dl_dtype dtype,
                     place *place, char **ret_data)
{
    const struct wish asked = {like, shape, dims, dtype};
    char name[64];
    if (like->exchange != NULL && like->torch == NULL)
        return make_object(&asked, ret_data);
    PyObject *object = make_quickly(&asked, ret_data);
    if (object != NULL)
        return object;
    PyObject *sizes = tuple_of(shape, dims);
    if (sizes == NULL)
        return NULL;
    object = call_helper("fa_tune._producers", "empty", "(ONsi)", like->object, sizes,
                         dtype_name(dtype, name, sizeof name), (int)place->device);
    return with_data(object, &asked, place, ret_data);
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
    const struct wish asked = {like, shape, dims, like->dtype};
    if (like->torch == NULL)
        return tensor_new(like, shape, dims, like->dtype, place, ret_data);
    PyObject *object = make_quickly(&asked, ret_data);
    if (object != NULL)
        return object;
    if (is_contiguous(like)) /* as is what is like it, which saves reading a keyword */
        return with_data(PyObject_CallFunctionObjArgs(like->torch->empty_like, like->object, NULL),
                         &asked, place, ret_data);
    PyObject *only = PyTuple_New(1);
    if (only != NULL) {
        Py_INCREF(like->object);
        PyTuple_SetItem(only, 0, like->object);
        object = PyObject_Call(like->torch->empty_like, only, like->torch->contiguous);
    }
    Py_XDECREF(only);
    return with_data(object, &asked, place, ret_data);
}
