/* SPDX-License-Identifier: Apache-2.0
 *
 * A trial as JSON, there and back.
 */
#include "error.h"
#include "json.h"
#include "json_make.h"
#include "problem.h"

#include <math.h>

static const char where[] = "trial";

bool fa_trial_add_json(cJSON *object, const fa_trial *trial)
{
    bool measured = trial->median_us > 0, compiled = trial->registers > 0;
    if (!fa_json_add(object, "config", fa_config_to_json(&trial->config)))
        return false;
    fa_json_add_text(object, "status", fa_status_name(trial->status));
    fa_json_add_text(object, "reason", trial->reason);
    fa_json_add_known(object, "threads", trial->threads, trial->threads > 0);
    fa_json_add_known(object, "smem_bytes", trial->smem_bytes,
                      trial->threads > 0 && trial->smem_bytes >= 0);
    fa_json_add_known(object, "registers", trial->registers, compiled);
    fa_json_add_known(object, "spill_bytes", trial->spill_bytes,
                      compiled && trial->spill_bytes >= 0);
    fa_json_add_known(object, "blocks_per_sm", trial->blocks_per_sm, trial->blocks_per_sm > 0);
    cJSON *grid = fa_json_add_array(object, "grid");
    for (int i = 0; i < 3; i++)
        fa_json_push(grid, cJSON_CreateNumber(trial->grid[i]));
    fa_json_add_known(object, "compile_ms", trial->compile_ms, trial->compile_ms > 0);
    fa_json_add_known(object, "predicted_us", trial->predicted_us, trial->predicted_us > 0);
    fa_json_add_known(object, "median_us", trial->median_us, measured);
    fa_json_add_known(object, "low_us", trial->low_us, measured);
    fa_json_add_known(object, "high_us", trial->high_us, measured);
    fa_json_add_known(object, "sample_count", trial->sample_count, measured);
    fa_json_add_bool(object, "raced", trial->raced);
    fa_json_add_known(object, "max_error", trial->max_error, trial->tolerance > 0);
    fa_json_add_known(object, "tolerance", trial->tolerance, trial->tolerance > 0);
    return cJSON_GetArraySize(grid) == 3;
}

static int read_grid(const cJSON *object, uint32_t grid[3], fa_diag *diag)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(object, "grid");
    const cJSON *item = cJSON_IsArray(array) ? array->child : NULL;
    int count = 0;
    for (; item != NULL && count < 3; item = item->next, count++) {
        double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(value >= 0 && value <= UINT32_MAX && floor(value) == value))
            break;
        grid[count] = (uint32_t)value;
    }
    return count == 3 && item == NULL
               ? 0
               : fa_fail(diag, FA_EINVAL, "%s: \"grid\" must be three whole numbers", where);
}

int fa_trial_from_json(const cJSON *object, fa_trial *ret_trial, fa_diag *diag)
{
    fa_trial trial = {0};
    char status[FA_NAME_MAX] = "";
    if (!cJSON_IsObject(object))
        return fa_fail(diag, FA_EINVAL, "%s: must be a JSON object", where);
    int rc = fa_config_from_json(cJSON_GetObjectItemCaseSensitive(object, "config"), &trial.config,
                                 diag);
    if (rc == 0)
        rc = fa_json_copy_needed(object, "status", status, sizeof status, where, diag);
    if (rc == 0 && fa_status_parse(status, &trial.status) != 0)
        rc = fa_fail(diag, FA_EINVAL, "%s: there is no status \"%s\"", where, status);
    if (rc == 0)
        rc = fa_json_copy_needed(object, "reason", trial.reason, sizeof trial.reason, where, diag);
    const struct {
        const char *key;
        int32_t *value;
    } counts[] = {{"threads", &trial.threads},
                  {"smem_bytes", &trial.smem_bytes},
                  {"registers", &trial.registers},
                  {"spill_bytes", &trial.spill_bytes},
                  {"blocks_per_sm", &trial.blocks_per_sm},
                  {"sample_count", &trial.sample_count}};
    for (size_t i = 0; rc == 0 && i < sizeof counts / sizeof *counts; i++)
        rc = fa_json_int_known(object, counts[i].key, counts[i].value, where, diag);
    const struct {
        const char *key;
        double *value;
    } reals[] = {{"compile_ms", &trial.compile_ms}, {"predicted_us", &trial.predicted_us},
                 {"median_us", &trial.median_us},   {"low_us", &trial.low_us},
                 {"high_us", &trial.high_us},       {"max_error", &trial.max_error},
                 {"tolerance", &trial.tolerance}};
    for (size_t i = 0; rc == 0 && i < sizeof reals / sizeof *reals; i++)
        rc = fa_json_real_known(object, reals[i].key, reals[i].value, where, diag);
    if (rc == 0 && trial.tolerance > 0 &&
        cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(object, "max_error")))
        trial.max_error = NAN;
    if (rc == 0)
        rc = read_grid(object, trial.grid, diag);
    if (rc == 0)
        rc = fa_json_bool_needed(object, "raced", &trial.raced, where, diag);
    if (rc == 0)
        *ret_trial = trial;
    return rc;
}
