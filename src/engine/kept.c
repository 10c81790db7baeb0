/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of other tuners in the store, and who makes one that is missing.
 */
#include "error.h"
#include "session.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_key(const char *key, char ret_name[FA_HOLD_NAME_MAX], fa_diag *diag)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    const size_t length = key != NULL ? strlen(key) : 0;
    if (length < 1 || length > 64 || strspn(key, letters) != length)
        return fa_fail(diag, FA_EINVAL,
                       "the key of a value has 1 to 64 letters, digits, '-' and '_'");
    snprintf(ret_name, FA_HOLD_NAME_MAX, "kept-%s", key);
    return 0;
}

static int take_hold(fa_tuner *tuner, const char *name, fa_diag *diag)
{
    fa_hold *hold = calloc(1, sizeof *hold);
    if (hold == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    int rc = fa_store_lock(tuner->store, name, false, &hold->lock, diag);
    if (rc != 0) {
        free(hold);
        return rc;
    }
    snprintf(hold->name, sizeof hold->name, "%s", name);
    hold->next = tuner->holds;
    tuner->holds = hold;
    return 0;
}

int fa_list_kept(fa_tuner *tuner, const char *key, bool hold, fa_kept **ret_kept, size_t *ret_count,
                 fa_diag *diag)
{
    char name[FA_HOLD_NAME_MAX];
    int rc = fa_tuner_check_with(tuner, ret_kept != NULL && ret_count != NULL,
                                 "ret_kept or ret_count", diag);
    if (rc == 0 && key != NULL)
        rc = check_key(key, name, diag);
    if (rc != 0)
        return rc;
    fa_kept *kept = NULL;
    size_t count = 0;
    pthread_mutex_lock(&tuner->work);
    if (key != NULL && !hold)
        fa_tuner_let_go(tuner, name);
    rc = fa_store_kept(tuner->store, key, &kept, &count, diag);
    if (rc == 0 && count == 0 && key != NULL && hold &&
        (rc = take_hold(tuner, name, diag)) == 0) { /* or it was kept meanwhile */
        rc = fa_store_kept(tuner->store, key, &kept, &count, diag);
        if (rc != 0 || count > 0)
            fa_tuner_let_go(tuner, name);
    }
    pthread_mutex_unlock(&tuner->work);
    if (rc != 0 || (key != NULL && count == 0))
        return rc != 0 ? rc : FA_ENOTFOUND;
    *ret_kept = kept;
    *ret_count = count;
    return 0;
}

int fa_keep(fa_tuner *tuner, const fa_kept *value, fa_diag *diag)
{
    char name[FA_HOLD_NAME_MAX];
    int rc = fa_tuner_check_with(
        tuner,
        value != NULL && (value->bytes == NULL || (value->tuner != NULL && value->name != NULL &&
                                                   value->gpu != NULL && value->made != NULL)),
        "value, or a text of it,", diag);
    if (rc == 0)
        rc = check_key(value->key, name, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_is_absent(tuner->store) && value->bytes == NULL
             ? 0
             : fa_store_kept_put(tuner->store, value, diag);
    fa_tuner_let_go(tuner, name);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}
