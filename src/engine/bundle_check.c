/* SPDX-License-Identifier: Apache-2.0
 *
 * Believing a bundle: who signed it, is it whole, is each cubin what its winner says; and which of
 * two winners is the better one.
 */
#include "lookup.h"

#include "cubin.h"
#include "error.h"
#include "own_place.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fa_origin fa_bundle_origin(fa_origin there)
{
    return there < FA_ORIGIN_IMPORTED ? FA_ORIGIN_IMPORTED : there;
}

/* ---- the whole file -------------------------------------------------------------------------*/
int fa_bundle_open_whole(const char *path, const fa_import_options *trusted, fa_bundle **ret_bundle,
                         fa_diag *diag)
{
    char folder[FA_STORE_PATH_MAX] = "";
    int rc = fa_bundle_open(path, false, ret_bundle, diag);
    if (rc != 0)
        return rc;
    const fa_bundle_info *info = fa_bundle_get_info(*ret_bundle);
    if (trusted != NULL && info->is_signed && !info->trusted) {
        fa_own_config(FA_TRUSTED_FOLDER, folder, sizeof folder);
        rc = fa_fail(diag, FA_EUNTRUSTED,
                     "bundle %s is signed by a key that is not trusted here: key ID %s. Its "
                     "kernels would run on your GPU: if you know whose key it is, copy its .pub "
                     "file into %s",
                     path, info->key, folder);
    } else if (trusted != NULL && !info->is_signed && !trusted->allow_unsigned) {
        rc = fa_fail(diag, FA_EUNTRUSTED,
                     "bundle %s is not signed: have it exported with a key, or import it with "
                     "--allow-unsigned if you know where it comes from",
                     path);
    }
    if (rc == 0)
        rc = fa_bundle_read(*ret_bundle, diag);
    if (rc != 0)
        fa_bundle_close(ret_bundle);
    return rc;
}

/* ---- one winner -----------------------------------------------------------------------------*/
/* The winner says the most of what it launches: no less than its first kernel, no more than any of the cubin. */
static bool lies_between(int32_t least, int32_t said, int32_t most)
{
    return least <= said && said <= most;
}

int fa_bundle_check_cubin(const fa_winner_record *winner, const void *bytes, size_t size,
                          fa_diag *diag)
{
    fa_cubin_info first, most;
    const fa_trial *trial = &winner->trial;
    int sm = 0;
    int rc = fa_cubin_read(bytes, size, winner->entry, &first, diag);
    if (rc == 0)
        rc = fa_cubin_most(bytes, size, &most, diag);
    if (rc != 0)
        return fa_fail_in(diag, FA_ECORRUPT, "cubin %.12s of %s", winner->cubin_key,
                          winner->gpu_name);
    if (sscanf(winner->scope.silicon, "sm_%d ", &sm) != 1 || first.sm != sm)
        return fa_fail(diag, FA_ECORRUPT, "cubin %.12s is for sm_%d and its winner for \"%s\"",
                       winner->cubin_key, first.sm, winner->scope.silicon);
    if (!lies_between(first.registers, trial->registers, most.registers) ||
        !lies_between(first.stack_bytes, trial->spill_bytes, most.stack_bytes) ||
        !lies_between(first.static_smem_bytes, trial->static_smem_bytes, most.static_smem_bytes) ||
        (first.max_threads != 0 && first.max_threads < trial->threads))
        return fa_fail(diag, FA_ECORRUPT,
                       "the kernels of cubin %.12s have %d to %d registers, %d to %d B of stack, "
                       "%d to %d B of static shared memory and blocks of up to %d threads; its "
                       "winner says %d, %d, %d and %d",
                       winner->cubin_key, first.registers, most.registers, first.stack_bytes,
                       most.stack_bytes, first.static_smem_bytes, most.static_smem_bytes,
                       first.max_threads, trial->registers, trial->spill_bytes,
                       trial->static_smem_bytes, trial->threads);
    return 0;
}

int fa_bundle_adopt(fa_winner_record *winner, const char *signer, fa_diag *diag)
{
    cJSON *json;
    int rc = fa_json_parse_object(winner->evidence, "evidence", &json, diag);
    if (rc != 0)
        return rc;
    if (json == NULL)
        json = cJSON_CreateObject();
    if (!cJSON_HasObjectItem(json, "imported")) {
        cJSON *imported = fa_json_add_object(json, "imported");
        fa_json_add_text(imported, "origin", fa_origin_name(winner->origin));
        fa_json_add_text(imported, "signer", signer);
    }
    char *text = fa_json_finish(json);
    if (text == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a winner");
    free(winner->evidence);
    winner->evidence = text;
    winner->origin = fa_bundle_origin(winner->origin);
    return 0;
}

/* ---- two winners ----------------------------------------------------------------------------*/
/* Width of the interval relative to the median; what has none is wider than any. */
static double spread(const fa_trial *trial)
{
    return trial->median_us > 0 ? (trial->high_us - trial->low_us) / trial->median_us : 1e9;
}

/* Negative: the incoming one is the better by their first difference; 0: both are as good. */
static int compare_winners(const fa_winner_record *incoming, const fa_winner_record *stored)
{
    double old = spread(&stored->trial), new = spread(&incoming->trial);
    int trust = fa_origin_trust(incoming->origin) - fa_origin_trust(stored->origin);
    if (trust != 0)
        return trust;
    if (new < old || new > old)
        return new < old ? -1 : 1;
    if (incoming->driver_version != stored->driver_version)
        return incoming->driver_version > stored->driver_version ? -1 : 1;
    return (incoming->unix_time < stored->unix_time) - (incoming->unix_time > stored->unix_time);
}

fa_bundle_change fa_bundle_weigh(const fa_winner_record *stored, const fa_winner_record *incoming)
{
    int order = compare_winners(incoming, stored);
    if (order != 0)
        return order < 0 ? FA_BUNDLE_REPLACED : FA_BUNDLE_KEPT;
    return strcmp(stored->cubin_key, incoming->cubin_key) == 0 &&
                   stored->origin == incoming->origin &&
                   fa_config_equal(&stored->trial.config, &incoming->trial.config)
               ? FA_BUNDLE_SAME
               : FA_BUNDLE_KEPT;
}

/* ---- inspecting -----------------------------------------------------------------------------*/
int fa_bundle_inspect(const char *file, fa_bundle_item **ret_items, size_t *ret_count,
                      fa_bundle_info *ret_info, fa_diag *diag)
{
    static const size_t pointers[] = {offsetof(fa_bundle_item, answer),
                                      offsetof(fa_bundle_item, evidence), SIZE_MAX};
    fa_bundle *bundle = NULL;
    fa_winner_record *rows = NULL;
    fa_cubin_record cubin = {0};
    fa_list list = {0};
    fa_answer answer;
    fa_bundle_item item;
    size_t count = 0;
    int rc = fa_bundle_open_whole(file, NULL, &bundle, diag);
    if (rc == 0)
        rc = fa_bundle_winners(bundle, &rows, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        if ((rc = fa_bundle_cubin_of(bundle, &rows[i], &cubin, diag)) != 0 ||
            (rc = fa_bundle_check_cubin(&rows[i], cubin.bytes, cubin.size, diag)) != 0 ||
            (rc = fa_records_answer(&rows[i], NULL, &answer, diag)) != 0)
            break;
        item.answer = fa_list_keep(&list, &answer, sizeof answer);
        item.evidence = fa_list_keep_text(&list, rows[i].evidence);
        fa_list_add(&list, &item, sizeof item);
    }
    fa_cubin_record_free(&cubin);
    free(rows);
    rc = fa_list_end(&list, rc, pointers, ret_items, ret_count, diag);
    if (rc == 0 && ret_info != NULL)
        *ret_info = *fa_bundle_get_info(bundle);
    fa_bundle_close(&bundle);
    return rc;
}
