/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps, what is stored, and the doctor: see store.h.
 *
 * The GIL is released while the library works; its callbacks come on the same thread and take the GIL again. One that
 * raises, or Ctrl-C, ends the library's call, and the exception is the caller's.
 */
#include "store.h"

#include "kernel.h"
#include "problem.h"
#include "session.h"

#include "fa_bundle.h"

#include <stdlib.h>
#include <string.h>

/* The library's text as a Python object; `rc` is what writing it returned. */
static PyObject *parsed(int rc, char *text, const fa_diag *diag)
{
    PyObject *object = rc == 0 ? json_loads(text) : NULL;
    if (rc != 0)
        fail_with(rc, diag);
    free(text);
    return object;
}

/* A name as it was stored, which may be anything. */
static PyObject *stored_name(const char *name)
{
    return PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace");
}

/* Calls the function with `item`, whose reference is taken. Non-zero after an exception. */
static int tell(PyObject *function, PyObject *item)
{
    PyObject *done = item != NULL ? PyObject_CallFunctionObjArgs(function, item, NULL) : NULL;
    Py_XDECREF(item);
    Py_XDECREF(done);
    return done == NULL;
}

/* ---- sweeps ---------------------------------------------------------------------------------*/
/* The library's text as an object; None where there is none. */
static PyObject *parsed_or_none(int rc, char *text, const fa_diag *diag)
{
    return rc == 0 && text == NULL ? Py_NewRef(Py_None) : parsed(rc, text, diag);
}

#define STATE(name, value, word) [value] = word,
/* An event, as a dict. */
static PyObject *event_of(const fa_sweep_progress *event)
{
    static const char *const events[] = {"begins", "tunes", "ends", "known"};
    static const char *const states[] = {FA_ITEM_STATES(STATE)};
    const fa_sweep_item *item = event->item;
    fa_diag diag = {{0}};
    char *sweep = NULL, *tune = NULL, *answer = NULL;
    int rc = fa_sweep_write(event->sweep, &sweep, &diag);
    if (rc == 0 && event->tune != NULL)
        rc = fa_progress_write(event->tune, &tune, &diag);
    if (rc == 0 && event->answer != NULL)
        rc = fa_answer_write(event->answer, &answer, &diag);
    return Py_BuildValue(
        "{s:s,s:i,s:d,s:N,s:N,s:N,s:{s:N,s:N,s:s,s:i,s:N,s:{s:d,s:L,s:L,s:L}}}", "event",
        events[event->event], "index", (int)event->index, "elapsed_s", event->elapsed_s, "sweep",
        parsed(rc, sweep, &diag), "tune", parsed_or_none(rc, tune, &diag), "answer",
        parsed_or_none(rc, answer, &diag), "item", "problem", problem_to_dict(&item->problem),
        "gpu", stored_name(item->gpu), "state", states[item->state], "attempts",
        (int)item->attempts, "reason", stored_name(item->reason), "spent", "seconds",
        item->spent.seconds, "trials", (long long)item->spent.trials, "cubins_compiled",
        (long long)item->spent.compiled, "cubins_reused", (long long)item->spent.reused);
}

static int on_sweep(void *context, const fa_sweep_progress *event)
{
    PyGILState_STATE state = PyGILState_Ensure();
    int stop = PyErr_CheckSignals(); /* Ctrl-C is heard also where there is nothing to tell */
    if (stop == 0 && event->event != FA_SWEEP_IDLE)
        stop = tell(context, event_of(event));
    PyGILState_Release(state);
    return stop;
}

/* Runs the sweep, and tells how its items stand at the end, also those that no event was about. */
static int run(fa_tuner *tuner, const fa_sweep_request *request, PyObject *on_end,
               fa_sweep *ret_sweep, fa_diag *diag)
{
    fa_sweep_item *item = NULL;
    size_t count = 0;
    PyThreadState *state = session_release();
    int rc = fa_run_sweep(tuner, request, ret_sweep, diag);
    if (rc == 0)
        rc = fa_list_sweep_items(tuner, ret_sweep->key, &item, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        fa_sweep_progress progress = {.event = FA_SWEEP_ITEM_ENDS,
                                      .sweep = ret_sweep,
                                      .index = item[i].index,
                                      .item = &item[i]};
        rc = on_sweep(on_end, &progress);
    }
    free(item);
    session_acquire(state);
    return rc;
}

PyObject *store_sweep(PyObject *self, PyObject *args)
{
    const char *ask;
    Py_ssize_t size;
    PyObject *on_event, *on_end;
    fa_sweep_ask asked = {.items = NULL};
    fa_sweep sweep = {.items = 0};
    fa_diag diag = {{0}};
    char *text = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "s#OO:sweep", &ask, &size, &on_event, &on_end))
        return NULL;
    fa_tuner *tuner = session_tuner();
    if (tuner == NULL)
        return NULL;
    int rc = fa_sweep_ask_read(ask, (size_t)size, &asked, &diag);
    if (rc == 0) {
        asked.request.progress = on_sweep;
        asked.request.context = on_event;
        rc = run(tuner, &asked.request, on_end, &sweep, &diag);
    }
    free(asked.items);
    if (rc == 0)
        rc = fa_sweep_write(&sweep, &text, &diag);
    return parsed(rc, text, &diag);
}

/* ---- a bundle of one winner -------------------------------------------------------------------*/
/* The newest specification of a name counts as the one that a kernel was tuned of. */
static bool same_name(const fa_operation *one, const fa_operation *other)
{
    char names[2][128];
    if (fa_spec_name(one, names[0], sizeof names[0], NULL) != 0 ||
        fa_spec_name(other, names[1], sizeof names[1], NULL) != 0)
        return false;
    const size_t length = strcspn(names[0], "@");
    return length == strcspn(names[1], "@") && strncmp(names[0], names[1], length) == 0;
}

/* Whether it is the winner that a kernel was loaded of. Listed winners have the newest operation of their name. */
static bool is_kernels(void *context, const fa_answer *answer)
{
    const fa_answer *own = fa_kernel_answer(context);
    const fa_problem *tuned = &own->from_problem;
    return strcmp(answer->cubin_key, own->cubin_key) == 0 &&
           strcmp(answer->gpu.name, own->gpu.name) == 0 && answer->unix_time == own->unix_time &&
           !(answer->trial.median_us < own->trial.median_us ||
             answer->trial.median_us > own->trial.median_us) &&
           same_name(answer->problem.operation, tuned->operation) &&
           memcmp(answer->problem.value, tuned->value, sizeof tuned->value) == 0;
}

/* What a function returns that was given a path, which it lets go. */
static PyObject *file_done(PyObject *path, int rc, const fa_diag *diag)
{
    Py_DECREF(path);
    if (rc != 0) {
        fail_with(rc, diag);
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *store_export(PyObject *self, PyObject *args)
{
    PyObject *object, *path = NULL;
    fa_diag diag = {{0}};
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O&:export", kernel_type, &object, PyUnicode_FSConverter, &path))
        return NULL;
    const fa_kernel *kernel = kernel_alive(object);
    fa_tuner *tuner = kernel != NULL ? session_tuner() : NULL;
    fa_export_options options = {.size = sizeof options,
                                 .file = PyBytes_AsString(path),
                                 .keep = is_kernels,
                                 .context = (void *)(uintptr_t)kernel};
    fa_bundle_info info;
    int rc = FA_EINVAL;
    if (tuner != NULL) {
        PyThreadState *state = session_release();
        rc = fa_export(tuner, &options, &info, &diag);
        session_acquire(state);
    }
    return file_done(path, rc, &diag);
}

PyObject *store_import(PyObject *self, PyObject *args)
{
    PyObject *path = NULL;
    fa_diag diag = {{0}};
    fa_bundle_info info;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&:import_bundle", PyUnicode_FSConverter, &path))
        return NULL;
    fa_tuner *tuner = session_tuner();
    fa_import_options options = {.size = sizeof options, .file = PyBytes_AsString(path)};
    int rc = FA_EINVAL;
    if (tuner != NULL) {
        PyThreadState *state = session_release();
        rc = fa_import(tuner, &options, &info, &diag);
        session_acquire(state);
    }
    return file_done(path, rc, &diag);
}

/* ---- winners, the doctor --------------------------------------------------------------------*/
/* A tuner that makes no store where none is. */
static int open_existing(fa_tuner **ret_tuner, fa_diag *diag)
{
    fa_options options = {.size = sizeof options, .existing_store = true, .log = session_note};
    return fa_open(&options, ret_tuner, diag);
}

/* Adds an item, whose reference is taken, to a list; *list becomes NULL after an exception. */
static void append(PyObject **list, PyObject *item)
{
    if (*list != NULL && (item == NULL || PyList_Append(*list, item) != 0))
        Py_CLEAR(*list);
    Py_XDECREF(item);
}

PyObject *store_winners(PyObject *self, PyObject *unused)
{
    fa_tuner *tuner = NULL;
    fa_answer *answer = NULL;
    fa_diag diag = {{0}};
    size_t count = 0;
    (void)self, (void)unused;
    PyThreadState *state = PyEval_SaveThread();
    int rc = open_existing(&tuner, &diag);
    if (rc == 0)
        rc = fa_list_winners(tuner, &answer, &count, NULL, &diag);
    fa_close(&tuner);
    PyEval_RestoreThread(state);
    if (rc != 0)
        fail_with(rc, &diag);
    PyObject *list = rc == 0 ? PyList_New(0) : NULL;
    for (size_t i = 0; list != NULL && i < count; i++) {
        char *text = NULL;
        rc = fa_answer_write(&answer[i], &text, &diag);
        append(&list, parsed(rc, text, &diag));
    }
    free(answer);
    return list;
}

PyObject *store_doctor(PyObject *self, PyObject *unused)
{
    static const char *const levels[] = {"ok", "warn", "fail"};
    fa_options options = {.size = sizeof options};
    fa_check *check = NULL;
    fa_diag diag = {{0}};
    size_t count = 0;
    (void)self, (void)unused;
    PyThreadState *state = PyEval_SaveThread();
    int rc = fa_doctor(&options, &check, &count, &diag);
    PyEval_RestoreThread(state);
    if (rc != 0)
        fail_with(rc, &diag);
    PyObject *list = rc == 0 ? PyList_New(0) : NULL;
    for (size_t i = 0; list != NULL && i < count; i++)
        append(&list, Py_BuildValue("(ssss)", levels[check[i].level], check[i].name, check[i].text,
                                    check[i].advice));
    free(check);
    return list;
}

/* ---- reports --------------------------------------------------------------------------------*/
/* The function that was given, or NULL; an exception of it ends the report at the next problem. */
struct kept_by {
    PyObject *function;
    bool failed;
};

/* Whether the function, called with a problem's dict and a GPU's name, returns what is true. */
static bool is_kept(struct kept_by *by, PyObject *problem, const char *gpu)
{
    PyObject *kept = NULL;
    if (problem != NULL && !by->failed)
        kept = PyObject_CallFunction(by->function, "ON", problem, stored_name(gpu));
    int yes = kept != NULL ? PyObject_IsTrue(kept) : -1;
    by->failed = by->failed || yes < 0;
    Py_XDECREF(kept);
    Py_XDECREF(problem);
    return yes > 0;
}

static bool keep_problem(const void *context, const fa_problem *problem, const char *gpu)
{
    struct kept_by *const *by = context;
    PyGILState_STATE state = PyGILState_Ensure();
    bool kept = is_kept(*by, (*by)->failed ? NULL : problem_to_dict(problem), gpu);
    PyGILState_Release(state);
    return kept;
}

static bool ends_report(const void *context, int32_t done, int32_t all)
{
    struct kept_by *const *by = context;
    (void)done;
    (void)all;
    PyGILState_STATE state = PyGILState_Ensure();
    (*by)->failed = (*by)->failed || PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    return (*by)->failed;
}

PyObject *store_report(PyObject *self, PyObject *args)
{
    const char *format;
    char *text = NULL;
    size_t size = 0;
    fa_diag diag = {{0}};
    fa_tuner *tuner = NULL;
    struct kept_by by = {0}, *context = &by;
    fa_report_options options = {
        .size = sizeof options, .keep = keep_problem, .progress = ends_report, .context = &context};
    (void)self;
    if (!PyArg_ParseTuple(args, "sO:report", &format, &by.function))
        return NULL;
    options.format = strcmp(format, "html") == 0 ? FA_REPORT_HTML : FA_REPORT_JSON;
    PyThreadState *state = PyEval_SaveThread();
    int rc = open_existing(&tuner, &diag);
    if (rc == 0)
        rc = fa_write_report(tuner, &options, &text, &size, &diag);
    fa_close(&tuner);
    PyEval_RestoreThread(state);
    if (rc != 0 || PyErr_Occurred() != NULL) {
        free(text);
        fail_with(rc, &diag);
        return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(text, (Py_ssize_t)size);
    free(text);
    return bytes;
}

/* ---- forgetting -----------------------------------------------------------------------------*/
/* The problem of a study: what is stored where it cannot be read, as far as that is an object. */
static PyObject *problem_of(const fa_study *study)
{
    if (study->unread == NULL)
        return problem_to_dict(&study->problem);
    PyObject *stored = json_loads(study->unread);
    if (stored != NULL && PyDict_Check(stored))
        return stored;
    Py_XDECREF(stored);
    PyErr_Clear();
    return PyDict_New();
}

static PyObject *answer_of(const fa_study *study)
{
    fa_diag diag = {{0}};
    char *text = NULL;
    if (!study->has_winner || study->unread != NULL)
        Py_RETURN_NONE;
    int rc = fa_answer_write(&study->winner, &text, &diag);
    return parsed(rc, text, &diag);
}

static PyObject *study_dict(const fa_study *study)
{
    return Py_BuildValue("{s:N,s:O,s:N,s:L,s:N}", "problem", problem_of(study), "unread",
                         study->unread != NULL ? Py_True : Py_False, "gpu",
                         stored_name(study->gpu.name), "unix_time", (long long)study->unix_time,
                         "answer", answer_of(study));
}

/* Of the studies those that the function (or None) is true of come first, as dicts in a list. NULL: an exception. */
static PyObject *choose(PyObject *select, fa_study *study, size_t *count)
{
    PyObject *chosen = PyList_New(0);
    size_t left = 0;
    for (size_t i = 0; chosen != NULL && i < *count; i++) {
        PyObject *dict = study_dict(&study[i]), *said = NULL;
        if (dict != NULL && select != Py_None)
            said = PyObject_CallFunctionObjArgs(select, dict, NULL);
        int goes = dict == NULL        ? -1
                   : select == Py_None ? 1
                   : said != NULL      ? PyObject_IsTrue(said)
                                       : -1;
        if (goes < 0 || (goes > 0 && PyList_Append(chosen, dict) != 0))
            Py_CLEAR(chosen);
        if (goes > 0)
            study[left++] = study[i];
        Py_XDECREF(said);
        Py_XDECREF(dict);
    }
    *count = left;
    return chosen;
}

PyObject *store_forget(PyObject *self, PyObject *args)
{
    PyObject *select, *gone = NULL;
    fa_forgotten did = {0};
    fa_tuner *tuner = NULL;
    fa_study *study = NULL;
    fa_diag diag = {{0}};
    size_t count = 0;
    int dry_run;
    (void)self;
    if (!PyArg_ParseTuple(args, "Op:forget", &select, &dry_run))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    int rc = open_existing(&tuner, &diag);
    if (rc == 0)
        rc = fa_list_studies(tuner, &study, &count, &diag);
    PyEval_RestoreThread(state);
    if (rc == 0)
        gone = choose(select, study, &count);
    state = PyEval_SaveThread();
    if (gone != NULL)
        rc = fa_forget(tuner, study, select != Py_None ? &count : NULL, dry_run != 0, &did, &diag);
    free(study);
    fa_close(&tuner);
    PyEval_RestoreThread(state);
    if (rc == 0 && gone != NULL)
        return Py_BuildValue("N{s:L,s:L,s:L}", gone, "trials", (long long)did.trials, "cubins",
                             (long long)did.cubins, "bytes", (long long)did.bytes);
    Py_XDECREF(gone);
    fail_with(rc, &diag);
    return NULL;
}

/* ---- values of other tuners -----------------------------------------------------------------*/
static PyObject *kept_tuple(const fa_kept *kept)
{
    return Py_BuildValue("sssssLLy#", kept->key, kept->tuner, kept->name, kept->gpu, kept->made,
                         (long long)kept->unix_time, (long long)kept->size,
                         (const char *)kept->bytes,
                         kept->bytes != NULL ? (Py_ssize_t)kept->size : 0);
}

PyObject *store_kept(PyObject *self, PyObject *args)
{
    const char *key;
    int hold;
    fa_kept *kept = NULL;
    size_t count = 0;
    fa_diag diag = {{0}};
    (void)self;
    if (!PyArg_ParseTuple(args, "zp:kept", &key, &hold))
        return NULL;
    fa_tuner *tuner = session_tuner();
    if (tuner == NULL)
        return NULL;
    PyThreadState *state = session_release();
    int rc = fa_list_kept(tuner, key, hold != 0, &kept, &count, &diag);
    session_acquire(state);
    if (rc == FA_EBUSY && diag.text[0] == 0)
        Py_RETURN_NONE;
    if (rc != 0 && rc != FA_ENOTFOUND) {
        fail_with(rc, &diag);
        return NULL;
    }
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++)
        append(&list, kept_tuple(&kept[i]));
    free(kept);
    return list;
}

PyObject *store_keep(PyObject *self, PyObject *args)
{
    fa_kept value = {0};
    Py_ssize_t size = 0;
    fa_diag diag = {{0}};
    const char *bytes;
    (void)self;
    if (!PyArg_ParseTuple(args, "sssssz#:keep", &value.key, &value.tuner, &value.name, &value.gpu,
                          &value.made, &bytes, &size))
        return NULL;
    value.bytes = bytes;
    value.size = size;
    fa_tuner *tuner = session_tuner();
    if (tuner == NULL)
        return NULL;
    PyThreadState *state = session_release();
    int rc = fa_keep(tuner, &value, &diag);
    session_acquire(state);
    if (rc == 0)
        Py_RETURN_NONE;
    fail_with(rc, &diag);
    return NULL;
}

/* ---- GPUs -----------------------------------------------------------------------------------*/
PyObject *store_gpu(PyObject *self, PyObject *args)
{
    const char *name;
    int device = 0;
    fa_gpu gpu;
    fa_diag diag = {{0}};
    (void)self;
    if (!PyArg_ParseTuple(args, "z|i:gpu", &name, &device))
        return NULL;
    int rc = fa_gpu_find(name, device, &gpu, &diag);
    if (rc == 0)
        return Py_BuildValue("siiiiLii", gpu.name, (int)gpu.sm, (int)gpu.sm_count,
                             (int)gpu.smem_per_block, (int)gpu.smem_per_sm, (long long)gpu.l2_bytes,
                             (int)gpu.memory_bus_bits, (int)gpu.clock_mhz);
    fail_with(rc == FA_ENOTFOUND ? FA_EINVAL : rc,
              &diag); /* a wrong argument, not a missing winner */
    return NULL;
}

PyObject *store_gpu_types(PyObject *self, PyObject *args)
{
    PyObject *list = PyList_New(0);
    fa_gpu gpu;
    (void)self, (void)args;
    for (int32_t i = 0; list != NULL && fa_gpu_type(i, &gpu, NULL) == 0; i++) {
        PyObject *name = PyUnicode_FromString(gpu.name);
        if (name == NULL || PyList_Append(list, name) != 0)
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}
