/* SPDX-License-Identifier: Apache-2.0
 *
 * What the library itself reads and writes of the texts of fa_service.h: a client's side, and the table of a sweep.
 *
 * May be used by: sources and above.
 */
#ifndef FA_WIRE_WIRE_H
#define FA_WIRE_WIRE_H

#include "fa_tune.h"
#include "json.h"

bool fa_is_sha256(const char *text); /* 64 hexadecimal digits */

extern const fa_member fa_sweep_members[], fa_each_members[]; /* of a fa_sweep; of a fa_ask */

int fa_ask_write(const fa_ask *ask, char **ret_text, fa_diag *diag);
/* {"answer": …}, of which other keys are passed over. */
int fa_kernel_read(const char *text, size_t size, fa_answer *ret_answer, fa_diag *diag);
/* A code that is not known reads as FA_EIO. */
int fa_failure_read(const char *text, size_t size, int *ret_code, fa_diag *ret_message,
                    fa_diag *diag);

#endif
