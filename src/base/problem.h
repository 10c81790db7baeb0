/* SPDX-License-Identifier: Apache-2.0
 *
 * What can be asked of a problem or a config without knowing any kernel: is it valid, what is its
 * key, how much work is it, and its JSON form.
 */
#ifndef FA_BASE_PROBLEM_H
#define FA_BASE_PROBLEM_H

#include <cJSON.h>
#include "buf.h"
#include "expr.h"
#include "operation.h"

enum { FA_PROBLEM_KEY_MAX = 576, FA_CONFIG_TEXT_MAX = 1152 };

/* 0, or FA_EINVAL with a sentence that names the field, its value and its range. */
int fa_problem_check(const fa_problem *problem, fa_diag *diag);

/* Whether keys, JSON and kernels do without the field: it is optional and at its default. */
bool fa_field_is_absent(const fa_field *field, int32_t value);

/* The problem itself, but for an empty one, for which the smallest that is not empty stands. */
fa_problem fa_problem_exact(const fa_problem *problem);

/* The length that stands for this one: 0 to 16 for themselves, then the nearest (in ratio, at a tie
 * the longer) of eight in every octave (1, 1.125, 1.25 … 1.875 times 2^k). So a length and its bucket
 * differ by a factor of at most 1.061, and from 512 on every bucket is a multiple of 64. Upwards: the
 * next multiple of 8, from 1,024 on the next of 64 in an octave; a last part of an octave has none above it. */
int32_t fa_length_bucket(int32_t length, bool up);

/* The bucket in which tuning and lookup both work: the problem that stands for this one. Lengths go
 * to their buckets, everything else stays; equal lengths stay equal, a longer one never becomes the
 * shorter, a single query stays one. */
fa_problem fa_problem_bucket(const fa_problem *problem);

/* How far apart two problems are that one cubin may compute with another grid: the sum of the ratios' logarithms to
 * base 2 over lengths and batch, and as much as five octaves more for a single query beside many; negative when they
 * differ in anything else. Neither may be empty. */
double fa_problem_apart(const fa_problem *a, const fa_problem *b);

/* Canonical text, equal for equal problems: the part of a winner's key that names the problem. */
void fa_problem_key(const fa_problem *problem, char ret_key[FA_PROBLEM_KEY_MAX]);

/* The key without its lengths: equal for problems that differ in them alone. */
void fa_problem_shape(const fa_problem *problem, char ret_shape[FA_PROBLEM_KEY_MAX]);

/* Values of what was not given (bit i of `given` is field i): its default, or the value of the field
 * that it follows. */
void fa_problem_fill(fa_problem *problem, uint32_t given);

/* For people, as in "fp16 · B 4 · H 8 · S 512 · D 64 · causal bottom-right", with `separator` for " · ";
 * brief, as in "fp16 B4 H8 S512 D64 causal". */
void fa_problem_words(fa_buf *out, const fa_problem *problem, const char *separator, bool brief);
/* Of the lengths alone: "S 512", or "S 1 Sk 512". */
void fa_problem_lengths(fa_buf *out, const fa_problem *problem);

/* An expression over the operation's fields, by their macros, and its value for a problem. */
int fa_operation_expr(const fa_operation *operation, const char *text, fa_expr **ret_expr,
                      fa_diag *diag);
fa_expr_value fa_problem_evaluate(const fa_problem *problem, const fa_expr *expr);

/* Floating-point operations ("flops") and bytes of all tensors ("bytes"), for reporting: expressions of the operation's
 * file; 0: it has none. Of attention the usual count: 4*B*H*Sq*Sk*D, halved when causal. */
double fa_problem_work(const fa_problem *problem, const char *key);
/* Whether nothing says what its kernels should compute: they are compared with one another alone. */
bool fa_problem_has_no_answer(const fa_problem *problem);
/* Whether the program that tunes says what is right (fa_spec_cases). */
bool fa_problem_answer_is_given(const fa_problem *problem);
/* Whether a tensor that kernels read is fp32: the tensor cores' rate, which is that of 16-bit types, is then no
 * ceiling of theirs. */
bool fa_problem_reads_fp32(const fa_problem *problem);

bool fa_problem_equal(const fa_problem *a, const fa_problem *b);
/* For sorting: negative, 0 or positive. The default operation comes first; of one operation what kernels are compiled for,
 * then lengths: a table is read along them. */
int fa_problem_compare(const fa_problem *a, const fa_problem *b);
/* Whether there is nothing to compute. */
bool fa_problem_is_empty(const fa_problem *problem);
/* Some problem of the operation that is valid. */
fa_problem fa_problem_some(const fa_operation *operation);

/* New JSON object, owned by the caller; NULL when out of memory. Here and below `void` serves tables of members. */
cJSON *fa_problem_to_json(const void *problem);
/* The same; a specification's operation by "NAME@HASH", which no other text answers to. */
cJSON *fa_member_very_problem(const void *problem);
/* Checks every field: a hostile document is fine. What is absent has its default, or the value of the field that it follows;
 * refused is one without either, and with `sizes` any other integer that is not optional. An absent operation is that of
 * *ret_problem. Other keys are refused, but for `beside` (NULL: none; "*": any). FA_ENOTSUP: an operation that is not
 * known here. */
int fa_problem_from_json(const cJSON *json, bool sizes, const char *beside, fa_problem *ret_problem,
                         fa_diag *diag);
/* The same, with its sizes, for tables of members; an operation that is not known is FA_EINVAL, too. */
int fa_member_read_problem(const cJSON *json, void *ret_problem, fa_diag *diag);

/* A name that is an identifier in C and in SQL, shorter than FA_NAME_MAX. */
bool fa_is_identifier(const char *name);

/* {"BLOCK_M":128,...} in the config's order; always fits. */
void fa_config_text(const fa_config *config, char ret_text[FA_CONFIG_TEXT_MAX]);
bool fa_config_get(const fa_config *config, const char *name, int32_t *ret_value);
/* Same family and the same values by name, in any order. */
bool fa_config_equal(const fa_config *a, const fa_config *b);
cJSON *fa_config_to_json(const void *config); /* {"family":..., "tunables":{...}} */
int fa_config_from_json(const cJSON *json, void *ret_config, fa_diag *diag);

/* What decides a winner: compute capability, SM count, shared-memory limits, L2, memory bus and
 * clock class. The product name is not in it. */
enum { FA_SILICON_MAX = 128 };
void fa_gpu_silicon(const fa_gpu *gpu, char ret_silicon[FA_SILICON_MAX]);
cJSON *fa_gpu_to_json(const fa_gpu *gpu);

/* Walking over the fields of a problem, for the files of this room that do. */
#define EACH_FIELD(op, f) \
    for (const fa_field *f = (op)->field; f < (op)->field + (op)->field_count; f++)
#define VALUE(problem, op, f) ((problem)->value[(f) - (op)->field])

/* Operations whose gradients are an operation of their own: "backward" in operation.json, as attention forward has it.
 *
 *     "backward": {"operation": "attn_bwd", "needs": ["lse"], "ignores": ["layout"], "refuses": ["varlen"]}
 *
 * needs: yes-or-no fields of the forward pass that training asks for, and that its gradients do not have; ignores: fields
 * that say nothing of the gradients; refuses: fields that mean another thing there. */
/* Sets what training needs of a forward pass, and makes the problem of its gradients of the fields that have one name in both.
 * FA_ENOTFOUND: the operation has none. FA_ENOTSUP: the gradients have no such field as one that is not its default. */
int fa_problem_train(fa_problem *forward, fa_problem *ret_backward, fa_diag *diag);

#endif
