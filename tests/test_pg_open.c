/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a store on a PostgreSQL server: addresses and their passwords, whose tables these are,
 * rights, and SQL in the server's words.
 */
#define DB_ON_POSTGRES
#include "db_fixture.h"

#include "database.h"

static int open_at(const char *url, fa_store_mode mode)
{
    fa_store *store = NULL;
    strcpy(diag.text, "");
    int rc = fa_store_open(url, mode, NULL, &store, &note, &diag);
    fa_store_close(&store);
    return rc;
}

/* ---- addresses ------------------------------------------------------------------------------*/
DB_STORE_TEST(a_path_that_is_shown_has_no_password)
{
    CHECK(strstr(db_path, "s3cret") != NULL && tells_no_password(fa_store_path(store)));
    CHECK_HAS(fa_store_path(store), "postgresql://fa@/fleet?host=/");
    fa_scope scope = db_scope(1);
    fa_winner_record winner;
    CHECK_INT(fa_store_winner_get(store, &scope, &winner, NULL, &diag), FA_ENOTFOUND);
    CHECK(tells_no_password(diag.text));
}

/* libpq's setting of this store's connection. */
static bool setting_is(const fa_store *store, const char *name, const char *value)
{
    void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_NOLOAD);
    __typeof__(PQconninfo) *settings_of;
    *(void **)(void *)&settings_of = library != NULL ? dlsym(library, "PQconninfo") : NULL;
    PQconninfoOption *all = settings_of != NULL ? settings_of(store->postgres->connection) : NULL;
    bool is = false;
    for (PQconninfoOption *one = all; one != NULL && one->keyword != NULL; one++)
        if (strcmp(one->keyword, name) == 0)
            is = one->val != NULL && strcmp(one->val, value) == 0;
    if (all != NULL)
        fa_pq.conninfoFree(all);
    if (library != NULL)
        dlclose(library);
    return is;
}

/* Kerberos' library, which ends the process when memory is short. */
DB_TEST(kerberos_is_asked_only_where_the_address_says_so)
{
    char address[sizeof db_path + 32];
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    bool asked = !setting_is(store, "gssencmode", "disable");
    fa_store_close(&store);
    snprintf(address, sizeof address, "%s%cgssencmode=prefer", db_path,
             strchr(db_path, '?') != NULL ? '&' : '?');
    CHECK_OK(fa_store_open(address, FA_STORE_READ_WRITE, NULL, &store, &note, &diag), diag);
    bool as_said = setting_is(store, "gssencmode", "prefer");
    fa_store_close(&store);
    CHECK(!asked && as_said);
}

DB_TEST(an_address_that_does_not_work_is_refused_without_its_password)
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
DB_TEST(an_empty_schema_becomes_a_store_when_it_is_opened_for_writing)
{
    CHECK_INT(open_at(db_path, FA_STORE_READ_ONLY), FA_ENOTFOUND);
    CHECK_INT(open_at(db_path, FA_STORE_READ_WRITE), 0);
    CHECK_INT(open_at(db_path, FA_STORE_READ_ONLY), 0);
    CHECK_INT(open_at(db_path, FA_STORE_READ_WRITE), 0);
    CHECK_INT(pg_sql(db_path, "DROP TABLE fa_tune_store"), 0);
    CHECK_INT(open_at(db_path, FA_STORE_READ_WRITE), FA_ESTORE); /* no word that they are ours */
}

DB_TEST(a_schema_of_another_program_is_refused_and_left_as_it_was)
{
    CHECK_INT(pg_sql(db_path, "CREATE TABLE aunts (name text)"), 0);
    for (int mode = 0; mode < 2; mode++) {
        CHECK_FAILS(open_at(db_path, (fa_store_mode)mode), FA_ESTORE, "another program");
    }
    CHECK_INT(pg_sql(db_path, "SELECT relname FROM pg_class WHERE relnamespace = "
                              "to_regnamespace(current_schema())"),
              1);
}

DB_TEST(a_schema_of_another_version_is_refused_and_left_as_it_was)
{
    const int versions[] = {1, FA_STORE_SCHEMA - 1, FA_STORE_SCHEMA + 1, 1000};
    CHECK(fill_store(1));
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        char sql[100], told[32];
        snprintf(sql, sizeof sql, "UPDATE fa_tune_store SET version = %d", versions[i]);
        snprintf(told, sizeof told, "of version %d,", versions[i]);
        CHECK(db_tamper(sql));
        for (int mode = 0; mode < 2; mode++) {
            CHECK_FAILS(open_at(db_path, (fa_store_mode)mode), FA_EVERSION, told);
        }
        snprintf(sql, sizeof sql, "SELECT 1 FROM fa_tune_store, winner WHERE version = %d",
                 versions[i]);
        CHECK_INT(pg_sql(db_path, sql), 1);
    }
    for (int version = 0; version > -4; version -= 3) { /* none that was ever written */
        char sql[100];
        snprintf(sql, sizeof sql, "UPDATE fa_tune_store SET version = %d", version);
        CHECK(db_tamper(sql));
        CHECK_INT(open_at(db_path, FA_STORE_READ_WRITE), FA_ESTORE);
    }
    CHECK(db_tamper("DELETE FROM fa_tune_store"));
    CHECK_INT(open_at(db_path, FA_STORE_READ_WRITE), FA_ESTORE);
}

DB_TEST(a_user_without_rights_reads_and_writes_nothing)
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
    CHECK_FAILS(open_at(url, FA_STORE_READ_WRITE), FA_EREADONLY, "may not change");
    fa_store *store = NULL;
    CHECK_OK(fa_store_open(url, FA_STORE_READ_ONLY, NULL, &store, NULL, &diag), diag);
    CHECK(fa_store_is_read_only(store));
    CHECK(db_winner_is(store, 1, 1, &diag));
    CHECK_INT(db_put_winner(store, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag), FA_EREADONLY);
    CHECK_INT(fa_db_exec(store, "DELETE FROM winner", &diag), FA_EREADONLY); /* the session, too */
    fa_store_close(&store);
    pg_address(url, sizeof url, "fa", PG_PASSWORD_CODED, "no_such_schema");
    CHECK_FAILS(open_at(url, FA_STORE_READ_WRITE), FA_ESTORE, "search_path");
}

DB_TEST(columns_of_another_type_are_refused)
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
    CHECK_FAILS(fa_store_winner_get(store, &scope, &winner, NULL, &diag), FA_ECORRUPT,
                "tables are not as they should be");
    fa_store_close(&store);
}
