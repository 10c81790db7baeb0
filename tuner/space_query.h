/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FA_TUNER_SPACE_QUERY_H
#define FA_TUNER_SPACE_QUERY_H

#include "family.h"

#include "buf.h"

/* One row per config, as fa_family_take_row takes it: of the whole space, or of the `count` given. */
void fa_query_space(fa_buf *sql, const fa_family *f, const fa_problem *problem, const fa_gpu *gpu,
                    const fa_config *const *config, int count);

/* One row per config and problem, as fa_family_take_launches takes it. */
void fa_query_launches(fa_buf *sql, const fa_family *f, const fa_problem *problem,
                       int problem_count, const fa_gpu *gpu, const fa_config *const *config,
                       int count);

/* One row over the given names: the supports, or the default of every tunable. */
void fa_query_fixed(fa_buf *sql, const fa_family *f, bool supports, const fa_problem *problem,
                    const fa_gpu *gpu);

#endif
