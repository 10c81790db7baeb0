/* SPDX-License-Identifier: Apache-2.0
 *
 * From what was asked to the key under which it is looked up.
 */
#ifndef FA_ENGINE_TARGET_H
#define FA_ENGINE_TARGET_H

#include "session.h"

/* Everything that is decided before a winner is looked up. */
typedef struct fa_target {
    fa_problem problem; /* to be tuned: the bucket, or the asked one itself */
    fa_problem asked;   /* made not empty */
    fa_gpu gpu;
    fa_scope scope; /* of `problem` */
} fa_target;

/* gpu_name NULL: device `ordinal`. `work` is held. */
int fa_target_resolve(fa_tuner *tuner, const fa_problem *problem, const char *gpu_name,
                      int32_t ordinal, bool exact, fa_target *ret_target, fa_diag *diag);

#endif
