/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of other libraries.
 *
 * Workload: four descriptions a call. With the exchange table of the tensor's type that is one C call each
 * and no Python object; types are remembered, so that a table is looked up once. Without it (CuPy, JAX,
 * PyTorch before 2.10) each is a capsule, a few microseconds.
 * Invariant: what a producer tells is checked here before anything is computed from it. A described tensor has up to four
 * dimensions below 2^31 of which none reaches beyond 2^48 elements, and its first element is aligned.
 */
#include "tensors.h"

#include <stdio.h>
#include <string.h>

/* ---- types ----------------------------------------------------------------------------------*/
enum { TYPES = 16 };
static struct known_type {
    PyTypeObject *type; /* held for good, so that its address stays its own */
    const dl_exchange *exchange;
    const struct torch_functions *torch; /* NULL: of another library */
    bool has_grad; /* an attribute "requires_grad": its library differentiates */
    bool plain;    /* torch.Tensor or Parameter */
} types[TYPES];
static int type_count;
static struct torch_functions *torches; /* one, but in tests */
static PyObject *requires_grad, *current_level;

int tensors_init(void)
{
    requires_grad = PyUnicode_InternFromString("requires_grad");
    current_level = PyUnicode_InternFromString("_current_level");
    return requires_grad != NULL && current_level != NULL ? 0 : -1;
}

/* The table of this module's version, whole, or NULL. */
static const dl_exchange *read_exchange(PyTypeObject *type)
{
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    const dl_exchange *exchange = NULL;
    if (capsule != NULL && PyCapsule_CheckExact(capsule))
        exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    PyErr_Clear();
    Py_XDECREF(capsule);
    while (exchange != NULL && exchange->version.major != DL_MAJOR)
        exchange = exchange->previous;
    bool whole = exchange != NULL && exchange->allocate != NULL &&
                 exchange->managed_from_object != NULL && exchange->managed_to_object != NULL &&
                 exchange->current_stream != NULL;
    return whole ? exchange : NULL;
}

/* A new reference, or NULL without an exception. */
static PyObject *find_attribute(PyObject *object, const char *name)
{
    PyObject *found = object != NULL ? PyObject_GetAttrString(object, name) : NULL;
    PyErr_Clear();
    return found;
}

/* What a module has by this path, up to a NULL; a new reference, or NULL without an exception. */
static PyObject *find_by_path(PyObject *module, const char *const *path)
{
    PyObject *at = module;
    Py_INCREF(at);
    for (; at != NULL && *path != NULL; path++) {
        PyObject *next = find_attribute(at, *path);
        Py_DECREF(at);
        at = next;
    }
    return at;
}

/* NULL: it is no whole PyTorch. Never freed. */
static const struct torch_functions *functions_of(PyObject *module)
{
    for (struct torch_functions *known = torches; known != NULL; known = known->next)
        if (known->module == module)
            return known;
    struct torch_functions *made = PyMem_Calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    /* The function that PyTorch's own compiler makes tensors by: without the dispatcher's half of the time. It is no
     * part of the interface, so that nothing may depend on its being there. */
    static const char *const empty_strided[] = {"_C", "_dynamo", "guards", "_empty_strided_cuda",
                                                NULL};
    static const char *const forward_ad[] = {"autograd", "forward_ad", NULL};
    PyObject *format = find_attribute(module, "contiguous_format");
    made->empty_like = find_attribute(module, "empty_like");
    made->is_grad_enabled = find_attribute(module, "is_grad_enabled");
    made->float16 = find_attribute(module, "float16");
    made->bfloat16 = find_attribute(module, "bfloat16");
    made->float32 = find_attribute(module, "float32");
    made->empty_strided = find_by_path(module, empty_strided);
    made->forward_ad = find_by_path(module, forward_ad);
    made->contiguous = format != NULL ? Py_BuildValue("{s:O}", "memory_format", format) : NULL;
    Py_XDECREF(format);
    PyErr_Clear();
    if (made->empty_like == NULL || made->contiguous == NULL) {
        Py_XDECREF(made->empty_like);
        Py_XDECREF(made->contiguous);
        Py_XDECREF(made->is_grad_enabled);
        Py_XDECREF(made->float16);
        Py_XDECREF(made->bfloat16);
        Py_XDECREF(made->float32);
        Py_XDECREF(made->empty_strided);
        Py_XDECREF(made->forward_ad);
        PyMem_Free(made);
        return NULL;
    }
    Py_INCREF(module);
    made->module = module;
    made->next = torches;
    return torches = made;
}

/* PyTorch's own functions where the type is its Tensor or a subclass: to allocate by is faster than DLPack, and the
 * tensor is its allocator's, which record_stream() asks for. */
static void find_torch(struct known_type *known)
{
    PyObject *module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch"); /* borrowed */
    PyObject *class = find_attribute(module, "Tensor"), *nn = find_attribute(module, "nn");
    PyObject *parameter = find_attribute(nn, "Parameter");
    if (class != NULL && PyObject_IsSubclass((PyObject *)known->type, class) == 1)
        known->torch = functions_of(module);
    known->plain = (PyObject *)known->type == class || (PyObject *)known->type == parameter;
    Py_XDECREF(parameter);
    Py_XDECREF(nn);
    Py_XDECREF(class);
    PyErr_Clear();
}

/* What there is to know is asked before the type is entered: to ask may run other threads, which must not find half
 * of it. Without room it is kept until the next type, which a call has long taken what it needs from. */
static const struct known_type *know(PyTypeObject *type)
{
    static struct known_type passing;
    for (int i = 0; i < type_count; i++)
        if (types[i].type == type)
            return &types[i];
    struct known_type known = {.type = type,
                               .exchange = read_exchange(type),
                               .has_grad = PyObject_HasAttr((PyObject *)type, requires_grad)};
    find_torch(&known);
    if (type_count == TYPES) {
        passing = known;
        return &passing;
    }
    Py_INCREF(type);
    types[type_count] = known;
    return &types[type_count++];
}

/* ---- words ----------------------------------------------------------------------------------*/
const char *dtype_name(dl_dtype dtype, char *ret_text, size_t size)
{
    static const char *const words[] = {[DL_INT] = "int",
                                        [DL_UINT] = "uint",
                                        [DL_FLOAT] = "float",
                                        [DL_BFLOAT] = "bfloat",
                                        [DL_COMPLEX] = "complex"};
    const char *word = dtype.code < sizeof words / sizeof *words ? words[dtype.code] : NULL;
    if (word != NULL)
        snprintf(ret_text, size, "%s%d", word, dtype.bits);
    else
        snprintf(ret_text, size, "DLPack type %d of %d bits", dtype.code, dtype.bits);
    if (dtype.code == DL_BOOL)
        snprintf(ret_text, size, "bool");
    if (dtype.code == DL_FLOAT8_E4M3FN || dtype.code == DL_FLOAT8_E5M2)
        snprintf(ret_text, size, "float8_%s", dtype.code == DL_FLOAT8_E5M2 ? "e5m2" : "e4m3fn");
    return ret_text;
}

const char *shape_text(const int64_t *shape, int dims, char *ret_text, size_t size)
{
    size_t used = (size_t)snprintf(ret_text, size, "(");
    for (int i = 0; i < dims && used < size; i++)
        used += (size_t)snprintf(ret_text + used, size - used, "%s%lld", i == 0 ? "" : ", ",
                                 (long long)shape[i]);
    if (used < size)
        snprintf(ret_text + used, size - used, ")");
    return ret_text;
}

static int fail_type(PyObject *object, const char *name)
{
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    const char *word = type != NULL ? PyUnicode_AsUTF8AndSize(type, NULL) : NULL;
    if (word != NULL)
        fail(ERROR_TENSOR,
             "%s is of type %s: pass a tensor on a CUDA device that speaks DLPack, such as a "
             "torch.Tensor or a cupy.ndarray",
             name, word);
    Py_XDECREF(type);
    return -1;
}

static int check_device(PyObject *object, const char *name, dl_device device)
{
    if (device.type == DL_CUDA || device.type == DL_CUDA_MANAGED)
        return 0;
    PyObject *advice = call_helper("fa_tune._producers", "to_cuda", "(Os)", object, name);
    const char *text = advice != NULL ? PyUnicode_AsUTF8AndSize(advice, NULL) : NULL;
    if (text != NULL)
        fail(ERROR_DEVICE, "%s %s: %s", name,
             device.type == DL_CPU || device.type == DL_CUDA_HOST ? "is in the memory of the host"
                                                                  : "is on no CUDA device",
             text);
    Py_XDECREF(advice);
    return -1;
}

/* ---- describing -----------------------------------------------------------------------------*/
/* Sets shape and strides: contiguous ones where the producer gives none. */
static int take_shape(tensor *to, const dl_tensor *from, bool *ret_empty)
{
    const int64_t most = (int64_t)1 << 48; /* elements: more than any memory has */
    int64_t packed = 1, reach;
    char text[160];
    *ret_empty = false;
    for (int i = from->ndim - 1; i >= 0; i--) {
        int64_t size = to->shape[i] = from->shape[i];
        to->stride[i] = from->strides != NULL ? from->strides[i] : packed;
        if (size < 0 || size > most)
            return fail(ERROR_SHAPE, "%s has the shape %s: every dimension must be below 2^31",
                        to->name, shape_text(from->shape, from->ndim, text, sizeof text));
        if (__builtin_mul_overflow(size - 1, to->stride[i], &reach) || reach > most ||
            reach < -most)
            return fail(ERROR_SHAPE,
                        "%s has the shape %s and a stride of %lld: no memory is so large", to->name,
                        shape_text(from->shape, from->ndim, text, sizeof text),
                        (long long)to->stride[i]);
        if (from->strides == NULL)
            packed *= size;
        *ret_empty = *ret_empty || size == 0;
    }
    return 0;
}

static int describe(tensor *to, const dl_tensor *from)
{
    char text[64];
    uintptr_t first = (uintptr_t)from->data;
    size_t bytes = from->dtype.bits / 8u;
    bool empty;
    to->device = from->device;
    to->dtype = from->dtype;
    to->dims = from->ndim;
    if (check_device(to->object, to->name, from->device) != 0)
        return -1;
    if (from->ndim < 0 || from->ndim > TENSOR_DIMS || (from->ndim > 0 && from->shape == NULL))
        return fail(ERROR_SHAPE, "%s has %d dimensions%s: pass a tensor of four", to->name,
                    (int)from->ndim, from->shape == NULL ? " and no shape" : "");
    if (from->dtype.lanes > 1)
        return fail(ERROR_DTYPE, "%s has vectors of %d %s for elements: pass a tensor of numbers",
                    to->name, from->dtype.lanes, dtype_name(from->dtype, text, sizeof text));
    if (take_shape(to, from, &empty) != 0)
        return -1;
    if (from->data == NULL && !empty)
        return fail(ERROR_TENSOR,
                    "%s has no memory (a fake or a meta tensor?): pass a tensor on a CUDA device",
                    to->name);
    if ((first != 0 && __builtin_add_overflow(first, from->byte_offset, &first)) ||
        (bytes > 1 && (bytes & (bytes - 1)) == 0 && first % bytes != 0))
        return fail(ERROR_TENSOR,
                    "%s begins at %p + %llu bytes, where no %s can lie: pass %s.clone()", to->name,
                    from->data, (unsigned long long)from->byte_offset,
                    dtype_name(from->dtype, text, sizeof text), to->name);
    to->data = (char *)first;
    return 0;
}

/* The tensor's library raised something of its own, such as for a sparse tensor: the sentence says what to pass, and
 * its exception is the cause. What is no Exception, as Ctrl-C, passes. Returns -1. */
static int fail_description(const char *name)
{
    PyObject *type, *value, *trace;
    if (!PyErr_Occurred())
        return fail(ERROR_TENSOR, "%s cannot be taken: its library failed and says nothing", name);
    if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError))
        return -1;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *done = call_helper("fa_tune._producers", "refuse_description", "(Os)", value, name);
    Py_XDECREF(done);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return -1;
}

static int take_managed(tensor *t, const dl_managed *managed)
{
    if (managed == NULL)
        return fail_description(t->name);
    if (managed->version.major != DL_MAJOR)
        return fail(ERROR_TENSOR, "%s comes as DLPack %u, and this is DLPack %d.%d", t->name,
                    managed->version.major, DL_MAJOR, DL_MINOR);
    t->read_only = (managed->flags & DL_FLAG_READ_ONLY) != 0;
    return describe(t, &managed->tensor);
}

static int take_exchanged(tensor *t)
{
    dl_tensor borrowed = {.data = NULL};
    if (t->exchange->borrow != NULL)
        return t->exchange->borrow(t->object, &borrowed) == 0 ? describe(t, &borrowed)
                                                              : fail_description(t->name);
    if (t->exchange->managed_from_object(t->object, &t->managed) != 0)
        t->managed = NULL;
    return take_managed(t, t->managed);
}

/* The stream as __dlpack__ wants it: 1 is the default stream. */
static PyObject *ask_capsule(PyObject *object, const place *place)
{
    uintptr_t stream = place->stream != NULL ? (uintptr_t)place->stream : 1;
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    PyObject *none = PyTuple_New(0);
    PyObject *words = Py_BuildValue("{s:K,s:(ii)}", "stream", (unsigned long long)stream,
                                    "max_version", DL_MAJOR, DL_MINOR);
    PyObject *capsule = NULL;
    if (method != NULL && none != NULL && words != NULL)
        capsule = PyObject_Call(method, none, words);
    if (capsule == NULL && words != NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear(); /* a producer of before DLPack 1.0 */
        if (PyDict_DelItemString(words, "max_version") == 0)
            capsule = PyObject_Call(method, none, words);
    }
    Py_XDECREF(words);
    Py_XDECREF(none);
    Py_XDECREF(method);
    return capsule;
}

static int take_capsule(tensor *t, const place *place)
{
    t->capsule = ask_capsule(t->object, place);
    if (t->capsule == NULL)
        return fail_description(t->name);
    if (PyCapsule_IsValid(t->capsule, "dltensor_versioned"))
        return take_managed(t, PyCapsule_GetPointer(t->capsule, "dltensor_versioned"));
    if (!PyCapsule_IsValid(t->capsule, "dltensor"))
        return fail(ERROR_TENSOR,
                    "%s.__dlpack__() gives no capsule of DLPack, or one that was used already",
                    t->name);
    const dl_managed_old *managed = PyCapsule_GetPointer(t->capsule, "dltensor");
    return describe(t, &managed->tensor);
}

/* Before a capsule is asked for: its device, which may not be one that the producer can serve. */
static int ask_device(PyObject *object, const char *name, dl_device *ret_device)
{
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    int type, id;
    if (pair == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return fail_type(object, name);
    }
    if (pair == NULL)
        return fail_description(name);
    bool read = PyTuple_Check(pair) && PyArg_ParseTuple(pair, "ii", &type, &id);
    Py_DECREF(pair);
    if (!read) {
        PyErr_Clear();
        return fail(ERROR_TENSOR, "%s.__dlpack_device__() gives no tuple of two ints", name);
    }
    *ret_device = (dl_device){type, id};
    return check_device(object, name, *ret_device);
}

/* Whether the call is within forward_ad.dual_level(), where tensors may carry tangents, with and without no_grad(); not
 * in the forward() of an autograd.Function, which gets tensors without. */
static bool is_forward_mode(const struct torch_functions *torch)
{
    static const char *const is_enabled[] = {"_C", "_is_fwd_grad_enabled", NULL};
    PyObject *level = NULL, *ask, *on = NULL;
    if (torch->forward_ad != NULL)
        level = PyObject_GetAttr(torch->forward_ad, current_level);
    if (level != NULL && PyLong_Check(level) && PyLong_AsLong(level) >= 0 &&
        (ask = find_by_path(torch->module, is_enabled)) != NULL) {
        on = PyObject_CallNoArgs(ask);
        Py_DECREF(ask);
    }
    PyErr_Clear();
    Py_XDECREF(level);
    Py_XDECREF(on);
    return on == Py_True;
}

/* Whether a gradient would be recorded through the tensor. PyTorch is asked once a call, and its tensors where it
 * records at all. */
static int wants_grad(const struct known_type *known, PyObject *object, place *place)
{
    if (place->grad == GRAD_UNASKED && known->torch != NULL &&
        known->torch->is_grad_enabled != NULL) {
        PyObject *on = PyObject_CallNoArgs(known->torch->is_grad_enabled);
        if (on == NULL)
            return -1;
        place->grad = is_forward_mode(known->torch) ? GRAD_FORWARD
                      : on != Py_False              ? GRAD_ON
                                                    : GRAD_OFF;
        Py_DECREF(on);
    }
    if (place->grad == GRAD_OFF || place->grad == GRAD_FORWARD)
        return place->grad == GRAD_FORWARD;
    PyObject *wanted = PyObject_GetAttr(object, requires_grad);
    Py_XDECREF(wanted);
    return wanted == NULL ? -1 : wanted != Py_False;
}

int tensor_take(tensor *t, PyObject *object, const char *name, place *place)
{
    if (t->object == NULL) {
        const struct known_type *known = know(Py_TYPE(object));
        dl_device device;
        t->object = object;
        t->name = name;
        t->exchange = known->exchange;
        t->torch = known->torch;
        t->plain = known->plain;
        t->read_only = false;
        if (t->exchange != NULL ? take_exchanged(t) != 0 : ask_device(object, name, &device) != 0)
            return -1;
        int wanted = t->exchange != NULL && known->has_grad ? wants_grad(known, object, place) : 0;
        if (wanted < 0)
            return fail_description(name);
        if (wanted > 0 && place->recorded == NULL)
            place->recorded = name;
    }
    if (t->exchange == NULL && take_capsule(t, place) != 0)
        return -1;
    for (int i = 0; i < t->dims; i++)
        if (!place->wide && t->shape[i] > INT32_MAX)
            return fail(ERROR_SHAPE, "%s has a dimension of %lld: every one must be below 2^31",
                        name, (long long)t->shape[i]);
    return 0;
}

/* ---- streams --------------------------------------------------------------------------------*/
static int read_stream(PyObject *number, place *ret_place)
{
    if (number == NULL)
        return -1;
    if (number == Py_None) {
        ret_place->wait = true;
    } else {
        unsigned long long handle = PyLong_AsUnsignedLongLong(number);
        if (handle == (unsigned long long)-1 && PyErr_Occurred()) {
            Py_DECREF(number);
            PyErr_Clear();
            return fail(ERROR_TENSOR,
                        "stream is no handle of a CUDA stream, which is an int from 0");
        }
        ret_place->stream = (void *)(uintptr_t)handle;
    }
    Py_DECREF(number);
    return 0;
}

int tensors_refuse_grad(const place *place, const char *function)
{
    if (place->recorded != NULL && place->grad == GRAD_FORWARD)
        return fail(ERROR_NOT_SUPPORTED,
                    "%s has no forward mode: call it outside of "
                    "torch.autograd.forward_ad.dual_level()",
                    function);
    return place->recorded == NULL
               ? 0
               : fail(ERROR_NOT_SUPPORTED,
                      "%s requires a gradient, and %s has no backward pass: call it under "
                      "torch.no_grad(), or pass %s.detach()",
                      place->recorded, function, place->recorded);
}

int tensor_place(tensor *first, PyObject *object, const char *name, PyObject *stream,
                 place *ret_place)
{
    place nowhere = {0};
    const struct known_type *known = know(Py_TYPE(object));
    dl_device device;
    if (known->exchange != NULL) {
        if (tensor_take(first, object, name, &nowhere) != 0)
            return -1;
        device = first->device;
    } else if (ask_device(object, name, &device) != 0) {
        return -1;
    }
    *ret_place = (place){.device = device.id, .grad = nowhere.grad, .recorded = nowhere.recorded};
    if (stream != NULL && stream != Py_None)
        return read_stream(call_helper("fa_tune._producers", "handle_of", "(O)", stream),
                           ret_place);
    if (known->exchange != NULL)
        return known->exchange->current_stream(device.type, device.id, &ret_place->stream) == 0
                   ? 0
                   : fail_description(name);
    return read_stream(
        call_helper("fa_tune._producers", "current_stream", "(Oi)", object, device.id), ret_place);
}

void tensor_into_one_batch(tensor *t)
{
    for (int i = t->dims++; i > 0; i--) {
        t->shape[i] = t->shape[i - 1];
        t->stride[i] = t->stride[i - 1];
    }
    t->shape[0] = 1;
    t->stride[0] = 0;
}

void tensor_out_of_one_batch(tensor *t)
{
    t->dims--;
    memmove(t->shape, t->shape + 1, (size_t)t->dims * sizeof *t->shape);
    memmove(t->stride, t->stride + 1, (size_t)t->dims * sizeof *t->stride);
}

void tensor_release(tensor *t)
{
    if (t->managed != NULL && t->managed->deleter != NULL)
        t->managed->deleter(t->managed);
    Py_XDECREF(t->capsule); /* whose own end frees what nobody took over */
    tensor_clear(t);
}
