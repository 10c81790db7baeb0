/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of a store, one text for SQLite and PostgreSQL. A store is made whole, in one transaction,
 * and never altered: a change of this text raises FA_STORE_SCHEMA, and a store of another version is
 * refused.
 *
 * Enums are kept by name, NaN as NULL, times in milliseconds or microseconds as their names say,
 * seeds as the 64 bits of a signed integer, samples as little-endian float32.
 */
#include "statements.h"

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

/* ---- the tables that a bundle has, too -------------------------------------------------------*/
/* A scope's shape is all of its problem's key but the lengths. */
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
