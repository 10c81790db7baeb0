/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of a call: what they must be, what problem they make, and the outputs.
 */
#include "call_steps.h"

#include "tensor_new.h"

#include <string.h>

static const dl_dtype float32 = {DL_FLOAT, 32, 1};

static int compare_shape(const struct call *c, const tensor *t, const int64_t *wanted, int dims)
{
    char has[128], needs[128];
    if (t->dims == dims && memcmp(t->shape, wanted, (size_t)dims * sizeof *wanted) == 0)
        return 0;
    return fail(ERROR_SHAPE, "%s has the shape %s and needs %s, as %s, %s and layout=\"%s\" say",
                t->name, shape_text(t->shape, t->dims, has, sizeof has),
                shape_text(wanted, dims, needs, sizeof needs), c->tensor[Q].name, c->tensor[K].name,
                c->problem.layout == FA_BSHD ? "bshd" : "bhsd");
}

/* ---- inputs ---------------------------------------------------------------------------------*/
static bool is_half(dl_dtype dtype)
{
    return (dtype.code == DL_FLOAT || dtype.code == DL_BFLOAT) && dtype.bits == 16;
}

static int check_kinds(const struct call *c)
{
    const tensor *q = &c->tensor[Q], *k = &c->tensor[K];
    bool fp8 = c->problem.kv_dtype != FA_KV_SAME, rows = c->problem.kv_dtype == FA_KV_FP8_DS_MLA;
    char text[128], other[128];
    for (int i = Q; i <= V; i++) {
        const tensor *t = &c->tensor[i], *like = fp8 && i == V ? k : q;
        if (t->dims != TENSOR_DIMS)
            return fail(ERROR_SHAPE, "%s has the shape %s: pass a tensor of four dimensions",
                        t->name, shape_text(t->shape, t->dims, text, sizeof text));
        if (!(fp8 && i == K) &&
            (t->dtype.code != like->dtype.code || t->dtype.bits != like->dtype.bits))
            return fail(ERROR_DTYPE, "%s is %s and %s is %s: pass tensors of one type", like->name,
                        dtype_name(like->dtype, text, sizeof text), t->name,
                        dtype_name(t->dtype, other, sizeof other));
        if (t->device.id != c->place.device)
            return fail(ERROR_DEVICE,
                        "q is on CUDA device %d and %s on %d: pass tensors of one device",
                        (int)c->place.device, t->name, (int)t->device.id);
    }
    if (fp8 && (k->dtype.bits != 8 || k->dtype.code != (rows ? DL_UINT : DL_FLOAT8_E4M3FN)))
        return fail(ERROR_DTYPE, "%s is %s and has %s", k->name,
                    dtype_name(k->dtype, text, sizeof text),
                    rows ? "rows of 656 bytes: pass uint8" : "a scale: pass float8_e4m3fn");
    return c->problem.q_dtype == FA_KV_FP8 || is_half(q->dtype)
               ? 0
               : fail(ERROR_DTYPE, "%s, %s and %s are %s: pass float16 or bfloat16", q->name,
                      k->name, c->tensor[V].name, dtype_name(q->dtype, text, sizeof text));
}

static int check_shapes(const struct call *c)
{
    const tensor *q = &c->tensor[Q], *k = &c->tensor[K], *v = &c->tensor[V];
    int64_t wanted[TENSOR_DIMS];
    bool apart =
        c->problem.page > 0 || c->problem.varlen != 0; /* k's first dimension is not q's batch */
    memcpy(wanted, apart ? k->shape : q->shape, sizeof wanted);
    wanted[3] = c->problem.kv_dtype == FA_KV_FP8_DS_MLA ? 656 : q->shape[3];
    wanted[c->sequence] = k->shape[c->sequence];
    wanted[c->heads] = k->shape[c->heads];
    if (compare_shape(c, k, wanted, TENSOR_DIMS) != 0)
        return -1;
    wanted[3] = v->shape[3]; /* which it has for itself */
    if (compare_shape(c, v, wanted, TENSOR_DIMS) != 0)
        return -1;
    if (k->shape[c->heads] < 1 || q->shape[c->heads] % k->shape[c->heads] != 0)
        return fail(ERROR_SHAPE,
                    "q has %lld heads and %s has %lld: the former must be a multiple of the latter",
                    (long long)q->shape[c->heads], k->name, (long long)k->shape[c->heads]);
    return 0;
}

int call_take_strides(const struct call *c, const tensor *t, int64_t ret_stride[3])
{
    const int order[3] = {0, c->heads, c->sequence};
    int64_t all = 0;
    bool empty = false, many = false;
    for (int i = 0; i < 3; i++) {
        int64_t size = t->shape[order[i]];
        ret_stride[i] = size > 1 ? t->stride[order[i]] : t->shape[3];
        empty = empty || size == 0;
        many = many || size > 1;
        all |= size > 1 ? ret_stride[i] : 0;
    }
    if (t->shape[3] > 1 && t->stride[3] != 1)
        return fail(
            ERROR_SHAPE,
            "the last dimension of %s has the stride %lld and needs 1: pass %s.contiguous()",
            t->name, (long long)t->stride[3], t->name);
    if (all == 0 && many && !empty)
        return fail(ERROR_SHAPE, "%s repeats one row for every position: pass %s.contiguous()",
                    t->name, t->name);
    return 0;
}

/* Sets the fields that the tensors say, and the inputs of the launch. */
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
    problem->head_dim_v = v->shape[3] != q->shape[3] ? (int32_t)v->shape[3] : 0;
    /* Up to 512 columns, families that read both serve more queries faster. */
    problem->v_in_k = k->shape[3] > 512 && v->shape[3] < k->shape[3] && v->data == k->data &&
                      memcmp(v->stride, k->stride, sizeof k->stride) == 0;
    problem->want_lse = c->wants_lse;
    launch->size = sizeof *launch;
    launch->q = q->data;
    launch->k = k->data;
    launch->v = v->data;
    return call_take_strides(c, q, launch->q_stride) != 0 ||
                   call_take_strides(c, k, launch->k_stride) != 0 ||
                   call_take_strides(c, v, launch->v_stride) != 0
               ? -1
               : 0;
}

int call_take_tensors(struct call *c)
{
    PyObject *const *inputs = &c->is.q; /* k and v follow */
    if (tensor_place(&c->tensor[Q], c->is.q, "q", c->is.stream, &c->place) != 0)
        return -1;
    for (int i = Q; i <= V; i++)
        if (tensor_take(&c->tensor[i], inputs[i], c->door->keywords[i].name, &c->place) != 0)
            return -1;
    if (c->values != NULL &&
        PyLong_AsLongLong(c->is.v_dim) != c->tensor[V].shape[c->tensor[V].dims - 1]) {
        PyErr_Clear(); /* of what is no int */
        return fail(ERROR_SHAPE,
                    "v_dim must be a number of %s's columns, as many as it has or fewer",
                    c->tensor[K].name);
    }
    if (call_take_serving(c) != 0 || check_kinds(c) != 0 || check_shapes(c) != 0 ||
        take_problem(c) != 0)
        return -1;
    return call_finish_serving(c) != 0 ? -1 : call_take_buffers(c);
}

bool call_is_unaligned(const struct call *c)
{
    const fa_attn_args *launch = &c->launch;
    uint64_t pointers =
        (uintptr_t)launch->q | (uintptr_t)launch->k | (uintptr_t)launch->v | (uintptr_t)launch->o;
    uint64_t strides = 0;
    for (int i = 0; i < 3; i++)
        strides |= (uint64_t)(launch->q_stride[i] | launch->k_stride[i] | launch->v_stride[i] |
                              launch->o_stride[i]);
    return pointers % 16 != 0 || strides % 8 != 0;
}

/* ---- outputs --------------------------------------------------------------------------------*/
/* Shapes of the outputs as the caller sees them, and how many dimensions they have. */
struct outputs {
    int64_t out[TENSOR_DIMS], lse[3];
    int out_dims, lse_dims;
};

static struct outputs shapes_of(const struct call *c)
{
    const tensor *q = &c->tensor[Q], *v = &c->tensor[V];
    if (c->problem.varlen != 0) /* whose batch is ours alone */
        return (struct outputs){.out = {q->shape[1], q->shape[2], v->shape[3]},
                                .lse = {q->shape[2], q->shape[1]},
                                .out_dims = 3,
                                .lse_dims = 2};
    return (struct outputs){.out = {q->shape[0], q->shape[1], q->shape[2], v->shape[3]},
                            .lse = {q->shape[0], q->shape[c->heads], q->shape[c->sequence]},
                            .out_dims = 4,
                            .lse_dims = 3};
}

/* That of q, but of fp8 ones what the problem has. */
static dl_dtype output_type(const struct call *c)
{
    return c->problem.q_dtype != FA_KV_FP8 ? c->tensor[Q].dtype
           : c->problem.dtype == FA_FP16   ? (dl_dtype){DL_FLOAT, 16, 1}
                                           : (dl_dtype){DL_BFLOAT, 16, 1};
}

int call_take_shaped(struct call *c, int which, tensor *t, PyObject *given, const char *name)
{
    const struct outputs wanted = shapes_of(c);
    dl_dtype dtype = which == OUT ? output_type(c) : float32;
    char has[64], needs[64];
    if (tensor_take(t, given, name, &c->place) != 0 ||
        compare_shape(c, t, which == OUT ? wanted.out : wanted.lse,
                      which == OUT ? wanted.out_dims : wanted.lse_dims) != 0)
        return -1;
    if (which == OUT && c->problem.q_dtype == FA_KV_FP8 && is_half(t->dtype)) {
        c->problem.dtype = t->dtype.code == DL_FLOAT ? FA_FP16 : FA_BF16;
        dtype = t->dtype;
    }
    if (t->dtype.code != dtype.code || t->dtype.bits != dtype.bits)
        return fail(ERROR_DTYPE, "%s is %s and needs %s", t->name,
                    dtype_name(t->dtype, has, sizeof has), dtype_name(dtype, needs, sizeof needs));
    if (t->device.id != c->place.device)
        return fail(ERROR_DEVICE, "q is on CUDA device %d and %s on %d: pass tensors of one device",
                    (int)c->place.device, t->name, (int)t->device.id);
    if (c->problem.varlen != 0)
        tensor_into_one_batch(t);
    return 0;
}

/* The caller's tensor, if there is one. */
static int take_output(struct call *c, int which, PyObject *given)
{
    tensor *t = &c->tensor[which];
    if (given == NULL || given == Py_None)
        return 0;
    if (call_take_shaped(c, which, t, given, which == OUT ? "out" : "lse") != 0)
        return -1;
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
        return fail(ERROR_ARGUMENT, "out is a tuple: pass one tensor, or (out, lse) with %s=True",
                    call_name_of(c, &c->is.return_lse));
    *ret_out = PyTuple_GetItem(c->is.out, 0);
    *ret_lse = PyTuple_GetItem(c->is.out, 1);
    return 0;
}

int call_take_outputs(struct call *c)
{
    tensor *lse = &c->tensor[LSE], *out = &c->tensor[OUT];
    int64_t stride = 1;
    int dims;
    PyObject *given, *given_lse;
    if (split_out(c, &given, &given_lse) != 0 || take_output(c, OUT, given) != 0 ||
        take_output(c, LSE, given_lse) != 0)
        return -1;
    if (out->object != NULL && call_take_strides(c, out, c->launch.o_stride) != 0)
        return -1;
    dims = lse->object != NULL ? lse->dims : 0;
    for (int i = dims - 1; i >= 0; stride *= lse->shape[i], i--)
        if (lse->shape[i] > 1 && lse->stride[i] != stride)
            return fail(ERROR_SHAPE, "lse is not contiguous: pass lse.contiguous()");
    c->launch.o = out->data;
    c->launch.lse = (float *)(void *)lse->data;
    return 0;
}

int call_make_outputs(struct call *c)
{
    const tensor *q = &c->tensor[Q];
    char *data = NULL;
    if (c->result[0] == NULL) {
        struct outputs wanted = shapes_of(c);
        c->result[0] =
            c->problem.head_dim_v == 0 && c->problem.q_dtype == FA_KV_SAME
                ? tensor_like(q, wanted.out, wanted.out_dims, &c->place, &data)
                : tensor_new(q, wanted.out, wanted.out_dims, output_type(c), &c->place, &data);
        if (c->result[0] == NULL)
            return -1;
        c->launch.o = data;
    }
    if (c->wants_lse && c->result[1] == NULL) {
        struct outputs wanted = shapes_of(c);
        c->result[1] = tensor_new(q, wanted.lse, wanted.lse_dims, float32, &c->place, &data);
        if (c->result[1] == NULL)
            return -1;
        c->launch.lse = (float *)(void *)data;
    }
    return 0;
}

int call_make_workspace(struct call *c, const fa_kernel *kernel, size_t small)
{
    size_t size = fa_kernel_workspace(kernel);
    bool own_stream = c->is.stream != NULL && c->is.stream != Py_None;
    call_free_workspace(c); /* of a kernel that did not take these strides */
    if (size <= small || own_stream || c->tensor[Q].exchange == NULL)
        return 0;
    c->workspace = tensor_scratch(&c->tensor[Q], size);
    if (c->workspace == NULL)
        return -1;
    c->launch.workspace = (char *)c->workspace->tensor.data + c->workspace->tensor.byte_offset;
    c->launch.workspace_bytes = size;
    return 0;
}

void call_free_workspace(struct call *c)
{
    if (c->workspace != NULL && c->workspace->deleter != NULL)
        c->workspace->deleter(c->workspace);
    c->workspace = NULL;
    c->launch.workspace = NULL;
    c->launch.workspace_bytes = 0;
}
