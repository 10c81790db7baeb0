/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of kernel_templates/OPERATION/operation.json, embedded by embed_operations.py.
 */
#ifndef FA_BASE_OPERATION_BUILTIN_H
#define FA_BASE_OPERATION_BUILTIN_H

#include <stddef.h>

struct fa_operation_text {
    const char *where; /* "attn_fwd/operation.json" */
    const char *text;
    size_t size;
};

extern const struct fa_operation_text fa_operations_builtin[];
extern const size_t fa_operations_builtin_count;

#endif
