/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection to a PostgreSQL server: how it is made, asked and given up.
 */
#ifndef FA_DB_POSTGRES_CONNECTION_H
#define FA_DB_POSTGRES_CONNECTION_H

#include "database.h"
#include "libpq.h"

enum {
    FA_POSTGRES_CONNECT_S =
        3, /* in whole seconds, the last one cut short; an address may say otherwise */
    FA_POSTGRES_FIRST_MS = 2000, /* until a new connection's first answer */
    FA_POSTGRES_SILENT_MS =
        1000, /* then a second connection tells whether the server answers anybody */
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
    bool answered; /* the connection's first command was */
    bool notified; /* another has told of a change since the last wait */
    bool hung;     /* the last connection was given up because nothing came */
};

/* Connects and sets the session's limits. */
int fa_postgres_connect(fa_store *store, fa_diag *diag);
/* Ends it, and forgets its statements; the next call makes another. */
void fa_postgres_disconnect(fa_store *store);
/* The sentence of libpq's last error on the connection, which is given up when it is lost. */
int fa_postgres_fail(fa_store *store, fa_diag *diag, const PGresult *result, const char *what);
/* 0 and a good result, or a failure with a sentence. `sent`: the result of sending. A connection whose server
 * does not answer is given up, because a late answer could be taken for that of the next command. */
int fa_postgres_answer(fa_store *store, int sent, PGresult **ret_result, fa_diag *diag);
/* Runs commands as they are written for PostgreSQL, and answers the first column of the last one's
 * first row where that is an integer (ret_value may be NULL). */
int fa_postgres_command(fa_store *store, const char *sql, int64_t *ret_value, fa_diag *diag);
int fa_postgres_not_connected(const fa_store *store, fa_diag *diag);
/* Until there is something to read; false: the time is over. */
bool fa_postgres_await(struct fa_postgres *postgres, int64_t until_ms);
int64_t fa_postgres_now_ms(void); /* of a monotonic clock */

#endif
