/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks between processes and between threads: one holds, the others wait, a killed holder lets go.
 */
#include "db_fixture.h"

#include "sqlite.h"

#include "threads.h"
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

static int take(const char *name, fa_lock **ret_lock)
{
    return fa_lock_of_file(db_path, name, false, ret_lock, &diag);
}

DB_TEST(a_lock_is_taken_and_given_back)
{
    fa_lock *lock = NULL;
    CHECK_OK(take("tune-abc_1", &lock), diag);
    CHECK(lock != NULL);
    char path[400];
    struct stat st;
    snprintf(path, sizeof path, "%s.lock", db_path);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600);
    fa_lock_release(&lock);
    CHECK(lock == NULL);
    fa_lock_release(&lock);
    fa_lock_release(NULL);
    CHECK_OK(take("tune-abc_1", &lock), diag);
    fa_lock_release(&lock);
}

DB_TEST(two_names_are_two_locks_and_one_name_is_one_even_through_a_link)
{
    fa_lock *a = NULL, *b = NULL, *c = NULL;
    CHECK_OK(take("a", &a), diag);
    CHECK_OK(take("b", &b), diag);
    CHECK_INT(take("a", &c), FA_EBUSY);
    char other[400];
    snprintf(other, sizeof other, "%s/../%s/store.db", db_directory, strrchr(db_directory, '/'));
    CHECK_INT(fa_lock_of_file(other, "a", false, &c, &diag), FA_EBUSY);
    CHECK(c == NULL);
    fa_lock_release(&a);
    CHECK_OK(fa_lock_of_file(other, "a", false, &c, &diag), diag);
    fa_lock_release(&b);
    fa_lock_release(&c);
}

DB_TEST(a_forked_child_cannot_let_go_of_its_parents_lock)
{
    fa_lock *lock = NULL, *second = NULL;
    CHECK_OK(take("k", &lock), diag);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fa_lock_release(&lock);
        _exit(lock == NULL ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK_INT(take("k", &second), FA_EBUSY);
    fa_lock_release(&lock);
    CHECK_OK(take("k", &second), diag);
    fa_lock_release(&second);
}

DB_TEST(a_file_of_locks_that_others_can_write_is_refused)
{
    fa_lock *lock = NULL;
    char path[400];
    snprintf(path, sizeof path, "%s.lock", db_path);
    CHECK(check_write_file(path, "", 0) && chmod(path, 0666) == 0);
    CHECK_INT(take("k", &lock), FA_ESTORE);
    CHECK_INT(unlink(path), 0);
    CHECK_INT(symlink("/tmp/nothing", path), 0);
    CHECK_INT(take("k", &lock), FA_ESTORE);
    CHECK(unlink(path) == 0 && mkdir(path, 0700) == 0);
    CHECK_INT(take("k", &lock), FA_ESTORE);
    CHECK(lock == NULL);
}

/* ---- one at a time --------------------------------------------------------------------------*/
enum { HOLDERS = 4, TURNS = 300 };

struct room {
    int inside, together, turns;
};

/* Asks again at once, so that it often asks while another is letting go. */
static bool take_turns(struct room *room)
{
    for (int i = 0; i < TURNS; i++) {
        fa_lock *lock = NULL;
        int rc;
        while ((rc = fa_lock_of_file(db_path, "turns", false, &lock, NULL)) == FA_EBUSY)
            sched_yield();
        if (rc != 0)
            return false;
        int others = __atomic_fetch_add(&room->inside, 1, __ATOMIC_SEQ_CST);
        sched_yield();
        __atomic_fetch_add(&room->together, others != 0, __ATOMIC_SEQ_CST);
        __atomic_fetch_add(&room->turns, 1, __ATOMIC_SEQ_CST);
        __atomic_fetch_sub(&room->inside, 1, __ATOMIC_SEQ_CST);
        fa_lock_release(&lock);
    }
    return true;
}

DB_TEST(processes_take_turns)
{
    struct room *room =
        mmap(NULL, sizeof *room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    pid_t child[HOLDERS];
    int bad = 0;
    fflush(stdout);
    for (int i = 0; i < HOLDERS; i++) {
        child[i] = fork();
        if (child[i] == 0)
            _exit(take_turns(room) ? 0 : 1);
    }
    for (int i = 0; i < HOLDERS; i++) {
        int status = -1;
        bad += child[i] < 0 || waitpid(child[i], &status, 0) != child[i] || status != 0;
    }
    struct room end = *room;
    munmap(room, sizeof *room);
    CHECK_INT(bad, 0);
    CHECK_INT(end.together, 0);
    CHECK_INT(end.turns, HOLDERS * TURNS);
}

static void *thread_body(void *context)
{
    return take_turns(context) ? NULL : context;
}

DB_TEST(threads_of_one_process_take_turns)
{
    struct room room = {0};
    CHECK_INT(run_threads(thread_body, &room, 0, HOLDERS), 0);
    CHECK_INT(room.together, 0);
    CHECK_INT(room.turns, HOLDERS * TURNS);
}

/* What happens while this process waits for a lock. */
static void (*while_waiting)(void);

int nanosleep(const struct timespec *pause, struct timespec *ret_left)
{
    if (while_waiting != NULL)
        while_waiting();
    while_waiting = NULL;
    int error = clock_nanosleep(CLOCK_MONOTONIC, 0, pause, ret_left);
    errno = error;
    return error == 0 ? 0 : -1;
}

static fa_lock *held;

/* Another program writes a letter into the file, which nothing marks as a store any more. */
static void write_letter_and_let_go(void)
{
    char mark[400];
    snprintf(mark, sizeof mark, "%s.lock", db_path);
    FILE *file = fopen(db_path, "r+b"); /* the same inode */
    CHECK(file != NULL && fputs("Dear aunt,\n", file) >= 0 && fclose(file) == 0);
    CHECK(truncate(db_path, 11) == 0 && unlink(mark) == 0);
    fa_lock_release(&held);
}

DB_TEST(what_is_no_store_any_more_once_the_lock_is_had_is_not_set_aside)
{
    CHECK(fill_store(3));
    fa_store *store = db_open(&diag);
    CHECK(store != NULL && db_winner_is(store, 1, 1, &diag));
    static char damage[4096];
    memset(damage, 0x5a, sizeof damage);
    struct stat st;
    int fd = open(db_path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    for (off_t at = sizeof damage; at < st.st_size; at += (off_t)sizeof damage)
        CHECK(pwrite(fd, damage, sizeof damage, at) == sizeof damage);
    CHECK_INT(close(fd), 0);
    fa_scope scope = db_scope(2);
    fa_winner_record winner = {0};
    CHECK_INT(fa_store_winner_get(store, &scope, &winner, NULL, &diag), FA_ECORRUPT);
    CHECK_OK(take("set-aside", &held), diag);
    while_waiting = write_letter_and_let_go;
    CHECK_FAILS(fa_store_winner_get(store, &scope, &winner, NULL, &diag), FA_ESTORE, "not a store");
    CHECK(while_waiting == NULL);
    fa_store_close(&store);
    fa_buf text;
    CHECK_INT(fa_buf_read_file(&text, db_path, 100), 0);
    CHECK(text.size == 11 && memcmp(text.data, "Dear aunt,\n", 11) == 0);
    fa_buf_free(&text);
    CHECK_INT(db_count_files("store.db.corrupt-"), 0);
}
