/* SPDX-License-Identifier: Apache-2.0
 *
 * PostgreSQL as a backend: a connection to a server, made, asked and given up, with sentences for its errors; SQL in the
 * server's words, values, prepared statements, transactions; whose tables are there and of which version, and making them.
 *
 * Whatever is asked of the server has an end: a login by connect_timeout, a command by statement_timeout, a connection
 * whose other side is gone by tcp_user_timeout; what a server that hangs never answers, by us. What it says beside its
 * answers goes nowhere: libpq would print it.
 *
 * SQL is written for SQLite, and only what our own statements use is known here; no text from outside is ever
 * translated. A schema of another program or version is left as it was. Whole numbers go in as text, all else as the bytes
 * that it is; everything comes back in binary, so no locale is in the way.
 */
#include "postgres.h"

#include "buf.h"
#include "pool.h"
#include "statements.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the client library ---------------------------------------------------------------------*/
struct fa_pq fa_pq;
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
    *(void **)(void *)&fa_pq.name = dlsym(library, "PQ" #name); \
    if (fa_pq.name == NULL)                                     \
        missing = "PQ" #name;
    FA_PQ_FUNCTIONS(LOAD)
#undef LOAD
}

int fa_pq_load(fa_diag *diag)
{
    pthread_once(&once, load_libpq);
    if (missing != NULL)
        return fa_fail(diag, FA_ENOTSUP,
                       "a store on a PostgreSQL server needs libpq, and %s is not here: install "
                       "Debian's package libpq5, or set FA_TUNE_STORE to a file",
                       missing);
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
        fa_pq.finish(postgres->connection);
    store->lost = true;
    postgres->connection = NULL;
    postgres->answered = false;
}

/* ---- text -----------------------------------------------------------------------------------*/
static char *as_utf8(const char *text, size_t size)
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

/* One line of UTF-8. */
static void quote(const char *text, char ret_line[400])
{
    size_t size = strnlen(text, 399);
    while (size > 0 && isspace((unsigned char)text[size - 1]))
        size--;
    FA_ENDS(fa_free_at) char *clean = as_utf8(text, size);
    for (char *c = clean; c != NULL && *c != 0; c++)
        *c = *c == '\n' || *c == '\t' ? ' ' : *c;
    snprintf(ret_line, 400, "%s", clean != NULL ? clean : "out of memory");
}

/* The sentence of libpq's last error on the connection, which is given up when it is lost. */
static int fail_asking(fa_store *store, fa_diag *diag, const PGresult *result, const char *what)
{
    struct fa_postgres *postgres = store->postgres;
    const char *state = NULL, *text = NULL;
    if (result != NULL) {
        state = fa_pq.resultErrorField(result, PG_DIAG_SQLSTATE);
        text = fa_pq.resultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    }
    char said[400];
    quote(text != NULL ? text : fa_pq.errorMessage(postgres->connection), said);
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
    if (fa_pq.status(postgres->connection) != CONNECTION_OK) {
        fa_postgres_disconnect(store);
        code = FA_EIO;
        advice = "the server cannot be reached, let nobody in, or closed the connection";
    }
    return fa_fail(diag, code, "store %s: %s: %s (PostgreSQL: %s)", store->path, what, advice,
                   said[0] != 0 ? said : "no answer");
}

/* ---- waiting for the server -----------------------------------------------------------------*/
/* Sends what is queued and reads what has come, once there is something of both. False: the time is over, or the
 * connection is. An upload may take its time. */
static bool await_server(struct fa_postgres *postgres, int64_t *until)
{
    const int unsent = fa_pq.flush(postgres->connection);
    struct pollfd socket = {fa_pq.socket(postgres->connection),
                            (short)(unsent != 0 ? POLLIN | POLLOUT : POLLIN), 0};
    const int64_t now = fa_clock_ms(), left = *until - now;
    int rc = unsent < 0 ? 0 : poll(&socket, 1, left > 0 ? (int)left : 0);
    if (rc < 0 && errno == EINTR)
        return true;
    if ((socket.revents & POLLOUT) != 0)
        *until = now + postgres->answer_ms;
    return rc > 0 && fa_pq.consumeInput(postgres->connection) != 0;
}

/* The last result of what was sent, or the first that is an error; NULL: none came, or one that nothing of ours
 * asks for, as a copy is. */
static PGresult *await_result(fa_store *store)
{
    struct fa_postgres *postgres = store->postgres;
    int64_t until =
        fa_clock_ms() + (postgres->answered ? postgres->answer_ms : FA_POSTGRES_FIRST_MS);
    PGresult *kept = NULL;
    bool good = true;
    while (good) {
        while (good &&
               (fa_pq.flush(postgres->connection) == 1 || fa_pq.isBusy(postgres->connection)))
            good = await_server(postgres, &until);
        PGresult *next = good ? fa_pq.getResult(postgres->connection) : NULL;
        if (next == NULL)
            break;
        ExecStatusType last = kept != NULL ? fa_pq.resultStatus(kept) : PGRES_COMMAND_OK;
        ExecStatusType status = fa_pq.resultStatus(next);
        good = status != PGRES_COPY_IN && status != PGRES_COPY_OUT && status != PGRES_COPY_BOTH;
        bool better = last == PGRES_COMMAND_OK || last == PGRES_TUPLES_OK;
        fa_pq.clear(better ? kept : next);
        kept = better ? next : kept;
    }
    if (good)
        return kept;
    fa_pq.clear(kept);
    return NULL;
}

/* 0 and a good result, or a failure with a sentence. `sent`: the result of sending. A connection whose server
 * does not answer is given up, because a late answer could be taken for that of the next command. */
static int take_answer(fa_store *store, int sent, PGresult **ret_result, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    PGresult *result = sent != 0 ? await_result(store) : NULL;
    ExecStatusType status = result != NULL ? fa_pq.resultStatus(result) : PGRES_FATAL_ERROR;
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
        *ret_result = result;
        return 0;
    }
    int rc = fail_asking(store, diag, result, "a command failed");
    if (result == NULL && postgres->connection != NULL) {
        fa_postgres_disconnect(store);
        postgres->hung = true;
    }
    fa_pq.clear(result);
    return rc;
}

static int not_connected(const fa_store *store, fa_diag *diag)
{
    return fa_fail(diag, FA_EIO, "store %s: the connection was lost", store->path);
}

/* As they are written for PostgreSQL; ret_value, which may be NULL, gets the first column of the last one's first row where
 * that is an integer. */
static int run_commands(fa_store *store, const char *sql, int64_t *ret_value, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    PGresult *result;
    if (postgres->connection == NULL)
        return not_connected(store, diag);
    int rc = 0;
    FA_OR_RETURN(take_answer(store, fa_pq.sendQuery(postgres->connection, sql), &result, diag));
    if (ret_value != NULL) { /* text: such a command has no parameters */
        char *end = NULL;
        errno = 0;
        if (fa_pq.ntuples(result) >= 1 && fa_pq.nfields(result) >= 1 &&
            !fa_pq.getisnull(result, 0, 0))
            *ret_value = strtoll(fa_pq.getvalue(result, 0, 0), &end, 10);
        if (end == NULL || *end != 0 || errno != 0)
            rc = fa_fail(diag, FA_ESTORE, "store %s: its answer is not a number", store->path);
    }
    fa_pq.clear(result);
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
static int connect_session(fa_store *store, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    char connect_s[16];
    snprintf(connect_s, sizeof connect_s, "%d", FA_POSTGRES_CONNECT_S);
    const char *const keywords[] = {"connect_timeout",     "keepalives_idle",
                                    "keepalives_interval", "keepalives_count",
                                    "tcp_user_timeout",    "fallback_application_name",
                                    "gssencmode",          "dbname",
                                    "client_encoding",     NULL};
    /* Kerberos' library crashes when memory is short: it is asked only where the address says so. */
    const char *const values[] = {connect_s, "30",      "10",          "3",    "20000",
                                  "fa-tune", "disable", postgres->url, "UTF8", NULL};
    postgres->connection = fa_pq.connectStartParams(keywords, values, 1);
    FA_OR_RETURN(fa_have(postgres->connection != NULL, "a connection", diag));
    fa_pq.setNoticeReceiver(postgres->connection, drop_notice, NULL);
    if (fa_pq.status(postgres->connection) != CONNECTION_BAD)
        fa_pq.reset(postgres->connection);
    if (fa_pq.status(postgres->connection) != CONNECTION_OK)
        return fail_asking(store, diag, NULL, "no connection");
    fa_pq.setnonblocking(postgres->connection, 1);
    if (fa_pq.serverVersion(postgres->connection) < FA_POSTGRES_OLDEST)
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
    int rc = run_commands(store, sql, NULL, diag);
    postgres->answered = rc == 0;
    return rc;
}

/* ---- SQL ------------------------------------------------------------------------------------*/
static const struct {
    const char *sqlite, *postgres;
} words[] = {
    /* The longest of those that begin alike comes first. */
    {"id INTEGER PRIMARY KEY", "id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"},
    {"INTEGER", "bigint"},
    {"REAL", "double precision"},
    {"BLOB", "bytea"},
    {"STRICT", ""},
    {"temp", "pg_temp"},
};

/* A word of the table at `at`, whole: its index, or -1. */
static int find_word(const char *sql, const char *at)
{
    if (at > sql && fa_is_word(at[-1]))
        return -1;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t size = strlen(words[i].sqlite);
        if (strncmp(at, words[i].sqlite, size) == 0 &&
            !(fa_is_word(at[size - 1]) && fa_is_word(at[size])))
            return (int)i;
    }
    return -1;
}

static char *own_sql(const char *sql)
{
    fa_buf out = {0};
    int place = 0;
    bool spoken = false; /* inside a comment for PostgreSQL */
    for (const char *at = sql; *at != 0;) {
        int word = find_word(sql, at);
        if (*at == '\'') {
            const char *end = strchr(at + 1, '\'');
            fa_buf_append(&out, at, (size_t)(end + 1 - at));
            at = end + 1;
        } else if (strncmp(at, "/*!", 3) == 0) {
            spoken = true;
            at += 3;
        } else if (spoken && strncmp(at, "*/", 2) == 0) {
            spoken = false;
            at += 2;
        } else if (*at == '?') {
            char *end;
            long given = strtol(at + 1, &end, 10);
            place = end != at + 1 ? (int)given : place + 1;
            fa_buf_printf(&out, "$%d", place);
            at = end;
        } else if (word >= 0) {
            fa_buf_text(&out, words[word].postgres);
            at += strlen(words[word].sqlite);
        } else {
            fa_buf_append(&out, at++, 1);
        }
    }
    if (out.failed)
        fa_buf_free(&out);
    return out.data;
}

enum { PLACES = 48, NUMBER = 24 };
/* fa_statement's handle. */
struct prepared {
    char name[16];
    int bound; /* how many places have a value */
    const char *values[PLACES];
    int sizes[PLACES];
    int formats[PLACES]; /* 0: text; 1: the bytes as they are */
    char numbers[PLACES][NUMBER];
    char *copies[PLACES];
    PGresult *result; /* after the first step */
    int row;
};

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

/* ---- binding --------------------------------------------------------------------------------*/
static int postgres_bind(fa_statement *statement, int place, const fa_value *value)
{
    struct prepared *prepared = statement->handle;
    int i = place - 1;
    uint64_t bits;
    if (prepared == NULL)
        return FA_EIO;
    if (i < 0 || i >= PLACES)
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
        snprintf(prepared->numbers[i], NUMBER, "%lld", (long long)value->integer);
        return 0;
    case FA_VALUE_REAL:
        memcpy(&bits, &value->real, sizeof bits);
        for (int k = 0; k < 8; k++)
            prepared->numbers[i][k] = (char)(bits >> (56 - 8 * k) & 0xff);
        prepared->sizes[i] = 8;
        prepared->formats[i] = 1;
        return 0;
    case FA_VALUE_TEXT:
    case FA_VALUE_BLOB:
        if (value->size > 2 * FA_STORE_CUBIN_MAX)
            return FA_EINVAL;
        prepared->values[i] = value->bytes;
        prepared->sizes[i] = (int)value->size;
        prepared->formats[i] = 1;
        if (value->kind == FA_VALUE_BLOB)
            return 0;
        prepared->values[i] = prepared->copies[i] = as_utf8(value->bytes, value->size);
        return prepared->copies[i] != NULL ? 0 : FA_ENOMEM;
    case FA_VALUE_OTHER:
    case FA_VALUE_NO_MEMORY:
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

static void postgres_column(fa_statement *statement, int index, fa_value *ret_value)
{
    const struct prepared *prepared = statement->handle;
    fa_value value = {.kind = FA_VALUE_OTHER};
    *ret_value = value;
    if (prepared == NULL || prepared->result == NULL || index >= fa_pq.nfields(prepared->result) ||
        prepared->row >= fa_pq.ntuples(prepared->result))
        return;
    const PGresult *result = prepared->result;
    const char *bytes = fa_pq.getvalue(result, prepared->row, index);
    int size = fa_pq.getlength(result, prepared->row, index);
    Oid type = fa_pq.ftype(result, index);
    if (fa_pq.getisnull(result, prepared->row, index)) {
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

/* ---- statements -----------------------------------------------------------------------------*/
static int postgres_exec(fa_store *store, const char *sql, fa_diag *diag)
{
    FA_ENDS(fa_free_at) char *own = own_sql(sql);
    FA_OR_RETURN(fa_have(own != NULL, "a command", diag));
    return run_commands(store, own, NULL, diag);
}

static int postgres_prepare(fa_store *store, fa_statement *statement, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    FA_ENDS(fa_free_at) struct prepared *prepared = calloc(1, sizeof *prepared);
    FA_ENDS(fa_free_at) char *own = own_sql(statement->sql);
    PGresult *result = NULL;
    int rc = 0;
    if (prepared == NULL || own == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory");
    else if (postgres->connection == NULL)
        rc = not_connected(store, diag);
    if (rc == 0) {
        snprintf(prepared->name, sizeof prepared->name, "fa%d",
                 (int)(statement - store->statement));
        rc = take_answer(store,
                         fa_pq.sendPrepare(postgres->connection, prepared->name, own, 0, NULL),
                         &result, diag);
    }
    FA_OR_RETURN(rc);
    fa_pq.clear(result);
    statement->handle = prepared, prepared = NULL;
    return 0;
}

static int postgres_step(fa_store *store, fa_statement *statement, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    struct prepared *prepared = statement->handle;
    if (prepared == NULL || postgres->connection == NULL)
        return not_connected(store, diag);
    if (prepared->result != NULL) {
        prepared->row++;
    } else {
        PGresult *result;
        FA_OR_RETURN(take_answer(store,
                                 fa_pq.sendQueryPrepared(postgres->connection, prepared->name,
                                                         prepared->bound, prepared->values,
                                                         prepared->sizes, prepared->formats, 1),
                                 &result, diag));
        prepared->result = result;
        prepared->row = 0;
    }
    return prepared->row < fa_pq.ntuples(prepared->result) ? 1 : 0;
}

static void postgres_reset(fa_statement *statement)
{
    struct prepared *prepared = statement->handle;
    fa_pq.clear(prepared->result);
    prepared->result = NULL;
    for (int i = 0; i < PLACES; i++) {
        free(prepared->copies[i]);
        prepared->copies[i] = NULL;
    }
    prepared->bound = 0;
}

/* ---- transactions ---------------------------------------------------------------------------*/
static int postgres_begin(fa_store *store, fa_diag *diag)
{
    return run_commands(store, "BEGIN", NULL, diag);
}

/* A transaction that failed before ends in a rollback even here, which is no success. */
static int postgres_commit(fa_store *store, fa_diag *diag)
{
    const struct fa_postgres *postgres = store->postgres;
    if (postgres->connection != NULL &&
        fa_pq.transactionStatus(postgres->connection) == PQTRANS_INERROR)
        return fa_fail(diag, FA_EIO, "store %s: a command of this change had failed", store->path);
    return run_commands(store, "COMMIT", NULL, diag);
}

static void postgres_rollback(fa_store *store)
{
    struct fa_postgres *postgres = store->postgres;
    if (postgres->connection == NULL ||
        fa_pq.transactionStatus(postgres->connection) == PQTRANS_IDLE)
        return;
    bool conflict = store->conflict;
    if (run_commands(store, "ROLLBACK", NULL, NULL) != 0 && postgres->connection != NULL)
        fa_postgres_disconnect(store);
    store->conflict = conflict;
}

/* ---- locks ----------------------------------------------------------------------------------*/
/* Advisory locks end with their session, which may take the same one twice: so it keeps a list of those that it holds. */
#define LOCK_KEY "(hashtextextended(concat(current_schema(), ' ', CAST(? AS text)), 0)) AS integer)"

/* *ret_had: 1, it is ours now. */
static int try_lock(fa_store *store, const fa_lock *lock, int64_t *ret_had, fa_diag *diag)
{
    return fa_db_find(store, diag, ret_had,
                      lock->shared ? "SELECT CAST(pg_try_advisory_lock_shared" LOCK_KEY
                                   : "SELECT CAST(pg_try_advisory_lock" LOCK_KEY,
                      fa_text(lock->name));
}

static void release(fa_lock *lock)
{
    struct fa_postgres *postgres = lock->store->postgres;
    int64_t had;
    if (lock->pid != getpid())
        return;
    fa_lock **at = &postgres->locks;
    while (*at != lock)
        at = &(*at)->next;
    *at = lock->next;
    if (postgres->connection != NULL && !lock->store->spare.serves)
        fa_db_find(lock->store, NULL, &had,
                   lock->shared ? "SELECT CAST(pg_advisory_unlock_shared" LOCK_KEY
                                : "SELECT CAST(pg_advisory_unlock" LOCK_KEY,
                   fa_text(lock->name));
}

static int postgres_lock(fa_store *store, const char *name, bool shared, fa_lock **ret_lock,
                         fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    int64_t had = 0;
    for (const fa_lock *held = postgres->locks; held != NULL; held = held->next)
        if (strcmp(held->name, name) == 0 && !(held->shared && shared))
            return FA_EBUSY;
    FA_ENDS(fa_free_at) fa_lock *lock = fa_db_lock_new(name, shared, release);
    FA_OR_RETURN(fa_have(lock != NULL, "a lock", diag));
    lock->store = store;
    int rc = try_lock(store, lock, &had, diag);
    if (rc != 0 || had != 1)
        return rc != 0 ? rc : FA_EBUSY;
    lock->next = postgres->locks;
    *ret_lock = postgres->locks = lock, lock = NULL;
    return 0;
}

const fa_backend fa_postgres_backend = FA_BACKEND(postgres);

/* ---- whose tables, of which version ---------------------------------------------------------*/
/* Asked in one command: between two, another process may make the tables. */
static const char whose_sql[] =
    "SELECT CASE WHEN current_schema() IS NULL THEN -1 "
    "WHEN count(*) FILTER (WHERE c.relname = 'fa_tune_store') = 1 THEN 1 "
    "WHEN count(*) > 0 THEN 2 ELSE 0 END "
    "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p')";
enum { NO_SCHEMA = -1, NO_TABLES = 0, OURS = 1, ANOTHERS = 2 };

/* 0: there are no tables yet. A version that is not this library's is refused. */
static int read_version(fa_store *store, int64_t *ret_version, fa_diag *diag)
{
    int64_t whose = NO_SCHEMA;
    *ret_version = 0;
    FA_OR_RETURN(run_commands(store, whose_sql, &whose, diag));
    if (whose == NO_SCHEMA)
        return fa_fail(diag, FA_ESTORE,
                       "store %s: no schema of its search_path is there: create one, or name "
                       "another database",
                       store->path);
    if (whose == ANOTHERS)
        return fa_fail(diag, FA_ESTORE,
                       "store %s: the tables there are another program's: make a database for "
                       "fa-tune (createdb) and name it",
                       store->path);
    if (whose == NO_TABLES)
        return 0;
    int rc =
        run_commands(store,
                     "SELECT CASE WHEN count(*) = 1 AND max(version) > 0 THEN max(version)::bigint "
                     "ELSE -1 END FROM fa_tune_store",
                     ret_version, diag);
    if (rc != 0 || *ret_version == FA_STORE_SCHEMA)
        return rc;
    if (*ret_version < 0)
        return fa_fail(diag, FA_ESTORE, "store %s: its table fa_tune_store does not tell a version",
                       store->path);
    return fa_db_refuse_version(store, *ret_version, "or name another database", diag);
}

/* One process makes the tables: the commit releases the lock, and the version is read while it is held. */
static int make_tables(fa_store *store, fa_diag *diag)
{
    int64_t version = 0;
    char sql[160];
    snprintf(sql, sizeof sql, "SELECT pg_advisory_xact_lock(%d)", FA_STORE_APPLICATION_ID);
    FA_OR_RETURN(run_commands(store, sql, NULL, diag));
    FA_OR_RETURN(read_version(store, &version, diag));
    if (version == FA_STORE_SCHEMA)
        return 0;
    FA_OR_RETURN(fa_db_exec(store, fa_db_schema, diag));
    snprintf(sql, sizeof sql,
             "CREATE TABLE fa_tune_store (version bigint NOT NULL); "
             "INSERT INTO fa_tune_store VALUES (%d)",
             FA_STORE_SCHEMA);
    return run_commands(store, sql, NULL, diag);
}

/* ---- what may be done with them -------------------------------------------------------------*/
static int check_rights(fa_store *store, fa_diag *diag)
{
    int64_t refused = 0;
    if (store->read_only)
        return 0;
    int rc = run_commands(
        store,
        "SELECT CASE WHEN current_setting('transaction_read_only') = 'on' THEN 1 "
        "WHEN NOT coalesce(has_table_privilege(to_regclass('winner'), 'INSERT') "
        "AND has_table_privilege(to_regclass('winner'), 'DELETE'), true) THEN 2 ELSE 0 END",
        &refused, diag);
    if (rc != 0 || refused == 0)
        return rc;
    return fa_fail(diag, FA_EREADONLY, "store %s: %s", store->path,
                   refused == 1 ? "the server takes no changes (a standby?)"
                                : "this user may not change its tables");
}

static int check_contents(fa_store *store, fa_diag *diag)
{
    int64_t version;
    FA_OR_RETURN(read_version(store, &version, diag));
    FA_OR_RETURN(check_rights(store, diag));
    if (version == FA_STORE_SCHEMA)
        return 0;
    if (store->read_only)
        return fa_fail(diag, FA_ENOTFOUND, "store %s is empty", store->path);
    return FA_CHANGED(store, diag, make_tables(store, diag));
}

/* ---- connected --------------------------------------------------------------------------------*/
/* A server that closed the connection has sent its last messages and an end of file, which are still to
 * be read. One that never stops sending is not read to the end. */
void fa_postgres_look(fa_store *store)
{
    enum { LOOKS = 64 };
    struct fa_postgres *postgres = store->postgres;
    struct pollfd socket = {fa_pq.socket(postgres->connection), POLLIN, 0};
    for (int i = 0; i < LOOKS && poll(&socket, 1, 0) > 0; i++)
        if (fa_pq.consumeInput(postgres->connection) == 0)
            break;
    if (fa_pq.status(postgres->connection) != CONNECTION_OK)
        fa_postgres_disconnect(store);
}

int fa_postgres_connect(fa_store *store, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    const int64_t began = fa_clock_ms();
    int64_t had;
    store->entering = true;
    int rc = connect_session(store, diag);
    if (rc == 0)
        rc = check_contents(store, diag);
    store->entering = false;
    const bool first = postgres->asked == 0;
    postgres->asked = fa_clock_ms();
    if (rc != 0) {
        postgres->asked += FA_POSTGRES_ASK_SHARE * (postgres->asked - began);
        fa_postgres_disconnect(store);
        return rc;
    }
    postgres->back = first ? 0 : postgres->asked;
    postgres->served = true;
    postgres->hung = false;
    store->lost = store->spare.noted = false;
    for (const fa_lock *lock = postgres->locks; lock != NULL; lock = lock->next)
        try_lock(store, lock, &had, NULL);
    return 0;
}

bool fa_postgres_is_gone(fa_store *store)
{
    struct fa_postgres *postgres = store->postgres;
    if (store->changing)
        return false;
    const int pause = postgres->locks != NULL ? FA_POSTGRES_HOLDER_MS : FA_POSTGRES_ASK_MS;
    bool due = fa_clock_ms() >= postgres->asked + pause;
    if (store->spare.serves) {
        store->spare.until = due ? 0 : store->spare.until;
        return !due || fa_db_enter(store, NULL) != 0 || store->spare.serves;
    }
    if (postgres->connection != NULL) {
        fa_postgres_look(store);
        due = true; /* a connection that has just ended says nothing of the next one */
    }
    if (postgres->connection == NULL && due)
        fa_postgres_connect(store, NULL);
    return postgres->connection == NULL;
}

bool fa_postgres_restarts(fa_store *store)
{
    static const char age_sql[] = "SELECT CAST(1000 * extract(epoch FROM clock_timestamp() - "
                                  "pg_postmaster_start_time()) AS bigint)";
    struct fa_postgres *postgres = store->postgres;
    int64_t age = 0;
    if (fa_postgres_is_gone(store))
        return !postgres->hung;
    if (store->changing || postgres->locks != NULL)
        return false;
    if (postgres->back == 0 && run_commands(store, age_sql, &age, NULL) == 0)
        postgres->back = fa_clock_ms() - age;
    return fa_clock_ms() < postgres->back + FA_POSTGRES_SETTLE_MS;
}
