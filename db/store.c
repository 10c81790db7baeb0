/* SPDX-License-Identifier: Apache-2.0
 *
 * A store as its users hold it: opened, entered by every call, closed. Where it is kept is its
 * backend's.
 */
#include "postgres.h"
#include "sqlite.h"
#include "statements.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool fa_store_is_address(const char *path)
{
    return strncmp(path, "postgresql://", 13) == 0 || strncmp(path, "postgres://", 11) == 0;
}

int fa_store_open(const char *path, fa_store_mode mode, fa_store **ret_store, fa_diag *ret_note,
                  fa_diag *diag)
{
    return fa_store_open_spared(path, mode, NULL, ret_store, ret_note, diag);
}

int fa_store_open_spared(const char *path, fa_store_mode mode, const fa_store_spare *spare,
                         fa_store **ret_store, fa_diag *ret_note, fa_diag *diag)
{
    if (ret_note != NULL)
        ret_note->text[0] = 0;
    fa_store *store = calloc(1, sizeof *store);
    if (store == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    store->pid = getpid();
    store->read_only = mode == FA_STORE_READ_ONLY;
    store->existing = mode == FA_STORE_EXISTING;
    if (spare != NULL)
        store->spare.is = *spare;
    int rc;
    if (path != NULL && fa_store_is_address(path))
        rc = fa_postgres_open(store, path, diag);
    else
        rc = fa_sqlite_open(store, path, ret_note, diag);
    if (rc != 0) {
        free(store);
        return rc;
    }
    *ret_store = store;
    return 0;
}

void fa_store_close(fa_store **store)
{
    if (store == NULL || *store == NULL)
        return;
    /* A forked child must leave the connection alone: closing it could undo the parent's work. */
    if ((*store)->pid == getpid())
        (*store)->close(*store);
    free(*store);
    *store = NULL;
}

const char *fa_store_path(const fa_store *store)
{
    return store->path;
}

bool fa_store_is_read_only(const fa_store *store)
{
    return store->read_only;
}

bool fa_store_is_absent(const fa_store *store)
{
    return store->absent;
}

bool fa_store_server_is_gone(fa_store *store, bool ask_again)
{
    if (store->postgres == NULL)
        return false;
    if (ask_again)
        store->spare.until = 0;
    return fa_db_enter(store, NULL) != 0 || store->spare.serves;
}

bool fa_store_is_lost(const fa_store *store)
{
    return store->lost;
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
