/* SPDX-License-Identifier: Apache-2.0
 *
 * One winner of a bundle as JSON. Every field must be there and valid; a failure names the field.
 */
#include "bundle.h"
#include "scope_row.h"
#include "trial_row.h"
#include "database.h"

#include "json.h"
#include "json_make.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char where[] = "winner";

/* ---- printing -------------------------------------------------------------------------------*/
/* NaN (an error that was not measured) becomes null. */
static void add_real(cJSON *json, const char *name, double value)
{
    if (isfinite(value))
        fa_json_add_number(json, name, value);
    else
        fa_json_add_null(json, name);
}

#define TRIAL_INTS(X) X(threads) X(smem_bytes) X(registers) X(spill_bytes) X(blocks_per_sm)
#define TRIAL_REALS(X) \
    X(compile_ms) X(predicted_us) X(median_us) X(low_us) X(high_us) X(max_error) X(tolerance)

static cJSON *trial_to_json(const fa_trial *trial)
{
    cJSON *json = cJSON_CreateObject();
    fa_json_add(json, "config", fa_config_to_json(&trial->config));
    fa_json_add_text(json, "status", fa_status_name(trial->status));
#define ADD(field) fa_json_add_number(json, #field, trial->field);
    TRIAL_INTS(ADD)
#undef ADD
    cJSON *grid = fa_json_add_array(json, "grid");
    for (int i = 0; i < 3; i++)
        fa_json_push(grid, cJSON_CreateNumber(trial->grid[i]));
#define ADD(field) add_real(json, #field, trial->field);
    TRIAL_REALS(ADD)
#undef ADD
    fa_json_add_number(json, "sample_count", trial->sample_count);
    fa_json_add_bool(json, "raced", trial->raced);
    return json;
}

int fa_bundle_winner_print(const fa_winner_record *winner, fa_buf *out, fa_diag *diag)
{
    cJSON *evidence = NULL;
    if (winner->evidence != NULL && fa_json_parse(winner->evidence, strlen(winner->evidence),
                                                  "evidence", &evidence, diag) == FA_ENOMEM)
        return FA_ENOMEM;
    if (!cJSON_IsObject(evidence)) {
        cJSON_Delete(evidence);
        evidence = cJSON_CreateObject();
    }
    cJSON *json = cJSON_CreateObject();
    fa_json_add(json, "problem", fa_problem_to_json(&winner->scope.problem));
    fa_json_add_text(json, "silicon", winner->scope.silicon);
    fa_json_add_text(json, "templates", winner->scope.templates);
    fa_json_add_text(json, "policy", winner->scope.policy);
    fa_json_add_text(json, "origin", fa_origin_name(winner->origin));
    fa_json_add(json, "trial", trial_to_json(&winner->trial));
    fa_json_add_text(json, "entry", winner->entry);
    fa_json_add_text(json, "cubin", winner->cubin_key);
    fa_json_add_text(json, "gpu", winner->gpu_name);
    fa_json_add_text(json, "nvrtc", winner->nvrtc);
    fa_json_add_number(json, "driver", winner->driver_version);
    fa_json_add_number(json, "time", (double)winner->unix_time);
    fa_json_add(json, "evidence", evidence);
    char *text = fa_json_print(json);
    cJSON_Delete(json);
    if (text == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a winner");
    fa_buf_text(out, text);
    cJSON_free(text);
    if (out->failed)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a winner");
    return out->size <= FA_BUNDLE_RECORD_MAX
               ? 0
               : fa_fail(diag, FA_EINVAL,
                         "a winner with its evidence has %zu bytes: %d is the most", out->size,
                         FA_BUNDLE_RECORD_MAX);
}

/* ---- parsing --------------------------------------------------------------------------------*/
static int take_int(const cJSON *json, const char *key, int64_t low, int64_t high, int64_t *ret,
                    fa_diag *diag)
{
    return fa_json_int_needed(json, key, low, high, ret, where, diag);
}

static int take_text(const cJSON *json, const char *key, char *ret, size_t size, fa_diag *diag)
{
    int rc = fa_json_copy_needed(json, key, ret, size, where, diag);
    for (const char *c = ret; rc == 0 && *c != 0; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            rc = fa_fail(diag, FA_EINVAL, "%s: \"%s\" holds a control byte", where, key);
    return rc;
}

static int take_real(const cJSON *json, const char *key, double *ret, fa_diag *diag)
{
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(json, key))) {
        *ret = NAN;
        return 0;
    }
    return fa_json_number_needed(json, key, ret, where, diag);
}

static int take_grid(const cJSON *json, uint32_t grid[3], fa_diag *diag)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(json, "grid");
    bool good = cJSON_IsArray(array) && cJSON_GetArraySize(array) == 3;
    for (int i = 0; good && i < 3; i++) {
        const cJSON *item = cJSON_GetArrayItem(array, i);
        good = cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= UINT32_MAX &&
               floor(item->valuedouble) == item->valuedouble;
        grid[i] = good ? (uint32_t)item->valuedouble : 0;
    }
    return good ? 0 : fa_fail(diag, FA_EINVAL, "%s: \"grid\" must be three whole numbers", where);
}

static int trial_from_json(const cJSON *json, fa_trial *ret_trial, fa_diag *diag)
{
    fa_trial trial = {0};
    int64_t value = 0;
    char status[FA_NAME_MAX];
    int rc = cJSON_IsObject(json) ? 0 : fa_fail(diag, FA_EINVAL, "%s: it has no trial", where);
    if (rc == 0)
        rc = fa_config_from_json(cJSON_GetObjectItemCaseSensitive(json, "config"), &trial.config,
                                 diag);
    if (rc == 0)
        rc = take_text(json, "status", status, sizeof status, diag);
    if (rc == 0 && fa_status_parse(status, &trial.status) != 0)
        rc = fa_fail(diag, FA_EINVAL, "%s: there is no status \"%s\"", where, status);
#define TAKE(field)                                                                \
    if (rc == 0 && (rc = take_int(json, #field, 0, INT32_MAX, &value, diag)) == 0) \
        trial.field = (int32_t)value;
    TRIAL_INTS(TAKE)
    TAKE(sample_count)
#undef TAKE
    if (rc == 0)
        rc = take_grid(json, trial.grid, diag);
#define TAKE(field) \
    if (rc == 0)    \
        rc = take_real(json, #field, &trial.field, diag);
    TRIAL_REALS(TAKE)
#undef TAKE
    if (rc == 0)
        rc = fa_json_bool_needed(json, "raced", &trial.raced, where, diag);
    if (rc == 0)
        rc = fa_db_trial_check(&trial, diag);
    if (rc == 0 && trial.status != FA_STATUS_MEASURED && trial.status != FA_STATUS_COMPILED)
        rc =
            fa_fail(diag, FA_EINVAL, "%s: it ended as \"%s\", which no winner does", where, status);
    if (rc == 0)
        *ret_trial = trial;
    return rc;
}

static int scope_from_json(const cJSON *json, fa_scope *scope, fa_diag *diag)
{
    int rc = fa_problem_from_json(cJSON_GetObjectItemCaseSensitive(json, "problem"),
                                  &scope->problem, diag);
    if (rc == 0)
        rc = take_text(json, "silicon", scope->silicon, sizeof scope->silicon, diag);
    if (rc == 0)
        rc = take_text(json, "templates", scope->templates, sizeof scope->templates, diag);
    if (rc == 0)
        rc = take_text(json, "policy", scope->policy, sizeof scope->policy, diag);
    return rc != 0 ? rc : fa_db_scope_check(scope, diag);
}

static int labels_from_json(const cJSON *json, fa_winner_record *winner, fa_diag *diag)
{
    char origin[FA_NAME_MAX];
    int64_t driver = 0, time = 0;
    int rc = take_text(json, "origin", origin, sizeof origin, diag);
    if (rc == 0 && fa_origin_parse(origin, &winner->origin) != 0)
        rc = fa_fail(diag, FA_EINVAL, "%s: there is no origin \"%s\"", where, origin);
    if (rc == 0 &&
        winner->origin == FA_ORIGIN_NEAREST) /* what a lookup says, not what a winner is */
        rc = fa_fail(diag, FA_EINVAL, "%s: no winner is stored as \"%s\"", where, origin);
    if (rc == 0)
        rc = take_text(json, "entry", winner->entry, sizeof winner->entry, diag);
    if (rc == 0)
        rc = take_text(json, "cubin", winner->cubin_key, sizeof winner->cubin_key, diag);
    if (rc == 0)
        rc = take_text(json, "gpu", winner->gpu_name, sizeof winner->gpu_name, diag);
    if (rc == 0)
        rc = take_text(json, "nvrtc", winner->nvrtc, sizeof winner->nvrtc, diag);
    if (rc == 0)
        rc = take_int(json, "driver", 0, INT32_MAX, &driver, diag);
    if (rc == 0)
        rc = take_int(json, "time", 0, (int64_t)1 << 40, &time, diag);
    if (rc == 0 && winner->entry[0] == 0)
        rc = fa_fail(diag, FA_EINVAL, "%s: its entry has no name", where);
    winner->driver_version = (int32_t)driver;
    winner->unix_time = time;
    return rc;
}

/* A measured winner has the times and the trial to show for it; a prediction has none. */
static int check_origin(const fa_winner_record *winner, fa_diag *diag)
{
    const fa_trial *trial = &winner->trial;
    bool timed = trial->status == FA_STATUS_MEASURED && trial->median_us > 0 &&
                 trial->low_us <= trial->median_us && trial->median_us <= trial->high_us;
    if (winner->origin <= FA_ORIGIN_IMPORTED && !timed)
        return fa_fail(diag, FA_EINVAL, "%s: it is %s and has no median with its interval", where,
                       fa_origin_name(winner->origin));
    if (trial->threads < 1 || trial->threads > 1024 || trial->grid[0] == 0 || trial->grid[1] == 0 ||
        trial->grid[2] == 0)
        return fa_fail(diag, FA_EINVAL,
                       "%s: %d threads on a grid of %u x %u x %u cannot be launched", where,
                       trial->threads, trial->grid[0], trial->grid[1], trial->grid[2]);
    return 0;
}

static int take_evidence(const cJSON *json, char **ret_text, fa_diag *diag)
{
    const cJSON *evidence = cJSON_GetObjectItemCaseSensitive(json, "evidence");
    if (!cJSON_IsObject(evidence))
        return fa_fail(diag, FA_EINVAL, "%s: \"evidence\" must be an object", where);
    *ret_text = fa_json_print(evidence);
    return *ret_text != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for a winner");
}

int fa_bundle_winner_parse(const char *text, size_t size, fa_winner_record *ret_winner,
                           fa_diag *diag)
{
    fa_winner_record winner = {0};
    cJSON *json = NULL;
    int rc = fa_json_parse(text, size, where, &json, diag);
    if (rc == 0 && !cJSON_IsObject(json))
        rc = fa_fail(diag, FA_EINVAL, "%s: must be a JSON object", where);
    if (rc == 0)
        rc = scope_from_json(json, &winner.scope, diag);
    if (rc == 0)
        rc = labels_from_json(json, &winner, diag);
    if (rc == 0)
        rc = trial_from_json(cJSON_GetObjectItemCaseSensitive(json, "trial"), &winner.trial, diag);
    if (rc == 0)
        rc = check_origin(&winner, diag);
    if (rc == 0)
        rc = take_evidence(json, &winner.evidence, diag);
    cJSON_Delete(json);
    if (rc == 0)
        *ret_winner = winner;
    return rc;
}
