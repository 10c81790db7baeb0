/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a store whose file is damaged, foreign, of another version, empty or gone.
 */
#include "db_fixture.h"

#include "sqlite.h"

#include <stdarg.h>
#include <sys/syscall.h>

/* The next opening of the store for writing fails so: SQLite's, too. */
static int open_errno;

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (mode_t)va_arg(rest, int);
    va_end(rest);
    if (open_errno != 0 && (flags & O_ACCMODE) == O_RDWR && strcmp(path, db_path) == 0) {
        errno = open_errno;
        open_errno = 0;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* Another program's hand in the file. */
static bool foreign_exec(const char *sql)
{
    sqlite3 *db = NULL;
    bool good = sqlite3_open(db_path, &db) == SQLITE_OK &&
                sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
    sqlite3_close(db);
    return good;
}

/* The file is corrupt: READ_ONLY leaves it alone, READ_WRITE keeps it under another name. */
static void check_set_aside(void)
{
    fa_buf before;
    CHECK_INT(fa_buf_read_file(&before, db_path, 1 << 26), 0);
    CHECK_INT(open_rc(FA_STORE_READ_ONLY), FA_ECORRUPT);
    CHECK(db_same_bytes(db_path, &before));
    fa_store *store = NULL;
    CHECK_OK(fa_store_open(db_path, FA_STORE_READ_WRITE, NULL, &store, &note, &diag), diag);
    CHECK_HAS(note.text, ".corrupt-");
    const char *kept = strstr(note.text, " as ") + 4;
    char aside[512];
    snprintf(aside, sizeof aside, "%.*s", (int)strcspn(kept, " "), kept);
    CHECK(db_same_bytes(aside, &before));
    fa_buf_free(&before);
    CHECK_OK(db_put_winner(store, 512, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_winner_is(store, 512, 1, &diag));
    fa_store_close(&store);
    CHECK_INT(open_rc(FA_STORE_READ_WRITE), 0);
    CHECK_TEXT(note.text, "");
}

/* ---- what is in the file --------------------------------------------------------------------*/
static bool write_noise(void)
{
    uint32_t bytes[4096];
    for (uint32_t i = 0; i < 4096; i++)
        bytes[i] = db_mix(i + 1);
    return check_write_file(db_path, bytes, sizeof bytes);
}

DB_TEST(a_store_that_is_cut_short_is_set_aside_and_what_has_no_header_of_ours_stays)
{
    CHECK(fill_store(4));
    CHECK_INT(truncate(db_path, 16384), 0);
    check_set_aside();
    CHECK(truncate(db_path, 50) == 0);
    check_refused(FA_ESTORE, "lost its header");
    CHECK(write_noise());
    check_refused(FA_ESTORE, "not a store");
    CHECK_INT(db_count_files("store.db.corrupt-"), 1);
}

/* ---- files that never were a store ----------------------------------------------------------*/
DB_TEST(nothing_is_made_beside_a_file_that_is_not_a_store)
{
    for (size_t size = 11; size > 0; size--) { /* of one byte SQLite says that there is none */
        CHECK(check_write_file(db_path, "Dear aunt,\n", size));
        check_refused(FA_ESTORE, "not a store");
        CHECK_INT(db_count_files(""), 3); /* . .. and the letter */
    }
}

DB_TEST(a_link_that_comes_to_point_elsewhere_takes_no_file_along)
{
    char real[320], letter[320];
    snprintf(real, sizeof real, "%s/real.db", db_directory);
    snprintf(letter, sizeof letter, "%s/letter", db_directory);
    CHECK(check_write_file(real, "", 0));
    CHECK_INT(symlink(real, db_path), 0);
    CHECK(fill_store(1));
    fa_store *store = db_open(&diag);
    CHECK(store != NULL && db_winner_is(store, 1, 1, &diag));
    CHECK(check_write_file(letter, "Dear aunt,\n", 11));
    CHECK(unlink(db_path) == 0 && symlink(letter, db_path) == 0);
    CHECK_INT(open_rc(FA_STORE_READ_WRITE), FA_ESTORE);
    CHECK(db_winner_is(store, 1, 1, &diag)); /* whoever has the store open keeps it */
    fa_store_close(&store);
    fa_buf text;
    CHECK_INT(fa_buf_read_file(&text, letter, 100), 0);
    CHECK(text.size == 11 && memcmp(text.data, "Dear aunt,\n", 11) == 0);
    fa_buf_free(&text);
    CHECK_INT(db_count_files("letter"), 1); /* no locks beside it */
}

DB_TEST(a_database_of_another_program_is_refused_and_left_as_it_was)
{
    static const char *const others[] = {
        "PRAGMA application_id = 12345; CREATE TABLE scope (id);",
        "PRAGMA application_id = 0; PRAGMA user_version = 1;"}; /* of no known program */
    for (int i = 0; i < 2; i++) {
        CHECK(foreign_exec(others[i]) && chmod(db_path, 0600) == 0);
        check_refused(FA_ESTORE, "another program");
    }
}

/* SQLite would play the journal back on its first read. */
DB_TEST(a_foreign_database_keeps_its_unfinished_journal)
{
    CHECK(foreign_exec("CREATE TABLE t (id);"));
    fa_buf journal;
    char name[320];
    snprintf(name, sizeof name, "%s-journal", db_path);
    unsigned char header[1024] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
    header[22] = 2; /* sector size 512 */
    header[26] = 16;
    CHECK(check_write_file(name, header, sizeof header));
    CHECK_INT(chmod(db_path, 0600), 0);
    CHECK_INT(fa_buf_read_file(&journal, name, 1 << 20), 0);
    check_refused(FA_ESTORE, "another program");
    CHECK(db_same_bytes(name, &journal));
    fa_buf_free(&journal);
}

DB_TEST(a_store_of_another_version_is_refused_and_left_as_it_was)
{
    const int versions[] = {0, 1, FA_STORE_SCHEMA - 1, FA_STORE_SCHEMA + 1, 99};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        char sql[64], told[32];
        snprintf(sql, sizeof sql, "PRAGMA user_version = %d;", FA_STORE_SCHEMA);
        CHECK(i == 0 || foreign_exec(sql));
        CHECK(fill_store(1));
        snprintf(sql, sizeof sql, "PRAGMA user_version = %d;", versions[i]);
        snprintf(told, sizeof told, "of version %d,", versions[i]);
        CHECK(foreign_exec(sql));
        check_refused(FA_EVERSION, told);
        CHECK_HAS(diag.text, "name another file or");
        CHECK(strstr(diag.text, "FA_TUNE_STORE") == NULL);
    }
}

DB_TEST(an_empty_file_becomes_a_store)
{
    CHECK(check_write_file(db_path, "", 0));
    CHECK_INT(open_rc(FA_STORE_READ_ONLY), FA_ENOTFOUND);
    CHECK_INT(open_rc(FA_STORE_READ_WRITE), 0);
    CHECK_TEXT(note.text, "");
    CHECK_INT(open_rc(FA_STORE_READ_ONLY), 0);
}

/* The mode of a verb that only reads. */
DB_TEST(what_is_only_looked_at_stays_as_it_is)
{
    fa_store *store = NULL;
    CHECK(check_write_file(db_path, "", 0));
    CHECK_OK(fa_store_open(db_path, FA_STORE_EXISTING, NULL, &store, &note, &diag), diag);
    CHECK(fa_store_is_absent(store));
    fa_store_close(&store);
    struct stat st;
    CHECK(stat(db_path, &st) == 0 && st.st_size == 0);
    CHECK_INT(db_count_files(""), 3);
    CHECK(check_write_file(db_path, "Dear aunt,\n", 11));
    CHECK_INT(fa_store_open(db_path, FA_STORE_EXISTING, NULL, &store, &note, &diag), FA_ESTORE);
    CHECK_INT(unlink(db_path), 0);
    CHECK(fill_store(1) && truncate(db_path, 9000) == 0);
    CHECK_INT(fa_store_open(db_path, FA_STORE_EXISTING, NULL, &store, &note, &diag), FA_ECORRUPT);
    CHECK_INT(db_count_files("store.db.corrupt-"), 0);
    CHECK(store == NULL);
}

DB_TEST(a_store_that_was_emptied_while_it_was_open_is_made_anew_by_the_next_call)
{
    CHECK(fill_store(2));
    fa_store *store = db_open(&diag), *reader = NULL;
    CHECK(store != NULL && db_winner_is(store, 1, 1, &diag));
    CHECK_OK(fa_store_open(db_path, FA_STORE_READ_ONLY, NULL, &reader, NULL, &diag), diag);
    CHECK_INT(truncate(db_path, 0), 0);
    fa_scope scope = db_scope(1);
    FA_ENDS(fa_winner_record_free) fa_winner_record winner = {0};
    for (int i = 0; i < 2; i++) { /* whoever may not write says so each time */
        CHECK_FAILS(fa_store_winner_get(reader, &scope, &winner, NULL, &diag), FA_ENOTFOUND,
                    "is empty");
    }
    CHECK_FAILS(fa_store_winner_get(store, &scope, &winner, NULL, &diag), FA_ENOTFOUND,
                "no winner");
    CHECK_OK(db_put_winner(store, 1, 3, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_winner_is(store, 1, 3, &diag));
    CHECK_INT(fa_store_winner_get(reader, &scope, &winner, NULL, &diag), 0);
    fa_store_close(&store);
    fa_store_close(&reader);
}

/* Damage behind a sound header shows when the page is read. */
DB_TEST(damage_found_later_sets_the_file_aside_and_the_store_goes_on)
{
    CHECK(fill_store(3));
    fa_store *store = db_open(&diag), *second = db_open(&diag), *third = db_open(&diag);
    CHECK(store != NULL && second != NULL && third != NULL);
    CHECK(db_winner_is(second, 2, 2, &diag));
    fa_buf bytes;
    CHECK_INT(fa_buf_read_file(&bytes, db_path, 1 << 26), 0);
    for (size_t i = 4096; i < bytes.size; i++)
        bytes.data[i] = (char)0x5a;
    FILE *file = fopen(db_path, "r+b"); /* the same inode */
    CHECK(file != NULL && fwrite(bytes.data, 1, bytes.size, file) == bytes.size);
    CHECK_INT(fclose(file), 0);
    fa_buf_free(&bytes);
    fa_scope scope = db_scope(2);
    fa_winner_record winner = {0};
    fa_cubin_record cubin = {0};
    CHECK_INT(fa_store_winner_get(store, &scope, &winner, &cubin, &diag), FA_ECORRUPT);
    CHECK_INT(fa_store_winner_get(third, &scope, &winner, &cubin, &diag), FA_ECORRUPT);
    CHECK_INT(fa_store_winner_get(store, &scope, &winner, &cubin, &diag), FA_ENOTFOUND);
    CHECK_INT(db_count_files("store.db.corrupt-"), 1);
    CHECK_OK(db_put_winner(store, 2, 7, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    /* Whoever had the old file open finds the new one, and does not set that aside, not even
     * having seen the damage too. */
    CHECK(db_winner_is(third, 2, 7, &diag));
    CHECK(db_winner_is(second, 2, 7, &diag));
    CHECK_OK(db_put_winner(second, 3, 8, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_winner_is(store, 3, 8, &diag));
    CHECK_INT(db_count_files("store.db.corrupt-"), 1);
    fa_store_close(&store);
    fa_store_close(&second);
    fa_store_close(&third);
}

DB_TEST(a_store_that_was_moved_away_is_made_anew_by_the_next_write_and_holds_no_part_of_a_change)
{
    fa_store *store = db_open(&diag);
    char away[320];
    fa_change change = {.store = store, .diag = &diag};
    CHECK(store != NULL);
    snprintf(away, sizeof away, "%s/away", db_directory);
    while (fa_store_change(&change)) {
        CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
        CHECK_INT(rename(db_path, away), 0);
        change.rc = db_put_winner(store, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag);
    }
    CHECK_FAILS(change.rc, FA_EIO, "in the middle of a change");
    CHECK(!db_winner_is(store, 1, 1, &diag) && !db_winner_is(store, 2, 2, &diag));
    CHECK_OK(db_put_winner(store, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    fa_store_close(&store);
    store = db_open(&diag);
    CHECK(store != NULL && db_winner_is(store, 2, 2, &diag) && !db_winner_is(store, 1, 1, &diag));
    fa_store_close(&store);
}

static bool is_wrong(const fa_study_trial *record)
{
    uint32_t n = (uint32_t)record->trial.config.tunable[1].value;
    float samples[DB_SAMPLES];
    db_trial_record(n, samples);
    return record->sample_count != DB_SAMPLES ||
           memcmp(samples, record->samples_us, sizeof samples) != 0;
}

/* Answers wrong bytes served; everything else may fail, if it fails with a sentence. */
static int use_damaged(void)
{
    fa_store *store = NULL;
    int wrong = 0;
    diag.text[0] = 0;
    if (fa_store_open(db_path, FA_STORE_READ_WRITE, NULL, &store, NULL, &diag) != 0)
        return diag.text[0] == 0;
    for (int32_t i = 1; i <= 3; i++) {
        fa_scope scope = db_scope(i);
        fa_winner_record winner = {0};
        fa_cubin_record cubin = {0};
        static unsigned char bytes[DB_CUBIN_SIZE];
        db_cubin((uint32_t)i, bytes);
        diag.text[0] = 0;
        if (fa_store_winner_get(store, &scope, &winner, &cubin, &diag) == 0)
            wrong += cubin.size != sizeof bytes || memcmp(cubin.bytes, bytes, sizeof bytes) != 0;
        else
            wrong += diag.text[0] == 0;
        fa_winner_record_free(&winner);
        fa_cubin_record_free(&cubin);
        fa_study_trial *record = NULL;
        size_t count = 0;
        fa_store_trials(store, &scope, &record, &count, &diag);
        for (size_t k = 0; k < count; k++)
            wrong += is_wrong(&record[k]);
        free(record);
    }
    db_put_winner(store, 9, 9, FA_ORIGIN_MEASURED, NULL, &diag);
    fa_store_close(&store);
    return wrong;
}

DB_TEST(a_store_with_any_bytes_changed_never_serves_what_was_not_stored)
{
    CHECK(fill_store(3));
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    for (int32_t i = 1; i <= 3; i++) {
        float samples[DB_SAMPLES];
        fa_scope scope = db_scope(i);
        fa_study_trial record = db_trial_record((uint32_t)i, samples);
        CHECK_OK(fa_store_trial_put(store, &scope, &record, &diag), diag);
    }
    fa_store_close(&store);
    fa_buf good;
    CHECK_INT(fa_buf_read_file(&good, db_path, 1 << 26), 0);
    FA_ENDS(fa_free_at) unsigned char *bad = malloc(good.size);
    CHECK(bad != NULL);
    for (uint32_t round = 0; round < 300; round++) {
        memcpy(bad, good.data, good.size);
        uint32_t changes = 1 + db_mix(round) % 40;
        for (uint32_t i = 0; i < changes; i++) {
            /* Half of them in the first pages, where the structure is. */
            uint32_t where = db_mix(round * 64 + i);
            size_t range = i % 2 == 0 ? good.size : 24576;
            bad[where % range] = (unsigned char)(db_mix(where) >> 7);
        }
        size_t size = round % 5 == 4 ? db_mix(round + 7) % good.size : good.size;
        CHECK(check_write_file(db_path, bad, size));
        CHECK_INT(use_damaged(), 0);
    }
    fa_buf_free(&good);
}

/* What no crash of a process can show: a power cut is survived by syncs, and by these alone. */
DB_STORE_TEST(a_connection_is_set_up_as_promised)
{
    char schema[16];
    snprintf(schema, sizeof schema, "%d", FA_STORE_SCHEMA);
    const struct {
        const char *pragma, *value;
    } table[] = {
        {"journal_mode", "truncate"}, {"synchronous", "2"},     {"foreign_keys", "1"},
        {"trusted_schema", "0"},      {"mmap_size", "0"},       {"cell_size_check", "1"},
        {"user_version", schema},     {"writable_schema", "0"},
    };
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char sql[100];
        sqlite3_stmt *statement = NULL;
        snprintf(sql, sizeof sql, "PRAGMA %s", table[i].pragma);
        CHECK_INT(sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL), SQLITE_OK);
        int step = sqlite3_step(statement);
        char value[32];
        snprintf(value, sizeof value, "%s",
                 step == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : "0");
        sqlite3_finalize(statement);
        CHECK_TEXT(value, table[i].value);
    }
    CHECK(sqlite3_exec(store->db, "SELECT load_extension('x')", NULL, NULL, NULL) != SQLITE_OK);
    CHECK(sqlite3_exec(store->db, "PRAGMA writable_schema = 1; DELETE FROM sqlite_schema;", NULL,
                       NULL, NULL) != SQLITE_OK); /* DEFENSIVE */
}

/* A journal left behind under the old name would be played back into the new store. */
DB_TEST(a_corrupt_files_journal_goes_with_it)
{
    CHECK(fill_store(1));
    CHECK_INT(truncate(db_path, 6000), 0);
    char name[320];
    snprintf(name, sizeof name, "%s-journal", db_path);
    unsigned char header[1024] = {0}; /* not one that SQLite would play back */
    header[5] = 7;
    CHECK(check_write_file(name, header, sizeof header));
    CHECK_INT(open_rc(FA_STORE_READ_WRITE), 0);
    CHECK_INT(db_count_files("store.db.corrupt-"), 2);
    struct stat st;
    CHECK(stat(name, &st) != 0 || st.st_size == 0);
}

DB_TEST(a_store_that_could_not_be_opened_for_writing_once_is_not_read_only_from_then_on)
{
    fa_store *store = NULL;
    CHECK(fill_store(1));
    open_errno = EMFILE;
    CHECK_INT(fa_store_open(db_path, FA_STORE_READ_WRITE, NULL, &store, &note, &diag), FA_EIO);
    CHECK_INT(open_errno, 0);
    CHECK_HAS(diag.text, "ulimit -n");
    CHECK_OK(fa_store_open(db_path, FA_STORE_READ_WRITE, NULL, &store, &note, &diag), diag);
    /* Opened anew in the middle of its life, after another process took the file away. */
    CHECK_INT(unlink(db_path), 0);
    CHECK(fill_store(1));
    open_errno = EMFILE;
    CHECK_INT(db_put_winner(store, 512, 2, FA_ORIGIN_MEASURED, NULL, &diag), FA_EIO);
    CHECK_INT(open_errno, 0);
    CHECK_OK(db_put_winner(store, 512, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_winner_is(store, 512, 2, &diag));
    fa_store_close(&store);
}
