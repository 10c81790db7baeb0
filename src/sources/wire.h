/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of fa_service.h's texts as JSON values, for the files that write and read them.
 */
#ifndef FA_ENGINE_WIRE_H
#define FA_ENGINE_WIRE_H

#include "fa_tune.h"

#include "error.h"
#include "json.h"
#include "problem.h"

/* Text of a document, which is deleted; NULL as a document is out of memory. Caller frees. */
int fa_wire_print(cJSON *json, char **ret_text, fa_diag *diag);
/* An object of at most `limit` bytes whose texts are UTF-8 without control bytes. */
int fa_wire_parse(const char *text, size_t size, size_t limit, const char *where, cJSON **ret_json,
                  fa_diag *diag);
/* Every key is one of these (ending with NULL), and once. */
int fa_wire_keys(const cJSON *object, const char *const *keys, const char *where, fa_diag *diag);
/* A nested value that must be an object. */
int fa_wire_object(const cJSON *object, const char *key, const char *where, const cJSON **ret,
                   fa_diag *diag);
/* Absent: left alone. */
int fa_wire_flag(const cJSON *object, const char *key, bool *ret, const char *where, fa_diag *diag);
/* A name of one of `count`, or FA_EINVAL. */
int fa_wire_choice(const cJSON *object, const char *key, const char *const *names, int count,
                   int *ret, const char *where, fa_diag *diag);
/* Absent: left alone. */
int fa_wire_effort(const cJSON *object, fa_effort *ret, const char *where, fa_diag *diag);

/* The problem of an ask, with its defaults. */
int fa_wire_ask_problem(const cJSON *object, fa_problem *ret_problem, fa_diag *diag);

/* NULL when out of memory. */
cJSON *fa_wire_answer(const fa_answer *answer);
int fa_wire_answer_from(const cJSON *object, fa_answer *ret_answer, fa_diag *diag);
cJSON *fa_wire_progress(const fa_progress *progress);
int fa_wire_progress_from(const cJSON *object, fa_progress *ret_progress, fa_trial *ret_trial,
                          fa_trial *ret_best, fa_diag *diag);
cJSON *fa_wire_sweep(const fa_sweep *sweep);
int fa_wire_sweep_from(const cJSON *object, fa_sweep *ret_sweep, fa_diag *diag);

#endif
