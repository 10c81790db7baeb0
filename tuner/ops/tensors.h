/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors, scalars and tolerance that an operation.json tells (see generic.h), for one problem.
 *
 * May be used by: tuner/ops.
 */
#ifndef FA_TUNER_OPS_TENSORS_H
#define FA_TUNER_OPS_TENSORS_H

#include "fa_types.h"

enum { FA_TENSORS_MAX = 12, FA_SCALARS_MAX = 8, FA_TENSOR_STRIDES = 3, FA_PARAMS_MAX = 560 };

typedef enum fa_element { FA_ELEMENT_FP16, FA_ELEMENT_BF16, FA_ELEMENT_FP32 } fa_element;

typedef struct fa_tensor {
    const char *name;
    fa_element element;
    bool output;
    bool made; /* an input that the reference's entry `inputs` computes from the others */
    int when;  /* the field at whose default the tensor is not needed; -1: it always is */
    int align; /* bytes that its address and its strides are multiples of, unless problem.unaligned */
    int dims, size[FA_ARGUMENT_DIMS]; /* sizes that no field says */
    int field[FA_ARGUMENT_DIMS];      /* fields that say a size; -1: none does */
    int stride_count;                 /* of a strided tensor: of all dimensions but the last */
    uint64_t elements;                /* of the problem that was read for, below 2^60 */
} fa_tensor;

typedef struct fa_tensor_list {
    int count;
    fa_tensor at[FA_TENSORS_MAX];
    int scalar_count;
    const char *scalar_name[FA_SCALARS_MAX];
    float scalar[FA_SCALARS_MAX]; /* that proofs pass */
    int unaligned;                /* the field that lifts the demands on alignment; -1: none does */
    double ulps, of_largest, absolute; /* what an output may differ by */
} fa_tensor_list;

/* What one launch is passed. */
typedef struct fa_tensor_values {
    uint64_t address[FA_TENSORS_MAX];
    int64_t stride[FA_TENSORS_MAX][FA_TENSOR_STRIDES]; /* in elements, of strided tensors */
    float scalar[FA_SCALARS_MAX];
} fa_tensor_values;

/* FA_EINVAL with a sentence where the operation.json does not tell them. */
int fa_tensors_read(const fa_problem *problem, fa_tensor_list *ret_list, fa_diag *diag);

/* Size of a dimension in this problem. */
int64_t fa_tensor_size(const fa_tensor *tensor, const fa_problem *problem, int dimension);
/* Strides of the tensor when its elements lie one behind another. */
void fa_tensor_pack(const fa_tensor *tensor, const fa_problem *problem,
                    int64_t ret_stride[FA_TENSOR_STRIDES]);
const char *fa_element_name(fa_element element);
size_t fa_element_size(fa_element element);
float fa_element_value(fa_element element, const void *at);
/* Of a value that every type holds exactly. */
void fa_element_store(fa_element element, float value, void *at);

/* What an output may differ by, beside the absolute part: of the wanted element, and of the largest one. */
void fa_tensors_tolerance(const fa_tensor_list *list, fa_element element, double *ret_relative,
                          double *ret_of_largest);

/* How far an output's element is from the wanted one, and what is allowed, `largest` being the output's largest
 * wanted magnitude. An infinite one is met by the same infinity alone; NaN by nothing. */
double fa_tensors_error(const fa_tensor_list *list, fa_element element, double largest, double got,
                        double wanted, double *ret_allowed);

/* The struct that kernels take: bytes of it. */
size_t fa_tensors_params(const fa_problem *problem, const fa_tensor_list *list,
                         const fa_tensor_values *values, unsigned char ret_params[FA_PARAMS_MAX]);
/* The same of packed tensors and the scalars of a proof. */
size_t fa_tensors_params_packed(const fa_problem *problem, const fa_tensor_list *list,
                                const uint64_t address[FA_TENSORS_MAX],
                                unsigned char ret_params[FA_PARAMS_MAX]);

#endif
