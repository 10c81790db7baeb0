/* SPDX-License-Identifier: Apache-2.0
 *
 * What a tune is to try: the whole space, or a few configs that are known from elsewhere.
 */
#ifndef FA_ENGINE_PLAN_H
#define FA_ENGINE_PLAN_H

#include "lookup.h"

enum { FA_PLAN_MAX = 8 };

/* What a tune is to try: everything, or these configs alone. */
typedef struct fa_plan_item {
    fa_config config;
    fa_origin origin; /* TRANSFERRED or PREDICTED; of a config to be raced: where it is from */
    fa_problem from_problem;
    char from_gpu[64];
    double predicted_us;
} fa_plan_item;

typedef struct fa_plan {
    fa_plan_item item[FA_PLAN_MAX];
    int count; /* 0: the whole space */
    bool prove_only;
    bool promised; /* what would have been served unmeasured, to be compared with the truth */
    fa_plan_item promise;
    bool with_alternative; /* of the bucket, at an exact point: raced beside the best */
    fa_config alternative;
    bool verify;                  /* prove item[0] and store no winner and no trial */
    const fa_cubin_record *cubin; /* that is to be verified as it is; NULL: compiled for it */
} fa_plan;

/* Plans a tune of the target for a request. `work` is held. */
int fa_plan_make(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                 const fa_matches *matches, fa_plan *ret_plan, fa_diag *diag);

#endif
