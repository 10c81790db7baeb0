/* SPDX-License-Identifier: Apache-2.0
 *
 * Exports the store's winners, each with its cubin and its evidence.
 */
#include "bundle_work.h"

#include "error.h"
#include "stored.h"
#include "json.h"
#include "json_make.h"
#include "keys.h"
#include "listing.h"
#include "rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Evidence is a few kilobytes for a winner, not a copy of the store. */
enum { SAMPLED_MAX = 8 };

/* ---- trials as evidence ---------------------------------------------------------------------*/
static int keep_measured(void *context, const fa_trial_record *record)
{
    return record->trial.status == FA_STATUS_MEASURED ? fa_trial_list_add(context, record) : 0;
}

static int compare(const void *a, const void *b)
{
    return fa_trial_compare(&((const fa_trial_record *)a)->trial,
                            &((const fa_trial_record *)b)->trial);
}

int fa_bundle_trials(fa_store *store, const fa_winner_record *winner, fa_trial_list *list,
                     fa_diag *diag)
{
    int rc = fa_trial_list_from_evidence(winner->evidence, list, diag);
    if (rc != 0 || list->count > 0)
        return rc; /* a winner from a bundle has the trials that came with it */
    rc = fa_store_trials_each(store, &winner->scope, keep_measured, list, diag);
    if (rc == FA_ENOMEM)
        fa_fail(diag, rc, "out of memory for evidence");
    if (rc == 0 && list->count > 0)
        qsort(list->record, list->count, sizeof *list->record, compare);
    fa_trial_list_cut(list, FA_TRIAL_LIST_MAX);
    for (size_t i = SAMPLED_MAX; i < list->count; i++)
        fa_trial_list_lighten(&list->record[i]);
    return rc;
}

char *fa_bundle_join_trials(const char *evidence, const fa_trial_list *list)
{
    cJSON *json = NULL;
    if (fa_json_parse_object(evidence, "evidence", &json, NULL) != 0 || json == NULL)
        return NULL;
    cJSON_DeleteItemFromObjectCaseSensitive(json, "trials");
    fa_json_add(json, "trials", fa_trial_list_to_evidence(list));
    char *text = fa_json_print(json);
    cJSON_Delete(json);
    return text;
}

int fa_bundle_add_trials(fa_store *store, fa_winner_record *winner, fa_diag *diag)
{
    fa_trial_list list = {0};
    int rc = winner->evidence != NULL ? fa_bundle_trials(store, winner, &list, diag) : 0;
    if (rc == 0 && list.count > 0) {
        char *text = fa_bundle_join_trials(winner->evidence, &list);
        if (text == NULL)
            rc = fa_fail(diag, FA_ENOMEM, "out of memory for evidence");
        else
            free(winner->evidence), winner->evidence = text;
    }
    fa_trial_list_free(&list);
    return rc;
}

/* ---- exporting ------------------------------------------------------------------------------*/
struct exporting {
    fa_tuner *tuner;
    const fa_export_options *options;
    fa_store *part;
    int32_t skipped;
    fa_diag *diag;
};

static int export_one(void *context, fa_store *store, const fa_winner_record *stored)
{
    struct exporting *exporting = context;
    const fa_export_options *options = exporting->options;
    fa_answer answer;
    int rc = fa_records_answer(stored, NULL, &answer, exporting->diag);
    if (rc != 0)
        return rc;
    if (options->keep != NULL && !options->keep(options->context, &answer))
        return 0;
    fa_winner_record winner = *stored;
    fa_cubin_record cubin = {0};
    winner.evidence = stored->evidence != NULL ? strdup(stored->evidence) : NULL;
    fa_diag *diag = exporting->diag;
    rc = stored->evidence != NULL && winner.evidence == NULL
             ? fa_fail(diag, FA_ENOMEM, "out of memory for evidence")
             : fa_store_cubin_get(store, winner.cubin_key, &cubin, diag);
    if (rc == 0)
        rc = fa_bundle_check_cubin(&winner, cubin.bytes, cubin.size, diag);
    if (rc == 0)
        rc = fa_bundle_add_trials(store, &winner, diag);
    if (rc == 0)
        rc = fa_bundle_add(exporting->part, &winner, cubin.bytes, cubin.size, diag);
    if (rc == FA_ENOTFOUND || rc == FA_ECORRUPT) {
        fa_note(exporting->tuner, "a winner is left out: %s", diag->text);
        exporting->skipped++;
        rc = 0;
    }
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&winner);
    return rc;
}

int fa_bundle_finish(fa_store *part, const fa_export_options *options, fa_bundle_info *ret_info,
                     fa_diag *diag)
{
    fa_sign_secret secret;
    int rc = options->no_signature ? 0 : fa_keys_secret(options->key, &secret, diag);
    if (rc == 0)
        rc = fa_bundle_write(part, options->file, options->no_signature ? NULL : &secret, ret_info,
                             diag);
    if (rc == 0 && ret_info != NULL)
        ret_info->trusted = ret_info->is_signed;
    fa_sign_wipe(&secret, sizeof secret);
    return rc;
}

int fa_bundle_check_output(const fa_export_options *options, fa_diag *diag)
{
    if (options == NULL || options->size != sizeof *options)
        return fa_fail(diag, FA_EINVAL, "options.size is not sizeof(fa_export_options)");
    /* A missing key is reported before any work is done. */
    fa_sign_secret secret;
    int rc = fa_output_check(options->file, diag);
    if (rc == 0 && !options->no_signature)
        rc = fa_keys_secret(options->key, &secret, diag);
    fa_sign_wipe(&secret, sizeof secret);
    return rc;
}

int fa_export(fa_tuner *tuner, const fa_export_options *options, fa_bundle_info *ret_info,
              fa_diag *diag)
{
    fa_diag reason = {{0}};
    struct exporting exporting = {
        .tuner = tuner, .options = options, .diag = diag != NULL ? diag : &reason};
    int rc = fa_tuner_check(tuner, diag);
    if (rc == 0)
        rc = fa_bundle_check_output(options, diag);
    if (rc == 0)
        rc = fa_portable_new(&exporting.part, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_listed_winners_each(tuner, export_one, &exporting, diag);
    pthread_mutex_unlock(&tuner->work);
    if (rc == 0)
        rc = fa_bundle_finish(exporting.part, options, ret_info, diag);
    if (rc == 0 && ret_info != NULL)
        ret_info->skipped = exporting.skipped;
    fa_store_close(&exporting.part);
    return rc;
}
