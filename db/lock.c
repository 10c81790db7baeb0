/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks of a file are bytes of STORE.lock beside it, each held by a descriptor of its own (F_OFD_SETLK): so threads exclude
 * one another, too, and whoever dies holds none. Where a name's byte stands is a hash of the name.
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
#include <unistd.h>

enum { LOCK_NAME_MAX = 160 };

struct fa_lock {
    int fd;
    bool shared;
    pid_t pid;       /* a forked child shares the open file: it may close it, never unlock it */
    fa_store *store; /* of a server's; NULL: a file's */
    fa_lock *next;   /* of a server's */
    char name[LOCK_NAME_MAX];
};

static int set_byte(const fa_lock *lock, short type)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *c = lock->name; *c != 0; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    struct flock byte = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)(hash >> 2), .l_len = 1};
    return fcntl(lock->fd, F_OFD_SETLK, &byte);
}

static fa_lock *new_lock(fa_store *store, const char *name, bool shared)
{
    fa_lock *lock = calloc(1, sizeof *lock);
    if (lock == NULL)
        return NULL;
    *lock = (fa_lock){.fd = -1, .shared = shared, .pid = getpid(), .store = store};
    snprintf(lock->name, sizeof lock->name, "%s", name);
    return lock;
}

int fa_lock_of_file(const char *store_path, const char *name, bool shared, fa_lock **ret_lock,
                    fa_diag *diag)
{
    fa_lock *lock = new_lock(NULL, name, shared);
    int rc = lock == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory")
                          : fa_db_open_lock_file(store_path, &lock->fd, diag);
    if (rc == 0 && set_byte(lock, shared ? F_RDLCK : F_WRLCK) == 0) {
        *ret_lock = lock;
        return 0;
    }
    if (rc == 0) {
        rc = errno == EAGAIN || errno == EACCES
                 ? FA_EBUSY
                 : fa_fail(diag, FA_EIO, "cannot lock %s" FA_LOCK_ENDING ": %s", store_path,
                           strerror(errno));
        close(lock->fd);
    }
    free(lock);
    return rc;
}

/* ---- of a server ----------------------------------------------------------------------------*/
#define KEY "(hashtextextended(concat(current_schema(), ' ', CAST(? AS text)), 0)) AS integer)"

/* *ret_had: 1, it is ours now. */
static int try_server(fa_store *store, const fa_lock *lock, int64_t *ret_had, fa_diag *diag)
{
    return fa_db_find(store, diag, ret_had,
                      lock->shared ? "SELECT CAST(pg_try_advisory_lock_shared" KEY
                                   : "SELECT CAST(pg_try_advisory_lock" KEY,
                      fa_text(lock->name));
}

void fa_lock_take_again(fa_store *store)
{
    int64_t had;
    for (const fa_lock *lock = store->postgres->locks; lock != NULL; lock = lock->next)
        try_server(store, lock, &had, NULL);
}

static int lock_on_server(fa_store *store, const char *name, bool shared, fa_lock **ret_lock,
                          fa_diag *diag)
{
    int64_t had = 0;
    for (const fa_lock *held = store->postgres->locks; held != NULL; held = held->next)
        if (strcmp(held->name, name) == 0 && !(held->shared && shared))
            return FA_EBUSY;
    fa_lock *lock = new_lock(store, name, shared);
    if (lock == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    int rc = try_server(store, lock, &had, diag);
    if (rc != 0 || had != 1) {
        free(lock);
        return rc != 0 ? rc : FA_EBUSY;
    }
    lock->next = store->postgres->locks;
    *ret_lock = store->postgres->locks = lock;
    return 0;
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
    fa_lock *held = lock != NULL ? *lock : NULL;
    int64_t had;
    if (held == NULL)
        return;
    const bool own = held->pid == getpid();
    if (held->store == NULL && own)
        set_byte(held, F_UNLCK); /* a forked child may still have it open */
    if (held->store == NULL) {
        close(held->fd);
    } else if (own) {
        struct fa_postgres *postgres = held->store->postgres;
        fa_lock **at = &postgres->locks;
        while (*at != held)
            at = &(*at)->next;
        *at = held->next;
        if (postgres->connection != NULL && !held->store->spare.serves)
            fa_db_find(held->store, NULL, &had,
                       held->shared ? "SELECT CAST(pg_advisory_unlock_shared" KEY
                                    : "SELECT CAST(pg_advisory_unlock" KEY,
                       fa_text(held->name));
    }
    free(held);
    *lock = NULL;
}
