/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of this room share and nobody else sees: the store's insides, statements kept
 * prepared, one write transaction, and readers and binders that never trust what they read. Topics
 * speak to a database through these alone; what is SQLite's is in sqlite.h.
 *
 * Invariants: between public calls no statement is active and no transaction is open, so no call
 * holds a lock of the file while its caller computes. Every public function that touches the file
 * begins with fa_db_enter(), or is fa_db_change().
 */
#ifndef FA_DB_INTERNAL_H
#define FA_DB_INTERNAL_H

#include "store.h"

#include "../src/base/error.h"

#include <sys/stat.h>
#include <sys/types.h>

enum {
    FA_STORE_APPLICATION_ID = 0x4641746e, /* "FAtn", in the header of the file */
    FA_STORE_BUSY_MS = 10000,
    FA_STORE_SUFFIX_MAX = 80, /* room that a store's path leaves for ".corrupt-TIME-N-journal" */
    FA_STORE_CUBIN_MAX = 64 << 20, /* bytes */
    FA_STORE_TEXT_MAX = 1 << 20,   /* bytes of a log, an environment, clocks or evidence */
    FA_STORE_SAMPLES_MAX = 1 << 20
};

/* One slot for each prepared statement. */
typedef enum fa_db_slot {
    FA_SQL_BEGIN,
    FA_SQL_COMMIT,
    FA_SQL_ROLLBACK,
    FA_SQL_SCOPE_FIND,
    FA_SQL_SCOPE_ADD,
    FA_SQL_SCOPE_IDS,
    FA_SQL_SCOPE_READ,
    FA_SQL_SCOPE_LOCK,
    FA_SQL_ENVIRONMENT_FIND,
    FA_SQL_ENVIRONMENT_ADD,
    FA_SQL_CUBIN_GET,
    FA_SQL_CUBIN_PUT,
    FA_SQL_CUBIN_DELETE,
    FA_SQL_CUBIN_EXISTS,
    FA_SQL_TRIAL_ADD,
    FA_SQL_TRIAL_IDS,
    FA_SQL_TRIAL_READ,
    FA_SQL_TRIAL_FASTEST,
    FA_SQL_TRIAL_READ_BARE,
    FA_SQL_WINNER_ORIGIN,
    FA_SQL_WINNER_PUT,
    FA_SQL_WINNER_GET,
    FA_SQL_WINNER_DELETE,
    FA_SQL_WINNER_ANY,
    FA_SQL_WINNER_IDS,
    FA_SQL_WINNER_READ,
    FA_SQL_WINNER_LIKE,
    FA_SQL_WINNER_VERIFIED,
    FA_SQL_WINNER_REFUSED,
    FA_SQL_VERIFICATION_PUT,
    FA_SQL_VERIFICATION_GET,
    FA_SQL_PREDICTION_PUT,
    FA_SQL_PREDICTION_IDS,
    FA_SQL_PREDICTION_READ,
    FA_SQL_BASELINE_PUT,
    FA_SQL_BASELINE_DELETE,
    FA_SQL_BASELINE_IDS,
    FA_SQL_BASELINE_READ,
    FA_SQL_SWEEP_FIND,
    FA_SQL_SWEEP_ADD,
    FA_SQL_SWEEP_AGAIN,
    FA_SQL_SWEEP_REOPEN,
    FA_SQL_SWEEP_STATE,
    FA_SQL_SWEEP_SPEND,
    FA_SQL_SWEEP_FORGET,
    FA_SQL_SWEEP_FORGET_ITEMS,
    FA_SQL_SWEEP_IDS,
    FA_SQL_SWEEP_READ,
    FA_SQL_ITEM_ADD,
    FA_SQL_ITEM_CLAIM,
    FA_SQL_ITEM_SPEND,
    FA_SQL_ITEM_END,
    FA_SQL_ITEM_REOPEN,
    FA_SQL_ITEM_IDS,
    FA_SQL_ITEM_READ,
    FA_SQL_LEASE_TAKE,
    FA_SQL_LEASE_RENEW,
    FA_SQL_LEASE_RELEASE,
    FA_SQL_QUEUE_MARK,
    FA_SQL_QUEUE_CLAIM,
    FA_SQL_QUEUE_REQUEST,
    FA_SQL_QUEUE_RENEW,
    FA_SQL_QUEUE_END,
    FA_SQL_QUEUE_ENDED,
    FA_SQL_QUEUE_REFUSED,
    FA_SQL_QUEUE_SETTLE,
    FA_SQL_QUEUE_COUNTS,
    FA_SQL_QUEUE_HELD,
    FA_SQL_QUEUE_HOLDER,
    FA_SQL_OUTBOX_ADD,
    FA_SQL_OUTBOX_IDS,
    FA_SQL_OUTBOX_READ,
    FA_SQL_OUTBOX_REMOVE,
    FA_SQL_COUNT
} fa_db_slot;

/* A prepared statement; handle is the backend's, NULL until it is first used. */
typedef struct fa_statement {
    const struct fa_backend *backend;
    void *handle;
} fa_statement;

typedef enum fa_value_kind {
    FA_VALUE_NULL,
    FA_VALUE_INT,
    FA_VALUE_REAL,
    FA_VALUE_TEXT,
    FA_VALUE_BLOB,
    FA_VALUE_OTHER /* of a type that no column of ours has */
} fa_value_kind;

/* What is bound to a place or stands in a column. Bytes of a column live until the next step. */
typedef struct fa_value {
    fa_value_kind kind;
    int64_t integer;
    double real;
    const void *bytes;
    size_t size;
    bool copy; /* binding: the bytes will be gone before the step */
} fa_value;

/* What a database library does for us. Failures are sentences; a step answers 1: a row, 0: no more. */
typedef struct fa_backend {
    int (*enter)(fa_store *store, fa_diag *diag); /* connects where that is needed */
    void (*close)(fa_store *store);               /* not called in a forked child */
    int (*exec)(fa_store *store, const char *sql, fa_diag *diag);
    int (*prepare)(fa_store *store, fa_db_slot slot, const char *sql, fa_diag *diag);
    int (*step)(fa_store *store, fa_statement *statement, fa_diag *diag);
    void (*reset)(fa_statement *statement);
    int (*bind)(fa_statement *statement, int place, const fa_value *value); /* places from 1 */
    void (*column)(fa_statement *statement, int column, fa_value *ret_value); /* from 0 */
    int64_t (*changes)(fa_store *store); /* rows that the last change changed */
    int (*begin)(fa_store *store, fa_diag *diag);
    int (*commit)(fa_store *store, fa_diag *diag);
    int (*notify)(fa_store *store, fa_diag *diag); /* wakes who waits, at the commit */
    int (*wait)(fa_store *store, int timeout_ms, fa_diag *diag); /* fa_store_wait() */
    void (*rollback)(fa_store *store); /* whatever happens, no transaction is open afterwards */
} fa_backend;

struct fa_store {
    const fa_backend *backend;
    struct sqlite3 *db; /* NULL after a failed reopening; the next call tries again */
    struct fa_postgres *postgres; /* NULL: a file of SQLite's */
    fa_statement statement[FA_SQL_COUNT];
    char path[FA_STORE_PATH_MAX]; /* absolute, no symbolic links; or an address, no password */
    pid_t pid;                    /* that opened it: a forked child may not use it */
    dev_t device;                 /* which file was opened, should another take its name */
    ino_t inode;
    int64_t busy_since; /* monotonic ms, while waiting for another process */
    int64_t seen; /* waiting: SQLite's data_version at the last look, and 1; 0: none yet */
    bool read_only;
    bool existing;      /* no file is made */
    bool absent;        /* there was none: empty tables in memory stand for it */
    bool batching;      /* inside fa_store_batch */
    bool journal_ready; /* this connection's journal mode has been set */
    bool marked;        /* this connection's file was marked as a store */
    bool fresh;         /* empty: what is written first need not survive a power cut */
    bool conflict;      /* the last change met another's: it may succeed when it is made again */
    bool damaged;       /* SQLite met corruption: set aside at the next call or at closing */
};

/* ---- paths.c: where a store may live ---------------------------------------------------------*/
int fa_db_errno(int error); /* errno to FA_E… */
/* Absolute path without symbolic links. create: makes missing directories, mode 0700. */
int fa_db_resolve(const char *path, bool create, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag);
/* The directory is on a local file system and nobody else can write it. */
int fa_db_check_directory(const char *path, fa_diag *diag);
/* A regular file of ours (or root's, which we can only read), that nobody else can write. */
int fa_db_check_file(const char *path, struct stat *ret_stat, fa_diag *diag);
int fa_db_create_empty(const char *path, fa_diag *diag); /* mode 0600; 0 when it exists already */
const char *fa_db_network_name(unsigned long f_type);    /* NULL: a local file system */

/* ---- store.c ---------------------------------------------------------------------------------*/
int fa_db_enter(fa_store *store, fa_diag *diag);

/* ---- schema.c --------------------------------------------------------------------------------*/
/* steps[i] takes a file from user_version i to i + 1. */
int fa_db_migrate(fa_store *store, const char *const *steps, int count, fa_diag *diag);
extern const char *const fa_db_schema_steps[FA_STORE_SCHEMA];

/* ---- sql.c -----------------------------------------------------------------------------------*/
int fa_db_exec(fa_store *store, const char *sql, fa_diag *diag);
/* The slot's statement, reset, prepared on first use. Sets *ret_statement NULL on failure. */
int fa_db_statement(fa_store *store, fa_db_slot slot, const char *sql, fa_statement **ret_statement,
                    fa_diag *diag);
/* 1: a row; 0: no (more) rows, and the statement is reset; negative: failed, and reset. */
int fa_db_step(fa_store *store, fa_statement *statement, fa_diag *diag);
void fa_db_reset(fa_statement *statement); /* and lets go of what was bound; NULL is allowed */
int64_t fa_db_changes(fa_store *store);    /* rows that the last change changed */

/* Runs body inside BEGIN IMMEDIATE … COMMIT; anything but 0 from it rolls back. */
typedef int fa_db_body(fa_store *store, void *context, fa_diag *diag);
int fa_db_write(fa_store *store, fa_db_body *body, void *context, fa_diag *diag);
/* In a transaction: whoever waits in fa_store_wait() wakes when it is committed. */
int fa_db_notify(fa_store *store, fa_diag *diag);
/* fa_db_enter() and then that: a public function that changes the store is this call. */
int fa_db_change(fa_store *store, fa_db_body *body, void *context, fa_diag *diag);
/* All integers of the first column; *ret_ids is malloced. Resets the statement. */
int fa_db_collect_ids(fa_store *store, fa_statement *statement, int64_t **ret_ids,
                      size_t *ret_count, fa_diag *diag);
/* The same of a SELECT without parameters, or with one integer; enters the store first. */
int fa_db_ids(fa_store *store, fa_db_slot slot, const char *sql, int64_t **ret_ids,
              size_t *ret_count, fa_diag *diag);
int fa_db_ids_of(fa_store *store, fa_db_slot slot, const char *sql, int64_t of, int64_t **ret_ids,
                 size_t *ret_count, fa_diag *diag);

/* Binds from left to right; rc keeps the first failure. Bytes must outlive the step. */
typedef struct fa_binder {
    fa_statement *statement;
    int index, rc;
} fa_binder;
void fa_bind_int(fa_binder *binder, int64_t value);
void fa_bind_real(fa_binder *binder, double value);                   /* NaN becomes NULL */
void fa_bind_text(fa_binder *binder, const char *text);               /* NULL stays NULL */
void fa_bind_text_start(fa_binder *binder, const char *text, size_t size); /* the same, cut there */
void fa_bind_copy(fa_binder *binder, const char *text);               /* may be gone at the step */
void fa_bind_blob(fa_binder *binder, const void *bytes, size_t size); /* NULL stays NULL */

/* Steps a statement when all of its values were bound, as fa_db_step does. */
int fa_db_run(fa_store *store, const fa_binder *binder, fa_diag *diag);
/* Binds one integer and runs. */
int fa_db_run_on(fa_store *store, fa_db_slot slot, const char *sql, int64_t value, fa_diag *diag);
/* As fa_db_run, of one that gives a row's number at most: *ret_id is 0 when it gives none. */
int fa_db_run_id(fa_store *store, const fa_binder *binder, int64_t *ret_id, fa_diag *diag);

/* Reads from left to right; ok turns false at the first value of a wrong type, range or length. */
typedef struct fa_reader {
    fa_statement *statement;
    int column;
    bool ok;
} fa_reader;
/* Steps a SELECT with one parameter, a row's number: 1: *ret_reader stands before its columns, and its
 * statement is to be reset; 0: there is none; or negative. */
int fa_db_row(fa_store *store, fa_db_slot slot, const char *sql, int64_t id, fa_reader *ret_reader,
              fa_diag *diag);
int64_t fa_read_int(fa_reader *reader, int64_t low, int64_t high);
double fa_read_real(fa_reader *reader, double when_null); /* infinities are passed on */
void fa_read_copy(fa_reader *reader, char *ret_text, size_t size);
const char *fa_read_text(fa_reader *reader, bool may_be_null); /* until the next step or reset */
const void *fa_read_blob(fa_reader *reader, size_t limit, size_t *ret_size);

/* ---- scopes.c --------------------------------------------------------------------------------*/
#define FA_SCOPE_COLUMNS                                                                  \
    "scope.key, scope.problem, scope.dtype, scope.causal, scope.layout, scope.head_dim, " \
    "scope.batch, scope.heads_q, scope.heads_kv, scope.seq_q, scope.seq_k, "              \
    "scope.want_lse, scope.unaligned, scope.silicon, scope.templates, scope.policy"
int fa_db_scope_check(const fa_scope *scope, fa_diag *diag);
void fa_db_scope_bind(fa_binder *binder, const fa_scope *scope); /* 5: the full key */
void fa_db_scope_read(fa_reader *reader, fa_scope *ret_scope);   /* FA_SCOPE_COLUMNS */
/* *ret_id is 0 when there is none and create is false. create: inside a write transaction. */
int fa_db_scope_id(fa_store *store, const fa_scope *scope, bool create, int64_t *ret_id,
                   fa_diag *diag);
/* Inside a write transaction: others who change the scope's winner wait for its end. */
int fa_db_scope_lock(fa_store *store, int64_t id, fa_diag *diag);

/* ---- trial_row.c -----------------------------------------------------------------------------*/
/* A trial's columns, the same in tables trial and winner. */
#define FA_TRIAL_COLUMNS                                                                   \
    "config_key, config, status, reason, threads, smem_bytes, registers, spill_bytes, "    \
    "blocks_per_sm, grid_x, grid_y, grid_z, compile_ms, predicted_us, median_us, low_us, " \
    "high_us, sample_count, max_error, tolerance, raced"
#define FA_TRIAL_PLACES "?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?"
int fa_db_trial_check(const fa_trial *trial, fa_diag *diag);
int fa_db_trial_bind(fa_binder *binder, const fa_trial *trial, fa_diag *diag);
void fa_db_trial_read(fa_reader *reader, fa_trial *ret_trial);

/* ---- problem_row.c ---------------------------------------------------------------------------*/
/* Two columns, both text: the problem's key and its JSON, which must agree when they are read. */
#define FA_PROBLEM_TABLE_COLUMNS "problem_key TEXT NOT NULL, problem TEXT NOT NULL,"
void fa_db_problem_bind(fa_binder *binder, const fa_problem *problem);
void fa_db_problem_read(fa_reader *reader, fa_problem *ret_problem);

/* ---- sweeps.c and sweep_items.c; these inside a write transaction ----------------------------*/
typedef struct fa_entering {
    const fa_sweep *sweep;
    const fa_sweep_item *items;
    int32_t count;
    bool restart;
    int64_t id; /* of the sweep entered */
} fa_entering;
int fa_db_sweep_check(const fa_entering *entering, fa_diag *diag); /* in none */
int fa_db_sweep_enter(fa_store *store, fa_entering *entering, fa_diag *diag);
#define FA_SPENT_COLUMNS "seconds, cost, trials, compiled, reused"
void fa_db_spent_read(fa_reader *reader, fa_sweep_spent *ret_spent);
double fa_db_amount_read(fa_reader *reader); /* finite and not negative */
int fa_db_sweep_spend(fa_store *store, const fa_store_claim *claim, const fa_sweep_spent *spent,
                      fa_diag *diag);
/* 1: loaded; 0: gone or not valid; or negative. */
int fa_db_item_load(fa_store *store, int64_t id, int32_t *ret_position, fa_sweep_item *ret_item,
                    fa_diag *diag);

/* ---- queue.c ---------------------------------------------------------------------------------*/
extern const char *const fa_db_stage_names[]; /* by fa_queue_stage */

/* ---- leases.c --------------------------------------------------------------------------------*/
bool fa_db_holder_ok(const char *holder);

/* ---- winners.c -------------------------------------------------------------------------------*/
int fa_db_winner_check(const fa_winner_record *winner, const fa_cubin_record *cubin, fa_diag *diag);
/* Inside a write transaction: what fa_store_winner_put does. */
int fa_db_winner_put(fa_store *store, const fa_winner_record *winner, const fa_cubin_record *cubin,
                     bool *ret_kept, fa_diag *diag);

/* ---- cubins.c --------------------------------------------------------------------------------*/
#define FA_CUBIN_COLUMNS \
    "cubin.key, cubin.entry, cubin.sm, cubin.compile_ms, cubin.log, cubin.sha256, cubin.bytes"
int fa_db_cubin_check(const fa_cubin_record *record, fa_diag *diag);
/* Inside a write transaction. */
int fa_db_cubin_put(fa_store *store, const fa_cubin_record *record, fa_diag *diag);
int fa_db_cubin_exists(fa_store *store, const char *key, bool *ret_exists, fa_diag *diag);
/* Behind a cubin `found` by its key: reads all columns from the table. A damaged index may name another
 * cubin's row, and SQLite would take the key from the index and the bytes from that row. */
#define FA_CUBIN_ROW " LEFT JOIN cubin ON cubin.id = found.id "
/* FA_CUBIN_COLUMNS; false in reader->ok when the bytes are not those of that key. 0 or FA_ENOMEM. */
int fa_db_cubin_read(fa_reader *reader, const char *key, fa_cubin_record *ret_record);
/* Deletes the row if it is still corrupt; best effort. */
void fa_db_cubin_drop(fa_store *store, const char *key);

#endif
