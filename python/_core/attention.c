/* SPDX-License-Identifier: Apache-2.0
 *
 * fa_tune.attention(q, k, v, …) and its sisters: from tensors to a launch.
 *
 * Workload: each attention layer of every step; all of it is host time before the GPU starts. For tensors with
 * an exchange table nothing here makes a Python object but the outputs that the caller did not pass.
 * Invariant: what is not loaded yet is never loaded, tuned or allocated while the stream is captured.
 */
#include "attention.h"

#include "call_steps.h"
#include "kernel.h"
#include "problem.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>

/* ---- kernels ----------------------------------------------------------------------------------*/
/* Asks the policy's function: a kernel, or what the call is to return in the place of ours, or, while the stream is
 * captured and none will do that is loaded, neither. */
static int ask_policy(struct call *c, const fa_kernel **ret_kernel, PyObject **ret_instead)
{
    fa_diag diag = {{0}};
    bool captured = false;
    int rc = fa_stream_is_captured(c->tuner, c->place.stream, &captured, &diag);
    if (rc != 0)
        return fail_with(rc, &diag);
    PyObject *problem = problem_to_dict(&c->problem), *words = call_words(c);
    PyObject *answer = NULL;
    if (problem != NULL && words != NULL)
        answer = PyObject_CallFunction(policy_on_miss, "OiOO", problem, (int)c->place.device, words,
                                       captured ? Py_True : Py_False);
    Py_XDECREF(words);
    Py_XDECREF(problem);
    if (answer == NULL)
        return -1;
    if (captured && answer == Py_None) {
        Py_DECREF(answer);
        return 0;
    }
    if (kernel_unwrap(answer) == NULL) {
        *ret_instead = answer;
        return 0;
    }
    *ret_kernel = kernel_alive(answer); /* the tuner's own */
    Py_DECREF(answer);
    return *ret_kernel != NULL ? 0 : -1;
}

int call_refuse_capture(const struct call *c, const char *what, const char *advice)
{
    fa_diag diag = {{0}};
    bool captured = false;
    int rc = fa_stream_is_captured(c->tuner, c->place.stream, &captured, &diag);
    if (rc != 0)
        return fail_with(rc, &diag);
    return captured ? fail(ERROR_CAPTURE,
                           "no kernel %s is loaded yet, and none can be while a CUDA graph is "
                           "captured: %s",
                           what, advice)
                    : 0;
}

static int find_kernel(struct call *c, const fa_kernel **ret_kernel, PyObject **ret_instead)
{
    if (policy_recorder != NULL) {
        PyObject *problem = problem_to_dict(&c->problem), *done = NULL;
        if (problem != NULL)
            done = PyObject_CallFunction(policy_recorder, "Oi", problem, (int)c->place.device);
        Py_XDECREF(problem);
        if (done == NULL)
            return -1;
        Py_DECREF(done);
    }
    fa_diag diag;
    diag.text[0] = 0; /* not all of its 1,024 bytes in each call */
    int rc = fa_get_loaded_kernel(c->tuner, &c->problem, policy_effort, ret_kernel, &diag);
    if (rc == 0)
        return 0;
    if (rc != FA_ENOTFOUND)
        return fail_with(rc, &diag);
    if (policy_on_miss != NULL) {
        int done = ask_policy(c, ret_kernel, ret_instead);
        if (done != 0 || *ret_kernel != NULL || *ret_instead != NULL)
            return done;
    }
    if (call_refuse_capture(c, "for this problem",
                            "call attention() once with these shapes before the capture, or "
                            "fa_tune.warm_up()") != 0)
        return -1;
    fa_request request = {.size = sizeof request,
                          .problem = c->problem,
                          .ordinal = c->place.device,
                          .effort = policy_effort};
    return session_kernel(&request, NULL, ret_kernel);
}

const fa_kernel *call_find_at_hand(const struct call *c, const fa_problem *problem)
{
    const fa_kernel *kernel = NULL;
    fa_diag diag;
    diag.text[0] = 0; /* not all of its 1,024 bytes in each call */
    if (policy_recorder != NULL ||
        fa_get_loaded_kernel(c->tuner, problem, policy_effort, &kernel, &diag) != 0)
        return NULL;
    return fa_kernel_device(kernel) == c->place.device ? kernel : NULL;
}

/* kernel: the one to begin with, or NULL; bound: no other will do. */
static int launch(struct call *c, const fa_kernel *kernel, bool bound, PyObject **ret_instead)
{
    fa_diag diag;
    diag.text[0] = 0;
    for (;;) {
        if (kernel == NULL && find_kernel(c, &kernel, ret_instead) != 0)
            return -1;
        if (*ret_instead != NULL)
            return 0;
        if (call_make_outputs(c) != 0 || call_make_workspace(c, kernel, 0) != 0)
            return -1;
        int rc = fa_launch(kernel, &c->launch, c->place.stream, &diag);
        if (rc == 0)
            break;
        /* Strides that a kernel with TMA does not take, another one does. */
        if (rc != FA_EALIGN || bound || c->problem.unaligned != 0)
            return fail_with(rc, &diag);
        c->problem.unaligned = 1;
        kernel = NULL;
    }
    if (!c->place.wait)
        return 0;
    PyThreadState *state = session_release();
    int rc = fa_wait_for_stream(c->tuner, c->place.stream, &diag);
    session_acquire(state);
    return rc == 0 ? 0 : fail_with(rc, &diag);
}

/* A bound kernel computes its own problem only. */
static int check_bound(const struct call *c, const fa_kernel *kernel)
{
    fa_problem given = c->problem;
    const fa_problem *is = &fa_kernel_answer(kernel)->problem;
    char *has = NULL, *needs = NULL;
    given.unaligned = is->unaligned;
    if (memcmp(given.value, is->value, sizeof given.value) == 0)
        return 0;
    if (fa_problem_write(&given, &has, NULL) == 0 && fa_problem_write(is, &needs, NULL) == 0)
        fail(ERROR_SHAPE, "this kernel computes %.400s, and the call is %.400s", needs, has);
    else
        fail(ERROR_SHAPE, "this kernel computes another problem");
    free(has);
    free(needs);
    return -1;
}

/* A call whose gradients PyTorch is to compute goes through what it knows: operators, or a function of autograd's. */
static int record(struct call *c, const fa_kernel *bound, PyObject **ret_instead)
{
    if (bound != NULL || c->door == &doors[DOOR_DECODE] || c->tensor[Q].torch == NULL)
        return tensors_refuse_grad(&c->place, bound != NULL ? "a bound kernel" : c->door->name);
    if (c->problem.batch_invariant != 0)
        return fail(ERROR_NOT_SUPPORTED,
                    "%s with batch_invariant has no backward pass: leave it "
                    "out, or call it under torch.no_grad()",
                    c->door->name);
    PyObject *words = call_words(c);
    if (words != NULL)
        *ret_instead = call_helper_with("fa_tune._torch_ops", "recorded", words);
    Py_XDECREF(words);
    return *ret_instead != NULL ? 0 : -1;
}

/* Tensors were refused. Those of PyTorch that are of another type may be ones that torch.autocast casts. */
static int cast(struct call *c, const fa_kernel *bound, PyObject **ret_instead)
{
    PyObject *type, *value, *trace;
    if (bound != NULL || c->door == &doors[DOOR_DECODE] || c->tensor[Q].torch == NULL ||
        !failed_as(ERROR_DTYPE))
        return -1;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *words = call_words(c);
    if (words != NULL)
        *ret_instead = call_helper("fa_tune._torch_ops", "autocast", "(O)", words);
    Py_XDECREF(words);
    if (*ret_instead == Py_None) {
        Py_CLEAR(*ret_instead);
        PyErr_Restore(type, value, trace);
        return -1;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return *ret_instead != NULL ? 0 : -1;
}

static int run(struct call *c, const fa_kernel *bound, PyObject **ret_instead)
{
    const fa_kernel *kernel = bound;
    fa_diag diag;
    diag.text[0] = 0;
    if (call_take_options(c) != 0)
        return -1;
    if (call_take_tensors(c) != 0)
        return cast(c, bound, ret_instead);
    if (c->place.recorded != NULL)
        return record(c, bound, ret_instead);
    if (bound != NULL && check_bound(c, bound) != 0)
        return -1;
    if ((c->tuner = session_tuner()) == NULL || call_take_outputs(c) != 0 ||
        tensors_refuse_grad(&c->place, "a call with out=") != 0)
        return -1;
    c->problem.unaligned = call_is_unaligned(c);
    if (bound == NULL)
        kernel = call_find_at_hand(c, &c->problem);
    int rc =
        bound != NULL || kernel == NULL ? session_enter(c->place.device, &c->entered, &diag) : 0;
    if (rc != 0)
        return fail_with(rc, &diag);
    int done = launch(c, kernel, bound != NULL, ret_instead);
    if (c->entered)
        fa_leave_device(c->tuner);
    return done;
}

void call_end(struct call *c)
{
    for (int i = 0; i < TENSORS; i++)
        tensor_release(&c->tensor[i]);
    for (int i = 0; c->extra != NULL && i < EXTRAS; i++)
        tensor_release(&c->extra[i]);
    PyMem_Free(c->extra);
    call_free_workspace(c);
    Py_XDECREF(c->result[0]);
    Py_XDECREF(c->result[1]);
    Py_XDECREF(c->values);
    Py_XDECREF(c->scales);
    call_free_buffers(c);
}

static fa_problem preset; /* every field's default */

int attention_init(void)
{
    if (fa_make_problem(NULL, &preset) != 0)
        return fail(ERROR_ANY, "the library knows no attention");
    preset.operation = NULL;
    return call_doors_init();
}

void call_begin(struct call *c, enum door_number door, const fa_kernel *bound,
                PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    memset(c, 0, offsetof(struct call, problem)); /* not the tensors, which are the most of it */
    for (int i = 0; i < TENSORS; i++)
        tensor_clear(&c->tensor[i]);
    c->door = &doors[door];
    c->args = args;
    c->count = count;
    c->names = names;
    c->problem = bound != NULL ? fa_kernel_answer(bound)->problem : preset;
    if (bound == NULL)
        c->problem.layout = c->door->layout;
}

static PyObject *attend(enum door_number door, const fa_kernel *bound, PyObject *const *args,
                        Py_ssize_t count, PyObject *names)
{
    struct call c;
    PyObject *instead = NULL, *result = NULL;
    call_begin(&c, door, bound, args, count, names);
    session_begin(); /* what is called meanwhile may run any Python, and the kernel is to live */
    int done = call_take_arguments(&c);
    if (done == 0)
        done = run(&c, bound, &instead);
    if (instead != NULL) {
        result = instead;
    } else if (done == 0 && c.wants_lse) {
        result = Py_BuildValue("(OO)", c.result[0], c.result[1]);
    } else if (done == 0) {
        result = c.result[0];
        c.result[0] = NULL;
    }
    call_end(&c);
    session_end();
    return result;
}

PyObject *attention(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)self;
    return attend(DOOR_ATTENTION, NULL, args, count, names);
}

PyObject *attention_varlen(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)self;
    return attend(DOOR_VARLEN, NULL, args, count, names);
}

PyObject *attention_decode(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)self;
    return attend(DOOR_DECODE, NULL, args, count, names);
}

PyObject *attention_by(const fa_kernel *kernel, PyObject *const *args, Py_ssize_t count,
                       PyObject *names)
{
    return attend(DOOR_ATTENTION, kernel, args, count, names);
}
