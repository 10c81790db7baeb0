/* SPDX-License-Identifier: Apache-2.0
 *
 * The expression engine. See expr.h; the only file of this room that knows SQLite.
 */
#include "expr.h"

#include "buf.h"
#include "error.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEPTH_MAX = 64,          /* nested parentheses, and of SQLite's expression tree */
    STEPS_BETWEEN = 10000,   /* virtual machine steps between two looks at the budget */
    STEPS_BUDGET = 50000000, /* about a second; a space of 20,000 points needs half of it */
    SQL_MAX = 256 * 1024
};

/* What the authorizer lets through. */
enum mode {
    MODE_SETUP, /* our own statements */
    MODE_CHECK, /* one expression: reads of `names`, arithmetic, the one SELECT around it */
    MODE_RUN    /* checked expressions: arithmetic and SELECTs, no table at all */
};

struct fa_expr {
    sqlite3 *db;
    enum mode mode;
    int selects; /* SELECTs seen in this check */
    int64_t steps_left;
    const char *const *name;
    int name_count;
    uint64_t uses; /* names read in this check */
    const char *denied_function;
    char denied[64];
};

static const char *const functions[] = {"min", "max", "abs", "iif", "ifnull", "coalesce", "nullif"};

static int authorize_function(fa_expr *engine, const char *name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (name != NULL && sqlite3_stricmp(name, functions[i]) == 0)
            return SQLITE_OK;
    sqlite3_snprintf((int)sizeof engine->denied, engine->denied, "%s", name != NULL ? name : "?");
    engine->denied_function = engine->denied;
    return SQLITE_DENY;
}

static int authorize_read(fa_expr *engine, const char *table, const char *column)
{
    if (column == NULL || column[0] == 0) /* a relation is named, no column of it read */
        return SQLITE_OK;
    if (engine->mode != MODE_CHECK || table == NULL || strcmp(table, "names") != 0)
        return SQLITE_DENY;
    for (int i = 0; i < engine->name_count; i++) {
        if (sqlite3_stricmp(column, engine->name[i]) == 0) {
            engine->uses |= (uint64_t)1 << i;
            return SQLITE_OK;
        }
    }
    return SQLITE_DENY; /* rowid */
}

static int authorize(void *context, int action, const char *first, const char *second,
                     const char *database, const char *trigger)
{
    fa_expr *engine = context;
    (void)database;
    (void)trigger;
    if (engine->mode == MODE_SETUP)
        return SQLITE_OK;
    if (action == SQLITE_SELECT)
        return engine->mode == MODE_RUN || engine->selects++ == 0 ? SQLITE_OK : SQLITE_DENY;
    if (action == SQLITE_FUNCTION)
        return authorize_function(engine, second);
    if (action == SQLITE_READ)
        return authorize_read(engine, first, second);
    return SQLITE_DENY;
}

static int count_steps(void *context)
{
    fa_expr *engine = context;
    engine->steps_left -= STEPS_BETWEEN;
    return engine->steps_left < 0;
}

/* With one argument SQLite's min and max are aggregates, which would fold the space into a row. */
static void refuse_aggregate(sqlite3_context *context, int count, sqlite3_value **value)
{
    (void)count;
    (void)value;
    sqlite3_result_error(context, "min() and max() need two values or more", -1);
}

static int configure(fa_expr *engine)
{
    static const int options[][2] = {{SQLITE_DBCONFIG_DEFENSIVE, 1},
                                     {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                                     {SQLITE_DBCONFIG_DQS_DML, 0},
                                     {SQLITE_DBCONFIG_DQS_DDL, 0},
                                     {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
                                     {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                                     {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0}};
    static const int limits[][2] = {{SQLITE_LIMIT_LENGTH, SQL_MAX},
                                    {SQLITE_LIMIT_SQL_LENGTH, SQL_MAX},
                                    {SQLITE_LIMIT_COLUMN, 2 * FA_EXPR_COLUMNS_MAX},
                                    {SQLITE_LIMIT_EXPR_DEPTH, DEPTH_MAX},
                                    {SQLITE_LIMIT_COMPOUND_SELECT, 64},
                                    {SQLITE_LIMIT_VDBE_OP, 250000},
                                    {SQLITE_LIMIT_FUNCTION_ARG, 16},
                                    {SQLITE_LIMIT_ATTACHED, 0},
                                    {SQLITE_LIMIT_VARIABLE_NUMBER, 0},
                                    {SQLITE_LIMIT_TRIGGER_DEPTH, 0},
                                    {SQLITE_LIMIT_WORKER_THREADS, 0}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        sqlite3_db_config(engine->db, options[i][0], options[i][1], NULL);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        sqlite3_limit(engine->db, limits[i][0], limits[i][1]);
    static const char *const folding[] = {"min", "max"};
    for (size_t i = 0; i < sizeof folding / sizeof *folding; i++)
        if (sqlite3_create_function(engine->db, folding[i], 1, SQLITE_UTF8, NULL, refuse_aggregate,
                                    NULL, NULL) != SQLITE_OK)
            return SQLITE_ERROR;
    sqlite3_progress_handler(engine->db, STEPS_BETWEEN, count_steps, engine);
    engine->steps_left = STEPS_BUDGET;
    /* Nothing of a query may ever spill into a file. */
    if (sqlite3_exec(engine->db, "PRAGMA temp_store=MEMORY", NULL, NULL, NULL) != SQLITE_OK)
        return SQLITE_ERROR;
    return sqlite3_set_authorizer(engine->db, authorize, engine);
}

int fa_expr_open(fa_expr **ret_engine, fa_diag *diag)
{
    fa_expr *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return fa_fail(diag, FA_ENOMEM, "expression engine: out of memory");
    int rc = sqlite3_open_v2(":memory:", &engine->db,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MEMORY |
                                 SQLITE_OPEN_FULLMUTEX,
                             NULL);
    if (rc == SQLITE_OK)
        rc = configure(engine);
    if (rc != SQLITE_OK) {
        int code = fa_fail(diag, FA_ENOMEM,
                           "expression engine: SQLite %s cannot open a database "
                           "in memory: %s",
                           sqlite3_libversion(), sqlite3_errstr(rc));
        fa_expr_close(&engine);
        return code;
    }
    *ret_engine = engine;
    return 0;
}

void fa_expr_close(fa_expr **engine)
{
    if (engine == NULL || *engine == NULL)
        return;
    sqlite3_close((*engine)->db);
    free(*engine);
    *engine = NULL;
}

int fa_expr_names(fa_expr *engine, const char *const *names, int count, fa_diag *diag)
{
    fa_buf sql = {0};
    fa_buf_text(&sql, "DROP TABLE IF EXISTS names; CREATE TABLE names(");
    for (int i = 0; i < count; i++)
        fa_buf_printf(&sql, "%s\"%s\" INT DEFAULT 1", i == 0 ? "" : ",", names[i]);
    fa_buf_text(&sql, "); INSERT INTO names DEFAULT VALUES");
    int rc = sql.failed ? SQLITE_NOMEM : count > FA_EXPR_NAMES_MAX ? SQLITE_TOOBIG : SQLITE_OK;
    sqlite3_mutex_enter(sqlite3_db_mutex(engine->db));
    if (rc == SQLITE_OK) {
        engine->mode = MODE_SETUP;
        engine->steps_left = STEPS_BUDGET;
        rc = sqlite3_exec(engine->db, sql.data, NULL, NULL, NULL);
    }
    engine->name = names;
    engine->name_count = rc == SQLITE_OK ? count : 0;
    sqlite3_mutex_leave(sqlite3_db_mutex(engine->db));
    fa_buf_free(&sql);
    if (rc == SQLITE_OK)
        return 0;
    return fa_fail(diag, rc == SQLITE_NOMEM ? FA_ENOMEM : FA_EMANIFEST,
                   "cannot declare %d names: %s", count, sqlite3_errstr(rc));
}

/* The text is a balanced piece over the alphabet of arithmetic: it cannot leave the parentheses
 * that it is put into, nor start a string, a comment, a parameter or another statement. */
static int check_text(const char *text, fa_diag *diag)
{
    size_t size = strlen(text);
    int depth = 0;
    if (size == 0 || size > FA_EXPR_TEXT_MAX)
        return fa_fail(diag, FA_EMANIFEST, "is %zu bytes long: use 1 to %d", size,
                       FA_EXPR_TEXT_MAX);
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        bool word = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!word && strchr("_ \t\r\n+-*/%()<>=!,&|~", c) == NULL)
            return fa_fail(diag, FA_EMANIFEST, "holds %s%c%s, which no integer expression needs",
                           c < 0x80 ? "'" : "a byte beyond ASCII (", c < 0x80 ? (char)c : '?',
                           c < 0x80 ? "'" : ")");
        if ((c == '-' && text[i + 1] == '-') || (c == '/' && text[i + 1] == '*'))
            return fa_fail(diag, FA_EMANIFEST, "holds a comment: write \"- -\" for two signs");
        if (c == '(' && ++depth > DEPTH_MAX)
            return fa_fail(diag, FA_EMANIFEST, "is nested deeper than %d parentheses", DEPTH_MAX);
        if (c == ')' && --depth < 0)
            return fa_fail(diag, FA_EMANIFEST, "closes a parenthesis that it did not open");
    }
    if (depth != 0)
        return fa_fail(diag, FA_EMANIFEST, "leaves %d parentheses open", depth);
    return 0;
}

/* SQLite's message about an expression, in the words of a manifest. */
static int explain(const fa_expr *engine, const char *message, fa_diag *diag)
{
    static const char column[] = "no such column: ", function[] = "no such function: ";
    static const char hidden[] = "access to names."; /* rowid */
    if (engine->denied_function != NULL)
        return fa_fail(diag, FA_EMANIFEST,
                       "calls %s(), which is not allowed: use min, max, abs or iif",
                       engine->denied_function);
    if (strncmp(message, column, sizeof column - 1) == 0)
        return fa_fail(diag, FA_EMANIFEST, "uses the unknown name %s", message + sizeof column - 1);
    if (strncmp(message, function, sizeof function - 1) == 0)
        return fa_fail(diag, FA_EMANIFEST, "calls %s(), which is unknown: use min, max, abs or iif",
                       message + sizeof function - 1);
    if (strncmp(message, hidden, sizeof hidden - 1) == 0)
        return fa_fail(diag, FA_EMANIFEST, "uses the unknown name %.*s",
                       (int)strcspn(message + sizeof hidden - 1, " "), message + sizeof hidden - 1);
    if (engine->selects > 1 || strncmp(message, "not authorized", 14) == 0)
        return fa_fail(diag, FA_EMANIFEST, "is not plain arithmetic: subqueries are not allowed");
    if (engine->steps_left < 0)
        return fa_fail(diag, FA_EMANIFEST, "takes more than %d steps to evaluate", STEPS_BUDGET);
    return fa_fail(diag, FA_EMANIFEST, "cannot be evaluated: %s", message);
}

static int check_locked(fa_expr *engine, const char *sql, uint64_t *ret_uses, fa_diag *diag)
{
    sqlite3_stmt *statement = NULL;
    const char *tail = "";
    engine->mode = MODE_CHECK;
    engine->selects = 0;
    engine->uses = 0;
    engine->denied_function = NULL;
    engine->steps_left = STEPS_BUDGET;
    int rc = sqlite3_prepare_v2(engine->db, sql, -1, &statement, &tail), code = 0;
    if (rc == SQLITE_OK && (sqlite3_column_count(statement) != 1 || tail[0] != 0))
        code = fa_fail(diag, FA_EMANIFEST, "is more than one expression");
    else if (rc == SQLITE_OK)
        rc = sqlite3_step(statement); /* one row of ones: finds what only shows when it runs */
    if (code == 0 && rc != SQLITE_ROW)
        code = rc == SQLITE_NOMEM ? fa_fail(diag, FA_ENOMEM, "out of memory")
                                  : explain(engine, sqlite3_errmsg(engine->db), diag);
    if (code == 0)
        *ret_uses = engine->uses;
    sqlite3_finalize(statement);
    return code;
}

int fa_expr_check(fa_expr *engine, const char *text, uint64_t *ret_uses, fa_diag *diag)
{
    int rc = check_text(text, diag);
    if (rc != 0)
        return rc;
    char sql[FA_EXPR_TEXT_MAX + 64];
    sqlite3_snprintf((int)sizeof sql, sql, "SELECT (%s) FROM names", text);
    sqlite3_mutex_enter(sqlite3_db_mutex(engine->db));
    rc = check_locked(engine, sql, ret_uses, diag);
    sqlite3_mutex_leave(sqlite3_db_mutex(engine->db));
    return rc;
}

const char *fa_expr_fault(fa_expr_value value)
{
    static const char *const faults[] = {
        [FA_EXPR_INTEGER] = NULL,
        [FA_EXPR_NULL] = "has no value (it divides by zero, or a CASE has no ELSE)",
        [FA_EXPR_REAL] = "is a fraction or beyond 64 bits",
        [FA_EXPR_TEXT] = "is a text"};
    return faults[value.kind];
}

static fa_expr_value column_value(sqlite3_stmt *statement, int column)
{
    switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
        return (fa_expr_value){FA_EXPR_INTEGER, sqlite3_column_int64(statement, column)};
    case SQLITE_NULL:
        return (fa_expr_value){FA_EXPR_NULL, 0};
    case SQLITE_FLOAT:
        return (fa_expr_value){FA_EXPR_REAL, 0};
    default:
        return (fa_expr_value){FA_EXPR_TEXT, 0};
    }
}

static int run_locked(fa_expr *engine, const char *sql, fa_expr_row *row, void *context,
                      fa_diag *diag)
{
    sqlite3_stmt *statement = NULL;
    engine->mode = MODE_RUN;
    engine->selects = 0;
    engine->denied_function = NULL;
    engine->steps_left = STEPS_BUDGET;
    int rc = sqlite3_prepare_v2(engine->db, sql, -1, &statement, NULL), code = 0;
    int count = rc == SQLITE_OK ? sqlite3_column_count(statement) : 0;
    fa_expr_value value[FA_EXPR_COLUMNS_MAX];
    if (count > FA_EXPR_COLUMNS_MAX)
        code = fa_fail(diag, FA_EMANIFEST, "has %d expressions: at most %d", count,
                       FA_EXPR_COLUMNS_MAX);
    while (code == 0 && rc != SQLITE_DONE) {
        rc = rc == SQLITE_OK || rc == SQLITE_ROW ? sqlite3_step(statement) : rc;
        if (rc == SQLITE_ROW) {
            for (int i = 0; i < count; i++)
                value[i] = column_value(statement, i);
            code = row(context, value, count);
        } else if (rc != SQLITE_DONE) {
            code = rc == SQLITE_NOMEM ? fa_fail(diag, FA_ENOMEM, "out of memory")
                                      : explain(engine, sqlite3_errmsg(engine->db), diag);
        }
    }
    sqlite3_finalize(statement);
    return code;
}

int fa_expr_run(fa_expr *engine, const char *sql, fa_expr_row *row, void *context, fa_diag *diag)
{
    sqlite3_mutex_enter(sqlite3_db_mutex(engine->db));
    int rc = run_locked(engine, sql, row, context, diag);
    sqlite3_mutex_leave(sqlite3_db_mutex(engine->db));
    return rc;
}
