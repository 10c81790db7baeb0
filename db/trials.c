/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials: what became of every config that was tried, with all raw samples. Rows are added, and go with their scope.
 * A reader gets a row that is valid or none, and samples as they were stored. And what was learned beside trials and
 * winners: cubins proved again under another driver, what other kernels take, and values of other tuners.
 */
#include "statements.h"

#include "store.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

/* fa_db_enter(), and a statement whose first place has the scope's number; 0, which no row has, where the store does not
 * know the scope. A failure is the query's. */
static fa_query prepare_scope(fa_store *store, const fa_scope *scope, const char *sql,
                              fa_diag *diag)
{
    int64_t scope_id = 0;
    int rc = fa_db_scope_check(scope, diag);
    if (rc == 0)
        rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_scope_id(store, scope, false, &scope_id, diag);
    return rc != 0 ? (fa_query){.rc = rc} : fa_db_prepare(store, diag, sql, fa_int(scope_id));
}

/* What a trial is beside the trial itself. */
#define RECORD_FIELDS(X)                                        \
    X(TEXT, "cubin_key", cubin_key)                             \
    X(STRING, "environment", environment)                       \
    X(STRING, "clocks", clocks, .rules = FA_MEMBER_NULL)        \
    X(COUNT64, "seed", seed, .rules = FA_MEMBER_NULL) /* any */ \
    X(COUNT64, "unix_time", unix_time)
#define FA_COLUMN_RECORD fa_study_trial
static const fa_member record_columns[] = {RECORD_FIELDS(FA_COLUMN_ENTRY){.key = NULL}};
#undef FA_COLUMN_RECORD

static int check_record(const fa_study_trial *record, fa_diag *diag)
{
    FA_OR_RETURN(fa_db_trial_check(&record->trial, diag));
    if (record->sample_count < 0 || record->sample_count > FA_STORE_SAMPLES_MAX)
        return fa_fail(diag, FA_EINVAL, "a trial has %d samples: 0 to %d can be stored",
                       record->sample_count, FA_STORE_SAMPLES_MAX);
    for (int32_t i = 0; i < record->sample_count; i++)
        if (!(record->samples_us[i] >= 0 && isfinite(record->samples_us[i])))
            return fa_fail(diag, FA_EINVAL, "sample %d of a trial is %g us: no such time", i,
                           (double)record->samples_us[i]);
    return 0;
}

/* Samples are stored as the floats that they are: every machine with such a GPU is little-endian. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && sizeof(float) == 4, "as they are");

static int add_trial(fa_store *store, const fa_scope *scope, const fa_study_trial *record,
                     fa_diag *diag)
{
    const size_t size = (size_t)record->sample_count * sizeof(float);
    const void *samples = size > 0 ? (const void *)record->samples_us : "";
    char hash[FA_HASH_HEX];
    int64_t scope_id = 0;
    FA_OR_RETURN(fa_db_scope_id(store, scope, true, &scope_id, diag));
    fa_hash_bytes(samples, size, hash);
    fa_study_trial row = *record;
    row.environment = row.environment != NULL ? row.environment : "{}";
    row.unix_time = (int64_t)time(NULL);
    fa_query query =
        fa_db_prepare(store, diag,
                      "INSERT INTO trial (scope_id, " FA_TRIAL_COLUMNS RECORD_FIELDS(
                          FA_COLUMN_NAME) ", samples_hash, samples) VALUES (?," FA_TRIAL_PLACES
                          RECORD_FIELDS(FA_COLUMN_PLACE) ",?,?)",
                      fa_int(scope_id));
    fa_db_trial_bind(&query, &row.trial);
    fa_bind_columns(&query, record_columns, &row);
    fa_bind(&query, fa_text(hash), fa_blob(samples, size));
    return fa_db_step(&query);
}

int fa_store_trial_put(fa_store *store, const fa_scope *scope, const fa_study_trial *record,
                       fa_diag *diag)
{
    int rc = fa_db_scope_check(scope, diag);
    if (rc == 0)
        rc = check_record(record, diag);
    return rc != 0 ? rc : FA_CHANGED(store, diag, add_trial(store, scope, record, diag));
}

/* ---- reading ----------------------------------------------------------------------*/
static void read_samples(fa_query *query, fa_study_trial *record)
{
    char stored[FA_HASH_HEX], now[FA_HASH_HEX];
    size_t size;
    fa_read_copy(query, stored, sizeof stored);
    const unsigned char *bytes = fa_read_blob(query, 4 * (size_t)FA_STORE_SAMPLES_MAX, &size);
    fa_hash_bytes(bytes != NULL ? bytes : (const unsigned char *)"", size, now);
    if (size % 4 != 0 || strcmp(stored, now) != 0)
        fa_read_fail(query, FA_ECORRUPT);
    for (size_t i = 0; query->rc == 0 && i < size / 4; i++) {
        float sample;
        memcpy(&sample, bytes + 4 * i, sizeof sample);
        if (!(sample >= 0 && isfinite(sample)))
            fa_read_fail(query, FA_ECORRUPT);
    }
    if (query->rc != 0)
        return;
    record->sample_count = (int32_t)(size / 4);
    record->samples_us =
        fa_list_keep(&query->list, bytes != NULL ? bytes : (const unsigned char *)"", size);
}

void fa_trials_add(fa_list *list, const fa_study_trial *record)
{
    fa_study_trial copy = *record;
    copy.tried = true;
    copy.samples_us = fa_list_keep(list, record->samples_us,
                                   (size_t)record->sample_count * sizeof *record->samples_us);
    copy.environment = fa_list_keep_text(list, record->environment);
    copy.clocks = fa_list_keep_text(list, record->clocks);
    fa_list_add(list, &copy, sizeof copy);
}

int fa_trials_end(fa_list *list, int rc, fa_study_trial **ret_rows, size_t *ret_count,
                  fa_diag *diag)
{
    static const size_t pointers[] = {offsetof(fa_study_trial, samples_us),
                                      offsetof(fa_study_trial, environment),
                                      offsetof(fa_study_trial, clocks), SIZE_MAX};
    return fa_list_end(list, rc, pointers, ret_rows, ret_count, diag);
}

#define LIST(samples)                                                \
    "SELECT " FA_TRIAL_COLUMNS RECORD_FIELDS(FA_COLUMN_NAME) samples \
        " FROM trial "                                               \
        "WHERE trial.id IN (SELECT max(id) FROM trial WHERE scope_id = ? GROUP BY config_key) "

static int list_trials(fa_query *query, bool bare, fa_study_trial **ret_rows, size_t *ret_count)
{
    int rc;
    while ((rc = fa_db_step(query)) == 1) {
        fa_study_trial record = {.tried = true};
        fa_db_trial_read(query, &record.trial);
        fa_read_columns(query, record_columns, &record);
        if (!bare)
            read_samples(query, &record);
        if (query->rc == 0)
            fa_list_add(&query->list, &record, sizeof record);
    }
    return fa_trials_end(&query->list, rc, ret_rows, ret_count, query->diag);
}

int fa_store_trials(fa_store *store, const fa_scope *scope, fa_study_trial **ret_rows,
                    size_t *ret_count, fa_diag *diag)
{
    fa_query query =
        prepare_scope(store, scope, LIST(", samples_hash, samples") "ORDER BY trial.id", diag);
    return list_trials(&query, false, ret_rows, ret_count);
}

int fa_store_trials_fastest(fa_store *store, const fa_scope *scope, fa_status status, int32_t most,
                            fa_study_trial **ret_rows, size_t *ret_count, fa_diag *diag)
{
    fa_query query =
        prepare_scope(store, scope,
                      LIST("") "AND status = ? ORDER BY raced DESC, CASE status WHEN "
                               "'measured' THEN median_us ELSE predicted_us END, config_key "
                               "LIMIT ?",
                      diag);
    fa_bind(&query, fa_text(fa_status_name(status)), fa_int(most));
    return list_trials(&query, true, ret_rows, ret_count);
}

/* ---- verifications --------------------------------------------------------------------------*/
int fa_store_verification_put(fa_store *store, const fa_verification *mark, const fa_scope *scope,
                              fa_diag *diag)
{
    fa_change change = {.store = store, .diag = diag};
    int64_t id;
    FA_OR_RETURN(fa_db_scope_check(scope, diag));
    while (fa_store_change(&change)) {
        id = 0; /* stays so of a winner of another store */
        change.rc = fa_db_do(
            store, diag,
            "INSERT INTO verification (cubin_key, silicon, driver_version, passed, reason, unix_time) "
            "VALUES (?,?,?,?,?,?) ON CONFLICT (cubin_key, silicon, driver_version) DO UPDATE SET "
            "passed = excluded.passed, reason = excluded.reason, unix_time = excluded.unix_time",
            fa_text(mark->cubin_key), fa_text(mark->silicon), fa_int(mark->driver_version),
            fa_int(mark->passed), fa_text(mark->reason), fa_now());
        FA_TRY(&change, fa_db_scope_id(store, scope, false, &id, diag));
        if (mark->passed)
            FA_TRY(&change,
                   fa_db_do(store, diag,
                            "UPDATE winner SET driver_version = ? "
                            "WHERE scope_id = ? AND cubin_key = ?",
                            fa_int(mark->driver_version), fa_int(id), fa_text(mark->cubin_key)));
        else
            FA_TRY(&change,
                   fa_db_do(store, diag, "DELETE FROM winner WHERE scope_id = ? AND cubin_key = ?",
                            fa_int(id), fa_text(mark->cubin_key)));
    }
    return change.rc;
}

int fa_store_verification_get(fa_store *store, const char *cubin_key, const char *silicon,
                              int32_t driver_version, fa_verification *ret_mark, fa_diag *diag)
{
    fa_verification mark = {.driver_version = driver_version};
    fa_query query = fa_db_query(store, diag,
                                 "SELECT cubin_key, silicon, passed, reason FROM verification "
                                 "WHERE cubin_key = ? AND silicon = ? AND driver_version = ?",
                                 fa_text(cubin_key), fa_text(silicon), fa_int(driver_version));
    int rc = fa_db_step(&query);
    if (rc <= 0)
        return rc < 0 ? rc : FA_ENOTFOUND;
    fa_read_copy(&query, mark.cubin_key, sizeof mark.cubin_key);
    fa_read_copy(&query, mark.silicon, sizeof mark.silicon);
    mark.passed = fa_read_int(&query, 0, 1) == 1;
    fa_read_copy(&query, mark.reason, sizeof mark.reason);
    rc = fa_read_end(&query);
    if (rc != 1) /* a mark that is not valid counts as none: the cubin is proved once more */
        return rc < 0 ? rc : FA_ENOTFOUND;
    *ret_mark = mark;
    return 0;
}

/* ---- baselines: one row for each problem, GPU and peer ---------------------------------------*/
#define FA_COLUMN_RECORD fa_baseline
static const fa_member baseline_columns[] = {FA_BASELINE_FIELDS(FA_COLUMN_ENTRY){.key = NULL}};

static bool is_printable(const char *text)
{
    for (; *text != 0; text++)
        if (*text < 0x20 || *text > 0x7e)
            return false;
    return true;
}

int fa_baseline_check(const fa_baseline *b, fa_diag *diag)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
    static const double longest_us = 1e12; /* eleven days */
    const bool named = b->gpu_name[0] != 0 && is_printable(b->gpu_name) &&
                       is_printable(b->source) && b->peer[0] != 0 &&
                       strspn(b->peer, letters) == strlen(b->peer);
    const bool timed = b->median_us > 0 && b->median_us < longest_us;
    const bool interval = (b->low_us == 0 && b->high_us == 0) ||
                          (0 < b->low_us && b->low_us <= b->median_us &&
                           b->median_us <= b->high_us && b->high_us < longest_us);
    if (!named)
        return fa_fail(
            diag, FA_EINVAL,
            "\"gpu\" and \"source\" take printable ASCII, \"peer\" letters, digits, '.', "
            "'_', '+' and '-'; \"gpu\" and \"peer\" may not be empty");
    if (!timed || !interval || !(b->matmul_tflops >= 0 && b->matmul_tflops < 1e6))
        return fa_fail(
            diag, FA_EINVAL,
            "\"median_us\" %g, \"low_us\" %g, \"high_us\" %g, \"matmul_tflops\" %g: a median "
            "is above 0 and below %g, in its interval, both ends of which are given or "
            "neither, and a rate is at least 0 and below 1e6",
            b->median_us, b->low_us, b->high_us, b->matmul_tflops, longest_us);
    return fa_problem_check(&b->problem, diag);
}

static int put_baseline(fa_store *store, const fa_baseline *baseline, fa_diag *diag)
{
    char key[FA_PROBLEM_KEY_MAX];
    fa_problem_key(&baseline->problem, key);
    FA_OR_RETURN(fa_db_do(
        store, diag, "DELETE FROM baseline WHERE problem_key = ? AND gpu_name = ? AND peer = ?",
        fa_text(key), fa_text(baseline->gpu_name), fa_text(baseline->peer)));
    fa_query query = fa_db_prepare(
        store, diag,
        "INSERT INTO baseline (problem_key, problem" FA_BASELINE_FIELDS(
            FA_COLUMN_MEMBER) ") VALUES (?,?" FA_BASELINE_FIELDS(FA_COLUMN_PLACE) ")");
    fa_db_problem_bind(&query, &baseline->problem);
    fa_bind_columns(&query, baseline_columns, baseline);
    return fa_db_step(&query);
}

int fa_store_baselines_put(fa_store *store, const fa_baseline *baselines, size_t count,
                           fa_diag *diag)
{
    fa_change change = {.store = store, .diag = diag};
    while (fa_store_change(&change))
        for (size_t i = 0; i < count && change.rc == 0; i++)
            change.rc = put_baseline(store, &baselines[i], diag);
    return change.rc;
}

int fa_store_baselines(fa_store *store, fa_baseline **ret_rows, size_t *ret_count, fa_diag *diag)
{
    int rc;
    fa_query query = fa_db_query(
        store, diag,
        "SELECT problem_key, problem" FA_BASELINE_FIELDS(FA_COLUMN_MEMBER) " FROM baseline "
                                                                           "ORDER BY id");
    while ((rc = fa_db_step(&query)) == 1) {
        fa_baseline baseline = {0};
        fa_db_problem_read(&query, &baseline.problem);
        fa_read_columns(&query, baseline_columns, &baseline);
        if (query.rc == 0 && fa_baseline_check(&baseline, NULL) == 0)
            fa_list_add(&query.list, &baseline, sizeof baseline);
    }
    return fa_list_end(&query.list, rc, NULL, ret_rows, ret_count, diag);
}

/* ---- values of other tuners: bytes that their owners sign and check --------------------------*/
int fa_store_kept_put(fa_store *store, const fa_kept *value, fa_diag *diag)
{
    if (value->bytes != NULL &&
        (strlen(value->tuner) >= FA_NAME_MAX || strlen(value->name) >= FA_KEPT_TEXT_MAX ||
         strlen(value->gpu) >= FA_KEPT_TEXT_MAX || strlen(value->made) >= FA_STORE_TEXT_MAX ||
         value->size < 0 || value->size > FA_STORE_CUBIN_MAX))
        return fa_fail(diag, FA_EINVAL, "a value of %.40s, or what is said of it, is too long",
                       value->tuner);
    if (value->bytes == NULL)
        return FA_CHANGED(
            store, diag,
            fa_db_do(store, diag, "DELETE FROM kept WHERE key = ?", fa_text(value->key)));
    return FA_CHANGED(store, diag,
                      fa_db_do(store, diag,
                               "INSERT INTO kept (key, tuner, name, gpu, made, unix_time, bytes) "
                               "VALUES (?,?,?,?,?,?,?) ON CONFLICT (key) DO UPDATE SET "
                               "tuner = excluded.tuner, name = excluded.name, gpu = excluded.gpu, "
                               "made = excluded.made, unix_time = excluded.unix_time, "
                               "bytes = excluded.bytes",
                               fa_text(value->key), fa_text(value->tuner), fa_text(value->name),
                               fa_text(value->gpu), fa_text(value->made), fa_now(),
                               fa_blob(value->bytes, (size_t)value->size)));
}

/* The columns of fa_kept_members (trial.h). */
#define KEPT_LIST "SELECT key, made, tuner, name, gpu, unix_time, length(bytes)"

int fa_store_kept(fa_store *store, const char *key, fa_kept **ret_rows, size_t *ret_count,
                  fa_diag *diag)
{
    static const size_t pointers[] = {offsetof(fa_kept, key),
                                      offsetof(fa_kept, tuner),
                                      offsetof(fa_kept, name),
                                      offsetof(fa_kept, gpu),
                                      offsetof(fa_kept, made),
                                      offsetof(fa_kept, bytes),
                                      SIZE_MAX};
    size_t size;
    int rc;
    fa_query query =
        key == NULL
            ? fa_db_query(store, diag, KEPT_LIST " FROM kept ORDER BY unix_time DESC, id DESC")
            : fa_db_query(store, diag, KEPT_LIST ", bytes FROM kept WHERE key = ?", fa_text(key));
    while ((rc = fa_db_step(&query)) == 1) {
        fa_kept row = {0};
        fa_read_columns(&query, fa_kept_members, &row);
        if (key != NULL) {
            const void *bytes = fa_read_blob(&query, FA_STORE_CUBIN_MAX, &size);
            row.bytes = fa_list_keep(&query.list, bytes != NULL ? bytes : "", size);
        }
        if (query.rc == 0)
            fa_list_add(&query.list, &row, sizeof row);
    }
    return fa_list_end(&query.list, rc, pointers, ret_rows, ret_count, diag);
}
