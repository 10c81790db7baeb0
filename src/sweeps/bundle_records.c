/* SPDX-License-Identifier: Apache-2.0
 *
 * Exports the store's winners as records, and predicts for all GPUs of the catalogue.
 *
 * A predicted record is the model's choice from the families that serve its problem on its GPU. When such a family
 * changes or is added, the record is dropped; it can be made again on any machine. A measured record is one kernel
 * on one GPU; it is valid as long as its config renders to the cubin key that was measured.
 */
#include "bundle_work.h"

#include "candidate.h"
#include "catalogue.h"
#include "error.h"
#include "stored.h"
#include "json.h"
#include "problem.h"
#include "records.h"
#include "render.h"
#include "job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- store to records -----------------------------------------------------------------------*/
struct collecting {
    fa_tuner *tuner;
    const fa_export_options *output; /* NULL: all winners are kept */
    fa_records *records;
    fa_records_info *info;
    fa_diag *diag;
};

/* The catalogue's entry of a silicon, by the winner's own name for it where that fits. */
static bool find_listed(const fa_winner_record *winner, fa_gpu *ret_gpu)
{
    char silicon[FA_SILICON_MAX];
    if (fa_catalogue_find(winner->gpu_name, ret_gpu, NULL) == 0) {
        fa_gpu_silicon(ret_gpu, silicon);
        if (strcmp(silicon, winner->scope.silicon) == 0)
            return true;
    }
    for (int i = 0; i < fa_catalogue_count(); i++) {
        const char *refused = NULL;
        fa_catalogue_at(i, ret_gpu, &refused);
        fa_gpu_silicon(ret_gpu, silicon);
        if (refused == NULL && strcmp(silicon, winner->scope.silicon) == 0)
            return true;
    }
    return false;
}

int fa_record_answer(const fa_winner_record *record, fa_answer *ret_answer, fa_diag *diag)
{
    fa_gpu gpu;
    int rc = fa_catalogue_find(record->gpu_name, &gpu, diag);
    return rc == 0 ? fa_records_answer(record, &gpu, ret_answer, diag) : rc;
}

static fa_winner_record *find_record(fa_records *records, const fa_scope *scope)
{
    for (int32_t i = 0; i < records->count; i++)
        if (fa_problem_equal(&records->record[i].scope.problem, &scope->problem) &&
            strcmp(records->record[i].scope.silicon, scope->silicon) == 0)
            return &records->record[i];
    return NULL;
}

/* Gives a stored winner the origin that it had where it was made, and takes from its evidence what concerns one
 * machine, one run or an import; only a measured winner says what was measured. */
static int make_portable(fa_winner_record *record, fa_diag *diag)
{
    static const char *const own[] = {"gpu", "uuid", "imported", "tune_s", "undated"};
    const char *name = "";
    cJSON *json;
    int rc = fa_json_parse_object(record->evidence, "evidence", &json, diag);
    record->evidence = NULL;
    if (rc != 0)
        return rc;
    if (json == NULL)
        json = cJSON_CreateObject();
    if (fa_json_text(cJSON_GetObjectItemCaseSensitive(json, "imported"), "origin", &name,
                     "evidence", NULL) == 0)
        fa_origin_parse(name, &record->origin);
    if (record->origin == FA_ORIGIN_MEASURED_SAME_SILICON)
        record->origin = FA_ORIGIN_MEASURED;
    if (cJSON_HasObjectItem(json, "undated") || record->origin > FA_ORIGIN_IMPORTED)
        record->unix_time = 0;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(json, own[i]);
    cJSON *us = cJSON_GetObjectItemCaseSensitive(json, "default_us");
    if (cJSON_IsNumber(us))
        cJSON_SetNumberValue(us, rint(us->valuedouble * 1e3) / 1e3);
    if (record->origin > FA_ORIGIN_IMPORTED) {
        cJSON_DeleteItemFromObjectCaseSensitive(json, "trials");
        record->cubin_key[0] = record->nvrtc[0] = 0;
        record->driver_version = 0;
        record->trial =
            (fa_trial){.config = record->trial.config, .predicted_us = record->trial.predicted_us};
    }
    record->entry[0] = 0;
    record->evidence = fa_json_finish(json);
    return record->evidence != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for records");
}

static int collect_one(void *context, fa_store *store, const fa_winner_record *winner)
{
    struct collecting *all = context;
    const fa_export_options *output = all->output;
    fa_winner_record record = *winner;
    fa_gpu gpu;
    fa_answer answer;
    const fa_scope *scope = &winner->scope;
    if (!fa_templates_match(all->tuner->templates, &scope->problem, scope->templates) ||
        strcmp(scope->policy, FA_MEASURE_POLICY) != 0)
        return 0;
    if (!find_listed(winner, &gpu)) {
        all->info->unlisted++;
        return 0;
    }
    int rc = fa_records_answer(winner, &gpu, &answer, all->diag);
    if (rc != 0 ||
        (output != NULL && output->keep != NULL && !output->keep(output->context, &answer)))
        return rc;
    memcpy(record.gpu_name, gpu.name, sizeof gpu.name);
    rc = make_portable(&record, all->diag);
    fa_winner_record *earlier = find_record(all->records, scope);
    bool kept = earlier != NULL && earlier->origin < record.origin;
    if (rc == 0 && !kept && record.origin <= FA_ORIGIN_IMPORTED)
        rc = fa_bundle_add_trials(store, &record, all->diag);
    if (rc == 0 && earlier == NULL)
        rc = fa_records_append(all->records, &record, all->diag);
    if (rc != 0 || kept) {
        fa_winner_record_free(&record);
        return rc;
    }
    if (earlier != NULL) {
        fa_winner_record_free(earlier);
        *earlier = record;
    }
    if (winner->unix_time > all->records->made)
        all->records->made = winner->unix_time;
    all->info->taken++;
    return 0;
}

/* Adds a baseline if a record of its problem was measured on its GPU. */
static int collect_baseline(void *context, const fa_baseline *baseline)
{
    struct collecting *all = context;
    for (int32_t i = 0; i < all->records->count; i++) {
        const fa_winner_record *record = &all->records->record[i];
        fa_answer answer = {.problem = record->scope.problem};
        memcpy(answer.gpu.name, record->gpu_name, sizeof answer.gpu.name);
        if (record->origin <= FA_ORIGIN_IMPORTED && fa_baseline_concerns(baseline, &answer))
            return fa_records_append_baseline(all->records, baseline, all->diag);
    }
    return 0;
}

/* Whether a prediction of the file was made from the families that serve its problem today. */
static bool prediction_holds(const fa_tuner *tuner, const fa_records *file, const fa_records *today,
                             const fa_answer *record)
{
    for (int i = 0; i < tuner->families.count; i++) {
        const fa_family *family = tuner->families.family[i];
        if (fa_records_family_moved(file, today, fa_family_name(family)) &&
            fa_family_supports(family, &record->problem, &record->gpu, NULL) == 0)
            return false;
    }
    return !fa_records_family_moved(file, today, record->trial.config.family);
}

/* Drops records that are no longer valid. */
static int drop_moved(fa_tuner *tuner, fa_records *file, const fa_records *today,
                      fa_records_info *info, fa_diag *diag)
{
    int32_t left = 0;
    int rc = 0;
    for (int32_t i = 0; i < file->count; i++) {
        fa_answer record;
        bool holds = true;
        if (rc == 0 && (rc = fa_record_answer(&file->record[i], &record, diag)) == 0)
            holds = record.origin <= FA_ORIGIN_IMPORTED
                        ? fa_record_holds(tuner, &record)
                        : prediction_holds(tuner, file, today, &record);
        if (holds)
            file->record[left++] = file->record[i];
        else
            fa_winner_record_free(&file->record[i]);
    }
    info->dropped = file->count - left;
    file->count = left;
    return rc;
}

static void count_origins(const fa_records *records, fa_records_info *info)
{
    info->winners = records->count;
    info->measured = 0;
    for (int32_t i = 0; i < records->count; i++)
        info->measured += records->record[i].origin <= FA_ORIGIN_IMPORTED;
    info->predicted = info->winners - info->measured;
    info->baselines = records->baselines;
}

int fa_records_options_check(const fa_records_options *options, fa_diag *diag)
{
    if (options == NULL || options->size != sizeof *options)
        return fa_fail(diag, FA_EINVAL, "options.size is not sizeof(fa_records_options)");
    return 0;
}

static int export_records(fa_tuner *tuner, const fa_records_options *options, fa_records_info *info,
                          fa_diag *diag)
{
    const char *path = options->records;
    fa_records records = {0}, today = {0};
    struct collecting all = {tuner, options->output, &records, info, diag};
    int rc;
    if ((rc = fa_tuner_families(tuner, diag)) != 0 ||
        (rc = fa_records_families(&today, tuner->templates, &tuner->families, diag)) != 0 ||
        ((rc = fa_records_read(path, &records, diag)) != 0 && rc != FA_ENOTFOUND))
        return rc;
    rc = drop_moved(tuner, &records, &today, info, diag);
    records.families = today.families;
    memcpy(records.family, today.family, sizeof records.family);
    if (rc != 0 || (rc = fa_listed_winners_each(tuner, collect_one, &all, diag)) != 0 ||
        (rc = fa_store_baselines_each(tuner->store, collect_baseline, &all, diag)) != 0)
        goto done;
    count_origins(&records, info);
    rc = records.count > 0 ? fa_records_write(&records, path, diag)
                           : fa_fail(diag, FA_ENOTFOUND,
                                     "the store has no winner within the filters that is of "
                                     "today's templates and on a GPU of the catalogue");
done:
    fa_records_free(&records);
    return rc;
}

int fa_export_records(fa_tuner *tuner, const fa_records_options *options, fa_records_info *ret_info,
                      fa_diag *diag)
{
    fa_records_info info = {0};
    int rc;
    if ((rc = fa_tuner_check(tuner, diag)) != 0 ||
        (rc = fa_records_options_check(options, diag)) != 0 ||
        (rc = fa_output_check(options->records, diag)) != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = export_records(tuner, options, &info, diag);
    pthread_mutex_unlock(&tuner->work);
    if (rc == 0 && ret_info != NULL)
        *ret_info = info;
    return rc;
}

int fa_records_check(const char *path, const char *templates_directory, fa_diag *diag)
{
    fa_records records = {0}, today = {0};
    fa_templates *templates = NULL;
    fa_family_list families = {0};
    int rc;
    if ((rc = fa_templates_open(templates_directory, &templates, diag)) != 0 ||
        (rc = fa_families_load(templates, NULL, &families, diag)) != 0 ||
        (rc = fa_records_families(&today, templates, &families, diag)) != 0 ||
        (rc = fa_records_read(path, &records, diag)) != 0)
        goto done;
    const char *moved = fa_records_moved(&records, &today);
    if (moved != NULL)
        rc = fa_fail(diag, FA_EVERSION,
                     "%s is out of date: %s has changed since its predictions were made; "
                     "`fa-tune export --records %s --predict` makes them anew",
                     path, moved, path);
done:
    fa_records_free(&records);
    fa_families_free(&families);
    fa_templates_close(&templates);
    return rc;
}

/* ---- the catalogue, predicted ---------------------------------------------------------------*/
/* Whether an earlier entry of the catalogue is the same silicon. */
static bool listed_before(int at, const fa_gpu *gpu)
{
    char silicon[FA_SILICON_MAX], other[FA_SILICON_MAX];
    fa_gpu_silicon(gpu, silicon);
    for (int i = 0; i < at; i++) {
        fa_gpu earlier;
        const char *refused = NULL;
        fa_catalogue_at(i, &earlier, &refused);
        fa_gpu_silicon(&earlier, other);
        if (refused == NULL && strcmp(silicon, other) == 0)
            return true;
    }
    return false;
}

int fa_predict_catalogue(fa_tuner *tuner, const fa_records_options *options, fa_diag *diag)
{
    int rc = fa_tuner_check(tuner, diag);
    if (rc == 0)
        rc = fa_records_options_check(options, diag);
    if (rc != 0)
        return rc;
    int gpus = fa_catalogue_count();
    fa_tuner_ignore_system(tuner, true);
    const fa_operation *operation = fa_operation_of(NULL);
    fa_problem problem = {0};
    int problems = 0;
    while (fa_operation_common(operation, problems, &problem, NULL) == 0)
        problems++;
    for (int at = 0; rc == 0 && at < gpus * problems; at++) {
        fa_gpu gpu;
        const char *refused = NULL;
        fa_answer answer;
        fa_catalogue_at(at / problems, &gpu, &refused);
        if (options->progress != NULL &&
            options->progress(options->context, "predicting", at, gpus * problems) != 0)
            rc = fa_fail(diag, FA_ECANCELED, "canceled; what was predicted is kept");
        if (rc != 0 || refused != NULL || listed_before(at / problems, &gpu))
            continue;
        fa_operation_common(operation, at % problems, &problem, NULL);
        fa_request request = {.size = sizeof request,
                              .problem = problem,
                              .gpu = gpu.name,
                              .effort = FA_EFFORT_PREDICT};
        rc = fa_tune_here(tuner, &request, &answer, diag);
        if (rc == FA_ENOTSUP || rc == FA_ENOKERNEL)
            rc = 0; /* no family serves it: bf16 on Turing */
    }
    fa_tuner_ignore_system(tuner, false);
    return rc;
}
