/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a store. Of one on a PostgreSQL server: its address, what is said of it (never its password), and the spare file.
 *
 * Workload: hundreds of processes keep a connection each; one that was lost is made anew by the next call. While the
 * server does not answer, the spare file serves in its place, between two changes and never within one.
 */
#include "postgres.h"
#include "sqlite.h"

#include "pool.h"
#include "statements.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- addresses ------------------------------------------------------------------------------*/
static const char *value_of(const PQconninfoOption *options, const char *keyword)
{
    for (; options->keyword != NULL; options++)
        if (strcmp(options->keyword, keyword) == 0)
            return options->val;
    return NULL;
}

/* A password that has an @ or a / in it, not written %40 or %2F, ends up in other parts, which may
 * be shown. */
static bool may_hold_secrets(const char *user, const char *host, const char *port,
                             const char *database)
{
    return (user != NULL && strchr(user, '@') != NULL) ||
           (host != NULL && strchr(host + (host[0] == '@'), '@') != NULL) ||
           (port != NULL && port[strspn(port, "0123456789,")] != 0) ||
           (database != NULL && strchr(database, '@') != NULL);
}

/* What people are shown, put together from the parts that are no secret. */
static int describe(fa_store *store, const PQconninfoOption *options, fa_diag *diag)
{
    const char *user = value_of(options, "user"), *host = value_of(options, "host");
    const char *port = value_of(options, "port"), *database = value_of(options, "dbname");
    if (may_hold_secrets(user, host, port, database))
        return fa_fail(diag, FA_EINVAL,
                       "the store's address postgresql://… is not valid: inside a user name or a "
                       "password write @ as %%40, / as %%2F, : as %%3A and %% as %%25");
    bool local = host != NULL && (host[0] == '/' || host[0] == '@');
    int n = snprintf(store->address, sizeof store->address, "postgresql://%s%s%s%s%s/%s%s%s",
                     user != NULL ? user : "", user != NULL ? "@" : "",
                     host != NULL && !local ? host : "", port != NULL ? ":" : "",
                     port != NULL ? port : "", database != NULL ? database : "",
                     local ? "?host=" : "", local ? host : "");
    if (n < 0 || (size_t)n >= sizeof store->address)
        return fa_fail(diag, FA_EINVAL, "the store's address is too long");
    return 0;
}

static int read_address(fa_store *store, const char *url, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    FA_OR_RETURN(fa_pq_load(diag));
    /* libpq's own sentence about a bad address may repeat its password. */
    PQconninfoOption *options = fa_pq.conninfoParse(url, NULL);
    if (options == NULL)
        return fa_fail(diag, FA_EINVAL,
                       "the store's address postgresql://… is not valid: it reads "
                       "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %%XX for other "
                       "characters than letters and digits");
    postgres->url = strdup(url);
    int rc = postgres->url != NULL ? describe(store, options, diag)
                                   : fa_fail(diag, FA_ENOMEM, "out of memory");
    fa_pq.conninfoFree(options);
    return rc;
}

/* ---- connected, or by the spare file ---------------------------------------------------------*/
/* One that has served before may be in the middle of a restart, which hundreds of clients must not slow down. */
static int connect_server(fa_store *store, fa_diag *diag)
{
    const struct fa_postgres *postgres = store->postgres;
    bool soon = postgres->served && !postgres->hung && !store->spare.noted;
    int64_t until = fa_clock_ms() + (soon ? FA_POSTGRES_RESTART_MS : 0);
    int rc;
    while ((rc = fa_postgres_connect(store, diag)) == FA_EIO && fa_clock_ms() < until)
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    return rc;
}

static int enter_server(fa_store *store, fa_diag *diag);
static void close_server(fa_store *store);

static void use_server(fa_store *store)
{
    store->spare.serves = false;
    store->backend = &fa_postgres_backend;
    store->enter = enter_server;
    store->close = close_server;
    store->path = store->address;
    store->absent = false;
    store->read_only = store->spare.read_only;
}

static void close_spare(fa_store *store)
{
    store->spare.close(store);
    use_server(store);
    store->close(store);
}

static int enter_spare(fa_store *store, fa_diag *diag)
{
    if (store->changing || fa_clock_ms() < store->spare.until)
        return store->spare.enter(store, diag);
    store->spare.close(store);
    use_server(store);
    return enter_server(store, diag);
}

/* The server does not answer, for this reason: from now on the file serves. */
static int use_spare(fa_store *store, const fa_diag *why, fa_diag *diag)
{
    const fa_store_spare *spare = &store->spare.is;
    fa_diag note = {{0}}, failed = {{0}};
    int rc = fa_sqlite_open(store, spare->file, &note, &failed);
    if (rc == FA_EREADONLY && !store->read_only) {
        store->read_only = true;
        rc = fa_sqlite_open(store, spare->file, &note, &failed);
    }
    if (rc != 0) {
        use_server(store);
        return fa_fail(diag, FA_EIO, "%s; nor does the file in its place: %s", why->text,
                       failed.text);
    }
    store->spare.enter = store->enter;
    store->spare.close = store->close;
    store->enter = enter_spare;
    store->close = close_spare;
    store->spare.serves = true;
    store->spare.until = fa_clock_ms() + FA_POSTGRES_RETRY_MS;
    fa_fail(&note, 0,
            "the server does not serve: %s; until it does, results are kept in %s, and `fa-tune "
            "push` brings them there",
            why->text, store->path);
    if (spare->note != NULL && !store->spare.noted)
        spare->note(spare->context, note.text);
    store->spare.noted = true;
    return 0;
}

static int enter_server(fa_store *store, fa_diag *diag)
{
    struct fa_postgres *postgres = store->postgres;
    fa_diag why = {{0}};
    if (postgres->connection != NULL)
        fa_postgres_look(store);
    if (postgres->connection != NULL)
        return 0;
    if (store->changing) /* the transaction was undone: what follows may not be stored alone */
        return fa_fail(diag, FA_EIO, "store %s: the connection was lost in the middle of a change",
                       store->path);
    int rc = connect_server(store, &why);
    if ((rc == FA_EIO || rc == FA_EBUSY) && store->spare.is.file != NULL)
        return use_spare(store, &why, diag);
    return rc != 0 ? fa_fail(diag, rc, "%s", why.text) : 0;
}

static void close_server(fa_store *store)
{
    if (store->postgres == NULL)
        return;
    fa_postgres_disconnect(store);
    free(store->postgres->url);
    free(store->postgres);
    store->postgres = NULL;
}

static int open_server(fa_store *store, const char *url, fa_diag *diag)
{
    store->postgres = calloc(1, sizeof *store->postgres);
    FA_OR_RETURN(fa_have(store->postgres != NULL, "a store", diag));
    store->postgres->answer_ms = FA_POSTGRES_ANSWER_MS;
    store->is_gone = fa_postgres_is_gone;
    store->restarts = fa_postgres_restarts;
    store->spare.read_only = store->read_only;
    use_server(store);
    int rc = read_address(store, url, diag);
    if (rc == 0)
        rc = store->enter(store, diag);
    if (rc != 0)
        store->close(store);
    return rc;
}

/* ---- of either kind --------------------------------------------------------------------------*/
int fa_store_open(const char *path, fa_store_mode mode, const fa_store_spare *spare,
                  fa_store **ret_store, fa_diag *ret_note, fa_diag *diag)
{
    if (ret_note != NULL)
        ret_note->text[0] = 0;
    FA_ENDS(fa_free_at) fa_store *store = calloc(1, sizeof *store);
    FA_OR_RETURN(fa_have(store != NULL, "a store", diag));
    store->pid = getpid();
    store->read_only = mode == FA_STORE_READ_ONLY;
    store->existing = mode == FA_STORE_EXISTING;
    if (spare != NULL)
        store->spare.is = *spare;
    int rc = path != NULL && fa_store_is_address(path)
                 ? open_server(store, path, diag)
                 : fa_sqlite_open(store, path, ret_note, diag);
    if (rc == 0)
        *ret_store = store, store = NULL;
    return rc;
}
