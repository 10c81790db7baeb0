/* SPDX-License-Identifier: Apache-2.0
 *
 * The documents kernel_templates/OPERATION/operation.json, embedded by embed_operations.py.
 */
#ifndef FA_BASE_OPERATION_BUILTIN_H
#define FA_BASE_OPERATION_BUILTIN_H

#include <cJSON.h>

struct fa_operation_builtin {
    const char *where; /* "attn_fwd/operation.json" */
    const cJSON *document;
};

extern const struct fa_operation_builtin fa_operations_builtin[];
extern const size_t fa_operations_builtin_count;

#endif
