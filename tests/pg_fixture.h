/* SPDX-License-Identifier: Apache-2.0
 *
 * A real PostgreSQL for C tests: one server for a program (tests/postgres.py holds it and ends it
 * with us), and a schema of its own for each test.
 */
#ifndef FA_TESTS_PG_FIXTURE_H
#define FA_TESTS_PG_FIXTURE_H

#include "check.h"

#include "postgres.h"
#include "statements.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PG_PASSWORD "s3cret-w\xc3\xb6rd" /* tests/postgres.py's */
#define PG_PASSWORD_CODED "s3cret-w%C3%B6rd"

static struct {
    FILE *in, *out;    /* of its holder */
    char host[200];    /* folder of its socket */
    char missing[400]; /* why there is no server; "": there is one */
    bool broken;       /* there ought to be one */
    int schemas;
} pg;

/* One line, without its end. */
static inline bool pg_line(char *ret_line, size_t size)
{
    if (pg.out == NULL || fgets(ret_line, (int)size, pg.out) == NULL)
        return false;
    ret_line[strcspn(ret_line, "\n")] = 0;
    return true;
}

static inline void pg_spawn(int in[2], int out[2])
{
    const char *python = getenv("FA_TEST_PYTHON");
    char script[600];
    snprintf(script, sizeof script, "%s/tests/postgres.py", getenv("FA_TEST_SOURCE"));
    if (fork() == 0) {
        setsid(); /* who kills the test's group leaves it to clean up */
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        execl(python, python, script, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    pg.in = fdopen(in[1], "w");
    pg.out = fdopen(out[0], "r");
}

/* Starts the server once. False: pg.missing says why there is none. */
static inline bool pg_ready(void)
{
    char line[500] = "";
    int in[2], out[2];
    if (pg.host[0] != 0 || pg.missing[0] != 0)
        return pg.host[0] != 0;
    signal(SIGPIPE, SIG_IGN);
    if (getenv("FA_TEST_SOURCE") != NULL && pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0)
        pg_spawn(in, out);
    if (pg_line(line, sizeof line) && strncmp(line, "ready ", 6) == 0)
        snprintf(pg.host, sizeof pg.host, "%.199s", line + 6);
    else
        snprintf(pg.missing, sizeof pg.missing, "%.399s",
                 line[0] != 0 ? line + strcspn(line, " ") : "tests/postgres.py did not start");
    pg.broken = strncmp(line, "ready ", 6) != 0 && strncmp(line, "skip ", 5) != 0;
    return pg.host[0] != 0;
}

/* crash, start, stop, go, schema N, or sql COMMAND. */
static inline bool pg_tell(const char *words)
{
    char line[500];
    fprintf(pg.in, "%s\n", words);
    fflush(pg.in);
    return pg_line(line, sizeof line) && strcmp(line, "ok") == 0;
}

/* The address of a schema. */
static inline void pg_address(char *ret_url, size_t size, const char *user, const char *password,
                              const char *schema)
{
    char host[400];
    size_t n = 0;
    for (const char *c = pg.host; *c != 0 && n + 4 < sizeof host; c++)
        n += (size_t)snprintf(host + n, sizeof host - n, *c == '/' ? "%%2F" : "%c", *c);
    host[n] = 0;
    snprintf(ret_url, size, "postgresql://%s:%s@/fleet?host=%s&options=-csearch_path%%3D%s", user,
             password, host, schema);
}

/* A new schema with nothing in it. */
static inline bool pg_new_schema(char *ret_url, size_t size)
{
    char words[80], schema[24];
    snprintf(schema, sizeof schema, "test_%d", ++pg.schemas);
    snprintf(words, sizeof words, "schema %d", pg.schemas);
    pg_address(ret_url, size, "fa", PG_PASSWORD_CODED, schema);
    return pg_tell(words);
}

/* Runs PostgreSQL's own SQL there, behind the store's back; the number of rows changed, or -1. */
static inline long pg_sql(const char *url, const char *sql)
{
    const char *const keywords[] = {"dbname", NULL};
    const char *const values[] = {url, NULL};
    if (fa_pq_load(NULL) != 0)
        return -1;
    PGconn *connection = fa_pq.connectStartParams(keywords, values, 1);
    fa_pq.reset(connection);
    PGresult *result = NULL;
    char *(*changed)(PGresult *);
    *(void **)(void *)&changed = dlsym(dlopen("libpq.so.5", RTLD_NOW), "PQcmdTuples");
    long rows = -1;
    if (fa_pq.status(connection) == CONNECTION_OK && fa_pq.sendQuery(connection, sql) != 0)
        result = fa_pq.getResult(connection);
    ExecStatusType status = fa_pq.resultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
        rows = strtol(changed(result), NULL, 10);
    else
        printf("# %s: %s", sql, fa_pq.errorMessage(connection));
    fa_pq.clear(result);
    fa_pq.finish(connection);
    return rows;
}

/* Neither PG_PASSWORD nor any of those that tests of addresses use. */
static inline bool tells_no_password(const char *text)
{
    return strstr(text, "s3cret") == NULL && strstr(text, "w0rd") == NULL &&
           strstr(text, "w\xc3") == NULL;
}

/* In the place of a test when there is no server, or no schema for it. */
static inline void pg_without(void)
{
    if (pg.broken || pg.missing[0] == 0) {
        printf("# no server: %s\n", pg.missing);
        check_state.failed = true;
        return;
    }
    SKIP(pg.missing);
}

#endif
