/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials: what became of every config that was tried, with all raw samples. Rows are added, and go
 * with their scope (scopes.c). A reader gets a row as it was stored or not at all.
 */
#include "rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct putting {
    const fa_scope *scope;
    const fa_trial_record *record;
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
    int rc = record == NULL ? fa_fail(diag, FA_EINVAL, "no trial given")
                            : fa_db_trial_check(&record->trial, diag);
    if (rc != 0)
        return rc;
    if ((rc = check_text(record->environment, "environment", diag)) != 0 ||
        (rc = check_text(record->clocks, "clocks", diag)) != 0)
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
static int find_environment(fa_store *store, const char *hash, int64_t *ret_id, fa_diag *diag)
{
    fa_binder binder = fa_db_prepare(store, "SELECT id FROM environment WHERE hash = ?", diag);
    fa_bind(&binder, fa_text(hash));
    return fa_db_run_id(store, &binder, ret_id, diag);
}

static int environment_id(fa_store *store, const char *json, int64_t *ret_id, fa_diag *diag)
{
    char hash[FA_HASH_HEX];
    json = json != NULL ? json : "{}";
    fa_hash_bytes(json, strlen(json), hash);
    int rc = find_environment(store, hash, ret_id, diag);
    if (rc != 0 || *ret_id != 0)
        return rc;
    fa_binder binder = fa_db_prepare(store,
                                     "INSERT INTO environment (hash, json) VALUES (?,?) "
                                     "ON CONFLICT (hash) DO NOTHING RETURNING id",
                                     diag);
    fa_bind(&binder, fa_text(hash), fa_text(json));
    rc = fa_db_run_id(store, &binder, ret_id, diag);
    /* Another process may just have added it. */
    return rc == 0 && *ret_id == 0 ? find_environment(store, hash, ret_id, diag) : rc;
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

static int add_trial(fa_store *store, const struct putting *putting, const unsigned char *samples,
                     size_t size, fa_diag *diag)
{
    const fa_trial_record *record = putting->record;
    int64_t scope_id = 0, environment = 0;
    char hash[FA_HASH_HEX];
    int rc = fa_db_scope_id(store, putting->scope, true, &scope_id, diag);
    if (rc == 0)
        rc = environment_id(store, record->environment, &environment, diag);
    if (rc != 0)
        return rc;
    fa_hash_bytes(samples, size, hash);
    fa_binder binder =
        fa_db_prepare(store,
                      "INSERT INTO trial (scope_id, environment_id, " FA_TRIAL_COLUMNS
                      ", cubin_key, clocks, seed, unix_time, samples_hash, samples) "
                      "VALUES (?,?," FA_TRIAL_PLACES ",?,?,?,?,?,?)",
                      diag);
    fa_bind(&binder, fa_int(scope_id), fa_int(environment));
    fa_db_trial_bind(&binder, &record->trial);
    fa_bind(&binder, fa_text(record->cubin_key), fa_text(record->clocks),
            fa_int((int64_t)record->seed), fa_now(), fa_text(hash), fa_blob(samples, size));
    return fa_db_run(store, &binder, diag);
}

static int put_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct putting *putting = context;
    size_t count = (size_t)putting->record->sample_count;
    unsigned char *samples = malloc(4 * count + 1); /* never NULL for none */
    if (samples == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    encode_samples(putting->record->samples_us, count, samples);
    int rc = add_trial(store, putting, samples, 4 * count, diag);
    free(samples);
    return rc;
}

int fa_store_trial_put(fa_store *store, const fa_scope *scope, const fa_trial_record *record,
                       fa_diag *diag)
{
    struct putting putting = {scope, record};
    int rc = fa_db_scope_check(scope, diag);
    if (rc == 0)
        rc = check_record(record, diag);
    return rc != 0 ? rc : fa_db_change(store, put_body, &putting, diag);
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

static void read_samples(fa_reader *reader, struct loaded *loaded)
{
    char stored[FA_HASH_HEX], now[FA_HASH_HEX];
    size_t size;
    fa_read_copy(reader, stored, sizeof stored);
    const unsigned char *bytes = fa_read_blob(reader, 4 * (size_t)FA_STORE_SAMPLES_MAX, &size);
    fa_hash_bytes(bytes != NULL ? bytes : (const unsigned char *)"", size, now);
    if (size % 4 != 0 || strcmp(stored, now) != 0)
        fa_read_fail(reader, FA_ECORRUPT);
    if (reader->rc != 0)
        return;
    size_t count = size / 4;
    loaded->samples = malloc(size + 1);
    if (loaded->samples == NULL) {
        fa_read_fail(reader, FA_ENOMEM);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = 0;
        for (unsigned byte = 0; byte < 4; byte++)
            bits |= (uint32_t)bytes[4 * i + byte] << (8 * byte);
        memcpy(&loaded->samples[i], &bits, 4);
        if (!(loaded->samples[i] >= 0 && isfinite(loaded->samples[i])))
            fa_read_fail(reader, FA_ECORRUPT);
    }
    loaded->record.samples_us = loaded->samples;
    loaded->record.sample_count = (int32_t)count;
}

static void read_row(fa_reader *reader, bool bare, struct loaded *loaded)
{
    fa_trial_record *record = &loaded->record;
    char stored[FA_HASH_HEX], now[FA_HASH_HEX];
    fa_db_trial_read(reader, &record->trial);
    fa_read_copy(reader, record->cubin_key, sizeof record->cubin_key);
    loaded->clocks = fa_read_owned(reader);
    record->seed = (uint64_t)fa_read_int(reader, INT64_MIN, INT64_MAX);
    record->unix_time = fa_read_int(reader, 0, INT64_MAX);
    if (!bare)
        read_samples(reader, loaded);
    fa_read_copy(reader, stored, sizeof stored);
    loaded->environment = fa_read_owned(reader);
    const char *environment = loaded->environment != NULL ? loaded->environment : "";
    fa_hash_bytes(environment, strlen(environment), now);
    if (strcmp(stored, now) != 0)
        fa_read_fail(reader, FA_ECORRUPT);
    record->environment = loaded->environment;
    record->clocks = loaded->clocks;
}

#define READ_SQL(samples)                                                       \
    "SELECT " FA_TRIAL_COLUMNS ", cubin_key, clocks, seed, unix_time, " samples \
    "environment.hash, environment.json FROM trial JOIN environment "           \
    "ON environment.id = environment_id JOIN scope ON scope.id = scope_id "     \
    "WHERE trial.id = ? AND scope.key = ?"

struct visiting {
    char scope_key[FA_HASH_HEX]; /* numbers of rows that went may be another scope's by now */
    bool bare;                   /* without samples */
    fa_trial_visit *visit;
    void *context;
};

static int visit_row(fa_store *store, int64_t id, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    struct loaded loaded = {0};
    fa_reader reader;
    fa_binder binder = fa_db_prepare(
        store, visiting->bare ? READ_SQL("") : READ_SQL("samples_hash, samples, "), diag);
    fa_bind(&binder, fa_int(id), fa_text(visiting->scope_key));
    int rc = fa_db_run_row(store, &binder, &reader, diag);
    if (rc == 1) {
        read_row(&reader, visiting->bare, &loaded);
        rc = fa_read_end(&reader, diag);
    }
    if (rc == 1)
        rc = visiting->visit(visiting->context, &loaded.record);
    unload(&loaded);
    return rc;
}

/* `sql` gives numbers of trials. Binds the scope's number to its first place; the caller binds the others. */
static fa_binder trials_of(fa_store *store, const fa_scope *scope, const char *sql,
                           struct visiting *visiting, fa_diag *diag)
{
    fa_binder ids = fa_db_prepare_scope(store, scope, sql, diag);
    if (ids.rc == 0)
        fa_scope_key(scope, visiting->scope_key);
    return ids;
}

int fa_store_trials_each(fa_store *store, const fa_scope *scope, fa_trial_visit *visit,
                         void *context, fa_diag *diag)
{
    struct visiting visiting = {.visit = visit, .context = context};
    fa_binder ids = trials_of(store, scope,
                              "SELECT max(id) AS newest FROM trial WHERE scope_id = ? "
                              "GROUP BY config_key ORDER BY newest",
                              &visiting, diag);
    return fa_db_each(store, &ids, visit_row, &visiting, diag);
}

int fa_store_trials_fastest(fa_store *store, const fa_scope *scope, fa_status status, int32_t most,
                            fa_trial_visit *visit, void *context, fa_diag *diag)
{
    struct visiting visiting = {.bare = true, .visit = visit, .context = context};
    fa_binder ids = trials_of(store, scope,
                              "SELECT id FROM trial WHERE id IN (SELECT max(id) FROM trial "
                              "WHERE scope_id = ? GROUP BY config_key) AND status = ? "
                              "ORDER BY raced DESC, CASE status WHEN 'measured' THEN median_us "
                              "ELSE predicted_us END, config_key LIMIT ?",
                              &visiting, diag);
    fa_bind(&ids, fa_text(fa_status_name(status)), fa_int(most));
    return fa_db_each(store, &ids, visit_row, &visiting, diag);
}
