/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks of a file are flock(2) on STORE.locks/NAME. Whoever holds it alone removes the file before it lets go, so
 * that names do not pile up; whoever gets the lock checks that the file it locked is still the one of
 * that name, and starts again otherwise. A killed holder leaves its file, which harms nobody.
 *
 * Locks of a server are its advisory locks, which end with their session. A session may take the same one twice, so it
 * keeps a list of what it holds.
 */
#include "store.h"

#include "postgres.h"
#include "sqlite.h"
#include "statements.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_NAME_MAX = 160 };

struct fa_lock {
    int fd;
    int kind;        /* LOCK_EX or LOCK_SH */
    pid_t pid;       /* a forked child shares the open file: it may close it, never unlock it */
    fa_store *store; /* of a server's; NULL: a file's */
    fa_lock *next;   /* of a server's */
    char path[FA_STORE_PATH_MAX + LOCK_NAME_MAX + 16];
};

/* The lock's directory is made only beside a store, or where a store is about to be made, so that a wrong
 * path does not leave a directory beside some other file. */
static int check_is_store(const char *path, fa_diag *diag)
{
    struct stat st, now;
    fa_sqlite_header kind;
    do { /* again when another file took the name meanwhile: a store that was just set aside */
        int rc = fa_db_check_file(path, &st, diag);
        if (rc != 0)
            return rc == FA_ENOTFOUND ? 0 : rc;
        if (fa_db_is_marked(path))
            return 0;
        if (fa_sqlite_kind_of(path, &kind) == 0 &&
            (kind == FA_HEADER_OURS || kind == FA_HEADER_OTHER_VERSION || kind == FA_HEADER_EMPTY))
            return 0; /* empty: a store that another process is just making */
    } while (lstat(path, &now) != 0 || now.st_ino != st.st_ino || now.st_dev != st.st_dev);
    return fa_fail(diag, FA_ESTORE, "%s is not a store, so nothing is locked there", path);
}

/* One try; FA_EBUSY: somebody else holds it. */
static int try_file(fa_lock *lock, fa_diag *diag)
{
    const char *path = lock->path;
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0) {
            int code = fa_db_errno(errno);
            return fa_fail(diag, code == FA_ENOTFOUND ? FA_EIO : code, "cannot open lock %s: %s",
                           path, strerror(errno));
        }
        struct stat held, named;
        int rc;
        do
            rc = flock(fd, lock->kind | LOCK_NB);
        while (rc != 0 && errno == EINTR);
        int error = rc != 0 ? errno : 0;
        if (rc == 0 && fstat(fd, &held) == 0 && lstat(path, &named) == 0 &&
            held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
            lock->fd = fd;
            return 0;
        }
        close(fd);
        if (error == EWOULDBLOCK)
            return FA_EBUSY;
        if (error != 0)
            return fa_fail(diag, FA_EIO, "cannot lock %s: %s", path, strerror(error));
    }
}

static fa_lock *new_lock(fa_store *store, const char *folder, const char *name, bool shared)
{
    fa_lock *lock = calloc(1, sizeof *lock);
    if (lock == NULL)
        return NULL;
    *lock =
        (fa_lock){.fd = -1, .kind = shared ? LOCK_SH : LOCK_EX, .pid = getpid(), .store = store};
    snprintf(lock->path, sizeof lock->path, "%s%s%s", folder, folder[0] != 0 ? "/" : "", name);
    return lock;
}

/* Gives the lock out, or forgets it. */
static int end_lock(fa_lock *lock, int rc, fa_lock **ret_lock)
{
    if (rc == 0)
        *ret_lock = lock;
    else
        free(lock);
    return rc;
}

int fa_lock_of_file(const char *store_path, const char *name, bool shared, fa_lock **ret_lock,
                    fa_diag *diag)
{
    char store[FA_STORE_PATH_MAX], directory[FA_LOCKS_PATH_MAX];
    int rc;
    if ((rc = fa_db_resolve(store_path, true, store, diag)) != 0 ||
        (rc = check_is_store(store, diag)) != 0 ||
        (rc = fa_db_locks_directory(store, directory, diag)) != 0)
        return rc;
    fa_lock *lock = new_lock(NULL, directory, name, shared);
    return lock == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory")
                        : end_lock(lock, try_file(lock, diag), ret_lock);
}

/* ---- of a server ----------------------------------------------------------------------------*/
#define KEY "(hashtextextended(concat(current_schema(), ' ', CAST(? AS text)), 0)) AS integer)"

/* *ret_had: it is ours now, or none any more. */
static int ask_server(fa_store *store, const char *sql, const fa_lock *lock, bool *ret_had,
                      fa_diag *diag)
{
    fa_binder binder = fa_db_prepare(store, sql, diag);
    int64_t had = 0;
    fa_bind(&binder, fa_text(lock->path));
    int rc = fa_db_run_id(store, &binder, &had, diag);
    *ret_had = rc == 0 && had == 1;
    return rc;
}

static int try_server(fa_store *store, const fa_lock *lock, bool *ret_had, fa_diag *diag)
{
    return ask_server(store,
                      lock->kind == LOCK_SH ? "SELECT CAST(pg_try_advisory_lock_shared" KEY
                                            : "SELECT CAST(pg_try_advisory_lock" KEY,
                      lock, ret_had, diag);
}

void fa_lock_take_again(fa_store *store)
{
    bool had;
    for (const fa_lock *lock = store->postgres->locks; lock != NULL; lock = lock->next)
        try_server(store, lock, &had, NULL);
}

static int lock_on_server(fa_store *store, const char *name, bool shared, fa_lock **ret_lock,
                          fa_diag *diag)
{
    bool had = true;
    for (const fa_lock *held = store->postgres->locks; held != NULL; held = held->next)
        if (strcmp(held->path, name) == 0 && (held->kind == LOCK_EX || !shared))
            return FA_EBUSY;
    fa_lock *lock = new_lock(store, "", name, shared);
    if (lock == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    int rc = try_server(store, lock, &had, diag);
    if (rc != 0 || !had)
        return end_lock(lock, rc != 0 ? rc : FA_EBUSY, ret_lock);
    lock->next = store->postgres->locks;
    store->postgres->locks = lock;
    return end_lock(lock, 0, ret_lock);
}

static void unlock_on_server(fa_lock *lock)
{
    fa_store *store = lock->store;
    fa_lock **at = &store->postgres->locks;
    bool had;
    while (*at != lock)
        at = &(*at)->next;
    *at = lock->next;
    if (store->postgres->connection != NULL && !store->spare.serves)
        ask_server(store,
                   lock->kind == LOCK_SH ? "SELECT CAST(pg_advisory_unlock_shared" KEY
                                         : "SELECT CAST(pg_advisory_unlock" KEY,
                   lock, &had, NULL);
}

/* ---- of either ------------------------------------------------------------------------------*/
int fa_store_lock(fa_store *store, const char *name, bool shared, fa_lock **ret_lock, fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    if (rc != 0)
        return rc;
    return store->postgres != NULL && !store->spare.serves
               ? lock_on_server(store, name, shared, ret_lock, diag)
               : fa_lock_of_file(store->path, name, shared, ret_lock, diag);
}

void fa_lock_release(fa_lock **lock)
{
    if (lock == NULL || *lock == NULL)
        return;
    if ((*lock)->store != NULL) {
        if ((*lock)->pid == getpid())
            unlock_on_server(*lock);
    } else {
        if ((*lock)->pid == getpid()) {
            if ((*lock)->kind == LOCK_EX) /* others may share it */
                unlink((*lock)->path);
            flock((*lock)->fd, LOCK_UN); /* a forked child may still have it open */
        }
        close((*lock)->fd);
    }
    free(*lock);
    *lock = NULL;
}
