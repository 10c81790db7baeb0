/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a store is and whose: places of other users, places that cannot be written, full disks.
 * Tests that need another user or a mount run in a child that has taken the privileges it needs or
 * given up those it must not have.
 */
#include "db_fixture.h"

#include "sqlite.h"

#include <sys/resource.h>

enum { NOBODY = 65534 };

/* ---- where it is and whose ------------------------------------------------------------------*/
DB_TEST(a_store_and_its_directories_are_made_for_their_owner_alone)
{
    char path[320];
    snprintf(path, sizeof path, "%s/a", db_directory);
    setenv("XDG_CACHE_HOME", path, 1);
    snprintf(db_path, sizeof db_path, "%s/a/fa-tune/store.db", db_directory);
    mode_t mask = umask(0);
    bool good = fill_store(1);
    umask(mask);
    CHECK(good);
    struct stat st;
    CHECK(stat(db_path, &st) == 0 && (st.st_mode & 07777) == 0600);
    snprintf(path, sizeof path, "%s-journal", db_path);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600);
    snprintf(path, sizeof path, "%s/a", db_directory);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0700);
    unsetenv("XDG_CACHE_HOME");
}

DB_TEST(a_directory_that_is_not_the_caches_is_not_made)
{
    snprintf(db_path, sizeof db_path, "%s/a/b/store.db", db_directory);
    CHECK_FAILS(open_rc(FA_STORE_READ_WRITE), FA_ESTORE, "does not exist");
    CHECK_INT(db_count_files(""), 2); /* . and .. */
}

DB_TEST(what_others_can_write_is_refused)
{
    CHECK(fill_store(1));
    CHECK_INT(chmod(db_path, 0602), 0);
    check_refused(FA_ESTORE, "other users can write");
    CHECK_INT(chmod(db_path, 0660), 0);
    check_refused(FA_ESTORE, "other users can write");
    CHECK_INT(chmod(db_path, 0644), 0);
    CHECK_INT(open_rc(FA_STORE_READ_WRITE), 0);
    CHECK_INT(chmod(db_directory, 01777), 0); /* as /tmp is */
    check_refused(FA_ESTORE, "other users can write its directory");
    CHECK_INT(chmod(db_directory, 0755), 0);
    CHECK_INT(open_rc(FA_STORE_READ_WRITE), 0);
}

DB_TEST(what_belongs_to_another_user_is_refused)
{
    if (geteuid() != 0)
        SKIP("only root can give a file away");
    CHECK(fill_store(1));
    if (chown(db_path, NOBODY, NOBODY) != 0)
        SKIP("this root may not give files away");
    check_refused(FA_ESTORE, "belongs to user 65534");
    CHECK_INT(chown(db_path, 0, 0), 0);
    CHECK_INT(chown(db_directory, NOBODY, NOBODY), 0);
    check_refused(FA_ESTORE, "directory belongs to user 65534");
}

DB_TEST(what_is_not_a_regular_file_is_refused)
{
    CHECK_INT(mkfifo(db_path, 0600), 0);
    CHECK_INT(open_rc(FA_STORE_READ_WRITE), FA_ESTORE);
    CHECK_INT(open_rc(FA_STORE_READ_ONLY), FA_ESTORE);
    CHECK_INT(unlink(db_path), 0);
    CHECK_INT(mkdir(db_path, 0700), 0);
    CHECK_FAILS(open_rc(FA_STORE_READ_WRITE), FA_ESTORE, "it is a folder: name a file");
    CHECK_INT(rmdir(db_path), 0);
    CHECK_INT(symlink("nowhere", db_path), 0);
    CHECK_FAILS(open_rc(FA_STORE_READ_WRITE), FA_ESTORE, "symbolic link");
}

DB_TEST(paths_that_cannot_be_a_store_are_refused)
{
    fa_store *store = NULL;
    char path[400];
    CHECK_INT(fa_store_open(NULL, FA_STORE_READ_WRITE, NULL, &store, NULL, &diag), FA_EINVAL);
    CHECK_INT(fa_store_open("", FA_STORE_READ_WRITE, NULL, &store, NULL, &diag), FA_EINVAL);
    snprintf(path, sizeof path, "%s/new/", db_directory);
    CHECK_INT(fa_store_open(path, FA_STORE_READ_WRITE, NULL, &store, NULL, &diag), FA_EINVAL);
    CHECK_INT(fa_store_open(db_path, FA_STORE_READ_ONLY, NULL, &store, NULL, &diag), FA_ENOTFOUND);
    CHECK_INT(db_count_files("store"), 0);
    static const char *const addresses[] = {"mysql://fa:s3cret@h/fleet", "sqlite://store.db",
                                            "postgresql:/fa:s3cret@h/fleet"};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        CHECK_FAILS(fa_store_open(addresses[i], FA_STORE_READ_WRITE, NULL, &store, NULL, &diag),
                    FA_EINVAL, "postgresql://USER@HOST/DATABASE");
        CHECK(strstr(diag.text, "s3cret") == NULL);
    }
    CHECK(store == NULL);
}

static void check_absent(const char *path)
{
    fa_store *store = NULL;
    CHECK_OK(fa_store_open(path, FA_STORE_EXISTING, NULL, &store, &note, &diag), diag);
    CHECK(fa_store_is_absent(store) && fa_store_is_read_only(store));
    CHECK_TEXT(fa_store_path(store), path);
    CHECK(!db_winner_is(store, 1, 1, &diag));
    CHECK_INT(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), FA_EREADONLY);
    fa_store_close(&store);
}

DB_TEST(a_store_for_reading_is_not_made_where_none_is)
{
    fa_store *store = NULL;
    char deeper[400];
    snprintf(deeper, sizeof deeper, "%s/no/such/store.db", db_directory);
    check_absent(db_path);
    check_absent(deeper);
    CHECK_INT(db_count_files(""), 2); /* . and .. */
    CHECK(fill_store(1));
    CHECK_OK(fa_store_open(db_path, FA_STORE_EXISTING, NULL, &store, &note, &diag), diag);
    CHECK(!fa_store_is_absent(store) && !fa_store_is_read_only(store));
    CHECK(db_winner_is(store, 1, 1, &diag));
    fa_store_close(&store);
}

static void default_path_body(void)
{
    char path[FA_STORE_PATH_MAX];
    setenv("HOME", "/home/ada", 1);
    setenv("XDG_CACHE_HOME", "/cache", 1);
    setenv("FA_TUNE_STORE", "/own/s.db", 1);
    CHECK_INT(fa_store_default_path("FA_TUNE_STORE", path, &diag), 0);
    CHECK_TEXT(path, "/own/s.db");
    setenv("FA_TUNE_STORE", "", 1);
    CHECK_INT(fa_store_default_path("FA_TUNE_STORE", path, &diag), 0);
    CHECK_TEXT(path, "/cache/fa-tune/store.db");
    setenv("XDG_CACHE_HOME", "relative", 1);
    CHECK_INT(fa_store_default_path("FA_TUNE_STORE", path, &diag), 0);
    CHECK_TEXT(path, "/home/ada/.cache/fa-tune/store.db");
    unsetenv("HOME");
    CHECK_FAILS(fa_store_default_path("FA_TUNE_STORE", path, &diag), FA_ESTORE, "FA_TUNE_STORE");
}

DB_TEST(the_default_path_follows_the_environment)
{
    CHECK_CHILD(default_path_body, "never");
}

/* ---- not writable ---------------------------------------------------------------------------*/
static void check_readable_only(void)
{
    CHECK_FAILS(open_rc(FA_STORE_READ_WRITE), FA_EREADONLY, "cannot be written");
    fa_store *store = NULL;
    CHECK_OK(fa_store_open(db_path, FA_STORE_READ_ONLY, NULL, &store, &note, &diag), diag);
    CHECK(fa_store_is_read_only(store));
    CHECK(db_winner_is(store, 1, 1, &diag));
    CHECK_INT(db_put_winner(store, 1, 2, FA_ORIGIN_MEASURED, NULL, &diag), FA_EREADONLY);
    CHECK(db_winner_is(store, 1, 1, &diag));
    fa_store_close(&store);
}

/* Permission bits do not bind root, so root becomes nobody first. */
static void become_bound(void)
{
    if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        SKIP("cannot give up root");
    if (access(db_directory, R_OK) != 0)
        SKIP("the directory for tests is closed to others");
}

static void read_only_file_body(void)
{
    become_bound();
    if (check_state.skipped == NULL)
        check_readable_only();
}

DB_TEST(what_a_user_may_not_write_is_opened_for_reading)
{
    static const struct {
        bool given; /* or root's */
        mode_t file, directory;
    } table[] = {{true, 0400, 0700}, {true, 0600, 0500}, {false, 0644, 0755}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        uid_t owner = table[i].given ? NOBODY : 0;
        CHECK(fill_store(1));
        if (geteuid() == 0 &&
            (chown(db_path, owner, owner) != 0 || chown(db_directory, owner, owner) != 0))
            SKIP("this root may not give files away");
        CHECK(chmod(db_path, table[i].file) == 0 && chmod(db_directory, table[i].directory) == 0);
        int child = table[i].given || geteuid() == 0 ? in_child(read_only_file_body) : 0;
        CHECK(chmod(db_path, 0600) == 0 && chmod(db_directory, 0700) == 0);
        if (geteuid() == 0)
            CHECK(chown(db_path, 0, 0) == 0 && chown(db_directory, 0, 0) == 0);
        if (child == DB_CANNOT)
            SKIP("cannot become an ordinary user here");
        CHECK_INT(child, 0);
    }
}

/* ---- full disk ------------------------------------------------------------------------------*/
/* Fills until FA_EFULL; then what was stored is there, and after `make_room` it goes on. */
static void check_full(void (*make_room)(void))
{
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    int32_t stored = 0;
    int rc = 0;
    while (stored < 1000 && rc == 0) {
        rc =
            db_put_winner(store, stored + 1, (uint32_t)stored + 1, FA_ORIGIN_MEASURED, NULL, &diag);
        stored += rc == 0;
    }
    if (rc != FA_EFULL)
        printf("# %s\n", diag.text);
    CHECK_FAILS(rc, FA_EFULL, "no space");
    CHECK(stored > 3);
    for (int32_t i = 1; i <= stored; i++)
        CHECK(db_winner_is(store, i, (uint32_t)i, &diag));
    CHECK(!db_winner_is(store, stored + 1, (uint32_t)stored + 1, &diag));
    CHECK_INT(db_put_winner(store, 999, 999, FA_ORIGIN_MEASURED, NULL, &diag), FA_EFULL);
    make_room();
    CHECK_OK(db_put_winner(store, 999, 999, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_winner_is(store, 999, 999, &diag) &&
          db_winner_is(store, stored, (uint32_t)stored, &diag));
    fa_store_close(&store);
    CHECK_INT(open_rc(FA_STORE_READ_WRITE), 0);
    CHECK_TEXT(note.text, "");
}

static void limit_file_size(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void lift_limit(void)
{
    limit_file_size(16 << 20);
}

static void file_limit_body(void)
{
    signal(SIGXFSZ, SIG_IGN);
    limit_file_size(400000);
    check_full(lift_limit);
}

DB_TEST(a_limit_on_file_sizes_is_a_full_disk_and_the_store_stays_usable)
{
    CHECK_CHILD(file_limit_body, "never");
}

static void no_room_to_begin_body(void)
{
    signal(SIGXFSZ, SIG_IGN);
    limit_file_size(1000);
    CHECK_INT(open_rc(FA_STORE_READ_WRITE), FA_EFULL);
    lift_limit();
    CHECK_INT(open_rc(FA_STORE_READ_WRITE), 0);
    CHECK_TEXT(note.text, "");
    CHECK(fill_store(1));
}

DB_TEST(a_store_that_found_no_room_to_begin_begins_when_there_is)
{
    CHECK_CHILD(no_room_to_begin_body, "never");
}
