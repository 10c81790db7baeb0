/* SPDX-License-Identifier: Apache-2.0
 *
 * PostgreSQL as a backend: prepared statements, sentences for its errors, transactions, and NOTIFY
 * for those who wait. Whatever is asked of the server has an end: it gives up a command after a
 * while, and we give it up soon after.
 */
#include "postgres_statements.h"
#include "postgres_sql.h"
#include "postgres_values.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void fa_postgres_disconnect(fa_store *store)
{
    struct fa_postgres *postgres = store->postgres;
    for (size_t i = 0; i < FA_STATEMENTS_MAX; i++)
        if (store->statement[i].handle != NULL) {
            store->backend->reset(&store->statement[i]);
            free(store->statement[i].handle);
            store->statement[i].handle = NULL;
        }
    if (postgres->connection != NULL)
        postgres->pq->finish(postgres->connection);
    postgres->connection = NULL;
    postgres->listening = postgres->notified = false;
}

/* ---- errors ---------------------------------------------------------------------------------*/
/* By SQLSTATE or by its first letters; the first that fits counts. */
static const struct {
    const char *state;
    int code;
    bool conflict;
    const char *advice;
} meanings[] = {
    {"40", FA_EBUSY, true, "others changed the same rows: try again"},
    {"23505", FA_ECORRUPT, true, "its tables are not as they should be"},
    {"53100", FA_EFULL, false, "no space is left on the server: nothing stored so far is lost"},
    {"53300", FA_EBUSY, false, "the server has no connection to spare: try again"},
    {"55P03", FA_EBUSY, false, "other processes have kept it busy for too long: try again"},
    {"57014", FA_EBUSY, false, "the server took too long and gave up: try again"},
    {"25006", FA_EREADONLY, false, "it cannot be written"},
    {"42501", FA_EREADONLY, false, "this user lacks the right"},
    {"23", FA_ECORRUPT, false, "its tables are not as they should be"},
    {"42", FA_ECORRUPT, false, "its tables are not as they should be"},
    {"XX001", FA_ECORRUPT, false, "the server found its data damaged"},
    {"XX002", FA_ECORRUPT, false, "the server found its data damaged"},
    {"22", FA_EINVAL, false, "a value cannot be stored"},
    {"54", FA_EINVAL, false, "a value is too large to be stored"},
};

/* One line, and should the server repeat the password, without it. */
static void quote(const struct fa_postgres *postgres, const char *text, char ret_line[400])
{
    size_t size = 0, secret = strlen(postgres->password);
    while (*text != 0 && size + 4 < 400) {
        if (secret > 0 && strncmp(text, postgres->password, secret) == 0) {
            memcpy(ret_line + size, "***", 3);
            size += 3;
            text += secret;
        } else {
            char c = *text++;
            ret_line[size++] = c == '\n' || c == '\t' ? ' ' : c;
        }
    }
    while (size > 0 && ret_line[size - 1] == ' ')
        size--;
    ret_line[size] = 0;
}

int fa_postgres_fail(fa_store *store, fa_diag *diag, const PGresult *result, const char *what)
{
    struct fa_postgres *postgres = store->postgres;
    const fa_pq *pq = postgres->pq;
    const char *state = NULL, *text = NULL;
    if (result != NULL) {
        state = pq->resultErrorField(result, PG_DIAG_SQLSTATE);
        text = pq->resultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    }
    char said[400];
    quote(postgres, text != NULL ? text : pq->errorMessage(postgres->connection), said);
    int code = FA_EIO;
    const char *advice = result != NULL ? "the server answered with an error" : "it did not answer";
    for (size_t i = 0; state != NULL && i < sizeof meanings / sizeof *meanings; i++) {
        if (strncmp(state, meanings[i].state, strlen(meanings[i].state)) != 0)
            continue;
        code = meanings[i].code;
        advice = meanings[i].advice;
        store->conflict = meanings[i].conflict;
        break;
    }
    if (pq->status(postgres->connection) != CONNECTION_OK) {
        fa_postgres_disconnect(store);
        code = FA_EIO;
        advice = "the server cannot be reached, let nobody in, or closed the connection";
    }
    return fa_fail(diag, code, "store %s: %s: %s (PostgreSQL: %s)", store->path, what, advice,
                   said[0] != 0 ? said : "no answer");
}

/* ---- answers --------------------------------------------------------------------------------*/
static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Until there is something to read, or room to write. 0: the time is over. */
static int await_socket(struct fa_postgres *postgres, short events, int64_t until)
{
    struct pollfd socket = {postgres->pq->socket(postgres->connection), events, 0};
    int64_t left = until - now_ms();
    int rc;
    do
        rc = poll(&socket, 1, left > 0 ? (int)left : 0);
    while (rc < 0 && errno == EINTR);
    return rc;
}

/* Sends all that is queued; the server may answer meanwhile. */
static bool flushed(struct fa_postgres *postgres, int64_t until)
{
    const fa_pq *pq = postgres->pq;
    int rest;
    while ((rest = pq->flush(postgres->connection)) == 1)
        if (await_socket(postgres, POLLIN | POLLOUT, until) <= 0 ||
            pq->consumeInput(postgres->connection) == 0)
            return false;
    return rest == 0;
}

/* The last result of what was sent, or the first that is an error; NULL: none came. */
static PGresult *await_result(struct fa_postgres *postgres)
{
    const fa_pq *pq = postgres->pq;
    int64_t until = now_ms() + postgres->answer_ms;
    PGresult *kept = NULL;
    if (!flushed(postgres, until))
        return NULL;
    for (;;) {
        while (pq->isBusy(postgres->connection))
            if (await_socket(postgres, POLLIN, until) <= 0 ||
                pq->consumeInput(postgres->connection) == 0) {
                pq->clear(kept);
                return NULL;
            }
        PGresult *next = pq->getResult(postgres->connection);
        if (next == NULL)
            return kept;
        ExecStatusType status = kept != NULL ? pq->resultStatus(kept) : PGRES_COMMAND_OK;
        if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
            pq->clear(kept);
            kept = next;
        } else {
            pq->clear(next);
        }
    }
}

/* Returns 0 and a good result, or a failure with a sentence. `sent`: the result of sending. A connection
 * whose server does not answer is given up, because a late answer could be taken for that of the next
 * command. */
static int take_answer(fa_store *store, int sent, PGresult **ret_result, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    const fa_pq *pq = postgres->pq;
    PGresult *result = sent != 0 ? await_result(postgres) : NULL;
    ExecStatusType status = result != NULL ? pq->resultStatus(result) : PGRES_FATAL_ERROR;
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
        *ret_result = result;
        return 0;
    }
    int rc = fa_postgres_fail(store, diag, result, "a command failed");
    if (result == NULL && postgres->connection != NULL) {
        fa_postgres_disconnect(store);
        postgres->hung = true;
    }
    pq->clear(result);
    return rc;
}

static int not_connected(const fa_store *store, fa_diag *diag)
{
    return fa_fail(diag, FA_EIO, "store %s: the connection was lost", store->path);
}

int fa_postgres_command(fa_store *store, const char *sql, int64_t *ret_value, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    const fa_pq *pq = postgres->pq;
    PGresult *result;
    if (postgres->connection == NULL)
        return not_connected(store, diag);
    int rc = take_answer(store, pq->sendQuery(postgres->connection, sql), &result, diag);
    if (rc != 0)
        return rc;
    postgres->changes = strtoll(pq->cmdTuples(result), NULL, 10);
    if (ret_value != NULL) { /* text: such a command has no parameters */
        char *end = NULL;
        errno = 0;
        if (pq->ntuples(result) >= 1 && pq->nfields(result) >= 1 && !pq->getisnull(result, 0, 0))
            *ret_value = strtoll(pq->getvalue(result, 0, 0), &end, 10);
        if (end == NULL || *end != 0 || errno != 0)
            rc = fa_fail(diag, FA_ESTORE, "store %s: its answer is not a number", store->path);
    }
    pq->clear(result);
    return rc;
}

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
        rc = not_connected(store, diag);
    if (rc == 0) {
        prepared->pq = postgres->pq;
        snprintf(prepared->name, sizeof prepared->name, "fa%d",
                 (int)(statement - store->statement));
        rc = take_answer(
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
        return not_connected(store, diag);
    if (prepared->result != NULL) {
        prepared->row++;
    } else {
        PGresult *result;
        int rc = take_answer(store,
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
    int64_t until = now_ms() + timeout_ms;
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
        if (await_socket(postgres, POLLIN, until) == 0)
            return FA_ETIMEOUT;
    }
}

const fa_backend fa_postgres_backend = FA_BACKEND(postgres, fa_postgres_bind, fa_postgres_column);
