/* SPDX-License-Identifier: Apache-2.0
 *
 * New tensors of the library that another tensor comes from.
 */
#ifndef FA_PYTHON_TENSOR_NEW_H
#define FA_PYTHON_TENSOR_NEW_H

#include "tensors.h"

/* A new contiguous tensor of the library that `like` comes from. Returns a new reference. */
PyObject *tensor_new(const tensor *like, const int64_t *shape, int dims, dl_dtype dtype,
                     place *place, char **ret_data);
/* The same with the shape and type of `like` as its library sees it. */
PyObject *tensor_like(const tensor *like, const int64_t *shape, int dims, place *place,
                      char **ret_data);
/* A tensor with the shape, the type and the order of strides of `like`, of PyTorch, as its empty_like() makes it; contiguous where
 * elements of a row would not lie side by side. *ret_made describes it, for tensor_release(). */
PyObject *tensor_alike(const tensor *like, place *place, tensor *ret_made);
/* Bytes of the memory that `like` is in, until its deleter is called; the library has an exchange table. */
dl_managed *tensor_scratch(const tensor *like, size_t size);
/* A tuple of ints. */
PyObject *tuple_of(const int64_t *number, int count);

#endif
