/* SPDX-License-Identifier: Apache-2.0
 *
 * The set of template files: built in, and replaced or joined by those of a directory.
 *
 * Workload: opened once per process, a dozen files of tens of kilobytes.
 * Invariants: files are sorted by name, names are distinct whatever folders the files lie in, texts
 * hold no NUL byte before their end. A directory is hostile input: only regular files (no links), at
 * most FA_TEMPLATES_MAX of at most FILE_BYTES_MAX each, under plain names, in it and in the folders of
 * operations directly below it.
 */
#include "manifest.h"

#include "buf.h"
#include "error.h"
#include "operation.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 1 << 20, FILE_NAME_MAX = 64 };

_Static_assert(2 * FA_TEMPLATES_MAX <= FA_FAMILIES_MAX, "a family is a file");

static const char CONTRACT[] = "operation.json", VOCABULARY[] = "vocabulary";

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

int fa_source_read(fa_buf *ret_text, const char *path, size_t limit, fa_diag *diag)
{
    int rc = fa_input_read(ret_text, path, limit, diag);
    if (rc == 0 && memchr(ret_text->data, 0, ret_text->size) != NULL) {
        fa_buf_free(ret_text);
        rc = fa_fail(diag, FA_EINVAL, "it is no text: it holds a NUL byte");
    }
    return rc;
}

/* A file in its place by name, or in that of a built-in one of its operation, once. Takes over text and name: they are freed on
 * failure, NULL where memory was short. `folder` must live as long as the templates. */
static int put_file(fa_templates *templates, const char *folder, char *name, char *text,
                    size_t size, fa_diag *diag)
{
    int at = 0, rc = 0;
    while (name != NULL && at < templates->count && strcmp(templates->file[at].name, name) < 0)
        at++;
    const fa_template_file *other = &templates->file[at];
    const bool replaces = name != NULL && at < templates->count && strcmp(other->name, name) == 0;
    if (name == NULL || text == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "templates: out of memory");
    else if (replaces && templates->owned[at])
        rc = fa_fail(diag, FA_EINVAL, "template file %s: appears twice, in two folders", name);
    else if (replaces && folder[0] != 0 && strcmp(folder, other->folder) != 0)
        rc = fa_fail(diag, FA_EINVAL, "template file %s: is the name of a file of %s: take another",
                     name, other->folder);
    if (rc != 0) {
        free(name);
        free(text);
        return rc;
    }
    if (!replaces) {
        size_t behind = (size_t)(templates->count++ - at);
        memmove(&templates->file[at + 1], &templates->file[at], behind * sizeof *templates->file);
        memmove(&templates->owned[at + 1], &templates->owned[at], behind);
    } else if (folder[0] == 0) {
        folder = other->folder;
    }
    templates->file[at] =
        (fa_template_file){.name = name, .folder = folder, .text = text, .size = size};
    templates->owned[at] = true;
    return 0;
}

bool fa_template_is_builtin(const char *name)
{
    for (int i = 0; i < fa_templates_builtin_count; i++)
        if (strcmp(fa_templates_builtin[i].name, name) == 0)
            return true;
    return false;
}

bool fa_template_is_manifest(const char *name)
{
    const char *slash = strchr(name, '/'), *dot = strrchr(name, '.');
    return dot != NULL && dot != name && strcmp(dot, ".json") == 0 &&
           strcmp(slash != NULL ? slash + 1 : name, CONTRACT) != 0;
}

/* Whether a file of a directory stands in the place of a built-in one. */
static bool is_replaced(const fa_templates *templates, int index)
{
    return templates->owned[index] && fa_template_is_builtin(templates->file[index].name);
}

/* `*found` counts the files that were taken. */
static int take_file(fa_templates *templates, const char *path, bool link, const char *folder,
                     int *found, fa_diag *diag)
{
    const char *name = strrchr(path, '/') + 1;
    const bool contract = strcmp(name, CONTRACT) == 0;
    const fa_operation *operation;
    fa_buf text = {0};
    char *full = NULL;
    if (!is_plain_name(name))
        return fa_fail(diag, FA_EINVAL,
                       "the name \"%s\" is not plain: use at most %d letters, digits, '_', '-' and "
                       "'.'",
                       name, FILE_NAME_MAX - 1);
    if (++*found > FA_TEMPLATES_MAX)
        return fa_fail(diag, FA_EINVAL, "holds more than %d templates", FA_TEMPLATES_MAX);
    /* A link could pull any file of this user into a compiler's log. */
    int rc = link ? fa_fail(diag, FA_EINVAL, "it is a link: put the file itself there")
                  : fa_source_read(&text, path, FILE_BYTES_MAX, diag);
    if (rc != 0)
        return fa_fail_in(diag, rc, "template file %s", name);
    if (asprintf(&full, "%s%s%s", contract ? folder : "", contract ? "/" : "", name) < 0)
        full = NULL;
    FA_OR_RETURN(put_file(templates, folder, full, text.data, text.size, diag));
    return contract ? fa_operation_register(text.data, text.size, full, &operation, diag) : 0;
}

/* The name of a folder that holds template files, an operation's or the vocabulary, kept by the templates; NULL: it is none. */
static char *template_folder(fa_templates *templates, const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    char contract[PATH_MAX + sizeof CONTRACT + 1];
    bool known = false;
    if (!is_plain_name(name) || templates->folders == FA_TEMPLATES_MAX)
        return NULL;
    for (int i = 0; i < fa_templates_builtin_count && !known; i++)
        known = strcmp(fa_templates_builtin[i].folder, name) == 0;
    snprintf(contract, sizeof contract, "%s/%s", path, CONTRACT);
    char *copy = known || access(contract, F_OK) == 0 ? strdup(name) : NULL;
    if (copy != NULL)
        templates->folder[templates->folders++] = copy;
    return copy;
}

/* The files of a directory and those of the folders of operations in it, of which `folder` is one; NULL: of none. */
static int read_files(fa_templates *templates, const char *path, const char *folder, int *found,
                      fa_diag *diag)
{
    FA_ENDS(fa_free_at) struct dirent **entry = NULL;
    const int count = scandir(path, &entry, NULL, NULL);
    int rc = count >= 0        ? 0
             : errno == ENOENT ? fa_fail(diag, FA_ENOTFOUND, "there is no such folder")
                               : fa_fail(diag, FA_EIO, "%s", strerror(errno));
    for (int i = 0; i < count; i++) {
        const char *name = entry[i]->d_name, *its = NULL;
        char full[PATH_MAX];
        struct stat st;
        if (rc == 0 &&
            (snprintf(full, sizeof full, "%s/%s", path, name) >= PATH_MAX || lstat(full, &st) != 0))
            rc = fa_fail(diag, FA_EIO, "%s: cannot be looked at", name);
        if (rc == 0 && S_ISDIR(st.st_mode) && folder == NULL &&
            (its = template_folder(templates, full)) != NULL)
            rc = read_files(templates, full, its, found, diag);
        else if (rc == 0 && !S_ISDIR(st.st_mode) && is_template_name(name) &&
                 (folder != NULL || strcmp(name, CONTRACT) != 0))
            rc = take_file(templates, full, S_ISLNK(st.st_mode), folder != NULL ? folder : "",
                           found, diag);
        free(entry[i]);
    }
    return rc;
}

static const fa_template_closure *find_closure(const fa_template_closure *closures, int count,
                                               const char *operation)
{
    for (int i = 0; i < count; i++)
        if (strcmp(closures[i].operation, operation) == 0)
            return &closures[i];
    return NULL;
}

/* An operation is made of its folder, the vocabulary, and what lies in no folder. */
static bool is_of(const fa_template_file *file, const char *operation)
{
    return file->folder[0] == 0 || strcmp(file->folder, VOCABULARY) == 0 ||
           strcmp(file->folder, operation) == 0;
}

/* Of an operation all of whose files are built in the hash is embed.py's, which covers less of a manifest. */
static void hash_closure(const fa_templates *templates, const char *operation,
                         char ret_hash[FA_HASH_HEX])
{
    fa_hash hash;
    bool own = false;
    for (int i = 0; i < templates->count; i++)
        own = own || (templates->owned[i] && is_of(&templates->file[i], operation));
    const fa_template_closure *known =
        own ? NULL
            : find_closure(fa_templates_builtin_closures, fa_templates_builtin_closure_count,
                           operation);
    if (known != NULL) {
        memcpy(ret_hash, known->hash, FA_HASH_HEX);
        return;
    }
    fa_hash_init(&hash);
    for (int i = 0; i < templates->count; i++) {
        const fa_template_file *file = &templates->file[i];
        if (!is_of(file, operation))
            continue;
        fa_hash_text(&hash, file->name);
        fa_hash_part(&hash, file->text, file->size);
    }
    fa_hash_final(&hash, ret_hash);
}

static void hash_files(fa_templates *templates)
{
    const char *before = NULL; /* the folder of the file in front: mostly the same string */
    templates->closures = 0;
    for (int i = 0; i < templates->count; before = templates->file[i++].folder) {
        const char *operation = templates->file[i].folder;
        fa_template_closure *closure = &templates->closure[templates->closures];
        if (operation == before || strcmp(operation, VOCABULARY) == 0 || operation[0] == 0 ||
            find_closure(templates->closure, templates->closures, operation) != NULL)
            continue;
        closure->operation = operation;
        hash_closure(templates, operation, closure->hash);
        templates->closures++;
    }
}

int fa_templates_open(const char *directory, fa_templates **ret_templates, fa_diag *diag)
{
    fa_templates *templates = calloc(1, sizeof *templates);
    FA_OR_RETURN(fa_have(templates != NULL, "templates", diag));
    templates->count = fa_templates_builtin_count;
    memcpy(templates->file, fa_templates_builtin,
           (size_t)templates->count * sizeof *templates->file);
    templates->builtin = directory == NULL;
    bool changes = directory == NULL; /* by a family of its own, or a part of a built-in one */
    int rc = 0, found = 0;
    if (directory != NULL && (rc = read_files(templates, directory, NULL, &found, diag)) != 0)
        fa_fail_in(diag, rc, "template directory %s", directory);
    for (int i = 0; i < templates->count; i++)
        changes = changes || is_replaced(templates, i) ||
                  (templates->owned[i] && fa_template_is_manifest(templates->file[i].name));
    if (rc == 0 && !changes)
        rc = fa_fail(diag, FA_EINVAL,
                     "template directory %s: holds no manifest (NAME.json) and no file in place "
                     "of a built-in one, so it would change nothing",
                     directory);
    if (rc != 0 || ret_templates == NULL) {
        fa_templates_close(&templates);
        return rc;
    }
    hash_files(templates);
    *ret_templates = templates;
    return 0;
}

int fa_templates_of(const char *folder, const fa_template_text *files, int count,
                    const fa_compiled_with *with, fa_templates **ret_templates, fa_diag *diag)
{
    FA_ENDS(fa_templates_close) fa_templates *templates = NULL;
    FA_OR_RETURN(fa_templates_open(NULL, &templates, diag));
    char *kept = templates->folder[templates->folders++] = strdup(folder);
    FA_OR_RETURN(fa_have(kept != NULL, "templates", diag));
    for (int i = 0; i < count; i++)
        FA_OR_RETURN(put_file(templates, kept, strdup(files[i].name), strdup(files[i].text),
                              strlen(files[i].text), diag));
    templates->with = with;
    templates->builtin = false;
    hash_files(templates);
    *ret_templates = templates;
    templates = NULL;
    return 0;
}

void fa_templates_close(fa_templates **templates)
{
    if (templates == NULL || *templates == NULL)
        return;
    fa_templates *t = *templates;
    for (int i = 0; i < t->count; i++) {
        free(t->owned[i] ? (void *)(uintptr_t)t->file[i].name : NULL);
        free(t->owned[i] ? (void *)(uintptr_t)t->file[i].text : NULL);
    }
    for (int i = 0; i < t->folders; i++)
        free(t->folder[i]);
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

const char *fa_templates_hash(const fa_templates *templates, const fa_operation *operation)
{
    static const char none[FA_HASH_HEX] =
        "0000000000000000000000000000000000000000000000000000000000000000";
    const fa_template_closure *closure =
        find_closure(templates->closure, templates->closures, operation->name);
    return closure != NULL ? closure->hash : none;
}

bool fa_templates_match(const fa_templates *templates, const fa_problem *problem,
                        const char *closure)
{
    return strcmp(closure, fa_templates_hash(templates, fa_operation_of(problem))) == 0;
}

bool fa_templates_reference_is_builtin(const fa_templates *templates, const fa_problem *problem)
{
    for (int i = 0; i < templates->count; i++)
        if (is_replaced(templates, i) && !fa_template_is_manifest(templates->file[i].name))
            return false;
    return fa_operation_of(problem)->owned == NULL;
}
