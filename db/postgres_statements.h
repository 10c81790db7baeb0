/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection to a PostgreSQL server, as its files share it: answers, errors and statements.
 */
#ifndef FA_DB_POSTGRES_STATEMENTS_H
#define FA_DB_POSTGRES_STATEMENTS_H

#include "database.h"
#include "libpq.h"

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
    bool hung;     /* the last connection was given up because nothing came */
};

/* Ends it, and forgets its statements; the next call makes another. */
void fa_postgres_disconnect(fa_store *store);
extern const fa_backend fa_postgres_backend;
/* Runs commands as they are written for PostgreSQL, and answers the first column of the last one's
 * first row where that is an integer (ret_value may be NULL). */
int fa_postgres_command(fa_store *store, const char *sql, int64_t *ret_value, fa_diag *diag);
/* Takes the notifications that have come, and keeps in mind whether some are from others. */
void fa_postgres_take_notes(struct fa_postgres *postgres);
/* The sentence of libpq's last error on the connection, which is given up when it is lost. */
int fa_postgres_fail(fa_store *store, fa_diag *diag, const PGresult *result, const char *what);

#endif
