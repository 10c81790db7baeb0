/* SPDX-License-Identifier: Apache-2.0
 *
 * From the text of an operation.json to an operation that nobody knows yet.
 */
#ifndef FA_BASE_OPERATION_READ_H
#define FA_BASE_OPERATION_READ_H

#include "operation.h"

/* `where` names the document in sentences. The caller frees what it does not make known, and keeps the
 * document as long as the operation. */
int fa_operation_make(const cJSON *document, const char *where, fa_operation **ret_operation,
                      fa_diag *diag);
int fa_operation_read(const char *text, size_t size, const char *where,
                      fa_operation **ret_operation, fa_diag *diag);
void fa_operation_free(fa_operation *operation);

#endif
