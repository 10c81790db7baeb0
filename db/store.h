/* SPDX-License-Identifier: Apache-2.0
 *
 * The store: every trial, every cubin and every winner, in one SQLite file on a local disk or, for
 * many hosts together, in a schema of a PostgreSQL server. The only room that knows SQL.
 *
 * May be used by: bundle and above. May use: base, SQLite, libpq (opened at run time).
 * Promises: one transaction per winner (winner + cubin + evidence together); a kill -9 at any
 * moment loses at most the record being written; a blob is checked against its hash on every
 * read; a corrupt file is set aside under a new name with a sentence and never trusted; a file of
 * a newer schema, of another program, of another owner or writable by others is refused and left
 * byte for byte as it was.
 * On a server: a newer schema and one of another program are left as they were; a connection that
 * was lost is FA_EIO, with what was being changed undone, and the next call makes a new one;
 * FA_EBUSY is for what may succeed when it is tried again; its password is in no sentence and no
 * path; while it does not answer, a file serves in its place (fa_store_spare).
 * Thread-safety: an fa_store belongs to one thread at a time. Many processes may open one file.
 */
#ifndef FA_DB_STORE_H
#define FA_DB_STORE_H

#include "buf.h"
#include "fa_types.h"
#include "problem.h"

typedef struct fa_store fa_store;
typedef struct fa_lock fa_lock;

enum { FA_STORE_PATH_MAX = 4096, FA_STORE_SCHEMA = 16 };
enum { FA_STORE_TEXT_MAX = 1 << 20 }; /* bytes of a log, an environment, clocks or evidence */

/* The file that `variable` names (FA_TUNE_STORE; FA_TUNE_LOCAL_STORE: in a server's place), else fa-tune/store.db in
 * $XDG_CACHE_HOME, which is ignored where it is relative, as its specification says, else in $HOME/.cache. */
int fa_store_default_path(const char *variable, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag);

/* ---- what lies at a path --------------------------------------------------------------------*/
/* FA_ESTORE: the store's directory is missing, and not the cache directory. */
int fa_db_need_directory(const char *path, fa_diag *diag);
#define FA_LOCK_ENDING ".lock" /* behind a store's path: the file with its locks */
int fa_db_errno(int error);    /* errno to FA_E… */
/* Whose file it is, by the first hundred bytes of it. */
typedef enum fa_sqlite_header {
    FA_HEADER_EMPTY,
    FA_HEADER_OURS,
    FA_HEADER_OTHER_VERSION, /* ours, but not of FA_STORE_SCHEMA */
    FA_HEADER_BUNDLE,        /* a bundle, of any version */
    FA_HEADER_FOREIGN,       /* SQLite, of another program */
    FA_HEADER_UNKNOWN        /* not SQLite, or damaged */
} fa_sqlite_header;
/* What the file of that name is, in which no part is a symbolic link; FA_EIO. */
int fa_sqlite_kind_of(const char *path, fa_sqlite_header *ret_kind);

typedef enum fa_store_mode {
    FA_STORE_READ_WRITE = 0, /* creates the file and its directories (mode 0700/0600) */
    FA_STORE_READ_ONLY = 1,  /* a file that may not be written; FA_ENOTFOUND when absent */
    FA_STORE_EXISTING = 2    /* as READ_WRITE, but makes no file: where none is, an empty store that
                                is read-only stands for it; a damaged one is not set aside */
} fa_store_mode;

/* What serves in a server's place while that does not answer: at the opening, after a lost connection that nobody
 * mends within seconds, and for a minute at a time. Never within a change. */
typedef struct fa_store_spare {
    const char *file; /* lives as long as the store; NULL: no file, and calls fail with FA_EIO */
    void (*note)(void *context, const char *sentence); /* why it serves from now on; may be NULL */
    void *context;
} fa_store_spare;

/* path: a file, or postgresql://USER:PASSWORD@HOST:PORT/DATABASE as libpq takes it, whose tables
 * are made in the first schema of its search_path where that is empty.
 * READ_WRITE on a file or directory that is not writable answers FA_EREADONLY; the caller may
 * open it again READ_ONLY. Network file systems and /tmp-like world-writable directories without
 * an own 0700 directory are refused with the reason. When a corrupt file was set aside,
 * *ret_note holds the sentence about it (else ""). spare and ret_note may be NULL. Damage that is met only
 * later answers FA_ECORRUPT once; the next call sets the file aside and goes on with a new store. */
int fa_store_open(const char *path, fa_store_mode mode, const fa_store_spare *spare,
                  fa_store **ret_store, fa_diag *ret_note, fa_diag *diag);
bool fa_store_is_address(const char *path);
/* Whether the store is a server's that does not answer now; it is asked every few seconds at most. */
bool fa_store_server_is_gone(fa_store *store);
/* Whether it may come back soon, or came so lately that who held a lock may not have it again. */
bool fa_store_server_restarts(fa_store *store);
/* After FA_EIO: the connection was lost, so that the same call may succeed now. */
bool fa_store_is_lost(const fa_store *store);
void fa_store_close(fa_store **store);
const char *fa_store_path(const fa_store *store); /* an address without its password */
bool fa_store_is_read_only(const fa_store *store);
bool fa_store_is_absent(const fa_store *store); /* EXISTING, and there was none */

/* One or more puts in one transaction, all or none. A change within a change belongs to it.
 *
 *     fa_change change = {.store = store, .diag = diag};
 *     while (fa_store_change(&change))
 *         change.rc = …;
 *     return change.rc;
 *
 * or FA_CHANGED(store, diag, …), where the body is one call. It runs again after a conflict with others or a lost connection. */
typedef struct fa_change {
    fa_store *store;
    fa_diag *diag;
    int rc;
    int tries;   /* from here on fa_store_change()'s */
    bool within; /* another one */
} fa_change;
bool fa_store_change(fa_change *change);
#define FA_CHANGED(store_, diag_, call)                       \
    ({                                                        \
        fa_change change_ = {.store = store_, .diag = diag_}; \
        while (fa_store_change(&change_))                     \
            change_.rc = (call);                              \
        change_.rc;                                           \
    })

/* ---- scopes: a full winner key, by text and hash ---------------------------------------------*/
/* What must agree for a winner to be served. Stored and compared in full, not by hash only. */
typedef struct fa_scope {
    fa_problem problem; /* the bucket */
    char silicon[FA_SILICON_MAX];
    char templates[FA_HASH_HEX]; /* closure of all templates of the operation */
    char policy[64];             /* measuring policy, "measure-1" */
} fa_scope;
void fa_scope_key(const fa_scope *scope, char ret_hex[FA_HASH_HEX]);

typedef struct fa_scope_row {
    int64_t id;
    fa_scope scope;
    /* The problem's JSON as stored, where its operation is not known here, or has other fields, or it is damaged; of the
     * scope the silicon alone is set then. NULL: it was read. */
    const char *unread;
    const char *gpu;   /* the winner's; NULL: there is no winner */
    int32_t trials;    /* configs that were tried */
    int64_t unix_time; /* of the newest of them, or of the winner; 0: neither */
} fa_scope_row;
int fa_store_scopes(fa_store *store, fa_scope_row **ret_rows, size_t *ret_count, fa_diag *diag);

/* ---- forgetting: what tuning has stored about some scopes goes, and the file gets smaller --- */
typedef struct fa_forget_scopes {
    const int64_t *ids; /* fa_scope_row.id; NULL: everything */
    size_t count;
    bool dry_run; /* only counts, and works on a store that is read-only */
} fa_forget_scopes;

/* Counts, and deletes, these scopes with their winners and trials, and the cubins with their verifications that only those referred to; in one
 * transaction, or the change's. Baselines and the plans of sweeps stay. */
int fa_store_forget(fa_store *store, const fa_forget_scopes *which, fa_forgotten *ret_forgotten,
                    fa_diag *diag);

/* Changes of a file need no space on the disk while it is on: their journal stands in memory, and a process that is
 * killed within one leaves a damaged file. Outside of a change. */
void fa_store_use_no_space(fa_store *store, bool on);

/* ---- trials: every config that was tried, and what became of it ------------------------------*/
/* Appends, as of now; later trials of one config do not erase earlier ones. */
int fa_store_trial_put(fa_store *store, const fa_scope *scope, const fa_study_trial *record,
                       fa_diag *diag);
/* The newest trial of each config of a scope, oldest first. */
int fa_store_trials(fa_store *store, const fa_scope *scope, fa_study_trial **ret_rows,
                    size_t *ret_count, fa_diag *diag);
/* The same without samples, of those that ended as `status` (measured or compiled) alone, and of
 * these the `most` fastest ones: the raced before the others, fastest first by the clock when
 * measured, else by the model. */
int fa_store_trials_fastest(fa_store *store, const fa_scope *scope, fa_status status, int32_t most,
                            fa_study_trial **ret_rows, size_t *ret_count, fa_diag *diag);
/* Adds a copy to a list of trials, which ends with fa_trials_end(). */
void fa_trials_add(fa_list *list, const fa_study_trial *record);
int fa_trials_end(fa_list *list, int rc, fa_study_trial **ret_rows, size_t *ret_count,
                  fa_diag *diag);

/* ---- compiled kernels and winners -------------------------------------------------------------*/
/* Compiled kernels by cubin key, the hash of everything that went into them, and winners, one for each
 * scope (winners.c). */
typedef struct fa_cubin_record {
    char key[FA_HASH_HEX];
    char entry[FA_NAME_MAX];
    int32_t sm;
    void *bytes; /* on get: malloced, owned by the record */
    size_t size;
    char *log; /* compiler's log, escaped by who prints it; may be NULL; owned on get */
    double compile_ms;
} fa_cubin_record;
int fa_store_cubin_put(fa_store *store, const fa_cubin_record *record, fa_diag *diag);
/* FA_ENOTFOUND; FA_ECORRUPT when the bytes do not match their hash: the next put replaces them. */
int fa_store_cubin_get(fa_store *store, const char *key, fa_cubin_record *ret_record,
                       fa_diag *diag);
/* Without its bytes: what a host asks before it sends them. */
int fa_store_cubin_exists(fa_store *store, const char *key, bool *ret_exists, fa_diag *diag);
void fa_cubin_record_free(fa_cubin_record *record);

typedef struct fa_winner_record {
    fa_scope scope;
    fa_origin origin;
    fa_trial trial; /* config, launch geometry, times */
    char entry[FA_NAME_MAX];
    char cubin_key[FA_HASH_HEX];
    char gpu_name[64];      /* label */
    char nvrtc[256];        /* NVRTC identity that made the cubin */
    int32_t driver_version; /* it was proved under; 0: predicted */
    char *evidence;    /* JSON: funnel counts, default's time, ties, runners-up; owned on get */
    int64_t unix_time; /* on get */
} fa_winner_record;

/* X(KIND, "name", member, rules): the same fields in a row of the store, whose columns are named as the members. All but
 * the scope, the trial, the evidence and the time. */
#define FA_WINNER_FIELDS(X)                                      \
    X(CHOICE, "origin", origin, .names = fa_origin_names)        \
    X(TEXT, "entry", entry, .rules = FA_MEMBER_LEFT_OUT)         \
    X(TEXT, "cubin_key", cubin_key, .rules = FA_MEMBER_LEFT_OUT) \
    X(TEXT, "gpu", gpu_name)                                     \
    X(TEXT, "nvrtc", nvrtc, .rules = FA_MEMBER_LEFT_OUT)         \
    X(COUNT, "driver_version", driver_version, .rules = FA_MEMBER_LEFT_OUT)

/* Winner, its cubin (may be NULL when already stored) and its evidence in one transaction,
 * replacing the scope's earlier winner unless that one has a better origin. *ret_kept is true
 * when the earlier one was kept. ret_kept may be NULL. replace: it was made elsewhere and has been weighed against the
 * stored one; it takes its place whatever that is, and keeps its own time of making. */
int fa_store_winner_put(fa_store *store, const fa_winner_record *winner,
                        const fa_cubin_record *cubin, bool replace, bool *ret_kept, fa_diag *diag);
/* Inside a change: until its end nobody else changes the scope's winner, so that it can be weighed and
 * replaced. */
int fa_store_winner_hold(fa_store *store, const fa_scope *scope, fa_diag *diag);
/* FA_ENOTFOUND when the scope has none; the cubin comes with it in one read transaction. FA_ECORRUPT
 * when the cubin is missing or corrupt (the winner stays, and ret_cubin NULL gets it alone, so that it can be
 * compiled again) or the winner's own row is not valid, which the next put replaces. */
int fa_store_winner_get(fa_store *store, const fa_scope *scope, fa_winner_record *ret_winner,
                        fa_cubin_record *ret_cubin, fa_diag *diag);
/* 0 when some GPU has a winner for this problem from these templates, FA_ENOTFOUND when none has. */
int fa_store_winner_any(fa_store *store, const fa_problem *problem, const char *templates);
/* The valid winners of all GPUs, newest first. like: for problems that differ from this one in their lengths at most;
 * NULL: all. ret_unread, which may be NULL: how many are left out since this process does not know their operations. */
int fa_store_winners(fa_store *store, const fa_problem *like, fa_winner_record **ret_rows,
                     size_t *ret_count, size_t *ret_unread, fa_diag *diag);
/* All of them, those of one cubin one after another. */
int fa_store_winners_by_cubin(fa_store *store, fa_winner_record **ret_rows, size_t *ret_count,
                              size_t *ret_unread, fa_diag *diag);
/* Adds a copy to a list of winners, which ends with fa_winners_end(). */
void fa_winners_add(fa_list *list, const fa_winner_record *winner);
int fa_winners_end(fa_list *list, int rc, fa_winner_record **ret_rows, size_t *ret_count,
                   fa_diag *diag);
void fa_winner_record_free(fa_winner_record *winner); /* of fa_store_winner_get() */

/* ---- verifications: which cubins were proved again, on which silicon, under which driver ---- */
/* That a cubin was proved again, or failed to be, on a silicon under a driver. */
typedef struct fa_verification {
    char cubin_key[FA_HASH_HEX];
    char silicon[FA_SILICON_MAX];
    int32_t driver_version;
    bool passed;
    char reason[512]; /* when it did not pass */
} fa_verification;
/* Keeps the mark as of now and, in the same transaction, tells the scope's winner when it still is
 * this cubin: passed, its driver_version becomes this one; failed, it is deleted. */
int fa_store_verification_put(fa_store *store, const fa_verification *mark, const fa_scope *scope,
                              fa_diag *diag);
/* FA_ENOTFOUND: this cubin was never proved again there. */
int fa_store_verification_get(fa_store *store, const char *cubin_key, const char *silicon,
                              int32_t driver_version, fa_verification *ret_mark, fa_diag *diag);

/* ---- baselines: what other kernels take, as somebody measured it ---------------------------- */
/* Its fields but the problem, as X(KIND, "name in JSON", member and column, rules). */
#define FA_BASELINE_FIELDS(X)                                              \
    X(TEXT, "gpu", gpu_name)                                               \
    X(TEXT, "peer", peer)                                                  \
    X(TEXT, "source", source, .rules = FA_MEMBER_LEFT_OUT)                 \
    X(NUMBER, "median_us", median_us)                                      \
    X(NUMBER, "low_us", low_us, .rules = FA_MEMBER_LEFT_OUT)               \
    X(NUMBER, "high_us", high_us, .rules = FA_MEMBER_LEFT_OUT)             \
    X(COUNT, "sample_count", sample_count, .rules = FA_MEMBER_LEFT_OUT)    \
    X(NUMBER, "matmul_tflops", matmul_tflops, .rules = FA_MEMBER_LEFT_OUT) \
    X(COUNT64, "unix_time", unix_time, .rules = FA_MEMBER_LEFT_OUT, .most = FA_BASELINE_TIME_MAX)
#define FA_BASELINE_TIME_MAX ((int64_t)1 << 40)
/* Its names and times, which may be anybody's. */
int fa_baseline_check(const fa_baseline *baseline, fa_diag *diag);

/* All in one transaction. A baseline of the same problem, GPU and peer replaces the earlier baseline. */
int fa_store_baselines_put(fa_store *store, const fa_baseline *baselines, size_t count,
                           fa_diag *diag);
/* All, in order of their import. */
int fa_store_baselines(fa_store *store, fa_baseline **ret_rows, size_t *ret_count, fa_diag *diag);

/* ---- what other tuners keep here --------------------------------------------------------------*/
/* Keeps it as of now in the place of an earlier value of its key, or with bytes NULL forgets that. */
int fa_store_kept_put(fa_store *store, const fa_kept *value, fa_diag *diag);
/* The value of a key, which may be absent; NULL: all, newest first, without their bytes. */
int fa_store_kept(fa_store *store, const char *key, fa_kept **ret_rows, size_t *ret_count,
                  fa_diag *diag);

/* ---- sweeps: a plan, its budget, and its items, which are the queue --------------------------*/
enum { FA_QUEUE_REQUEST_MAX = 1024 };
extern const char *const fa_work_stage_names[]; /* by value; NULL ends them */

typedef struct fa_sweep_entry {
    const fa_sweep *sweep; /* of which key, plan and budget */
    const fa_sweep_item *items;
    int32_t count;
    bool restart; /* an earlier sweep of the key is forgotten first */
    const char *request; /* how its items are tuned, in less than FA_QUEUE_REQUEST_MAX bytes */
} fa_sweep_entry;

/* Enters the sweep of a key with its items, or comes back to it: its plan and budget become
 * these, what failed is pending again, what is done and spent stays, and what somebody works on stays with
 * him. The state is then FA_SWEEP_RUNNING. */
int fa_store_sweep_enter(fa_store *store, const fa_sweep_entry *entry, fa_diag *diag);
/* By its key; FA_ENOTFOUND, without a sentence. */
int fa_store_sweep_read(fa_store *store, const char *key, fa_sweep *ret_sweep, fa_diag *diag);
/* FA_ENOTFOUND, without a sentence. */
int fa_store_sweep_set_state(fa_store *store, const char *key, fa_sweep_state state, fa_diag *diag);
/* The one of a key; NULL: all, the one last worked on first. */
int fa_store_sweeps(fa_store *store, const char *key, fa_sweep **ret_rows, size_t *ret_count,
                    fa_diag *diag);

/* A sweep's items in their order; one whose worker is gone is running until another takes it. FA_ENOTFOUND, without a sentence. */
int fa_store_sweep_items(fa_store *store, const char *key, fa_sweep_item **ret_rows,
                         size_t *ret_count, fa_diag *diag);
/* An item that was done is pending again. */
int fa_store_sweep_reopen(fa_store *store, const char *key, int32_t position, fa_diag *diag);

/* ---- the queue: who takes an item, and of which ----------------------------------------------*/
typedef struct fa_queue_taker {
    const char *key; /* of this sweep, whatever GPU an item names; NULL: of any that runs */
    const char *gpu; /* of this GPU type; NULL: of any that is named */
    fa_work_stage stage;
    const char *holder; /* who it is, for people */
} fa_queue_taker;

/* An item that was taken: nobody else takes it while its taker lives and holds the lock. */
typedef struct fa_queue_claim {
    char key[65]; /* of its sweep */
    fa_sweep_item item;
    bool compiled; /* somebody has compiled its space already */
    char request[FA_QUEUE_REQUEST_MAX];
    fa_lock *lock;
} fa_queue_claim;
/* One that is pending, else one whose taker is gone; the earliest sweep's first. To measure, those compiled come
 * first; to compile, only those that are not. FA_ENOTFOUND, without a sentence, when there is none. */
int fa_store_queue_claim(fa_store *store, const fa_queue_taker *taker, fa_queue_claim *ret_claim,
                         fa_diag *diag);

typedef struct fa_queue_end {
    fa_item_state state;         /* FA_ITEM_PENDING: anybody may take it */
    bool compiled;               /* its cubins are in the store now */
    const char *reason;          /* of a failure, cut to what an item keeps; may be NULL */
    const fa_sweep_spent *spent; /* may be NULL */
} fa_queue_end;
/* Ends a claim: adds what was spent, and closes a sweep that is done or has spent its budget. An item that is no
 * longer this claim's (its sweep was begun anew, the server was gone) stays as it is. */
int fa_store_queue_end(fa_store *store, fa_queue_claim *claim, const fa_queue_end *end,
                       fa_diag *diag);

/* ---- locks ----------------------------------------------------------------------------------*/
/* Named locks between processes, among all who use a store: one tunes a key while the rest wait, one measures on a GPU at a
 * time. Of a file they are bytes of a file next to it, of a server its advisory locks: whoever dies, however,
 * holds none any more. A server that is restarted has forgotten them; their holders take them again with their next
 * connection. Two threads of one process exclude one another too. */

/* One try. FA_EBUSY, without a sentence: somebody else holds it. shared: beside others who share it; keeps out who
 * acquires it, and the other way round. name: letters, digits, '-' and '_' only. FA_EREADONLY, FA_EIO. */
int fa_store_lock(fa_store *store, const char *name, bool shared, fa_lock **ret_lock,
                  fa_diag *diag);
void fa_lock_release(fa_lock **lock); /* NULL is allowed; on the thread that uses its store */

/* ---- a part of a store that travels (sqlite.c) ------------------------------------------------*/
/* Scopes, cubins and winners in the tables of a store, in the bytes of one file. It is made in memory and given out as
 * bytes. It is read from bytes, or from a file whose owner is trusted, with the calls of any store, and nothing can write
 * it. */
enum { FA_PORTABLE_HEADER = 100 };

/* An empty one to be written to. */
int fa_portable_new(fa_store **ret_store, fa_diag *diag);
/* Appends it as it stands. The same rows put in the same order give the same bytes. */
int fa_portable_print(fa_store *store, fa_buf *out, fa_diag *diag);

/* Whether the header of a file of `size` bytes is one of ours; looks at nothing else. 0; or without a sentence FA_ESTORE, it
 * is a store's, FA_ECORRUPT or FA_EVERSION. *ret_version is the version in all but the third. */
int fa_portable_check(const unsigned char header[FA_PORTABLE_HEADER], size_t size,
                      uint32_t *ret_version);
/* From bytes, which must outlive the store and may be anybody's: all of them are looked through, and the tables must
 * be exactly those that fa_portable_new() makes. bytes NULL: from the file at `path` that begins with them,
 * whose tables alone are looked at, and which must not change. `path` is the name for sentences, too. */
int fa_portable_open(const void *bytes, size_t size, const char *path, fa_store **ret_store,
                     fa_diag *diag);
/* How many there are. FA_ECORRUPT: some belong to no winner. */
int fa_portable_count(fa_store *store, int64_t *ret_winners, int64_t *ret_cubins, fa_diag *diag);

#endif
