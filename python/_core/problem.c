/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems of attention as dicts and keywords: by the table of the operation's fields, so that a field
 * that the operation gains is taken here without a line.
 */
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    PyObject *name; /* interned */
    fa_field_info info;
} fields[FA_PROBLEM_VALUES];
static int field_count;

int problem_init(void)
{
    for (int i = 0; i < FA_PROBLEM_VALUES; i++) {
        fa_field_info info = {.size = sizeof info};
        if (fa_operation_field(NULL, i, &info) != 0)
            break;
        fields[i].info = info;
        fields[i].name = PyUnicode_InternFromString(info.name);
        if (fields[i].name == NULL)
            return -1;
        field_count++;
    }
    return 0;
}

int problem_find(PyObject *name)
{
    for (int i = 0; i < field_count; i++)
        if (fields[i].name == name)
            return i;
    for (int i = 0; i < field_count; i++)
        if (PyUnicode_Check(name) && PyUnicode_Compare(fields[i].name, name) == 0)
            return i;
    return -1;
}

/* "none", "bottom-right" or "top-left" */
static void list_choices(const fa_field_info *info, char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = 0;
    for (int i = 0; info->choices[i] != NULL && used < size; i++)
        used += (size_t)snprintf(ret_text + used, size - used, "%s\"%s\"",
                                 i == 0                         ? ""
                                 : info->choices[i + 1] == NULL ? " or "
                                                                : ", ",
                                 info->choices[i]);
}

static int set_choice(fa_problem *problem, int field, PyObject *value)
{
    const fa_field_info *info = &fields[field].info;
    char known[256];
    for (int i = 0; PyUnicode_Check(value) && info->choices[i] != NULL; i++)
        if (PyUnicode_CompareWithASCIIString(value, info->choices[i]) == 0) {
            problem->value[field] = i;
            return 0;
        }
    list_choices(info, known, sizeof known);
    return fail(ERROR_ARGUMENT, "%s must be %s", info->name, known);
}

/* A field of any text: "choices" without one. */
static bool is_text(const fa_field_info *info)
{
    return info->choices != NULL && info->choices[0] == NULL;
}

static int set_text(fa_problem *problem, int field, PyObject *value)
{
    const char *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
    fa_diag diag = {{0}};
    PyErr_Clear();
    if (text == NULL)
        return fail(ERROR_ARGUMENT, "%s must be a str", fields[field].info.name);
    int rc = fa_set_field(problem, fields[field].info.name, text, &diag);
    return rc == 0 ? 0 : fail(ERROR_ARGUMENT, "%s: %s", fields[field].info.name, diag.text);
}

int problem_set(fa_problem *problem, int field, PyObject *value)
{
    const fa_field_info *info = &fields[field].info;
    if (is_text(info))
        return set_text(problem, field, value);
    if (PyBool_Check(value) && (info->boolean || info->choices != NULL)) {
        problem->value[field] = value == Py_True; /* of choices the first two: no and yes */
        return 0;
    }
    if (info->choices != NULL && !PyLong_Check(value))
        return set_choice(problem, field, value);
    if (info->boolean || !PyLong_Check(value))
        return fail(ERROR_ARGUMENT, "%s must be %s", info->name,
                    info->boolean ? "True or False" : "an int");
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0 || number < info->min || number > info->max)
        return fail(ERROR_ARGUMENT, "%s must be %d to %d", info->name, (int)info->min,
                    (int)info->max);
    problem->value[field] = (int32_t)number;
    return 0;
}

/* Makes the operations of FA_TUNE_TEMPLATES known, as they are to a tuner. */
static int load_operations(fa_diag *diag)
{
    const char *templates = getenv("FA_TUNE_TEMPLATES");
    return templates != NULL && templates[0] != 0 ? fa_load_operations(templates, diag) : 0;
}

/* The dict with the defaults of numbers that it lacks: a new reference. Other fields have theirs from the
 * library, which also knows those that follow another field, and says what it does not know of the operation. */
static PyObject *complete(PyObject *dict)
{
    PyObject *whole = PyDict_Copy(dict), *name = PyDict_GetItemString(dict, "operation");
    const char *text =
        name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    const fa_operation *operation = NULL;
    fa_field_info info = {.size = sizeof info};
    bool known = name == NULL || (text != NULL && fa_find_operation(text, &operation, NULL) == 0);
    PyErr_Clear();
    for (int i = 0; whole != NULL && known && fa_operation_field(operation, i, &info) == 0; i++) {
        if (info.preset == 0 || info.choices != NULL || info.required ||
            PyDict_GetItemString(dict, info.name) != NULL)
            continue;
        PyObject *value = PyLong_FromLong(info.preset);
        if (value == NULL || PyDict_SetItemString(whole, info.name, value) != 0)
            Py_CLEAR(whole);
        Py_XDECREF(value);
    }
    return whole;
}

int problem_from_dict(PyObject *dict, fa_problem *ret_problem)
{
    fa_diag diag = {{0}};
    Py_ssize_t size;
    if (!PyDict_Check(dict))
        return fail(ERROR_ARGUMENT, "a problem is a dict of its fields");
    int rc = PyDict_GetItemString(dict, "operation") != NULL ? load_operations(&diag) : 0;
    if (rc != 0)
        return fail_with(rc, &diag);
    PyObject *whole = complete(dict), *text = NULL;
    if (whole != NULL)
        text = call_helper("json", "dumps", "(N)", whole);
    const char *bytes = text != NULL ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
    rc = bytes != NULL ? fa_problem_read(bytes, (size_t)size, ret_problem, &diag) : 0;
    Py_XDECREF(text);
    if (bytes == NULL)
        return -1;
    return rc == 0 ? 0 : fail_with(rc, &diag);
}

PyObject *problem_to_dict(const fa_problem *problem)
{
    fa_diag diag = {{0}};
    char *text = NULL;
    int rc = fa_problem_write(problem, &text, &diag);
    if (rc != 0) {
        fail_with(rc, &diag);
        return NULL;
    }
    PyObject *dict = json_loads(text);
    free(text);
    return dict;
}

PyObject *problem_complete(PyObject *self, PyObject *dict)
{
    fa_problem problem;
    (void)self;
    return problem_from_dict(dict, &problem) == 0 ? problem_to_dict(&problem) : NULL;
}

PyObject *problem_specification(PyObject *self, PyObject *args)
{
    const char *where, *text = NULL, *source = NULL;
    const fa_operation *operation = NULL;
    fa_diag diag = {{0}};
    char name[128];
    (void)self;
    if (!PyArg_ParseTuple(args, "szz", &where, &text, &source))
        return NULL;
    int rc = text != NULL ? fa_spec_read(where, text, source, &operation, &diag)
                          : fa_spec_load(where, &operation, &diag);
    if (rc == 0)
        rc = fa_spec_name(operation, name, sizeof name, &diag);
    if (rc == 0)
        return PyUnicode_FromString(name);
    fail_with(rc == FA_ENOTFOUND ? FA_EINVAL : rc, &diag); /* no such file, not: no such winner */
    return NULL;
}

/* What a field may be: a list of words, bool, or a pair of ints. */
static PyObject *values_of(const fa_field_info *info)
{
    if (info->choices == NULL && info->boolean)
        return Py_BuildValue("O", (PyObject *)&PyBool_Type);
    if (info->choices == NULL)
        return Py_BuildValue("(ii)", (int)info->min, (int)info->max);
    if (is_text(info))
        return Py_BuildValue("O", (PyObject *)&PyUnicode_Type);
    PyObject *words = PyList_New(0);
    for (int i = 0; words != NULL && info->choices[i] != NULL; i++) {
        PyObject *word = PyUnicode_FromString(info->choices[i]);
        if (word == NULL || PyList_Append(words, word) != 0)
            Py_CLEAR(words);
        Py_XDECREF(word);
    }
    return words;
}

static PyObject *preset_of(const fa_field_info *info)
{
    return info->choices != NULL
               ? PyUnicode_FromString(is_text(info) ? "" : info->choices[info->preset])
           : info->boolean ? PyBool_FromLong(info->preset)
                           : PyLong_FromLong(info->preset);
}

PyObject *problem_fields(PyObject *self, PyObject *name)
{
    const char *text = name != Py_None ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    const fa_operation *operation = NULL;
    fa_field_info info = {.size = sizeof info};
    fa_diag diag = {{0}};
    (void)self;
    if (text == NULL && name != Py_None)
        return NULL;
    int rc = text != NULL ? load_operations(&diag) : 0;
    if (rc == 0 && text != NULL)
        rc = fa_find_operation(text, &operation, &diag);
    if (rc != 0) {
        fail_with(rc, &diag);
        return NULL;
    }
    PyObject *all = PyDict_New();
    for (int i = 0; all != NULL && fa_operation_field(operation, i, &info) == 0; i++) {
        PyObject *values = values_of(&info), *field = NULL;
        if (values != NULL)
            field = Py_BuildValue("(NN)", values, preset_of(&info));
        if (field == NULL || PyDict_SetItemString(all, info.name, field) != 0)
            Py_CLEAR(all);
        Py_XDECREF(field);
    }
    return all;
}

int problem_refuse_feature(PyObject *name)
{
    PyObject *fields = problem_fields(NULL, Py_None);
    PyObject *none = fields != NULL
                         ? call_helper("fa_tune._errors", "refuse_feature", "(ON)", name, fields)
                         : NULL;
    Py_XDECREF(none);
    return none != NULL ? 0 : -1;
}

int effort_from(PyObject *name, fa_effort *ret_effort)
{
    static const char *const names[] = {"cached", "predict", "measure", "patient"};
    for (int i = 0; name != NULL && PyUnicode_Check(name) && i < 4; i++)
        if (PyUnicode_CompareWithASCIIString(name, names[i]) == 0) {
            *ret_effort = (fa_effort)i;
            return 0;
        }
    return fail(ERROR_ARGUMENT,
                "effort must be \"cached\", \"predict\", \"measure\" or \"patient\"");
}
