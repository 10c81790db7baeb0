/* SPDX-License-Identifier: Apache-2.0
 *
 * What a manifest's expressions may read besides its own tunables and lets: the fields of the
 * operation that have a macro, then the GPU.
 */
#ifndef FA_TUNER_GIVEN_H
#define FA_TUNER_GIVEN_H

#include "operation.h"

enum { FA_GIVEN_MAX = FA_PROBLEM_VALUES + 6 };

typedef struct fa_given {
    int count;
    const char *name[FA_GIVEN_MAX];
    int64_t value[FA_GIVEN_MAX];
    uint64_t sized; /* bit i: name i is of a field that does not shape the source */
} fa_given;

/* The names, and their values for a problem on a GPU (both or none may be NULL). Of features, those
 * whose bit is in `takes`. */
void fa_given_make(const fa_operation *operation, uint32_t takes, const fa_problem *problem,
                   const fa_gpu *gpu, fa_given *ret_given);

#endif
