/* SPDX-License-Identifier: Apache-2.0
 *
 * A store on a PostgreSQL server, where it differs from a file: addresses and their passwords,
 * whose tables these are, rights, and a server that dies or hangs.
 */
#define DB_ON_POSTGRES
#include "db_fixture.h"

static unsigned char bytes[DB_CUBIN_SIZE];

static int open_at(const char *url, fa_store_mode mode)
{
    fa_store *store = NULL;
    strcpy(diag.text, "");
    int rc = fa_store_open(url, mode, &store, &note, &diag);
    fa_store_close(&store);
    return rc;
}

static bool tells_no_password(const char *text)
{
    return strstr(text, "s3cret") == NULL && strstr(text, "w0rd") == NULL &&
           strstr(text, "w\xc3") == NULL;
}

/* ---- addresses ------------------------------------------------------------------------------*/
static void a_path_that_is_shown_has_no_password(void)
{
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    CHECK(strstr(db_path, "s3cret") != NULL && tells_no_password(fa_store_path(store)));
    CHECK_HAS(fa_store_path(store), "postgresql://fa@/fleet?host=/");
    fa_scope scope = db_scope(1);
    fa_winner_record winner;
    CHECK_INT(fa_store_winner_get(store, &scope, &winner, NULL, &diag), FA_ENOTFOUND);
    CHECK(tells_no_password(diag.text));
    fa_store_close(&store);
}

static void an_address_that_does_not_work_is_refused_without_its_password(void)
{
    static const struct {
        const char *url;
        int code;
    } table[] = {
        {"postgresql://fa:s3cret-w%ZZ0rd@/fleet", FA_EINVAL},
        {"postgresql://fa:s3cret@w0rd@h/fleet", FA_EINVAL},
        {"postgresql://fa:s3cret/w0rd@h/fleet", FA_EINVAL},
        {"postgresql://fa@corp:s3cret-w0rd@h/fleet", FA_EINVAL},
        {"postgresql://fa:s3cret-w0rd@h/fleet?nonsense=s3cret", FA_EINVAL},
        {"postgresql://fa:s3cret-w0rd@[::1/fleet", FA_EINVAL},
        {"postgres://fa:s3cret-w0rd@/fleet?host=/nowhere-at-all", FA_EIO},
        {"postgresql://fa:s3cret-w0rd@127.0.0.1:1/fleet", FA_EIO},
        {"postgresql://fa@127.0.0.1:1/fleet?password=s3cret-w0rd", FA_EIO},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int rc = open_at(table[i].url, FA_STORE_READ_WRITE);
        if (rc != table[i].code || !tells_no_password(diag.text))
            printf("# %s: %s\n", table[i].url, diag.text);
        CHECK_INT(rc, table[i].code);
        CHECK(tells_no_password(diag.text) && diag.text[0] != 0);
    }
    char url[DB_PATH_MAX];
    pg_address(url, sizeof url, "fa", "s3cret-but-wrong", "test_1");
    CHECK(open_at(url, FA_STORE_READ_WRITE) < 0);
    CHECK_HAS(diag.text, "authentication failed");
    CHECK(tells_no_password(diag.text));
}

/* ---- whose tables ---------------------------------------------------------------------------*/
static void an_empty_schema_becomes_a_store_when_it_is_opened_for_writing(void)
{
    CHECK_INT(open_at(db_path, FA_STORE_READ_ONLY), FA_ENOTFOUND);
    CHECK_INT(open_at(db_path, FA_STORE_READ_WRITE), 0);
    CHECK_INT(open_at(db_path, FA_STORE_READ_ONLY), 0);
    CHECK_INT(open_at(db_path, FA_STORE_READ_WRITE), 0);
    CHECK_INT(pg_sql(db_path, "DROP TABLE fa_tune_store"), 0);
    CHECK_INT(open_at(db_path, FA_STORE_READ_WRITE), FA_ESTORE); /* no word that they are ours */
}

static void a_schema_of_another_program_is_refused_and_left_as_it_was(void)
{
    CHECK_INT(pg_sql(db_path, "CREATE TABLE aunts (name text)"), 0);
    for (int mode = 0; mode < 2; mode++) {
        CHECK_INT(open_at(db_path, (fa_store_mode)mode), FA_ESTORE);
        CHECK_HAS(diag.text, "another program");
    }
    CHECK_INT(pg_sql(db_path, "SELECT relname FROM pg_class WHERE relnamespace = "
                              "to_regnamespace(current_schema())"),
              1);
}

static void a_schema_of_a_newer_version_is_refused_and_left_as_it_was(void)
{
    CHECK_INT(open_at(db_path, FA_STORE_READ_WRITE), 0);
    CHECK(db_tamper("UPDATE fa_tune_store SET version = 1000"));
    for (int mode = 0; mode < 2; mode++) {
        CHECK_INT(open_at(db_path, (fa_store_mode)mode), FA_EVERSION);
        CHECK_HAS(diag.text, "version 1000");
    }
    CHECK(db_tamper("UPDATE fa_tune_store SET version = version WHERE version = 1000"));
    CHECK(db_tamper("UPDATE fa_tune_store SET version = -3"));
    CHECK_INT(open_at(db_path, FA_STORE_READ_WRITE), FA_ESTORE);
    CHECK(db_tamper("DELETE FROM fa_tune_store"));
    CHECK_INT(open_at(db_path, FA_STORE_READ_WRITE), FA_ESTORE);
}

static void a_schema_of_an_older_version_is_brought_up_to_date_or_left_as_it_was(void)
{
    enum { NOW = FA_STORE_SCHEMA, LATER = NOW + 2 };
    char *sql = fa_postgres_sql(fa_db_schema_steps[0]);
    CHECK(sql != NULL);
    CHECK(pg_sql(db_path, sql) >= 0);
    free(sql);
    CHECK(pg_sql(db_path, "CREATE TABLE fa_tune_store AS SELECT 1::bigint AS version") >= 0);
    CHECK_INT(open_at(db_path, FA_STORE_READ_ONLY), FA_EREADONLY);
    CHECK_HAS(diag.text, "older version 1");
    CHECK(fill_store(2));
    const char *steps[LATER], *broken[LATER];
    memcpy(steps, fa_db_schema_steps, sizeof *steps * NOW);
    steps[NOW] = "ALTER TABLE cubin ADD COLUMN note TEXT;";
    steps[NOW + 1] = "CREATE TABLE extra (id INTEGER PRIMARY KEY) STRICT;";
    memcpy(broken, steps, sizeof broken);
    broken[NOW + 1] = "CREATE TABLE cubin (id INTEGER PRIMARY KEY) STRICT;";
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    CHECK(fa_postgres_migrate(store, broken, LATER, &diag) < 0); /* undone with its first step */
    CHECK(db_winner_is(store, 2, 2, &diag));
    CHECK_OK(fa_postgres_migrate(store, steps, LATER, &diag), diag);
    CHECK_OK(fa_postgres_migrate(store, steps, LATER, &diag), diag); /* nothing to do */
    CHECK(db_winner_is(store, 2, 2, &diag));
    fa_store_close(&store);
    CHECK_INT(open_at(db_path, FA_STORE_READ_WRITE), FA_EVERSION);
}

static void a_user_without_rights_reads_and_writes_nothing(void)
{
    char url[DB_PATH_MAX], schema[24], sql[300];
    CHECK(fill_store(1));
    snprintf(schema, sizeof schema, "test_%d", pg.schemas);
    snprintf(sql, sizeof sql,
             "CREATE ROLE reader LOGIN PASSWORD '" PG_PASSWORD "'; GRANT USAGE ON SCHEMA %s TO "
             "reader; GRANT SELECT ON ALL TABLES IN SCHEMA %s TO reader",
             schema, schema);
    CHECK(pg_sql(db_path, sql) >= 0);
    pg_address(url, sizeof url, "reader", PG_PASSWORD_CODED, schema);
    CHECK_INT(open_at(url, FA_STORE_READ_WRITE), FA_EREADONLY);
    CHECK_HAS(diag.text, "may not change");
    fa_store *store = NULL;
    CHECK_OK(fa_store_open(url, FA_STORE_READ_ONLY, &store, NULL, &diag), diag);
    CHECK(fa_store_is_read_only(store));
    CHECK(db_winner_is(store, 1, 1, &diag));
    CHECK_INT(db_put_winner(store, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag), FA_EREADONLY);
    CHECK_INT(fa_db_exec(store, "DELETE FROM winner", &diag), FA_EREADONLY); /* the session, too */
    fa_store_close(&store);
    pg_address(url, sizeof url, "fa", PG_PASSWORD_CODED, "no_such_schema");
    CHECK_INT(open_at(url, FA_STORE_READ_WRITE), FA_ESTORE);
    CHECK_HAS(diag.text, "search_path");
}

static void columns_of_another_type_are_refused(void)
{
    fa_store *store = db_open(&diag);
    fa_scope scope = db_scope(1);
    fa_winner_record winner;
    CHECK(store != NULL);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    fa_store_close(&store);
    CHECK_INT(pg_sql(db_path, "ALTER TABLE winner ALTER COLUMN median_us TYPE numeric, "
                              "ALTER COLUMN grid_x TYPE text"),
              0);
    CHECK((store = db_open(&diag)) != NULL);
    CHECK_INT(fa_store_winner_get(store, &scope, &winner, NULL, &diag), FA_ECORRUPT);
    fa_store_close(&store);
    CHECK_INT(pg_sql(db_path, "ALTER TABLE winner DROP COLUMN median_us"), 0);
    CHECK((store = db_open(&diag)) != NULL);
    CHECK_INT(fa_store_winner_get(store, &scope, &winner, NULL, &diag), FA_ECORRUPT);
    CHECK_HAS(diag.text, "tables are not as they should be");
    fa_store_close(&store);
}

/* ---- what the server says -------------------------------------------------------------------*/
static void the_servers_errors_become_codes(void)
{
    static const struct {
        const char *state;
        int code;
    } table[] = {
        {"53100", FA_EFULL},    {"53300", FA_EBUSY},     {"40001", FA_EBUSY},
        {"40P01", FA_EBUSY},    {"25006", FA_EREADONLY}, {"42501", FA_EREADONLY},
        {"42P01", FA_ECORRUPT}, {"23502", FA_ECORRUPT},  {"22003", FA_EINVAL},
        {"XX001", FA_ECORRUPT}, {"58030", FA_EIO},
    };
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char sql[200];
        snprintf(sql, sizeof sql,
                 "DO $$ BEGIN RAISE EXCEPTION 'so it is' USING ERRCODE = '%s'; END $$",
                 table[i].state);
        CHECK_INT(fa_db_exec(store, sql, &diag), table[i].code);
        CHECK_HAS(diag.text, "so it is");
    }
    CHECK_INT(fa_db_exec(store, "SET statement_timeout = 20; SELECT pg_sleep(100)", &diag),
              FA_EBUSY);
    CHECK_OK(fa_db_exec(store, "SET statement_timeout = 0", &diag), diag);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    fa_store_close(&store);
}

/* As a full disk behaves: in the middle of what is stored together. */
static void a_full_disk_loses_nothing_that_was_stored(void)
{
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(pg_sql(db_path,
                 "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                 "RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$; "
                 "CREATE TRIGGER t BEFORE INSERT ON winner EXECUTE FUNCTION full_disk()") >= 0);
    CHECK_INT(db_put_winner(store, 1, 2, FA_ORIGIN_MEASURED, NULL, &diag), FA_EFULL);
    CHECK_HAS(diag.text, "no space is left");
    CHECK(db_winner_is(store, 1, 1, &diag));
    fa_cubin_record cubin = db_cubin(2, bytes), got;
    CHECK_INT(fa_store_cubin_get(store, cubin.key, &got, &diag), FA_ENOTFOUND);
    CHECK(pg_sql(db_path, "DROP TRIGGER t ON winner") >= 0);
    CHECK_OK(db_put_winner(store, 1, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_winner_is(store, 1, 2, &diag));
    fa_store_close(&store);
}

static int tries;

static const char conflict_sql[] =
    "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$";

static int conflict_twice(fa_store *store, void *context, fa_diag *d)
{
    (void)context;
    return ++tries > 2 ? 0 : fa_db_exec(store, conflict_sql, d);
}

static int batch_conflict(void *context, fa_diag *d)
{
    tries++;
    return fa_db_exec(context, conflict_sql, d);
}

static void a_change_that_met_anothers_is_made_again_but_not_a_callers_batch(void)
{
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    tries = 0;
    CHECK_OK(fa_db_change(store, conflict_twice, NULL, &diag), diag);
    CHECK_INT(tries, 3);
    tries = 0;
    CHECK_INT(fa_store_batch(store, batch_conflict, store, &diag), FA_EBUSY);
    CHECK_INT(tries, 1);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    fa_store_close(&store);
}

static void who_waits_for_a_lock_for_too_long_is_told(void)
{
    fa_store *store = db_open(&diag), *other = db_open(&diag);
    CHECK(store != NULL && other != NULL);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK_OK(fa_db_exec(other, "BEGIN; LOCK TABLE winner IN EXCLUSIVE MODE", &diag), diag);
    CHECK_OK(fa_db_exec(store, "SET lock_timeout = 20", &diag), diag);
    CHECK_INT(db_put_winner(store, 1, 2, FA_ORIGIN_MEASURED, NULL, &diag), FA_EBUSY);
    CHECK(db_winner_is(store, 1, 1, &diag)); /* readers wait for nobody */
    CHECK_OK(fa_db_exec(other, "ROLLBACK", &diag), diag);
    CHECK_OK(db_put_winner(store, 1, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    fa_store_close(&store);
    fa_store_close(&other);
}

static int hold_while_another_tries(void *context, fa_diag *d)
{
    fa_store **store = context; /* ours, another's */
    fa_scope scope = db_scope(1);
    int rc = fa_store_winner_hold(store[0], &scope, d);
    if (rc == 0 && db_put_winner(store[1], 1, 2, FA_ORIGIN_MEASURED, NULL, d) != FA_EBUSY)
        rc = FA_EINVAL;
    return rc;
}

static void a_winner_that_is_held_is_changed_by_nobody_else_until_the_end(void)
{
    fa_store *store[2] = {db_open(&diag), db_open(&diag)};
    CHECK(store[0] != NULL && store[1] != NULL);
    for (int i = 0; i < 2; i++) { /* of a scope that is new, and of one that is known */
        CHECK_OK(fa_db_exec(store[1], "SET lock_timeout = 20", &diag), diag);
        CHECK_OK(fa_store_batch(store[0], hold_while_another_tries, store, &diag), diag);
        CHECK_OK(fa_db_exec(store[1], "SET lock_timeout = 0", &diag), diag);
    }
    CHECK_OK(db_put_winner(store[1], 1, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_winner_is(store[0], 1, 2, &diag));
    fa_store_close(&store[0]);
    fa_store_close(&store[1]);
}

/* They pile up in the memory of who does not wait any more. */
static void notes_are_taken_by_every_call_and_remembered_for_the_next_wait(void)
{
    fa_store *store = db_open(&diag), *other = db_open(&diag);
    bool exists;
    CHECK(store != NULL && other != NULL);
    CHECK_OK(fa_store_wait(store, 0, &diag), diag);
    CHECK_INT(fa_store_wait(store, 1, &diag), FA_ETIMEOUT);
    CHECK_OK(db_put_winner(other, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    while (!store->postgres->notified)
        CHECK_OK(fa_store_cubin_exists(store, "none", &exists, &diag), diag);
    CHECK(store->postgres->pq->notifies(store->postgres->connection) == NULL);
    CHECK_OK(fa_store_wait(store, 0, &diag), diag);
    CHECK_INT(fa_store_wait(store, 1, &diag), FA_ETIMEOUT);
    fa_store_close(&store);
    fa_store_close(&other);
}

/* ---- a server that dies or hangs ------------------------------------------------------------*/
struct dying {
    fa_store *store;
    bool again; /* comes back at once */
};

static int put_and_crash(void *context, fa_diag *d)
{
    struct dying *dying = context;
    int rc = db_put_winner(dying->store, 2, 2, FA_ORIGIN_MEASURED, NULL, d);
    if (rc != 0 || !pg_tell("crash") || (dying->again && !pg_tell("start")))
        return FA_EINVAL;
    rc = db_put_winner(dying->store, 3, 3, FA_ORIGIN_MEASURED, NULL, d);
    /* Whoever goes on in spite of that stores nothing alone. */
    if (rc != FA_EIO)
        return FA_EINVAL;
    return db_put_winner(dying->store, 3, 3, FA_ORIGIN_MEASURED, NULL, d);
}

static void a_server_killed_in_the_middle_loses_the_change_and_nothing_else(void)
{
    fa_store *store = db_open(&diag);
    struct dying dying = {.store = store};
    CHECK(store != NULL);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK_INT(fa_store_batch(store, put_and_crash, &dying, &diag), FA_EIO);
    CHECK(tells_no_password(diag.text));
    for (int i = 0; i < 2; i++) { /* while it is down */
        CHECK_INT(db_put_winner(store, 4, 4, FA_ORIGIN_MEASURED, NULL, &diag), FA_EIO);
        CHECK_HAS(diag.text, "cannot be reached");
        CHECK(tells_no_password(diag.text));
        CHECK_INT(fa_store_wait(store, 1, &diag), FA_EIO);
    }
    CHECK(pg_tell("start"));
    dying.again = true;
    CHECK_INT(fa_store_batch(store, put_and_crash, &dying, &diag), FA_EIO);
    CHECK(db_winner_is(store, 1, 1, &diag)); /* the same store goes on */
    CHECK(!db_winner_is(store, 2, 2, &diag) && !db_winner_is(store, 3, 3, &diag));
    CHECK_OK(db_put_winner(store, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_winner_is(store, 2, 2, &diag));
    fa_store_close(&store);
}

static void a_server_that_was_restarted_meanwhile_is_not_noticed(void)
{
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK_OK(fa_store_wait(store, 0, &diag), diag);
    for (int i = 0; i < 2; i++) {
        CHECK(pg_tell("crash") && pg_tell("start"));
        if (i == 0)
            CHECK_OK(db_put_winner(store, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
        CHECK(db_winner_is(store, 1, 1, &diag));
    }
    CHECK_OK(fa_store_wait(store, 0, &diag), diag); /* listens anew: it may have missed one */
    fa_store_close(&store);
}

static int put_large_and_hang(void *context, fa_diag *d)
{
    fa_store *store = context;
    size_t size = (size_t)8 << 20; /* more than a socket holds */
    fa_cubin_record large = db_cubin(2, bytes);
    large.bytes = calloc(1, size);
    large.size = size;
    int rc = large.bytes == NULL || !pg_tell("stop") ? FA_EINVAL : 0;
    store->postgres->answer_ms = 50;
    if (rc == 0)
        rc = fa_store_cubin_put(store, &large, d);
    free(large.bytes);
    return rc;
}

static void a_server_that_hangs_is_given_up(void)
{
    fa_store *store = db_open(&diag);
    fa_scope scope = db_scope(1);
    fa_winner_record winner;
    CHECK(store != NULL);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
        if (i < 2) {
            CHECK(pg_tell("stop"));
            store->postgres->answer_ms = 50;
        }
        int rc = i == 0   ? fa_store_winner_get(store, &scope, &winner, NULL, &diag)
                 : i == 1 ? db_put_winner(store, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag)
                          : fa_store_batch(store, put_large_and_hang, store, &diag);
        CHECK(pg_tell("go"));
        CHECK_INT(rc, FA_EIO);
        CHECK_HAS(diag.text, "did not answer");
        store->postgres->answer_ms = FA_POSTGRES_ANSWER_MS;
    }
    CHECK(db_winner_is(store, 1, 1, &diag));
    CHECK_INT(pg_sql(db_path, "SELECT 1 FROM cubin"), 1);
    fa_store_close(&store);
}

static void a_session_that_the_server_ends_is_made_anew(void)
{
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(pg_sql(db_path, "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE "
                          "application_name = 'fa-tune'") >= 1);
    CHECK_OK(db_put_winner(store, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_winner_is(store, 1, 1, &diag) && db_winner_is(store, 2, 2, &diag));
    fa_store_close(&store);
}

/* ---- translation ----------------------------------------------------------------------------*/
static void sql_is_said_in_the_servers_words(void)
{
    static const char *const table[][2] = {
        {"SELECT ?, '?', ? WHERE a = ?1", "SELECT $1, '?', $2 WHERE a = $1"},
        {"CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, b BLOB, r REAL) STRICT",
         "CREATE TABLE t (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, n bigint, "
         "b bytea, r double precision) "},
        {"scope_id INTEGER PRIMARY KEY, REALITY, MY_BLOB",
         "scope_id bigint PRIMARY KEY, REALITY, MY_BLOB"},
        {"a /*! FOR UPDATE */b /* c */", "a  FOR UPDATE b /* c */"},
        {"'INTEGER", "'INTEGER"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *sql = fa_postgres_sql(table[i][0]);
        CHECK(sql != NULL);
        CHECK_TEXT(sql, table[i][1]);
        free(sql);
    }
}

int main(void)
{
    TEST(sql_is_said_in_the_servers_words);
    DB_TEST(a_path_that_is_shown_has_no_password);
    DB_TEST(an_address_that_does_not_work_is_refused_without_its_password);
    DB_TEST(an_empty_schema_becomes_a_store_when_it_is_opened_for_writing);
    DB_TEST(a_schema_of_another_program_is_refused_and_left_as_it_was);
    DB_TEST(a_schema_of_a_newer_version_is_refused_and_left_as_it_was);
    DB_TEST(a_schema_of_an_older_version_is_brought_up_to_date_or_left_as_it_was);
    DB_TEST(a_user_without_rights_reads_and_writes_nothing);
    DB_TEST(columns_of_another_type_are_refused);
    DB_TEST(the_servers_errors_become_codes);
    DB_TEST(a_full_disk_loses_nothing_that_was_stored);
    DB_TEST(a_change_that_met_anothers_is_made_again_but_not_a_callers_batch);
    DB_TEST(who_waits_for_a_lock_for_too_long_is_told);
    DB_TEST(a_winner_that_is_held_is_changed_by_nobody_else_until_the_end);
    DB_TEST(notes_are_taken_by_every_call_and_remembered_for_the_next_wait);
    DB_TEST(a_server_killed_in_the_middle_loses_the_change_and_nothing_else);
    DB_TEST(a_server_that_was_restarted_meanwhile_is_not_noticed);
    DB_TEST(a_server_that_hangs_is_given_up);
    DB_TEST(a_session_that_the_server_ends_is_made_anew);
    return check_done();
}
