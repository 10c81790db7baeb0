/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection to a PostgreSQL server: made, asked, and given up, with sentences for its errors.
 *
 * Whatever is asked of the server has an end. Its first answer comes within two seconds or not at all; later on a
 * command may take its time, for a lock of another host's say, as long as the server answers somebody. What it says
 * beside its answers goes nowhere: libpq would print it.
 */
#include "postgres.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the client library ---------------------------------------------------------------------*/
static fa_pq table;
static const char *missing; /* what of it was not found; NULL: all is there */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load_libpq(void)
{
    void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        missing = "libpq.so.5";
        return;
    }
#define LOAD(name)                                              \
    *(void **)(void *)&table.name = dlsym(library, "PQ" #name); \
    if (table.name == NULL)                                     \
        missing = "PQ" #name;
    FA_PQ_FUNCTIONS(LOAD)
#undef LOAD
}

int fa_pq_load(const fa_pq **ret_pq, fa_diag *diag)
{
    pthread_once(&once, load_libpq);
    if (missing != NULL)
        return fa_fail(diag, FA_ENOTSUP,
                       "a store on a PostgreSQL server needs libpq, and %s is not here: install "
                       "Debian's package libpq5, or set FA_TUNE_STORE to a file",
                       missing);
    *ret_pq = &table;
    return 0;
}

/* ---- giving it up ---------------------------------------------------------------------------*/
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
    postgres->listening = postgres->notified = postgres->answered = false;
}

/* ---- text -----------------------------------------------------------------------------------*/
char *fa_postgres_utf8(const char *text, size_t size)
{
    char *copy = malloc(size + 1);
    for (size_t i = 0; copy != NULL && i < size;) {
        uint32_t code = 0;
        size_t bytes = fa_utf8_at(text + i, size - i, &code);
        if (bytes == 0 || code == 0) /* which the server refuses, too */
            copy[i] = '?';
        else
            memcpy(copy + i, text + i, bytes);
        i += bytes == 0 ? 1 : bytes;
    }
    if (copy != NULL)
        copy[size] = 0;
    return copy;
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

/* One line of UTF-8, and should the server repeat the password, without it. */
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
    char *clean = fa_postgres_utf8(ret_line, size);
    snprintf(ret_line, 400, "%s", clean != NULL ? clean : "out of memory");
    free(clean);
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

/* ---- waiting --------------------------------------------------------------------------------*/
/* Until there is something to read, or room to write: those events; 0: the time is over. */
static short await_socket(struct fa_postgres *postgres, short events, int64_t until)
{
    struct pollfd socket = {postgres->pq->socket(postgres->connection), events, 0};
    int rc;
    do {
        int64_t left = until - fa_db_now_ms();
        rc = poll(&socket, 1, left > 0 ? (int)left : 0);
    } while (rc < 0 && errno == EINTR);
    return rc > 0 ? socket.revents : 0;
}

bool fa_postgres_await(struct fa_postgres *postgres, int64_t until_ms)
{
    return await_socket(postgres, POLLIN, until_ms) != 0;
}

/* Whether the server answers on a new connection. */
static bool answers_anybody(const fa_store *asked)
{
    struct fa_postgres own = {.pq = asked->postgres->pq,
                              .url = asked->postgres->url,
                              .password = asked->postgres->password};
    fa_store probe = {.backend = asked->backend, .postgres = &own};
    bool answers = fa_postgres_connect(&probe, NULL) == 0;
    fa_postgres_disconnect(&probe);
    return answers;
}

/* How long an answer is waited for. */
struct patience {
    int64_t until;  /* not longer */
    int64_t silent; /* and no longer without a sign of life */
    bool over;      /* what had come by then was read */
};

static struct patience new_patience(const struct fa_postgres *postgres)
{
    int64_t now = fa_db_now_ms();
    if (!postgres->answered)
        return (struct patience){now + FA_POSTGRES_FIRST_MS, now + FA_POSTGRES_FIRST_MS, false};
    return (struct patience){now + postgres->answer_ms, now + FA_POSTGRES_SILENT_MS, false};
}

/* Waits for one of the events and reads what has come. False: the server is given up. */
static bool await_server(fa_store *store, short events, struct patience *patience)
{
    struct fa_postgres *postgres = store->postgres;
    short ready = 0;
    while (ready == 0) {
        bool over = fa_db_now_ms() >= patience->until;
        if (over && patience->over)
            return false;
        patience->over = over;
        ready =
            await_socket(postgres, events,
                         patience->silent < patience->until ? patience->silent : patience->until);
        if (ready == 0 && (over || !postgres->answered || !answers_anybody(store)))
            return false;
        if (postgres->answered)
            patience->silent = fa_db_now_ms() + FA_POSTGRES_SILENT_MS;
    }
    if ((ready & POLLOUT) != 0 && postgres->answered) /* an upload may take its time */
        patience->until = fa_db_now_ms() + postgres->answer_ms;
    return postgres->pq->consumeInput(postgres->connection) != 0;
}

/* ---- answers --------------------------------------------------------------------------------*/
/* Sends all that is queued; the server may answer meanwhile. */
static bool flushed(fa_store *store, struct patience *patience)
{
    int rest;
    while ((rest = store->postgres->pq->flush(store->postgres->connection)) == 1)
        if (!await_server(store, POLLIN | POLLOUT, patience))
            return false;
    return rest == 0;
}

/* The last result of what was sent, or the first that is an error; NULL: none came, or one that nothing of ours
 * asks for, as a copy is. */
static PGresult *await_result(fa_store *store)
{
    struct fa_postgres *postgres = store->postgres;
    const fa_pq *pq = postgres->pq;
    struct patience patience = new_patience(postgres);
    PGresult *kept = NULL;
    bool good = flushed(store, &patience);
    while (good) {
        while (good && pq->isBusy(postgres->connection))
            good = await_server(store, POLLIN, &patience);
        PGresult *next = good ? pq->getResult(postgres->connection) : NULL;
        if (next == NULL)
            break;
        ExecStatusType last = kept != NULL ? pq->resultStatus(kept) : PGRES_COMMAND_OK;
        ExecStatusType status = pq->resultStatus(next);
        good = status != PGRES_COPY_IN && status != PGRES_COPY_OUT && status != PGRES_COPY_BOTH;
        bool better = last == PGRES_COMMAND_OK || last == PGRES_TUPLES_OK;
        pq->clear(better ? kept : next);
        kept = better ? next : kept;
    }
    if (good)
        return kept;
    pq->clear(kept);
    return NULL;
}

int fa_postgres_answer(fa_store *store, int sent, PGresult **ret_result, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    const fa_pq *pq = postgres->pq;
    PGresult *result = sent != 0 ? await_result(store) : NULL;
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

int fa_postgres_not_connected(const fa_store *store, fa_diag *diag)
{
    return fa_fail(diag, FA_EIO, "store %s: the connection was lost", store->path);
}

int fa_postgres_command(fa_store *store, const char *sql, int64_t *ret_value, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    const fa_pq *pq = postgres->pq;
    PGresult *result;
    if (postgres->connection == NULL)
        return fa_postgres_not_connected(store, diag);
    int rc = fa_postgres_answer(store, pq->sendQuery(postgres->connection, sql), &result, diag);
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

/* ---- connecting -----------------------------------------------------------------------------*/
static void drop_notice(void *context, const PGresult *notice)
{
    (void)context, (void)notice;
}

/* Limits of the network first, so that the address may say otherwise; then what must be so. The connection that
 * is begun only holds the notice receiver, since a server may say something at the login already; the reset makes
 * it, host by host, each within connect_timeout. */
int fa_postgres_connect(fa_store *store, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    const fa_pq *pq = postgres->pq;
    char connect_s[16];
    snprintf(connect_s, sizeof connect_s, "%d", FA_POSTGRES_CONNECT_S);
    const char *const keywords[] = {"connect_timeout",     "keepalives_idle",
                                    "keepalives_interval", "keepalives_count",
                                    "tcp_user_timeout",    "fallback_application_name",
                                    "gssencmode",          "dbname",
                                    "client_encoding",     NULL};
    /* Kerberos' library crashes when memory is short: it is asked only where the address says so. */
    const char *const values[] = {connect_s, "30",      "10",          "3",    "60000",
                                  "fa-tune", "disable", postgres->url, "UTF8", NULL};
    postgres->connection = pq->connectStartParams(keywords, values, 1);
    if (postgres->connection == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    pq->setNoticeReceiver(postgres->connection, drop_notice, NULL);
    if (pq->status(postgres->connection) != CONNECTION_BAD)
        pq->reset(postgres->connection);
    if (pq->status(postgres->connection) != CONNECTION_OK)
        return fa_postgres_fail(store, diag, NULL, "no connection");
    pq->setnonblocking(postgres->connection, 1);
    if (pq->serverVersion(postgres->connection) < FA_POSTGRES_OLDEST)
        return fa_fail(diag, FA_ENOTSUP, "store %s: this server is older than PostgreSQL %d",
                       store->path, FA_POSTGRES_OLDEST / 10000);
    char sql[400];
    snprintf(sql, sizeof sql,
             "SET standard_conforming_strings = on; SET client_min_messages = warning; "
             "SET default_transaction_isolation = 'read committed'; "
             "SET statement_timeout = %d; SET lock_timeout = %d; "
             "SET idle_in_transaction_session_timeout = %d;%s",
             FA_POSTGRES_STATEMENT_MS, FA_STORE_BUSY_MS, FA_POSTGRES_IDLE_MS,
             store->read_only ? "SET default_transaction_read_only = on;" : "");
    int rc = fa_postgres_command(store, sql, NULL, diag);
    postgres->answered = rc == 0;
    return rc;
}
