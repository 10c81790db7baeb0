/* SPDX-License-Identifier: Apache-2.0
 *
 * A store on a PostgreSQL server: postgres.c is the backend with its connection and looks at whose tables are there,
 * postgres_open.c looks at an address and opens stores of either kind.
 */
#ifndef FA_DB_POSTGRES_H
#define FA_DB_POSTGRES_H

#include "database.h"

#include <libpq-fe.h>

/* ---- the client library -------------------------------------------------------------------- */
/* It is opened at run time, when a store needs it: linked, it would double the start of every process that links
 * the library. */
/* clang-format off */
#define FA_PQ_FUNCTIONS(X)                                                                       \
    X(clear) X(conninfoFree) X(conninfoParse) X(connectStartParams)                 \
    X(consumeInput) X(errorMessage) X(finish) X(flush) X(ftype) X(getResult)                     \
    X(getisnull) X(getlength) X(getvalue) X(isBusy) X(nfields) X(ntuples) X(reset)               \
    X(resultErrorField) X(resultStatus) X(sendPrepare) X(sendQuery) X(sendQueryPrepared)         \
    X(serverVersion) X(setNoticeReceiver) X(setnonblocking) X(socket) X(status)                  \
    X(transactionStatus)
/* clang-format on */

#define FA_PQ_MEMBER(name) __typeof__(PQ##name) *name;
extern struct fa_pq {
    FA_PQ_FUNCTIONS(FA_PQ_MEMBER)
} fa_pq;
#undef FA_PQ_MEMBER

/* ---- a connection --------------------------------------------------------------------------- */
enum {
    /* in whole seconds, the last one cut short; an address may say otherwise */
    FA_POSTGRES_CONNECT_S = 3,
    FA_POSTGRES_FIRST_MS = 2000,      /* until a new connection's first answer */
    FA_POSTGRES_STATEMENT_MS = 15000, /* then the server gives a command up */
    FA_POSTGRES_ANSWER_MS = 20000,    /* then we give the server up */
    FA_POSTGRES_IDLE_MS = 60000,      /* and it us, in the middle of a change */
    FA_POSTGRES_RESTART_MS = 5000,    /* a server that is restarted comes back within this */
    FA_POSTGRES_RETRY_MS = 60000,     /* while the spare file serves: between two tries */
    FA_POSTGRES_ASK_MS = 3000,        /* the same for who waits for the server, */
    FA_POSTGRES_HOLDER_MS = 300,      /* or is to take a lock again before those are connected */
    FA_POSTGRES_ASK_SHARE = 4,        /* and so many times as long as the last try took */
    FA_POSTGRES_SETTLE_MS = 8000,     /* who held a lock is connected again within this */
    FA_POSTGRES_OLDEST = 120000       /* server_version_num */
};
struct fa_postgres {
    PGconn *connection;   /* NULL: the next call connects */
    char *url;            /* as given */
    int answer_ms; /* FA_POSTGRES_ANSWER_MS */
    bool answered; /* the connection's first command was */
    bool served;   /* some connection has come to its first answer */
    bool hung;     /* the last connection was given up because nothing came */
    int64_t asked,
        back;       /* when it was last tried to connect; when the server was back, 0: not known */
    fa_lock *locks; /* that this session holds: it takes them again with the next connection */
};

/* Reads what the server said last: one that closed the connection is disconnected then. */
void fa_postgres_look(fa_store *store);
/* Connects once, sets the session's limits, looks whose tables these are, makes them, and takes the locks again that were held. */
int fa_postgres_connect(fa_store *store, fa_diag *diag);
/* Ends it, and forgets its statements; the next call makes another. */
void fa_postgres_disconnect(fa_store *store);
/* Fills the table. FA_ENOTSUP with what to install. Once loaded it stays. */
int fa_pq_load(fa_diag *diag);
bool fa_postgres_is_gone(fa_store *store); /* as fa_store_server_is_gone() and _restarts() */
bool fa_postgres_restarts(fa_store *store);

/* ---- the backend ---------------------------------------------------------------------------- */
extern const fa_backend fa_postgres_backend;

#endif
