/* SPDX-License-Identifier: Apache-2.0
 *
 * A trial as columns of a row, for tables trial and winner. The config is kept as JSON by name, in
 * the manifest's order; config_key is the same for the same values in any order.
 */
#include "internal.h"

#include "../src/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(((const fa_tunable *)a)->name, ((const fa_tunable *)b)->name);
}

static void config_key(const fa_config *config, char ret_hex[FA_HASH_HEX])
{
    fa_config sorted = *config;
    fa_hash hash;
    qsort(sorted.tunable, (size_t)sorted.count, sizeof sorted.tunable[0], by_name);
    fa_hash_init(&hash);
    fa_hash_text(&hash, sorted.family);
    for (int32_t i = 0; i < sorted.count; i++) {
        char value[16];
        snprintf(value, sizeof value, "%d", sorted.tunable[i].value);
        fa_hash_text(&hash, sorted.tunable[i].name);
        fa_hash_text(&hash, value);
    }
    fa_hash_final(&hash, ret_hex);
}

static bool ends(const char *text, size_t size)
{
    return memchr(text, 0, size) != NULL;
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
    return trial->status != FA_STATUS_MEASURED || trial->median_us > 0;
}

int fa_db_trial_check(const fa_trial *trial, fa_diag *diag)
{
    const fa_config *config = &trial->config;
    bool good = config->count >= 0 && config->count <= FA_MAX_TUNABLES &&
                ends(config->family, sizeof config->family) && config->family[0] != 0;
    for (int32_t i = 0; good && i < config->count; i++)
        good = ends(config->tunable[i].name, FA_NAME_MAX) && config->tunable[i].name[0] != 0;
    if (!good)
        return fa_fail(diag, FA_EINVAL,
                       "a trial needs a family and 0 to %d tunables, each with a name",
                       FA_MAX_TUNABLES);
    fa_status status;
    if (!ends(trial->reason, sizeof trial->reason) ||
        fa_status_parse(fa_status_name(trial->status), &status) != 0)
        return fa_fail(diag, FA_EINVAL,
                       "a trial of %s has no such status as %d, or its reason "
                       "does not end",
                       config->family, (int)trial->status);
    if (!numbers_ok(trial))
        return fa_fail(diag, FA_EINVAL,
                       "a trial of %s has times that cannot be: median %g us, from %g to %g, "
                       "compiled in %g ms, predicted %g us",
                       config->family, trial->median_us, trial->low_us, trial->high_us,
                       trial->compile_ms, trial->predicted_us);
    return 0;
}

static int bind_config(fa_binder *binder, const fa_config *config, fa_diag *diag)
{
    char key[FA_HASH_HEX];
    config_key(config, key);
    cJSON *json = fa_config_to_json(config);
    char *text = json != NULL ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    if (text == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    fa_bind_copy(binder, key);
    fa_bind_copy(binder, text);
    cJSON_free(text);
    return 0;
}

int fa_db_trial_bind(fa_binder *binder, const fa_trial *trial, fa_diag *diag)
{
    int rc = bind_config(binder, &trial->config, diag);
    if (rc != 0)
        return rc;
    fa_bind_text(binder, fa_status_name(trial->status));
    fa_bind_text(binder, trial->reason);
    const int32_t sizes[] = {trial->threads, trial->smem_bytes, trial->registers,
                             trial->spill_bytes, trial->blocks_per_sm};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        fa_bind_int(binder, sizes[i]);
    for (size_t i = 0; i < 3; i++)
        fa_bind_int(binder, trial->grid[i]);
    const double times[] = {trial->compile_ms, trial->predicted_us, trial->median_us, trial->low_us,
                            trial->high_us};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        fa_bind_real(binder, times[i]);
    fa_bind_int(binder, trial->sample_count);
    fa_bind_real(binder, trial->max_error); /* may be NaN: that is how it was wrong */
    fa_bind_real(binder, trial->tolerance);
    fa_bind_int(binder, trial->raced);
    return 0;
}

static void read_config(fa_reader *reader, fa_config *ret_config)
{
    char key[FA_HASH_HEX], key_now[FA_HASH_HEX];
    fa_read_copy(reader, key, sizeof key);
    const char *text = fa_read_text(reader, false);
    size_t size = strlen(text);
    cJSON *json = NULL;
    if (!reader->ok || size > 4096 || fa_json_parse(text, size, "config", &json, NULL) != 0 ||
        fa_config_from_json(json, ret_config, NULL) != 0) {
        reader->ok = false;
    } else {
        config_key(ret_config, key_now);
        if (strcmp(key, key_now) != 0)
            reader->ok = false;
    }
    cJSON_Delete(json);
}

void fa_db_trial_read(fa_reader *reader, fa_trial *ret_trial)
{
    fa_trial trial = {0};
    read_config(reader, &trial.config);
    if (fa_status_parse(fa_read_text(reader, false), &trial.status) != 0)
        reader->ok = false;
    fa_read_copy(reader, trial.reason, sizeof trial.reason);
    int32_t *const sizes[] = {&trial.threads, &trial.smem_bytes, &trial.registers,
                              &trial.spill_bytes, &trial.blocks_per_sm};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        *sizes[i] = (int32_t)fa_read_int(reader, INT32_MIN, INT32_MAX);
    for (size_t i = 0; i < 3; i++)
        trial.grid[i] = (uint32_t)fa_read_int(reader, 0, UINT32_MAX);
    double *const times[] = {&trial.compile_ms, &trial.predicted_us, &trial.median_us,
                             &trial.low_us, &trial.high_us};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        *times[i] = fa_read_real(reader, 0);
    trial.sample_count = (int32_t)fa_read_int(reader, 0, INT32_MAX);
    trial.max_error = fa_read_real(reader, NAN);
    trial.tolerance = fa_read_real(reader, NAN);
    trial.raced = fa_read_int(reader, 0, 1) != 0;
    if (reader->ok && fa_db_trial_check(&trial, NULL) != 0)
        reader->ok = false;
    *ret_trial = trial;
}
