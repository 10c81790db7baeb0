/* SPDX-License-Identifier: Apache-2.0
 *
 * A trial as JSON, there and back.
 */
#include "trial.h"

#include "problem.h"

#include <math.h>

cJSON *fa_config_write(const void *config)
{
    return fa_config_to_json(config);
}

int fa_config_read(const cJSON *json, void *ret_config, fa_diag *diag)
{
    return fa_config_from_json(json, ret_config, diag);
}

#define ROW(kind, name, member, ...) FA_MEMBER(name, kind, fa_trial, member, __VA_ARGS__),
#define THREE(name, member) FA_MEMBER(name, THREE, fa_trial, member),
const fa_member fa_trial_members[] = {
    FA_CONFIG_MEMBER(fa_trial, config),
    FA_TRIAL_FIELDS(ROW, THREE){.key = NULL},
};

bool fa_trial_add_json(cJSON *object, const fa_trial *trial)
{
    fa_trial known = *trial;
    if (!(known.threads > 0))
        known.smem_bytes = -1;
    if (!(known.registers > 0))
        known.spill_bytes = -1;
    if (!(known.median_us > 0)) {
        known.low_us = known.high_us = -1;
        known.sample_count = -1;
    }
    if (!(known.tolerance > 0))
        known.max_error = NAN;
    return fa_struct_add_json(object, fa_trial_members, &known);
}

int fa_trial_from_json(const cJSON *object, fa_trial *ret_trial, fa_diag *diag)
{
    fa_trial trial = {0};
    if (!cJSON_IsObject(object))
        return fa_fail(diag, FA_EINVAL, "trial: must be a JSON object");
    int rc = fa_struct_from_json(object, fa_trial_members, &trial, "trial", diag);
    if (rc != 0)
        return rc;
    if (isnan(trial.max_error) && !(trial.tolerance > 0))
        trial.max_error = 0;
    *ret_trial = trial;
    return 0;
}
