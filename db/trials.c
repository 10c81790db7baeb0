/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems, trials and scopes as columns of a row, for every table that has them; the list of scopes, and forgetting. Then
 * trials: what became of every config that was tried, with all raw samples. Rows are added, and go with their scope.
 * A reader gets a row that is valid or none, and samples as they were stored. And what was learned beside trials and
 * winners: cubins proved again under another driver, what other kernels take, and values of other tuners.
 */
#include "statements.h"

#include "json.h"
#include "store.h"
#include "trial.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void fa_db_problem_bind(fa_query *query, const fa_problem *problem)
{
    char key[FA_PROBLEM_KEY_MAX], *text = fa_json_finish(fa_problem_to_json(problem));
    fa_problem_key(problem, key);
    fa_bind(query, fa_copy(key), fa_copy(text));
    if (text == NULL && query->rc == 0)
        query->rc = FA_ENOMEM;
    free(text);
}

/* Whether the document's operation is not attention forward: it may be one of a template directory, whose fields may have
 * been others when the row was written, and may be again. What does not fit them is no damage. */
static bool may_be_of_a_directory(const cJSON *json)
{
    const char *name = fa_json_string(json, "operation");
    const fa_operation *operation = NULL;
    return name != NULL && fa_operation_find(name, &operation, NULL) == 0 &&
           operation != fa_operation_of(NULL);
}

void fa_db_problem_read(fa_query *query, fa_problem *ret_problem)
{
    char key[FA_PROBLEM_KEY_MAX], key_now[FA_PROBLEM_KEY_MAX];
    fa_read_copy(query, key, sizeof key);
    fa_problem problem = {0};
    FA_ENDS(fa_json_end) cJSON *json = fa_read_json(query, 4096);
    int rc = json != NULL ? fa_problem_from_json(json, false, "*", &problem, NULL) : 0;
    if (json != NULL && rc == 0)
        fa_problem_key(&problem, key_now);
    if (json != NULL && (rc != 0 || strcmp(key, key_now) != 0))
        fa_read_fail(query,
                     rc == FA_ENOTSUP || may_be_of_a_directory(json) ? FA_EVERSION : FA_ECORRUPT);
    *ret_problem = problem;
}

/* A trial as columns of a row, for tables trial and winner. The config is kept as JSON by name, in
 * the manifest's order; config_key is the same for the same values in any order. */
static int by_name(const void *a, const void *b)
{
    return strcmp(((const fa_tunable *)a)->name, ((const fa_tunable *)b)->name);
}

static void key_of(const fa_config *config, char ret_hex[FA_HASH_HEX])
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

int fa_db_trial_check(const fa_trial *trial, fa_diag *diag)
{
    const fa_config *config = &trial->config;
    const double times[] = {trial->compile_ms, trial->predicted_us, trial->median_us, trial->low_us,
                            trial->high_us}; /* measured or estimated, or "not known" */
    bool good =
        trial->sample_count >= 0 && (trial->status != FA_STATUS_MEASURED || trial->median_us > 0);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        good = good && isfinite(times[i]) && times[i] >= -1;
    if (config->family[0] == 0 || config->count < 0 || config->count > FA_MAX_TUNABLES)
        return fa_fail(diag, FA_EINVAL, "a trial needs a family and 0 to %d tunables",
                       FA_MAX_TUNABLES);
    return good ? 0
                : fa_fail(diag, FA_EINVAL,
                          "a trial of %s has times that cannot be: median %g us, from %g to %g, "
                          "compiled in %g ms, predicted %g us",
                          config->family, trial->median_us, trial->low_us, trial->high_us,
                          trial->compile_ms, trial->predicted_us);
}

void fa_db_trial_bind(fa_query *query, const fa_trial *trial)
{
    char key[FA_HASH_HEX], tunables[FA_CONFIG_TEXT_MAX], config[FA_CONFIG_TEXT_MAX + 80];
    key_of(&trial->config, key);
    /* The very text that cJSON would print, without an allocation that could fail. */
    fa_config_text(&trial->config, tunables);
    snprintf(config, sizeof config, "{\"family\":\"%.31s\",\"tunables\":%s}", trial->config.family,
             tunables);
    fa_bind(query, fa_copy(key), fa_copy(config));
    fa_bind_columns(query, fa_trial_members, trial);
}

void fa_db_trial_read(fa_query *query, fa_trial *ret_trial)
{
    fa_trial trial = {0};
    char key[FA_HASH_HEX], key_now[FA_HASH_HEX];
    fa_read_copy(query, key, sizeof key);
    FA_ENDS(fa_json_end) cJSON *json = fa_read_json(query, 4096);
    if (json != NULL && fa_config_from_json(json, &trial.config, NULL) != 0)
        fa_read_fail(query, FA_ECORRUPT);
    key_of(&trial.config, key_now);
    if (strcmp(key, key_now) != 0)
        fa_read_fail(query, FA_ECORRUPT);
    fa_read_columns(query, fa_trial_members, &trial);
    if (query->rc == 0 && fa_db_trial_check(&trial, NULL) != 0)
        fa_read_fail(query, FA_ECORRUPT);
    *ret_trial = trial;
}

void fa_scope_key(const fa_scope *scope, char ret_hex[FA_HASH_HEX])
{
    char problem[FA_PROBLEM_KEY_MAX];
    fa_hash hash;
    fa_problem_key(&scope->problem, problem);
    fa_hash_init(&hash);
    fa_hash_text(&hash, problem);
    fa_hash_text(&hash, scope->silicon);
    fa_hash_text(&hash, scope->templates);
    fa_hash_text(&hash, scope->policy);
    fa_hash_final(&hash, ret_hex);
}

static bool lacks_text(const fa_scope *scope)
{
    return scope->silicon[0] == 0 || scope->templates[0] == 0 || scope->policy[0] == 0;
}

int fa_db_scope_check(const fa_scope *scope, fa_diag *diag)
{
    if (lacks_text(scope))
        return fa_fail(diag, FA_EINVAL, "a scope needs silicon, templates and policy");
    return fa_problem_check(&scope->problem, diag);
}

/* The texts that were hashed are bound too. */
void fa_db_scope_bind(fa_query *query, const fa_scope *scope)
{
    char key[FA_HASH_HEX], problem[FA_PROBLEM_KEY_MAX];
    fa_scope_key(scope, key);
    fa_problem_key(&scope->problem, problem);
    fa_bind(query, fa_copy(key), fa_copy(problem), fa_text(scope->silicon),
            fa_text(scope->templates), fa_text(scope->policy));
}

void fa_db_scope_read(fa_query *query, fa_scope *ret_scope)
{
    char key[FA_HASH_HEX], key_now[FA_HASH_HEX];
    fa_read_copy(query, key, sizeof key);
    fa_db_problem_read(query, &ret_scope->problem);
    fa_read_copy(query, ret_scope->silicon, sizeof ret_scope->silicon);
    fa_read_copy(query, ret_scope->templates, sizeof ret_scope->templates);
    fa_read_copy(query, ret_scope->policy, sizeof ret_scope->policy);
    if (query->rc != 0)
        return;
    fa_scope_key(ret_scope, key_now);
    if (strcmp(key, key_now) != 0 || lacks_text(ret_scope))
        fa_read_fail(query, FA_ECORRUPT);
}

static int find_scope(fa_store *store, const fa_scope *scope, int64_t *ret_id, fa_diag *diag)
{
    fa_query query = fa_db_prepare(store, diag,
                                   "SELECT id FROM scope WHERE key = ? AND problem_key = ? "
                                   "AND silicon = ? AND templates = ? AND policy = ?");
    fa_db_scope_bind(&query, scope);
    return fa_db_step_id(&query, ret_id);
}

static int add_scope(fa_store *store, const fa_scope *scope, int64_t *ret_id, fa_diag *diag)
{
    char key[FA_HASH_HEX], shape[FA_PROBLEM_KEY_MAX];
    fa_scope_key(scope, key);
    fa_problem_shape(&scope->problem, shape);
    fa_query query = fa_db_prepare(
        store, diag,
        "INSERT INTO scope (key, problem_key, problem, shape, silicon, templates, policy) "
        "VALUES (?,?,?,?,?,?,?) ON CONFLICT (key) DO NOTHING RETURNING id",
        fa_text(key));
    fa_db_problem_bind(&query, &scope->problem);
    fa_bind(&query, fa_text(shape), fa_text(scope->silicon), fa_text(scope->templates),
            fa_text(scope->policy));
    return fa_db_step_id(&query, ret_id);
}

int fa_db_scope_id(fa_store *store, const fa_scope *scope, bool create, int64_t *ret_id,
                   fa_diag *diag)
{
    int64_t id = 0;
    int rc = find_scope(store, scope, &id, diag);
    if (rc == 0 && id == 0 && create) {
        rc = add_scope(store, scope, &id, diag);
        if (rc == 0 && id == 0) /* another process has just added it */
            rc = find_scope(store, scope, &id, diag);
    }
    if (rc != 0)
        return rc;
    if (id == 0 && create)
        return fa_fail(diag, FA_ECORRUPT, "store %s: a scope's row does not agree with its key",
                       store->path);
    *ret_id = id;
    return 0;
}

/* ---- listing scopes -----------------------------------------------------------------------*/
int fa_store_scopes(fa_store *store, fa_scope_row **ret_rows, size_t *ret_count, fa_diag *diag)
{
    static const size_t pointers[] = {offsetof(fa_scope_row, unread), offsetof(fa_scope_row, gpu),
                                      SIZE_MAX};
    int rc;
    fa_query query =
        fa_db_query(store, diag,
                    "SELECT scope.id, scope.problem, scope.silicon, winner.gpu_name, "
                    "coalesce(winner.unix_time, 0), "
                    "(SELECT count(DISTINCT config_key) FROM trial WHERE scope_id = scope.id), "
                    "coalesce((SELECT unix_time FROM trial WHERE id = "
                    "(SELECT max(id) FROM trial WHERE scope_id = scope.id)), 0), " FA_SCOPE_COLUMNS
                    " FROM scope LEFT JOIN winner ON winner.scope_id = scope.id ORDER BY scope.id");
    while ((rc = fa_db_step(&query)) == 1) {
        fa_scope_row row = {.id = fa_read_int(&query, 0, INT64_MAX)};
        const char *problem = fa_read_text(&query, false);
        const char *silicon = fa_read_text(&query, false);
        row.gpu = fa_read_kept(&query, true);
        const int64_t won = fa_read_int(&query, 0, INT64_MAX);
        row.trials = (int32_t)fa_read_int(&query, 0, INT32_MAX);
        const int64_t tried = fa_read_int(&query, 0, INT64_MAX);
        row.unix_time = won > tried ? won : tried;
        if (query.rc != 0)
            continue;
        fa_db_scope_read(&query, &row.scope);
        if (query.rc != 0 && query.rc != FA_ENOMEM) {
            row.scope = (fa_scope){.policy = ""};
            snprintf(row.scope.silicon, sizeof row.scope.silicon, "%s", silicon);
            row.unread = fa_list_keep_text(&query.list, problem);
        }
        fa_list_add(&query.list, &row, sizeof row);
    }
    return fa_list_end(&query.list, rc, pointers, ret_rows, ret_count, diag);
}

/* Forgetting: the scopes that go, and the cubins that nothing else refers to, stand in two tables of the
 * connection's own. The counts of a dry run and of a real one are made by the same statements, before
 * anything is deleted.
 *
 * Workload: by hand or once a day: tens to thousands of scopes with a hundred trials each. No index leads from a
 * cubin's key to its trials: both sides are read once, whatever their number. */
#define GOING "(SELECT scope_id FROM forgotten)"
#define CUBINS_GOING "(SELECT cubin_key FROM forgotten_cubin)"

static const char begin_sql[] =
    "CREATE TEMP TABLE IF NOT EXISTS forgotten (scope_id INTEGER PRIMARY KEY);"
    "CREATE TEMP TABLE IF NOT EXISTS forgotten_cubin (cubin_key TEXT PRIMARY KEY);"
    "DELETE FROM temp.forgotten;"
    "DELETE FROM temp.forgotten_cubin;";

static const char cubins_sql[] =
    "INSERT INTO temp.forgotten_cubin "
    "SELECT cubin_key FROM trial WHERE scope_id IN " GOING
    " UNION SELECT cubin_key FROM winner WHERE scope_id IN " GOING
    " EXCEPT SELECT cubin_key FROM trial WHERE scope_id NOT IN " GOING
    " EXCEPT SELECT cubin_key FROM winner WHERE scope_id NOT IN " GOING;

static const char everything_sql[] =
    "INSERT INTO temp.forgotten SELECT id FROM scope;"
    "INSERT INTO temp.forgotten_cubin SELECT key FROM cubin UNION SELECT cubin_key FROM verification;";

/* Children before their parents, as their foreign keys demand. */
static const char delete_sql[] = "DELETE FROM winner WHERE scope_id IN " GOING ";"
                                 "DELETE FROM trial WHERE scope_id IN " GOING ";"
                                 "DELETE FROM scope WHERE id IN " GOING ";"
                                 "DELETE FROM verification WHERE cubin_key IN " CUBINS_GOING ";"
                                 "DELETE FROM cubin WHERE key IN " CUBINS_GOING ";";

static int count_rows(fa_store *store, fa_forgotten *ret_forgotten, fa_diag *diag)
{
    fa_query query = fa_db_prepare(
        store, diag,
        "SELECT (SELECT count(*) FROM winner WHERE scope_id IN " GOING "), "
        "(SELECT count(*) FROM (SELECT DISTINCT scope_id, config_key FROM trial WHERE scope_id IN " GOING
        ") AS tried), (SELECT count(*) FROM cubin WHERE key IN " CUBINS_GOING "), "
        "coalesce((SELECT sum(length(bytes) + coalesce(length(log), 0)) FROM cubin WHERE key IN " CUBINS_GOING
        "), 0) + "
        "coalesce((SELECT sum(length(samples) + length(reason) + length(environment) + "
        "coalesce(length(clocks), 0)) FROM trial "
        "WHERE scope_id IN " GOING "), 0) + "
        "coalesce((SELECT sum(coalesce(length(evidence), 0)) FROM winner WHERE scope_id IN " GOING
        "), 0)");
    int rc = fa_db_step(&query);
    if (rc <= 0)
        return rc;
    ret_forgotten->winners = fa_read_int(&query, 0, INT64_MAX);
    ret_forgotten->trials = fa_read_int(&query, 0, INT64_MAX);
    ret_forgotten->cubins = fa_read_int(&query, 0, INT64_MAX);
    ret_forgotten->bytes = fa_read_int(&query, 0, INT64_MAX);
    rc = fa_read_end(&query);
    return rc == 0 ? fa_fail(diag, FA_ECORRUPT, "store %s: it cannot be counted", store->path)
                   : (rc < 0 ? rc : 0);
}

static int forget(fa_store *store, const fa_forget_scopes *which, fa_forgotten *ret_forgotten,
                  fa_diag *diag)
{
    FA_OR_RETURN(fa_db_exec(store, begin_sql, diag));
    for (size_t i = 0; which->ids != NULL && i < which->count; i++)
        FA_OR_RETURN(fa_db_do(store, diag,
                              "INSERT INTO temp.forgotten SELECT id FROM scope WHERE id = ? "
                              "ON CONFLICT DO NOTHING",
                              fa_int(which->ids[i])));
    FA_OR_RETURN(fa_db_exec(store, which->ids != NULL ? cubins_sql : everything_sql, diag));
    FA_OR_RETURN(count_rows(store, ret_forgotten, diag));
    return which->dry_run ? 0 : fa_db_exec(store, delete_sql, diag);
}

int fa_store_forget(fa_store *store, const fa_forget_scopes *which, fa_forgotten *ret_forgotten,
                    fa_diag *diag)
{
    if (!which->dry_run)
        return FA_CHANGED(store, diag, forget(store, which, ret_forgotten, diag));
    int rc = fa_db_enter(store, diag);
    return rc != 0 ? rc : forget(store, which, ret_forgotten, diag);
}

/* ---- trials ----------------------------------------------------------------------------------*/
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
    const bool named = b->gpu_name[0] != 0 && is_printable(b->gpu_name) &&
                       is_printable(b->source) && b->peer[0] != 0 &&
                       strspn(b->peer, letters) == strlen(b->peer);
    const bool timed = b->median_us > 0 && b->median_us < FA_US_MAX;
    const bool interval = (b->low_us == 0 && b->high_us == 0) ||
                          (0 < b->low_us && b->low_us <= b->median_us &&
                           b->median_us <= b->high_us && b->high_us < FA_US_MAX);
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
            b->median_us, b->low_us, b->high_us, b->matmul_tflops, FA_US_MAX);
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
