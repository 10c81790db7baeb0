/* SPDX-License-Identifier: Apache-2.0
 *
 * The set of template files: built in, and replaced or joined by those of a directory.
 *
 * Workload: opened once per process, a dozen files of tens of kilobytes.
 * Invariants: files are sorted by name, names are distinct, texts hold no NUL byte before their
 * end. A directory is hostile input: only regular files (no links), at most FILES_MAX of at most
 * FILE_BYTES_MAX each, under plain names.
 */
#include "manifest.h"
#include "templates_builtin.h"

#include "../src/base/buf.h"
#include "../src/base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 64, FILE_BYTES_MAX = 1 << 20, FILE_NAME_MAX = 64 };

struct fa_templates {
    fa_template_file *file; /* sorted by name */
    int count, capacity;
    bool *owned; /* name and text of file[i] are ours */
    bool builtin;
    char hash[FA_HASH_HEX];
};

static bool is_template_name(const char *name)
{
    static const char *const endings[] = {".cu", ".cuh", ".h", ".json"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot != NULL && dot != name && i < sizeof endings / sizeof *endings; i++)
        if (strcmp(dot, endings[i]) == 0)
            return true;
    return false;
}

static bool is_plain_name(const char *name)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    size_t size = strlen(name);
    return size < FILE_NAME_MAX && strspn(name, plain) == size && name[0] != '.' && name[0] != '-';
}

/* Reads one file of the directory; *ret_text is NUL-terminated and the caller's. */
static int read_template(int directory, const char *name, char **ret_text, size_t *ret_size,
                         fa_diag *diag)
{
    /* O_NOFOLLOW: a link could pull any file of this user into a compiler's log. O_NONBLOCK: a
     * FIFO must not hang. */
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return fa_fail(diag, errno == ELOOP ? FA_EINVAL : FA_EIO, "template file %s: %s", name,
                       errno == ELOOP ? "is a link; put the file itself there" : strerror(errno));
    struct stat st;
    int rc = 0;
    size_t size = 0;
    char *text = NULL;
    if (fstat(fd, &st) != 0)
        rc = fa_fail(diag, FA_EIO, "template file %s: %s", name, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = fa_fail(diag, FA_EINVAL, "template file %s: is not a regular file", name);
    else if ((text = malloc(FILE_BYTES_MAX + 1)) == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "template file %s: out of memory", name);
    while (rc == 0) {
        ssize_t n = read(fd, text + size, (size_t)FILE_BYTES_MAX + 1 - size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = fa_fail(diag, FA_EIO, "template file %s: %s", name, strerror(errno));
        if (n <= 0)
            break;
        size += (size_t)n;
        if (size > FILE_BYTES_MAX)
            rc = fa_fail(diag, FA_EINVAL, "template file %s: is larger than %d bytes", name,
                         FILE_BYTES_MAX);
    }
    close(fd);
    if (rc == 0 && memchr(text, 0, size) != NULL)
        rc = fa_fail(diag, FA_EINVAL, "template file %s: holds a NUL byte", name);
    if (rc != 0) {
        free(text);
        return rc;
    }
    text[size] = 0;
    char *fitted = realloc(text, size + 1);
    *ret_text = fitted != NULL ? fitted : text;
    *ret_size = size;
    return 0;
}

/* Puts a file of the directory in place of the one with its name, or in its place in the order. */
static int put_file(fa_templates *templates, const char *name, char *text, size_t size)
{
    int at = 0;
    while (at < templates->count && strcmp(templates->file[at].name, name) < 0)
        at++;
    bool replaces = at < templates->count && strcmp(templates->file[at].name, name) == 0;
    char *copy = strdup(name);
    if (copy == NULL || (!replaces && templates->count == templates->capacity)) {
        free(copy);
        free(text);
        return FA_ENOMEM;
    }
    if (!replaces) {
        size_t behind = (size_t)(templates->count - at);
        memmove(&templates->file[at + 1], &templates->file[at], behind * sizeof *templates->file);
        memmove(&templates->owned[at + 1], &templates->owned[at], behind);
        templates->count++;
    } /* a name stands once in a directory, so what is replaced is built in and not ours */
    templates->file[at] = (fa_template_file){.name = copy, .text = text, .size = size};
    templates->owned[at] = true;
    return 0;
}

static bool is_builtin_name(const char *name)
{
    for (int i = 0; i < fa_templates_builtin_count; i++)
        if (strcmp(fa_templates_builtin[i].name, name) == 0)
            return true;
    return false;
}

bool fa_template_is_manifest(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL && dot != name && strcmp(dot, ".json") == 0;
}

/* Whether a directory brings a family of its own, or a part of a built-in one. */
static bool changes_anything(const fa_templates *templates)
{
    for (int i = 0; i < templates->count; i++)
        if (templates->owned[i] && (fa_template_is_manifest(templates->file[i].name) ||
                                    is_builtin_name(templates->file[i].name)))
            return true;
    return false;
}

static int read_directory(fa_templates *templates, DIR *stream, const char *path, fa_diag *diag)
{
    int found = 0;
    struct dirent *entry;
    while (errno = 0, (entry = readdir(stream)) != NULL) {
        char *text = NULL;
        size_t size = 0;
        if (!is_template_name(entry->d_name))
            continue;
        if (!is_plain_name(entry->d_name))
            return fa_fail(diag, FA_EINVAL,
                           "template directory %s: the name \"%s\" is not plain: "
                           "use at most %d letters, digits, '_', '-' and '.'",
                           path, entry->d_name, FILE_NAME_MAX - 1);
        if (++found > FILES_MAX)
            return fa_fail(diag, FA_EINVAL, "template directory %s: holds more than %d templates",
                           path, FILES_MAX);
        int rc = read_template(dirfd(stream), entry->d_name, &text, &size, diag);
        if (rc == 0 && put_file(templates, entry->d_name, text, size) != 0)
            rc = fa_fail(diag, FA_ENOMEM, "out of memory");
        if (rc != 0)
            return fa_fail_in(diag, rc, "template directory %s", path);
    }
    if (errno != 0)
        return fa_fail(diag, FA_EIO, "template directory %s: %s", path, strerror(errno));
    if (!changes_anything(templates))
        return fa_fail(diag, FA_EINVAL,
                       "template directory %s: holds no manifest (NAME.json) and no file in place "
                       "of a built-in one, so it would change nothing",
                       path);
    templates->builtin = false;
    return 0;
}

static void hash_files(fa_templates *templates)
{
    fa_hash hash;
    fa_hash_init(&hash);
    for (int i = 0; i < templates->count; i++) {
        fa_hash_text(&hash, templates->file[i].name);
        fa_hash_part(&hash, templates->file[i].text, templates->file[i].size);
    }
    fa_hash_final(&hash, templates->hash);
}

static int add_directory(fa_templates *templates, const char *path, fa_diag *diag)
{
    DIR *stream = opendir(path);
    if (stream == NULL)
        return fa_fail(diag, errno == ENOENT ? FA_ENOTFOUND : FA_EIO, "template directory %s: %s",
                       path, strerror(errno));
    int rc = read_directory(templates, stream, path, diag);
    closedir(stream);
    if (rc == 0)
        hash_files(templates);
    return rc;
}

int fa_templates_open(const char *directory, fa_templates **ret_templates, fa_diag *diag)
{
    fa_templates *templates = calloc(1, sizeof *templates);
    if (templates == NULL)
        return fa_fail(diag, FA_ENOMEM, "templates: out of memory");
    templates->capacity = fa_templates_builtin_count + FILES_MAX;
    templates->file = calloc((size_t)templates->capacity, sizeof *templates->file);
    templates->owned = calloc((size_t)templates->capacity, sizeof *templates->owned);
    if (templates->file == NULL || templates->owned == NULL) {
        fa_templates_close(&templates);
        return fa_fail(diag, FA_ENOMEM, "templates: out of memory");
    }
    templates->count = fa_templates_builtin_count;
    memcpy(templates->file, fa_templates_builtin,
           (size_t)templates->count * sizeof *templates->file);
    memcpy(templates->hash, fa_templates_builtin_hash, FA_HASH_HEX);
    templates->builtin = true;
    int rc = directory != NULL ? add_directory(templates, directory, diag) : 0;
    if (rc != 0) {
        fa_templates_close(&templates);
        return rc;
    }
    *ret_templates = templates;
    return 0;
}

int fa_templates_keep_apart(fa_templates *templates, fa_diag *diag)
{
    int kept = 0;
    if (templates->builtin)
        return 0;
    for (int i = 0; i < templates->count; i++)
        if (templates->owned[i] && is_builtin_name(templates->file[i].name))
            return fa_fail(diag, FA_EINVAL,
                           "template file %s: is the name of a built-in one, which templates that "
                           "are not trusted may not replace: take another",
                           templates->file[i].name);
    for (int i = 0; i < templates->count; i++) {
        if (!templates->owned[i] && fa_template_is_manifest(templates->file[i].name))
            continue; /* ours */
        templates->file[kept] = templates->file[i];
        templates->owned[kept++] = templates->owned[i];
    }
    templates->count = kept;
    hash_files(templates);
    return 0;
}

void fa_templates_close(fa_templates **templates)
{
    if (templates == NULL || *templates == NULL)
        return;
    fa_templates *t = *templates;
    for (int i = 0; i < t->count && t->owned != NULL; i++) {
        if (t->owned[i]) {
            free((void *)(uintptr_t)t->file[i].name);
            free((void *)(uintptr_t)t->file[i].text);
        }
    }
    free(t->file);
    free(t->owned);
    free(t);
    *templates = NULL;
}

const fa_template_file *fa_templates_find(const fa_templates *templates, const char *name)
{
    for (int i = 0; i < templates->count; i++)
        if (strcmp(templates->file[i].name, name) == 0)
            return &templates->file[i];
    return NULL;
}

int fa_templates_count(const fa_templates *templates)
{
    return templates->count;
}

const fa_template_file *fa_templates_at(const fa_templates *templates, int index)
{
    return index >= 0 && index < templates->count ? &templates->file[index] : NULL;
}

const char *fa_templates_hash(const fa_templates *templates)
{
    return templates->hash;
}

bool fa_templates_is_builtin(const fa_templates *templates)
{
    return templates->builtin;
}
