/* SPDX-License-Identifier: Apache-2.0
 *
 * The store: every trial, every cubin and every winner, in one SQLite file on a local disk or, for
 * many hosts together, in a schema of a PostgreSQL server. The only room that knows SQL.
 *
 * May be used by: engine. May use: base, SQLite, libpq (opened at run time).
 * Promises: one transaction per winner (winner + cubin + evidence together); a kill -9 at any
 * moment loses at most the record being written; a blob is checked against its SHA-256 on every
 * read; a corrupt file is set aside under a new name with a sentence and never trusted; a file of
 * a newer schema, of another program, of another owner or writable by others is refused and left
 * byte for byte as it was.
 * On a server: a newer schema and one of another program are left as they were; a connection that
 * was lost is FA_EIO, with what was being changed undone, and the next call makes a new one;
 * FA_EBUSY is for what may succeed when it is tried again; its password is in no sentence and no
 * path.
 * Thread-safety: an fa_store belongs to one thread at a time. Many processes may open one file.
 */
#ifndef FA_DB_STORE_H
#define FA_DB_STORE_H

#include "leases.h"
#include "findings.h"
#include "queue.h"
#include "queue_watch.h"
#include "scopes.h"
#include "sweeps.h"
#include "trials.h"
#include "winners.h"

enum { FA_STORE_PATH_MAX = 4096, FA_STORE_SCHEMA = 8 };

/* The file that `variable` names (FA_TUNE_STORE; FA_TUNE_LOCAL_STORE of the file beside a store that the former has
 * elsewhere), else $XDG_CACHE_HOME/fa-tune/store.db, else $HOME/.cache/fa-tune/store.db. Relative XDG_CACHE_HOME is
 * ignored, as its specification says. */
int fa_store_default_path(const char *variable, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag);

typedef enum fa_store_mode {
    FA_STORE_READ_WRITE = 0, /* creates the file and its directories (mode 0700/0600) */
    FA_STORE_READ_ONLY = 1,  /* a file that may not be written; FA_ENOTFOUND when absent */
    FA_STORE_EXISTING = 2    /* as READ_WRITE, but makes no file: where none is, an empty store that
                                is read-only stands for it; a damaged one is not set aside */
} fa_store_mode;

/* path: a file, or postgresql://USER:PASSWORD@HOST:PORT/DATABASE as libpq takes it, whose tables
 * are made in the first schema of its search_path where that is empty.
 * READ_WRITE on a file or directory that is not writable answers FA_EREADONLY; the caller may
 * open it again READ_ONLY. Network file systems and /tmp-like world-writable directories without
 * an own 0700 directory are refused with the reason. When a corrupt file was set aside,
 * *ret_note holds the sentence about it (else ""). ret_note may be NULL. Damage that is met only
 * later answers FA_ECORRUPT once; the next call sets the file aside and goes on with a new store. */
int fa_store_open(const char *path, fa_store_mode mode, fa_store **ret_store, fa_diag *ret_note,
                  fa_diag *diag);
void fa_store_close(fa_store **store);
const char *fa_store_path(const fa_store *store); /* an address without its password */
bool fa_store_is_read_only(const fa_store *store);
bool fa_store_is_absent(const fa_store *store); /* EXISTING, and there was none */

/* Runs `body` with every put it makes in one transaction: all or none. Not to be nested. */
typedef int fa_store_body(void *context, fa_diag *diag);
int fa_store_batch(fa_store *store, fa_store_body *body, void *context, fa_diag *diag);

/* Until another connection may have changed what one waits for: a winner put, a lease or claim
 * ended, items entered. 0: look again; FA_ETIMEOUT, without a sentence: timeout_ms are over, which
 * is also how one finds that a lease or claim ran out. The first call on a connection returns 0 at
 * once, so that nothing is missed between looking and waiting. */
int fa_store_wait(fa_store *store, int timeout_ms, fa_diag *diag);

#endif
