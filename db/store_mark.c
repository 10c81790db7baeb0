/* SPDX-License-Identifier: Apache-2.0
 *
 * The mark is a symbolic link, STORE.locks/.store, whose text names a file by its device, inode and time
 * of birth: it is made and read whole by one call each, and a file that comes to the store's name later
 * does not fit it, not even one that was given the same inode.
 */
#include "store_mark.h"

#include "paths.h"

#include "../src/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IDENTITY_MAX = 128 };

int fa_db_locks_directory(const char *store_path, char *ret_directory, size_t size, fa_diag *diag)
{
    int rc = fa_db_check_directory(store_path, diag);
    if (rc != 0)
        return rc;
    snprintf(ret_directory, size, "%s" FA_LOCKS_ENDING, store_path);
    if (mkdir(ret_directory, 0700) != 0 && errno != EEXIST) {
        struct stat st;
        int error = errno;
        if (stat(ret_directory, &st) != 0)
            return fa_fail(diag, fa_db_errno(error), "cannot make directory %s for locks: %s",
                           ret_directory, strerror(error));
    }
    struct stat st;
    if (lstat(ret_directory, &st) != 0)
        return fa_fail(diag, FA_EIO, "directory %s for locks: %s", ret_directory, strerror(errno));
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022) != 0)
        return fa_fail(diag, FA_ESTORE,
                       "%s must be a directory of your own that nobody else can write: remove it",
                       ret_directory);
    return 0;
}

static bool identify(const char *path, char ret_text[IDENTITY_MAX])
{
    struct statx file;
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &file) != 0)
        return false;
    bool born = (file.stx_mask & STATX_BTIME) != 0; /* some file systems do not say */
    snprintf(ret_text, IDENTITY_MAX, "device %u:%u inode %llu born %lld.%09u", file.stx_dev_major,
             file.stx_dev_minor, (unsigned long long)file.stx_ino,
             born ? (long long)file.stx_btime.tv_sec : 0, born ? file.stx_btime.tv_nsec : 0);
    return true;
}

static bool mark_says(const char *mark, const char *identity)
{
    char text[IDENTITY_MAX];
    ssize_t size = readlink(mark, text, sizeof text);
    return size > 0 && (size_t)size == strlen(identity) &&
           memcmp(text, identity, (size_t)size) == 0;
}

bool fa_db_is_marked(const char *store_path)
{
    char mark[FA_STORE_PATH_MAX + 32], identity[IDENTITY_MAX];
    struct stat st;
    snprintf(mark, sizeof mark, "%s" FA_LOCKS_ENDING, store_path);
    if (lstat(mark, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
        (st.st_mode & 022) != 0)
        return false;
    snprintf(mark, sizeof mark, "%s" FA_LOCKS_ENDING "/.store", store_path);
    return identify(store_path, identity) && mark_says(mark, identity);
}

void fa_db_mark_store(const char *store_path)
{
    char directory[FA_STORE_PATH_MAX + 16], identity[IDENTITY_MAX];
    char mark[FA_STORE_PATH_MAX + 32], fresh[FA_STORE_PATH_MAX + 64];
    if (!identify(store_path, identity) ||
        fa_db_locks_directory(store_path, directory, sizeof directory, NULL) != 0)
        return;
    snprintf(mark, sizeof mark, "%s/.store", directory);
    if (mark_says(mark, identity))
        return;
    snprintf(fresh, sizeof fresh, "%s/.store.%ld", directory, (long)getpid());
    unlink(fresh); /* of a process that was killed and had our number */
    if (symlink(identity, fresh) != 0 || rename(fresh, mark) != 0)
        unlink(fresh);
}
