/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems and trials as columns of a row, for every table that has them.
 */
#include "rows.h"

#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fa_db_problem_bind(fa_binder *binder, const fa_problem *problem)
{
    char key[FA_PROBLEM_KEY_MAX];
    fa_problem_key(problem, key);
    fa_bind(binder, fa_copy(key));
    fa_bind_json(binder, fa_problem_to_json(problem));
}

/* Whether the document's operation is one of a template directory, whose fields may have been others when
 * the row was written, and may be again: what does not fit them is no damage. */
static bool is_of_a_directory(const cJSON *json)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(json, "operation");
    const fa_operation *operation = NULL;
    return cJSON_IsString(name) && fa_operation_find(name->valuestring, &operation, NULL) == 0 &&
           operation != fa_operation_of(NULL);
}

void fa_db_problem_read(fa_reader *reader, fa_problem *ret_problem)
{
    char key[FA_PROBLEM_KEY_MAX], key_now[FA_PROBLEM_KEY_MAX];
    fa_read_copy(reader, key, sizeof key);
    fa_problem problem = {0};
    cJSON *json = fa_read_json(reader, 4096);
    int rc = json != NULL ? fa_problem_from_json(json, &problem, NULL) : 0;
    if (json != NULL && rc == 0)
        fa_problem_key(&problem, key_now);
    if (json != NULL && (rc != 0 || strcmp(key, key_now) != 0))
        fa_read_fail(reader,
                     rc == FA_ENOTSUP || is_of_a_directory(json) ? FA_EVERSION : FA_ECORRUPT);
    cJSON_Delete(json);
    *ret_problem = problem;
}

/* A trial as columns of a row, for tables trial and winner. The config is kept as JSON by name, in
 * the manifest's order; config_key is the same for the same values in any order. */
static int by_name(const void *a, const void *b)
{
    return strcmp(((const fa_tunable *)a)->name, ((const fa_tunable *)b)->name);
}

void fa_db_config_key(const fa_config *config, char ret_hex[FA_HASH_HEX])
{
    fa_config sorted = *config;
    fa_hash hash;
    qsort(sorted.tunable, (size_t)sorted.count, sizeof sorted.tunable[0], by_name);
    fa_hash_init(&hash);
    fa_hash_text(&hash, sorted.family);
    for (int32_t i = 0; i < sorted.count; i++) {
        char room[FA_VALUE_TEXT_MAX];
        fa_hash_text(&hash, sorted.tunable[i].name);
        fa_hash_text(&hash, fa_value_json(sorted.tunable[i].value, room));
    }
    fa_hash_final(&hash, ret_hex);
}

/* A time that was measured or estimated, or "not known". */
static bool time_ok(double value)
{
    return isfinite(value) && value >= -1;
}

static bool numbers_ok(const fa_trial *trial)
{
    if (!time_ok(trial->compile_ms) || !time_ok(trial->predicted_us) ||
        !time_ok(trial->median_us) || !time_ok(trial->low_us) || !time_ok(trial->high_us))
        return false;
    return trial->sample_count >= 0 &&
           (trial->status != FA_STATUS_MEASURED || trial->median_us > 0);
}

int fa_db_trial_check(const fa_trial *trial, fa_diag *diag)
{
    const fa_config *config = &trial->config;
    if (config->family[0] == 0 || config->count < 0 || config->count > FA_MAX_TUNABLES)
        return fa_fail(diag, FA_EINVAL, "a trial needs a family and 0 to %d tunables",
                       FA_MAX_TUNABLES);
    if (!numbers_ok(trial))
        return fa_fail(diag, FA_EINVAL,
                       "a trial of %s has times that cannot be: median %g us, from %g to %g, "
                       "compiled in %g ms, predicted %g us",
                       config->family, trial->median_us, trial->low_us, trial->high_us,
                       trial->compile_ms, trial->predicted_us);
    return 0;
}

/* The very text that cJSON would print, without an allocation that could fail. */
void fa_db_config_print(const fa_config *config, char ret_json[FA_CONFIG_JSON_MAX])
{
    char tunables[FA_CONFIG_TEXT_MAX];
    fa_config_text(config, tunables);
    snprintf(ret_json, FA_CONFIG_JSON_MAX, "{\"family\":\"%.31s\",\"tunables\":%s}", config->family,
             tunables);
}

void fa_db_trial_bind(fa_binder *binder, const fa_trial *trial)
{
    char key[FA_HASH_HEX], config[FA_CONFIG_JSON_MAX];
    fa_db_config_key(&trial->config, key);
    fa_db_config_print(&trial->config, config);
    fa_bind(binder, fa_copy(key), fa_copy(config));
    fa_bind_columns(binder, fa_trial_members, trial);
}

void fa_db_config_read(fa_reader *reader, fa_config *ret_config)
{
    cJSON *json = fa_read_json(reader, 4096);
    if (json != NULL && fa_config_from_json(json, ret_config, NULL) != 0)
        fa_read_fail(reader, FA_ECORRUPT);
    cJSON_Delete(json);
}

void fa_db_trial_read(fa_reader *reader, fa_trial *ret_trial)
{
    fa_trial trial = {0};
    char key[FA_HASH_HEX], key_now[FA_HASH_HEX];
    fa_read_copy(reader, key, sizeof key);
    fa_db_config_read(reader, &trial.config);
    fa_db_config_key(&trial.config, key_now);
    if (strcmp(key, key_now) != 0)
        fa_read_fail(reader, FA_ECORRUPT);
    fa_read_columns(reader, fa_trial_members, &trial);
    if (reader->rc == 0 && fa_db_trial_check(&trial, NULL) != 0)
        fa_read_fail(reader, FA_ECORRUPT);
    *ret_trial = trial;
}
