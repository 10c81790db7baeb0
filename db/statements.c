/* SPDX-License-Identifier: Apache-2.0
 *
 * What is asked of a store of either kind; its statements, which a connection keeps, told from others by the address of their
 * text: each stands once in the program; the values that go into their places and come out of columns; and the tables.
 */
#include "statements.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool fa_store_is_address(const char *path)
{
    return strncmp(path, "postgresql://", 13) == 0 || strncmp(path, "postgres://", 11) == 0;
}

const char *fa_store_path(const fa_store *store)
{
    return store->path;
}

bool fa_store_is_read_only(const fa_store *store)
{
    return store->read_only;
}

bool fa_store_is_absent(const fa_store *store)
{
    return store->absent;
}

bool fa_store_is_lost(const fa_store *store)
{
    return store->lost;
}

void fa_store_close(fa_store **store)
{
    if (store == NULL || *store == NULL)
        return;
    /* A forked child must leave the connection alone: closing it could undo the parent's work. */
    if ((*store)->pid == getpid())
        (*store)->close(*store);
    free(*store);
    *store = NULL;
}

bool fa_store_server_is_gone(fa_store *store)
{
    return store->is_gone != NULL && store->is_gone(store);
}

bool fa_store_server_restarts(fa_store *store)
{
    return store->restarts != NULL && store->restarts(store);
}

int fa_db_enter(fa_store *store, fa_diag *diag)
{
    if (store == NULL)
        return fa_fail(diag, FA_EINVAL, "no store is open");
    if (store->pid != getpid())
        return fa_fail(diag, FA_EFORKED,
                       "store %s was opened before fork(): open it again in the child",
                       store->path);
    return store->enter(store, diag);
}

/* ---- locks ----------------------------------------------------------------------------------*/
fa_lock *fa_db_lock_new(const char *name, bool shared, void (*release)(fa_lock *lock))
{
    fa_lock *lock = calloc(1, sizeof *lock);
    if (lock == NULL)
        return NULL;
    *lock = (fa_lock){.release = release, .shared = shared, .pid = getpid(), .fd = -1};
    snprintf(lock->name, sizeof lock->name, "%s", name);
    return lock;
}

int fa_store_lock(fa_store *store, const char *name, bool shared, fa_lock **ret_lock, fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    return rc != 0 ? rc : store->backend->lock(store, name, shared, ret_lock, diag);
}

void fa_lock_release(fa_lock **lock)
{
    if (lock == NULL || *lock == NULL)
        return;
    (*lock)->release(*lock);
    free(*lock);
    *lock = NULL;
}

int fa_db_refuse_version(const fa_store *store, int64_t version, const char *instead, fa_diag *diag)
{
    return fa_fail(diag, FA_EVERSION,
                   "store %s is of version %lld, and this fa-tune reads and writes version %d "
                   "alone, so it was left as it is; use the fa-tune that made it, %s",
                   store->path, (long long)version, FA_STORE_SCHEMA, instead);
}

/* ---- statements -----------------------------------------------------------------------------*/
/* NULL when the table is full, which it never is: the program's statements are fewer. */
static fa_statement *find_statement(fa_store *store, const char *sql)
{
    size_t at = (size_t)(((uintptr_t)sql >> 3) * 2654435761u >> 8);
    for (size_t i = 0; i < FA_STATEMENTS_MAX; i++) {
        fa_statement *statement = &store->statement[(at + i) % FA_STATEMENTS_MAX];
        if (statement->sql == sql || statement->sql == NULL)
            return statement;
    }
    return NULL;
}

/* Lets go of what was bound too; NULL is allowed. */
static void reset_statement(fa_statement *statement)
{
    if (statement != NULL && statement->handle != NULL)
        statement->backend->reset(statement);
}

fa_query fa_db_prepare_values(fa_store *store, fa_diag *diag, const char *sql,
                              const fa_value *values, size_t count)
{
    fa_query query = {.store = store, .diag = diag};
    fa_statement *statement = find_statement(store, sql);
    if (statement == NULL) {
        query.rc = fa_fail(diag, FA_ENOMEM, "too many statements");
    } else if (statement->handle == NULL) {
        statement->sql = sql;
        statement->backend = store->backend;
        query.rc = store->backend->prepare(store, statement, diag);
    }
    if (query.rc != 0)
        return query;
    reset_statement(statement);
    query.statement = statement;
    fa_bind_values(&query, values, count);
    return query;
}

fa_query fa_db_query_values(fa_store *store, fa_diag *diag, const char *sql, const fa_value *values,
                            size_t count)
{
    int rc = fa_db_enter(store, diag);
    return rc != 0 ? (fa_query){.rc = rc} : fa_db_prepare_values(store, diag, sql, values, count);
}

void fa_read_fail(fa_query *query, int code)
{
    if (query->rc == 0 || code == FA_ENOMEM)
        query->rc = code;
}

static fa_value next_value(fa_query *query)
{
    fa_value value;
    query->statement->backend->column(query->statement, query->column++, &value);
    if (value.kind == FA_VALUE_NO_MEMORY)
        fa_read_fail(query, FA_ENOMEM);
    return value;
}

int fa_db_step(fa_query *query)
{
    if (query->statement == NULL)
        return query->rc;
    int rc = query->stepped && query->rc != FA_ENOMEM ? 0 : query->rc;
    if (rc != 0)
        fa_fail(query->diag, rc, "%s",
                rc == FA_ENOMEM ? "out of memory" : "a value cannot be stored");
    else
        rc = query->store->backend->step(query->store, query->statement, query->diag);
    query->rc = query->column = 0;
    query->stepped = true;
    if (rc != 1)
        reset_statement(query->statement);
    return rc;
}

int fa_db_step_id(fa_query *query, int64_t *ret_id)
{
    int rc = fa_db_step(query);
    fa_value value = rc == 1 ? next_value(query) : (fa_value){.kind = FA_VALUE_NULL};
    reset_statement(query->statement);
    if (rc >= 0)
        *ret_id = value.kind == FA_VALUE_INT ? value.integer : 0;
    return rc < 0 ? rc : 0;
}

int fa_db_find_values(fa_store *store, fa_diag *diag, int64_t *ret_id, const char *sql,
                      const fa_value *values, size_t count)
{
    fa_query query = fa_db_prepare_values(store, diag, sql, values, count);
    return fa_db_step_id(&query, ret_id);
}

int fa_db_do_values(fa_store *store, fa_diag *diag, const char *sql, const fa_value *values,
                    size_t count)
{
    fa_query query = fa_db_prepare_values(store, diag, sql, values, count);
    return fa_db_step(&query);
}

/* ---- transactions ---------------------------------------------------------------------------*/
enum { TRIES = 8 };

/* After a failure. */
static bool may_try_again(fa_change *change)
{
    fa_store *store = change->store;
    const bool lost = change->rc == FA_EIO && store->lost && !store->entering;
    if (change->tries == TRIES || !(store->conflict || lost))
        return false;
    if (lost)
        change->rc = fa_db_enter(store, change->diag);
    return !lost || change->rc == 0;
}

bool fa_store_change(fa_change *change)
{
    fa_store *store = change->store;
    if (change->within) {
        return false;
    } else if (change->tries == 0) {
        change->rc = store != NULL && store->entering ? 0 : fa_db_enter(store, change->diag);
        if (change->rc == 0 && store->read_only)
            change->rc = fa_fail(change->diag, FA_EREADONLY, "store %s was opened for reading only",
                                 store->path);
        change->within = change->rc == 0 && store->changing;
        if (change->rc != 0 || change->within)
            return change->rc == 0;
    } else {
        store->changing = false;
        if (change->rc == 0)
            change->rc = store->backend->commit(store, change->diag);
        if (change->rc == 0)
            return false;
        store->backend->rollback(store);
        if (!may_try_again(change))
            return false;
    }
    do {
        change->tries++;
        store->conflict = false;
        change->rc = store->backend->begin(store, change->diag);
        if (change->rc == 0)
            return store->changing = true;
        store->backend->rollback(store);
    } while (may_try_again(change));
    return false;
}

/* ---- binding --------------------------------------------------------------------------------*/
fa_value fa_int(int64_t value)
{
    return (fa_value){.kind = FA_VALUE_INT, .integer = value};
}

fa_value fa_real(double value)
{
    return (fa_value){.kind = isnan(value) ? FA_VALUE_NULL : FA_VALUE_REAL, .real = value};
}

fa_value fa_text_start(const char *text, size_t size)
{
    if (text == NULL)
        return (fa_value){.kind = FA_VALUE_NULL};
    return (fa_value){.kind = FA_VALUE_TEXT, .bytes = text, .size = strnlen(text, size)};
}

fa_value fa_text(const char *text)
{
    return fa_text_start(text, SIZE_MAX);
}

fa_value fa_copy(const char *text)
{
    fa_value value = fa_text(text);
    value.copy = true;
    return value;
}

fa_value fa_blob(const void *bytes, size_t size)
{
    if (bytes == NULL)
        return (fa_value){.kind = FA_VALUE_NULL};
    return (fa_value){.kind = FA_VALUE_BLOB, .bytes = bytes, .size = size};
}

fa_value fa_now(void)
{
    return fa_int((int64_t)time(NULL));
}

void fa_bind_values(fa_query *query, const fa_value *values, size_t count)
{
    for (size_t i = 0; i < count && query->statement != NULL; i++) {
        int rc = query->statement->backend->bind(query->statement, ++query->place, &values[i]);
        if (query->rc == 0)
            query->rc = rc;
    }
}

/* ---- reading --------------------------------------------------------------------------------*/
int64_t fa_read_int(fa_query *query, int64_t low, int64_t high)
{
    fa_value value = next_value(query);
    if (value.kind == FA_VALUE_INT && value.integer >= low && value.integer <= high)
        return value.integer;
    fa_read_fail(query, FA_ECORRUPT);
    return low;
}

double fa_read_real(fa_query *query, double when_null)
{
    fa_value value = next_value(query);
    if (value.kind == FA_VALUE_REAL)
        return value.real;
    if (value.kind != FA_VALUE_NULL)
        fa_read_fail(query, FA_ECORRUPT);
    return when_null;
}

const char *fa_read_text(fa_query *query, bool may_be_null)
{
    fa_value value = next_value(query);
    if (value.kind == FA_VALUE_NULL && may_be_null)
        return NULL;
    /* A NUL inside the text would hide what follows it from comparisons as C strings. */
    if (value.kind == FA_VALUE_TEXT && strlen(value.bytes) == value.size)
        return value.bytes;
    fa_read_fail(query, FA_ECORRUPT);
    return "";
}

void fa_read_copy(fa_query *query, char *ret_text, size_t size)
{
    const char *text = fa_read_text(query, false);
    size_t length = strlen(text);
    if (length >= size) {
        fa_read_fail(query, FA_ECORRUPT);
        length = 0;
    }
    memcpy(ret_text, text, length);
    ret_text[length] = 0;
}

char *fa_read_owned(fa_query *query)
{
    const char *text = fa_read_text(query, true);
    if (text == NULL || query->rc != 0)
        return NULL;
    char *owned = strdup(text);
    if (owned == NULL)
        fa_read_fail(query, FA_ENOMEM);
    return owned;
}

const void *fa_read_blob(fa_query *query, size_t limit, size_t *ret_size)
{
    fa_value value = next_value(query);
    *ret_size = value.kind == FA_VALUE_BLOB ? value.size : 0;
    if (value.kind != FA_VALUE_BLOB || value.size > limit ||
        (value.bytes == NULL && value.size != 0)) {
        fa_read_fail(query, FA_ECORRUPT);
        *ret_size = 0;
    }
    return value.kind == FA_VALUE_BLOB ? value.bytes : NULL;
}

cJSON *fa_read_json(fa_query *query, size_t limit)
{
    const char *text = fa_read_text(query, false);
    size_t size = strlen(text);
    cJSON *json = NULL;
    int rc = size > limit ? FA_ECORRUPT : fa_json_parse(text, size, "row", &json, NULL);
    if (rc != 0)
        fa_read_fail(query, rc == FA_ENOMEM ? FA_ENOMEM : FA_ECORRUPT);
    return json;
}

const char *fa_read_kept(fa_query *query, bool may_be_null)
{
    return fa_list_keep_text(&query->list, fa_read_text(query, may_be_null));
}

int fa_read_end(fa_query *query)
{
    reset_statement(query->statement);
    if (query->rc == FA_ENOMEM)
        return fa_fail(query->diag, FA_ENOMEM, "out of memory");
    return query->rc == 0;
}

/* ---- tables of columns ----------------------------------------------------------------------*/
/* OTHER: it has columns of its own. */
static fa_value value_at(const fa_member *m, const void *at)
{
    switch (m->kind) {
    case FA_MEMBER_COUNT:
        return fa_int(*(const int32_t *)at);
    case FA_MEMBER_COUNT64:
        return fa_int(*(const int64_t *)at);
    case FA_MEMBER_FLAG:
        return fa_int(*(const bool *)at);
    case FA_MEMBER_REAL:
    case FA_MEMBER_NUMBER:
        return fa_real(*(const double *)at);
    case FA_MEMBER_TEXT:
        return fa_text(at);
    case FA_MEMBER_STRING:
        return fa_text(*(const char *const *)at);
    case FA_MEMBER_CHOICE:
        return fa_text(fa_name_at(m->names, *(const int *)at));
    default:
        return (fa_value){.kind = FA_VALUE_OTHER};
    }
}

void fa_bind_columns(fa_query *query, const fa_member *members, const void *record)
{
    for (const fa_member *m = members; m->key != NULL; m++) {
        const void *at = (const char *)record + m->offset;
        const fa_value value = value_at(m, at);
        for (int i = 0; m->kind == FA_MEMBER_THREE && i < 3; i++)
            fa_bind(query, fa_int(((const uint32_t *)at)[i]));
        if (value.kind != FA_VALUE_OTHER)
            fa_bind(query, value);
    }
}

/* In a column 0 stands for itself, and "not known" may be negative. */
static int64_t read_count(fa_query *query, const fa_member *m, int64_t smallest, int64_t largest)
{
    int64_t low = (m->rules & FA_MEMBER_NULL) != 0 ? smallest : m->least;
    return fa_read_int(query, low, m->most != 0 ? m->most : largest);
}

static double read_real(fa_query *query, const fa_member *m)
{
    if ((m->rules & FA_MEMBER_NULL) != 0)
        return fa_read_real(query, 0);
    double value = fa_read_real(query, NAN);
    bool any = m->kind == FA_MEMBER_NUMBER || (m->rules & FA_MEMBER_NAN) != 0;
    if (!any && !(value >= 0 && isfinite(value)))
        fa_read_fail(query, FA_ECORRUPT);
    return value;
}

void fa_read_columns(fa_query *query, const fa_member *members, void *ret_record)
{
    for (const fa_member *m = members; m->key != NULL; m++) {
        void *at = (char *)ret_record + m->offset;
        switch (m->kind) {
        case FA_MEMBER_COUNT:
            *(int32_t *)at = (int32_t)read_count(query, m, INT32_MIN, INT32_MAX);
            break;
        case FA_MEMBER_COUNT64:
            *(int64_t *)at = read_count(query, m, INT64_MIN, INT64_MAX);
            break;
        case FA_MEMBER_THREE:
            for (int i = 0; i < 3; i++)
                ((uint32_t *)at)[i] = (uint32_t)fa_read_int(query, 0, UINT32_MAX);
            break;
        case FA_MEMBER_FLAG:
            *(bool *)at = fa_read_int(query, 0, 1) != 0;
            break;
        case FA_MEMBER_REAL:
        case FA_MEMBER_NUMBER:
            *(double *)at = read_real(query, m);
            break;
        case FA_MEMBER_TEXT:
            fa_read_copy(query, at, m->size);
            break;
        case FA_MEMBER_STRING:
            *(const char **)at = fa_read_kept(query, (m->rules & FA_MEMBER_NULL) != 0);
            break;
        case FA_MEMBER_CHOICE:
            if (fa_name_find(m->names, fa_read_text(query, false), at) != 0)
                fa_read_fail(query, FA_ECORRUPT);
            break;
        default:
            break;
        }
    }
}

/* ---- the tables -----------------------------------------------------------------------------*/
/* Of a store, one text for SQLite and PostgreSQL. A store is made whole, in one transaction, and never altered: a change of
 * this text raises FA_STORE_SCHEMA, and a store of another version is refused.
 *
 * Enums are kept by name, NaN as NULL, times in milliseconds or microseconds as their names say,
 * seeds as the 64 bits of a signed integer, samples as little-endian float32. */
/* Columns from a list of fields (statements.h). */
#define COUNT_COLUMN "INTEGER"
#define FLAG_COLUMN "INTEGER"
#define TEXT_COLUMN "TEXT"
#define CHOICE_COLUMN "TEXT"
#define REAL_COLUMN "REAL"
#define NEVER_NULL_COUNT " NOT NULL"
#define NEVER_NULL_FLAG " NOT NULL"
#define NEVER_NULL_TEXT " NOT NULL"
#define NEVER_NULL_CHOICE " NOT NULL"
#define NEVER_NULL_REAL "" /* NaN */
#define COLUMN(kind, name, member, ...) #member " " kind##_COLUMN NEVER_NULL_##kind ","
#define THREE(name, member) \
    name "_x INTEGER NOT NULL," name "_y INTEGER NOT NULL," name "_z INTEGER NOT NULL,"

#define TRIAL_TABLE_COLUMNS \
    "config_key TEXT NOT NULL,config TEXT NOT NULL," FA_TRIAL_FIELDS(COLUMN, THREE)
#define WINNER_TABLE_COLUMNS FA_WINNER_FIELDS(COLUMN)
/* The columns of statements.h. */
#define PROBLEM_TABLE_COLUMNS "problem_key TEXT NOT NULL, problem TEXT NOT NULL,"
/* The columns of fa_sweep_spent. */
#define SPENT_TABLE_COLUMNS                           \
    "seconds REAL NOT NULL, trials INTEGER NOT NULL," \
    "compiled INTEGER NOT NULL, reused INTEGER NOT NULL,"

/* A bundle has these three, too. A scope's shape is all of its problem's key but the lengths. */
#define SCOPE_TABLE                                \
    "CREATE TABLE scope ("                         \
    "id INTEGER PRIMARY KEY,"                      \
    "key TEXT NOT NULL UNIQUE,"                    \
    "problem_key TEXT NOT NULL,"                   \
    "problem TEXT NOT NULL,"                       \
    "shape TEXT NOT NULL,"                         \
    "silicon TEXT NOT NULL,"                       \
    "templates TEXT NOT NULL,"                     \
    "policy TEXT NOT NULL"                         \
    ") STRICT;"                                    \
    "CREATE INDEX scope_by_shape ON scope(shape);" \
    "CREATE INDEX scope_by_problem ON scope(problem_key);"
/* The bytes stand last: what stands behind a long value is slow to reach. */
#define CUBIN_TABLE               \
    "CREATE TABLE cubin ("        \
    "id INTEGER PRIMARY KEY,"     \
    "key TEXT NOT NULL UNIQUE,"   \
    "entry TEXT NOT NULL,"        \
    "sm INTEGER NOT NULL,"        \
    "compile_ms REAL,"            \
    "log TEXT,"                   \
    "hash TEXT NOT NULL,"         \
    "unix_time INTEGER NOT NULL," \
    "bytes BLOB NOT NULL"         \
    ") STRICT;"
#define WINNER_TABLE                                                                              \
    "CREATE TABLE winner ("                                                                       \
    "scope_id INTEGER PRIMARY KEY REFERENCES scope(id)," TRIAL_TABLE_COLUMNS WINNER_TABLE_COLUMNS \
    "evidence TEXT,"                                                                              \
    "unix_time INTEGER NOT NULL"                                                                  \
    ") STRICT;"

const char fa_db_portable_schema[] = SCOPE_TABLE CUBIN_TABLE WINNER_TABLE;

const char fa_db_schema[] = SCOPE_TABLE CUBIN_TABLE
    /* Nothing refers to a cubin by a foreign key: a corrupt one is deleted, and what was learned about
     * it stays. */
    "CREATE TABLE trial ("
    "id INTEGER PRIMARY KEY,"
    "scope_id INTEGER NOT NULL REFERENCES scope(id)," TRIAL_TABLE_COLUMNS "cubin_key TEXT NOT NULL,"
    "environment TEXT NOT NULL,"
    "clocks TEXT,"
    "seed INTEGER NOT NULL,"
    "unix_time INTEGER NOT NULL,"
    "samples_hash TEXT NOT NULL,"
    "samples BLOB NOT NULL"
    ") STRICT;"
    "CREATE INDEX trial_by_config ON trial(scope_id, config_key);" WINNER_TABLE
    /* Which cubins another driver was tried with. */
    "CREATE TABLE verification ("
    "cubin_key TEXT NOT NULL,"
    "silicon TEXT NOT NULL,"
    "driver_version INTEGER NOT NULL,"
    "passed INTEGER NOT NULL,"
    "reason TEXT NOT NULL,"
    "unix_time INTEGER NOT NULL,"
    "PRIMARY KEY (cubin_key, silicon, driver_version)"
    ") STRICT;"
    "CREATE TABLE baseline ("
    "id INTEGER PRIMARY KEY," PROBLEM_TABLE_COLUMNS "gpu_name TEXT NOT NULL,"
    "peer TEXT NOT NULL,"
    "median_us REAL NOT NULL,"
    "low_us REAL NOT NULL,"
    "high_us REAL NOT NULL,"
    "sample_count INTEGER NOT NULL,"
    "unix_time INTEGER NOT NULL,"
    "source TEXT NOT NULL,"
    "matmul_tflops REAL NOT NULL," /* the card's own matrix product; 0: not measured */
    "UNIQUE (problem_key, gpu_name, peer)"
    ") STRICT;"
    "CREATE TABLE kept ("
    "id INTEGER PRIMARY KEY,"
    "key TEXT NOT NULL UNIQUE,"
    "tuner TEXT NOT NULL,"
    "name TEXT NOT NULL,"
    "gpu TEXT NOT NULL,"
    "made TEXT NOT NULL,"
    "unix_time INTEGER NOT NULL,"
    "bytes BLOB NOT NULL"
    ") STRICT;"
    "CREATE TABLE sweep ("
    "id INTEGER PRIMARY KEY,"
    "key TEXT NOT NULL UNIQUE,"
    "plan TEXT NOT NULL,"
    "state TEXT NOT NULL,"
    "budget_seconds REAL NOT NULL," /* 0: no limit */
    "budget_trials INTEGER NOT NULL,"
    "created INTEGER NOT NULL,"
    "updated INTEGER NOT NULL,"
    "request TEXT NOT NULL"
    ") STRICT;"
    "CREATE TABLE sweep_item ("
    "id INTEGER PRIMARY KEY,"
    "sweep_id INTEGER NOT NULL REFERENCES sweep(id),"
    "position INTEGER NOT NULL," PROBLEM_TABLE_COLUMNS "gpu TEXT NOT NULL,"
    "state TEXT NOT NULL,"
    "attempts INTEGER NOT NULL," /* only the latest may end it */
    SPENT_TABLE_COLUMNS "reason TEXT NOT NULL,"
    "updated INTEGER NOT NULL,"
    "ready INTEGER NOT NULL DEFAULT 0,"      /* 1: compiled somewhere */
    "stage TEXT NOT NULL DEFAULT 'measure'," /* of its latest claim */
    "holder TEXT NOT NULL DEFAULT '',"
    "UNIQUE (sweep_id, position)"
    ") STRICT;"
    "CREATE INDEX sweep_item_by_state ON sweep_item(state, sweep_id, position);";
