/* SPDX-License-Identifier: Apache-2.0
 *
 * A profile as JSON: what the store keeps and what documents have. Without problem, GPU and rank, which stand beside it.
 */
#ifndef FA_BASE_PROFILE_H
#define FA_BASE_PROFILE_H

#include "json_struct.h"

/* A new object, owned by the caller; what was not counted is null. NULL: out of memory. */
cJSON *fa_profile_to_json(const fa_profile *profile);
/* The inverse, of what may be somebody else's. *ret_profile is set on success only. */
int fa_profile_from_json(const cJSON *json, fa_profile *ret_profile, fa_diag *diag);

/* The figures of a launch, in the order in which tables have them: what people call it, and where it is. */
typedef struct fa_profile_figure {
    const char *words; /* "tensor cores" */
    size_t offset;     /* of a double in fa_profile_launch, in percent; negative: not counted */
} fa_profile_figure;
enum { FA_PROFILE_FIGURES = 9 };
extern const fa_profile_figure fa_profile_figures[FA_PROFILE_FIGURES];
double fa_profile_figure_of(const fa_profile_launch *launch, int figure);

#endif
