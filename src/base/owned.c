/* SPDX-License-Identifier: Apache-2.0 */
#include "owned.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_owner(const struct stat *st, const char *path, const char *what, const char *whose,
                       fa_diag *diag)
{
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return fa_fail(diag, FA_ESTORE, "%s %s: %s belongs to user %ld, neither to you nor to root",
                       what, path, whose, (long)st->st_uid);
    if ((st->st_mode & 022) != 0)
        return fa_fail(diag, FA_ESTORE,
                       "%s %s: other users can write %s (mode %04o), so it is not believed: chmod "
                       "go-w it if what is in it is yours",
                       what, path, whose, (unsigned)(st->st_mode & 07777));
    return 0;
}

static int check_directory(const char *path, const char *what, fa_diag *diag)
{
    char directory[4096];
    struct stat st;
    const char *slash = strrchr(path, '/');
    int n = slash == NULL ? snprintf(directory, sizeof directory, ".")
            : slash == path
                ? snprintf(directory, sizeof directory, "/")
                : snprintf(directory, sizeof directory, "%.*s", (int)(slash - path), path);
    if (n < 0 || (size_t)n >= sizeof directory)
        return fa_fail(diag, FA_EINVAL, "%s: the path is too long", what);
    if (stat(directory, &st) != 0)
        return fa_fail(diag, FA_EIO, "%s %s: %s", what, path, strerror(errno));
    return check_owner(&st, path, what, "its directory", diag);
}

int fa_owned_open(const char *path, const char *what, int *ret_fd, fa_diag *diag)
{
    struct stat st;
    /* O_NONBLOCK: opening a FIFO must not hang. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return fa_fail(diag, errno == ENOENT || errno == ENOTDIR ? FA_ENOTFOUND : FA_EIO,
                       "%s %s: %s", what, path,
                       errno == ELOOP ? "is a symbolic link" : strerror(errno));
    int rc = 0;
    if (fstat(fd, &st) != 0)
        rc = fa_fail(diag, FA_EIO, "%s %s: %s", what, path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = fa_fail(diag, FA_ESTORE, "%s %s: not a regular file", what, path);
    if (rc == 0)
        rc = check_owner(&st, path, what, "the file", diag);
    if (rc == 0)
        rc = check_directory(path, what, diag);
    if (rc != 0) {
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}
