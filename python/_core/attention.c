/* SPDX-License-Identifier: Apache-2.0
 *
 * fa_tune.attention(q, k, v, …): from tensors to a launch.
 *
 * Workload: each attention layer of every step; all of it is host time before the GPU starts. For tensors with
 * an exchange table nothing here makes a Python object but the outputs that the caller did not pass.
 * Invariant: what is not loaded yet is never loaded, tuned or allocated while the stream is captured.
 */
#include "attention.h"

#include "kernel.h"
#include "problem.h"
#include "session.h"
#include "tensors.h"

#include <stdio.h>
#include <string.h>

const char attention_doc[] =
    "attention(q, k, v, *, causal=False, scale=None, layout=\"bhsd\", out=None, return_lse=False,\n"
    "          stream=None, **fields)\n--\n\n"
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
    "fields: every further field of the operation (fa_tune.fields()).\n\n"
    "Returns out, or (out, lse). A problem that is new to this process is looked up, and tuned as\n"
    "fa_tune.policy() says. Raises a subclass of fa_tune.Error.";

/* ---- arguments ------------------------------------------------------------------------------*/
enum { Q, K, V, OUT, LSE, TENSORS };
static const char *const tensor_names[TENSORS] = {"q", "k", "v", "out", "lse"};

struct arguments {
    PyObject *q, *k, *v, *causal, *scale, *layout, *out, *return_lse, *stream;
};

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
};
enum { KEYWORDS = sizeof keywords / sizeof *keywords };

/* Fields of a problem that the tensors say, or that another keyword does. */
static const char *const not_keywords[] = {"dtype", "head_dim", "batch", "heads_q",  "heads_kv",
                                           "seq_q", "seq_k",    "lse",   "unaligned"};

static fa_problem preset; /* every field's default */

int attention_init(void)
{
    if (fa_make_problem(NULL, &preset) != 0)
        return fail(ERROR_ANY, "the library knows no attention");
    preset.operation = NULL;
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

static int take_arguments(PyObject *const *args, Py_ssize_t count, PyObject *names,
                          struct arguments *ret, fa_problem *problem)
{
    PyObject **first[] = {&ret->q, &ret->k, &ret->v};
    Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
    if (count > 3)
        return PyErr_Format(PyExc_TypeError,
                            "attention() takes q, k and v by position; the rest by "
                            "keyword"),
               -1;
    for (Py_ssize_t i = 0; i < count; i++)
        *first[i] = args[i];
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int keyword = find_keyword(name);
        if (keyword < 0) {
            if (take_field(name, args[count + i], problem) != 0)
                return -1;
            continue;
        }
        PyObject **to = (PyObject **)(void *)((char *)ret + keywords[keyword].at);
        if (*to != NULL)
            return PyErr_Format(PyExc_TypeError, "attention() got %s twice",
                                keywords[keyword].name),
                   -1;
        *to = args[count + i];
    }
    for (int i = 0; i < 3; i++)
        if (*first[i] == NULL)
            return PyErr_Format(PyExc_TypeError, "attention() needs %s", tensor_names[i]), -1;
    return 0;
}

/* ---- one call -------------------------------------------------------------------------------*/
struct call {
    struct arguments is;
    fa_problem problem;
    fa_attn_args launch;
    tensor tensor[TENSORS];
    PyObject *result[2]; /* out and lse: new references, or NULL */
    place place;
    fa_tuner *tuner;
    bool wants_lse, entered;
    int sequence, heads;   /* which dimensions */
    PyObject *const *args; /* as they came, for the policy's function */
    Py_ssize_t count;
    PyObject *names;
};

static int compare_shape(const struct call *c, int which, const int64_t *wanted, int dims)
{
    const tensor *t = &c->tensor[which];
    char has[128], needs[128];
    if (t->dims == dims && memcmp(t->shape, wanted, (size_t)dims * sizeof *wanted) == 0)
        return 0;
    return fail(ERROR_SHAPE, "%s has the shape %s and needs %s, as q, k and layout=\"%s\" say",
                t->name, shape_text(t->shape, t->dims, has, sizeof has),
                shape_text(wanted, dims, needs, sizeof needs),
                fa_name_of_layout(c->problem.layout));
}

static int check_inputs(const struct call *c)
{
    const tensor *q = &c->tensor[Q], *k = &c->tensor[K];
    char text[128], other[128];
    for (int i = Q; i <= V; i++) {
        const tensor *t = &c->tensor[i];
        if (t->dims != TENSOR_DIMS)
            return fail(ERROR_SHAPE, "%s has the shape %s: pass a tensor of four dimensions",
                        t->name, shape_text(t->shape, t->dims, text, sizeof text));
        if (t->dtype.code != q->dtype.code || t->dtype.bits != q->dtype.bits)
            return fail(ERROR_DTYPE, "q is %s and %s is %s: pass tensors of one type",
                        dtype_name(q->dtype, text, sizeof text), t->name,
                        dtype_name(t->dtype, other, sizeof other));
        if (t->device.id != q->device.id)
            return fail(ERROR_DEVICE,
                        "q is on CUDA device %d and %s on %d: pass tensors of one device",
                        (int)q->device.id, t->name, (int)t->device.id);
    }
    bool half = q->dtype.code == DL_FLOAT || q->dtype.code == DL_BFLOAT;
    if (!half || q->dtype.bits != 16 || q->dtype.lanes > 1)
        return fail(ERROR_DTYPE, "q, k and v are %s: pass float16 or bfloat16",
                    dtype_name(q->dtype, text, sizeof text));
    int64_t wanted[TENSOR_DIMS] = {q->shape[0], q->shape[1], q->shape[2], q->shape[3]};
    wanted[c->sequence] = k->shape[c->sequence];
    wanted[c->heads] = k->shape[c->heads];
    if (compare_shape(c, K, wanted, TENSOR_DIMS) != 0 ||
        compare_shape(c, V, wanted, TENSOR_DIMS) != 0)
        return -1;
    if (k->shape[c->heads] < 1 || q->shape[c->heads] % k->shape[c->heads] != 0)
        return fail(ERROR_SHAPE,
                    "q has %lld heads and k has %lld: the former must be a multiple of the "
                    "latter",
                    (long long)q->shape[c->heads], (long long)k->shape[c->heads]);
    for (int i = 0; i < TENSOR_DIMS; i++)
        if (q->shape[i] > INT32_MAX || k->shape[i] > INT32_MAX)
            return fail(ERROR_SHAPE, "q has the shape %s: every dimension must be below 2^31",
                        shape_text(q->shape, TENSOR_DIMS, text, sizeof text));
    return 0;
}

/* Strides of batch, head and row. Those of dimensions of one element say nothing and are made harmless. */
static int take_strides(const struct call *c, const tensor *t, int64_t ret_stride[3])
{
    const int order[3] = {0, c->heads, c->sequence};
    int64_t all = 0, elements = 1;
    for (int i = 0; i < 3; i++) {
        int64_t size = t->shape[order[i]];
        ret_stride[i] = size > 1 ? t->stride[order[i]] : t->shape[3];
        elements *= size;
        all |= size > 1 ? ret_stride[i] : 0;
    }
    if (t->shape[3] > 1 && t->stride[3] != 1)
        return fail(
            ERROR_SHAPE,
            "the last dimension of %s has the stride %lld and needs 1: pass %s.contiguous()",
            t->name, (long long)t->stride[3], t->name);
    if (all == 0 && elements > 1)
        return fail(ERROR_SHAPE, "%s repeats one row for every position: pass %s.contiguous()",
                    t->name, t->name);
    return 0;
}

/* Sets the fields that the tensors say, and the tensors of the launch. */
static int take_problem(struct call *c)
{
    fa_attn_args *launch = &c->launch;
    fa_problem *problem = &c->problem;
    const tensor *q = &c->tensor[Q], *k = &c->tensor[K], *v = &c->tensor[V];
    problem->dtype = q->dtype.code == DL_FLOAT ? FA_FP16 : FA_BF16;
    problem->batch = (int32_t)q->shape[0];
    problem->heads_q = (int32_t)q->shape[c->heads];
    problem->heads_kv = (int32_t)k->shape[c->heads];
    problem->seq_q = (int32_t)q->shape[c->sequence];
    problem->seq_k = (int32_t)k->shape[c->sequence];
    problem->head_dim = (int32_t)q->shape[3];
    problem->want_lse = c->wants_lse;
    launch->size = sizeof *launch;
    launch->q = q->data;
    launch->k = k->data;
    launch->v = v->data;
    return take_strides(c, q, launch->q_stride) != 0 || take_strides(c, k, launch->k_stride) != 0 ||
                   take_strides(c, v, launch->v_stride) != 0
               ? -1
               : 0;
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

/* What the keywords say: before the tensors are looked at, as layout says what their dimensions are. */
static int take_options(struct call *c)
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

/* ---- outputs --------------------------------------------------------------------------------*/
static const dl_dtype float32 = {DL_FLOAT, 32, 1};

/* The caller's tensor, if there is one. */
static int take_output(struct call *c, int which, PyObject *given, const int64_t *shape, int dims,
                       dl_dtype dtype)
{
    tensor *t = &c->tensor[which];
    char has[64], needs[64];
    if (given == NULL || given == Py_None)
        return 0;
    if (tensor_take(t, given, tensor_names[which], &c->place) != 0 ||
        compare_shape(c, which, shape, dims) != 0)
        return -1;
    if (t->dtype.code != dtype.code || t->dtype.bits != dtype.bits)
        return fail(ERROR_DTYPE, "%s is %s and needs %s", t->name,
                    dtype_name(t->dtype, has, sizeof has), dtype_name(dtype, needs, sizeof needs));
    if (t->device.id != c->place.device)
        return fail(ERROR_DEVICE, "q is on CUDA device %d and %s on %d: pass tensors of one device",
                    (int)c->place.device, t->name, (int)t->device.id);
    if (t->read_only)
        return fail(ERROR_ARGUMENT,
                    "%s is read-only: pass a tensor that may be written, such as a "
                    "torch.Tensor or a cupy.ndarray",
                    t->name);
    Py_INCREF(given);
    c->result[which - OUT] = given;
    return 0;
}

/* out, or the pair (out, lse) */
static int split_out(struct call *c, PyObject **ret_out, PyObject **ret_lse)
{
    *ret_out = c->is.out;
    *ret_lse = NULL;
    if (c->is.out == NULL || !PyTuple_Check(c->is.out))
        return 0;
    if (!c->wants_lse || PyTuple_Size(c->is.out) != 2)
        return fail(ERROR_ARGUMENT,
                    "out is a tuple: pass one tensor, or (out, lse) with return_lse=True");
    *ret_out = PyTuple_GetItem(c->is.out, 0);
    *ret_lse = PyTuple_GetItem(c->is.out, 1);
    return 0;
}

/* Shape of the log-sum-exp. */
static void rows_of(const struct call *c, int64_t ret_rows[3])
{
    const tensor *q = &c->tensor[Q];
    ret_rows[0] = q->shape[0];
    ret_rows[1] = q->shape[c->heads];
    ret_rows[2] = q->shape[c->sequence];
}

static int take_outputs(struct call *c)
{
    const tensor *q = &c->tensor[Q], *lse = &c->tensor[LSE], *out = &c->tensor[OUT];
    int64_t rows[3], stride = 1;
    PyObject *given, *given_lse;
    rows_of(c, rows);
    if (split_out(c, &given, &given_lse) != 0 ||
        take_output(c, OUT, given, q->shape, TENSOR_DIMS, q->dtype) != 0 ||
        take_output(c, LSE, given_lse, rows, 3, float32) != 0)
        return -1;
    if (out->object != NULL && take_strides(c, out, c->launch.o_stride) != 0)
        return -1;
    for (int i = 2; lse->object != NULL && i >= 0; stride *= rows[i], i--)
        if (rows[i] > 1 && lse->stride[i] != stride)
            return fail(ERROR_SHAPE, "lse is not contiguous: pass lse.contiguous()");
    c->launch.o = out->data;
    c->launch.lse = (float *)(void *)lse->data;
    return 0;
}

/* Makes those that the caller did not pass. */
static int make_outputs(struct call *c)
{
    const tensor *q = &c->tensor[Q];
    char *data = NULL;
    if (c->result[0] == NULL) {
        c->result[0] = tensor_new(q, q->shape, TENSOR_DIMS, q->dtype, &c->place, &data);
        if (c->result[0] == NULL)
            return -1;
        c->launch.o = data;
    }
    if (c->wants_lse && c->result[1] == NULL) {
        int64_t rows[3];
        rows_of(c, rows);
        c->result[1] = tensor_new(q, rows, 3, float32, &c->place, &data);
        if (c->result[1] == NULL)
            return -1;
        c->launch.lse = (float *)(void *)data;
    }
    return 0;
}

static bool is_unaligned(const fa_attn_args *launch)
{
    uint64_t pointers =
        (uintptr_t)launch->q | (uintptr_t)launch->k | (uintptr_t)launch->v | (uintptr_t)launch->o;
    uint64_t strides = 0;
    for (int i = 0; i < 3; i++)
        strides |= (uint64_t)(launch->q_stride[i] | launch->k_stride[i] | launch->v_stride[i] |
                              launch->o_stride[i]);
    return pointers % 16 != 0 || strides % 8 != 0;
}

/* ---- kernels --------------------------------------------------------------------------------*/
static PyObject *words_of(const struct call *c)
{
    PyObject *words = PyDict_New();
    for (Py_ssize_t i = 0; words != NULL && c->names != NULL && i < PyTuple_Size(c->names); i++)
        if (PyDict_SetItem(words, PyTuple_GetItem(c->names, i), c->args[c->count + i]) != 0)
            Py_CLEAR(words);
    for (int i = 0; words != NULL && i < 3; i++)
        if (PyDict_SetItemString(words, tensor_names[i], (&c->is.q)[i]) != 0)
            Py_CLEAR(words);
    return words;
}

/* Asks the policy's function: a kernel, or what the call is to return in the place of ours. */
static int ask_policy(struct call *c, const fa_kernel **ret_kernel, PyObject **ret_instead)
{
    PyObject *problem = problem_to_dict(&c->problem), *words = words_of(c);
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
    c->problem.unaligned = is_unaligned(&c->launch);
    for (;;) {
        if (bound == NULL && find_kernel(c, &kernel, ret_instead) != 0)
            return -1;
        if (*ret_instead != NULL)
            return 0;
        if (make_outputs(c) != 0)
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
    int rc;
    Py_BEGIN_ALLOW_THREADS rc = fa_wait_for_stream(c->tuner, c->place.stream, &diag);
    Py_END_ALLOW_THREADS return rc == 0 ? 0 : fail_with(rc, &diag);
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
    PyObject *inputs[] = {c->is.q, c->is.k, c->is.v};
    if (take_options(c) != 0 || tensor_place(&c->tensor[Q], c->is.q, c->is.stream, &c->place) != 0)
        return -1;
    for (int i = Q; i <= V; i++)
        if (tensor_take(&c->tensor[i], inputs[i], tensor_names[i], &c->place) != 0)
            return -1;
    if (check_inputs(c) != 0 || take_problem(c) != 0)
        return -1;
    if (bound != NULL && check_bound(c, bound) != 0)
        return -1;
    if ((c->tuner = session_tuner()) == NULL || take_outputs(c) != 0)
        return -1;
    int rc = fa_enter_device(c->tuner, c->place.device, &c->entered, &diag);
    if (rc != 0)
        return fail_with(rc, &diag);
    int done = launch(c, bound, ret_instead);
    if (c->entered)
        fa_leave_device(c->tuner);
    return done;
}

static PyObject *attend(const fa_kernel *bound, PyObject *const *args, Py_ssize_t count,
                        PyObject *names)
{
    struct call c = {.args = args, .count = count, .names = names, .problem = preset};
    PyObject *instead = NULL, *result = NULL;
    if (bound != NULL) /* with what the tensors do not say */
        c.problem = fa_kernel_answer(bound)->problem;
    int done = take_arguments(args, count, names, &c.is, &c.problem);
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
    for (int i = 0; i < TENSORS; i++)
        tensor_release(&c.tensor[i]);
    Py_XDECREF(c.result[0]);
    Py_XDECREF(c.result[1]);
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
