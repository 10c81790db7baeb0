/* SPDX-License-Identifier: Apache-2.0
 *
 * A store on a PostgreSQL server: what libpq.c and the files named _postgres.c share. libpq is
 * opened at run time, when a store needs it: linked, it would double the start of every process
 * that links the library.
 */
#ifndef FA_DB_POSTGRES_H
#define FA_DB_POSTGRES_H

#include "internal.h"

#include <libpq-fe.h>

/* ---- libpq.c ---------------------------------------------------------------------------------*/
/* clang-format off */
#define FA_PQ_FUNCTIONS(X)                                                                       \
    X(backendPID) X(clear) X(cmdTuples) X(connectdbParams) X(conninfoFree) X(conninfoParse)      \
    X(consumeInput) X(errorMessage) X(finish) X(flush) X(freemem) X(ftype) X(getResult)          \
    X(getisnull) X(getlength) X(getvalue) X(isBusy) X(nfields) X(notifies) X(ntuples)            \
    X(resultErrorField) X(resultStatus) X(sendPrepare) X(sendQuery) X(sendQueryPrepared)         \
    X(serverVersion) X(setnonblocking) X(socket) X(status) X(transactionStatus)
/* clang-format on */

#define FA_PQ_MEMBER(name) __typeof__(PQ##name) *name;
typedef struct fa_pq {
    FA_PQ_FUNCTIONS(FA_PQ_MEMBER)
} fa_pq;
#undef FA_PQ_MEMBER
/* FA_ENOTSUP with what to install. Once loaded it stays. */
int fa_pq_load(const fa_pq **ret_pq, fa_diag *diag);

/* ---- translate_postgres.c --------------------------------------------------------------------*/
/* SQL as it is written for SQLite in PostgreSQL's words; malloced. Places ? and ?1 become $1; what
 * stands in a comment that begins with an exclamation mark is meant for PostgreSQL alone; unix_ms()
 * and the types of columns are its own. */
char *fa_postgres_sql(const char *sql);

/* ---- open_postgres.c -------------------------------------------------------------------------*/
enum {
    FA_POSTGRES_CONNECT_S = 10,
    FA_POSTGRES_STATEMENT_MS = 15000, /* then the server gives a command up */
    FA_POSTGRES_ANSWER_MS = 20000,    /* then we give the server up */
    FA_POSTGRES_IDLE_MS = 60000,      /* and it us, in the middle of a change */
    FA_POSTGRES_OLDEST = 120000       /* server_version_num */
};
struct fa_postgres {
    const fa_pq *pq;
    PGconn *connection;   /* NULL: the next call connects */
    char *url, *password; /* as given; password: "" when the address has none */
    int64_t changes;
    int answer_ms; /* FA_POSTGRES_ANSWER_MS */
    bool listening, entering;
    bool notified; /* another has told of a change since the last wait */
    bool hung; /* the last connection was given up because nothing came */
};
bool fa_postgres_is_address(const char *path);
int fa_postgres_open(fa_store *store, const char *url, fa_diag *diag);
int fa_postgres_enter(fa_store *store, fa_diag *diag);
void fa_postgres_disconnect(fa_store *store);
void fa_postgres_close(fa_store *store);
/* As fa_db_migrate(), for a server. */
int fa_postgres_migrate(fa_store *store, const char *const *steps, int count, fa_diag *diag);

/* ---- values_postgres.c -----------------------------------------------------------------------*/
enum { FA_POSTGRES_PLACES = 48, FA_POSTGRES_NUMBER = 24 };
/* fa_statement's handle. */
struct fa_prepared {
    const fa_pq *pq;
    char name[16];
    int bound; /* how many places have a value */
    const char *values[FA_POSTGRES_PLACES];
    int sizes[FA_POSTGRES_PLACES];
    int formats[FA_POSTGRES_PLACES]; /* 0: text; 1: the bytes as they are */
    char numbers[FA_POSTGRES_PLACES][FA_POSTGRES_NUMBER];
    char *copies[FA_POSTGRES_PLACES];
    PGresult *result; /* after the first step */
    int row;
};
int fa_postgres_bind(fa_statement *statement, int place, const fa_value *value);
void fa_postgres_column(fa_statement *statement, int index, fa_value *ret_value);

/* ---- sql_postgres.c --------------------------------------------------------------------------*/
extern const fa_backend fa_postgres_backend;
/* Runs commands as they are written for PostgreSQL, and answers the first column of the last one's
 * first row where that is an integer (ret_value may be NULL). */
int fa_postgres_command(fa_store *store, const char *sql, int64_t *ret_value, fa_diag *diag);
/* Takes the notifications that have come, and keeps in mind whether some are from others. */
void fa_postgres_take_notes(struct fa_postgres *postgres);
/* The sentence of libpq's last error on the connection, which is given up when it is lost. */
int fa_postgres_fail(fa_store *store, fa_diag *diag, const PGresult *result, const char *what);

#endif
