/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of fa_service.h's texts as JSON values, for the files that write and read them.
 */
#ifndef FA_SOURCES_WIRE_H
#define FA_SOURCES_WIRE_H

#include "fa_tune.h"

#include "error.h"
#include "json_struct.h"
#include "problem.h"

/* ---- every text (wire.c) --------------------------------------------------------------------*/
/* Text of a document, which is deleted; NULL as a document is out of memory. Caller frees. */
int fa_wire_print(cJSON *json, char **ret_text, fa_diag *diag);
/* An object of at most `limit` bytes whose texts are UTF-8 without control bytes. */
int fa_wire_parse(const char *text, size_t size, size_t limit, const char *where, cJSON **ret_json,
                  fa_diag *diag);
/* A nested value that must be an object. */
int fa_wire_object(const cJSON *object, const char *key, const char *where, const cJSON **ret,
                   fa_diag *diag);
bool fa_wire_is_hash(const char *text); /* 64 hexadecimal digits */
/* A problem as a member: NULL is missing, and every key is known. */
int fa_wire_problem(const cJSON *json, fa_need need, fa_problem *ret_problem, fa_diag *diag);

/* ---- their parts (wire_answer.c) ------------------------------------------------------------*/
int fa_wire_read_answer(const cJSON *object, fa_answer *ret_answer, fa_diag *diag);
int fa_wire_read_sweep(const cJSON *object, fa_sweep *ret_sweep, fa_diag *diag);

#endif
