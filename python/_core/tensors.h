/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of other libraries, through DLPack: described, and the stream that their library works on.
 */
#ifndef FA_PYTHON_TENSORS_H
#define FA_PYTHON_TENSORS_H

#include "dlpack.h"
#include "errors.h"

enum { TENSOR_DIMS = 4 };

/* What is called of PyTorch, by its module: held for good. */
struct torch_functions {
    struct torch_functions *next;
    PyObject *module;
    PyObject *empty_like, *is_grad_enabled;
    PyObject *contiguous; /* the keywords of empty_like that ask for that */
    PyObject *empty_strided; /* (size, stride, dtype), on the current device; or NULL */
    PyObject *forward_ad; /* the module torch.autograd.forward_ad, or NULL */
    PyObject *float16, *bfloat16, *float32;
};

/* One tensor while a call uses it. */
typedef struct tensor {
    PyObject *object;    /* borrowed; NULL: nothing taken, and only what tensor_clear() sets is */
    char *data;          /* of the first element */
    dl_managed *managed; /* owned: the producer's description */
    PyObject *capsule;   /* owned: the same by __dlpack__ */
    const char *name;    /* in sentences: "q" */
    dl_device device;
    dl_dtype dtype;
    int32_t dims;
    int64_t shape[TENSOR_DIMS], stride[TENSOR_DIMS];
    bool read_only;
    bool plain; /* of PyTorch's own type: nobody has replaced what its functions do */
    const dl_exchange *exchange;         /* of the object's type; NULL: it has none */
    const struct torch_functions *torch; /* NULL: not a tensor of PyTorch */
} tensor;

static inline void tensor_clear(tensor *t)
{
    t->object = NULL;
    t->data = NULL;
    t->managed = NULL;
    t->capsule = NULL;
}

/* Where a call works. */
typedef struct place {
    int32_t device;
    void *stream;
    bool wide; /* dimensions may be 2^31 or more */
    bool wait; /* nobody knows which stream the tensors' library works on: wait for the result */
    enum {
        GRAD_UNASKED,
        GRAD_ON,
        GRAD_OFF,
        GRAD_FORWARD
    } grad; /* whether PyTorch records gradients on this thread, or tensors may carry tangents */
    const char *recorded; /* the first tensor of which that is so, or NULL */
} place;

int tensors_init(void);
/* The device of a call's first tensor, which must be a CUDA device, and the stream current there. */
int tensor_place(tensor *first, PyObject *object, const char *name, PyObject *stream,
                 place *ret_place);
/* The exception for a call that has no backward pass where one was to be recorded; 0: none was. */
int tensors_refuse_grad(const place *place, const char *function);
/* Describes the object; tensor->object may have been taken by tensor_place already. */
int tensor_take(tensor *tensor, PyObject *object, const char *name, place *place);
/* A tensor of fewer than TENSOR_DIMS becomes a batch of one, and back. */
void tensor_into_one_batch(tensor *tensor);
void tensor_out_of_one_batch(tensor *tensor);
void tensor_release(tensor *tensor);
/* "float32", as PyTorch and NumPy say it. */
const char *dtype_name(dl_dtype dtype, char *ret_text, size_t size);
/* "(4, 8, 512, 64)" */
const char *shape_text(const int64_t *shape, int dims, char *ret_text, size_t size);

#endif
