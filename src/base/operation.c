/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of the operations that this process knows: the built-in ones, each read when it is first asked for, then
 * what was added. It only grows: readers take its count first and need no lock, whoever adds holds the mutex.
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
static _Atomic(fa_operation *) known[FA_OPERATIONS_MAX];  /* set once */
static atomic_int added;                                  /* behind the built-in ones */

static int count_known(void)
{
    return fa_operations_builtin_count + atomic_load_explicit(&added, memory_order_acquire);
}

static const fa_operation *read_builtin(int index)
{
    const struct fa_operation_builtin *is = &fa_operations_builtin[index];
    fa_operation *none = NULL, *made = NULL;
    if (fa_operation_make(is->document, is->where, &made, NULL) != 0)
        return NULL;
    if (atomic_compare_exchange_strong(&known[index], &none, made))
        return made;
    fa_operation_free(made);
    return none;
}

/* NULL, of a built-in one alone: memory ran out while it was read. */
static inline const fa_operation *known_at(int index)
{
    const fa_operation *found = atomic_load_explicit(&known[index], memory_order_acquire);
    return found != NULL ? found : read_builtin(index);
}

/* Without reading it. */
static const char *name_at(int index)
{
    return index < fa_operations_builtin_count ? fa_operations_builtin[index].name
                                               : known_at(index)->name;
}

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

/* Index of the newest of that name; -1: there is none. */
static int find_index(const char *name)
{
    size_t size = strcspn(name, "@");
    for (int i = count_known() - 1; i >= 0; i--) {
        const char *its = name_at(i);
        if (strncmp(its, name, size) == 0 && its[size] == 0 &&
            (i < fa_operations_builtin_count ? name[size] == 0
                                             : is_meant(known_at(i), name + size)))
            return i;
    }
    return -1;
}

/* Index of the one of the same name and specification, trusted or not; -1: there is none. */
static int find_specified(const fa_operation *operation)
{
    const char *hash = specification_of(operation), *its;
    for (int i = fa_operations_builtin_count, end = count_known(); hash != NULL && i < end; i++)
        if (strcmp(name_at(i), operation->name) == 0 &&
            (its = specification_of(known_at(i))) != NULL && strcmp(its, hash) == 0 &&
            fa_operation_is_untrusted(known_at(i)) == fa_operation_is_untrusted(operation))
            return i;
    return -1;
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
    int count = count_known(), at = find_specified(operation), rc = 0;
    if (at < 0)
        at = find_index(operation->name);
    const fa_operation *same = at >= 0 ? known_at(at) : NULL;
    if (at >= 0 && same == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "%s: out of memory", where);
    const char *other = same != NULL ? difference(operation, same) : NULL;
    /* A specification's operation is one for each text, and the newest has the name. */
    if (other != NULL && specification_of(same) != NULL && specification_of(operation) != NULL)
        same = NULL, other = NULL;
    if (other != NULL)
        rc = fa_fail(diag, FA_EINVAL,
                     "%s: operation %s is known with %s: give this one another name", where,
                     same->name, other);
    else if (rc == 0 && same == NULL && count == FA_OPERATIONS_MAX)
        rc = fa_fail(diag, FA_EINVAL, "%s: more than %d operations", where, FA_OPERATIONS_MAX);
    if (rc == 0 && same == NULL) {
        atomic_store_explicit(&known[count], operation, memory_order_relaxed);
        atomic_fetch_add_explicit(&added, 1, memory_order_release);
        same = operation;
    } else {
        fa_operation_free(operation);
    }
    if (rc == 0)
        *ret_operation = same;
    return rc;
}

const fa_operation *fa_operation_of(const fa_problem *problem)
{
    static const fa_operation none = {.name = "", .title = ""};
    const fa_operation *operation = problem != NULL && problem->operation != NULL
                                        ? problem->operation
                                        : known_at(fa_operations_builtin_default);
    return operation != NULL ? operation : &none;
}

const fa_operation *fa_operation_at(int index)
{
    return index >= 0 && index < count_known() ? known_at(index) : NULL;
}

int fa_operation_find(const char *name, const fa_operation **ret_operation, fa_diag *diag)
{
    int at = find_index(name), last = -1;
    const fa_operation *found = at >= 0 ? known_at(at) : NULL;
    if (found != NULL)
        *ret_operation = found;
    if (at >= 0)
        return found != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for operations");
    fa_buf list = {0};
    int count = count_known();
    for (int i = 0; i < count; i++)
        if (find_index(name_at(i)) == i) /* by its name alone */
            last = i;
    for (int i = 0; i <= last; i++)
        if (find_index(name_at(i)) == i)
            fa_buf_printf(&list, "%s%s",
                          list.size == 0 ? ""
                          : i == last    ? " or "
                                         : ", ",
                          name_at(i));
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
    int rc = fa_input_read(&text, file, OPERATION_TEXT_MAX, diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND ? 0 : fa_fail_in(diag, rc, "%s", file);
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
