/* SPDX-License-Identifier: Apache-2.0
 *
 * fa_tune.attention(q, k, v, …): from tensors to a launch.
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

const char attention_doc[] =
    "attention(q, k, v, *, causal=False, scale=None, layout=\"bhsd\", out=None, return_lse=False,\n"
    "          stream=None, window=None, softcap=None, **more)\n--\n\n"
    "softmax(scale * q @ k.T + mask) @ v by the fastest kernel known for this problem.\n\n"
    "q: [batch, heads, seq_q, head_dim] of float16 or bfloat16 on a CUDA device, from any library that\n"
    "    speaks DLPack; k, v: [batch, heads_kv, seq_k, head_dim], heads a multiple of heads_kv. Any strides\n"
    "    whose last is 1. layout=\"bshd\": heads and sequence change places in all tensors.\n"
    "causal: True or \"bottom-right\" (query i sees keys up to i + seq_k - seq_q), or \"top-left\" (up to i).\n"
    "scale: of the scores; None: 1 / sqrt(head_dim).\n"
    "out: a tensor of q's shape and type to write to; with return_lse a pair (out, lse), either may be None.\n"
    "return_lse: also return the log-sum-exp, float32 [batch, heads, seq_q], natural logarithm.\n"
    "stream: a CUstream as int, or an object with __cuda_stream__; None: the one that is current in the\n"
    "    library of q. For a library without one (JAX) the call waits for its result.\n"
    "window: a pair (left, right) of keys that a query sees beside its diagonal; -1: no limit.\n"
    "softcap: scores become softcap * tanh(score / softcap).\n"
    "more: sinks (float32 [heads]); cu_seqlens_q, cu_seqlens_k (int32 [batch + 1]) with max_seqlen_q and\n"
    "    max_seqlen_k: q is [total, heads, head_dim]; seqused_k (int32 [batch]); block_table (int32 [batch,\n"
    "    pages]): k and v are [pages, page, heads_kv, head_dim]; k_scale and v_scale of an fp8 cache; and\n"
    "    every further field of the operation, such as batch_invariant.\n\n"
    "Returns out, or (out, lse). A problem that is new to this process is looked up, and tuned as\n"
    "fa_tune.policy() says. Raises a subclass of fa_tune.Error.";

/* ---- kernels ----------------------------------------------------------------------------------*/
/* Asks the policy's function: a kernel, or what the call is to return in the place of ours. */
static int ask_policy(struct call *c, const fa_kernel **ret_kernel, PyObject **ret_instead)
{
    PyObject *problem = problem_to_dict(&c->problem), *words = call_words(c);
    PyObject *answer = NULL;
    if (problem != NULL && words != NULL)
        answer = PyObject_CallFunction(policy_on_miss, "OiO", problem, (int)c->place.device, words);
    Py_XDECREF(words);
    Py_XDECREF(problem);
    if (answer == NULL)
        return -1;
    *ret_kernel = kernel_unwrap(answer);
    if (*ret_kernel == NULL) {
        *ret_instead = answer;
        return 0;
    }
    Py_DECREF(answer);
    return 0;
}

static int refuse_capture(const struct call *c)
{
    fa_diag diag = {{0}};
    bool captured = false;
    int rc = fa_stream_is_captured(c->tuner, c->place.stream, &captured, &diag);
    if (rc != 0)
        return fail_with(rc, &diag);
    return captured
               ? fail(
                     ERROR_CAPTURE,
                     "no kernel for this problem is loaded yet, and none can be while a CUDA graph is "
                     "captured: call attention() once with these shapes before the capture, or "
                     "fa_tune.warm_up()")
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
    fa_diag diag = {{0}};
    int rc = fa_get_loaded_kernel(c->tuner, &c->problem, policy_effort, ret_kernel, &diag);
    if (rc == 0)
        return 0;
    if (rc != FA_ENOTFOUND)
        return fail_with(rc, &diag);
    if (refuse_capture(c) != 0)
        return -1;
    if (policy_on_miss != NULL)
        return ask_policy(c, ret_kernel, ret_instead);
    return session_kernel(&c->problem, policy_effort, c->place.device, NULL, ret_kernel);
}

static int launch(struct call *c, const fa_kernel *bound, PyObject **ret_instead)
{
    const fa_kernel *kernel = bound;
    fa_diag diag = {{0}};
    c->problem.unaligned = call_is_unaligned(c);
    for (;;) {
        if (bound == NULL && find_kernel(c, &kernel, ret_instead) != 0)
            return -1;
        if (*ret_instead != NULL)
            return 0;
        if (call_make_outputs(c) != 0 || call_make_workspace(c, kernel) != 0)
            return -1;
        int rc = fa_launch(kernel, &c->launch, c->place.stream, &diag);
        if (rc == 0)
            break;
        /* Strides that a kernel with TMA does not take, another one does. */
        if (rc != FA_EALIGN || bound != NULL || c->problem.unaligned != 0)
            return fail_with(rc, &diag);
        c->problem.unaligned = 1;
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

static int run(struct call *c, const fa_kernel *bound, PyObject **ret_instead)
{
    fa_diag diag = {{0}};
    if (call_take_options(c) != 0 || call_take_tensors(c) != 0)
        return -1;
    if (bound != NULL && check_bound(c, bound) != 0)
        return -1;
    if ((c->tuner = session_tuner()) == NULL || call_take_outputs(c) != 0)
        return -1;
    int rc = fa_enter_device(c->tuner, c->place.device, &c->entered, &diag);
    if (rc != 0)
        return fail_with(rc, &diag);
    int done = launch(c, bound, ret_instead);
    if (c->entered)
        fa_leave_device(c->tuner);
    return done;
}

static void release(struct call *c)
{
    for (int i = 0; i < TENSORS; i++)
        tensor_release(&c->tensor[i]);
    for (int i = 0; c->extra != NULL && i < EXTRAS; i++)
        tensor_release(&c->extra[i]);
    PyMem_Free(c->extra);
    call_free_workspace(c);
    Py_XDECREF(c->result[0]);
    Py_XDECREF(c->result[1]);
}

static fa_problem preset; /* every field's default */

int attention_init(void)
{
    if (fa_make_problem(NULL, &preset) != 0)
        return fail(ERROR_ANY, "the library knows no attention");
    preset.operation = NULL;
    return call_arguments_init();
}

static PyObject *attend(const fa_kernel *bound, PyObject *const *args, Py_ssize_t count,
                        PyObject *names)
{
    /* A bound kernel says what the tensors do not. */
    struct call c = {.args = args,
                     .count = count,
                     .names = names,
                     .problem = bound != NULL ? fa_kernel_answer(bound)->problem : preset};
    PyObject *instead = NULL, *result = NULL;
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
    release(&c);
    return result;
}

PyObject *attention(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)self;
    return attend(NULL, args, count, names);
}

PyObject *attention_by(const fa_kernel *kernel, PyObject *const *args, Py_ssize_t count,
                       PyObject *names)
{
    return attend(kernel, args, count, names);
}
