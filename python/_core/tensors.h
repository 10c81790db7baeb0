/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of other libraries, through DLPack: described, allocated, and the stream their library works on.
 */
#ifndef FA_PYTHON_TENSORS_H
#define FA_PYTHON_TENSORS_H

#include "dlpack.h"
#include "errors.h"

enum { TENSOR_DIMS = 4 };

/* One tensor while a call uses it. Zero is "nothing taken". */
typedef struct tensor {
    PyObject *object; /* borrowed */
    const char *name; /* in sentences: "q" */
    char *data;       /* of the first element */
    dl_device device;
    dl_dtype dtype;
    int32_t dims;
    int64_t shape[TENSOR_DIMS], stride[TENSOR_DIMS];
    bool read_only;
    const dl_exchange *exchange; /* of the object's type; NULL: it has none */
    PyObject *empty;             /* torch.empty_like, borrowed; NULL: not a tensor of PyTorch */
    dl_managed *managed;         /* owned: the producer's description */
    PyObject *capsule;           /* owned: the same by __dlpack__ */
} tensor;

/* Where a call works. */
typedef struct place {
    int32_t device;
    void *stream;
    bool wait; /* nobody knows which stream the tensors' library works on: wait for the result */
    enum {
        GRAD_UNASKED,
        GRAD_ON,
        GRAD_OFF
    } grad; /* whether PyTorch records gradients on this thread */
} place;

int tensors_init(void);
/* The device of a call's first tensor, which must be a CUDA device, and the stream current there. */
int tensor_place(tensor *first, PyObject *object, PyObject *stream, place *ret_place);
/* Describes the object; tensor->object may have been taken by tensor_place already. */
int tensor_take(tensor *tensor, PyObject *object, const char *name, place *place);
/* A new contiguous tensor of the library that `like` comes from. Returns a new reference. */
PyObject *tensor_new(const tensor *like, const int64_t *shape, int dims, dl_dtype dtype,
                     place *place, char **ret_data);
/* The same with the shape and type of `like` as its library sees it. */
PyObject *tensor_like(const tensor *like, const int64_t *shape, int dims, place *place,
                      char **ret_data);
/* Bytes of the memory that `like` is in, until its deleter is called; the library has an exchange table. */
dl_managed *tensor_scratch(const tensor *like, size_t size);
/* Rows of three dimensions become a batch of one. */
void tensor_into_one_batch(tensor *tensor);
void tensor_release(tensor *tensor);
/* "float32", as PyTorch and NumPy say it. */
const char *dtype_name(dl_dtype dtype, char *ret_text, size_t size);
/* "(4, 8, 512, 64)" */
const char *shape_text(const int64_t *shape, int dims, char *ret_text, size_t size);

#endif
