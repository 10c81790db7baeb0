/* SPDX-License-Identifier: Apache-2.0
 *
 * Brings the winners of the local file, which served while a server did not answer, to that server.
 *
 * Workload: by hand after an outage: some winners, each with its cubin and a hundred trials. Invariants: nobody
 * changes a winner between its weighing and its replacement; a better one stays; the file stays as it is, so that a push
 * that ends in the middle is made again.
 */
#include "bundle_check.h"
#include "lines.h"
#include "error.h"
#include "fa_tune.h"
#include "session.h"
#include "sweep.h"
#include "lookup.h"

#include <stdlib.h>
#include <string.h>

/* In a change of the server's store. */
static int weigh_and_push(fa_store *to, fa_store *from, fa_winner_record *winner,
                          const fa_cubin_record *cubin, fa_bundle_change *ret_change, fa_diag *diag)
{
    const char *why;
    fa_cubin_record there = {0};
    fa_study_trial *record = NULL;
    size_t count = 0;
    int rc = fa_store_winner_hold(to, &winner->scope, diag);
    if (rc == 0)
        rc = fa_bundle_weigh_here(to, winner, ret_change, &why, diag);
    if (rc != 0 || (*ret_change != FA_BUNDLE_ADDED && *ret_change != FA_BUNDLE_REPLACED))
        return rc;
    /* A cubin's key names its source, not its bytes, and a proof holds for the bytes that it was made with. */
    if (fa_store_cubin_get(to, winner->cubin_key, &there, NULL) == 0 &&
        (there.size != cubin->size || memcmp(there.bytes, cubin->bytes, there.size) != 0))
        winner->driver_version = 0;
    fa_cubin_record_free(&there);
    rc = fa_store_winner_replace(to, winner, cubin, diag);
    if (rc == 0)
        rc = fa_store_trials(from, &winner->scope, &record, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = fa_store_trial_put(to, &winner->scope, &record[i], diag);
    free(record);
    return rc;
}

static int push_winner(fa_tuner *tuner, fa_store *from, const fa_scope *scope, fa_pushed *pushed,
                       fa_diag *diag)
{
    fa_winner_record winner = {0};
    fa_cubin_record cubin = {0};
    fa_diag why = {{0}};
    fa_bundle_change done = FA_BUNDLE_LISTED;
    fa_change change = {.store = tuner->store, .diag = diag};
    int rc = fa_store_winner_get(from, scope, &winner, &cubin, &why);
    if (rc == 0)
        rc = fa_bundle_check_cubin(&winner, cubin.bytes, cubin.size, &why);
    if (rc != 0) {
        fa_note(tuner, "a winner is left out: %s", why.text);
        pushed->refused++;
    }
    while (rc == 0 && fa_store_change(&change))
        change.rc = weigh_and_push(tuner->store, from, &winner, &cubin, &done, diag);
    pushed->added += done == FA_BUNDLE_ADDED;
    pushed->replaced += done == FA_BUNDLE_REPLACED;
    pushed->same += done == FA_BUNDLE_SAME;
    pushed->worse += done == FA_BUNDLE_KEPT;
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&winner);
    return change.rc;
}

int fa_push(fa_tuner *tuner, fa_pushed *ret_pushed, fa_diag *diag)
{
    fa_pushed pushed = {0};
    fa_store *file = NULL;
    fa_winner_record *rows = NULL;
    size_t count = 0;
    int rc = fa_tuner_check_with(tuner, ret_pushed != NULL, "ret_pushed", diag);
    if (rc != 0)
        return rc;
    if (tuner->spare_path[0] == 0)
        return fa_fail(diag, FA_ESTORE,
                       "the store %s is a file: set FA_TUNE_STORE to the server's address, "
                       "postgresql://USER@HOST/DATABASE",
                       tuner->store_path);
    pthread_mutex_lock(&tuner->work);
    rc = fa_sweep_need_server(tuner, diag);
    if (rc == 0)
        rc = fa_store_open(tuner->spare_path, FA_STORE_EXISTING, &file, NULL, diag);
    if (rc == 0)
        rc = fa_store_winners(file, NULL, &rows, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = push_winner(tuner, file, &rows[i].scope, &pushed, diag);
    free(rows);
    fa_store_close(&file);
    pthread_mutex_unlock(&tuner->work);
    const size_t size = ret_pushed->size;
    pushed.size = size;
    if (rc == 0)
        memcpy(ret_pushed, &pushed, size < sizeof pushed ? size : sizeof pushed);
    return rc;
}
