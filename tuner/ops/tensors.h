/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors, scalars and tolerance that an operation.json tells, for one problem.
 *
 * May be used by: tuner/ops.
 */
#ifndef FA_TUNER_OPS_TENSORS_H
#define FA_TUNER_OPS_TENSORS_H

#include "call.h"
#include "driver.h"
#include "expr.h"
#include "snippet.h"

#include <string.h>

enum {
    FA_TENSORS_MAX = 32,
    FA_SCALARS_MAX = 12,
    FA_PARAMETERS_MAX = FA_TENSORS_MAX + FA_SCALARS_MAX,
    FA_STRUCTS_MAX = 4,
    FA_TENSOR_STRIDES = 3,
    FA_PARAMS_MAX = 2048
};

/* In the order of fa_check.cuh, to which a bool is a uint8. */
typedef enum fa_element {
    FA_ELEMENT_FP16,
    FA_ELEMENT_BF16,
    FA_ELEMENT_FP32,
    FA_ELEMENT_FP64,
    FA_ELEMENT_INT8,
    FA_ELEMENT_INT16,
    FA_ELEMENT_INT32,
    FA_ELEMENT_INT64,
    FA_ELEMENT_UINT8,
    FA_ELEMENT_UINT16,
    FA_ELEMENT_UINT32,
    FA_ELEMENT_UINT64,
    FA_ELEMENT_FP8_E4M3,
    FA_ELEMENT_FP8_E5M2,
    FA_ELEMENT_COMPLEX64,
    FA_ELEMENT_COMPLEX128,
    FA_ELEMENT_BOOL,
    FA_ELEMENTS
} fa_element;

typedef struct fa_tensor {
    const char *name;
    fa_element element;
    bool output;
    /* an output that is also an input: it is made anew before every launch of a proof */
    bool updated;
    /* an output of which a kernel writes as much as it likes: the sum of its elements is compared */
    bool partial;
    bool summed; /* an output to which the reference adds: it begins with zeros */
    int scratch; /* which of fa_launches.scratch it is, whose size the launches say; -1: none */
    bool made; /* an input that the reference's entry `inputs` computes from the others */
    int when;  /* the field at whose default the tensor is not needed; -1: it always is */
    /* of an input: the variable of the module that it is copied to; NULL: none */
    const char *symbol;
    bool parameter; /* of one with a symbol: whether the kernel takes its address besides */
    int align; /* bytes that its address and its strides are multiples of, unless problem.unaligned */
    int dims;
    int64_t size[FA_ARGUMENT_DIMS];   /* sizes that no field says */
    int field[FA_ARGUMENT_DIMS];      /* fields that say a size; -1: none does */
    fa_expr *expr[FA_ARGUMENT_DIMS];  /* sizes that are computed; NULL: not so */
    fa_expr *low,
        *high; /* of integers: the range of a proof's values, high excluded; NULL: the usual one. low: of others, of `normal` */
    int stride_count;   /* of a strided tensor: of all dimensions but the last */
    /* of the problem that was read for, below 2^60; a complex one counts twice */
    uint64_t elements;
    int64_t from, span; /* of that problem: the range, span 0: the usual one */
    bool normal;        /* what is timed reads normal numbers, not the usual k / 64 */
    bool runs; /* of integers: what is timed reads equal ones in a row, as those of documents are */
} fa_tensor;

typedef struct fa_scalar {
    const char *name;
    fa_element element;
    double value;  /* that proofs pass */
    fa_expr *expr; /* what it always is; NULL: the caller says */
    int field;     /* of integers: which field that is; -1: it must be computed */
} fa_scalar;

typedef struct fa_tensor_list {
    int count;
    fa_tensor at[FA_TENSORS_MAX];
    /* Behind `plain` tensors lie the buffers of a user's score and mask, then the gradients of those whose is wanted. */
    int plain, buffer_count;
    fa_buffer buffer[FA_ATTN_BUFFERS];
    int scalar_count;
    fa_scalar scalar[FA_SCALARS_MAX];
    /* The arguments of a kernel that takes them one by one, tensors by their index and scalars by FA_TENSORS_MAX + theirs;
     * none: it takes one struct. */
    int parameter_count, parameter[FA_PARAMETERS_MAX];
    /* Structs by value of such a kernel, whose fields follow one another in `parameter`, as C++ lays them out. */
    int struct_count;
    struct {
        const char *name;
        int first, count, size, offset[FA_PARAMETERS_MAX];
    } structure[FA_STRUCTS_MAX];
    /* The arguments in which all of these are: as `parameter` has them, structs by FA_PARAMETERS_MAX + theirs. */
    int argument_count, argument[FA_PARAMETERS_MAX];
    /* Those that each launch takes, and the answer, in its order. */
    struct {
        int count, at[FA_PARAMETERS_MAX];
    } taken[FA_LAUNCHES_MAX + 1];
    bool launches; /* there is a list of them */
    int scratch_count;
    int unaligned; /* the field that lifts the demands on alignment; -1: none does */
    double ulps, relative, of_largest, absolute; /* what an output may differ by */
} fa_tensor_list;

/* A scalar in its own type. */
typedef union fa_scalar_bits {
    uint64_t bits;
    float fp32;
    int64_t int64;
} fa_scalar_bits;

/* What one launch is passed. */
typedef struct fa_tensor_values {
    uint64_t address[FA_TENSORS_MAX];
    int64_t stride[FA_TENSORS_MAX][FA_TENSOR_STRIDES]; /* in elements, of strided tensors */
    fa_scalar_bits scalar[FA_SCALARS_MAX];
    struct fa_attn_buffer_params buffer[FA_ATTN_BUFFERS];
} fa_tensor_values;

/* FA_EINVAL with a sentence where the operation.json does not tell them. The caller frees what it has read. */
int fa_tensors_read(const fa_problem *problem, fa_tensor_list *ret_list, fa_diag *diag);
void fa_tensors_free(fa_tensor_list *list);

/* Size of a dimension in this problem; negative: it has none. */
int64_t fa_tensor_size(const fa_tensor *tensor, const fa_problem *problem, int dimension);
/* Whether a caller must pass it. */
bool fa_tensor_is_needed(const fa_tensor *tensor, const fa_problem *problem);
/* The addresses of scratch in a launch's workspace, into the values. */
void fa_tensors_scratch(const fa_tensor_list *list, const fa_launches *launches, uint64_t workspace,
                        fa_tensor_values *values);
/* What a tensor, by its index, or a scalar, by FA_TENSORS_MAX + its own, is to a caller. */
void fa_tensors_argument(const fa_tensor_list *list, int argument, const fa_problem *problem,
                         fa_argument *ret_argument);
/* Strides of the tensor when its elements lie one behind another. */
void fa_tensor_pack(const fa_tensor *tensor, const fa_problem *problem,
                    int64_t ret_stride[FA_TENSOR_STRIDES]);
const char *fa_element_name(fa_element element);
/* By the name in operations ("fp32", "int64") or the short one ("f32", "i64"). */
bool fa_element_find(const char *name, fa_element *ret_element);
/* Numbers of an element: 2 of a complex one, whose parts lie one behind the other; else 1. The rest is of one number. */
int fa_element_numbers(fa_element element);
size_t fa_element_size(fa_element element);
bool fa_element_is_integer(fa_element element);
double fa_element_value(fa_element element, const void *at);
/* Of a value that the type holds exactly. */
void fa_element_store(fa_element element, double value, void *at);

/* What an output may differ by: of the wanted element, of the largest one, and besides. */
typedef struct fa_tolerance {
    double relative, of_largest, absolute;
} fa_tolerance;
fa_tolerance fa_tensors_tolerance(const fa_tensor_list *list, fa_element element);

/* How far a number of an output is from the wanted one, whose magnitude is that of the whole complex number, and what is
 * allowed, `largest` being the output's largest wanted one. An infinite one is met by the same infinity alone; NaN by nothing. */
double fa_tolerance_error(const fa_tolerance *tolerance, double largest, double got, double wanted,
                          double magnitude, double *ret_allowed);

/* The scalars of a proof, and those that are computed of a problem. */
void fa_tensors_scalars(const fa_problem *problem, const fa_tensor_list *list, bool all,
                        fa_tensor_values *values);
/* Of one of fa_tensor_list.argument. */
const char *fa_tensors_name(const fa_tensor_list *list, int argument);
/* Points to what the kernel of a launch is passed: to the one struct in ret_params, or to each parameter in `values`. Their
 * count. */
int fa_tensors_arguments(const fa_problem *problem, const fa_tensor_list *list, int launch,
                         fa_tensor_values *values, unsigned char ret_params[FA_PARAMS_MAX],
                         void *ret_argument[FA_PARAMETERS_MAX]);
/* Bytes of that struct. */
size_t fa_tensors_params(const fa_problem *problem, const fa_tensor_list *list,
                         const fa_tensor_values *values, unsigned char ret_params[FA_PARAMS_MAX]);

/* Where a score or mask has a logarithm, a root or a power, which some negative numbers lack: the elements of a real buffer are 1 to 4,
 * and no query of a drawn case stands before the first key unless queries of the problem do. */
void fa_case_keep_positive(const fa_problem *problem, bool is_real, fa_tensor *buffer);
void fa_case_keep_domain(const fa_problem *problem, fa_problem *drawn);

#endif
