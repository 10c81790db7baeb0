/* SPDX-License-Identifier: Apache-2.0
 *
 * Exports the store's winners, each with its cubin and its evidence, and imports those of a bundle.
 */
#include "bundle_work.h"

#include "bundle_check.h"
#include "error.h"
#include "json.h"
#include "portable.h"
#include "session.h"
#include "stored.h"
#include "trial.h"

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

/* Measured trials of a winner's scope, best first, the first few with samples; of a winner that was imported those
 * that it brought. */
static int list_trials(fa_store *store, const fa_winner_record *winner, fa_trial_list *list,
                       fa_diag *diag)
{
    int rc = fa_trial_list_from_evidence(winner->evidence, list, diag);
    if (rc != 0 || list->count > 0)
        return rc;
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

int fa_bundle_add_trials(fa_store *store, fa_winner_record *winner, fa_diag *diag)
{
    fa_trial_list list = {0};
    int rc = winner->evidence != NULL ? list_trials(store, winner, &list, diag) : 0;
    if (rc == 0 && list.count > 0)
        rc = fa_trial_list_join(&list, &winner->evidence, diag);
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

static int export_one(void *context, const fa_winner_record *stored)
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
             : fa_store_cubin_get(exporting->tuner->store, winner.cubin_key, &cubin, diag);
    if (rc == 0)
        rc = fa_bundle_check_cubin(&winner, cubin.bytes, cubin.size, diag);
    if (rc == 0)
        rc = fa_bundle_add_trials(exporting->tuner->store, &winner, diag);
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

static int finish(fa_store *part, const fa_export_options *options, fa_bundle_info *ret_info,
                  fa_diag *diag)
{
    fa_secret_key secret;
    int rc = options->no_signature ? 0 : fa_keys_secret(options->key, &secret, diag);
    if (rc == 0)
        rc = fa_bundle_write(part, options->file, options->no_signature ? NULL : &secret, ret_info,
                             diag);
    if (rc == 0 && ret_info != NULL)
        ret_info->trusted = ret_info->is_signed;
    explicit_bzero(&secret, sizeof secret);
    return rc;
}

static int check_output(const fa_export_options *options, fa_diag *diag)
{
    if (options == NULL || options->size != sizeof *options)
        return fa_fail(diag, FA_EINVAL, "options.size is not sizeof(fa_export_options)");
    /* A missing key is reported before any work is done. */
    fa_secret_key secret;
    char signature[FA_STORE_PATH_MAX];
    int rc = fa_output_check(options->file, diag);
    if (rc == 0)
        rc = fa_bundle_signature_path(options->file, signature, diag);
    if (rc == 0)
        rc = fa_output_check(signature, diag);
    if (rc == 0 && !options->no_signature)
        rc = fa_keys_secret(options->key, &secret, diag);
    explicit_bzero(&secret, sizeof secret);
    return rc;
}

static int export_stored(struct exporting *exporting, fa_diag *diag)
{
    fa_tuner *tuner = exporting->tuner;
    int rc = fa_portable_new(&exporting->part, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_winners_each(tuner->store, export_one, exporting, diag);
    pthread_mutex_unlock(&tuner->work);
    if (rc != 0)
        fa_store_close(&exporting->part);
    return rc;
}

int fa_export(fa_tuner *tuner, const fa_export_options *options, fa_bundle_info *ret_info,
              fa_diag *diag)
{
    fa_diag reason = {{0}};
    struct exporting exporting = {
        .tuner = tuner, .options = options, .diag = diag != NULL ? diag : &reason};
    fa_made made = {0};
    int rc;
    if ((rc = fa_tuner_check(tuner, diag)) != 0 || (rc = check_output(options, diag)) != 0)
        return rc;
    const fa_lines_source source = {options->lines, options->keep, options->progress,
                                    options->context};
    rc = source.file != NULL ? fa_lines_make(tuner, &source, &made, diag)
                             : export_stored(&exporting, diag);
    if (rc != 0)
        return rc;
    rc = finish(source.file != NULL ? made.part : exporting.part, options, ret_info, diag);
    if (rc == 0 && ret_info != NULL) {
        ret_info->skipped = exporting.skipped;
        ret_info->failed = made.failed;
        ret_info->baselines = (int32_t)made.lines.baselines;
    }
    fa_store_close(&exporting.part);
    fa_made_free(&made);
    return rc;
}

/* Imports a bundle in one transaction: each winner is checked, compared with the store's and written. One that is not
 * valid undoes it. Then the caller is told what became of each.
 *
 * Workload: up to some thousand winners that share some hundred cubins. */
/* A winner of the bundle that is being imported. */
struct arrival {
    fa_answer answer; /* as the bundle has it */
    fa_bundle_change change;
    const char *why;
    fa_answer *stored; /* NULL: none */
    bool served;
};

struct importing {
    fa_tuner *tuner;
    fa_bundle *bundle;
    fa_bundle_info info;
    bool dry_run;
    struct arrival *arrival; /* [info.winners], those of one cubin one after another */
    int32_t arrivals;
    char cubin_key[FA_HASH_HEX]; /* of the last of them */
    bool other_bytes;            /* the store has others under its key */
    bool put;                    /* it is in the store */
};

/* ---- checking, weighing and writing ---------------------------------------------------------*/
/* Compares a cubin with the store's cubin of that key: a key is a hash of the source, not of the bytes. */
static int compare_cubin(struct importing *importing, const fa_cubin_record *cubin, fa_diag *diag)
{
    fa_cubin_record stored = {0};
    if (strcmp(cubin->key, importing->cubin_key) == 0)
        return 0;
    int rc = fa_store_cubin_get(importing->tuner->store, cubin->key, &stored, diag);
    memcpy(importing->cubin_key, cubin->key, sizeof importing->cubin_key);
    importing->put = false;
    importing->other_bytes = rc == 0 && (stored.size != cubin->size ||
                                         memcmp(stored.bytes, cubin->bytes, cubin->size) != 0);
    fa_cubin_record_free(&stored);
    return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
}

/* The store's winner for the imported winner's scope. A winner that cannot be served (its cubin is gone,
 * its row is invalid) does not count. */
static int weigh_one(fa_store *store, const fa_winner_record *winner, struct arrival *arrival,
                     fa_diag *diag)
{
    fa_winner_record stored = {0};
    fa_cubin_record cubin = {0};
    arrival->change = FA_BUNDLE_ADDED;
    int rc = fa_store_winner_get(store, &winner->scope, &stored, NULL, diag);
    if (rc == FA_ENOTFOUND || rc == FA_ECORRUPT)
        return 0;
    if (rc != 0)
        return rc;
    arrival->change = fa_bundle_weigh(&stored, winner, &arrival->why);
    rc = fa_store_cubin_get(store, stored.cubin_key, &cubin, diag);
    if (rc == FA_ENOTFOUND || rc == FA_ECORRUPT) {
        arrival->change = FA_BUNDLE_REPLACED;
        arrival->why = "the stored winner's cubin is gone";
        rc = 0;
    }
    fa_cubin_record_free(&cubin);
    if (rc == 0 && (arrival->stored = malloc(sizeof *arrival->stored)) == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for an import");
    if (rc == 0)
        rc = fa_records_answer(&stored, NULL, arrival->stored, diag);
    fa_winner_record_free(&stored);
    return rc;
}

/* The winner is as it will be stored here. */
static int settle(struct importing *importing, struct arrival *arrival,
                  const fa_winner_record *winner, const fa_cubin_record *cubin, fa_diag *diag)
{
    fa_store *store = importing->tuner->store;
    int rc = weigh_one(store, winner, arrival, diag);
    if (rc != 0 || importing->dry_run ||
        (arrival->change != FA_BUNDLE_ADDED && arrival->change != FA_BUNDLE_REPLACED))
        return rc;
    rc = importing->put ? 0 : fa_store_cubin_put(store, cubin, diag);
    if (rc != 0)
        return rc;
    importing->put = true;
    return fa_store_winner_replace(store, winner, NULL, diag);
}

static int take_one(void *context, const fa_winner_record *winner, const fa_cubin_record *cubin,
                    fa_diag *diag)
{
    struct importing *importing = context;
    const fa_bundle_info *info = &importing->info;
    struct arrival *arrival = &importing->arrival[importing->arrivals];
    fa_winner_record here = *winner;
    fa_cubin_record described = *cubin;
    int rc = fa_bundle_check_cubin(winner, cubin->bytes, cubin->size, diag);
    if (rc == 0)
        rc = fa_records_answer(winner, NULL, &arrival->answer, diag);
    if (rc != 0)
        return rc;
    importing->arrivals++; /* what it owns is freed at the end */
    arrival->why = "";
    arrival->served = fa_templates_match(fa_templates_for(importing->tuner, &winner->scope.problem),
                                         &winner->scope.problem, winner->scope.templates) &&
                      strcmp(winner->scope.policy, FA_MEASURE_POLICY) == 0;
    importing->info.unserved += !arrival->served;
    fa_bundle_describe_cubin(winner, &described);
    rc = compare_cubin(importing, &described, diag);
    if (rc != 0)
        return rc;
    here.evidence = winner->evidence != NULL ? strdup(winner->evidence) : NULL;
    rc = winner->evidence != NULL && here.evidence == NULL
             ? fa_fail(diag, FA_ENOMEM, "out of memory for an import")
             : fa_bundle_adopt(&here, info->trusted ? info->key : "unsigned", diag);
    /* The proof of an imported winner is believed if its signer is trusted and the store has the very bytes that were
     * proved; the store keeps the bytes that it has. Other winners are proved here before their first launch. */
    if (!info->trusted || importing->other_bytes)
        here.driver_version = 0;
    if (rc == 0)
        rc = settle(importing, arrival, &here, &described, diag);
    fa_winner_record_free(&here);
    return rc;
}

static int take_all(void *context, fa_diag *diag)
{
    struct importing *importing = context;
    return fa_bundle_each(importing->bundle, take_one, importing, diag);
}

/* ---- telling --------------------------------------------------------------------------------*/
static int report_outcome(struct importing *importing, const fa_import_options *options)
{
    fa_bundle_info *info = &importing->info;
    int rc = 0;
    for (int32_t i = 0; i < info->winners; i++) {
        const struct arrival *arrival = &importing->arrival[i];
        info->added += arrival->change == FA_BUNDLE_ADDED;
        info->replaced += arrival->change == FA_BUNDLE_REPLACED;
        info->kept += arrival->change == FA_BUNDLE_KEPT;
        info->same += arrival->change == FA_BUNDLE_SAME;
    }
    for (int32_t i = 0; rc == 0 && options->visit != NULL && i < info->winners; i++) {
        const struct arrival *arrival = &importing->arrival[i];
        fa_bundle_item item = {.change = arrival->change,
                               .why = arrival->why,
                               .answer = &arrival->answer,
                               .stored = arrival->stored,
                               .served = arrival->served};
        rc = options->visit(options->context, &item);
    }
    return rc;
}

static int import_locked(struct importing *importing, const fa_import_options *options,
                         fa_diag *diag)
{
    fa_tuner *tuner = importing->tuner;
    if (!options->dry_run && fa_store_is_read_only(tuner->store))
        return fa_fail(diag, FA_EREADONLY, "the store %s cannot be written", tuner->store_path);
    importing->arrival = calloc((size_t)importing->info.winners, sizeof *importing->arrival);
    if (importing->arrival == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for an import");
    return options->dry_run ? take_all(importing, diag)
                            : fa_store_batch(tuner->store, take_all, importing, diag);
}

static int import_bundle(fa_tuner *tuner, fa_bundle *bundle, const fa_bundle_info *info,
                         const fa_import_options *options, fa_bundle_info *ret_info, fa_diag *diag)
{
    struct importing importing = {
        .tuner = tuner, .bundle = bundle, .info = *info, .dry_run = options->dry_run};
    pthread_mutex_lock(&tuner->work);
    int rc = import_locked(&importing, options, diag);
    pthread_mutex_unlock(&tuner->work);
    if (rc == 0)
        rc = report_outcome(&importing, options);
    if (rc == 0 && ret_info != NULL)
        *ret_info = importing.info;
    for (int32_t i = 0; i < importing.arrivals; i++)
        free(importing.arrival[i].stored);
    free(importing.arrival);
    return rc;
}

/* Imports the winners of lines as an unsigned bundle, and then the baselines. */
static int import_lines(fa_tuner *tuner, const fa_import_options *options, fa_bundle_info *ret_info,
                        fa_diag *diag)
{
    const fa_lines_source source = {options->file, options->keep, options->progress,
                                    options->context};
    fa_made made;
    fa_bundle *bundle = NULL;
    int rc = fa_lines_make(tuner, &source, &made, diag);
    if (rc != 0)
        return rc;
    rc = fa_bundle_of(&made.part, options->file, &bundle, diag);
    if (rc == 0)
        rc = import_bundle(tuner, bundle, fa_bundle_get_info(bundle), options, ret_info, diag);
    fa_bundle_close(&bundle);
    if (rc == 0 && !options->dry_run) {
        pthread_mutex_lock(&tuner->work);
        rc = fa_store_baselines_put(tuner->store, made.lines.baseline, made.lines.baselines, diag);
        pthread_mutex_unlock(&tuner->work);
    }
    if (rc == 0 && ret_info != NULL) {
        ret_info->failed = made.failed;
        ret_info->baselines = (int32_t)made.lines.baselines;
        ret_info->from_lines = true;
    }
    fa_made_free(&made);
    return rc;
}

int fa_import(fa_tuner *tuner, const fa_import_options *options, fa_bundle_info *ret_info,
              fa_diag *diag)
{
    fa_bundle *bundle = NULL;
    fa_bundle_info info;
    int rc = fa_tuner_check(tuner, diag);
    if (rc != 0)
        return rc;
    if (options == NULL || options->size != sizeof *options)
        return fa_fail(diag, FA_EINVAL, "options.size is not sizeof(fa_import_options)");
    if (fa_is_lines(options->file))
        return import_lines(tuner, options, ret_info, diag);
    if (options->keep != NULL)
        return fa_fail(
            diag, FA_EINVAL,
            "a bundle is imported whole: only of a file of lines can a GPU or a problem be chosen");
    /* The signer is checked before anything in the bundle is read. */
    rc = fa_bundle_open_whole(options->file, options, &bundle, &info, diag);
    if (rc == 0)
        rc = import_bundle(tuner, bundle, &info, options, ret_info, diag);
    fa_bundle_close(&bundle);
    return rc;
}
