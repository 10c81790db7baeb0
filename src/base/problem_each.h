/* SPDX-License-Identifier: Apache-2.0
 *
 * Walking over the fields of a problem, for the files of this room that do.
 */
#ifndef FA_BASE_PROBLEM_EACH_H
#define FA_BASE_PROBLEM_EACH_H

#include "operation.h"

#define EACH_FIELD(op, f) \
    for (const fa_field *f = (op)->field; f < (op)->field + (op)->field_count; f++)
#define VALUE(problem, op, f) ((problem)->value[(f) - (op)->field])

#endif
