/* SPDX-License-Identifier: Apache-2.0 */
#include "buf.h"

#include "error.h"
#include "places.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool reserve(fa_buf *buf, size_t more)
{
    if (buf->failed || more > (size_t)1 << 40) {
        buf->failed = true;
        return false;
    }
    size_t need = buf->size + more + 1;
    if (need <= buf->capacity)
        return true;
    size_t capacity = buf->capacity * 2 > need ? buf->capacity * 2 : need + 64;
    char *data = realloc(buf->data, capacity);
    if (data == NULL) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

void fa_buf_append(fa_buf *buf, const void *bytes, size_t size)
{
    if (!reserve(buf, size))
        return;
    if (size != 0)
        memcpy(buf->data + buf->size, bytes, size);
    buf->size += size;
    buf->data[buf->size] = 0;
}

void fa_buf_text(fa_buf *buf, const char *text)
{
    fa_buf_append(buf, text, strlen(text));
}

void fa_buf_printf(fa_buf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const size_t room = buf->failed ? 0 : buf->capacity - buf->size; /* it mostly fits */
    int n = vsnprintf(room > 0 ? buf->data + buf->size : NULL, room, format, args);
    va_end(args);
    if (n < 0)
        buf->failed = true;
    else if (reserve(buf, (size_t)n)) {
        if ((size_t)n >= room)
            vsnprintf(buf->data + buf->size, (size_t)n + 1, format, again);
        buf->size += (size_t)n;
    }
    va_end(again);
}

bool fa_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

void fa_buf_clear(fa_buf *buf)
{
    buf->size = 0;
    buf->failed = false;
    if (buf->data != NULL)
        buf->data[0] = 0;
}

void fa_buf_free(fa_buf *buf)
{
    if (buf == NULL)
        return;
    free(buf->data);
    *buf = (fa_buf){0};
}

int fa_buf_read_fd(fa_buf *buf, int fd, size_t limit)
{
    struct stat st;
    char chunk[16384];
    *buf = (fa_buf){0};
    int rc = fstat(fd, &st) != 0                                     ? FA_EIO
             : !S_ISREG(st.st_mode) || (uintmax_t)st.st_size > limit ? FA_EINVAL
                                                                     : 0;
    for (ssize_t n = 1; rc == 0 && n != 0;) {
        n = read(fd, chunk, sizeof chunk);
        if (n < 0)
            rc = errno == EINTR ? 0 : FA_EIO;
        else if (buf->size + (size_t)n > limit)
            rc = FA_EINVAL;
        else /* the end, too: an empty file is an empty string, not NULL */
            fa_buf_append(buf, chunk, (size_t)n);
    }
    if (rc == 0 && buf->failed)
        rc = FA_ENOMEM;
    if (rc != 0)
        fa_buf_free(buf);
    return rc;
}

int fa_buf_read_file(fa_buf *buf, const char *path, size_t limit)
{
    *buf = (fa_buf){0};
    /* O_NONBLOCK: opening a FIFO must not hang. */
    FA_ENDS(fa_close_at) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? FA_ENOTFOUND : FA_EIO;
    return fa_buf_read_fd(buf, fd, limit);
}

int fa_input_read(fa_buf *buf, const char *path, size_t limit, fa_diag *diag)
{
    struct stat st;
    errno = 0;
    int rc = fa_buf_read_file(buf, path, limit), error = errno;
    if (rc == 0 && buf->size >= 3 && memcmp(buf->data, "\xef\xbb\xbf", 3) == 0)
        memset(buf->data, ' ', 3); /* a byte-order mark */
    if (rc == 0)
        return 0;
    if (rc == FA_ENOTFOUND)
        return fa_fail(diag, rc, "there is no such file");
    if (rc != FA_EINVAL)
        return fa_fail(diag, rc, "it cannot be read: %s",
                       rc == FA_EIO && error != 0 ? strerror(error) : fa_error_text(rc));
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return fa_fail(diag, rc, "it is a folder: name a file in it");
    return fa_fail(diag, rc, "it is no regular file of at most %zu %s",
                   limit >> (limit < 1 << 20 ? 10 : 20), limit < 1 << 20 ? "KiB" : "MiB");
}

int fa_read_at(int fd, void *ret_bytes, size_t size, uint64_t at)
{
    errno = 0;
    for (char *to = ret_bytes; size > 0;) {
        ssize_t n = at <= INT64_MAX ? pread(fd, to, size, (off_t)at) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = 0;
        if (n <= 0)
            return FA_EIO;
        to += n;
        at += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

int fa_write_all(int fd, const void *bytes, size_t size)
{
    for (const char *from = bytes; size > 0;) {
        errno = EIO; /* where nothing is written for no reason */
        ssize_t n = write(fd, from, size);
        if (n <= 0 && errno != EINTR)
            return FA_EIO;
        if (n > 0) {
            from += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

int fa_append(void *ret_items, size_t *count, size_t *capacity, const void *item, size_t size)
{
    char *items;
    memcpy(&items, ret_items, sizeof items);
    if (*count == *capacity) {
        const size_t wanted = *capacity == 0 ? 32 : *capacity * 2;
        items = reallocarray(items, wanted, size);
        if (items == NULL)
            return FA_ENOMEM;
        *capacity = wanted;
        memcpy(ret_items, &items, sizeof items);
    }
    memcpy(items + (*count)++ * size, item, size);
    return 0;
}

void fa_directory_of(const char *path, char ret_directory[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    snprintf(ret_directory, PATH_MAX, "%.*s",
             slash == NULL || slash == path ? 1 : (int)(slash - path), slash == NULL ? "." : path);
}

/* Not mkostemp(), which leaves the umask out. */
static int open_new(fa_buf *path, const char *wanted, unsigned mode)
{
    static _Atomic unsigned count;
    int fd;
    do {
        fa_buf_clear(path);
        fa_buf_printf(path, "%s.new-%ld-%u", wanted, (long)getpid(), count++);
        errno = ENOMEM;
        fd = path->failed ? -1
                          : open(path->data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (mode_t)mode);
    } while (fd < 0 && errno == EEXIST); /* of a process that was killed and had our number */
    return fd;
}

int fa_replace_file(const char *path, const void *bytes, size_t size, unsigned mode)
{
    FA_ENDS(fa_buf_free) fa_buf temporary = {0};
    char directory[PATH_MAX];
    int fd = open_new(&temporary, path, mode);
    int failed = fd < 0 ? errno : 0;
    if (fd >= 0 && (fa_write_all(fd, bytes, size) != 0 || fsync(fd) != 0))
        failed = errno;
    if (fd >= 0 && close(fd) != 0 && failed == 0)
        failed = errno;
    if (failed == 0 && rename(temporary.data, path) != 0)
        failed = errno;
    if (failed != 0 && fd >= 0)
        unlink(temporary.data);
    /* A rename survives a power cut once its directory is synced; some file systems cannot sync a directory. */
    fa_directory_of(path, directory);
    fd = failed == 0 ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    return failed;
}

/* ---- arrays that a call returns --------------------------------------------------------------*/
void fa_list_add(fa_list *list, const void *record, size_t size)
{
    fa_buf_append(&list->records, record, size);
    list->count++;
}

/* In a list a pointer is a place in `kept`, from 1 on. */
const void *fa_list_keep(fa_list *list, const void *bytes, size_t size)
{
    static const char zeros[_Alignof(max_align_t)];
    if (bytes == NULL)
        return NULL;
    const size_t at = list->kept.size;
    fa_buf_append(&list->kept, bytes, size);
    fa_buf_append(&list->kept, zeros, sizeof zeros - size % sizeof zeros);
    return (const void *)(uintptr_t)(at + 1);
}

const char *fa_list_keep_text(fa_list *list, const char *text)
{
    return fa_list_keep(list, text, text != NULL ? strlen(text) + 1 : 0);
}

int fa_list_end(fa_list *list, int rc, const size_t *pointers, void *ret_rows, size_t *ret_count,
                fa_diag *diag)
{
    const size_t count = list->count, size = count > 0 ? list->records.size / count : 0;
    const size_t gap = -list->records.size % _Alignof(max_align_t);
    char *rows = NULL;
    if (rc == 0 && count > 0 && !list->records.failed && !list->kept.failed)
        rows = malloc(list->records.size + gap + list->kept.size);
    if (rc == 0 && count > 0 && rows == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a list of %zu", count);
    if (rows != NULL) {
        char *kept = rows + list->records.size + gap;
        memcpy(rows, list->records.data, list->records.size);
        if (list->kept.size > 0)
            memcpy(kept, list->kept.data, list->kept.size);
        for (size_t i = 0; i < count; i++)
            for (const size_t *at = pointers; at != NULL && *at != SIZE_MAX; at++) {
                uintptr_t place;
                memcpy(&place, rows + i * size + *at, sizeof place);
                const char *pointer = place != 0 ? kept + place - 1 : NULL;
                memcpy(rows + i * size + *at, &pointer, sizeof pointer);
            }
    }
    fa_buf_free(&list->records);
    fa_buf_free(&list->kept);
    list->count = 0;
    if (rc == 0) {
        memcpy(ret_rows, &rows, sizeof rows);
        *ret_count = count;
    }
    return rc;
}

/* ---- where this library or program itself lies, and files that are believed -------------------*/
/* The kernel's table of mappings tells the file whose code runs. The dynamic linker only repeats the name that it
 * was given, which is "fa-tune" for a program found through PATH, and relative for a library opened by a
 * relative name: resolved against the current folder it may be anybody's file. */
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
    FA_ENDS(fa_close_at) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    int rc = 0;
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
    if (rc == 0)
        *ret_fd = fd, fd = -1;
    return rc;
}

int fa_own_token(const char *path, unsigned refused, size_t least, size_t room, char *ret_token,
                 fa_diag *diag)
{
    struct stat st;
    FA_ENDS(fa_buf_free) fa_buf text = {0};
    FA_ENDS(fa_close_at) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int rc = 0;
    if (fd < 0 || fstat(fd, &st) != 0 || fa_buf_read_fd(&text, fd, 4096) != 0)
        rc = fa_fail(diag, FA_EIO, "the token file %s cannot be read", path);
    else if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & refused) != 0)
        rc = fa_fail(diag, FA_EUNTRUSTED,
                     "the token file %s is another user's, or others can %s it: chmod 600 it", path,
                     (refused & 044) != 0 ? "read" : "write to");
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

/* ---- hashes ---------------------------------------------------------------------------------*/
_Static_assert(sizeof(crypto_generichash_state) <= sizeof(fa_hash) &&
                   crypto_hash_sha256_BYTES == FA_HASH_BYTES,
               "state and hash fit");

static crypto_generichash_state *state_of(fa_hash *hash)
{
    return (crypto_generichash_state *)hash->state;
}

void fa_hash_init(fa_hash *hash)
{
    crypto_generichash_init(state_of(hash), NULL, 0, FA_HASH_BYTES);
}

void fa_hash_part(fa_hash *hash, const void *bytes, size_t size)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)size >> (8 * i));
    crypto_generichash_update(state_of(hash), length, sizeof length);
    crypto_generichash_update(state_of(hash), bytes, size);
}

void fa_hash_text(fa_hash *hash, const char *text)
{
    fa_hash_part(hash, text, strlen(text));
}

void fa_hash_final(fa_hash *hash, char ret_hex[FA_HASH_HEX])
{
    unsigned char digest[FA_HASH_BYTES];
    crypto_generichash_final(state_of(hash), digest, sizeof digest);
    sodium_bin2hex(ret_hex, FA_HASH_HEX, digest, sizeof digest);
}

void fa_hash_raw(const void *bytes, size_t size, unsigned char ret_digest[FA_HASH_BYTES])
{
    crypto_generichash(ret_digest, FA_HASH_BYTES, bytes, size, NULL, 0);
}

void fa_hash_bytes(const void *bytes, size_t size, char ret_hex[FA_HASH_HEX])
{
    unsigned char digest[FA_HASH_BYTES];
    fa_hash_raw(bytes, size, digest);
    sodium_bin2hex(ret_hex, FA_HASH_HEX, digest, sizeof digest);
}

void fa_sha256(const void *bytes, size_t size, char ret_hex[FA_HASH_HEX])
{
    unsigned char digest[FA_HASH_BYTES];
    crypto_hash_sha256(digest, bytes, size);
    sodium_bin2hex(ret_hex, FA_HASH_HEX, digest, sizeof digest);
}

uint64_t fa_random(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
