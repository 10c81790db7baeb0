/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners that travel: exported from the store, each with its cubin and its evidence; imported from a bundle; and pushed to a
 * server from the local file, which served while that did not answer: exported there, and imported as this user's own.
 *
 * Invariants: nobody changes a winner between its weighing and its replacement, and a better one stays. An import is all
 * or nothing. A push leaves the file as it is, so that one that ends in the middle is made again.
 */
#include "lines.h"

#include "error.h"
#include "store.h"
#include "session.h"
#include "lookup.h"
#include "trial.h"

#include <stdlib.h>
#include <string.h>

/* Evidence is a few kilobytes for a winner, not a copy of the store. */
enum { SAMPLED_MAX = 8 };

/* ---- trials as evidence ---------------------------------------------------------------------*/
/* Measured trials of a winner's scope, best first, the first few with samples and circumstances. */
static size_t choose_trials(fa_study_trial *record, size_t count)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (record[i].trial.status == FA_STATUS_MEASURED)
            record[left++] = record[i];
    if (left > 0)
        qsort(record, left, sizeof *record, fa_configs_compare);
    left = left < FA_TRIAL_LIST_MAX ? left : FA_TRIAL_LIST_MAX;
    for (size_t i = SAMPLED_MAX; i < left; i++) {
        record[i].samples_us = NULL;
        record[i].environment = record[i].clocks = NULL;
        record[i].sample_count = 0;
    }
    return left;
}

int fa_bundle_add_trials(fa_store *store, fa_winner_record *winner, fa_diag *diag)
{
    fa_study_trial *record = NULL;
    size_t count = 0;
    if (winner->evidence == NULL)
        return 0;
    int rc = fa_trials_from_evidence(winner->evidence, &record, &count, diag);
    if (rc == 0 && count == 0) { /* not imported */
        rc = fa_store_trials(store, &winner->scope, &record, &count, diag);
        count = rc == 0 ? choose_trials(record, count) : 0;
    }
    if (rc == 0 && count > 0)
        rc = fa_trials_join(record, count, &winner->evidence, diag);
    free(record);
    return rc;
}

/* ---- exporting ------------------------------------------------------------------------------*/
/* The same winner with an evidence of its own. */
static int copy_winner(const fa_winner_record *stored, fa_winner_record *ret_winner, fa_diag *diag)
{
    *ret_winner = *stored;
    ret_winner->evidence = stored->evidence != NULL ? strdup(stored->evidence) : NULL;
    return stored->evidence != NULL && ret_winner->evidence == NULL
               ? fa_fail(diag, FA_ENOMEM, "out of memory for evidence")
               : 0;
}

/* Adds a winner of a store to the bundle's part, or leaves it out. */
static int export_one(fa_tuner *tuner, fa_store *from, const fa_export_options *options,
                      fa_store *part, const fa_winner_record *stored, int32_t *skipped,
                      fa_diag *diag)
{
    fa_answer answer;
    fa_winner_record winner;
    fa_cubin_record cubin = {0};
    int rc = fa_records_answer(stored, NULL, &answer, diag);
    if (rc != 0)
        return rc;
    if (options->keep != NULL && !options->keep(options->context, &answer))
        return 0;
    rc = copy_winner(stored, &winner, diag);
    if (rc == 0)
        rc = fa_store_cubin_get(from, winner.cubin_key, &cubin, diag);
    if (rc == 0)
        rc = fa_bundle_check_cubin(&winner, cubin.bytes, cubin.size, diag);
    if (rc == 0)
        rc = fa_bundle_add_trials(from, &winner, diag);
    if (rc == 0)
        rc = fa_bundle_add(part, &winner, cubin.bytes, cubin.size, diag);
    if (rc == FA_ENOTFOUND || rc == FA_ECORRUPT) {
        fa_note(tuner, "a winner is left out: %s", diag->text);
        (*skipped)++;
        rc = 0;
    }
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&winner);
    return rc;
}

/* `work` is held. */
static int export_stored(fa_tuner *tuner, fa_store *from, const fa_export_options *options,
                         fa_store **ret_part, int32_t *skipped, fa_diag *diag)
{
    fa_winner_record *rows = NULL;
    size_t count = 0;
    int rc = fa_portable_new(ret_part, diag);
    if (rc != 0)
        return rc;
    rc = fa_store_winners_by_cubin(from, &rows, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = export_one(tuner, from, options, *ret_part, &rows[i], skipped, diag);
    free(rows);
    if (rc != 0)
        fa_store_close(ret_part);
    return rc;
}

int fa_export(fa_tuner *tuner, const fa_export_options *options, fa_bundle_info *ret_info,
              fa_diag *diag)
{
    fa_diag reason = {{0}};
    fa_lines lines = {0};
    fa_secret_key secret = {.algorithm = {0}};
    char signature[FA_STORE_PATH_MAX];
    int32_t skipped = 0;
    diag = diag != NULL ? diag : &reason;
    int rc = fa_tuner_check(tuner, diag);
    if (rc != 0)
        return rc;
    if (options == NULL || options->size != sizeof *options)
        return fa_fail(diag, FA_EINVAL, "options.size is not sizeof(fa_export_options)");
    const fa_import_options source = {.file = options->lines,
                                      .keep = options->keep,
                                      .progress = options->progress,
                                      .context = options->context};
    rc = fa_output_check(options->file, diag);
    if (rc == 0)
        rc = fa_bundle_signature_path(options->file, signature, diag);
    if (rc == 0)
        rc = fa_output_check(signature, diag);
    if (rc == 0 && !options->no_signature) /* a missing key is reported before any work is done */
        rc = fa_keys_secret(options->key, &secret, diag);
    if (rc == 0 && source.file != NULL) {
        rc = fa_lines_make(tuner, &source, &lines, diag);
    } else if (rc == 0) {
        rc = FA_HELD(tuner,
                     export_stored(tuner, tuner->store, options, &lines.part, &skipped, diag));
    }
    if (rc == 0 && lines.part == NULL)
        rc = fa_fail(diag, FA_ENOTFOUND, "%s holds no winner", source.file);
    if (rc == 0)
        rc = fa_bundle_write(lines.part, options->file, options->no_signature ? NULL : &secret,
                             ret_info, diag);
    if (rc == 0 && ret_info != NULL) {
        ret_info->trusted = ret_info->is_signed;
        ret_info->skipped = skipped;
        ret_info->failed = lines.failed;
        ret_info->baselines = (int32_t)lines.baselines;
    }
    explicit_bzero(&secret, sizeof secret);
    fa_lines_free(&lines);
    return rc;
}

/* Imports a bundle in one transaction: each winner is checked, compared with the store's and written. One that is not
 * valid undoes it.
 *
 * Workload: up to some thousand winners that share some hundred cubins. */
struct importing {
    fa_tuner *tuner;
    fa_bundle *bundle;
    fa_bundle_info info;
    bool dry_run;
    bool own;                    /* this user's winners, made elsewhere: they stay what they are */
    char cubin_key[FA_HASH_HEX]; /* of the last winner */
    bool other_bytes;            /* the store has others under its key */
    bool put;                    /* it is in the store */
};

/* ---- checking, weighing and writing ---------------------------------------------------------*/
/* Whether the store has others under the cubin's key, which is a hash of the source, not of the bytes. */
static int has_other_bytes(fa_store *store, const fa_cubin_record *cubin, bool *ret_other,
                           fa_diag *diag)
{
    fa_cubin_record stored = {0};
    int rc = fa_store_cubin_get(store, cubin->key, &stored, diag);
    *ret_other = rc == 0 && (stored.size != cubin->size ||
                             memcmp(stored.bytes, cubin->bytes, cubin->size) != 0);
    fa_cubin_record_free(&stored);
    return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
}

/* What a winner from elsewhere is to the store's of its scope. A winner that cannot be served (its cubin is gone,
 * its row is invalid) does not count. */
static int weigh_here(fa_store *store, const fa_winner_record *winner, fa_bundle_change *ret_change,
                      fa_diag *diag)
{
    fa_winner_record stored = {0};
    fa_cubin_record cubin = {0};
    *ret_change = FA_BUNDLE_ADDED;
    int rc = fa_store_winner_get(store, &winner->scope, &stored, &cubin, diag);
    if (rc == 0)
        *ret_change = fa_bundle_weigh(&stored, winner);
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&stored);
    return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
}

static int take_one(struct importing *importing, const fa_winner_record *winner,
                    const fa_cubin_record *cubin, fa_diag *diag)
{
    fa_bundle_info *info = &importing->info;
    fa_store *store = importing->tuner->store;
    fa_answer answer;
    fa_bundle_change change = FA_BUNDLE_KEPT;
    fa_winner_record here;
    int rc = fa_bundle_check_cubin(winner, cubin->bytes, cubin->size, diag);
    if (rc == 0)
        rc = fa_records_answer(winner, NULL, &answer, diag);
    if (rc == 0 && strcmp(cubin->key, importing->cubin_key) != 0) {
        memcpy(importing->cubin_key, cubin->key, sizeof importing->cubin_key);
        importing->put = false;
        rc = has_other_bytes(store, cubin, &importing->other_bytes, diag);
    }
    if (rc != 0)
        return rc;
    info->unserved +=
        !fa_templates_match(fa_templates_for(importing->tuner, &winner->scope.problem),
                            &winner->scope.problem, winner->scope.templates) ||
        !FA_POLICY_IS_OURS(winner->scope.policy);
    rc = copy_winner(winner, &here, diag);
    if (rc == 0 && !importing->own)
        rc = fa_bundle_adopt(&here, info->trusted ? info->key : "unsigned", diag);
    /* The proof of an imported winner is believed if its signer is trusted and the store has the very bytes that were
     * proved; the store keeps the bytes that it has. Other winners are proved here before their first launch. */
    if (!(info->trusted || importing->own) || importing->other_bytes)
        here.driver_version = 0;
    if (rc == 0 && !importing->dry_run)
        rc = fa_store_winner_hold(store, &here.scope, diag);
    if (rc == 0)
        rc = weigh_here(store, &here, &change, diag);
    const bool better = change == FA_BUNDLE_ADDED || change == FA_BUNDLE_REPLACED;
    if (rc == 0 && better && !importing->dry_run && !importing->put) {
        rc = fa_store_cubin_put(store, cubin, diag);
        importing->put = rc == 0;
    }
    if (rc == 0 && better && !importing->dry_run)
        rc = fa_store_winner_put(store, &here, NULL, true, NULL, diag);
    fa_winner_record_free(&here);
    info->added += change == FA_BUNDLE_ADDED;
    info->replaced += change == FA_BUNDLE_REPLACED;
    info->kept += change == FA_BUNDLE_KEPT;
    info->same += change == FA_BUNDLE_SAME;
    return rc;
}

static int take_all(struct importing *importing, fa_diag *diag)
{
    fa_winner_record *rows = NULL;
    fa_cubin_record cubin = {0};
    size_t count = 0;
    importing->info =
        *fa_bundle_get_info(importing->bundle); /* counts anew: a change may be tried again */
    importing->cubin_key[0] = 0;
    int rc = fa_bundle_winners(importing->bundle, &rows, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = fa_bundle_cubin_of(importing->bundle, &rows[i], &cubin, diag);
        if (rc == 0)
            rc = take_one(importing, &rows[i], &cubin, diag);
    }
    fa_cubin_record_free(&cubin);
    free(rows);
    return rc;
}

static int import_bundle(struct importing *importing, fa_bundle_info *ret_info, fa_diag *diag)
{
    fa_tuner *tuner = importing->tuner;
    fa_change change = {.store = tuner->store, .diag = diag};
    pthread_mutex_lock(&tuner->work);
    if (importing->dry_run)
        change.rc = take_all(importing, diag);
    else if (fa_store_is_read_only(tuner->store))
        change.rc =
            fa_fail(diag, FA_EREADONLY, "the store %s cannot be written", tuner->store_path);
    else
        while (fa_store_change(&change))
            change.rc = take_all(importing, diag);
    pthread_mutex_unlock(&tuner->work);
    if (change.rc == 0 && ret_info != NULL)
        *ret_info = importing->info;
    return change.rc;
}

/* Imports the winners of lines as an unsigned bundle, and then the baselines. */
static int import_lines(fa_tuner *tuner, const fa_import_options *options, fa_bundle_info *ret_info,
                        fa_diag *diag)
{
    fa_lines lines;
    struct importing importing = {.tuner = tuner, .dry_run = options->dry_run};
    fa_bundle_info info = {0};
    int rc = fa_lines_make(tuner, options, &lines, diag);
    if (rc != 0)
        return rc;
    if (lines.part != NULL)
        rc = fa_bundle_of(&lines.part, options->file, &importing.bundle, diag);
    if (rc == 0 && importing.bundle != NULL)
        rc = import_bundle(&importing, &info, diag);
    fa_bundle_close(&importing.bundle);
    if (rc == 0 && !options->dry_run) {
        rc = FA_HELD(tuner,
                     fa_store_baselines_put(tuner->store, lines.baseline, lines.baselines, diag));
    }
    info.failed = lines.failed;
    info.baselines = (int32_t)lines.baselines;
    info.from_lines = true;
    if (rc == 0 && ret_info != NULL)
        *ret_info = info;
    fa_lines_free(&lines);
    return rc;
}

int fa_import(fa_tuner *tuner, const fa_import_options *options, fa_bundle_info *ret_info,
              fa_diag *diag)
{
    struct importing importing = {.tuner = tuner};
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
    rc = fa_bundle_open_whole(options->file, options, &importing.bundle, diag);
    importing.dry_run = options->dry_run;
    if (rc == 0)
        rc = import_bundle(&importing, ret_info, diag);
    fa_bundle_close(&importing.bundle);
    return rc;
}

/* ---- pushing --------------------------------------------------------------------------------*/
int fa_push(fa_tuner *tuner, fa_bundle_info *ret_pushed, fa_diag *diag)
{
    const fa_export_options all = {.size = sizeof all};
    struct importing importing = {.tuner = tuner, .own = true};
    fa_bundle_info pushed = {0};
    fa_store *file = NULL, *part = NULL;
    int32_t skipped = 0;
    int rc = fa_tuner_check_with(tuner, ret_pushed != NULL, "ret_pushed", diag);
    if (rc != 0)
        return rc;
    if (tuner->spare_path[0] == 0)
        return fa_fail(diag, FA_ESTORE,
                       "the store %s is a file: set FA_TUNE_STORE to the server's address, "
                       "postgresql://USER@HOST/DATABASE",
                       tuner->store_path);
    pthread_mutex_lock(&tuner->work);
    rc = fa_tuner_need_server(tuner, diag);
    if (rc == 0)
        rc = fa_store_open(tuner->spare_path, FA_STORE_EXISTING, NULL, &file, NULL, diag);
    if (rc == 0)
        rc = export_stored(tuner, file, &all, &part, &skipped, diag);
    fa_store_close(&file);
    pthread_mutex_unlock(&tuner->work);
    if (rc == 0)
        rc = fa_bundle_of(&part, tuner->spare_path, &importing.bundle, diag);
    if (rc == 0)
        rc = import_bundle(&importing, &pushed, diag);
    fa_bundle_close(&importing.bundle);
    fa_store_close(&part);
    if (rc != 0 && rc != FA_ENOTFOUND) /* there is no winner */
        return rc;
    pushed.skipped = skipped;
    *ret_pushed = pushed;
    return 0;
}
