/* SPDX-License-Identifier: Apache-2.0
 *
 * Exporting the store's winners: each with its cubin and with what one must see to believe it.
 */
#include "bundle_work.h"

#include "error.h"
#include "evidence.h"
#include "json.h"
#include "json_make.h"
#include "keys.h"
#include "listing.h"
#include "problem.h"
#include "rank.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Evidence is to convince, not to replace the store: a few kilobytes a winner. */
enum { TRIALS_MAX = 8, SAMPLES_MAX = 128 };

/* ---- trials as evidence ---------------------------------------------------------------------*/
struct shown {
    fa_trial trial;
    cJSON *json;
};

struct best_trials {
    struct shown shown[TRIALS_MAX + 1];
    int count;
    bool failed;
};

/* What made the trial, without the name of the machine, which is nobody's business. */
static void add_environment(cJSON *json, const char *name, const char *text)
{
    cJSON *environment;
    if (fa_json_parse_object(text, name, &environment, NULL) != 0) {
        fa_json_add(json, name, NULL); /* it will not be printed */
    } else if (environment != NULL) {
        cJSON_DeleteItemFromObjectCaseSensitive(environment, "host");
        fa_json_add(json, name, environment);
    }
}

static cJSON *show_trial(const fa_trial_record *record)
{
    const fa_trial *trial = &record->trial;
    char seed[24]; /* as text: cJSON writes 15 digits of a number */
    cJSON *json = cJSON_CreateObject();
    fa_json_add(json, "config", fa_config_to_json(&trial->config));
    fa_json_add_number(json, "median_us", trial->median_us);
    fa_json_add_number(json, "low_us", trial->low_us);
    fa_json_add_number(json, "high_us", trial->high_us);
    fa_json_add_bool(json, "raced", trial->raced);
    if (isfinite(trial->max_error) && isfinite(trial->tolerance)) {
        fa_json_add_number(json, "max_error", trial->max_error);
        fa_json_add_number(json, "tolerance", trial->tolerance);
    }
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)record->seed);
    fa_json_add_text(json, "seed", seed);
    add_environment(json, "environment", record->environment);
    add_environment(json, "clocks", record->clocks);
    cJSON *samples = fa_json_add_array(json, "samples_us");
    for (int32_t i = 0; i < record->sample_count && i < SAMPLES_MAX; i++)
        fa_json_push(samples, /* to the nanosecond: events resolve less */
                     cJSON_CreateNumber(rint((double)record->samples_us[i] * 1e3) / 1e3));
    return json;
}

/* Keeps the best, in order. */
static int keep_best(void *context, const fa_trial_record *record)
{
    struct best_trials *all = context;
    if (record->trial.status != FA_STATUS_MEASURED)
        return 0;
    int at = all->count;
    while (at > 0 && fa_trial_compare(&record->trial, &all->shown[at - 1].trial) < 0)
        at--;
    if (at == TRIALS_MAX)
        return 0;
    memmove(&all->shown[at + 1], &all->shown[at], (size_t)(all->count - at) * sizeof all->shown[0]);
    all->shown[at] = (struct shown){record->trial, show_trial(record)};
    if (all->shown[at].json == NULL)
        all->failed = true;
    if (++all->count > TRIALS_MAX)
        cJSON_Delete(all->shown[--all->count].json);
    return 0;
}

int fa_bundle_add_trials(fa_store *store, fa_winner_record *winner, fa_diag *diag)
{
    cJSON *json;
    int rc = fa_json_parse_object(winner->evidence, "evidence", &json, diag);
    if (rc != 0)
        return rc;
    if (json == NULL || cJSON_HasObjectItem(json, "imported")) {
        cJSON_Delete(json);
        return 0; /* what came in a bundle brought its own */
    }
    struct best_trials *all = calloc(1, sizeof *all);
    rc = all != NULL ? fa_store_trials_each(store, &winner->scope, keep_best, all, diag)
                     : fa_fail(diag, FA_ENOMEM, "out of memory for evidence");
    cJSON *trials = cJSON_CreateArray();
    for (int i = 0; all != NULL && i < all->count; i++)
        fa_json_push(trials, all->shown[i].json);
    if (rc == 0 && !all->failed && all->count > 0) {
        fa_json_add(json, "trials", trials);
        char *text = fa_json_print(json);
        if (text != NULL) {
            free(winner->evidence);
            winner->evidence = text;
        }
        all->failed = text == NULL;
    } else {
        cJSON_Delete(trials);
    }
    cJSON_Delete(json);
    if (rc == 0 && all->failed)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for evidence");
    free(all);
    return rc;
}

/* ---- exporting ------------------------------------------------------------------------------*/
struct exporting {
    fa_tuner *tuner;
    const fa_export_options *options;
    fa_bundle_writer *writer;
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
        rc = fa_bundle_add(exporting->writer, &winner, cubin.bytes, cubin.size, diag);
    if (rc == FA_ENOTFOUND || rc == FA_ECORRUPT) {
        fa_note(exporting->tuner, "a winner is left out: %s", diag->text);
        exporting->skipped++;
        rc = 0;
    }
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&winner);
    return rc;
}

int fa_bundle_finish(fa_bundle_writer *writer, const fa_export_options *options,
                     fa_bundle_info *ret_info, fa_diag *diag)
{
    fa_sign_secret secret;
    fa_bundle_head head;
    int rc = options->no_signature ? 0 : fa_keys_secret(options->key, &secret, diag);
    if (rc == 0)
        rc = fa_bundle_write(writer, options->file, options->no_signature ? NULL : &secret, &head,
                             diag);
    if (rc == 0 && ret_info != NULL) {
        *ret_info = (fa_bundle_info){.version = head.version,
                                     .bytes = (int64_t)head.bytes,
                                     .winners = head.winners,
                                     .cubins = head.cubins,
                                     .is_signed = head.is_signed,
                                     .trusted = head.is_signed};
        if (head.is_signed)
            fa_key_text(head.key, ret_info->key);
    }
    fa_sign_wipe(&secret, sizeof secret);
    return rc;
}

int fa_bundle_check_output(const fa_export_options *options, fa_diag *diag)
{
    if (options == NULL || options->size != sizeof *options)
        return fa_fail(diag, FA_EINVAL, "options.size is not sizeof(fa_export_options)");
    if (options->file == NULL || options->file[0] == 0)
        return fa_fail(diag, FA_EINVAL, "no file to export to");
    /* Before any work: a missing key is told at once. */
    fa_sign_secret secret;
    int rc = options->no_signature ? 0 : fa_keys_secret(options->key, &secret, diag);
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
        rc = fa_bundle_writer_new(&exporting.writer, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_listed_winners_each(tuner, export_one, &exporting, diag);
    pthread_mutex_unlock(&tuner->work);
    if (rc == 0)
        rc = fa_bundle_finish(exporting.writer, options, ret_info, diag);
    if (rc == 0 && ret_info != NULL)
        ret_info->skipped = exporting.skipped;
    fa_bundle_writer_free(&exporting.writer);
    return rc;
}
