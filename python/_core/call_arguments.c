/* SPDX-License-Identifier: Apache-2.0
 *
 * The arguments of a call, by position and by name.
 */
#include "call_steps.h"

#include "problem.h"

/* Fields of a problem that the tensors say, or that another keyword does. */
static const char *const not_keywords[] = {
    "dtype",    "head_dim",   "batch",  "heads_q",   "heads_kv", "seq_q",       "seq_k",
    "lse",      "unaligned",  "varlen", "lengths_k", "page",     "window_left", "window_right",
    "kv_dtype", "head_dim_v", "v_in_k", "layout",    "causal",   "window",      "softcap",
    "sinks",    "q_dtype",    "score",  "mask",      "buffers",
};

/* The TypeError for a name that is no argument, with the one that may have been meant. */
static int refuse_keyword(const struct door *door, PyObject *name)
{
    PyObject *names = PyList_New(0), *meant = NULL;
    for (const struct keyword *keyword = door->keywords; names != NULL && keyword->name != NULL;
         keyword++)
        if (PyList_Append(names, keyword->interned) != 0)
            Py_CLEAR(names);
    if (names != NULL)
        meant = call_helper("fa_tune._errors", "did_you_mean", "(OO)", name, names);
    if (meant != NULL)
        PyErr_Format(PyExc_TypeError, "%s() has no argument %R%U", door->name, name, meant);
    Py_XDECREF(meant);
    Py_XDECREF(names);
    return -1;
}

/* None, or the number that says so. Nothing else is looked at, as to ask a tensor for its truth is to wait for its
 * device. */
static bool is_off(PyObject *value, double off)
{
    bool is = value == Py_None ||
              ((PyFloat_Check(value) || PyLong_Check(value)) && PyFloat_AsDouble(value) == off);
    if (PyErr_Occurred() != NULL)
        PyErr_Clear(); /* an int that no double holds */
    return is;
}

/* A field of the operation that is no argument of its own. */
static int take_field(struct call *c, PyObject *name, PyObject *value)
{
    int field = problem_find(name);
    for (size_t i = 0; i < sizeof not_keywords / sizeof *not_keywords; i++)
        if (PyUnicode_CompareWithASCIIString(name, not_keywords[i]) == 0)
            field = -1;
    if (field >= 0)
        return value == Py_None ? 0 : problem_set(&c->problem, field, value);
    bool off = is_off(value, 0);
    if (problem_refuse_feature(name) == 0)
        return refuse_keyword(c->door, name);
    if (off)
        PyErr_Clear();
    return off ? 0 : -1;
}

/* What is not computed here must be off. */
static int refuse_unless_off(const struct call *c, const struct keyword *keyword, PyObject *value)
{
    if (is_off(value, keyword->argument == ONE_OR_REFUSED))
        return 0;
    if (problem_refuse_feature(keyword->interned) != 0)
        return -1;
    return fail(ERROR_NOT_SUPPORTED, "%s() does not take %s: %s", c->door->name, keyword->name,
                c->door->instead);
}

static int take_named(struct call *c, PyObject *name, PyObject *value)
{
    int which = call_find_keyword(c->door, name);
    if (which < 0)
        return take_field(c, name, value);
    const struct keyword *keyword = &c->door->keywords[which];
    if (keyword->argument < 0)
        return keyword->argument == IGNORED ? 0 : refuse_unless_off(c, keyword, value);
    PyObject **to = (PyObject **)(void *)&c->is + keyword->argument;
    if (*to != NULL && value == Py_None)
        return 0; /* by another of its names */
    if (*to != NULL && *to != Py_None)
        return PyErr_Format(PyExc_TypeError, "%s() got %s twice", c->door->name, keyword->name), -1;
    *to = value;
    c->named[keyword->argument] = (uint8_t)(which + 1);
    return 0;
}

/* Values that are the first columns of the keys: k[..., :v_dim]. */
static int view_values(struct call *c)
{
    if (c->is.v != NULL && c->is.v != Py_None)
        return fail(ERROR_ARGUMENT, "%s and v_dim are given: pass one of them",
                    call_name_of(c, &c->is.v));
    PyObject *columns = PySlice_New(NULL, c->is.v_dim, NULL),
             *place = columns != NULL ? PyTuple_Pack(2, Py_Ellipsis, columns) : NULL;
    c->is.v = c->values =
        place != NULL && c->is.k != NULL ? PyObject_GetItem(c->is.k, place) : NULL;
    Py_XDECREF(columns);
    Py_XDECREF(place);
    return c->is.v != NULL || (c->is.k == NULL && !PyErr_Occurred()) ? 0 : -1;
}

int call_take_arguments(struct call *c)
{
    PyObject **first[] = {&c->is.q, &c->is.k, &c->is.v};
    const struct keyword *keywords = c->door->keywords;
    Py_ssize_t named = c->names != NULL ? PyTuple_Size(c->names) : 0;
    if (c->count > 3)
        return PyErr_Format(PyExc_TypeError,
                            "%s() takes %s, %s and %s by position; the rest by keyword",
                            c->door->name, keywords[0].name, keywords[1].name, keywords[2].name),
               -1;
    for (Py_ssize_t i = 0; i < c->count; i++)
        *first[i] = c->args[i];
    for (Py_ssize_t i = 0; i < named; i++)
        if (take_named(c, PyTuple_GetItem(c->names, i), c->args[c->count + i]) != 0)
            return -1;
    if (c->is.v_dim != NULL && c->is.v_dim != Py_None && view_values(c) != 0)
        return -1;
    const char *missing[3];
    int count = 0;
    for (int i = 0; i < 3; i++)
        if (*first[i] == NULL)
            missing[count++] = keywords[i].name;
    if (count > 0)
        PyErr_Format(PyExc_TypeError, "%s() needs %s%s%s%s%s", c->door->name, missing[0],
                     count > 2 ? ", " : "", count > 2 ? missing[1] : "", count > 1 ? " and " : "",
                     count > 1 ? missing[count - 1] : "");
    return count > 0 ? -1 : 0;
}

PyObject *call_words(const struct call *c)
{
    PyObject *const *is = (PyObject *const *)(const void *)&c->is;
    const struct keyword *keyword = doors[DOOR_ATTENTION].keywords;
    PyObject *words = PyDict_New();
    for (; words != NULL && keyword->name != NULL; keyword++)
        if (is[keyword->argument] != NULL && is[keyword->argument] != Py_None &&
            PyDict_SetItem(words, keyword->interned, is[keyword->argument]) != 0)
            Py_CLEAR(words);
    if (words != NULL && c->is.deterministic != NULL &&
        PyDict_SetItemString(words, "deterministic", c->is.deterministic) != 0)
        Py_CLEAR(words);
    if (words == NULL || c->door->layout == FA_BHSD)
        return words;
    PyObject *layout = PyUnicode_FromString(c->door->layout == FA_BSHD ? "bshd" : "bhsd");
    if (layout == NULL || PyDict_SetItemString(words, "layout", layout) != 0)
        Py_CLEAR(words);
    Py_XDECREF(layout);
    return words;
}

int call_take_number(const struct call *c, PyObject *const *argument, double *ret_number)
{
    double number = PyFloat_AsDouble(*argument);
    if (number == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        return fail(ERROR_ARGUMENT, "%s must be a number", call_name_of(c, argument));
    }
    *ret_number = number;
    return 0;
}

static int take_scale(struct call *c)
{
    double scale = 0;
    if (c->is.scale == NULL || c->is.scale == Py_None)
        return 0;
    if (call_take_number(c, &c->is.scale, &scale) != 0)
        return -1;
    c->launch.softmax_scale = (float)scale;
    return scale > 0 && c->launch.softmax_scale > 0 && scale < 2e38
               ? 0
               : fail(ERROR_ARGUMENT,
                      "%s must be positive, at most 2e38; None is 1 / sqrt(head_dim)",
                      call_name_of(c, &c->is.scale));
}

int call_take_options(struct call *c)
{
    enum { /* places among the values of a problem */
           CAUSAL = (offsetof(fa_problem, causal) - offsetof(fa_problem, value)) / sizeof(int32_t),
           LAYOUT = (offsetof(fa_problem, layout) - offsetof(fa_problem, value)) / sizeof(int32_t)
    };
    if (call_take_texts(c) != 0)
        return -1;
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
