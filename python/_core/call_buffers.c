/* SPDX-License-Identifier: Apache-2.0
 *
 * What a score or mask of a call reads besides: tensors and numbers by name, and functions in place of texts.
 *
 * Workload: nothing for a call without a score and mask. A text costs one comparison with that of the last call.
 */
#include "call_steps.h"

#include "problem.h"

#include <stdio.h>
#include <string.h>

enum { LIST_MAX = BUFFERS_MAX * 48 };

static const char score_field[] = "score", mask_field[] = "mask", buffers_field[] = "buffers";

/* Texts of calls before, by name; the oldest gives way. Under the GIL. */
enum { KNOWN_MAX = 12 };
static struct known {
    const char *name; /* of the field */
    char *text;
    int field;
    int32_t value;
} known[KNOWN_MAX];

static int set_text_field(struct call *c, const char *name, const char *text)
{
    static unsigned oldest;
    struct known *one = known;
    while (one < known + KNOWN_MAX && (one->name != name || strcmp(one->text, text) != 0))
        one++;
    if (one == known + KNOWN_MAX) {
        PyObject *key = PyUnicode_InternFromString(name), *value = PyUnicode_FromString(text);
        const int field = key != NULL && value != NULL ? problem_find(key) : -1;
        const int rc = field < 0 ? -1 : problem_set(&c->problem, field, value);
        Py_XDECREF(key);
        Py_XDECREF(value);
        if (rc != 0)
            return -1;
        one = &known[oldest++ % KNOWN_MAX];
        PyMem_Free(one->text);
        const size_t size = strlen(text) + 1;
        *one = (struct known){.name = NULL, .text = PyMem_Malloc(size)};
        if (one->text == NULL)
            return 0; /* the next call asks again */
        memcpy(one->text, text, size);
        one->field = field, one->value = c->problem.value[field], one->name = name;
    }
    c->problem.value[one->field] = one->value;
    return 0;
}

/* Of a score or mask, which is a str. */
static int set_snippet(struct call *c, const char *name, PyObject *text)
{
    Py_ssize_t size = 0;
    const char *line = text != NULL && text != Py_None && PyUnicode_Check(text)
                           ? PyUnicode_AsUTF8AndSize(text, &size)
                           : NULL;
    if (text == NULL || text == Py_None)
        return 0;
    if (line == NULL ? PyErr_Occurred() == NULL : strlen(line) != (size_t)size)
        return fail(ERROR_ARGUMENT, "%s must be a str without NUL", name);
    return line != NULL ? set_text_field(c, name, line) : -1;
}

/* Functions become texts, and what they have captured buffers. */
static int trace(struct call *c)
{
    PyObject *none = Py_None, *score = c->is.score != NULL ? c->is.score : none,
             *mask = c->is.mask != NULL ? c->is.mask : none;
    c->traced = call_helper("fa_tune._mods", "traced", "(OOOO)", score, mask,
                            c->is.buffers != NULL ? c->is.buffers : none,
                            c->is.softcap != NULL ? c->is.softcap : none);
    if (c->traced == NULL)
        return -1;
    c->is.score = PyTuple_GetItem(c->traced, 0);
    c->is.mask = PyTuple_GetItem(c->traced, 1);
    c->is.buffers = PyTuple_GetItem(c->traced, 2);
    c->is.softcap = PyTuple_GetItem(c->traced, 3);
    return 0;
}

static bool is_function(PyObject *value)
{
    return value != NULL && value != Py_None && !PyUnicode_Check(value) && PyCallable_Check(value);
}

/* A text that may be what the argument softcap says. */
static bool may_be_softcap(PyObject *score)
{
    const char *text =
        score != NULL && PyUnicode_Check(score) ? PyUnicode_AsUTF8AndSize(score, NULL) : NULL;
    return text != NULL && strstr(text, "tanh") != NULL;
}

/* Dropout is asked for by two buffers. */
static int take_dropout(struct call *c)
{
    PyObject *p = c->is.dropout_p, *none = Py_None;
    PyObject *seed = c->is.dropout_seed != NULL ? c->is.dropout_seed : none;
    c->is.dropout_p = c->is.dropout_seed = NULL;
    if (p == NULL || p == none || (PyFloat_Check(p) && PyFloat_AsDouble(p) == 0))
        return 0;
    c->dropped = call_helper("fa_tune._mods", "dropped", "(OOOO)",
                             c->is.buffers != NULL ? c->is.buffers : none, p, seed, c->is.q);
    if (c->dropped == NULL)
        return -1;
    c->is.buffers = c->dropped;
    return 0;
}

int call_take_texts(struct call *c)
{
    if (take_dropout(c) != 0)
        return -1;
    if ((is_function(c->is.score) || is_function(c->is.mask) || may_be_softcap(c->is.score)) &&
        trace(c) != 0)
        return -1;
    return set_snippet(c, score_field, c->is.score) != 0 ? -1
                                                         : set_snippet(c, mask_field, c->is.mask);
}

static const char *type_of(const tensor *t)
{
    static const struct {
        int code, bits;
        const char *name;
    } types[] = {{DL_FLOAT, 32, "f32"}, {DL_FLOAT, 16, "f16"}, {DL_BFLOAT, 16, "bf16"},
                 {DL_INT, 32, "i32"},   {DL_INT, 64, "i64"},   {DL_UINT, 8, "u8"},
                 {DL_BOOL, 8, "u8"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (t->dtype.code == types[i].code && t->dtype.bits == types[i].bits)
            return types[i].name;
    return NULL;
}

/* One more of the list, behind `text`. */
static int take_buffer(struct call *c, const char *name, PyObject *value, char *text)
{
    static const char *const dims[] = {"[]", "[:]", "[:,:]", "[:,:,:]", "[:,:,:,:]"};
    const int i = c->buffers->count;
    fa_attn_buffer *is = &c->buffers->is[i];
    tensor *t = &c->buffers->tensor[i];
    char other[64];
    if (PyFloat_Check(value) || PyLong_Check(value)) {
        is->dims = -1;
        is->number = PyFloat_AsDouble(value);
        sprintf(text, "%s%s:%s", i > 0 ? " " : "", name, PyFloat_Check(value) ? "f32" : "i32");
        return PyErr_Occurred() != NULL ? -1 : 0;
    }
    tensor_clear(t);
    c->buffers->count++;
    if (tensor_take(t, value, name, &c->place) != 0)
        return -1;
    if (t->device.id != c->place.device)
        return fail(ERROR_DEVICE, "q is on CUDA device %d and %s on %d: pass tensors of one device",
                    (int)c->place.device, name, (int)t->device.id);
    if (type_of(t) == NULL)
        return fail(ERROR_DTYPE,
                    "%s is %s: a buffer is float32, float16, bfloat16, int32, int64, "
                    "uint8 or bool",
                    name, dtype_name(t->dtype, other, sizeof other));
    PyObject *key = c->wanted != NULL ? PyUnicode_FromString(name) : NULL;
    const int wanted = key != NULL ? PySequence_Contains(c->wanted, key) : 0;
    Py_XDECREF(key);
    if (wanted < 0 || PyErr_Occurred() != NULL)
        return -1;
    c->buffers->wanted[i] = wanted != 0;
    sprintf(text, "%s%s:%s%s%s", i > 0 ? " " : "", name, type_of(t), dims[t->dims],
            wanted ? "*" : "");
    *is = (fa_attn_buffer){.at = t->data, .dims = t->dims};
    memcpy(is->size, t->shape, (size_t)t->dims * sizeof *is->size);
    memcpy(is->stride, t->stride, (size_t)t->dims * sizeof *is->stride);
    return 0;
}

/* The items of a dict in the order of their names: equal lists are equal problems. -1: an exception. */
static int sort_items(PyObject *dict, const char *name[BUFFERS_MAX], PyObject *value[BUFFERS_MAX])
{
    PyObject *key, *item;
    Py_ssize_t at = 0;
    int count = 0;
    while (PyDict_Next(dict, &at, &key, &item)) {
        const char *text = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, NULL) : NULL;
        if (text == NULL || count == BUFFERS_MAX || strlen(text) > 23) {
            PyErr_Clear();
            return fail(ERROR_ARGUMENT, "buffers has up to %d names of up to 23 letters",
                        BUFFERS_MAX);
        }
        int i = count++;
        for (; i > 0 && strcmp(text, name[i - 1]) < 0; i--)
            name[i] = name[i - 1], value[i] = value[i - 1];
        name[i] = text;
        value[i] = item;
    }
    return count;
}

int call_take_buffers(struct call *c)
{
    const char *name[BUFFERS_MAX];
    PyObject *value[BUFFERS_MAX];
    char text[LIST_MAX];
    size_t size = 0;
    if (c->is.buffers == NULL || c->is.buffers == Py_None)
        return 0;
    if (!PyDict_Check(c->is.buffers))
        return fail(ERROR_ARGUMENT, "%s is a dict of tensors and numbers, {\"slope\": slope}",
                    call_name_of(c, &c->is.buffers));
    if (c->problem.score == 0 && c->problem.mask == 0 &&
        PyDict_GetItemString(c->is.buffers, "dropout") == NULL)
        return fail(ERROR_ARGUMENT, "%s is for a score or mask, and there is none",
                    call_name_of(c, &c->is.buffers));
    const int count = sort_items(c->is.buffers, name, value);
    if (count <= 0)
        return count;
    if ((c->buffers = PyMem_Malloc(sizeof *c->buffers)) == NULL)
        return PyErr_NoMemory(), -1;
    c->buffers->count = 0;
    for (int i = 0; i < count; i++) {
        tensor_clear(&c->buffers->tensor[i]);
        c->buffers->wanted[i] = false;
        if (take_buffer(c, name[i], value[i], text + size) != 0)
            return -1;
        c->buffers->count = i + 1;
        size += strlen(text + size);
    }
    const int done = set_text_field(c, buffers_field, text);
    c->launch.buffers = c->buffers->is;
    c->launch.buffer_count = count;
    return done;
}

void call_free_buffers(struct call *c)
{
    for (int i = 0; c->buffers != NULL && i < c->buffers->count; i++)
        tensor_release(&c->buffers->tensor[i]);
    PyMem_Free(c->buffers);
    c->buffers = NULL;
    Py_CLEAR(c->traced);
    Py_CLEAR(c->dropped);
}
