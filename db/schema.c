/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema, as a table of steps: steps[i] takes a file from user_version i to i + 1, and an empty
 * file is version 0. All steps that a file needs run in one transaction, so a file is of one version
 * or of another and never between. A released step is never edited; a change is a new step.
 *
 * Enums are kept by name, NaN as NULL, times in milliseconds or microseconds as their names say,
 * seeds as the 64 bits of a signed integer, samples as little-endian float32.
 */
#include "schema.h"

/* The columns of FA_TRIAL_COLUMNS. */
#define TRIAL_TABLE_COLUMNS           \
    "config_key TEXT NOT NULL,"       \
    "config TEXT NOT NULL,"           \
    "status TEXT NOT NULL,"           \
    "reason TEXT NOT NULL,"           \
    "threads INTEGER NOT NULL,"       \
    "smem_bytes INTEGER NOT NULL,"    \
    "registers INTEGER NOT NULL,"     \
    "spill_bytes INTEGER NOT NULL,"   \
    "blocks_per_sm INTEGER NOT NULL," \
    "grid_x INTEGER NOT NULL,"        \
    "grid_y INTEGER NOT NULL,"        \
    "grid_z INTEGER NOT NULL,"        \
    "compile_ms REAL,"                \
    "predicted_us REAL,"              \
    "median_us REAL,"                 \
    "low_us REAL,"                    \
    "high_us REAL,"                   \
    "sample_count INTEGER NOT NULL,"  \
    "max_error REAL,"                 \
    "tolerance REAL,"                 \
    "raced INTEGER NOT NULL,"

/* No foreign key to cubin: a corrupt cubin is deleted, and what was learned about it stays. */
static const char step_0_to_1[] =
    "CREATE TABLE scope ("
    "id INTEGER PRIMARY KEY,"
    "key TEXT NOT NULL UNIQUE,"
    "problem TEXT NOT NULL,"
    "dtype TEXT NOT NULL,"
    "causal TEXT NOT NULL,"
    "layout TEXT NOT NULL,"
    "head_dim INTEGER NOT NULL,"
    "batch INTEGER NOT NULL,"
    "heads_q INTEGER NOT NULL,"
    "heads_kv INTEGER NOT NULL,"
    "seq_q INTEGER NOT NULL,"
    "seq_k INTEGER NOT NULL,"
    "want_lse INTEGER NOT NULL,"
    "unaligned INTEGER NOT NULL,"
    "silicon TEXT NOT NULL,"
    "templates TEXT NOT NULL,"
    "policy TEXT NOT NULL"
    ") STRICT;"
    "CREATE TABLE environment ("
    "id INTEGER PRIMARY KEY,"
    "sha256 TEXT NOT NULL UNIQUE,"
    "json TEXT NOT NULL"
    ") STRICT;"
    "CREATE TABLE cubin ("
    "id INTEGER PRIMARY KEY,"
    "key TEXT NOT NULL UNIQUE,"
    "entry TEXT NOT NULL,"
    "sm INTEGER NOT NULL,"
    "compile_ms REAL,"
    "log TEXT,"
    "sha256 TEXT NOT NULL,"
    "unix_time INTEGER NOT NULL,"
    "bytes BLOB NOT NULL" /* last: what stands behind a long value is slow to reach */
    ") STRICT;"
    "CREATE TABLE trial ("
    "id INTEGER PRIMARY KEY,"
    "scope_id INTEGER NOT NULL REFERENCES scope(id),"
    "environment_id INTEGER NOT NULL REFERENCES environment(id)," TRIAL_TABLE_COLUMNS
    "cubin_key TEXT NOT NULL,"
    "clocks TEXT,"
    "seed INTEGER NOT NULL,"
    "unix_time INTEGER NOT NULL,"
    "samples_sha256 TEXT NOT NULL,"
    "samples BLOB NOT NULL"
    ") STRICT;"
    "CREATE INDEX trial_by_config ON trial(scope_id, config_key);"
    "CREATE TABLE winner ("
    "scope_id INTEGER PRIMARY KEY REFERENCES scope(id)," TRIAL_TABLE_COLUMNS "origin TEXT NOT NULL,"
    "entry TEXT NOT NULL,"
    "cubin_key TEXT NOT NULL,"
    "gpu_name TEXT NOT NULL,"
    "nvrtc TEXT NOT NULL,"
    "driver_version INTEGER NOT NULL,"
    "evidence TEXT,"
    "unix_time INTEGER NOT NULL"
    ") STRICT;";

/* What a predicted choice turned out to be, which cubins another driver was tried with, and the way to
 * winners of the same shape. */
static const char step_contact[] =
    "CREATE TABLE prediction ("
    "id INTEGER PRIMARY KEY,"
    "scope_id INTEGER NOT NULL REFERENCES scope(id),"
    "origin TEXT NOT NULL,"
    "gpu_name TEXT NOT NULL,"
    "from_gpu TEXT NOT NULL,"
    "config TEXT NOT NULL,"
    "predicted_us REAL,"
    "measured_us REAL,"
    "best_us REAL,"
    "rank INTEGER NOT NULL,"
    "raced INTEGER NOT NULL,"
    "unix_time INTEGER NOT NULL"
    ") STRICT;"
    "CREATE TABLE verification ("
    "cubin_key TEXT NOT NULL,"
    "silicon TEXT NOT NULL,"
    "driver_version INTEGER NOT NULL,"
    "passed INTEGER NOT NULL,"
    "reason TEXT NOT NULL,"
    "unix_time INTEGER NOT NULL,"
    "PRIMARY KEY (cubin_key, silicon, driver_version)"
    ") STRICT;"
    "CREATE INDEX scope_by_shape ON scope(head_dim, heads_q, heads_kv, batch, dtype, causal);";

/* The columns of problem_row.h. */
#define PROBLEM_TABLE_COLUMNS "problem_key TEXT NOT NULL, problem TEXT NOT NULL,"
/* The columns of fa_sweep_spent. */
#define SPENT_TABLE_COLUMNS                                               \
    "seconds REAL NOT NULL, cost REAL NOT NULL, trials INTEGER NOT NULL," \
    "compiled INTEGER NOT NULL, reused INTEGER NOT NULL,"

static const char step_sweep[] =
    "CREATE TABLE baseline ("
    "id INTEGER PRIMARY KEY," PROBLEM_TABLE_COLUMNS "gpu_name TEXT NOT NULL,"
    "peer TEXT NOT NULL,"
    "median_us REAL NOT NULL,"
    "low_us REAL NOT NULL,"
    "high_us REAL NOT NULL,"
    "sample_count INTEGER NOT NULL,"
    "unix_time INTEGER NOT NULL,"
    "source TEXT NOT NULL,"
    "UNIQUE (problem_key, gpu_name, peer)"
    ") STRICT;"
    "CREATE TABLE sweep ("
    "id INTEGER PRIMARY KEY,"
    "key TEXT NOT NULL UNIQUE,"
    "plan TEXT NOT NULL,"
    "state TEXT NOT NULL,"
    "budget_seconds REAL NOT NULL," /* 0: no limit */
    "budget_trials INTEGER NOT NULL,"
    "budget_cost REAL NOT NULL,"
    "price REAL NOT NULL," SPENT_TABLE_COLUMNS "created INTEGER NOT NULL,"
    "updated INTEGER NOT NULL"
    ") STRICT;"
    "CREATE TABLE sweep_item ("
    "id INTEGER PRIMARY KEY,"
    "sweep_id INTEGER NOT NULL REFERENCES sweep(id),"
    "position INTEGER NOT NULL," PROBLEM_TABLE_COLUMNS "gpu TEXT NOT NULL,"
    "state TEXT NOT NULL,"
    "attempts INTEGER NOT NULL," /* also its fence: only the latest claim may end it */
    SPENT_TABLE_COLUMNS "reason TEXT NOT NULL,"
    "updated INTEGER NOT NULL,"
    "UNIQUE (sweep_id, position)"
    ") STRICT;"
    "CREATE INDEX sweep_item_by_state ON sweep_item(sweep_id, state, position);";

/* Sweeps and leases that hosts share; times in milliseconds of the database's clock. */
static const char step_fleet[] =
    "ALTER TABLE sweep ADD COLUMN fleet INTEGER NOT NULL DEFAULT 0;" /* 1: its items are for any host */
    "ALTER TABLE sweep ADD COLUMN request TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE sweep ADD COLUMN refused INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sweep_item ADD COLUMN ready INTEGER NOT NULL DEFAULT 0;" /* 1: compiled somewhere */
    "ALTER TABLE sweep_item ADD COLUMN stage TEXT NOT NULL DEFAULT '';"   /* of its latest claim */
    "ALTER TABLE sweep_item ADD COLUMN holder TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE sweep_item ADD COLUMN lease_until INTEGER NOT NULL DEFAULT 0;"
    "CREATE INDEX sweep_for_fleet ON sweep(fleet, state);"
    "CREATE TABLE lease ("
    "name TEXT NOT NULL PRIMARY KEY,"
    "holder TEXT NOT NULL,"
    "fence INTEGER NOT NULL,"
    "lease_until INTEGER NOT NULL"
    ") STRICT;"
    "CREATE TABLE outbox ("
    "scope_id INTEGER PRIMARY KEY REFERENCES scope(id),"
    "ticket INTEGER NOT NULL,"
    "unix_time INTEGER NOT NULL"
    ") STRICT;";

/* Winners whose rows are not valid: kept as they were, in a table that takes any value. */
static const char step_set_aside[] =
    "CREATE TABLE winner_set_aside ("
    "id INTEGER PRIMARY KEY,"
    "set_aside_time INTEGER,"
    "scope_id INTEGER,"
    "config_key TEXT, config TEXT, status TEXT, reason TEXT,"
    "threads INTEGER, smem_bytes INTEGER, registers INTEGER, spill_bytes INTEGER,"
    "blocks_per_sm INTEGER, grid_x INTEGER, grid_y INTEGER, grid_z INTEGER,"
    "compile_ms REAL, predicted_us REAL, median_us REAL, low_us REAL, high_us REAL,"
    "sample_count INTEGER, max_error REAL, tolerance REAL, raced INTEGER,"
    "origin TEXT, entry TEXT, cubin_key TEXT, gpu_name TEXT, nvrtc TEXT,"
    "driver_version INTEGER, evidence TEXT, unix_time INTEGER"
    ");";

/* A scope's problem by its key and as JSON, whatever its operation, and by its shape: all of the key but
 * the lengths. Until here it was attention forward's, a column for each field. */
static const char step_problem[] =
    "ALTER TABLE scope RENAME COLUMN problem TO problem_key;"
    "ALTER TABLE scope ADD COLUMN problem TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE scope ADD COLUMN shape TEXT NOT NULL DEFAULT '';"
    "UPDATE scope SET "
    "problem = '{\"operation\":\"attn_fwd\",\"dtype\":\"' || dtype || '\",\"causal\":\"' || causal || "
    "'\",\"layout\":\"' || layout || '\",\"head_dim\":' || head_dim || ',\"batch\":' || batch || "
    "',\"heads_q\":' || heads_q || ',\"heads_kv\":' || heads_kv || ',\"seq_q\":' || seq_q || "
    "',\"seq_k\":' || seq_k || ',\"lse\":' || CASE want_lse WHEN 0 THEN 'false' ELSE 'true' END || "
    "',\"unaligned\":' || CASE unaligned WHEN 0 THEN 'false' ELSE 'true' END || '}', "
    "shape = 'attn_fwd ' || dtype || ' causal=' || causal || ' ' || layout || ' d=' || head_dim || "
    "' b=' || batch || ' hq=' || heads_q || ' hkv=' || heads_kv || ' lse=' || want_lse || "
    "' aligned=' || (1 - unaligned);"
    "DROP INDEX scope_by_shape;"
    "ALTER TABLE scope DROP COLUMN dtype;"
    "ALTER TABLE scope DROP COLUMN causal;"
    "ALTER TABLE scope DROP COLUMN layout;"
    "ALTER TABLE scope DROP COLUMN head_dim;"
    "ALTER TABLE scope DROP COLUMN batch;"
    "ALTER TABLE scope DROP COLUMN heads_q;"
    "ALTER TABLE scope DROP COLUMN heads_kv;"
    "ALTER TABLE scope DROP COLUMN seq_q;"
    "ALTER TABLE scope DROP COLUMN seq_k;"
    "ALTER TABLE scope DROP COLUMN want_lse;"
    "ALTER TABLE scope DROP COLUMN unaligned;"
    "CREATE INDEX scope_by_shape ON scope(shape);"
    "CREATE INDEX scope_by_problem ON scope(problem_key);";

/* What the card's own matrix product reached while others' kernels were measured on it. */
static const char step_matmul[] =
    "ALTER TABLE baseline ADD COLUMN matmul_tflops REAL NOT NULL DEFAULT 0;";

/* For which fleet a scope waits; '' where an earlier version did not note it. */
static const char step_outbox[] = "ALTER TABLE outbox RENAME TO outbox_before;"
                                  "CREATE TABLE outbox ("
                                  "scope_id INTEGER NOT NULL REFERENCES scope(id),"
                                  "fleet TEXT NOT NULL,"
                                  "ticket INTEGER NOT NULL,"
                                  "unix_time INTEGER NOT NULL,"
                                  "PRIMARY KEY (scope_id, fleet)"
                                  ") STRICT;"
                                  "INSERT INTO outbox (scope_id, fleet, ticket, unix_time) "
                                  "SELECT scope_id, '', ticket, unix_time FROM outbox_before;"
                                  "DROP TABLE outbox_before;";

const char *const fa_db_schema_steps[FA_STORE_SCHEMA] = {step_0_to_1, step_contact,   step_sweep,
                                                         step_fleet,  step_set_aside, step_problem,
                                                         step_matmul, step_outbox};
