/* SPDX-License-Identifier: Apache-2.0
 *
 * The process's tuner, the policy of misses, and tunes: with the GIL released, progress, and Ctrl-C.
 */
#include "session.h"

#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fa_tuner *tuner;
static unsigned number = 1;
static unsigned opened; /* the number of the tuner whose driver is open */
static int under_way;   /* calls that hold the tuner, or are in it without the GIL */
fa_effort policy_effort = FA_EFFORT_MEASURE;
PyObject *policy_on_miss;
PyObject *policy_recorder;
static char policy_same_bits[FA_NAME_MAX]; /* "": none */

/* ---- the tuner ------------------------------------------------------------------------------*/
/* The library may have something to say while the GIL is released. */
void session_note(void *context, const char *sentence)
{
    (void)context;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *done = call_helper("fa_tune._progress", "note", "(s)", sentence);
    if (done == NULL)
        PyErr_Clear();
    Py_XDECREF(done);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(state);
}

static fa_tuner *open_tuner(void)
{
    fa_diag diag = {{0}};
    fa_options options = {.size = sizeof options, .log = session_note};
    fa_tuner *made = NULL;
    memcpy(options.same_bits, policy_same_bits, sizeof options.same_bits);
    int rc = fa_open(&options, &made, &diag);
    if (rc != 0) {
        fail_with(rc, &diag);
        return NULL;
    }
    if (tuner == NULL)
        tuner = made;
    else
        fa_close(&made); /* another thread was here while a note was told */
    return tuner;
}

fa_tuner *session_tuner(void)
{
    return tuner != NULL ? tuner : open_tuner();
}

unsigned session_number(void)
{
    return number;
}

void session_begin(void)
{
    under_way++;
}

void session_end(void)
{
    if (under_way > 0) /* a child that was forked meanwhile begins at 0 */
        under_way--;
}

/* The driver is opened under the tuner's lock, which a tune may hold that waits for the GIL to tell its
 * progress: until it is open, the GIL is released. */
int session_enter(int device, bool *ret_entered, fa_diag *diag)
{
    fa_tuner *mine = session_tuner();
    if (mine == NULL)
        return FA_EINVAL; /* the exception is set */
    if (opened == number)
        return fa_enter_device(mine, device, ret_entered, diag);
    PyThreadState *state = session_release();
    int rc = fa_enter_device(mine, device, ret_entered, diag);
    session_acquire(state);
    if (rc == 0)
        opened = number;
    return rc;
}

PyThreadState *session_release(void)
{
    session_begin();
    return PyEval_SaveThread();
}

void session_acquire(PyThreadState *state)
{
    PyEval_RestoreThread(state);
    session_end();
}

PyObject *session_close(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    fa_tuner *closing = tuner;
    if (under_way > 0) {
        fail(ERROR_ANY, "close() while a call or a tune is under way: wait for it first");
        return NULL;
    }
    tuner = NULL;
    number++;
    fa_close(&closing);
    Py_RETURN_NONE;
}

/* In a forked child: what the parent opened is the parent's, and stays where it is. */
PyObject *session_forget(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    tuner = NULL;
    number++;
    under_way = 0;
    Py_RETURN_NONE;
}

/* ---- policy ---------------------------------------------------------------------------------*/
static void replace(PyObject **to, PyObject *by)
{
    PyObject *old = *to;
    *to = by == Py_None ? NULL : by;
    Py_XINCREF(*to);
    Py_XDECREF(old);
}

PyObject *session_set_policy(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"effort", "on_miss", "same_bits", NULL};
    PyObject *effort_name, *on_miss = Py_None, *closed;
    const char *same_bits = "";
    fa_effort effort;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|Os:set_policy", words, &effort_name, &on_miss,
                                     &same_bits) ||
        effort_from(effort_name, &effort) != 0)
        return NULL;
    /* Kernels that are loaded may have other bits. */
    if (strcmp(same_bits, policy_same_bits) != 0) {
        if ((closed = session_close(self, NULL)) == NULL)
            return NULL;
        Py_DECREF(closed);
        snprintf(policy_same_bits, sizeof policy_same_bits, "%s", same_bits);
    }
    policy_effort = effort;
    replace(&policy_on_miss, on_miss);
    Py_RETURN_NONE;
}

PyObject *session_set_recorder(PyObject *self, PyObject *recorder)
{
    (void)self;
    replace(&policy_recorder, recorder);
    Py_RETURN_NONE;
}

/* ---- tunes ----------------------------------------------------------------------------------*/
static const char *const stages[] = {"wait", "tune", "final", "done"};

static PyObject *progress_dict(const fa_progress *p)
{
    double best = p->best == NULL          ? 0
                  : p->best->median_us > 0 ? p->best->median_us
                                           : p->best->predicted_us;
    return Py_BuildValue("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:d,s:d,s:O}", "stage", stages[p->stage],
                         "space", (int)p->space, "in_budget", (int)p->in_budget, "compiled",
                         (int)p->compiled, "clean", (int)p->clean, "measured", (int)p->measured,
                         "failed", (int)p->failed, "resumed", (int)p->resumed, "elapsed_s",
                         p->elapsed_s, "best_us", best, "best_is_measured",
                         p->best != NULL && p->best->median_us > 0 ? Py_True : Py_False);
}

/* Called without the GIL; a signal handler or the caller's function may raise, which ends the tune. */
static int watch(void *context, const fa_progress *progress)
{
    PyObject *told = context;
    PyGILState_STATE state = PyGILState_Ensure();
    int stop = PyErr_CheckSignals();
    if (stop == 0 && told != NULL) {
        PyObject *dict = progress_dict(progress);
        PyObject *done = dict != NULL ? PyObject_CallFunctionObjArgs(told, dict, NULL) : NULL;
        stop = done == NULL;
        Py_XDECREF(done);
        Py_XDECREF(dict);
    }
    PyGILState_Release(state);
    return stop;
}

/* The function that progress goes to: a new reference, or NULL for none. */
static int take_progress(PyObject *given, PyObject **ret_told)
{
    PyObject *told = given;
    if (given == NULL || given == Py_None)
        told = call_helper("fa_tune._progress", "on_terminal", "()");
    else
        Py_INCREF(told);
    if (told == NULL)
        return -1;
    if (told == Py_None || told == Py_False) {
        Py_DECREF(told);
        told = NULL;
    }
    *ret_told = told;
    return 0;
}

/* What is drawn on a terminal is erased, whatever happened. */
static void end_progress(PyObject *told)
{
    PyObject *type, *value, *trace, *done = NULL;
    if (told == NULL)
        return;
    PyErr_Fetch(&type, &value, &trace);
    if (PyObject_HasAttrString(told, "close"))
        done = PyObject_CallMethod(told, "close", NULL);
    Py_XDECREF(done);
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
    Py_DECREF(told);
}

/* fa_tune() with progress; the GIL is held before and after. */
static int tune(fa_request *request, PyObject *progress, fa_answer *ret_answer, fa_diag *diag)
{
    fa_tuner *mine = session_tuner();
    PyObject *told = NULL;
    if (mine == NULL || take_progress(progress, &told) != 0)
        return FA_EINVAL; /* the exception is set */
    request->progress = watch;
    request->context = told;
    PyThreadState *state = session_release();
    int rc = fa_tune(mine, request, ret_answer, diag);
    session_acquire(state);
    end_progress(told);
    return rc;
}

static int get_kernel(fa_tuner *mine, const fa_problem *problem, fa_effort effort,
                      const fa_kernel **ret_kernel, fa_diag *diag)
{
    PyThreadState *state = session_release();
    int rc = fa_get_best_kernel(mine, problem, effort, ret_kernel, diag);
    session_acquire(state);
    return rc;
}

/* As fail_with(); a winner that was only looked for can be tuned. */
static int fail_to_tune(int rc, fa_effort effort, fa_diag *diag)
{
    const size_t used = strlen(diag->text);
    if (rc == FA_ENOTFOUND && effort == FA_EFFORT_CACHED)
        snprintf(diag->text + used, sizeof diag->text - used, ": effort=\"measure\" tunes it");
    return fail_with(rc, diag);
}

int session_kernel(fa_request *request, PyObject *progress, const fa_kernel **ret_kernel)
{
    const fa_problem *problem = &request->problem;
    fa_effort effort = request->effort;
    fa_tuner *mine = session_tuner();
    fa_diag diag = {{0}};
    fa_answer answer = {.size = sizeof answer};
    bool entered = false;
    int rc = mine != NULL ? session_enter(request->ordinal, &entered, &diag) : FA_EINVAL;
    if (rc != 0)
        return fail_with(rc, &diag);
    if (effort != FA_EFFORT_PATIENT)
        rc = fa_get_loaded_kernel(mine, problem, effort, ret_kernel, &diag);
    if (rc != 0 || effort == FA_EFFORT_PATIENT) {
        /* A stored winner needs no tune, and a tune can tell its progress and be ended only here. */
        request->first_contact = effort == FA_EFFORT_MEASURE;
        rc = effort > FA_EFFORT_CACHED ? tune(request, progress, &answer, &diag) : 0;
        if (rc == 0)
            rc = get_kernel(mine, problem, effort == FA_EFFORT_PATIENT ? FA_EFFORT_MEASURE : effort,
                            ret_kernel, &diag);
    }
    if (entered)
        fa_leave_device(mine);
    return rc == 0 ? 0 : fail_to_tune(rc, effort, &diag);
}

int session_near_kernel(const fa_problem *problem, int device, const fa_kernel **ret_kernel)
{
    fa_tuner *mine = session_tuner();
    fa_diag diag = {{0}};
    bool entered = false;
    int rc = mine != NULL ? session_enter(device, &entered, &diag) : FA_EINVAL;
    if (rc != 0)
        return fail_with(rc, &diag);
    PyThreadState *state = session_release(); /* another thread may hold the tuner's lock */
    rc = fa_get_near_kernel(mine, problem, ret_kernel, &diag);
    session_acquire(state);
    if (entered)
        fa_leave_device(mine);
    return rc == 0 ? 0 : fail_with(rc, &diag);
}

PyObject *session_tune(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"problem", "gpu",       "device",   "effort",      "again",
                            "exact",   "progress",  "strategy", "evaluations", "seconds",
                            "memory",  "same_bits", NULL};
    PyObject *dict, *effort_name = NULL, *progress = NULL;
    const char *same_bits = "";
    fa_request request = {.size = sizeof request, .effort = FA_EFFORT_MEASURE};
    fa_answer answer = {.size = sizeof answer};
    fa_diag diag = {{0}};
    char *text = NULL;
    int device = 0, again = 0, exact = 0;
    long long memory = 0;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|ziOppOzidLs:tune", words, &dict, &request.gpu,
                                     &device, &effort_name, &again, &exact, &progress,
                                     &request.strategy, &request.evaluations, &request.seconds,
                                     &memory, &same_bits) ||
        (effort_name != NULL && effort_from(effort_name, &request.effort) != 0) ||
        problem_from_dict(dict, &request.problem) != 0)
        return NULL;
    request.ordinal = device;
    request.memory = memory;
    snprintf(request.same_bits, sizeof request.same_bits, "%s", same_bits);
    request.again = again != 0;
    request.exact = exact != 0;
    int rc = tune(&request, progress, &answer, &diag);
    if (rc == 0)
        rc = fa_answer_write(&answer, &text, &diag);
    if (rc != 0) {
        fail_to_tune(rc, request.effort, &diag);
        return NULL;
    }
    PyObject *result = json_loads(text);
    free(text);
    return result;
}
