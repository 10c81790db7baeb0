/* SPDX-License-Identifier: Apache-2.0
 *
 * What lists and reports read: the fleet's store, and of the local one what the fleet's lacks.
 *
 * Workload: thousands of scopes, named once each.
 */
#include "listing.h"

#include "source.h"

#include "buf.h"
#include "error.h"
#include "hash.h"

#include <stdlib.h>
#include <string.h>

struct listing {
    fa_store *store; /* whose rows come */
    char (*seen)[FA_HASH_HEX];
    size_t count, capacity, sorted;
    bool failed;
    fa_listed_winner_visit *winner;
    fa_scope_visit *scope;
    void *context;
};

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, FA_HASH_HEX);
}

/* Whether a scope came before; it has now. The rows of one store are never twice the same. */
static bool came_before(struct listing *list, bool again, const fa_scope *scope)
{
    char key[FA_HASH_HEX];
    if (again && list->count == 0)
        return false;
    fa_scope_key(scope, key);
    if (again)
        return bsearch(key, list->seen, list->count, sizeof *list->seen, compare) != NULL;
    void *grown = fa_grow(list->seen, &list->capacity, list->count, sizeof *list->seen);
    if (grown == NULL) {
        list->failed = true;
        return false;
    }
    list->seen = grown;
    memcpy(list->seen[list->count++], key, sizeof key);
    return false;
}

static int give_winner(struct listing *list, bool again, const fa_winner_record *winner)
{
    if (came_before(list, again, &winner->scope))
        return 0;
    return list->failed ? FA_ENOMEM : list->winner(list->context, list->store, winner);
}

static int first_winner(void *context, const fa_winner_record *winner)
{
    return give_winner(context, false, winner);
}

static int second_winner(void *context, const fa_winner_record *winner)
{
    return give_winner(context, true, winner);
}

static int give_scope(struct listing *list, bool again, const fa_scope *scope, int32_t trials,
                      int64_t unix_time)
{
    if (came_before(list, again, scope))
        return 0;
    return list->failed ? FA_ENOMEM : list->scope(list->context, scope, trials, unix_time);
}

static int first_scope(void *context, const fa_scope *scope, int32_t trials, int64_t unix_time)
{
    return give_scope(context, false, scope, trials, unix_time);
}

static int second_scope(void *context, const fa_scope *scope, int32_t trials, int64_t unix_time)
{
    return give_scope(context, true, scope, trials, unix_time);
}

static int list(fa_tuner *tuner, struct listing *list, fa_diag *diag)
{
    const fa_source_class *shared = NULL;
    fa_diag why = {{0}};
    int rc = 0;
    list->store = fa_sources_store(tuner, &shared);
    if (list->store != NULL)
        rc = list->winner != NULL ? fa_store_winners_each(list->store, first_winner, list, &why)
                                  : fa_store_scopes_each(list->store, first_scope, list, &why);
    if (rc < 0 && !list->failed)
        shared->store_failed(tuner, rc, &why);
    if (rc == 0) {
        if (list->count > 0)
            qsort(list->seen, list->count, sizeof *list->seen, compare);
        list->store = tuner->store;
        rc = list->winner != NULL ? fa_store_winners_each(list->store, second_winner, list, diag)
                                  : fa_store_scopes_each(list->store, second_scope, list, diag);
    } else if (rc < 0) {
        fa_fail(diag, rc, "%s", list->failed ? "out of memory for a list" : why.text);
    }
    free(list->seen);
    return rc;
}

int fa_listed_winners_each(fa_tuner *tuner, fa_listed_winner_visit *visit, void *context,
                           fa_diag *diag)
{
    struct listing all = {.winner = visit, .context = context};
    return list(tuner, &all, diag);
}

int fa_listed_scopes_each(fa_tuner *tuner, fa_scope_visit *visit, void *context, fa_diag *diag)
{
    struct listing all = {.scope = visit, .context = context};
    return list(tuner, &all, diag);
}

int fa_listed_winner(fa_tuner *tuner, const fa_scope *scope, fa_winner_record *ret_winner,
                     fa_diag *diag)
{
    const fa_source_class *shared = NULL;
    fa_store *store = fa_sources_store(tuner, &shared);
    int rc =
        store != NULL ? fa_store_winner_get(store, scope, ret_winner, NULL, diag) : FA_ENOTFOUND;
    return rc == FA_ENOTFOUND ? fa_store_winner_get(tuner->store, scope, ret_winner, NULL, diag)
                              : rc;
}
