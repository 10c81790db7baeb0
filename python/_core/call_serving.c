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
    dl_dtype dtype;
    size_t at; /* of the pointer in the launch's arguments */
    int dims_min, dims_max;
} extras[EXTRAS] = {
    [CU_SEQLENS_Q] = {{DL_INT, 32, 1}, offsetof(fa_attn_args, cu_seqlens_q), 1, 1},
    [CU_SEQLENS_K] = {{DL_INT, 32, 1}, offsetof(fa_attn_args, cu_seqlens_k), 1, 1},
    [SEQUSED_K] = {{DL_INT, 32, 1}, offsetof(fa_attn_args, seqused_k), 1, 1},
    [BLOCK_TABLE] = {{DL_INT, 32, 1}, offsetof(fa_attn_args, block_table), 2, 2},
    [SINKS] = {{DL_FLOAT, 32, 1}, offsetof(fa_attn_args, sinks), 1, 1},
    [K_SCALE] = {{DL_FLOAT, 32, 1}, offsetof(fa_attn_args, k_scale), 0, 2},
    [V_SCALE] = {{DL_FLOAT, 32, 1}, offsetof(fa_attn_args, v_scale), 0, 2},
};

static bool has(const struct call *c, int which)
{
    return c->is.extra[which] != NULL && c->is.extra[which] != Py_None;
}

static const char *name_of(const struct call *c, int which)
{
    return call_name_of(c, &c->is.extra[which]);
}

static int take_extra(struct call *c, int which)
{
    tensor *t = &c->extra[which];
    char text[64], needs[64];
    if (tensor_take(t, c->is.extra[which], name_of(c, which), &c->place) != 0)
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

/* Scores know only the product of the scales of fp8 queries and of keys: it takes the place of the latter. */
static int take_q_scale(struct call *c)
{
    tensor of[2] = {0};
    PyObject *given[] = {c->is.q_scale, c->is.extra[K_SCALE]};
    const char *name = call_name_of(c, &c->is.q_scale);
    if (c->is.q_scale == NULL || c->is.q_scale == Py_None)
        return 0;
    if (c->tensor[Q].dtype.bits != 8)
        return fail(ERROR_NOT_SUPPORTED, "%s is for a q of float8_e4m3fn", name);
    if (!has(c, K_SCALE) || (c->is.stream != NULL && c->is.stream != Py_None))
        return fail(ERROR_ARGUMENT, "%s needs %s, and no stream of its own", name,
                    name_of(c, K_SCALE));
    int rc = 0, one = 1;
    for (int i = 0; rc == 0 && i < 2; i++)
        rc = tensor_take(&of[i], given[i], i == 0 ? name : name_of(c, K_SCALE), &c->place);
    for (int i = 0; rc == 0 && i < of[0].dims; i++)
        one = one && of[0].shape[i] == 1;
    if (rc == 0 && !one &&
        (of[0].dims != of[1].dims ||
         memcmp(of[0].shape, of[1].shape, (size_t)of[0].dims * sizeof of[0].shape[0]) != 0))
        rc = fail(ERROR_SHAPE, "%s must be one scale, or as many as %s has", name,
                  name_of(c, K_SCALE));
    tensor_release(&of[0]);
    tensor_release(&of[1]);
    if (rc == 0)
        c->scales = PyNumber_Multiply(c->is.q_scale, c->is.extra[K_SCALE]);
    if (rc != 0 || c->scales == NULL)
        return -1;
    c->is.extra[K_SCALE] = c->scales;
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

/* One side of the window; -1: no limit. */
static int take_side(const struct call *c, Py_ssize_t which, int32_t *ret_side)
{
    PyObject *item = PySequence_GetItem(c->is.window, which);
    int overflow = 0;
    long side = item != NULL ? PyLong_AsLongAndOverflow(item, &overflow) : -1;
    bool failed = side == -1 && PyErr_Occurred() != NULL;
    Py_XDECREF(item);
    if (failed || overflow != 0 || side < -1 || side > INT32_MAX) {
        PyErr_Clear();
        return fail(ERROR_ARGUMENT, "%s must hold two ints from -1, which is no limit, to %d",
                    call_name_of(c, &c->is.window), INT32_MAX);
    }
    *ret_side = (int32_t)side;
    return 0;
}

/* The pair (left, right), -1 for no limit. */
static int take_window(struct call *c)
{
    fa_problem *problem = &c->problem;
    int32_t left, right;
    if (c->is.window == NULL || c->is.window == Py_None)
        return 0;
    bool pair = PyTuple_Check(c->is.window) || PyList_Check(c->is.window);
    if (!pair || PySequence_Size(c->is.window) != 2)
        return fail(ERROR_ARGUMENT,
                    "%s must be a pair (left, right): keys beside the diagonal, -1 for no limit",
                    call_name_of(c, &c->is.window));
    if (take_side(c, 0, &left) != 0 || take_side(c, 1, &right) != 0)
        return -1;
    problem->window = left >= 0 || right >= 0;
    problem->window_left = problem->window ? left : 0;
    problem->window_right = problem->window ? right : 0;
    return 0;
}

static int take_softcap(struct call *c)
{
    double cap;
    if (c->is.softcap == NULL || c->is.softcap == Py_None)
        return 0;
    if (call_take_number(c, &c->is.softcap, &cap) != 0)
        return -1;
    c->launch.softcap = (float)cap;
    c->problem.softcap = cap > 0;
    return cap == 0 || (c->launch.softcap > 0 && cap < 2e38)
               ? 0
               : fail(ERROR_ARGUMENT, "%s must be positive, at most 2e38, or 0 for none",
                      call_name_of(c, &c->is.softcap));
}

/* Whether each sequence has keys of its own, in a dense tensor. */
static bool has_dense_keys(const struct call *c)
{
    return c->problem.page == 0 && !has(c, CU_SEQLENS_K);
}

/* A number of rows that only the caller knows: the device has the lengths. */
static int take_most(const struct call *c, PyObject *const *given, int32_t *ret_number)
{
    const char *name = call_name_of(c, given);
    int overflow = 0;
    if (*given == NULL || *given == Py_None)
        return fail(ERROR_ARGUMENT, "sequences of different lengths need %s, the most that any has",
                    name);
    long most = PyLong_AsLongAndOverflow(*given, &overflow);
    if (most == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return fail(ERROR_ARGUMENT, "%s must be an int, which the host knows", name);
    }
    if (overflow != 0 || most < 0 || most > INT32_MAX)
        return fail(ERROR_ARGUMENT, "%s must be 0 to %d", name, INT32_MAX);
    *ret_number = (int32_t)most;
    return 0;
}

/* Rows behind one another, [total, heads, dim], are one batch of [seq, heads, dim]. */
static int take_rows(struct call *c, int which)
{
    tensor *t = &c->tensor[which];
    char text[128];
    if (t->dims != 3)
        return fail(ERROR_SHAPE, "%s has the shape %s: with %s it is [total, heads, head_dim]",
                    t->name, shape_text(t->shape, t->dims, text, sizeof text),
                    name_of(c, which == Q ? CU_SEQLENS_Q : CU_SEQLENS_K));
    tensor_into_one_batch(t);
    return 0;
}

/* Arguments that belong together, or that exclude one another. */
static int check_together(const struct call *c)
{
    if (has(c, K_SCALE) != has(c, V_SCALE))
        return fail(ERROR_ARGUMENT, "an fp8 cache needs both %s and %s", name_of(c, K_SCALE),
                    name_of(c, V_SCALE));
    if (has(c, CU_SEQLENS_K) && !has(c, CU_SEQLENS_Q))
        return fail(ERROR_ARGUMENT, "%s needs %s: pass %s for the lengths of a cache",
                    name_of(c, CU_SEQLENS_K), name_of(c, CU_SEQLENS_Q), name_of(c, SEQUSED_K));
    if (has(c, CU_SEQLENS_K) && has(c, SEQUSED_K))
        return fail(ERROR_ARGUMENT, "%s and %s both give the lengths of the keys: pass one of them",
                    name_of(c, CU_SEQLENS_K), name_of(c, SEQUSED_K));
    return 0;
}

/* What flash_attn_varlen_func asks for, and attention() does not. */
static int check_varlen(const struct call *c)
{
    if (c->door != &doors[DOOR_VARLEN])
        return 0;
    if (!has(c, CU_SEQLENS_Q))
        return fail(ERROR_ARGUMENT,
                    "attention_varlen() needs cu_seqlens_q; attention() takes sequences of one "
                    "length");
    if (!has(c, CU_SEQLENS_K) && !has(c, SEQUSED_K))
        return fail(
            ERROR_ARGUMENT,
            "attention_varlen() needs the lengths of the keys: cu_seqlens_k for packed rows, or "
            "seqused_k for a cache");
    return 0;
}

static bool is_e4m3(const tensor *t)
{
    return t->dtype.bits == 8 && t->dtype.code == DL_FLOAT8_E4M3FN;
}

int call_take_serving(struct call *c)
{
    fa_problem *problem = &c->problem;
    if (c->values != NULL && c->tensor[K].dtype.code == DL_UINT && c->tensor[K].dtype.bits == 8)
        problem->kv_dtype = FA_KV_FP8_DS_MLA;
    if (take_window(c) != 0 || take_softcap(c) != 0 || take_q_scale(c) != 0 ||
        take_extras(c) != 0 || check_varlen(c) != 0)
        return -1;
    if (c->extra == NULL)
        return 0;
    problem->varlen = has(c, CU_SEQLENS_Q);
    problem->sinks = has(c, SINKS);
    problem->lengths_k = has(c, SEQUSED_K)      ? FA_LENGTHS_SEQUSED
                         : has(c, CU_SEQLENS_K) ? FA_LENGTHS_CU_SEQLENS
                                                : FA_LENGTHS_FIXED;
    if (has(c, K_SCALE) || problem->kv_dtype != FA_KV_FP8_DS_MLA)
        problem->kv_dtype = has(c, K_SCALE) ? FA_KV_FP8 : FA_KV_SAME;
    problem->q_dtype = has(c, K_SCALE) && is_e4m3(&c->tensor[Q]) ? FA_KV_FP8 : FA_KV_SAME;
    if (check_together(c) != 0)
        return -1;
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
    return fail(ERROR_SHAPE, "%s has %lld entries and needs %lld", c->extra[which].name,
                (long long)c->extra[which].shape[0], (long long)wanted);
}

/* One scale, or one of each sequence, or one of each sequence and head: strides of batch and head, which a
 * dimension of one does not have. */
static int take_scale_strides(const struct call *c, int which, int64_t ret_stride[2])
{
    const tensor *t = &c->extra[which];
    const int64_t most[] = {c->problem.batch, c->problem.heads_kv};
    char text[64];
    for (int i = 0; has(c, which) && i < t->dims; i++) {
        if (t->shape[i] != 1 && t->shape[i] != most[i])
            return fail(ERROR_SHAPE, "%s has the shape %s: pass one scale, (%d) or (%d, %d)",
                        t->name, shape_text(t->shape, t->dims, text, sizeof text), (int)most[0],
                        (int)most[0], (int)most[1]);
        ret_stride[i] = t->shape[i] > 1 ? t->stride[i] : 0;
    }
    return 0;
}

/* The most keys of a sequence. Without max_seqlen_k all that there is room for; rows behind one another have no
 * room of their own. */
static int take_keys(struct call *c)
{
    const tensor *table = &c->extra[BLOCK_TABLE];
    bool given = c->is.max_seqlen_k != NULL && c->is.max_seqlen_k != Py_None;
    bool rows = has(c, CU_SEQLENS_K);
    int64_t room = c->problem.page > 0 ? table->shape[1] * c->problem.page : c->problem.seq_k;
    if (!given && !rows && room <= INT32_MAX) {
        c->problem.seq_k = (int32_t)room;
        return 0;
    }
    if (take_most(c, &c->is.max_seqlen_k, &c->problem.seq_k) != 0)
        return -1;
    /* Where nothing on the device says less, this many keys are read. */
    bool all_read = !rows && (c->problem.page == 0 || !has(c, SEQUSED_K));
    return !all_read || c->problem.seq_k <= room
               ? 0
               : fail(ERROR_ARGUMENT, "%s is %d, and a sequence has room for %lld keys",
                      call_name_of(c, &c->is.max_seqlen_k), (int)c->problem.seq_k, (long long)room);
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
        if (c->extra[CU_SEQLENS_Q].shape[0] < 2)
            return fail(ERROR_SHAPE, "%s has no sequence: it needs 0 and the end of each",
                        name_of(c, CU_SEQLENS_Q));
        problem->batch = (int32_t)c->extra[CU_SEQLENS_Q].shape[0] - 1;
        if (take_most(c, &c->is.max_seqlen_q, &problem->seq_q) != 0)
            return -1;
    }
    if (problem->page > 0) {
        const tensor *table = &c->extra[BLOCK_TABLE];
        launch->num_pages = (int32_t)c->tensor[K].shape[0];
        launch->block_table_stride = table->shape[0] > 1 ? table->stride[0] : table->shape[1];
        if (launch->block_table_stride < table->shape[1])
            return fail(ERROR_SHAPE, "the rows of %s overlap: pass %s.contiguous()", table->name,
                        table->name);
    }
    if (take_keys(c) != 0)
        return -1;
    /* Means are a caller's constants, and the longest lengths change from call to call. */
    problem->mean_q = problem->mean_q < problem->seq_q ? problem->mean_q : problem->seq_q;
    problem->mean_k = problem->mean_k < problem->seq_k ? problem->mean_k : problem->seq_k;
    if (has_dense_keys(c) && c->tensor[K].shape[0] != problem->batch)
        return fail(ERROR_SHAPE, "%s has %lld sequences and there are %d", c->tensor[K].name,
                    (long long)c->tensor[K].shape[0], (int)problem->batch);
    return take_scale_strides(c, K_SCALE, launch->k_scale_stride) != 0 ||
                   take_scale_strides(c, V_SCALE, launch->v_scale_stride) != 0 ||
                   check_count(c, CU_SEQLENS_Q, (int64_t)problem->batch + 1) != 0 ||
                   check_count(c, CU_SEQLENS_K, (int64_t)problem->batch + 1) != 0 ||
                   check_count(c, SEQUSED_K, problem->batch) != 0 ||
                   check_count(c, BLOCK_TABLE, problem->batch) != 0 ||
                   check_count(c, SINKS, problem->heads_q) != 0
               ? -1
               : 0;
}
