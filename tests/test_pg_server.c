/* SPDX-License-Identifier: Apache-2.0
 *
 * What a PostgreSQL server does to a store that is open on it: errors, changes and locks of others,
 * and a server that dies or hangs.
 */
#define DB_ON_POSTGRES
#include "db_fixture.h"

static unsigned char bytes[DB_CUBIN_SIZE];

/* ---- what the server says -------------------------------------------------------------------*/
DB_STORE_TEST(the_servers_errors_become_codes)
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
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char sql[200];
        snprintf(sql, sizeof sql,
                 "DO $$ BEGIN RAISE EXCEPTION 'so it is' USING ERRCODE = '%s'; END $$",
                 table[i].state);
        CHECK_INT(fa_db_exec(store, sql, &diag), table[i].code);
        CHECK_HAS(diag.text, "so it is");
        CHECK(strstr(diag.text, "cannot be reached") == NULL); /* it has just answered */
    }
    CHECK_INT(fa_db_exec(store, "SET statement_timeout = 20; SELECT pg_sleep(100)", &diag),
              FA_EBUSY);
    CHECK_OK(fa_db_exec(store, "SET statement_timeout = 0", &diag), diag);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
}

/* As a full disk behaves: in the middle of what is stored together. */
DB_STORE_TEST(a_full_disk_loses_nothing_that_was_stored)
{
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(pg_sql(db_path,
                 "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                 "RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$; "
                 "CREATE TRIGGER t BEFORE INSERT ON winner EXECUTE FUNCTION full_disk()") >= 0);
    CHECK_FAILS(db_put_winner(store, 1, 2, FA_ORIGIN_MEASURED, NULL, &diag), FA_EFULL,
                "no space is left");
    CHECK(db_winner_is(store, 1, 1, &diag));
    fa_cubin_record cubin = db_cubin(2, bytes), got;
    CHECK_INT(fa_store_cubin_get(store, cubin.key, &got, &diag), FA_ENOTFOUND);
    CHECK(pg_sql(db_path, "DROP TRIGGER t ON winner") >= 0);
    CHECK_OK(db_put_winner(store, 1, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_winner_is(store, 1, 2, &diag));
}

DB_STORE_TEST(a_change_that_met_anothers_is_made_again_a_few_times)
{
    for (int always = 0; always < 2; always++) {
        fa_change change = {.store = store, .diag = &diag};
        while (fa_store_change(&change))
            if (always || change.tries <= 2)
                change.rc = fa_db_exec(
                    store, "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$",
                    &diag);
        CHECK_INT(change.rc, always ? FA_EBUSY : 0);
        CHECK(always ? change.tries > 3 : change.tries == 3);
    }
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
}

DB_STORE_TEST(who_waits_for_a_lock_for_too_long_is_told)
{
    fa_store *other = db_open(&diag);
    CHECK(other != NULL);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK_OK(fa_db_exec(other, "BEGIN; LOCK TABLE winner IN EXCLUSIVE MODE", &diag), diag);
    CHECK_OK(fa_db_exec(store, "SET lock_timeout = 20", &diag), diag);
    CHECK_INT(db_put_winner(store, 1, 2, FA_ORIGIN_MEASURED, NULL, &diag), FA_EBUSY);
    CHECK(db_winner_is(store, 1, 1, &diag)); /* readers wait for nobody */
    CHECK_OK(fa_db_exec(other, "ROLLBACK", &diag), diag);
    CHECK_OK(db_put_winner(store, 1, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    fa_store_close(&other);
}

DB_STORE_TEST(a_winner_that_is_held_is_changed_by_nobody_else_until_the_end)
{
    fa_store *store[2] = {db_open(&diag), db_open(&diag)};
    CHECK(store[0] != NULL && store[1] != NULL);
    for (int i = 0; i < 2; i++) { /* of a scope that is new, and of one that is known */
        CHECK_OK(fa_db_exec(store[1], "SET lock_timeout = 20", &diag), diag);
        fa_change change = {.store = store[0], .diag = &diag};
        while (fa_store_change(&change)) {
            fa_scope scope = db_scope(1);
            CHECK_OK(fa_store_winner_hold(store[0], &scope, &diag), diag);
            CHECK_INT(db_put_winner(store[1], 1, 2, FA_ORIGIN_MEASURED, NULL, &diag), FA_EBUSY);
        }
        CHECK_OK(change.rc, diag);
        CHECK_OK(fa_db_exec(store[1], "SET lock_timeout = 0", &diag), diag);
    }
    CHECK_OK(db_put_winner(store[1], 1, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_winner_is(store[0], 1, 2, &diag));
    fa_store_close(&store[0]);
    fa_store_close(&store[1]);
}

/* ---- a server that dies or hangs ------------------------------------------------------------*/
/* again: the server comes back at once. */
static int put_while_it_crashes(bool again)
{
    fa_change change = {.store = store, .diag = &diag};
    for (int run = 0; fa_store_change(&change); run++) {
        change.rc = run > 0 ? FA_EIO : db_put_winner(store, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag);
        if (run > 0)
            continue;
        if (change.rc != 0 || !pg_tell("crash") || (again && !pg_tell("start")))
            change.rc = FA_EINVAL;
        for (int i = 0; i < 2; i++) /* who goes on in spite of the failure stores nothing alone */
            if (change.rc == 0 || change.rc == FA_EIO)
                change.rc = db_put_winner(store, 3, 3, FA_ORIGIN_MEASURED, NULL, &diag);
    }
    return change.rc;
}

DB_STORE_TEST(a_server_killed_in_the_middle_loses_the_change_and_nothing_else)
{
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK_INT(put_while_it_crashes(false), FA_EIO);
    CHECK(tells_no_password(diag.text));
    for (int i = 0; i < 2; i++) { /* while it is down */
        CHECK_FAILS(db_put_winner(store, 4, 4, FA_ORIGIN_MEASURED, NULL, &diag), FA_EIO,
                    "cannot be reached");
        CHECK(tells_no_password(diag.text));
    }
    CHECK(pg_tell("start"));
    CHECK_INT(put_while_it_crashes(true), FA_EIO);
    CHECK(db_winner_is(store, 1, 1, &diag)); /* the same store goes on */
    CHECK(!db_winner_is(store, 2, 2, &diag) && !db_winner_is(store, 3, 3, &diag));
    CHECK_OK(db_put_winner(store, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_winner_is(store, 2, 2, &diag));
}

DB_STORE_TEST(a_server_that_was_restarted_meanwhile_is_not_noticed)
{
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    for (int i = 0; i < 2; i++) {
        CHECK(pg_tell("crash") && pg_tell("start"));
        if (i == 0)
            CHECK_OK(db_put_winner(store, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
        CHECK(db_winner_is(store, 1, 1, &diag));
    }
    CHECK(pg_tell("crash") && pg_tell("start"));
    CHECK(!fa_store_server_is_gone(store)); /* though it was connected to only just now */
}

static int put_large_and_hang(void)
{
    fa_change change = {.store = store, .diag = &diag};
    size_t size = (size_t)8 << 20; /* more than a socket holds */
    fa_cubin_record large = db_cubin(2, bytes);
    large.bytes = calloc(1, size);
    large.size = size;
    while (fa_store_change(&change)) {
        change.rc = large.bytes == NULL || !pg_tell("stop") ? FA_EINVAL : 0;
        store->postgres->answer_ms = 50;
        if (change.rc == 0)
            change.rc = fa_store_cubin_put(store, &large, &diag);
    }
    free(large.bytes);
    return change.rc;
}

DB_STORE_TEST(a_server_that_hangs_is_given_up)
{
    fa_scope scope = db_scope(1);
    fa_winner_record winner;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
        if (i < 2) {
            CHECK(pg_tell("stop"));
            store->postgres->answer_ms = 50;
        }
        int rc = i == 0   ? fa_store_winner_get(store, &scope, &winner, NULL, &diag)
                 : i == 1 ? db_put_winner(store, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag)
                          : put_large_and_hang();
        CHECK(pg_tell("go"));
        CHECK_INT(rc, FA_EIO);
        CHECK_HAS(diag.text, i == 0 ? "did not answer" : "cannot be reached"); /* tried anew */
        store->postgres->answer_ms = FA_POSTGRES_ANSWER_MS;
    }
    CHECK(db_winner_is(store, 1, 1, &diag));
    CHECK_INT(pg_sql(db_path, "SELECT 1 FROM cubin"), 1);
}

/* ---- the file in the server's place ---------------------------------------------------------*/
static int notes;

static void take_note(void *context, const char *sentence)
{
    (void)context;
    notes += strstr(sentence, "does not serve") != NULL;
    CHECK(tells_no_password(sentence));
}

DB_STORE_TEST(a_file_serves_while_the_server_does_not)
{
    char file[300], folder[CHECK_FOLDER];
    check_make_folder(folder, NULL);
    snprintf(file, sizeof file, "%s/spare.db", folder);
    const fa_store_spare spare = {file, take_note, NULL};
    fa_store *spared = NULL;
    fa_lock *lock = NULL;
    notes = 0;
    CHECK_OK(fa_store_open(db_path, FA_STORE_READ_WRITE, &spare, &spared, NULL, &diag), diag);
    CHECK_OK(db_put_winner(spared, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK_OK(fa_store_lock(spared, "key", false, &lock, &diag), diag);
    CHECK(pg_tell("crash"));
    CHECK_OK(db_put_winner(spared, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK_TEXT(fa_store_path(spared), file);
    CHECK(!db_winner_is(spared, 1, 1, &diag) && db_winner_is(spared, 2, 2, &diag));
    CHECK(fa_store_server_is_gone(spared) && fa_store_server_restarts(spared));
    CHECK_INT(notes, 1);
    CHECK(pg_tell("start"));
    spared->postgres->asked = 1;
    CHECK(!fa_store_server_is_gone(spared));
    CHECK(!fa_store_server_restarts(spared)); /* it has its lock */
    CHECK(db_winner_is(spared, 1, 1, &diag) && !db_winner_is(spared, 2, 2, &diag));
    fa_lock *other = NULL; /* the session has taken its lock again */
    CHECK_INT(fa_store_lock(store, "key", false, &other, &diag), FA_EBUSY);
    fa_lock_release(&lock);
    CHECK(fa_store_server_restarts(spared)); /* who waits leaves the others time to have theirs */
    spared->postgres->back -= FA_POSTGRES_SETTLE_MS;
    CHECK(!fa_store_server_restarts(spared));
    fa_store_close(&spared);
    CHECK(pg_tell("crash"));
    CHECK_OK(fa_store_open(db_path, FA_STORE_READ_WRITE, &spare, &spared, NULL, &diag), diag);
    CHECK(db_winner_is(spared, 2, 2, &diag));
    CHECK_INT(notes, 2);
    fa_store_close(&spared);
    CHECK(pg_tell("start"));
    check_remove_folder(folder);
}
