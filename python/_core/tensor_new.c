/* SPDX-License-Identifier: Apache-2.0
 *
 * New tensors: outputs and workspaces.
 *
 * Workload: one or two a call, most often of the shape of the last one. PyTorch makes its own, by the shortest way
 * that it has; other libraries by their exchange table; what has none is asked in Python.
 */
#include "tensor_new.h"

#include <string.h>

/* What is asked for, on the device of `like`. Strides of dimensions of one element say nothing. */
struct wish {
    const tensor *like;
    const int64_t *shape;
    int dims;
    dl_dtype dtype;
    int64_t stride[TENSOR_DIMS];
};

static struct wish contiguous(const tensor *like, const int64_t *shape, int dims, dl_dtype dtype)
{
    struct wish asked = {.like = like, .shape = shape, .dims = dims, .dtype = dtype};
    int64_t step = 1;
    for (int i = dims - 1; i >= 0; step *= shape[i] > 1 ? shape[i] : 1, i--)
        asked.stride[i] = step;
    return asked;
}

/* Whether a library made what was asked for; then where its elements are. */
static bool take_made(const struct wish *asked, const dl_tensor *made, char **ret_data)
{
    bool same = made->ndim == asked->dims && made->device.type == asked->like->device.type &&
                made->device.id == asked->like->device.id &&
                made->dtype.code == asked->dtype.code && made->dtype.bits == asked->dtype.bits &&
                made->dtype.lanes <= 1;
    bool empty = false;
    for (int i = 0; i < asked->dims; i++)
        empty = empty || asked->shape[i] == 0;
    for (int i = 0; same && i < asked->dims; i++)
        same =
            made->shape[i] == asked->shape[i] && (made->strides == NULL || asked->shape[i] <= 1 ||
                                                  empty || made->strides[i] == asked->stride[i]);
    *ret_data = (char *)((uintptr_t)made->data + made->byte_offset);
    return same && (made->data != NULL || empty);
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
/* Tuples of the last shape of so many dimensions. */
static struct sizes {
    PyObject *size, *stride; /* NULL: none yet */
    int64_t shape[TENSOR_DIMS], by[TENSOR_DIMS];
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

/* The sizes and strides: new references. */
static int take_sizes(const struct wish *asked, PyObject **ret_size, PyObject **ret_stride)
{
    struct sizes *last = &last_sizes[asked->dims];
    size_t bytes = (size_t)asked->dims * sizeof *asked->shape;
    if (last->size == NULL || memcmp(last->shape, asked->shape, bytes) != 0 ||
        memcmp(last->by, asked->stride, bytes) != 0) {
        PyObject *size = tuple_of(asked->shape, asked->dims);
        PyObject *stride = tuple_of(asked->stride, asked->dims);
        if (size == NULL || stride == NULL) {
            Py_XDECREF(size);
            Py_XDECREF(stride);
            return -1;
        }
        Py_XDECREF(last->size);
        Py_XDECREF(last->stride);
        last->size = size;
        last->stride = stride;
        memcpy(last->shape, asked->shape, bytes);
        memcpy(last->by, asked->stride, bytes);
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
        take_sizes(asked, &size, &stride) != 0) {
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
    const struct wish asked = contiguous(like, shape, dims, dtype);
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
    const struct wish packed = contiguous(t, t->shape, t->dims, t->dtype);
    for (int i = 0; i < t->dims; i++)
        if (t->shape[i] > 1 && t->stride[i] != packed.stride[i])
            return false;
    return true;
}

/* PyTorch's empty_like(tensor), contiguous or in the order of its strides. */
static PyObject *empty_like(const tensor *like, bool packed)
{
    PyObject *only, *made = NULL;
    if (!packed)
        return PyObject_CallFunctionObjArgs(like->torch->empty_like, like->object, NULL);
    if ((only = PyTuple_New(1)) != NULL) {
        Py_INCREF(like->object);
        PyTuple_SetItem(only, 0, like->object);
        made = PyObject_Call(like->torch->empty_like, only, like->torch->contiguous);
    }
    Py_XDECREF(only);
    return made;
}

PyObject *tensor_like(const tensor *like, const int64_t *shape, int dims, place *place,
                      char **ret_data)
{
    const struct wish asked = contiguous(like, shape, dims, like->dtype);
    if (like->torch == NULL)
        return tensor_new(like, shape, dims, like->dtype, place, ret_data);
    PyObject *object = make_quickly(&asked, ret_data);
    if (object != NULL)
        return object;
    /* What is like a contiguous one is so, too, which saves reading a keyword. */
    return with_data(empty_like(like, !is_contiguous(like)), &asked, place, ret_data);
}

/* Whether its elements fill its memory, each once, and those of a row lie side by side. */
static bool is_dense(const tensor *t)
{
    bool used[TENSOR_DIMS] = {false};
    int64_t step = 1;
    for (int n = 0; n < t->dims; n++) {
        int next = -1;
        for (int i = 0; i < t->dims && next < 0; i++)
            if (!used[i] && (t->shape[i] <= 1 || t->stride[i] == step))
                next = i;
        if (next < 0)
            return false;
        used[next] = true;
        step *= t->shape[next] > 1 ? t->shape[next] : 1;
    }
    return t->shape[t->dims - 1] <= 1 || t->stride[t->dims - 1] == 1;
}

PyObject *tensor_alike(const tensor *like, place *place, tensor *ret_made)
{
    struct wish asked = contiguous(like, like->shape, like->dims, like->dtype);
    PyObject *object = NULL;
    *ret_made = *like;
    ret_made->managed = NULL;
    ret_made->capsule = NULL;
    if (is_dense(like)) {
        memcpy(asked.stride, like->stride, sizeof asked.stride);
        object = make_quickly(&asked, &ret_made->data);
    }
    if (object != NULL || like->torch == NULL)
        return object != NULL ? object : fail_made(NULL, &asked);
    for (int packed = 0; packed < 2; packed++) {
        object = empty_like(like, packed != 0);
        tensor_clear(ret_made);
        if (object == NULL || tensor_take(ret_made, object, like->name, place) != 0)
            break;
        if (ret_made->shape[ret_made->dims - 1] <= 1 || ret_made->stride[ret_made->dims - 1] == 1)
            return object;
        tensor_release(ret_made);
        Py_CLEAR(object);
    }
    tensor_release(ret_made);
    Py_XDECREF(object);
    return NULL;
}
