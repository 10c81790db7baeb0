/* SPDX-License-Identifier: Apache-2.0
 *
 * What serving passes beyond dense tensors: sequences that lie behind one another, paged caches, windows,
 * soft caps, sinks and scales of an fp8 cache. docs/serving.md has the contract.
 *
 * Workload: nothing for a call that passes none of it.
 */
#include "call_steps.h"

#include <string.h>

static const struct {
    const char *name;
    dl_dtype dtype;
    size_t at; /* of the pointer in the launch's arguments */
    int dims_min, dims_max;
} extras[EXTRAS] = {
    [CU_SEQLENS_Q] = {"cu_seqlens_q", {DL_INT, 32, 1}, offsetof(fa_attn_args, cu_seqlens_q), 1, 1},
    [CU_SEQLENS_K] = {"cu_seqlens_k", {DL_INT, 32, 1}, offsetof(fa_attn_args, cu_seqlens_k), 1, 1},
    [SEQUSED_K] = {"seqused_k", {DL_INT, 32, 1}, offsetof(fa_attn_args, seqused_k), 1, 1},
    [BLOCK_TABLE] = {"block_table", {DL_INT, 32, 1}, offsetof(fa_attn_args, block_table), 2, 2},
    [SINKS] = {"sinks", {DL_FLOAT, 32, 1}, offsetof(fa_attn_args, sinks), 1, 1},
    [K_SCALE] = {"k_scale", {DL_FLOAT, 32, 1}, offsetof(fa_attn_args, k_scale), 0, 2},
    [V_SCALE] = {"v_scale", {DL_FLOAT, 32, 1}, offsetof(fa_attn_args, v_scale), 0, 2},
};

static bool has(const struct call *c, int which)
{
    return c->is.extra[which] != NULL && c->is.extra[which] != Py_None;
}

static int take_extra(struct call *c, int which)
{
    tensor *t = &c->extra[which];
    char text[64], needs[64];
    if (tensor_take(t, c->is.extra[which], extras[which].name, &c->place) != 0)
        return -1;
    if (t->dtype.code != extras[which].dtype.code || t->dtype.bits != extras[which].dtype.bits)
        return fail(ERROR_DTYPE, "%s is %s and needs %s", t->name,
                    dtype_name(t->dtype, text, sizeof text),
                    dtype_name(extras[which].dtype, needs, sizeof needs));
    if (t->dims < extras[which].dims_min || t->dims > extras[which].dims_max)
        return fail(ERROR_SHAPE, "%s has %d dimensions and needs %d", t->name, (int)t->dims,
                    extras[which].dims_max);
    if (t->device.id != c->place.device)
        return fail(ERROR_DEVICE, "q is on CUDA device %d and %s on %d: pass tensors of one device",
                    (int)c->place.device, t->name, (int)t->device.id);
    if (which < K_SCALE && t->shape[t->dims - 1] > 1 && t->stride[t->dims - 1] != 1)
        return fail(ERROR_SHAPE, "%s is not contiguous: pass %s.contiguous()", t->name, t->name);
    memcpy((char *)&c->launch + extras[which].at, &t->data, sizeof t->data);
    return 0;
}

static int take_extras(struct call *c)
{
    for (int i = 0; i < EXTRAS; i++) {
        if (!has(c, i))
            continue;
        if (c->extra == NULL && (c->extra = PyMem_Calloc(EXTRAS, sizeof *c->extra)) == NULL)
            return PyErr_NoMemory(), -1;
        if (take_extra(c, i) != 0)
            return -1;
    }
    return 0;
}

/* The pair (left, right), -1 for no limit. */
static int take_window(struct call *c)
{
    fa_problem *problem = &c->problem;
    if (c->is.window == NULL || c->is.window == Py_None)
        return 0;
    if (!PyTuple_Check(c->is.window) || PyTuple_Size(c->is.window) != 2)
        return fail(
            ERROR_ARGUMENT,
            "window must be a pair (left, right): keys beside the diagonal, -1 for no limit");
    long left = PyLong_AsLong(PyTuple_GetItem(c->is.window, 0));
    long right = PyLong_AsLong(PyTuple_GetItem(c->is.window, 1));
    if (PyErr_Occurred())
        return -1;
    if (left < -1 || right < -1 || left > INT32_MAX || right > INT32_MAX)
        return fail(ERROR_ARGUMENT, "window is (%ld, %ld): -1 is the least", left, right);
    problem->window = left >= 0 || right >= 0;
    problem->window_left = problem->window ? (int32_t)left : 0;
    problem->window_right = problem->window ? (int32_t)right : 0;
    return 0;
}

static int take_softcap(struct call *c)
{
    if (c->is.softcap == NULL || c->is.softcap == Py_None)
        return 0;
    double cap = PyFloat_AsDouble(c->is.softcap);
    if (cap == -1.0 && PyErr_Occurred())
        return -1;
    c->launch.softcap = (float)cap;
    c->problem.softcap = cap > 0;
    return cap >= 0 && cap < 2e38 ? 0
                                  : fail(ERROR_ARGUMENT, "softcap must be positive, or 0 for none");
}

/* Whether each sequence has keys of its own, in a dense tensor. */
static bool has_dense_keys(const struct call *c)
{
    return c->problem.page == 0 && !has(c, CU_SEQLENS_K);
}

/* A number of rows that only the caller knows: the device has the lengths. */
static int take_most(PyObject *given, const char *name, int32_t *ret_number)
{
    if (given == NULL || given == Py_None)
        return fail(ERROR_ARGUMENT, "sequences of different lengths need %s, the most that any has",
                    name);
    long most = PyLong_AsLong(given);
    if (most == -1 && PyErr_Occurred())
        return -1;
    if (most < 0 || most > INT32_MAX)
        return fail(ERROR_ARGUMENT, "%s is %ld: pass 0 to 2147483647", name, most);
    *ret_number = (int32_t)most;
    return 0;
}

/* Rows behind one another, [total, heads, dim], are one batch of [seq, heads, dim]. */
static int take_rows(struct call *c, int which)
{
    tensor *t = &c->tensor[which];
    char text[128];
    if (t->dims != 3)
        return fail(
            ERROR_SHAPE, "%s has the shape %s: with cu_seqlens_%s it is [total, heads, head_dim]",
            t->name, shape_text(t->shape, t->dims, text, sizeof text), which == Q ? "q" : "k");
    tensor_into_one_batch(t);
    return 0;
}

int call_take_serving(struct call *c)
{
    fa_problem *problem = &c->problem;
    if (take_window(c) != 0 || take_softcap(c) != 0 || take_extras(c) != 0)
        return -1;
    if (c->extra == NULL)
        return 0;
    problem->varlen = has(c, CU_SEQLENS_Q);
    problem->sinks = has(c, SINKS);
    problem->lengths_k = has(c, SEQUSED_K)      ? FA_LENGTHS_SEQUSED
                         : has(c, CU_SEQLENS_K) ? FA_LENGTHS_CU_SEQLENS
                                                : FA_LENGTHS_FIXED;
    if (has(c, K_SCALE) != has(c, V_SCALE))
        return fail(ERROR_ARGUMENT, "an fp8 cache needs both k_scale and v_scale");
    problem->kv_dtype = has(c, K_SCALE) ? FA_KV_FP8 : FA_KV_SAME;
    if (has(c, CU_SEQLENS_K) && !problem->varlen)
        return fail(ERROR_ARGUMENT,
                    "cu_seqlens_k needs cu_seqlens_q: pass seqused_k for the lengths of a "
                    "cache");
    if (problem->varlen) { /* whose rows have heads within them */
        problem->layout = FA_BSHD;
        c->heads = 2;
        c->sequence = 1;
        if (take_rows(c, Q) != 0)
            return -1;
    }
    if (has(c, BLOCK_TABLE))
        problem->page =
            c->tensor[K].dims == TENSOR_DIMS ? (int32_t)c->tensor[K].shape[c->sequence] : 0;
    else if (has(c, CU_SEQLENS_K) && (take_rows(c, K) != 0 || take_rows(c, V) != 0))
        return -1;
    return 0;
}

static int check_count(const struct call *c, int which, int64_t wanted)
{
    if (!has(c, which) || c->extra[which].shape[0] == wanted)
        return 0;
    return fail(ERROR_SHAPE, "%s has %lld entries and needs %lld", extras[which].name,
                (long long)c->extra[which].shape[0], (long long)wanted);
}

/* Strides of batch and head; a scale of the whole tensor has none. */
static void take_scale_strides(const tensor *t, int64_t ret_stride[2])
{
    for (int i = 0; i < t->dims; i++)
        ret_stride[i] = t->shape[i] > 1 ? t->stride[i] : 0;
}

int call_finish_serving(struct call *c)
{
    fa_problem *problem = &c->problem;
    fa_attn_args *launch = &c->launch;
    if (c->extra == NULL)
        return 0;
    if (problem->varlen) {
        launch->total_q = problem->seq_q;
        launch->total_k = has(c, CU_SEQLENS_K) && problem->page == 0 ? problem->seq_k : 0;
        problem->batch = (int32_t)c->extra[CU_SEQLENS_Q].shape[0] - 1;
        if (take_most(c->is.max_seqlen_q, "max_seqlen_q", &problem->seq_q) != 0)
            return -1;
    }
    if (problem->page > 0) {
        const tensor *table = &c->extra[BLOCK_TABLE];
        launch->num_pages = (int32_t)c->tensor[K].shape[0];
        launch->block_table_stride = table->shape[0] > 1 ? table->stride[0] : table->shape[1];
        problem->seq_k = (int32_t)(table->shape[1] * problem->page);
    }
    bool known =
        !has(c, CU_SEQLENS_K) && (c->is.max_seqlen_k == NULL || c->is.max_seqlen_k == Py_None);
    if (!known && take_most(c->is.max_seqlen_k, "max_seqlen_k", &problem->seq_k) != 0)
        return -1;
    if (has_dense_keys(c) && c->tensor[K].shape[0] != problem->batch)
        return fail(ERROR_SHAPE, "k has %lld sequences and there are %d",
                    (long long)c->tensor[K].shape[0], (int)problem->batch);
    take_scale_strides(&c->extra[K_SCALE], launch->k_scale_stride);
    take_scale_strides(&c->extra[V_SCALE], launch->v_scale_stride);
    return check_count(c, CU_SEQLENS_Q, problem->batch + 1) != 0 ||
                   check_count(c, CU_SEQLENS_K, problem->batch + 1) != 0 ||
                   check_count(c, SEQUSED_K, problem->batch) != 0 ||
                   check_count(c, BLOCK_TABLE, problem->batch) != 0 ||
                   check_count(c, SINKS, problem->heads_q) != 0
               ? -1
               : 0;
}
