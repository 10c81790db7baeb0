/* SPDX-License-Identifier: Apache-2.0
 *
 * PostgreSQL as a backend: prepared statements, transactions, and NOTIFY for those who wait.
 */
#include "postgres_statements.h"
#include "postgres_sql.h"
#include "postgres_values.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- statements -----------------------------------------------------------------------------*/
static int postgres_exec(fa_store *store, const char *sql, fa_diag *diag)
{
    char *own = fa_postgres_sql(sql);
    if (own == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    int rc = fa_postgres_command(store, own, NULL, diag);
    free(own);
    return rc;
}

static int postgres_prepare(fa_store *store, fa_statement *statement, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    struct fa_prepared *prepared = calloc(1, sizeof *prepared);
    char *own = fa_postgres_sql(statement->sql);
    PGresult *result = NULL;
    int rc = 0;
    if (prepared == NULL || own == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory");
    else if (postgres->connection == NULL)
        rc = fa_postgres_not_connected(store, diag);
    if (rc == 0) {
        prepared->pq = postgres->pq;
        snprintf(prepared->name, sizeof prepared->name, "fa%d",
                 (int)(statement - store->statement));
        rc = fa_postgres_answer(
            store, postgres->pq->sendPrepare(postgres->connection, prepared->name, own, 0, NULL),
            &result, diag);
    }
    free(own);
    if (rc != 0) {
        free(prepared);
        return rc;
    }
    postgres->pq->clear(result);
    statement->handle = prepared;
    return 0;
}

static int postgres_step(fa_store *store, fa_statement *statement, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    const fa_pq *pq = postgres->pq;
    struct fa_prepared *prepared = statement->handle;
    if (prepared == NULL || postgres->connection == NULL)
        return fa_postgres_not_connected(store, diag);
    if (prepared->result != NULL) {
        prepared->row++;
    } else {
        PGresult *result;
        int rc = fa_postgres_answer(store,
                                    pq->sendQueryPrepared(postgres->connection, prepared->name,
                                                          prepared->bound, prepared->values,
                                                          prepared->sizes, prepared->formats, 1),
                                    &result, diag);
        if (rc != 0)
            return rc;
        prepared->result = result;
        prepared->row = 0;
        postgres->changes = strtoll(pq->cmdTuples(result), NULL, 10);
    }
    return prepared->row < pq->ntuples(prepared->result) ? 1 : 0;
}

static void postgres_reset(fa_statement *statement)
{
    struct fa_prepared *prepared = statement->handle;
    prepared->pq->clear(prepared->result);
    prepared->result = NULL;
    for (int i = 0; i < FA_POSTGRES_PLACES; i++) {
        free(prepared->copies[i]);
        prepared->copies[i] = NULL;
    }
    prepared->bound = 0;
}

static int64_t postgres_changes(fa_store *store)
{
    return store->postgres->changes;
}

/* ---- transactions ---------------------------------------------------------------------------*/
/* Nothing has been done yet, so a connection found lost here is made anew. */
static int postgres_begin(fa_store *store, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    postgres->hung = false;
    int rc = fa_postgres_command(store, "BEGIN", NULL, diag);
    if (rc != FA_EIO || postgres->connection != NULL || postgres->entering || postgres->hung)
        return rc;
    rc = store->enter(store, diag);
    return rc != 0 ? rc : fa_postgres_command(store, "BEGIN", NULL, diag);
}

/* A transaction that failed before ends in a rollback even here, which is no success. */
static int postgres_commit(fa_store *store, fa_diag *diag)
{
    const struct fa_postgres *postgres = store->postgres;
    if (postgres->connection != NULL &&
        postgres->pq->transactionStatus(postgres->connection) == PQTRANS_INERROR)
        return fa_fail(diag, FA_EIO, "store %s: a command of this change had failed", store->path);
    return fa_postgres_command(store, "COMMIT", NULL, diag);
}

static void postgres_rollback(fa_store *store)
{
    struct fa_postgres *postgres = store->postgres;
    if (postgres->connection == NULL ||
        postgres->pq->transactionStatus(postgres->connection) == PQTRANS_IDLE)
        return;
    bool conflict = store->conflict;
    if (fa_postgres_command(store, "ROLLBACK", NULL, NULL) != 0 && postgres->connection != NULL)
        fa_postgres_disconnect(store);
    store->conflict = conflict;
}

/* ---- waiting --------------------------------------------------------------------------------*/
static int postgres_notify(fa_store *store, fa_diag *diag)
{
    return fa_postgres_command(store, "NOTIFY fa_tune", NULL, diag);
}

void fa_postgres_take_notes(struct fa_postgres *postgres)
{
    const fa_pq *pq = postgres->pq;
    PGnotify *notification;
    while ((notification = pq->notifies(postgres->connection)) != NULL) {
        if (notification->be_pid != pq->backendPID(postgres->connection))
            postgres->notified = true;
        pq->freemem(notification);
    }
}

static int postgres_wait(fa_store *store, int timeout_ms, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    if (!postgres->listening) {
        int rc = fa_postgres_command(store, "LISTEN fa_tune", NULL, diag);
        postgres->listening = rc == 0;
        return rc;
    }
    int64_t until = fa_postgres_now_ms() + timeout_ms;
    for (;;) {
        if (postgres->pq->consumeInput(postgres->connection) == 0 ||
            postgres->pq->status(postgres->connection) != CONNECTION_OK) {
            int rc = fa_postgres_fail(store, diag, NULL, "waiting for a change failed");
            fa_postgres_disconnect(store);
            return rc;
        }
        fa_postgres_take_notes(postgres);
        if (postgres->notified) {
            postgres->notified = false;
            return 0;
        }
        if (fa_postgres_now_ms() >= until || !fa_postgres_await(postgres, until))
            return FA_ETIMEOUT;
    }
}

const fa_backend fa_postgres_backend = FA_BACKEND(postgres, fa_postgres_bind, fa_postgres_column);
