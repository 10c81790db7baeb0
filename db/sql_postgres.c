/* SPDX-License-Identifier: Apache-2.0
 *
 * PostgreSQL as a backend: prepared statements, values in and out, sentences for its errors, and
 * NOTIFY for those who wait.
 *
 * Numbers go in as text (a double with 17 digits is the same double again), text and bytes as they
 * are; everything comes back in binary. Whatever is asked of the server has an end: it gives up a
 * command after a minute, and we give it up soon after.
 */
#include "postgres.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Types of columns, from the server's catalogue pg_type. */
enum {
    TYPE_BYTES = 17,
    TYPE_INT8 = 20,
    TYPE_INT2 = 21,
    TYPE_INT4 = 23,
    TYPE_TEXT = 25,
    TYPE_FLOAT8 = 701,
    TYPE_VARCHAR = 1043
};
enum { PLACES_MAX = 48, NUMBER_MAX = 40 };

struct prepared {
    const fa_pq *pq;
    char name[16];
    int bound; /* how many places have a value */
    const char *values[PLACES_MAX];
    int sizes[PLACES_MAX], formats[PLACES_MAX]; /* format 1: the bytes as they are */
    char numbers[PLACES_MAX][NUMBER_MAX];
    char *copies[PLACES_MAX];
    PGresult *result; /* after the first step */
    int row;
};

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
    {"28", FA_ESTORE, false, "access is denied: look at user and password"},
    {"3D", FA_ESTORE, false, "there is no such database: make it with createdb"},
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
    const char *advice = "the server cannot be reached or did not answer";
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
        advice = "the server cannot be reached or closed the connection";
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

/* Until there is something to read. 0: the time is over. */
static int await_input(struct fa_postgres *postgres, int64_t until)
{
    struct pollfd socket = {postgres->pq->socket(postgres->connection), POLLIN, 0};
    int64_t left = until - now_ms();
    int rc;
    do
        rc = poll(&socket, 1, left > 0 ? (int)left : 0);
    while (rc < 0 && errno == EINTR);
    return rc;
}

/* The last result of what was sent, or the first that is an error; NULL: none came. */
static PGresult *await_result(struct fa_postgres *postgres)
{
    const fa_pq *pq = postgres->pq;
    int64_t until = now_ms() + postgres->answer_ms;
    PGresult *kept = NULL;
    for (;;) {
        while (pq->isBusy(postgres->connection))
            if (await_input(postgres, until) <= 0 || pq->consumeInput(postgres->connection) == 0) {
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

/* 0 and a good result, or a sentence. `sent`: what sending answered. A server that gives no answer
 * is given up: nobody knows what it would say next. */
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
    if (result == NULL && postgres->connection != NULL)
        fa_postgres_disconnect(store);
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
static int run_exec(fa_store *store, const char *sql, fa_diag *diag)
{
    char *own = fa_postgres_sql(sql);
    if (own == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    int rc = fa_postgres_command(store, own, NULL, diag);
    free(own);
    return rc;
}

static int prepare(fa_store *store, fa_db_slot slot, const char *sql, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    struct prepared *prepared = calloc(1, sizeof *prepared);
    char *own = fa_postgres_sql(sql);
    PGresult *result = NULL;
    int rc = 0;
    if (prepared == NULL || own == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory");
    else if (postgres->connection == NULL)
        rc = not_connected(store, diag);
    if (rc == 0) {
        prepared->pq = postgres->pq;
        snprintf(prepared->name, sizeof prepared->name, "fa%d", (int)slot);
        rc = take_answer(store,
                         postgres->pq->sendPrepare(postgres->connection, prepared->name, own, 0,
                                                   NULL),
                         &result, diag);
    }
    free(own);
    if (rc != 0) {
        free(prepared);
        return rc;
    }
    postgres->pq->clear(result);
    store->statement[slot].handle = prepared;
    return 0;
}

static int step(fa_store *store, fa_statement *statement, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    const fa_pq *pq = postgres->pq;
    struct prepared *prepared = statement->handle;
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

static void reset(fa_statement *statement)
{
    struct prepared *prepared = statement->handle;
    prepared->pq->clear(prepared->result);
    prepared->result = NULL;
    for (int i = 0; i < PLACES_MAX; i++) {
        free(prepared->copies[i]);
        prepared->copies[i] = NULL;
    }
    prepared->bound = 0;
}

/* ---- binding --------------------------------------------------------------------------------*/
/* How long the character at text is, in UTF-8; 0: it is none, or one that the server refuses. */
static size_t character(const unsigned char *text, size_t left)
{
    unsigned char c = text[0];
    size_t size = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (size == 0 || size > left || c == 0)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if (size > 2) { /* overlong, surrogates, beyond the last character */
        unsigned second = text[1];
        if ((c == 0xe0 && second < 0xa0) || (c == 0xed && second > 0x9f) ||
            (c == 0xf0 && second < 0x90) || (c == 0xf4 && second > 0x8f))
            return 0;
    }
    return size;
}

/* The server takes UTF-8 only. What a compiler said in other bytes gets question marks. */
static char *as_utf8(const char *text, size_t size)
{
    char *copy = malloc(size + 1);
    for (size_t i = 0; copy != NULL && i < size;) {
        size_t bytes = character((const unsigned char *)text + i, size - i);
        if (bytes == 0)
            copy[i] = '?';
        else
            memcpy(copy + i, text + i, bytes);
        i += bytes == 0 ? 1 : bytes;
    }
    return copy;
}

static bool is_utf8(const char *text, size_t size)
{
    for (size_t i = 0; i < size;) {
        size_t bytes = character((const unsigned char *)text + i, size - i);
        if (bytes == 0)
            return false;
        i += bytes;
    }
    return true;
}

static int bind_bytes(struct prepared *prepared, int i, const fa_value *value)
{
    if (value->size > 2 * FA_STORE_CUBIN_MAX)
        return FA_EINVAL;
    prepared->values[i] = value->bytes;
    prepared->sizes[i] = (int)value->size;
    prepared->formats[i] = 1;
    bool text = value->kind == FA_VALUE_TEXT;
    if (!value->copy && (!text || is_utf8(value->bytes, value->size)))
        return 0;
    char *copy = text ? as_utf8(value->bytes, value->size) : malloc(value->size + 1);
    if (copy == NULL)
        return FA_ENOMEM;
    if (!text)
        memcpy(copy, value->bytes, value->size);
    prepared->copies[i] = copy;
    prepared->values[i] = copy;
    return 0;
}

static int bind(fa_statement *statement, int place, const fa_value *value)
{
    struct prepared *prepared = statement->handle;
    int i = place - 1;
    if (prepared == NULL)
        return FA_EIO;
    if (i < 0 || i >= PLACES_MAX)
        return FA_EINVAL;
    if (place > prepared->bound)
        prepared->bound = place;
    prepared->values[i] = prepared->numbers[i];
    prepared->formats[i] = 0;
    switch (value->kind) {
    case FA_VALUE_NULL:
        prepared->values[i] = NULL;
        return 0;
    case FA_VALUE_INT:
        snprintf(prepared->numbers[i], NUMBER_MAX, "%lld", (long long)value->integer);
        return 0;
    case FA_VALUE_REAL:
        snprintf(prepared->numbers[i], NUMBER_MAX, "%.17g", value->real);
        return 0;
    case FA_VALUE_TEXT:
    case FA_VALUE_BLOB:
        return bind_bytes(prepared, i, value);
    case FA_VALUE_OTHER:
        break;
    }
    return FA_EINVAL;
}

/* ---- reading --------------------------------------------------------------------------------*/
/* A number of `size` bytes as it comes over the network, signed. */
static int64_t big_endian(const char *bytes, int size)
{
    uint64_t value = (signed char)bytes[0] < 0 ? UINT64_MAX : 0;
    for (int i = 0; i < size; i++)
        value = value << 8 | (unsigned char)bytes[i];
    return (int64_t)value;
}

static void column(fa_statement *statement, int index, fa_value *ret_value)
{
    const struct prepared *prepared = statement->handle;
    fa_value value = {.kind = FA_VALUE_OTHER};
    *ret_value = value;
    if (prepared == NULL || prepared->result == NULL ||
        index >= prepared->pq->nfields(prepared->result) ||
        prepared->row >= prepared->pq->ntuples(prepared->result))
        return;
    const fa_pq *pq = prepared->pq;
    const PGresult *result = prepared->result;
    const char *bytes = pq->getvalue(result, prepared->row, index);
    int size = pq->getlength(result, prepared->row, index);
    Oid type = pq->ftype(result, index);
    if (pq->getisnull(result, prepared->row, index)) {
        value.kind = FA_VALUE_NULL;
    } else if ((type == TYPE_INT8 && size == 8) || (type == TYPE_INT4 && size == 4) ||
               (type == TYPE_INT2 && size == 2)) {
        value.kind = FA_VALUE_INT;
        value.integer = big_endian(bytes, size);
    } else if (type == TYPE_FLOAT8 && size == 8) {
        int64_t bits = big_endian(bytes, size);
        memcpy(&value.real, &bits, sizeof bits);
        /* SQLite has no NaN, and nothing of ours stores one. */
        value.kind = isnan(value.real) ? FA_VALUE_NULL : FA_VALUE_REAL;
    } else if (type == TYPE_TEXT || type == TYPE_VARCHAR || type == TYPE_BYTES) {
        value.kind = type == TYPE_BYTES ? FA_VALUE_BLOB : FA_VALUE_TEXT;
        value.bytes = bytes; /* libpq puts a NUL behind it */
        value.size = (size_t)size;
    }
    *ret_value = value;
}

static int64_t changes(fa_store *store)
{
    return store->postgres->changes;
}

/* ---- transactions ---------------------------------------------------------------------------*/
/* Nothing has been done yet, so a connection found lost here is made anew. */
static int begin(fa_store *store, fa_diag *diag)
{
    int rc = fa_postgres_command(store, "BEGIN", NULL, diag);
    if (rc != FA_EIO || store->postgres->connection != NULL || store->postgres->entering)
        return rc;
    rc = fa_postgres_enter(store, diag);
    return rc != 0 ? rc : fa_postgres_command(store, "BEGIN", NULL, diag);
}

/* A transaction that failed before ends in a rollback even here, which is no success. */
static int commit(fa_store *store, fa_diag *diag)
{
    const struct fa_postgres *postgres = store->postgres;
    if (postgres->connection != NULL &&
        postgres->pq->transactionStatus(postgres->connection) == PQTRANS_INERROR)
        return fa_fail(diag, FA_EIO, "store %s: a command of this change had failed", store->path);
    return fa_postgres_command(store, "COMMIT", NULL, diag);
}

static void rollback(fa_store *store)
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
static int notify(fa_store *store, fa_diag *diag)
{
    return fa_postgres_command(store, "NOTIFY fa_tune", NULL, diag);
}

/* Takes all that has come; whether some of it is from others. */
static bool notified(struct fa_postgres *postgres)
{
    bool others = false;
    PGnotify *notification;
    while ((notification = postgres->pq->notifies(postgres->connection)) != NULL) {
        others = others || notification->be_pid != postgres->pq->backendPID(postgres->connection);
        postgres->pq->freemem(notification);
    }
    return others;
}

static int wait(fa_store *store, int timeout_ms, fa_diag *diag)
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
        if (notified(postgres))
            return 0;
        if (await_input(postgres, until) == 0)
            return FA_ETIMEOUT;
    }
}

const fa_backend fa_postgres_backend = {
    .enter = fa_postgres_enter,
    .close = fa_postgres_close,
    .exec = run_exec,
    .prepare = prepare,
    .step = step,
    .reset = reset,
    .bind = bind,
    .column = column,
    .changes = changes,
    .begin = begin,
    .commit = commit,
    .notify = notify,
    .wait = wait,
    .rollback = rollback,
};
