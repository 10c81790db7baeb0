/* SPDX-License-Identifier: Apache-2.0
 *
 * The arguments of a call, by position and by name.
 *
 * Workload: one to five names a call, which the interpreter has interned: they are found by address.
 */
#include "call_steps.h"

#include "problem.h"

static struct {
    const char *name;
    size_t at;
    PyObject *interned;
} keywords[] = {
    {"q", offsetof(struct arguments, q), NULL},
    {"k", offsetof(struct arguments, k), NULL},
    {"v", offsetof(struct arguments, v), NULL},
    {"out", offsetof(struct arguments, out), NULL},
    {"causal", offsetof(struct arguments, causal), NULL},
    {"scale", offsetof(struct arguments, scale), NULL},
    {"layout", offsetof(struct arguments, layout), NULL},
    {"return_lse", offsetof(struct arguments, return_lse), NULL},
    {"stream", offsetof(struct arguments, stream), NULL},
    {"window", offsetof(struct arguments, window), NULL},
    {"softcap", offsetof(struct arguments, softcap), NULL},
    {"max_seqlen_q", offsetof(struct arguments, max_seqlen_q), NULL},
    {"max_seqlen_k", offsetof(struct arguments, max_seqlen_k), NULL},
    {"cu_seqlens_q", offsetof(struct arguments, extra[CU_SEQLENS_Q]), NULL},
    {"cu_seqlens_k", offsetof(struct arguments, extra[CU_SEQLENS_K]), NULL},
    {"seqused_k", offsetof(struct arguments, extra[SEQUSED_K]), NULL},
    {"block_table", offsetof(struct arguments, extra[BLOCK_TABLE]), NULL},
    {"sinks", offsetof(struct arguments, extra[SINKS]), NULL},
    {"k_scale", offsetof(struct arguments, extra[K_SCALE]), NULL},
    {"v_scale", offsetof(struct arguments, extra[V_SCALE]), NULL},
};
enum { KEYWORDS = sizeof keywords / sizeof *keywords };

/* Fields of a problem that the tensors say, or that another keyword does. */
static const char *const not_keywords[] = {
    "dtype",       "head_dim",     "batch",     "heads_q",    "heads_kv",  "seq_q",
    "seq_k",       "lse",          "unaligned", "varlen",     "lengths_k", "page",
    "window_left", "window_right", "kv_dtype",  "head_dim_v",
};

int call_arguments_init(void)
{
    for (int i = 0; i < KEYWORDS; i++)
        if ((keywords[i].interned = PyUnicode_InternFromString(keywords[i].name)) == NULL)
            return -1;
    return 0;
}

static int find_keyword(PyObject *name)
{
    for (int i = 0; i < KEYWORDS; i++)
        if (keywords[i].interned == name)
            return i;
    for (int i = 0; i < KEYWORDS; i++)
        if (PyUnicode_Compare(keywords[i].interned, name) == 0)
            return i;
    return -1;
}

/* A field of the operation that is no argument of its own. */
static int take_field(PyObject *name, PyObject *value, fa_problem *problem)
{
    int field = problem_find(name);
    for (size_t i = 0; i < sizeof not_keywords / sizeof *not_keywords; i++)
        if (PyUnicode_CompareWithASCIIString(name, not_keywords[i]) == 0)
            field = -1;
    if (field < 0)
        return PyErr_Format(PyExc_TypeError, "attention() has no keyword %R", name), -1;
    return value == Py_None ? 0 : problem_set(problem, field, value);
}

static int take_named(struct call *c, PyObject *name, PyObject *value)
{
    int keyword = find_keyword(name);
    if (keyword < 0)
        return take_field(name, value, &c->problem);
    PyObject **to = (PyObject **)(void *)((char *)&c->is + keywords[keyword].at);
    if (*to != NULL)
        return PyErr_Format(PyExc_TypeError, "attention() got %s twice", keywords[keyword].name),
               -1;
    *to = value;
    return 0;
}

int call_take_arguments(struct call *c)
{
    PyObject **first[] = {&c->is.q, &c->is.k, &c->is.v};
    Py_ssize_t named = c->names != NULL ? PyTuple_Size(c->names) : 0;
    if (c->count > 3)
        return PyErr_Format(PyExc_TypeError,
                            "attention() takes q, k and v by position; the rest by keyword"),
               -1;
    for (Py_ssize_t i = 0; i < c->count; i++)
        *first[i] = c->args[i];
    for (Py_ssize_t i = 0; i < named; i++)
        if (take_named(c, PyTuple_GetItem(c->names, i), c->args[c->count + i]) != 0)
            return -1;
    for (int i = 0; i < 3; i++)
        if (*first[i] == NULL)
            return PyErr_Format(PyExc_TypeError, "attention() needs %s", keywords[i].name), -1;
    return 0;
}

PyObject *call_words(const struct call *c)
{
    PyObject *const first[] = {c->is.q, c->is.k, c->is.v};
    PyObject *words = PyDict_New();
    for (Py_ssize_t i = 0; words != NULL && c->names != NULL && i < PyTuple_Size(c->names); i++)
        if (PyDict_SetItem(words, PyTuple_GetItem(c->names, i), c->args[c->count + i]) != 0)
            Py_CLEAR(words);
    for (int i = 0; words != NULL && i < 3; i++)
        if (PyDict_SetItem(words, keywords[i].interned, first[i]) != 0)
            Py_CLEAR(words);
    return words;
}

static int take_scale(struct call *c)
{
    if (c->is.scale == NULL || c->is.scale == Py_None)
        return 0;
    double scale = PyFloat_AsDouble(c->is.scale);
    if (scale == -1.0 && PyErr_Occurred())
        return -1;
    c->launch.softmax_scale = (float)scale;
    return scale > 0 && c->launch.softmax_scale > 0 && scale < 2e38
               ? 0
               : fail(ERROR_ARGUMENT,
                      "scale must be positive, at most 2e38; None is 1 / sqrt(head_dim)");
}

int call_take_options(struct call *c)
{
    enum { /* places among the values of a problem */
           CAUSAL = (offsetof(fa_problem, causal) - offsetof(fa_problem, value)) / sizeof(int32_t),
           LAYOUT = (offsetof(fa_problem, layout) - offsetof(fa_problem, value)) / sizeof(int32_t)
    };
    if (c->is.causal != NULL && c->is.causal != Py_None &&
        problem_set(&c->problem, CAUSAL, c->is.causal) != 0)
        return -1;
    if (c->is.layout != NULL && c->is.layout != Py_None &&
        problem_set(&c->problem, LAYOUT, c->is.layout) != 0)
        return -1;
    c->heads = c->problem.layout == FA_BHSD ? 1 : 2;
    c->sequence = 3 - c->heads;
    int wanted = c->is.return_lse != NULL ? PyObject_IsTrue(c->is.return_lse)
                                          : c->problem.want_lse; /* of a bound kernel */
    c->wants_lse = wanted > 0;
    return wanted < 0 ? -1 : take_scale(c);
}
