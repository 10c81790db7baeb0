/* SPDX-License-Identifier: Apache-2.0
 *
 * fa_tune._core.attention_backward(): gradients of attention, from tensors to a launch of attn_bwd's kernel.
 *
 * Workload: once for each layer of every training step; all of it is host time. No Python object is made but the gradients.
 * The call is read as attention()'s own is, and attn_bwd's problem made of that one's fields.
 */
#include "backward.h"

#include "call_steps.h"
#include "kernel.h"
#include "problem.h"
#include "session.h"
#include "tensor_new.h"

#include <math.h>
#include <string.h>

/* The arguments of a kernel of attn_bwd, in the order of its operation.json. */
enum {
    AT_Q,
    AT_K,
    AT_V,
    AT_O,
    AT_LSE,
    AT_SINKS,
    AT_D_O,
    AT_DQ,
    AT_DK,
    AT_DV,
    AT_D_SINKS,
    AT_CU_SEQLENS_Q,
    AT_CU_SEQLENS_K,
    AT_D_LSE, /* left out where it is not given: the numbers move up */
    AT_TENSORS,
    AT_COUNT = AT_TENSORS + 2 * BUFFERS_MAX + 2 /* buffers, gradients, numbers */
};
/* Bytes: the library finds as many that it keeps for the stream in less time than PyTorch allocates them. */
enum { SMALL_WORKSPACE = 1 << 20 };
/* By position, before q, k and v. */
enum { GIVEN_D_O, GIVEN_O, GIVEN_LSE, GIVEN_D_LSE, GIVEN_DETERMINISTIC, GIVEN_WANTED, GIVEN };
enum {
    ROOM_LEAST = 64,
    ROOM_MOST = 1 << 24
}; /* elements of gradients of buffers: few sizes, few kernels */

static struct {
    fa_problem preset; /* of attn_bwd, with every field's default */
    /* the field of attention forward with the same name; -1: there is none */
    int from[FA_PROBLEM_VALUES];
    int count, deterministic, unaligned, d_lse, d_buffers;
} fields;

struct backward {
    struct call call;
    tensor d_o, d_lse, made[3]; /* made: dQ, dK, dV */
    PyObject *copies[2]; /* owned: of d_o and d_lse, with rows that lie side by side, or NULL */
    PyObject *result[4]; /* owned: dQ, dK, dV, d_sinks */
    PyObject *gradients; /* owned: a list of the buffers' */
    fa_problem problem;  /* of attn_bwd */
    fa_tensor_arg passed[AT_TENSORS + BUFFERS_MAX];
    const void *at[AT_COUNT];
    int count; /* of `at` */
    float scale, softcap;
};

int backward_init(void)
{
    fa_field_info info = {.size = sizeof info};
    const fa_operation *operation = NULL;
    if (fa_find_operation("attn_bwd", &operation, NULL) != 0 ||
        fa_make_problem(operation, &fields.preset) != 0)
        return fail(ERROR_ANY, "the library knows no attention backward");
    for (int i = 0; fa_operation_field(operation, i, &info) == 0; i++, fields.count++) {
        PyObject *name = PyUnicode_FromString(info.name);
        if (name == NULL)
            return -1;
        fields.from[i] = problem_find(name);
        Py_DECREF(name);
        if (strcmp(info.name, "deterministic") == 0)
            fields.deterministic = i;
        if (strcmp(info.name, "unaligned") == 0)
            fields.unaligned = i;
        if (strcmp(info.name, "d_lse") == 0)
            fields.d_lse = i;
        if (strcmp(info.name, "d_buffers") == 0)
            fields.d_buffers = i;
    }
    return 0;
}

/* ---- the problem ------------------------------------------------------------------------------*/
/* Of the fields of the forward pass. Of sequences that lie behind one another attn_bwd wants all rows. */
static int take_problem(struct backward *b, bool deterministic, bool d_lse)
{
    fa_problem forward = b->call.problem;
    if (forward.page != 0 || forward.kv_dtype != 0 || forward.batch_invariant != 0 ||
        forward.lengths_k == FA_LENGTHS_SEQUSED)
        return fail(ERROR_NOT_SUPPORTED,
                    "there are no gradients of a paged or an fp8 cache, of lengths by seqused_k, "
                    "and with batch_invariant");
    if (forward.head_dim_v == 0)
        forward.head_dim_v = forward.head_dim;
    if (forward.varlen != 0) {
        forward.seq_q = (int32_t)b->call.tensor[Q].shape[1];
        forward.seq_k = (int32_t)b->call.tensor[K].shape[1];
    }
    b->problem = fields.preset;
    for (int i = 0; i < fields.count; i++)
        if (fields.from[i] >= 0)
            b->problem.value[i] = forward.value[fields.from[i]];
    b->problem.value[fields.deterministic] = deterministic;
    b->problem.value[fields.d_lse] = d_lse;
    return 0;
}

/* ---- tensors ----------------------------------------------------------------------------------*/
static void pass(struct backward *b, int which, void *data, const int64_t stride[3])
{
    b->passed[which] = (fa_tensor_arg){.data = data};
    if (stride != NULL)
        memcpy(b->passed[which].stride, stride, sizeof b->passed[which].stride);
    b->at[which] = &b->passed[which];
}

/* Whether a kernel takes its strides: a gradient of a sum repeats rows, or elements of them. */
static bool has_rows(const tensor *t)
{
    bool has = t->shape[t->dims - 1] <= 1 || t->stride[t->dims - 1] == 1;
    for (int i = 0; i < t->dims - 1; i++)
        has = has && (t->shape[i] <= 1 || t->stride[i] != 0);
    return has;
}

/* Of OUT or of LSE. */
static int take_gradient(struct backward *b, int which, tensor *t, PyObject *object)
{
    const char *name = which == OUT ? "the gradient of the output" : "the gradient of the LSE";
    PyObject **copy = &b->copies[which == LSE];
    if (call_take_shaped(&b->call, which, t, object, name) != 0)
        return -1;
    if (has_rows(t))
        return 0;
    tensor_release(t);
    *copy = PyObject_CallMethod(object, "contiguous", NULL);
    return *copy != NULL ? call_take_shaped(&b->call, which, t, *copy, name) : -1;
}

/* An array of one number for each row: the LSE, or its gradient. */
static void pass_numbers(struct backward *b, int which, const tensor *t)
{
    pass(b, which, t->data,
         (const int64_t[3]){t->shape[0] > 1 ? t->stride[0] : t->shape[1] * t->shape[2],
                            t->shape[1] > 1 ? t->stride[1] : t->shape[2]});
}

static int take_gradients(struct backward *b, PyObject *const *given)
{
    int64_t stride[3];
    if (take_gradient(b, OUT, &b->d_o, given[GIVEN_D_O]) != 0 ||
        call_take_strides(&b->call, &b->d_o, stride) != 0)
        return -1;
    pass(b, AT_D_O, b->d_o.data, stride);
    if (given[GIVEN_D_LSE] == Py_None)
        return 0;
    if (take_gradient(b, LSE, &b->d_lse, given[GIVEN_D_LSE]) != 0)
        return -1;
    pass_numbers(b, AT_D_LSE, &b->d_lse);
    return 0;
}

/* What forward left. */
static int take_o_and_lse(struct backward *b, PyObject *const *given)
{
    struct call *c = &b->call;
    tensor *o = &c->tensor[OUT], *lse = &c->tensor[LSE];
    if (call_take_shaped(c, OUT, o, given[GIVEN_O], "o") != 0 ||
        call_take_shaped(c, LSE, lse, given[GIVEN_LSE], "lse") != 0 ||
        call_take_strides(c, o, c->launch.o_stride) != 0)
        return -1;
    if (lse->shape[2] > 1 && lse->stride[2] != 1)
        return fail(ERROR_SHAPE, "lse is not contiguous in its rows: pass lse.contiguous()");
    pass(b, AT_O, o->data, c->launch.o_stride);
    pass_numbers(b, AT_LSE, lse);
    return 0;
}

static void pass_inputs(struct backward *b)
{
    const fa_attn_args *launch = &b->call.launch;
    double scale = (double)launch->softmax_scale;
    pass(b, AT_Q, (void *)(uintptr_t)launch->q, launch->q_stride);
    pass(b, AT_K, (void *)(uintptr_t)launch->k, launch->k_stride);
    pass(b, AT_V, (void *)(uintptr_t)launch->v, launch->v_stride);
    if (launch->sinks != NULL)
        pass(b, AT_SINKS, (void *)(uintptr_t)launch->sinks, NULL);
    if (launch->cu_seqlens_q != NULL) {
        pass(b, AT_CU_SEQLENS_Q, (void *)(uintptr_t)launch->cu_seqlens_q, NULL);
        pass(b, AT_CU_SEQLENS_K, (void *)(uintptr_t)launch->cu_seqlens_k, NULL);
    }
    b->scale = (float)(scale > 0 ? scale : 1 / sqrt((double)b->call.problem.head_dim));
    b->softcap = launch->softcap;
    b->count = b->problem.value[fields.d_lse] != 0 ? AT_TENSORS : AT_D_LSE;
    for (int i = 0; i < launch->buffer_count; i++)
        b->at[b->count++] = &launch->buffers[i];
    for (int i = 0; i < (int)PyList_Size(b->gradients); i++)
        b->at[b->count++] = &b->passed[AT_TENSORS + i];
    b->at[b->count++] = &b->scale;
    b->at[b->count++] = &b->softcap;
}

/* Gradients in the order of the strides of what they are of, as PyTorch's own are. */
static int make_gradients(struct backward *b)
{
    struct call *c = &b->call;
    char *data = NULL;
    for (int i = 0; i < 3; i++) {
        tensor like = c->tensor[Q + i], *made = &b->made[i];
        int64_t stride[3];
        if (c->problem.varlen != 0)
            tensor_out_of_one_batch(&like);
        b->result[i] = tensor_alike(&like, &c->place, made);
        if (b->result[i] == NULL)
            return -1;
        if (c->problem.varlen != 0)
            tensor_into_one_batch(made);
        if (call_take_strides(c, made, stride) != 0)
            return -1;
        pass(b, AT_DQ + i, made->data, stride);
    }
    if (c->launch.sinks == NULL)
        return 0;
    const int64_t heads = c->problem.heads_q;
    b->result[3] =
        tensor_new(&c->tensor[Q], &heads, 1, (dl_dtype){DL_FLOAT, 32, 1}, &c->place, &data);
    pass(b, AT_D_SINKS, data, NULL);
    return b->result[3] != NULL ? 0 : -1;
}

/* Of buffers, in the order of their list: floats that lie behind one another. */
static int make_gradients_of_buffers(struct backward *b)
{
    struct call *c = &b->call;
    const struct buffers *held = c->buffers;
    int64_t elements = 0, room = ROOM_LEAST;
    if ((b->gradients = PyList_New(0)) == NULL)
        return -1;
    for (int i = 0, at = AT_TENSORS; held != NULL && i < held->count; i++) {
        char *data = NULL;
        int64_t count = 1;
        if (!held->wanted[i])
            continue;
        for (int d = 0; d < held->is[i].dims && count <= ROOM_MOST; d++)
            count *= held->is[i].size[d];
        elements += count;
        if (elements > ROOM_MOST)
            return fail(ERROR_NOT_SUPPORTED,
                        "gradients of buffers have up to %d elements in all: call detach() on one",
                        ROOM_MOST);
        PyObject *made = tensor_new(&c->tensor[Q], held->is[i].size, held->is[i].dims,
                                    (dl_dtype){DL_FLOAT, 32, 1}, &c->place, &data);
        const int done = made != NULL ? PyList_Append(b->gradients, made) : -1;
        Py_XDECREF(made);
        if (done != 0)
            return -1;
        b->passed[at++] = (fa_tensor_arg){.data = data};
    }
    while (room < elements)
        room *= 4;
    b->problem.value[fields.d_buffers] = elements > 0 ? (int32_t)room : 0;
    return 0;
}

static bool is_unaligned(const struct backward *b)
{
    static const int strided[] = {AT_Q, AT_K, AT_V, AT_O, AT_D_O, AT_DQ, AT_DK, AT_DV};
    uint64_t pointers = 0, strides = 0;
    for (size_t i = 0; i < sizeof strided / sizeof *strided; i++) {
        const fa_tensor_arg *passed = &b->passed[strided[i]];
        pointers |= (uintptr_t)passed->data;
        strides |= (uint64_t)(passed->stride[0] | passed->stride[1] | passed->stride[2]);
    }
    return pointers % 16 != 0 || strides % 8 != 0;
}

/* ---- the launch -------------------------------------------------------------------------------*/
/* By the policy, where it is not loaded. */
static const fa_kernel *find_kernel(struct backward *b)
{
    const struct call *c = &b->call;
    const fa_kernel *kernel = NULL;
    fa_diag diag;
    diag.text[0] = 0;
    int rc = fa_get_loaded_kernel(c->tuner, &b->problem, policy_effort, &kernel, &diag);
    if (rc == 0)
        return kernel;
    if (rc != FA_ENOTFOUND) {
        fail_with(rc, &diag);
        return NULL;
    }
    if (call_refuse_capture(c, "of attention's backward for this problem",
                            "call backward() once with these shapes before") != 0)
        return NULL;
    PyObject *problem = problem_to_dict(&b->problem), *object = NULL;
    if (problem != NULL)
        object = call_helper("fa_tune._policy", "kernel_of", "(Ni)", problem, (int)c->place.device);
    if (object != NULL)
        kernel = kernel_alive(object); /* the tuner's own */
    Py_XDECREF(object);
    return kernel;
}

/* kernel: the one to begin with, or NULL */
static int launch(struct backward *b, const fa_kernel *kernel)
{
    struct call *c = &b->call;
    fa_args args = {.size = sizeof args, .count = b->count, .at = b->at};
    fa_diag diag;
    diag.text[0] = 0;
    for (;;) {
        if (kernel == NULL && (kernel = find_kernel(b)) == NULL)
            return -1;
        if (call_make_workspace(c, kernel, SMALL_WORKSPACE) != 0)
            return -1;
        args.workspace = c->launch.workspace;
        args.workspace_bytes = c->launch.workspace_bytes;
        int rc = fa_launch_args(kernel, &args, c->place.stream, &diag);
        /* Strides that a kernel with TMA does not take, another one does. */
        if (rc != FA_EALIGN || b->problem.value[fields.unaligned] != 0)
            return rc == 0 ? 0 : fail_with(rc, &diag);
        b->problem.value[fields.unaligned] = 1;
        kernel = NULL;
    }
}

static bool is_empty(const struct call *c)
{
    for (int i = 0; i < TENSOR_DIMS; i++)
        if (c->tensor[Q].shape[i] == 0 || c->tensor[K].shape[i] == 0)
            return true;
    return false;
}

/* Without keys the LSE is the sink. */
static int fill_with_zeros(struct backward *b, PyObject *d_lse)
{
    const int count = 4 + (int)PyList_Size(b->gradients);
    for (int i = 0; i < count; i++) {
        PyObject *is = i < 4 ? b->result[i] : PyList_GetItem(b->gradients, i - 4);
        PyObject *done = is != NULL ? PyObject_CallMethod(is, "zero_", NULL) : NULL;
        if (is != NULL && done == NULL)
            return -1;
        Py_XDECREF(done);
    }
    if (b->result[3] == NULL || d_lse == Py_None)
        return 0;
    Py_DECREF(b->result[3]);
    b->result[3] = b->call.problem.varlen != 0 ? PyObject_CallMethod(d_lse, "sum", "i", 1)
                                               : PyObject_CallMethod(d_lse, "sum", "((ii))", 0, 2);
    return b->result[3] != NULL ? 0 : -1;
}

static int run(struct backward *b, PyObject *const *given)
{
    struct call *c = &b->call;
    fa_diag diag;
    diag.text[0] = 0;
    int deterministic = PyObject_IsTrue(given[GIVEN_DETERMINISTIC]);
    if (deterministic < 0 || call_take_arguments(c) != 0 || call_take_options(c) != 0 ||
        call_take_tensors(c) != 0 ||
        take_problem(b, deterministic != 0, given[GIVEN_D_LSE] != Py_None) != 0 ||
        (c->tuner = session_tuner()) == NULL || make_gradients(b) != 0 ||
        make_gradients_of_buffers(b) != 0)
        return -1;
    if (is_empty(c))
        return fill_with_zeros(b, given[GIVEN_D_LSE]);
    if (take_o_and_lse(b, given) != 0 || take_gradients(b, given) != 0)
        return -1;
    pass_inputs(b);
    b->problem.value[fields.unaligned] = is_unaligned(b);
    const fa_kernel *kernel = call_find_at_hand(c, &b->problem);
    int rc = kernel == NULL ? session_enter(c->place.device, &c->entered, &diag) : 0;
    if (rc != 0)
        return fail_with(rc, &diag);
    int done = launch(b, kernel);
    if (c->entered)
        fa_leave_device(c->tuner);
    return done;
}

PyObject *attention_backward(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *names)
{
    struct backward b;
    PyObject *result = NULL;
    (void)self;
    if (count != GIVEN + 3)
        return PyErr_Format(PyExc_TypeError,
                            "attention_backward() takes %d arguments by position, not %zd",
                            GIVEN + 3, count);
    memset(&b, 0, sizeof b);
    call_begin(&b.call, DOOR_ATTENTION, NULL, args + GIVEN, count - GIVEN, names);
    b.call.wanted = args[GIVEN_WANTED];
    session_begin(); /* what is called meanwhile may run any Python, and the kernel is to live */
    if (run(&b, args) == 0)
        result = Py_BuildValue("(OOOOO)", b.result[0], b.result[1], b.result[2],
                               b.result[3] != NULL ? b.result[3] : Py_None, b.gradients);
    Py_XDECREF(b.gradients);
    for (int i = 0; i < 4; i++)
        Py_XDECREF(b.result[i]);
    for (int i = 0; i < 3; i++)
        tensor_release(&b.made[i]);
    tensor_release(&b.d_o);
    tensor_release(&b.d_lse);
    for (int i = 0; i < 2; i++)
        Py_XDECREF(b.copies[i]);
    call_end(&b.call);
    session_end();
    return result;
}
