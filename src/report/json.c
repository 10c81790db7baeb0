/* SPDX-License-Identifier: Apache-2.0
 *
 * The report as one JSON document, a problem a line. `version` is the document's: fields may join
 * others in a version, a field that goes or changes its meaning makes a new one. A number that is
 * not known is null. Measured times are median_us, low_us and high_us; predicted_us is the model's.
 */
#include "words.h"

#include "error.h"
#include "problem.h"

#include <stdio.h>

enum { VERSION = 1 };

static void add_known(cJSON *object, const char *name, double value)
{
    if (value > 0)
        cJSON_AddNumberToObject(object, name, value);
    else
        cJSON_AddNullToObject(object, name);
}

static void add_configs(cJSON *object, const report_problem *problem)
{
    cJSON *array = cJSON_AddArrayToObject(object, "configs");
    for (size_t i = 0; i < problem->count; i++) {
        const report_config *config = &problem->config[i];
        if (!config->tried)
            continue;
        cJSON *item = cJSON_CreateObject();
        char seed[24];
        add_known(item, "rank", config->rank);
        fa_trial_add_json(item, &config->trial);
        cJSON_AddBoolToObject(item, "default", config->is_default);
        cJSON_AddBoolToObject(item, "winner", config->is_winner);
        cJSON *samples = cJSON_AddArrayToObject(item, "samples_us");
        for (int32_t s = 0; s < config->sample_count; s++) {
            char number[32]; /* as short as a float is */
            snprintf(number, sizeof number, "%.7g", (double)config->samples_us[s]);
            cJSON_AddItemToArray(samples, cJSON_CreateRaw(number));
        }
        cJSON *clocks = config->sm_mhz >= 0 ? cJSON_AddObjectToObject(item, "clocks")
                                            : cJSON_AddNullToObject(item, "clocks");
        if (config->sm_mhz >= 0) {
            cJSON_AddNumberToObject(clocks, "sm_mhz", config->sm_mhz);
            cJSON_AddNumberToObject(clocks, "memory_mhz", config->memory_mhz);
            cJSON_AddNumberToObject(clocks, "temperature_c", config->temperature_c);
            cJSON_AddStringToObject(clocks, "throttle", config->throttle);
        }
        /* 64 bits: as text, because a JSON number may lose some. */
        snprintf(seed, sizeof seed, "%llu", (unsigned long long)config->seed);
        cJSON_AddStringToObject(item, "seed", seed);
        cJSON_AddStringToObject(item, "cubin_key", config->cubin_key);
        cJSON_AddNumberToObject(item, "unix_time", (double)config->unix_time);
        cJSON_AddItemToArray(array, item);
    }
}

static void add_gates(cJSON *object, const report_problem *problem)
{
    const report_funnel *funnel = &problem->funnel;
    cJSON *counts = cJSON_AddObjectToObject(object, "funnel");
    add_known(counts, "space", funnel->known ? funnel->space : 0);
    cJSON_AddNumberToObject(counts, "in_budget", funnel->in_budget);
    cJSON_AddNumberToObject(counts, "compiled", funnel->compiled);
    cJSON_AddNumberToObject(counts, "clean", funnel->clean);
    cJSON_AddNumberToObject(counts, "measured", funnel->measured);
    cJSON *array = cJSON_AddArrayToObject(object, "gates");
    for (int g = 0; g < REPORT_STATUSES; g++) {
        const report_gate *gate = &problem->gate[report_gates[g]];
        if (gate->count == 0)
            continue;
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "status", fa_status_name(report_gates[g]));
        cJSON_AddNumberToObject(item, "count", (double)gate->count);
        cJSON *reasons = cJSON_AddArrayToObject(item, "reasons");
        for (int i = 0; i < gate->reasons; i++) {
            cJSON *reason = cJSON_CreateObject();
            cJSON_AddStringToObject(reason, "text", gate->reason[i].text);
            cJSON_AddNumberToObject(reason, "count", (double)gate->reason[i].count);
            cJSON_AddItemToArray(reasons, reason);
        }
        cJSON_AddNumberToObject(item, "other_reasons", (double)gate->elsewhere);
        cJSON_AddItemToArray(array, item);
    }
}

static void add_peers(cJSON *object, const report_problem *problem)
{
    cJSON *array = cJSON_AddArrayToObject(object, "baselines");
    for (size_t i = 0; i < problem->peers; i++) {
        const report_peer *peer = &problem->peer[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "peer", peer->baseline.peer);
        cJSON_AddNumberToObject(item, "median_us", peer->baseline.median_us);
        add_known(item, "low_us", peer->baseline.low_us);
        add_known(item, "high_us", peer->baseline.high_us);
        add_known(item, "ratio", peer->ratio);
        cJSON_AddStringToObject(item, "source", peer->baseline.source);
        cJSON_AddItemToArray(array, item);
    }
}

static void add_environments(cJSON *object, const report_problem *problem)
{
    cJSON *array = cJSON_AddArrayToObject(object, "environments");
    for (size_t i = 0; i < problem->environments; i++) {
        const report_environment *environment = &problem->environment[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "gpu", environment->gpu);
        cJSON_AddStringToObject(item, "uuid", environment->uuid);
        add_known(item, "driver", environment->driver);
        cJSON_AddStringToObject(item, "nvrtc", environment->nvrtc);
        cJSON_AddStringToObject(item, "library", environment->library);
        cJSON_AddStringToObject(item, "host", environment->host);
        cJSON_AddNumberToObject(item, "trials", (double)environment->trials);
        cJSON_AddItemToArray(array, item);
    }
    cJSON_AddNumberToObject(object, "trials_in_other_environments",
                            (double)problem->environments_left_out);
}

static cJSON *problem_json(const report_problem *problem)
{
    const fa_study *study = &problem->study;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddItemToObject(object, "problem", fa_problem_to_json(&study->problem));
    cJSON_AddItemToObject(object, "gpu", fa_gpu_to_json(&study->gpu));
    cJSON_AddStringToObject(object, "silicon", study->silicon);
    cJSON_AddStringToObject(object, "templates", study->templates);
    cJSON_AddBoolToObject(object, "templates_are_present", study->current);
    cJSON_AddStringToObject(object, "known_how", report_standing(problem));
    cJSON_AddBoolToObject(object, "measured", problem->measured);
    cJSON *winner = problem->best != NULL ? cJSON_AddObjectToObject(object, "winner")
                                          : cJSON_AddNullToObject(object, "winner");
    if (problem->best != NULL)
        fa_trial_add_json(winner, problem->best);
    add_known(object, "tflops", problem->tflops);
    add_known(object, "least_bytes", problem->bytes);
    add_known(object, "default_us", problem->default_us);
    add_known(object, "speedup_over_default", problem->x_default);
    add_known(object, "compile_ms", problem->compile_ms);
    add_known(object, "tune_s", study->winner.tune_s);
    cJSON_AddBoolToObject(object, "slow", problem->slow);
    cJSON_AddNumberToObject(object, "unix_time", (double)study->unix_time);
    add_peers(object, problem);
    add_gates(object, problem);
    add_environments(object, problem);
    add_configs(object, problem);
    return object;
}

static void add_text(fa_buf *out, cJSON *json)
{
    char *text = json != NULL ? cJSON_PrintUnformatted(json) : NULL;
    if (text != NULL)
        fa_buf_text(out, text);
    else
        out->failed = true;
    cJSON_free(text);
    cJSON_Delete(json);
}

static int begin(report *report)
{
    fa_buf_printf(report->out, "{\"document\": \"fa-tune-report\", \"version\": %d, \"fa_tune\": ",
                  VERSION);
    add_text(report->out, cJSON_CreateString(fa_version()));
    fa_buf_text(report->out, ", \"store\": ");
    add_text(report->out, cJSON_CreateString(report->store));
    fa_buf_printf(report->out, ", \"unix_time\": %lld, \"not_asked_for\": %zu, "
                               "\"earlier_generations\": %zu, \"problems\": [",
                  (long long)report->made, report->outcome.filtered, report->outcome.older);
    return 0;
}

static void add_problem(report *report, report_problem *problem)
{
    fa_buf_text(report->out, problem->number > 1 ? ",\n" : "\n");
    add_text(report->out, problem_json(problem));
}

static cJSON *regret_json(const fa_regret *regret)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToObject(item, "problem", fa_problem_to_json(&regret->problem));
    cJSON_AddItemToObject(item, "bucket", fa_problem_to_json(&regret->bucket));
    cJSON_AddStringToObject(item, "gpu", regret->gpu);
    add_known(item, "bucket_us", regret->bucket_us);
    add_known(item, "best_us", regret->best_us);
    double value = report_regret_of(regret);
    if (value >= 0)
        cJSON_AddNumberToObject(item, "regret", value);
    else
        cJSON_AddNullToObject(item, "regret");
    cJSON_AddItemToObject(item, "bucket_config", fa_config_to_json(&regret->bucket_config));
    cJSON_AddItemToObject(item, "best_config", fa_config_to_json(&regret->best_config));
    return item;
}

static cJSON *prediction_json(const fa_prediction *prediction)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToObject(item, "problem", fa_problem_to_json(&prediction->problem));
    cJSON_AddStringToObject(item, "gpu", prediction->gpu);
    cJSON_AddStringToObject(item, "known_how", fa_origin_name(prediction->origin));
    cJSON_AddStringToObject(item, "from_gpu", prediction->from_gpu);
    add_known(item, "predicted_us", prediction->predicted_us);
    add_known(item, "measured_us", prediction->measured_us);
    add_known(item, "best_us", prediction->best_us);
    add_known(item, "rank", prediction->rank);
    add_known(item, "measured", prediction->measured);
    cJSON_AddItemToObject(item, "config", fa_config_to_json(&prediction->config));
    return item;
}

static void end(report *report)
{
    fa_buf *out = report->out;
    fa_buf_text(out, "\n], \"regret\": [");
    for (size_t i = 0; i < report->regrets; i++) {
        fa_buf_text(out, i > 0 ? ",\n" : "\n");
        add_text(out, regret_json(&report->regret[i]));
    }
    fa_buf_text(out, "], \"predictions\": [");
    for (size_t i = 0; i < report->predictions; i++) {
        fa_buf_text(out, i > 0 ? ",\n" : "\n");
        add_text(out, prediction_json(&report->prediction[i]));
    }
    fa_buf_text(out, "]}\n");
}

const report_writer report_json = {begin, add_problem, end};
