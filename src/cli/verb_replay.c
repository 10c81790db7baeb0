/* SPDX-License-Identifier: Apache-2.0
 *
 * Spaces that were measured, in files of the auto-tuning community.
 * replay: how well each way of searching does on one that was measured whole. Needs no GPU and no store.
 * export --t4: the trials of one problem in the T4 format, for others' tools.
 */
#include "json.h"

#include "error.h"
#include "run.h"
#include "text.h"
#include "trial.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct replay {
    cli_table table;
    cJSON *strategies; /* NULL: text */
};

static int keep_result(void *context, const fa_replay_result *result)
{
    struct replay *replay = context;
    cJSON *item = cJSON_CreateObject();
    fa_json_add_text(item, "strategy", result->strategy);
    fa_json_add_text(item, "chosen", result->chosen);
    fa_json_add_number(item, "median", result->median);
    fa_json_add_number(item, "tenth_percentile", result->tenth);
    fa_json_add_number(item, "evaluations", result->evaluations);
    fa_json_push(replay->strategies, item);
    cli_cell(&replay->table, "%s", result->strategy);
    cli_cell(&replay->table, "%.3f", result->median);
    cli_cell(&replay->table, "%.3f", result->tenth);
    cli_cell(&replay->table, "%.0f", result->evaluations);
    cli_cell(&replay->table, "%s",
             strcmp(result->chosen, result->strategy) != 0 ? result->chosen : "");
    cli_row_end(&replay->table);
    return 0;
}

static void put_space(fa_buf *out, const fa_replay_space *space)
{
    cli_text_safe(out, space->kernel[0] != 0 ? space->kernel : "a kernel");
    if (space->device[0] != 0) {
        fa_buf_text(out, " on ");
        cli_text_safe(out, space->device);
    }
    fa_buf_text(out, ": ");
    cli_text_count(out, space->points, "config");
    fa_buf_text(out, " of ");
    cli_text_count(out, space->parameters, "parameter");
    if (space->unbuilt > 0)
        fa_buf_printf(out, ", %lld did not compile", (long long)space->unbuilt);
    if (space->failed > 0)
        fa_buf_printf(out, ", %lld failed", (long long)space->failed);
    fa_buf_text(out, "\n");
}

static void add_space(cJSON *document, const fa_replay_space *space)
{
    cJSON *json = fa_json_add_object(document, "space");
    fa_json_add_text(json, "kernel", space->kernel);
    fa_json_add_text(json, "device", space->device);
    fa_json_add_text(json, "objective", space->objective);
    fa_json_add_number(json, "parameters", space->parameters);
    fa_json_add_number(json, "points", (double)space->points);
    fa_json_add_number(json, "unbuilt", (double)space->unbuilt);
    fa_json_add_number(json, "failed", (double)space->failed);
}

int cli_replay(cli_run *run)
{
    const cli_options *options = run->options;
    struct replay replay = {.strategies = fa_json_add_array(run->document, "strategies")};
    fa_replay_space space;
    fa_replay_options ask = {.size = sizeof ask,
                             .file = options->operand[0],
                             .strategy = options->replay.strategy,
                             .evaluations = options->replay.evaluations,
                             .repeats = options->replay.repeats,
                             .batch = options->replay.batch,
                             .seed = options->seed,
                             .visit = keep_result,
                             .context = &replay};
    int rc = fa_replay(&ask, &space, &run->diag);
    if (rc != 0) {
        cli_table_free(&replay.table);
        return rc;
    }
    add_space(run->document, &space);
    put_space(&run->out, &space);
    cli_table_put(&replay.table, "strategy|>median|>tenth percentile|>evaluations|?", &run->out);
    fa_buf_text(&run->out,
                "median and tenth percentile of optimum / found: 1 is the best config on "
                "record.\n");
    return 0;
}

/* ---- export --t4 ----------------------------------------------------------------------------*/
struct search {
    const cli_options *options;
    fa_study study;
    int found;
};

static int find_study(void *context, const fa_study *study)
{
    struct search *search = context;
    if (study->trials == 0 || !cli_filter_keeps(search->options, &study->problem, study->gpu.name))
        return 0;
    search->study = *study;
    search->found++;
    return 0;
}

/* What T4 calls the way in which a trial ended; NULL: it has not ended. */
static const char *invalidity(fa_status status)
{
    switch (status) {
    case FA_STATUS_MEASURED:
        return "correct";
    case FA_STATUS_CONSTRAINT:
    case FA_STATUS_BUDGET:
    case FA_STATUS_REGISTERS:
    case FA_STATUS_DOES_NOT_PAY:
        return "constraints";
    case FA_STATUS_COMPILE_FAILED:
    case FA_STATUS_COMPILE_TIMEOUT:
    case FA_STATUS_SPILLS:
    case FA_STATUS_CUBIN:
        return "compile";
    case FA_STATUS_WRONG:
        return "correctness";
    case FA_STATUS_TIMEOUT:
        return "timeout";
    case FA_STATUS_LOAD_FAILED:
    case FA_STATUS_LAUNCH_FAILED:
    case FA_STATUS_CRASHED:
    case FA_STATUS_OUT_OF_MEMORY:
        return "runtime";
    default:
        return NULL;
    }
}

static void add_times(cJSON *result, const fa_study_trial *trial)
{
    cJSON *times = fa_json_add_object(result, "times");
    double sum = 0;
    fa_json_add_number(times, "compilation", trial->trial.compile_ms);
    fa_json_add_number(times, "framework", 0);
    fa_json_add_number(times, "search_algorithm", 0);
    fa_json_add_number(times, "validation", 0);
    cJSON *runtimes = fa_json_add_array(times, "runtimes");
    for (int32_t i = 0; i < trial->sample_count; i++) {
        double ms = (double)trial->samples_us[i] / 1000;
        fa_json_push(runtimes, cJSON_CreateNumber(ms));
        sum += ms;
    }
    fa_json_add_number(times, "benchmark", sum);
}

static int add_trial(void *context, const fa_study_trial *trial)
{
    cJSON *results = context, *result;
    const fa_config *config = &trial->trial.config;
    const char *why = trial->tried ? invalidity(trial->trial.status) : NULL;
    bool correct = trial->trial.status == FA_STATUS_MEASURED;
    time_t seconds = (time_t)trial->unix_time;
    char when[40] = "";
    struct tm utc;
    if (why == NULL)
        return 0;
    result = cJSON_CreateObject();
    if (gmtime_r(&seconds, &utc) != NULL &&
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S+00:00", &utc) != 0)
        fa_json_add_text(result, "timestamp", when);
    cJSON *named = fa_json_add_object(result, "configuration");
    fa_json_add_text(named, "family", config->family);
    for (int32_t i = 0; i < config->count; i++)
        fa_json_add(named, config->tunable[i].name, fa_value_to_json(config->tunable[i].value));
    add_times(result, trial);
    fa_json_add_text(result, "invalidity", why);
    fa_json_add_number(result, "correctness", correct);
    cJSON *measurements = fa_json_add_array(result, "measurements");
    if (correct) {
        cJSON *time = cJSON_CreateObject();
        fa_json_add_text(time, "name", "time");
        fa_json_add_number(time, "value", trial->trial.median_us / 1000);
        fa_json_add_text(time, "unit", "ms");
        fa_json_push(measurements, time);
    }
    fa_json_push(fa_json_add_array(result, "objectives"), cJSON_CreateString("time"));
    fa_json_push(results, result);
    return 0;
}

static int check_options(const cli_options *options, fa_diag *diag)
{
    bool more = options->bundle.out != NULL || options->bundle.records != NULL ||
                options->bundle.from_records != NULL || options->bundle.key != NULL ||
                options->bundle.no_signature || options->bundle.predict;
    return !more ? 0
                 : fa_fail(diag, FA_EINVAL,
                           "--t4 writes a file of its own: only a problem, --gpu, --store and "
                           "--templates go with it");
}

/* One problem on one GPU, whose trials are in the store. */
static int find_one(cli_run *run, struct search *search)
{
    int rc = fa_list_studies(run->tuner, find_study, search, &run->diag);
    if (rc == 0 && search->found == 0)
        rc = cli_check_gpu(run);
    if (rc != 0 || search->found == 1)
        return rc;
    if (search->found == 0)
        return fa_fail(&run->diag, FA_ENOTFOUND, "the store has no trials of such a problem");
    return fa_fail(&run->diag, FA_EINVAL,
                   "%d problems agree with these options, and T4 has one: add --gpu or options of "
                   "the problem (fa-tune report lists them)",
                   search->found);
}

int cli_export_t4(cli_run *run)
{
    const char *file = run->options->bundle.t4;
    struct search search = {.options = run->options};
    fa_buf problem = {0};
    int rc;
    if ((rc = check_options(run->options, &run->diag)) != 0 ||
        (rc = fa_output_check(file, &run->diag)) != 0 || (rc = cli_open(run, true)) != 0 ||
        (rc = find_one(run, &search)) != 0)
        return rc;
    cJSON *document = cJSON_CreateObject();
    fa_json_add_text(document, "schema_version", "1.0.0");
    cJSON *metadata = fa_json_add_object(document, "metadata");
    cJSON *results = fa_json_add_array(document, "results");
    cli_text_problem(&problem, &search.study.problem);
    fa_json_add_text(metadata, "timeunit", "milliseconds");
    fa_json_add_text(metadata, "kernel", problem.data);
    fa_json_add_text(metadata, "device", search.study.gpu.name);
    char *text = NULL;
    rc = fa_list_study_trials(run->tuner, &search.study, add_trial, results, &run->diag);
    if (rc != 0)
        goto done;
    int count = cJSON_GetArraySize(results);
    if (problem.failed || (text = fa_json_print_tidy(document)) == NULL)
        rc = fa_fail(&run->diag, FA_ENOMEM, "out of memory for the trials");
    else if (count == 0)
        rc = fa_fail(
            &run->diag, FA_ENOTFOUND,
            "no trial of this problem was measured or failed: without its GPU they are only "
            "compiled");
    else
        rc = fa_output_write(file, text, strlen(text), &run->diag);
    if (rc != 0)
        goto done;
    cJSON *told = fa_json_add_object(run->document, "t4");
    fa_json_add_text(told, "file", file);
    fa_json_add_number(told, "trials", count);
    cli_text_path(&run->out, file);
    fa_buf_text(&run->out, ": ");
    cli_text_count(&run->out, count, "trial");
    fa_buf_text(&run->out, " of ");
    fa_buf_text(&run->out, problem.data);
    fa_buf_text(&run->out, "\n");
done:
    free(text);
    cJSON_Delete(document);
    fa_buf_free(&problem);
    return rc;
}
