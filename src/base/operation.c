/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of the operations that this process knows. It only grows: readers take its count first and
 * need no lock, whoever adds holds the mutex.
 */
#include "operation.h"

#include "buf.h"
#include "error.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPERATION_TEXT_MAX = 1 << 20 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* who adds holds it */
static fa_operation *known[FA_OPERATIONS_MAX];
static atomic_int known_count;                          /* entries below it stay as they are */
static _Atomic(const fa_operation *) default_operation; /* set when all built-in ones are there */

static const char *specification_of(const fa_operation *operation)
{
    return cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(operation->document, "specification"));
}

bool fa_operation_is_untrusted(const fa_operation *operation)
{
    return cJSON_HasObjectItem(operation->document, "untrusted");
}

/* "@HASH" finds the specification whose hash begins so, and "" what is trusted. */
static bool is_meant(const fa_operation *operation, const char *wanted)
{
    const char *hash = specification_of(operation);
    return *wanted == 0 ? !fa_operation_is_untrusted(operation)
                        : hash != NULL && wanted[1] != 0 &&
                              strncmp(hash, wanted + 1, strlen(wanted + 1)) == 0;
}

/* The newest of that name. */
static const fa_operation *find_operation(const char *name)
{
    int count = atomic_load_explicit(&known_count, memory_order_acquire);
    size_t size = strcspn(name, "@");
    for (int i = count - 1; i >= 0; i--)
        if (strncmp(known[i]->name, name, size) == 0 && known[i]->name[size] == 0 &&
            is_meant(known[i], name + size))
            return known[i];
    return NULL;
}

/* The one of the same name and specification, trusted or not. */
static const fa_operation *find_specified(const fa_operation *operation)
{
    int count = atomic_load_explicit(&known_count, memory_order_acquire);
    const char *hash = specification_of(operation), *its;
    for (int i = 0; hash != NULL && i < count; i++)
        if (strcmp(known[i]->name, operation->name) == 0 &&
            (its = specification_of(known[i])) != NULL && strcmp(its, hash) == 0 &&
            fa_operation_is_untrusted(known[i]) == fa_operation_is_untrusted(operation))
            return known[i];
    return NULL;
}

/* What two files of one operation must agree on, since one of them then stands for both; the rest is words
 * for people. */
static const struct {
    const char *member, *words;
} shared[] = {{"fields", "other fields"},         {"tensors", "other tensors"},
              {"scalars", "other scalars"},       {"tolerance", "another tolerance"},
              {"reference", "another reference"}, {"flops", "other flops"},
              {"flops_halved_by", "other flops"}, {"bytes", "other bytes"},
              {"specification", "another text"}};

/* In what the two differ; NULL: in nothing that matters. */
static const char *difference(const fa_operation *one, const fa_operation *other)
{
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        const cJSON *a = cJSON_GetObjectItemCaseSensitive(one->document, shared[i].member);
        const cJSON *b = cJSON_GetObjectItemCaseSensitive(other->document, shared[i].member);
        if ((a != NULL || b != NULL) && !cJSON_Compare(a, b, true))
            return shared[i].words;
    }
    return NULL;
}

/* Takes the operation, with the mutex held. */
static int add_operation(fa_operation *operation, const char *where,
                         const fa_operation **ret_operation, fa_diag *diag)
{
    int count = atomic_load_explicit(&known_count, memory_order_relaxed), rc = 0;
    const fa_operation *same = find_specified(operation);
    if (same == NULL)
        same = find_operation(operation->name);
    /* A specification's operation is one for each text, and the newest has the name. */
    if (same != NULL && specification_of(same) != NULL && specification_of(operation) != NULL &&
        difference(operation, same) != NULL)
        same = NULL;
    if (same != NULL) {
        const char *other = difference(operation, same);
        if (other != NULL)
            rc = fa_fail(diag, FA_EINVAL,
                         "%s: operation %s is known with %s: give this one another name", where,
                         same->name, other);
        fa_operation_free(operation);
    } else if (count == FA_OPERATIONS_MAX) {
        rc = fa_fail(diag, FA_EINVAL, "%s: more than %d operations", where, FA_OPERATIONS_MAX);
        fa_operation_free(operation);
    } else {
        known[count] = operation;
        atomic_store_explicit(&known_count, count + 1, memory_order_release);
        same = operation;
    }
    if (rc == 0)
        *ret_operation = same;
    return rc;
}

/* Reads the built-in operations unless that is done; NULL when memory runs out. */
static const fa_operation *builtin(void)
{
    const fa_operation *found = atomic_load_explicit(&default_operation, memory_order_acquire);
    if (found != NULL)
        return found;
    pthread_mutex_lock(&mutex);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < fa_operations_builtin_count; i++) {
        const struct fa_operation_builtin *is = &fa_operations_builtin[i];
        const fa_operation *operation = NULL;
        fa_operation *made = NULL;
        rc = fa_operation_make(is->document, is->where, &made, NULL);
        if (rc == 0)
            rc = add_operation(made, is->where, &operation, NULL);
        if (rc == 0 && operation->is_default)
            found = operation;
    }
    if (rc == 0)
        atomic_store_explicit(&default_operation, found, memory_order_release);
    pthread_mutex_unlock(&mutex);
    return rc == 0 ? found : NULL;
}

const fa_operation *fa_operation_of(const fa_problem *problem)
{
    static const fa_operation none = {.name = "", .title = ""};
    const fa_operation *operation =
        problem != NULL && problem->operation != NULL ? problem->operation : builtin();
    return operation != NULL ? operation : &none;
}

const fa_operation *fa_operation_at(int index)
{
    return builtin() == NULL || index < 0 ||
                   index >= atomic_load_explicit(&known_count, memory_order_acquire)
               ? NULL
               : known[index];
}

int fa_operation_find(const char *name, const fa_operation **ret_operation, fa_diag *diag)
{
    const fa_operation *found = builtin() != NULL ? find_operation(name) : NULL;
    if (found != NULL) {
        *ret_operation = found;
        return 0;
    }
    fa_buf list = {0};
    const fa_operation *last = NULL, *is;
    for (int i = 0; (is = fa_operation_at(i)) != NULL; i++)
        if (find_operation(is->name) == is) /* by its name alone */
            last = is;
    for (int i = 0; last != NULL && (is = fa_operation_at(i)) != NULL; i++)
        if (find_operation(is->name) == is)
            fa_buf_printf(&list, "%s%s",
                          list.size == 0 ? ""
                          : is == last   ? " or "
                                         : ", ",
                          is->name);
    int rc = list.data == NULL
                 ? fa_fail(diag, FA_ENOMEM, "out of memory for operations")
                 : fa_fail(diag, FA_ENOTSUP, "operation \"%.40s\" is not known: use %s", name,
                           list.data);
    fa_buf_free(&list);
    return rc;
}

int fa_operation_register(const char *text, size_t size, const char *where,
                          const fa_operation **ret_operation, fa_diag *diag)
{
    fa_operation *operation = NULL;
    if (builtin() == NULL)
        return fa_fail(diag, FA_ENOMEM, "%s: out of memory", where);
    int rc = fa_operation_read(text, size, where, &operation, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&mutex);
    rc = add_operation(operation, where, ret_operation, diag);
    pthread_mutex_unlock(&mutex);
    return rc;
}

/* Nothing where the folder holds no operation.json, or may not be looked into. */
static int load_folder(const char *path, const char *name, fa_diag *diag)
{
    char file[4096], where[320];
    fa_buf text = {0};
    const fa_operation *operation;
    snprintf(where, sizeof where, "%.255s/operation.json", name);
    int length = snprintf(file, sizeof file, "%s/%.255s/.", path, name);
    if (name[0] == '.' || length >= (int)sizeof file || access(file, X_OK) != 0)
        return 0;
    length = snprintf(file, sizeof file, "%s/%s", path, where);
    if (length >= (int)sizeof file)
        return 0;
    int rc = fa_buf_read_file(&text, file, OPERATION_TEXT_MAX);
    if (rc == FA_ENOTFOUND)
        return 0;
    if (rc == FA_EINVAL)
        return fa_fail(diag, rc, "%s: it is no regular file of at most %d KiB", file,
                       OPERATION_TEXT_MAX >> 10);
    if (rc != 0)
        return fa_fail(diag, rc, "%s: it cannot be read: %s", file, fa_error_text(rc));
    rc = fa_operation_register(text.data, text.size, where, &operation, diag);
    fa_buf_free(&text);
    return rc;
}

int fa_operation_load(const char *path, fa_diag *diag)
{
    struct dirent **entry = NULL;
    int count = scandir(path, &entry, NULL, alphasort), rc = 0;
    if (count < 0 && errno == ENOMEM)
        return fa_fail(diag, FA_ENOMEM, "%s: out of memory for operations", path);
    for (int i = 0; i < count; i++) {
        if (rc == 0)
            rc = load_folder(path, entry[i]->d_name, diag);
        free(entry[i]);
    }
    free(entry);
    return rc;
}
