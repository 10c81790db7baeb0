/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials: what became of every config that was tried, with all raw samples. Rows are only ever
 * added. A reader gets a row as it was stored or not at all.
 */
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct batch {
    const fa_scope *scope;
    const fa_trial_record *records;
    size_t count;
};

static int check_text(const char *text, const char *what, fa_diag *diag)
{
    if (text == NULL || strnlen(text, FA_STORE_TEXT_MAX + 1) <= FA_STORE_TEXT_MAX)
        return 0;
    return fa_fail(diag, FA_EINVAL, "a trial's %s is longer than %d bytes", what,
                   FA_STORE_TEXT_MAX);
}

static int check_record(const fa_trial_record *record, fa_diag *diag)
{
    int rc = fa_db_trial_check(&record->trial, diag);
    if (rc == 0)
        rc = check_text(record->environment, "environment", diag);
    if (rc == 0)
        rc = check_text(record->clocks, "clocks", diag);
    if (rc != 0)
        return rc;
    if (memchr(record->cubin_key, 0, sizeof record->cubin_key) == NULL)
        return fa_fail(diag, FA_EINVAL, "a trial's cubin key does not end");
    if (record->trial.sample_count < 0 || record->sample_count < 0 ||
        record->sample_count > FA_STORE_SAMPLES_MAX ||
        (record->sample_count > 0 && record->samples_us == NULL))
        return fa_fail(diag, FA_EINVAL, "a trial has %d samples: 0 to %d can be stored",
                       record->sample_count, FA_STORE_SAMPLES_MAX);
    for (int32_t i = 0; i < record->sample_count; i++)
        if (!(record->samples_us[i] >= 0 && isfinite(record->samples_us[i])))
            return fa_fail(diag, FA_EINVAL, "sample %d of a trial is %g us: no such time", i,
                           (double)record->samples_us[i]);
    return 0;
}

/* ---- putting --------------------------------------------------------------------------------*/
static int find_environment(fa_store *store, const char *sha256, int64_t *ret_id, fa_diag *diag)
{
    fa_statement *statement;
    int rc = fa_db_statement(store, FA_SQL_ENVIRONMENT_FIND,
                             "SELECT id FROM environment WHERE sha256 = ?", &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_text(&binder, sha256);
    return fa_db_run_id(store, &binder, ret_id, diag);
}

static int environment_id(fa_store *store, const char *json, int64_t *ret_id, fa_diag *diag)
{
    char sha256[FA_HASH_HEX];
    json = json != NULL ? json : "{}";
    fa_hash_bytes(json, strlen(json), sha256);
    int64_t id = 0;
    int rc = find_environment(store, sha256, &id, diag);
    if (rc == 0 && id == 0) {
        fa_statement *statement;
        rc = fa_db_statement(store, FA_SQL_ENVIRONMENT_ADD,
                             "INSERT INTO environment (sha256, json) VALUES (?,?) "
                             "ON CONFLICT (sha256) DO NOTHING RETURNING id",
                             &statement, diag);
        if (rc != 0)
            return rc;
        fa_binder binder = {.statement = statement};
        fa_bind_text(&binder, sha256);
        fa_bind_text(&binder, json);
        rc = fa_db_run_id(store, &binder, &id, diag);
        if (rc == 0 && id == 0) /* another process has just added it */
            rc = find_environment(store, sha256, &id, diag);
    }
    if (rc == 0)
        *ret_id = id;
    return rc;
}

static void encode_samples(const float *samples, size_t count, unsigned char *ret_bytes)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &samples[i], 4);
        for (unsigned byte = 0; byte < 4; byte++)
            ret_bytes[4 * i + byte] = (unsigned char)(bits >> (8 * byte));
    }
}

/* `bytes`: room for the samples and at least one byte more, so that it is never NULL. */
static int add_trial(fa_store *store, int64_t scope_id, const fa_trial_record *record,
                     unsigned char *bytes, fa_diag *diag)
{
    int64_t environment = 0;
    int rc = environment_id(store, record->environment, &environment, diag);
    fa_statement *statement = NULL;
    if (rc == 0)
        rc = fa_db_statement(store, FA_SQL_TRIAL_ADD,
                             "INSERT INTO trial (scope_id, environment_id, " FA_TRIAL_COLUMNS
                             ", cubin_key, clocks, seed, unix_time, samples_sha256, samples) "
                             "VALUES (?,?," FA_TRIAL_PLACES ",?,?,?,?,?,?)",
                             &statement, diag);
    if (rc != 0)
        return rc;
    size_t size = 4 * (size_t)record->sample_count;
    char sha256[FA_HASH_HEX];
    encode_samples(record->samples_us, (size_t)record->sample_count, bytes);
    fa_hash_bytes(bytes, size, sha256);
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, scope_id);
    fa_bind_int(&binder, environment);
    rc = fa_db_trial_bind(&binder, &record->trial, diag);
    fa_bind_text(&binder, record->cubin_key);
    fa_bind_text(&binder, record->clocks);
    fa_bind_int(&binder, (int64_t)record->seed);
    fa_bind_int(&binder, (int64_t)time(NULL));
    fa_bind_text(&binder, sha256);
    fa_bind_blob(&binder, bytes, size);
    if (rc != 0) {
        fa_db_reset(statement);
        return rc;
    }
    return fa_db_run(store, &binder, diag);
}

static int put_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct batch *batch = context;
    size_t most = 0;
    for (size_t i = 0; i < batch->count; i++)
        if ((size_t)batch->records[i].sample_count > most)
            most = (size_t)batch->records[i].sample_count;
    unsigned char *bytes = malloc(4 * most + 1);
    if (bytes == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    int64_t scope_id = 0;
    int rc = fa_db_scope_id(store, batch->scope, true, &scope_id, diag);
    for (size_t i = 0; rc == 0 && i < batch->count; i++)
        rc = add_trial(store, scope_id, &batch->records[i], bytes, diag);
    free(bytes);
    return rc;
}

int fa_store_trials_put(fa_store *store, const fa_scope *scope, const fa_trial_record *records,
                        size_t count, fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_scope_check(scope, diag);
    if (rc == 0 && records == NULL && count > 0)
        rc = fa_fail(diag, FA_EINVAL, "no trials given");
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = check_record(&records[i], diag);
    if (rc != 0 || count == 0)
        return rc;
    struct batch batch = {scope, records, count};
    return fa_db_write(store, put_body, &batch, diag);
}

int fa_store_trial_put(fa_store *store, const fa_scope *scope, const fa_trial_record *record,
                       fa_diag *diag)
{
    return fa_store_trials_put(store, scope, record, 1, diag);
}

/* ---- reading --------------------------------------------------------------------------------*/
/* A record and what its pointers point to. */
struct loaded {
    fa_trial_record record;
    float *samples;
    char *environment, *clocks;
};

static void unload(struct loaded *loaded)
{
    free(loaded->samples);
    free(loaded->environment);
    free(loaded->clocks);
    *loaded = (struct loaded){0};
}

static int read_samples(fa_reader *reader, struct loaded *loaded)
{
    char stored[FA_HASH_HEX], now[FA_HASH_HEX];
    size_t size;
    fa_read_copy(reader, stored, sizeof stored);
    const unsigned char *bytes = fa_read_blob(reader, 4 * (size_t)FA_STORE_SAMPLES_MAX, &size);
    fa_hash_bytes(bytes != NULL ? bytes : (const unsigned char *)"", size, now);
    if (!reader->ok || size % 4 != 0 || strcmp(stored, now) != 0) {
        reader->ok = false;
        return 0;
    }
    size_t count = size / 4;
    loaded->samples = malloc(size + 1);
    if (loaded->samples == NULL)
        return FA_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = 0;
        for (unsigned byte = 0; byte < 4; byte++)
            bits |= (uint32_t)bytes[4 * i + byte] << (8 * byte);
        memcpy(&loaded->samples[i], &bits, 4);
        if (!(loaded->samples[i] >= 0 && isfinite(loaded->samples[i])))
            reader->ok = false;
    }
    loaded->record.samples_us = loaded->samples;
    loaded->record.sample_count = (int32_t)count;
    return 0;
}

static int read_row(fa_reader *reader, bool bare, struct loaded *loaded)
{
    fa_trial_record *record = &loaded->record;
    char stored[FA_HASH_HEX], now[FA_HASH_HEX];
    fa_db_trial_read(reader, &record->trial);
    fa_read_copy(reader, record->cubin_key, sizeof record->cubin_key);
    const char *clocks = fa_read_text(reader, true);
    record->seed = (uint64_t)fa_read_int(reader, INT64_MIN, INT64_MAX);
    record->unix_time = fa_read_int(reader, 0, INT64_MAX);
    int rc = bare ? 0 : read_samples(reader, loaded);
    fa_read_copy(reader, stored, sizeof stored);
    const char *environment = fa_read_text(reader, false);
    if (rc != 0 || !reader->ok)
        return rc;
    fa_hash_bytes(environment, strlen(environment), now);
    if (strcmp(stored, now) != 0) {
        reader->ok = false;
        return 0;
    }
    loaded->environment = strdup(environment);
    loaded->clocks = clocks != NULL ? strdup(clocks) : NULL;
    if (loaded->environment == NULL || (clocks != NULL && loaded->clocks == NULL))
        return FA_ENOMEM;
    record->environment = loaded->environment;
    record->clocks = loaded->clocks;
    return 0;
}

#define READ_SQL(samples)                                                          \
    "SELECT " FA_TRIAL_COLUMNS ", cubin_key, clocks, seed, unix_time, " samples    \
    "environment.sha256, environment.json FROM trial JOIN environment "            \
    "ON environment.id = environment_id WHERE trial.id = ?"

/* 1: loaded, bare: without its samples; 0: gone or invalid, to be skipped; or negative. */
static int load(fa_store *store, int64_t id, bool bare, struct loaded *loaded, fa_diag *diag)
{
    fa_reader reader;
    int rc = fa_db_row(store, bare ? FA_SQL_TRIAL_READ_BARE : FA_SQL_TRIAL_READ,
                       bare ? READ_SQL("") : READ_SQL("samples_sha256, samples, "), id, &reader,
                       diag);
    if (rc <= 0)
        return rc;
    rc = read_row(&reader, bare, loaded);
    fa_db_reset(reader.statement);
    if (rc != 0)
        return fa_fail(diag, rc, "out of memory");
    return reader.ok ? 1 : 0;
}

/* The newest row of each config, oldest first. */
static int newest_ids(fa_store *store, const fa_scope *scope, int64_t **ret_ids, size_t *ret_count,
                      fa_diag *diag)
{
    int64_t scope_id = 0;
    fa_statement *statement;
    int rc = fa_db_scope_id(store, scope, false, &scope_id, diag);
    if (rc == 0)
        rc = fa_db_statement(store, FA_SQL_TRIAL_IDS,
                             "SELECT max(id) AS newest FROM trial WHERE scope_id = ? "
                             "GROUP BY config_key ORDER BY newest",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, scope_id);
    return fa_db_collect_ids(store, statement, ret_ids, ret_count, diag);
}

/* No lock is held while visit runs: it may take its time and may use the store. */
static int visit_ids(fa_store *store, const int64_t *ids, size_t count, bool bare,
                     fa_trial_visit *visit, void *context, fa_diag *diag)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct loaded loaded = {0};
        rc = fa_db_enter(store, diag);
        if (rc == 0)
            rc = load(store, ids[i], bare, &loaded, diag);
        if (rc == 1)
            rc = visit(context, &loaded.record);
        unload(&loaded);
    }
    return rc;
}

int fa_store_trials_each(fa_store *store, const fa_scope *scope, fa_trial_visit *visit,
                         void *context, fa_diag *diag)
{
    int64_t *ids = NULL;
    size_t count = 0;
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_scope_check(scope, diag);
    if (rc == 0)
        rc = newest_ids(store, scope, &ids, &count, diag);
    if (rc == 0)
        rc = visit_ids(store, ids, count, false, visit, context, diag);
    free(ids);
    return rc;
}

static int fastest_ids(fa_store *store, const fa_scope *scope, fa_status status, int32_t most,
                       int64_t **ret_ids, size_t *ret_count, fa_diag *diag)
{
    int64_t scope_id = 0;
    fa_statement *statement;
    int rc = fa_db_scope_id(store, scope, false, &scope_id, diag);
    if (rc == 0)
        rc = fa_db_statement(store, FA_SQL_TRIAL_FASTEST,
                             "SELECT id FROM trial WHERE id IN (SELECT max(id) FROM trial "
                             "WHERE scope_id = ? GROUP BY config_key) AND status = ? "
                             "ORDER BY raced DESC, CASE status WHEN 'measured' THEN median_us "
                             "ELSE predicted_us END, "
                             "config_key LIMIT ?",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, scope_id);
    fa_bind_text(&binder, fa_status_name(status));
    fa_bind_int(&binder, most);
    return fa_db_collect_ids(store, statement, ret_ids, ret_count, diag);
}

int fa_store_trials_fastest(fa_store *store, const fa_scope *scope, fa_status status, int32_t most,
                            fa_trial_visit *visit, void *context, fa_diag *diag)
{
    int64_t *ids = NULL;
    size_t count = 0;
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_scope_check(scope, diag);
    if (rc == 0)
        rc = fastest_ids(store, scope, status, most, &ids, &count, diag);
    if (rc == 0)
        rc = visit_ids(store, ids, count, true, visit, context, diag);
    free(ids);
    return rc;
}
