/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a store may live. SQLite's locks hold on local file systems only, and a cache whose
 * kernels run in the caller's process must not be writable by anybody else: such places are
 * refused here, with the reason, before SQLite opens (and perhaps recovers) anything.
 *
 * The store's file itself is never opened here: closing any descriptor of a file drops every lock
 * that this process holds on it, so only SQLite opens it.
 *
 * Locks of a file are bytes of STORE.lock beside it, each held by a descriptor of its own (F_OFD_SETLK): so threads exclude
 * one another, too, and whoever dies holds none. Where a name's byte stands is a hash of the name.
 */
#include "sqlite.h"

#include "buf.h"
#include "database.h"
#include "statements.h"
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

int fa_db_errno(int error)
{
    static const int codes[][2] = {
        {ENOSPC, FA_EFULL},     {EDQUOT, FA_EFULL},     {EFBIG, FA_EFULL},
        {EROFS, FA_EREADONLY},  {EACCES, FA_EREADONLY}, {EPERM, FA_EREADONLY},
        {ENOENT, FA_ENOTFOUND}, {ENOMEM, FA_ENOMEM},    {ENOTDIR, FA_ESTORE},
        {ELOOP, FA_ESTORE},     {EISDIR, FA_ESTORE},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i][0] == error)
            return codes[i][1];
    return FA_EIO;
}

/* The file in the cache directory; its length, as snprintf() tells it, or -1: nobody says where that is. */
static int cache_path(char path[FA_STORE_PATH_MAX])
{
    const char *cache = secure_getenv("XDG_CACHE_HOME");
    const char *home = secure_getenv("HOME");
    if (cache != NULL && cache[0] == '/')
        return snprintf(path, FA_STORE_PATH_MAX, "%s/fa-tune/store.db", cache);
    if (home != NULL && home[0] == '/')
        return snprintf(path, FA_STORE_PATH_MAX, "%s/.cache/fa-tune/store.db", home);
    return -1;
}

int fa_store_default_path(const char *variable, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag)
{
    const char *own = secure_getenv(variable);
    char path[FA_STORE_PATH_MAX];
    int n = own != NULL && own[0] != 0 ? snprintf(path, sizeof path, "%s", own) : cache_path(path);
    if (n < 0)
        return fa_fail(diag, FA_ESTORE, "no place for the store: HOME is not set; set %s to a file",
                       variable);
    if ((size_t)n >= sizeof path)
        return fa_fail(diag, FA_EINVAL, "the store's path is %d bytes long: shorten %s", n,
                       variable);
    memcpy(ret_path, path, (size_t)n + 1);
    return 0;
}

/* Another name may be a person's mistake. */
static bool is_cache_path(const char *path)
{
    char cache[FA_STORE_PATH_MAX];
    int n = cache_path(cache);
    return n > 0 && (size_t)n < sizeof cache && strcmp(path, cache) == 0;
}

int fa_db_need_directory(const char *path, fa_diag *diag)
{
    char directory[PATH_MAX];
    struct stat st;
    fa_directory_of(path, directory);
    if (is_cache_path(path) || stat(directory, &st) == 0 || errno != ENOENT)
        return 0;
    return fa_fail(diag, FA_ESTORE,
                   "store %s: the folder %s does not exist; make it, or name another file", path,
                   directory);
}

static int resolve_new(const char *path, bool create, char ret_path[2 * PATH_MAX], fa_diag *diag)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    char directory[PATH_MAX], real[PATH_MAX];
    fa_directory_of(path, directory);
    if (base[0] == 0 || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
        return fa_fail(diag, FA_EINVAL, "store %s: this names a directory, not a file", path);
    int rc = create ? fa_db_need_directory(path, diag) : 0, error = 0;
    for (size_t i = 1; rc == 0 && create && is_cache_path(path) && i <= strlen(directory); i++)
        if (directory[i] == '/' || directory[i] == 0) { /* every one that is missing */
            char part[FA_STORE_PATH_MAX];
            snprintf(part, sizeof part, "%.*s", (int)i, directory);
            if (mkdir(part, 0700) != 0 && errno != ENOENT) /* of one that it needs */
                error = errno;
        }
    if (rc != 0)
        return rc;
    if (error != 0 && access(directory, F_OK) != 0)
        return fa_fail(diag, fa_db_errno(error), "cannot make directory %s for the store: %s",
                       directory, strerror(error));
    if (realpath(directory, real) == NULL)
        return fa_fail(diag, fa_db_errno(errno), "store %s: %s", path, strerror(errno));
    struct stat st;
    snprintf(ret_path, 2 * PATH_MAX, "%s/%s", strcmp(real, "/") == 0 ? "" : real, base);
    return lstat(ret_path, &st) == 0 && S_ISLNK(st.st_mode)
               ? fa_fail(diag, FA_ESTORE, "store %s: a symbolic link to nothing; remove it", path)
               : 0;
}

/* "mysql://…", "postgresql:/…": no directory is made of what was meant as an address, whose password
 * would be its name. */
static int refuse_address(const char *path, fa_diag *diag)
{
    size_t n = strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");
    if (n < 2 || path[n] != ':' || path[n + 1] != '/')
        return 0;
    return fa_fail(diag, FA_EINVAL,
                   "the store's address %.*s:/… is of no kind that is known: use a file, or "
                   "postgresql://USER@HOST/DATABASE",
                   (int)(n < 20 ? n : 20), path);
}

int fa_db_resolve(const char *path, bool create, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag)
{
    if (path == NULL || path[0] == 0)
        return fa_fail(diag, FA_EINVAL, "the store has no path: set FA_TUNE_STORE to a file");
    if (strlen(path) + FA_STORE_SUFFIX_MAX >= FA_STORE_PATH_MAX)
        return fa_fail(diag, FA_EINVAL, "the store's path is too long: shorten FA_TUNE_STORE");
    char real[2 * PATH_MAX];
    int rc = refuse_address(path, diag);
    if (rc == 0 && realpath(path, real) == NULL)
        rc = errno == ENOENT
                 ? resolve_new(path, create, real, diag)
                 : fa_fail(diag, fa_db_errno(errno), "store %s: %s", path, strerror(errno));
    if (rc == 0 && strlen(real) + FA_STORE_SUFFIX_MAX >= FA_STORE_PATH_MAX)
        rc = fa_fail(diag, FA_EINVAL, "store %s: the path is too long", path);
    if (rc == 0)
        memcpy(ret_path, real, strlen(real) + 1);
    return rc;
}

/* File systems on which locks or fsync are another machine's word. Values from the kernel's
 * uapi/linux/magic.h and statfs(2). FUSE is here because nobody can tell what is behind it. */
static const char *network_name(unsigned long f_type)
{
    static const struct {
        uint32_t type;
        const char *name;
    } table[] = {
        {0x6969, "NFS"},        {0x517b, "SMB"},        {0xff534d42u, "CIFS"},
        {0xfe534d42u, "SMB2"},  {0x5346414f, "AFS"},    {0x6b414653, "AFS"},
        {0x73757245, "Coda"},   {0x564c, "NCP"},        {0x00c36400, "Ceph"},
        {0x01021997, "9P"},     {0x65735546, "FUSE"},   {0x0bd00bd0, "Lustre"},
        {0x47504653, "GPFS"},   {0x19830326, "BeeGFS"}, {0x7461636f, "OCFS2"},
        {0x01161970, "GFS2"},   {0xaad7aaeau, "PanFS"}, {0x20030528, "OrangeFS"},
        {0x786f4256, "vboxsf"}, {0x7c7c6673, "prl_fs"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].type == (uint32_t)f_type)
            return table[i].name;
    return NULL;
}

int fa_db_check_directory(const char *path, fa_diag *diag)
{
    char directory[PATH_MAX];
    fa_directory_of(path, directory);
    struct statfs fs;
    struct stat st;
    if (statfs(directory, &fs) != 0 || stat(directory, &st) != 0)
        return fa_fail(diag, fa_db_errno(errno), "store %s: %s", path, strerror(errno));
    const char *network = network_name((unsigned long)fs.f_type);
    if (network != NULL)
        return fa_fail(diag, FA_ESTORE,
                       "store %s: it is on a %s file system, where locks cannot be relied on; set "
                       "FA_TUNE_STORE to a file on a local disk",
                       path, network);
    return fa_owned_check(&st, path, "store", "its directory", diag);
}

int fa_db_check_file(const char *path, struct stat *ret_stat, fa_diag *diag)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return fa_fail(diag, fa_db_errno(errno), "store %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fa_fail(diag, FA_ESTORE, "store %s: it is %s: name a file", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
    /* Root's file is fine to read (a store shipped with a system); writing it fails by itself. */
    FA_OR_RETURN(fa_owned_check(&st, path, "store", "the file", diag));
    *ret_stat = st;
    return 0;
}

int fa_db_check_writable(const char *path, fa_diag *diag)
{
    char directory[PATH_MAX];
    fa_directory_of(path, directory);
    if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0 &&
        faccessat(AT_FDCWD, directory, W_OK, AT_EACCESS) == 0)
        return 0;
    return fa_fail(diag, FA_EREADONLY, "store %s cannot be written: %s", path, strerror(errno));
}

/* Without a descriptor: closing one would drop locks that another thread of this process holds on the store already. */
int fa_db_create_empty(const char *path, fa_diag *diag)
{
    if (mknod(path, S_IFREG | 0600, 0) == 0 || errno == EEXIST)
        return 0;
    const int code = fa_db_errno(errno);
    return fa_fail(diag, code == FA_ENOTFOUND ? FA_EIO : code, "cannot make store %s: %s", path,
                   strerror(errno));
}

/* ---- STORE.lock -----------------------------------------------------------------------------*/
/* Makes the file where it is missing: mode 0600, ours alone, since whoever can write it can hold every lock of it for
 * ever. */
static int open_lock_file(const char *store_path, int *ret_fd, fa_diag *diag)
{
    char path[FA_STORE_PATH_MAX + 16];
    struct stat st;
    FA_OR_RETURN(fa_db_check_directory(store_path, diag));
    snprintf(path, sizeof path, "%s" FA_LOCK_ENDING, store_path);
    FA_ENDS(fa_close_at)
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        (st.st_mode & 022) == 0) {
        *ret_fd = fd, fd = -1;
        return 0;
    }
    const int code = fd >= 0 || errno == ENXIO ? FA_ESTORE : fa_db_errno(errno);
    if (code == FA_ESTORE)
        fa_fail(diag, code, "%s must be a file of your own that nobody else can write: remove it",
                path);
    else
        fa_fail(diag, code == FA_ENOTFOUND ? FA_EIO : code, "cannot open %s: %s", path,
                strerror(errno));
    return code == FA_ENOTFOUND ? FA_EIO : code;
}

static int set_byte(const fa_lock *lock, short type)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *c = lock->name; *c != 0; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    struct flock byte = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)(hash >> 2), .l_len = 1};
    return fcntl(lock->fd, F_OFD_SETLK, &byte);
}

static void release_byte(fa_lock *lock)
{
    if (lock->pid == getpid())
        set_byte(lock, F_UNLCK); /* a forked child may still have it open */
    close(lock->fd);
}

int fa_lock_of_file(const char *store_path, const char *name, bool shared, fa_lock **ret_lock,
                    fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_lock *lock = fa_db_lock_new(name, shared, release_byte);
    int rc = lock == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory")
                          : open_lock_file(store_path, &lock->fd, diag);
    if (rc == 0 && set_byte(lock, shared ? F_RDLCK : F_WRLCK) == 0) {
        *ret_lock = lock, lock = NULL;
        return 0;
    }
    if (rc == 0) {
        rc = errno == EAGAIN || errno == EACCES
                 ? FA_EBUSY
                 : fa_fail(diag, FA_EIO, "cannot lock %s" FA_LOCK_ENDING ": %s", store_path,
                           strerror(errno));
        close(lock->fd);
    }
    return rc;
}
