/* SPDX-License-Identifier: Apache-2.0
 *
 * Where this library or program itself lies.
 *
 * The kernel's table of mappings tells the file whose code runs. The dynamic linker only repeats the name that it
 * was given, which is "fa-tune" for a program found through PATH, and relative for a library opened by a
 * relative name: resolved against the current folder it may be anybody's file.
 */
#include "own_place.h"

#include "buf.h"
#include "error.h"
#include "places.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fa_own_directory(char *ret_path, size_t size)
{
    const uintptr_t here = (uintptr_t)&fa_own_directory;
    char line[PATH_MAX + 128];
    FILE *maps = fopen("/proc/self/maps", "re");
    ret_path[0] = 0;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        uintptr_t begin, end;
        int path = 0; /* "55e0-55f0 r-xp 00001000 fe:01 1234   /usr/bin/fa-tune" */
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &begin, &end, &path) < 2 ||
            here < begin || here >= end)
            continue;
        if (line[path] == '/') {
            size_t length = (size_t)(strrchr(line + path, '/') - (line + path));
            length = length > 0 ? length : 1; /* the root's slash is its name */
            if (length < size)
                snprintf(ret_path, size, "%.*s", (int)length, line + path);
        }
        break;
    }
    if (maps != NULL)
        fclose(maps);
}

void fa_own_file(const char *name, char *ret_path, size_t size)
{
    static const char *const places[] = {"%s/%s", "%s/../%s", "%s/../libexec/fa-tune/%s",
                                         "%s/../../libexec/fa-tune/%s"}; /* of lib/MULTIARCH */
    char here[PATH_MAX];
    fa_own_directory(here, sizeof here);
    for (size_t i = 0; i < sizeof places / sizeof *places && here[0] != 0; i++) {
        int length = snprintf(ret_path, size, places[i], here, name);
        if (length > 0 && (size_t)length < size && access(ret_path, R_OK) == 0)
            return;
    }
    snprintf(ret_path, size, "%s/%s", FA_TUNE_LIBEXECDIR, name);
}

int fa_own_config(const char *file, char *ret_path, size_t size)
{
    const char *config = secure_getenv("XDG_CONFIG_HOME"), *home = secure_getenv("HOME");
    int n;
    if (config != NULL && config[0] == '/')
        n = snprintf(ret_path, size, "%s/fa-tune%s", config, file);
    else if (home != NULL && home[0] == '/')
        n = snprintf(ret_path, size, "%s/.config/fa-tune%s", home, file);
    else
        return FA_ENOTFOUND;
    return n > 0 && (size_t)n < size ? 0 : FA_EINVAL;
}

int fa_owned_check(const struct stat *st, const char *path, const char *what, const char *which,
                   fa_diag *diag)
{
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return fa_fail(diag, FA_ESTORE, "%s %s: %s belongs to user %ld, neither to you nor to root",
                       what, path, which, (long)st->st_uid);
    if ((st->st_mode & 022) != 0)
        return fa_fail(diag, FA_ESTORE,
                       "%s %s: other users can write %s (mode %04o); chmod go-w it if it is yours "
                       "alone, or name another file",
                       what, path, which, (unsigned)(st->st_mode & 07777));
    return 0;
}

int fa_owned_open(const char *path, const char *what, int *ret_fd, fa_diag *diag)
{
    struct stat st, folder;
    char directory[PATH_MAX];
    fa_directory_of(path, directory);
    /* O_NONBLOCK: opening a FIFO must not hang. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW), rc = 0;
    if (fd < 0)
        return fa_fail(diag, errno == ENOENT || errno == ENOTDIR ? FA_ENOTFOUND : FA_EIO,
                       "%s %s: %s", what, path,
                       errno == ELOOP ? "is a symbolic link" : strerror(errno));
    if (fstat(fd, &st) != 0 || stat(directory, &folder) != 0)
        rc = fa_fail(diag, FA_EIO, "%s %s: %s", what, path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = fa_fail(diag, FA_ESTORE, "%s %s: not a regular file", what, path);
    if (rc == 0)
        rc = fa_owned_check(&st, path, what, "the file", diag);
    if (rc == 0)
        rc = fa_owned_check(&folder, path, what, "its directory", diag);
    if (rc != 0)
        close(fd);
    else
        *ret_fd = fd;
    return rc;
}

int fa_own_token(const char *path, unsigned refused, size_t least, size_t room, char *ret_token,
                 fa_diag *diag)
{
    struct stat st;
    FA_ENDS(fa_buf_free) fa_buf text = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int rc = 0;
    if (fd < 0 || fstat(fd, &st) != 0 || fa_buf_read_fd(&text, fd, 4096) != 0)
        rc = fa_fail(diag, FA_EIO, "the token file %s cannot be read", path);
    else if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & refused) != 0)
        rc = fa_fail(diag, FA_EUNTRUSTED,
                     "the token file %s is another user's, or others can %s it: chmod 600 it", path,
                     (refused & 044) != 0 ? "read" : "write to");
    if (fd >= 0)
        close(fd);
    size_t size = text.size, plain = 0;
    while (size > 0 && strchr("\r\n \t", text.data[size - 1]) != NULL)
        size--;
    while (plain < size && text.data[plain] > ' ' && text.data[plain] <= '~')
        plain++;
    if (rc == 0 && (plain < size || size < least || size >= room))
        rc = fa_fail(diag, FA_EINVAL,
                     "the token file %s must hold one word of %zu to %zu printable bytes", path,
                     least, room - 1);
    if (rc == 0)
        snprintf(ret_token, room, "%.*s", (int)size, text.data);
    if (text.data != NULL)
        explicit_bzero(text.data, text.size);
    return rc;
}
