/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything a report says about one study, gathered and summed up. Texts are as they were stored: who
 * prints them makes them valid UTF-8 and escapes them.
 */
#include "data.h"

#include "error.h"
#include "json.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double SLOW = 0.5; /* flagged below this fraction of a peer's speed */

/* ---- what a trial came with -----------------------------------------------------------------*/
static void copy_text(const cJSON *json, const char *key, char *ret, size_t size)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    snprintf(ret, size, "%s", cJSON_IsString(item) ? item->valuestring : "");
}

static int32_t get_int(const cJSON *json, const char *key)
{
    int64_t value;
    return fa_json_int(json, key, 0, INT32_MAX, &value, "", NULL) == 0 ? (int32_t)value : -1;
}

static int take_environment(report_problem *problem, const char *text)
{
    if (text == NULL)
        return 0; /* it came with an imported winner, and was not said */
    for (size_t i = 0; i < problem->environments; i++) {
        if (strcmp(problem->environment[i].text, text) == 0) {
            problem->environment[i].trials++;
            return 0;
        }
    }
    if (problem->environments == REPORT_ENVIRONMENTS) {
        problem->environments_left_out++; /* trials of environments that are not told */
        return 0;
    }
    cJSON *json;
    if (fa_json_parse_object(text, "environment", &json, NULL) != 0)
        return FA_ENOMEM;
    report_environment environment = {.text = strdup(text), .trials = 1};
    if (environment.text == NULL) {
        cJSON_Delete(json);
        return FA_ENOMEM;
    }
    copy_text(json, "gpu", environment.gpu, sizeof environment.gpu);
    copy_text(json, "uuid", environment.uuid, sizeof environment.uuid);
    copy_text(json, "nvrtc", environment.nvrtc, sizeof environment.nvrtc);
    copy_text(json, "library", environment.library, sizeof environment.library);
    copy_text(json, "host", environment.host, sizeof environment.host);
    int32_t driver = get_int(json, "driver");
    environment.driver = driver > 0 ? driver : 0;
    cJSON_Delete(json);
    problem->environment[problem->environments++] = environment;
    return 0;
}

static void widen(int32_t range[2], int32_t value)
{
    if (value < 0)
        return;
    if (range[0] < 0 || value < range[0])
        range[0] = value;
    if (value > range[1])
        range[1] = value;
}

static int take_clocks(report_problem *problem, report_config *config, const char *text)
{
    cJSON *json;
    config->sm_mhz = config->memory_mhz = config->temperature_c = -1;
    int rc = fa_json_parse_object(text, "clocks", &json, NULL);
    if (rc != 0 || json == NULL)
        return rc;
    config->sm_mhz = get_int(json, "sm_mhz");
    config->memory_mhz = get_int(json, "memory_mhz");
    config->temperature_c = get_int(json, "temperature_c");
    copy_text(json, "throttle", config->throttle, sizeof config->throttle);
    cJSON_Delete(json);
    widen(problem->sm_mhz, config->sm_mhz);
    widen(problem->memory_mhz, config->memory_mhz);
    widen(problem->temperature_c, config->temperature_c);
    size_t i = 0;
    while (i < problem->throttles && strcmp(problem->throttle[i], config->throttle) != 0)
        i++;
    if (config->throttle[0] != 0 && i == problem->throttles && i < REPORT_THROTTLES)
        memcpy(problem->throttle[problem->throttles++], config->throttle, sizeof config->throttle);
    return 0;
}

static void take_seed(report_problem *problem, uint64_t seed)
{
    for (size_t i = 0; i < problem->seeds; i++)
        if (problem->seed[i] == seed)
            return;
    if (problem->seeds == REPORT_SEEDS)
        problem->seeds_left_out++;
    else
        problem->seed[problem->seeds++] = seed;
}

/* ---- configs --------------------------------------------------------------------------------*/
struct collecting {
    report_problem *problem;
    size_t capacity;
};

static int take_config(void *context, const fa_study_trial *trial)
{
    struct collecting *collecting = context;
    report_problem *problem = collecting->problem;
    report_config *grown =
        fa_grow(problem->config, &collecting->capacity, problem->count, sizeof *grown);
    if (grown == NULL)
        return FA_ENOMEM;
    problem->config = grown;
    report_config *config = &problem->config[problem->count];
    *config = (report_config){.rank = trial->rank,
                              .tried = trial->tried,
                              .is_default = trial->is_default,
                              .trial = trial->trial,
                              .seed = trial->seed,
                              .unix_time = trial->unix_time};
    snprintf(config->cubin_key, sizeof config->cubin_key, "%s", trial->cubin_key);
    int rc = take_clocks(problem, config, trial->clocks);
    problem->count++;
    if (rc != 0 || !trial->tried)
        return rc;
    problem->tried++;
    take_seed(problem, trial->seed);
    if (trial->sample_count > 0) {
        config->samples_us = malloc((size_t)trial->sample_count * sizeof(float));
        if (config->samples_us == NULL)
            return FA_ENOMEM;
        memcpy(config->samples_us, trial->samples_us, (size_t)trial->sample_count * sizeof(float));
        config->sample_count = trial->sample_count;
    }
    return take_environment(problem, trial->environment);
}

static void count_gate(report_gate *gate, const char *reason)
{
    gate->count++;
    if (reason[0] == 0)
        return;
    int i = 0;
    while (i < gate->reasons && strcmp(gate->reason[i].text, reason) != 0)
        i++;
    if (i < gate->reasons) {
        gate->reason[i].count++;
    } else if (i < REPORT_GROUPS) {
        gate->reason[i].text = reason;
        gate->reason[i].count = 1;
        gate->reasons++;
    } else {
        gate->elsewhere++;
    }
}

/* Leaves the most frequent reasons; equally frequent ones stay in the order they came. */
static void keep_frequent(report_gate *gate)
{
    for (int i = 0; i < gate->reasons && i < REPORT_REASONS; i++) {
        int most = i;
        for (int other = i + 1; other < gate->reasons; other++)
            if (gate->reason[other].count > gate->reason[most].count)
                most = other;
        const char *text = gate->reason[most].text;
        size_t count = gate->reason[most].count;
        memmove(&gate->reason[i + 1], &gate->reason[i],
                (size_t)(most - i) * sizeof gate->reason[0]);
        gate->reason[i].text = text;
        gate->reason[i].count = count;
    }
    for (; gate->reasons > REPORT_REASONS; gate->reasons--)
        gate->elsewhere += gate->reason[gate->reasons - 1].count;
}

bool report_pruned(fa_status status)
{
    return status == FA_STATUS_CONSTRAINT || status == FA_STATUS_BUDGET ||
           status == FA_STATUS_REGISTERS || status == FA_STATUS_DOES_NOT_PAY;
}

/* The funnel as the winner's evidence has it. */
static void fill_funnel_from(report_funnel *funnel, const fa_answer *winner)
{
    *funnel = (report_funnel){.known = true,
                              .on_device = winner->proved > 0 || winner->measured > 0,
                              .space = winner->space,
                              .in_budget = winner->in_budget,
                              .compiled = winner->compiled,
                              .clean = winner->clean,
                              .proved = winner->proved,
                              .measured = winner->measured};
}

/* The funnel from where every config ended. A study of other templates knows its tried configs only:
 * the space is then what the winner's evidence says. Of an imported winner the evidence is all that is
 * known: its trials stayed in the store that it came from. */
static void fill_funnel(report_problem *problem)
{
    const fa_answer *winner = problem->study.has_winner ? &problem->study.winner : NULL;
    report_funnel *funnel = &problem->funnel;
    int32_t at[REPORT_STATUSES];
    for (int i = 0; i < REPORT_STATUSES; i++)
        at[i] = (int32_t)problem->gate[i].count;
    funnel->known = problem->count > problem->tried || problem->study.current;
    funnel->space = (int32_t)problem->count;
    funnel->in_budget = funnel->space - at[FA_STATUS_CONSTRAINT] - at[FA_STATUS_BUDGET] -
                        at[FA_STATUS_REGISTERS] - at[FA_STATUS_DOES_NOT_PAY];
    funnel->compiled = funnel->in_budget - at[FA_STATUS_PENDING] - at[FA_STATUS_COMPILE_FAILED] -
                       at[FA_STATUS_COMPILE_TIMEOUT];
    funnel->clean = funnel->compiled - at[FA_STATUS_SPILLS] - at[FA_STATUS_CUBIN];
    funnel->measured = at[FA_STATUS_MEASURED];
    funnel->proved = funnel->measured;
    int32_t ended_there = at[FA_STATUS_LOAD_FAILED] + at[FA_STATUS_LAUNCH_FAILED] +
                          at[FA_STATUS_WRONG] + at[FA_STATUS_CRASHED] + at[FA_STATUS_TIMEOUT] +
                          at[FA_STATUS_OUT_OF_MEMORY];
    funnel->on_device = funnel->measured > 0 || ended_there > 0;
    if (!funnel->known && winner != NULL && winner->space > 0) {
        funnel->known = true;
        funnel->space = winner->space;
        funnel->in_budget = winner->in_budget;
    }
    if (winner != NULL && winner->space > 0 && problem->tried < (size_t)winner->compiled &&
        winner->origin == FA_ORIGIN_IMPORTED) {
        fill_funnel_from(funnel, winner);
        problem->gate[FA_STATUS_PENDING] = (report_gate){0}; /* they were tried there */
    }
}

/* ---- times ----------------------------------------------------------------------------------*/
double report_time(const fa_trial *trial)
{
    return trial->median_us > 0 ? trial->median_us : trial->predicted_us;
}

static void fill_times(report_problem *problem)
{
    const fa_study *study = &problem->study;
    const fa_trial *best = study->has_winner     ? &study->winner.trial
                           : problem->ranked > 0 ? &problem->config[0].trial /* so far */
                                                 : NULL;
    problem->best = best;
    problem->bytes = fa_problem_bytes(&study->problem);
    for (size_t i = 0; i < problem->count; i++) {
        report_config *config = &problem->config[i];
        config->is_winner = study->has_winner &&
                            fa_config_equal(&config->trial.config, &study->winner.trial.config);
        if (config->tried && config->trial.compile_ms > 0)
            problem->compile_ms += config->trial.compile_ms;
    }
    if (best == NULL)
        return;
    bool timed = best->median_us > 0;
    problem->timed = timed;
    problem->measured =
        timed && (!study->has_winner || fa_origin_is_measured(study->winner.origin));
    problem->us = report_time(best);
    if (problem->us > 0)
        problem->tflops = fa_problem_nominal_flops(&study->problem) / problem->us * 1e-6;
    if (study->has_winner && timed && study->winner.default_us > 0) {
        problem->default_us = study->winner.default_us;
        problem->x_default = problem->default_us / problem->us;
    }
}

/* ---- baselines ------------------------------------------------------------------------------*/
static int fill_peers(const report *report, report_problem *problem)
{
    fa_answer answer = problem->study.winner;
    answer.problem = problem->study.problem;
    answer.gpu = problem->study.gpu;
    for (size_t i = 0; i < report->baselines; i++) {
        const fa_baseline *baseline = &report->baseline[i];
        if (!fa_baseline_concerns(baseline, &answer) || !(baseline->median_us > 0))
            continue;
        report_peer *grown = realloc(problem->peer, (problem->peers + 1) * sizeof *grown);
        if (grown == NULL)
            return FA_ENOMEM;
        problem->peer = grown;
        report_peer *peer = &problem->peer[problem->peers];
        *peer = (report_peer){.baseline = *baseline};
        if (problem->us > 0)
            peer->ratio = baseline->median_us / problem->us;
        problem->slow |= problem->measured && peer->ratio < SLOW;
        problem->peers++;
    }
    return 0;
}

int report_collect(const report *report, const fa_study *study, report_problem *ret_problem,
                   fa_diag *diag)
{
    report_problem problem = {
        .study = *study, .sm_mhz = {-1, -1}, .memory_mhz = {-1, -1}, .temperature_c = {-1, -1}};
    struct collecting collecting = {&problem, 0};
    int rc = fa_list_study_trials(report->tuner, study, take_config, &collecting, diag);
    for (size_t i = 0; i < problem.count && rc == 0; i++) {
        const fa_trial *trial = &problem.config[i].trial;
        problem.ranked += problem.config[i].rank > 0;
        count_gate(&problem.gate[trial->status], trial->reason);
    }
    for (int i = 0; i < REPORT_STATUSES && rc == 0; i++)
        keep_frequent(&problem.gate[i]);
    if (rc == 0) {
        fill_funnel(&problem);
        fill_times(&problem);
        rc = fill_peers(report, &problem);
    }
    if (rc != 0) {
        report_problem_free(&problem);
        return rc == FA_ENOMEM ? fa_fail(diag, rc, "out of memory for a report") : rc;
    }
    *ret_problem = problem;
    if (study->has_winner) /* not the one on this stack */
        ret_problem->best = &ret_problem->study.winner.trial;
    return 0;
}

void report_problem_free(report_problem *problem)
{
    if (problem == NULL)
        return;
    for (size_t i = 0; i < problem->count; i++)
        free(problem->config[i].samples_us);
    for (size_t i = 0; i < problem->environments; i++)
        free(problem->environment[i].text);
    free(problem->config);
    free(problem->peer);
    *problem = (report_problem){0};
}
