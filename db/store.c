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
