/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes records and bundles: exports the store's winners as records, predicts records for all GPUs of the catalogue, and
 * turns records into a bundle, or into winners of the store.
 *
 * A predicted record is the model's choice from the families that serve its problem on its GPU. When such a family
 * changes or is added, the record is dropped; it can be made again on any machine. A measured record is one kernel on one
 * GPU; it is valid as long as its config renders to the cubin key that was measured.
 *
 * Of a record that enters a bundle or the store, the config is rendered and compiled with today's templates, checked as a
 * tune checks it, and becomes a winner with its cubin.
 *
 * Workload: some thousand records that share some hundred cubins. The cubins take a quarter of a second each to
 * compile. Invariants: every build ends once, with a cubin or with the compiler's error; a compile worker that dies
 * ends all builds, so that the result never depends on the load of the machine.
 */
#include "bundle_work.h"

#include "candidate.h"
#include "catalogue.h"
#include "compile_pool.h"
#include "error.h"
#include "job.h"
#include "json.h"
#include "model.h"
#include "nvrtc.h"
#include "op.h"
#include "portable.h"
#include "problem.h"
#include "session.h"
#include "stored.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* A line of records as an answer for its GPU. */
static int answer_of(const fa_winner_record *record, fa_answer *ret_answer, fa_diag *diag)
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
        if (rc == 0 && (rc = answer_of(&file->record[i], &record, diag)) == 0)
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

/* ---- exporting and refreshing a file --------------------------------------------------------*/
static int check_records_options(const fa_records_options *options, fa_diag *diag)
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
        (rc = check_records_options(options, diag)) != 0 ||
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
        rc = check_records_options(options, diag);
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

/* ---- compiling: many sources to cubins, for no GPU in particular ----------------------------*/
/* Sources to be compiled by the compile workers, all in one go. */
struct build {
    char key[FA_HASH_HEX];
    char architecture[32];
    char *source; /* malloced */
    /* Set by the compile, or before it where the store has the cubin: */
    void *cubin; /* malloced; NULL: failed, and diag says why */
    size_t size;
    char *log;
    fa_diag diag;
};

struct building {
    const fa_records_options *options;
    struct build *build;
    int32_t count, next, done;
    fa_compile_pool pool;
    fa_loop loop;
    bool ended;
    int rc;
    fa_diag diag;
};

static void end_building(void *context, int rc, const char *sentence)
{
    struct building *all = context;
    if (all->ended)
        return;
    all->ended = true;
    all->rc = rc != 0 ? fa_fail(&all->diag, rc, "%s", sentence) : 0;
    fa_loop_stop(&all->loop);
}

static bool next_build(void *context, fa_compile_task *ret_task)
{
    struct building *all = context;
    while (all->next < all->count && all->build[all->next].cubin != NULL)
        all->next++;
    if (all->ended || all->next == all->count)
        return false;
    struct build *build = &all->build[all->next];
    *ret_task = (fa_compile_task){.id = all->next++,
                                  .name = "candidate.cu", /* as a tune names it: equal bytes */
                                  .source = build->source};
    memcpy(ret_task->architecture, build->architecture, sizeof ret_task->architecture);
    build->source = NULL;
    return true;
}

static void build_compiled(void *context, int id, fa_compile_result *result)
{
    struct building *all = context;
    struct build *build = &all->build[id];
    const fa_records_options *options = all->options;
    if (result->rc != 0) {
        fa_fail(&build->diag, FA_ECOMPILE, "%s", result->text);
    } else {
        build->cubin = result->cubin;
        build->size = result->size;
        result->cubin = NULL;
        build->log = strdup(result->log);
    }
    all->done++;
    if (options->progress != NULL &&
        options->progress(options->context, "compiling", all->done, all->count) != 0)
        end_building(all, FA_ECANCELED, "canceled while compiling; nothing is written");
    if (all->done == all->count)
        end_building(all, 0, "");
}

/* A failure by chance or by load must not leave a winner out. */
static void build_lost(void *context, int id, const char *reason, fa_child_end end, int waited_ms)
{
    char sentence[256];
    (void)id, (void)end, (void)waited_ms;
    snprintf(sentence, sizeof sentence, "a compile worker %.150s; nothing is written: try again",
             reason);
    end_building(context, FA_EWORKER, sentence);
}

static void worker_started(void *context, bool confined)
{
    (void)context, (void)confined;
}

static void go_on(void *context)
{
    struct building *all = context;
    if (!all->ended)
        fa_compile_pool_advance(&all->pool);
}

static int run_builds(fa_tuner *tuner, const fa_nvrtc_location *nvrtc, struct build *build,
                      int32_t count, const fa_records_options *options, fa_diag *diag)
{
    static const fa_compile_events events = {next_build,     build_compiled, build_lost,
                                             worker_started, end_building,   go_on};
    int32_t there = 0;
    for (int32_t i = 0; i < count; i++)
        there += build[i].cubin != NULL;
    if (there == count)
        return 0;
    struct building *all = calloc(1, sizeof *all);
    if (all == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for compiling");
    all->options = options;
    all->build = build;
    all->count = count;
    all->done = there;
    fa_compile_setup setup = {.loop = &all->loop,
                              .worker_path = tuner->worker_path,
                              .nvrtc = nvrtc,
                              .templates = tuner->templates,
                              .timeout_ms = tuner->compile_timeout_ms};
    fa_compile_pool_init(&all->pool, &setup, &events, all);
    fa_compile_pool_widen(&all->pool, count - there < tuner->compile_workers
                                          ? count - there
                                          : tuner->compile_workers);
    fa_compile_pool_advance(&all->pool);
    if (!all->ended)
        fa_loop_run(&all->loop);
    fa_compile_pool_stop(&all->pool);
    fa_loop_close(&all->loop);
    int rc = all->rc;
    if (rc != 0)
        fa_fail(diag, rc, "%s", all->diag.text);
    free(all);
    return rc;
}

static void free_builds(struct build *build, int32_t count)
{
    for (int32_t i = 0; build != NULL && i < count; i++) {
        free(build[i].source);
        free(build[i].cubin);
        free(build[i].log);
    }
    free(build);
}

/* ---- records to winners ---------------------------------------------------------------------*/
/* What a record's config is today. */
struct rendered {
    fa_candidate candidate;
    char key[FA_HASH_HEX];
};

struct making {
    fa_tuner *tuner;
    fa_nvrtc_location nvrtc;
    fa_records records;
    fa_answer *answer;     /* [records.count]: what the records say */
    struct rendered *rendered; /* [records.count] */
    int32_t *build_of;     /* [records.count], -1: failed */
    struct build *build;
    int32_t builds;
    fa_store *part;
    fa_records_info info;
};

/* Uses the store's cubin of the build's key: the key is a hash of everything that goes into a compile. */
static void take_stored(const struct making *making, struct build *build)
{
    fa_cubin_record record = {0};
    if (fa_store_cubin_get(making->tuner->store, build->key, &record, NULL) != 0)
        return;
    build->cubin = record.bytes;
    build->size = record.size;
    build->log = record.log;
}

static int32_t find_build(const struct making *making, const char *key)
{
    for (int32_t i = 0; i < making->builds; i++)
        if (strcmp(making->build[i].key, key) == 0)
            return i;
    return -1;
}

static void render_all(struct making *making)
{
    for (int32_t i = 0; i < making->records.count; i++) {
        struct rendered *record = &making->rendered[i];
        fa_rendered rendered = {.key = ""};
        making->build_of[i] = -1;
        if (fa_record_render(making->tuner, &making->answer[i], making->nvrtc.identity,
                             &record->candidate, &rendered, NULL) != 0) {
            fa_buf_free(&rendered.source);
            continue;
        }
        memcpy(record->key, rendered.key, sizeof record->key);
        making->build_of[i] = find_build(making, rendered.key);
        if (making->build_of[i] < 0) {
            struct build *build = &making->build[making->builds];
            making->build_of[i] = making->builds++;
            memcpy(build->key, rendered.key, sizeof build->key);
            memcpy(build->architecture, rendered.architecture, sizeof build->architecture);
            build->source = rendered.source.data; /* the buffer's memory goes on as the source */
            rendered.source = (fa_buf){0};
            take_stored(making, build);
        }
        fa_buf_free(&rendered.source);
    }
}

/* Checks the cubin and fills in its registers and spills; false: the record is left out. */
static bool finish_trial(const struct making *making, int32_t at, fa_trial *trial)
{
    const fa_answer *record = &making->answer[at];
    fa_candidate *candidate = &making->rendered[at].candidate;
    fa_cubin_info cubin;
    char reason[256];
    if (making->build_of[at] < 0)
        return false;
    const struct build *build = &making->build[making->build_of[at]];
    *trial = candidate->trial;
    if (build->cubin == NULL ||
        fa_op_read_cubin(making->tuner->families.family[candidate->family], candidate,
                         &record->problem, build->cubin, build->size, &cubin, NULL) != 0 ||
        fa_gate_cubin(&record->gpu, trial, &cubin, build->log, reason, sizeof reason) !=
            FA_STATUS_COMPILED)
        return false;
    trial->registers = cubin.registers;
    trial->spill_bytes = cubin.stack_bytes;
    fa_model_predict(candidate, &record->problem, &record->gpu, trial);
    trial->status = FA_STATUS_COMPILED;
    return true;
}

/* The answer that the bundle gives for a record. */
static void complete_answer(const struct making *making, int32_t at, const fa_trial *trial,
                            fa_answer *answer)
{
    const fa_answer *record = &making->answer[at];
    bool measured = record->origin <= FA_ORIGIN_IMPORTED && fa_record_holds(making->tuner, record);
    *answer = *record;
    answer->trial = *trial;
    if (measured) {
        answer->trial.status = FA_STATUS_MEASURED;
        answer->trial.median_us = record->trial.median_us;
        answer->trial.low_us = record->trial.low_us;
        answer->trial.high_us = record->trial.high_us;
        answer->trial.sample_count = record->trial.sample_count;
        answer->trial.max_error = record->trial.max_error;
        answer->trial.tolerance = record->trial.tolerance;
        answer->trial.raced = record->trial.raced;
    } else {
        if (answer->origin != FA_ORIGIN_TRANSFERRED)
            answer->origin = fa_origin_untimed(trial);
        answer->default_us = 0;
    }
    /* The proof is valid for the proved bytes only, and another compiler may produce others. */
    if (!measured || strcmp(record->cubin_key, making->rendered[at].key) != 0)
        answer->driver_version = 0;
    memcpy(answer->cubin_key, making->rendered[at].key, sizeof answer->cubin_key);
    snprintf(answer->nvrtc, sizeof answer->nvrtc, "%s", making->nvrtc.identity);
}

/* Adds the trials of a measured record to the evidence. */
static int add_trials(const fa_winner_record *record, char **evidence, fa_diag *diag)
{
    fa_trial_list list = {0};
    int rc = fa_trial_list_from_evidence(record->evidence, &list, diag);
    if (rc == 0 && list.count > 0)
        rc = fa_bundle_join_trials(&list, evidence, diag);
    fa_trial_list_free(&list);
    return rc;
}

static int add_record(struct making *making, int32_t at, fa_diag *diag)
{
    fa_trial trial;
    fa_answer answer;
    fa_tuner *tuner = making->tuner;
    if (!finish_trial(making, at, &trial)) {
        making->info.failed++;
        return 0;
    }
    complete_answer(making, at, &trial, &answer);
    bool measured = answer.origin <= FA_ORIGIN_IMPORTED;
    answer.undated = measured && answer.unix_time == 0;
    if (!measured || answer.undated)
        answer.unix_time = making->records.made;
    char *evidence = fa_records_evidence(&answer);
    int rc =
        evidence != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for a winner's evidence");
    if (rc == 0 && measured)
        rc = add_trials(&making->records.record[at], &evidence, diag);
    fa_winner_record winner = {.scope = {.problem = fa_problem_bucket(&answer.problem)},
                               .origin = answer.origin,
                               .trial = answer.trial,
                               .driver_version = answer.driver_version,
                               .unix_time = answer.unix_time,
                               .evidence = evidence};
    const fa_family *family = tuner->families.family[making->rendered[at].candidate.family];
    fa_gpu_silicon(&answer.gpu, winner.scope.silicon);
    snprintf(winner.scope.templates, sizeof winner.scope.templates, "%s",
             fa_templates_hash(tuner->templates, fa_operation_of(&answer.problem)));
    snprintf(winner.scope.policy, sizeof winner.scope.policy, "%s", FA_MEASURE_POLICY);
    snprintf(winner.entry, sizeof winner.entry, "%s", fa_family_entry(family));
    memcpy(winner.cubin_key, answer.cubin_key, sizeof winner.cubin_key);
    memcpy(winner.gpu_name, answer.gpu.name, sizeof winner.gpu_name);
    memcpy(winner.nvrtc, answer.nvrtc, sizeof winner.nvrtc);
    const struct build *build = &making->build[making->build_of[at]];
    if (rc == 0)
        rc = fa_bundle_add(making->part, &winner, build->cubin, build->size, diag);
    making->info.measured += measured;
    making->info.predicted += !measured;
    making->info.winners++;
    fa_winner_record_free(&winner);
    return rc;
}

/* The SM that needs the newest NVRTC. */
static int newest_sm(const struct making *making)
{
    int sm = 0;
    for (int32_t i = 0; i < making->records.count; i++)
        if (fa_nvrtc_since(making->answer[i].gpu.sm) > fa_nvrtc_since(sm))
            sm = making->answer[i].gpu.sm;
    return sm;
}

static int make_records(struct making *making, const fa_records_options *options, fa_diag *diag)
{
    size_t count = (size_t)making->records.count;
    making->rendered = calloc(count + 1, sizeof *making->rendered);
    making->build_of = calloc(count + 1, sizeof *making->build_of);
    making->build = calloc(count + 1, sizeof *making->build);
    if (making->rendered == NULL || making->build_of == NULL || making->build == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for %zu records", count);
    int rc;
    if ((rc = fa_tuner_families(making->tuner, diag)) != 0 ||
        (rc = fa_compiler_choose(making->tuner->worker_path, newest_sm(making), &making->nvrtc,
                                 NULL, diag)) != 0 ||
        (rc = fa_portable_new(&making->part, diag)) != 0)
        return rc;
    render_all(making);
    rc = run_builds(making->tuner, &making->nvrtc, making->build, making->builds, options, diag);
    for (int32_t i = 0; rc == 0 && i < making->records.count; i++)
        rc = add_record(making, i, diag);
    return rc;
}

/* Drops the records and baselines that the caller does not want, before anything is compiled. */
static int choose(struct making *making, const fa_records_options *options, fa_diag *diag)
{
    const fa_export_options *output = options->output;
    fa_records *records = &making->records;
    int32_t all = records->count, left = 0;
    making->answer = calloc((size_t)all + 1, sizeof *making->answer);
    if (making->answer == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for %d records", all);
    for (int32_t i = 0; i < all; i++) {
        fa_answer *answer = &making->answer[left];
        int rc = answer_of(&records->record[i], answer, diag);
        if (rc != 0)
            return rc;
        fa_winner_record record = records->record[i];
        records->record[i] = records->record[left];
        records->record[left] = record;
        left += output->keep == NULL || output->keep(output->context, answer);
    }
    while (records->count > left)
        fa_winner_record_free(&records->record[--records->count]);
    left = 0;
    for (int32_t i = 0; i < records->baselines; i++) {
        fa_answer answer = {.problem = records->baseline[i].problem};
        memcpy(answer.gpu.name, records->baseline[i].gpu_name, sizeof answer.gpu.name);
        if (output->keep == NULL || output->keep(output->context, &answer))
            records->baseline[left++] = records->baseline[i];
    }
    making->info.baselines = records->baselines = left;
    if (records->count == 0 && all > 0)
        return fa_fail(diag, FA_ENOTFOUND,
                       "none of the %d records of %s matches the filters: nothing is written", all,
                       options->records);
    return 0;
}

/* Compiles the records into making->part. The caller calls clean_up() also after a failure. */
static int make(struct making *making, const fa_records_options *options, fa_diag *diag)
{
    int rc = fa_records_read(options->records, &making->records, diag);
    if (rc == 0)
        rc = choose(making, options, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&making->tuner->work);
    rc = make_records(making, options, diag);
    pthread_mutex_unlock(&making->tuner->work);
    return rc;
}

static void clean_up(struct making *making)
{
    fa_store_close(&making->part);
    free_builds(making->build, making->builds);
    free(making->answer);
    free(making->rendered);
    free(making->build_of);
    fa_records_free(&making->records);
}

int fa_export_from_records(fa_tuner *tuner, const fa_records_options *options,
                           fa_records_info *ret_info, fa_bundle_info *ret_bundle, fa_diag *diag)
{
    struct making making = {.tuner = tuner};
    int rc;
    if ((rc = fa_tuner_check(tuner, diag)) != 0 ||
        (rc = check_records_options(options, diag)) != 0 ||
        (rc = fa_bundle_check_output(options->output, diag)) != 0)
        return rc;
    rc = make(&making, options, diag);
    if (rc == 0)
        rc = fa_bundle_finish(making.part, options->output, ret_bundle, diag);
    if (rc == 0 && ret_info != NULL)
        *ret_info = making.info;
    clean_up(&making);
    return rc;
}

/* ---- into the store -------------------------------------------------------------------------*/
bool fa_is_records(const char *path)
{
    static const char begin[] = "{\"fa_tune_records\"";
    char head[sizeof begin - 1];
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    bool is = fd >= 0 && read(fd, head, sizeof head) == (ssize_t)sizeof head &&
              memcmp(head, begin, sizeof head) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

/* Imports the winners as an unsigned bundle, and then the baselines. */
static int import_made(struct making *making, const fa_import_options *import, const char *path,
                       fa_bundle_info *ret_bundle, fa_diag *diag)
{
    fa_tuner *tuner = making->tuner;
    const fa_records *records = &making->records;
    fa_bundle *bundle = NULL;
    int rc = fa_bundle_of(&making->part, path, &bundle, diag);
    if (rc != 0)
        return rc;
    rc = fa_import_bundle(tuner, bundle, fa_bundle_get_info(bundle), import, ret_bundle, diag);
    fa_bundle_close(&bundle);
    if (rc != 0 || import->dry_run)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_baselines_put(tuner->store, records->baseline, (size_t)records->baselines, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

int fa_import_records(fa_tuner *tuner, const fa_records_options *options,
                      const fa_import_options *import, fa_records_info *ret_info,
                      fa_bundle_info *ret_bundle, fa_diag *diag)
{
    struct making making = {.tuner = tuner};
    int rc;
    if ((rc = fa_tuner_check(tuner, diag)) != 0 || (rc = check_records_options(options, diag)) != 0)
        return rc;
    if (options->output == NULL || options->output->size != sizeof *options->output ||
        import == NULL || import->size != sizeof *import)
        return fa_fail(diag, FA_EINVAL, "output or import is NULL, or of another size");
    rc = make(&making, options, diag);
    if (rc == 0)
        rc = import_made(&making, import, options->records, ret_bundle, diag);
    if (rc == 0 && ret_info != NULL)
        *ret_info = making.info;
    clean_up(&making);
    return rc;
}
