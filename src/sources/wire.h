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
/* Reads an object of at most `limit` bytes whose texts are UTF-8 without control bytes: `read` gets the document, and what it is to fill in. A reader of an object is one of a member, too
 * (json_struct.h): it fails for what is no object. */
typedef int fa_wire_reader(const cJSON *json, void *ret, fa_diag *diag);
int fa_wire_read(const char *text, size_t size, size_t limit, const char *where,
                 fa_wire_reader *read, void *ret, fa_diag *diag);
/* FA_EINVAL for what is no object. */
int fa_wire_object(const cJSON *json, const char *what, fa_diag *diag);
bool fa_wire_is_hash(const char *text); /* 64 hexadecimal digits */

/* What the client of a service writes and reads; the other half is public. */
int fa_ask_write(const fa_ask *ask, char **ret_text, fa_diag *diag);
/* A code that is not known reads as FA_EIO. */
int fa_failure_read(const char *text, size_t size, int *ret_code, fa_diag *ret_message,
                    fa_diag *diag);
fa_wire_reader fa_wire_read_answer; /* fa_answer (wire_answer.c) */

#endif
