/* SPDX-License-Identifier: Apache-2.0
 *
 * What a store is made of, for the files of this room: its values, its prepared statements, what a database library does for
 * it, and its own members. Declares no function.
 *
 * Invariants: between public calls no statement is active and no transaction is open, so no call
 * holds a lock of the file while its caller computes. Every public function that touches the file
 * begins with fa_db_enter(), fa_db_query() or fa_store_change().
 */
#ifndef FA_DB_DATABASE_H
#define FA_DB_DATABASE_H

#include "store.h"

#include "error.h"

#include <sys/types.h>

enum {
    FA_STORE_APPLICATION_ID = 0x4641746e,  /* "FAtn", in the header of the file */
    FA_BUNDLE_APPLICATION_ID = 0x46417462, /* "FAtb" */
    FA_STORE_BUSY_MS = 10000,
    FA_STORE_NO_LOCKS_MS = 100, /* until a file system that gives no locks is believed */
    FA_STORE_SUFFIX_MAX = 80,   /* room that a store's path leaves for ".corrupt-TIME-N-journal" */
    FA_STORE_CUBIN_MAX = 64 << 20, /* bytes */
    FA_STORE_SAMPLES_MAX = 1 << 20,
    FA_KEPT_TEXT_MAX = 512, /* bytes of the name of a kernel or GPU */
    FA_STATEMENTS_MAX = 128 /* of one connection; a power of two, never nearly full */
};

/* Makes the tables of version FA_STORE_SCHEMA; one text for all databases (statements.c). */
extern const char fa_db_schema[];
extern const char fa_db_portable_schema[]; /* those of its tables that a bundle has */

/* A prepared statement; handle is the backend's, NULL until it is first used. */
typedef struct fa_statement {
    const char *sql; /* told from others by its address: a text that lives as long as the program */
    const struct fa_backend *backend;
    void *handle;
} fa_statement;

typedef enum fa_value_kind {
    FA_VALUE_NULL,
    FA_VALUE_INT,
    FA_VALUE_REAL,
    FA_VALUE_TEXT,
    FA_VALUE_BLOB,
    FA_VALUE_OTHER,    /* of a type that no column of ours has */
    FA_VALUE_NO_MEMORY /* it is there, and there is no memory to read it with */
} fa_value_kind;

/* A value that is bound to a place or stands in a column. Bytes of a column live until the next step. */
typedef struct fa_value {
    fa_value_kind kind;
    int64_t integer;
    double real;
    const void *bytes;
    size_t size;
    bool copy; /* binding: the bytes will be gone before the step */
} fa_value;

/* A lock that is held, of a file's bytes or of a server's session. */
struct fa_lock {
    void (*release)(fa_lock *lock); /* lets go of all but its memory */
    char name[160];
    bool shared;
    pid_t pid;       /* a forked child shares an open file: it may close it, never unlock it */
    int fd;          /* of a file's */
    fa_store *store; /* of a server's, */
    fa_lock *next;   /* and the others of its session */
};

/* What a database library does for us. Failures are sentences; a step answers 1: a row, 0: no more. */
typedef struct fa_backend {
    int (*exec)(fa_store *store, const char *sql, fa_diag *diag);
    int (*prepare)(fa_store *store, fa_statement *statement, fa_diag *diag);
    int (*step)(fa_store *store, fa_statement *statement, fa_diag *diag);
    void (*reset)(fa_statement *statement);
    int (*bind)(fa_statement *statement, int place, const fa_value *value);   /* places from 1 */
    void (*column)(fa_statement *statement, int column, fa_value *ret_value); /* from 0 */
    int (*begin)(fa_store *store, fa_diag *diag);
    int (*commit)(fa_store *store, fa_diag *diag);
    void (*rollback)(fa_store *store); /* whatever happens, no transaction is open afterwards */
    int (*lock)(fa_store *store, const char *name, bool shared, fa_lock **ret_lock, fa_diag *diag);
} fa_backend;

/* The backend of a file whose functions are named like its members, after `kind`. */
#define FA_BACKEND(kind)                                                             \
    {                                                                                \
        .exec = kind##_exec, .prepare = kind##_prepare, .step = kind##_step,         \
        .reset = kind##_reset, .bind = kind##_bind, .column = kind##_column,         \
        .begin = kind##_begin, .commit = kind##_commit, .rollback = kind##_rollback, \
        .lock = kind##_lock                                                          \
    }

struct fa_store {
    const fa_backend *backend;
    int (*enter)(fa_store *store, fa_diag *diag); /* connects where that is needed */
    void (*close)(fa_store *store);               /* not called in a forked child */
    bool (*is_gone)(fa_store *store); /* of a server's: NULL, and what follows, of a file's */
    bool (*restarts)(fa_store *store);
    struct sqlite3 *db;           /* NULL after a failed reopening; the next call tries again */
    struct fa_postgres *postgres; /* NULL: a file of SQLite's */
    fa_statement statement[FA_STATEMENTS_MAX]; /* a hash table by the address of their SQL */
    char file[FA_STORE_PATH_MAX];              /* absolute, no symbolic links */
    char address[FA_STORE_PATH_MAX];           /* of a server, without a password */
    const char *path;                          /* the one of both that is in use */
    struct fa_spare { /* of a server: what serves while that does not (postgres_open.c) */
        fa_store_spare is;
        int (*enter)(fa_store *store, fa_diag *diag); /* the file's, while it serves */
        void (*close)(fa_store *store);
        bool serves, noted; /* noted: people know that the server does not answer */
        bool read_only;     /* the server's */
        int64_t until;      /* monotonic ms: then the server is tried again */
    } spare;
    pid_t pid;                    /* that opened it: a forked child may not use it */
    dev_t device;                 /* which file was opened, should another take its name */
    ino_t inode;
    int64_t busy_since; /* monotonic ms, while waiting for another process */
    bool unlockable;    /* the wait ended because no lock of the file can be had at all */
    bool read_only;
    bool existing;      /* no file is made */
    bool absent;        /* no file of its own: empty tables in memory stand for it, or a bundle */
    bool changing;      /* inside fa_store_change() */
    bool journal_ready; /* this connection's journal mode has been set */
    bool no_space;      /* journals and temporary tables stand in memory */
    bool fresh;         /* empty: what is written first need not survive a power cut */
    bool conflict;      /* the last change met another's: it may succeed when it is made again */
    bool damaged;       /* SQLite met corruption: set aside at the next call or at closing */
    bool lost;          /* a server's connection, since it was last made */
    bool entering;      /* it, or a file's, is being made */
};

#endif
