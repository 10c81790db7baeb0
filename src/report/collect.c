/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything a report says about one study, gathered and summed up. Texts are as they were stored: who
 * prints them makes them valid UTF-8 and escapes them.
 */
#include "data.h"

#include "error.h"
#include "json.h"
#include "problem.h"
#include "trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double SLOW = 0.5; /* flagged below this fraction of a peer's speed */

enum {
    REASONS = 3,      /* example reasons told per gate */
    GROUPS = 64,      /* different reasons counted per gate */
    ENVIRONMENTS = 8, /* told per problem */
    SEEDS = 4,
    THROTTLES = 4,
    DRIVERS = 4
};

/* Where configs ended. */
struct gate {
    size_t count;
    int reasons;
    struct {
        const char *text; /* a config's */
        size_t count;
    } reason[GROUPS]; /* the first REASONS at most are told, most frequent first */
    size_t elsewhere; /* configs with other reasons than those told */
};

/* What is gathered of one problem while its trials come. */
struct collecting {
    report_problem *problem;
    size_t capacity;
    struct gate gate[FA_STAGES];
    struct {
        char *text;  /* as it was stored */
        cJSON *json; /* in the array */
        size_t trials;
    } environment[ENVIRONMENTS];
    size_t environments, other_environments, other_seeds;
    cJSON *environment_array, *seeds, *throttles, *drivers;
    /* Lowest and highest; -1: not known. */
    int32_t sm_mhz[2], memory_mhz[2], temperature_c[2], power_limit_w[2];
    double compile_ms;                                  /* of all compiles, one after another */
};

static void add_known(cJSON *object, const char *name, double value)
{
    fa_json_add_known(object, name, value, value > 0);
}

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

static int take_environment(struct collecting *c, const char *text)
{
    static const struct {
        const char *name;
        size_t size; /* 0: a number */
    } told[] = {{"gpu", 64},    {"uuid", 64},    {"driver", 0},
                {"nvrtc", 256}, {"library", 32}, {"host", 256}};
    if (text == NULL)
        return 0; /* it came with an imported winner, and was not said */
    for (size_t i = 0; i < c->environments; i++) {
        if (strcmp(c->environment[i].text, text) == 0) {
            c->environment[i].trials++;
            return 0;
        }
    }
    if (c->environments == ENVIRONMENTS) {
        c->other_environments++; /* trials of environments that are not told */
        return 0;
    }
    cJSON *json, *item = cJSON_CreateObject();
    if (fa_json_parse_object(text, "environment", &json, NULL) != 0) {
        cJSON_Delete(item);
        return FA_ENOMEM;
    }
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        char value[256];
        copy_text(json, told[i].name, value, told[i].size > 0 ? told[i].size : sizeof value);
        if (told[i].size > 0)
            fa_json_add_text(item, told[i].name, value);
        else
            add_known(item, told[i].name, get_int(json, told[i].name));
    }
    cJSON_Delete(json);
    char *copy = strdup(text);
    if (!fa_json_push(c->environment_array, item) || copy == NULL) {
        free(copy);
        return FA_ENOMEM;
    }
    c->environment[c->environments].text = copy;
    c->environment[c->environments].json = item;
    c->environment[c->environments++].trials = 1;
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

/* Joins a text to an array of at most `most`, unless it is there. false: there is no room. */
static bool join_text(cJSON *array, const char *text, int most)
{
    const cJSON *item;
    cJSON_ArrayForEach (item, array) {
        if (cJSON_IsString(item) && strcmp(item->valuestring, text) == 0)
            return true;
    }
    if (cJSON_GetArraySize(array) == most)
        return false;
    fa_json_push(array, cJSON_CreateString(text));
    return true;
}

static int take_clocks(struct collecting *c, report_config *config, const char *text)
{
    cJSON *json;
    char driver[80];
    config->sm_mhz = config->memory_mhz = config->temperature_c = -1;
    int rc = fa_json_parse_object(text, "clocks", &json, NULL);
    if (rc != 0 || json == NULL)
        return rc;
    config->sm_mhz = get_int(json, "sm_mhz");
    config->memory_mhz = get_int(json, "memory_mhz");
    config->temperature_c = get_int(json, "temperature_c");
    copy_text(json, "throttle", config->throttle, sizeof config->throttle);
    copy_text(json, "driver", driver, sizeof driver);
    int32_t power_limit_w = get_int(json, "power_limit_w");
    cJSON_Delete(json);
    widen(c->sm_mhz, config->sm_mhz);
    widen(c->memory_mhz, config->memory_mhz);
    widen(c->temperature_c, config->temperature_c);
    widen(c->power_limit_w, power_limit_w);
    if (driver[0] != 0)
        join_text(c->drivers, driver, DRIVERS);
    if (config->throttle[0] != 0)
        join_text(c->throttles, config->throttle, THROTTLES);
    return 0;
}

static void take_seed(struct collecting *c, uint64_t seed)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    c->other_seeds += !join_text(c->seeds, text, SEEDS);
}

/* ---- configs --------------------------------------------------------------------------------*/
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
    int rc = take_clocks(collecting, config, trial->clocks);
    problem->count++;
    if (rc != 0 || !trial->tried)
        return rc;
    problem->tried++;
    take_seed(collecting, trial->seed);
    if (trial->sample_count > 0) {
        config->samples_us = malloc((size_t)trial->sample_count * sizeof(float));
        if (config->samples_us == NULL)
            return FA_ENOMEM;
        memcpy(config->samples_us, trial->samples_us, (size_t)trial->sample_count * sizeof(float));
        config->sample_count = trial->sample_count;
    }
    return take_environment(collecting, trial->environment);
}

static void count_gate(struct gate *gate, const char *reason)
{
    gate->count++;
    if (reason[0] == 0)
        return;
    int i = 0;
    while (i < gate->reasons && strcmp(gate->reason[i].text, reason) != 0)
        i++;
    if (i < gate->reasons) {
        gate->reason[i].count++;
    } else if (i < GROUPS) {
        gate->reason[i].text = reason;
        gate->reason[i].count = 1;
        gate->reasons++;
    } else {
        gate->elsewhere++;
    }
}

/* Leaves the most frequent reasons; equally frequent ones stay in the order they came. */
static void keep_frequent(struct gate *gate)
{
    for (int i = 0; i < gate->reasons && i < REASONS; i++) {
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
    for (; gate->reasons > REASONS; gate->reasons--)
        gate->elsewhere += gate->reason[gate->reasons - 1].count;
}

bool report_pruned(fa_status status)
{
    return status == FA_STATUS_CONSTRAINT || status == FA_STATUS_BUDGET ||
           status == FA_STATUS_REGISTERS || status == FA_STATUS_DOES_NOT_PAY;
}

/* The funnel from where every config ended. A study of other templates knows its tried configs only:
 * the space is then what the winner's evidence says. Of an imported winner the evidence is all that is
 * known: its trials stayed in the store that it came from. */
static void add_funnel(cJSON *object, struct collecting *c)
{
    const report_problem *problem = c->problem;
    const fa_answer *winner = &problem->study.winner;
    bool known = problem->count > problem->tried || problem->study.current;
    int32_t at[FA_STAGES];
    for (int i = 0; i < FA_STAGES; i++)
        at[i] = (int32_t)c->gate[i].count;
    int32_t space = (int32_t)problem->count;
    int32_t in_budget = space - at[FA_STATUS_CONSTRAINT] - at[FA_STATUS_BUDGET] -
                        at[FA_STATUS_REGISTERS] - at[FA_STATUS_DOES_NOT_PAY];
    int32_t compiled = in_budget - at[FA_STATUS_PENDING] - at[FA_STATUS_COMPILE_FAILED] -
                       at[FA_STATUS_COMPILE_TIMEOUT];
    int32_t clean = compiled - at[FA_STATUS_SPILLS] - at[FA_STATUS_CUBIN];
    int32_t measured = at[FA_STATUS_MEASURED], proved = measured;
    int32_t ended_there = at[FA_STATUS_LOAD_FAILED] + at[FA_STATUS_LAUNCH_FAILED] +
                          at[FA_STATUS_WRONG] + at[FA_STATUS_CRASHED] + at[FA_STATUS_TIMEOUT] +
                          at[FA_STATUS_OUT_OF_MEMORY];
    bool evidence = problem->study.has_winner && winner->space > 0;
    bool imported = evidence && problem->tried < (size_t)winner->compiled &&
                    winner->origin == FA_ORIGIN_IMPORTED;
    if (imported || (evidence && !known)) {
        known = true;
        space = winner->space;
        in_budget = winner->in_budget;
    }
    if (evidence && winner->strategy[0] != 0 && space < winner->space)
        space = winner->space; /* it was searched */
    if (imported) {
        compiled = winner->compiled;
        clean = winner->clean;
        proved = winner->proved;
        measured = winner->measured;
        ended_there = proved;
        c->gate[FA_STATUS_PENDING] = (struct gate){0}; /* they were tried there */
    }
    cJSON *counts = fa_json_add_object(object, "funnel");
    add_known(counts, "space", known ? space : 0);
    fa_json_add_number(counts, "in_budget", in_budget);
    fa_json_add_number(counts, "compiled", compiled);
    fa_json_add_number(counts, "clean", clean);
    fa_json_add_number(counts, "proved", proved);
    fa_json_add_number(counts, "measured", measured);
    fa_json_add_bool(counts, "on_device", measured > 0 || ended_there > 0);
}

static void add_gates(cJSON *object, const struct collecting *c)
{
    cJSON *array = fa_json_add_array(object, "gates");
    for (int g = 0; g < FA_STAGES; g++) {
        const struct gate *gate = &c->gate[fa_stages[g]];
        if (gate->count == 0)
            continue;
        cJSON *item = cJSON_CreateObject();
        fa_json_add_text(item, "status", fa_status_name(fa_stages[g]));
        fa_json_add_number(item, "count", (double)gate->count);
        cJSON *reasons = fa_json_add_array(item, "reasons");
        for (int i = 0; i < gate->reasons; i++) {
            cJSON *reason = cJSON_CreateObject();
            fa_json_add_text(reason, "text", gate->reason[i].text);
            fa_json_add_number(reason, "count", (double)gate->reason[i].count);
            fa_json_push(reasons, reason);
        }
        fa_json_add_number(item, "other_reasons", (double)gate->elsewhere);
        fa_json_push(array, item);
    }
}

/* ---- times ----------------------------------------------------------------------------------*/
double report_time(const fa_trial *trial)
{
    return trial->median_us > 0 ? trial->median_us : trial->predicted_us;
}

static void fill_times(struct collecting *c)
{
    report_problem *problem = c->problem;
    const fa_study *study = &problem->study;
    const fa_trial *best = study->has_winner     ? &study->winner.trial
                           : problem->ranked > 0 ? &problem->config[0].trial /* so far */
                                                 : NULL;
    problem->best = best;
    for (size_t i = 0; i < problem->count; i++) {
        report_config *config = &problem->config[i];
        config->is_winner = study->has_winner &&
                            fa_config_equal(&config->trial.config, &study->winner.trial.config);
        if (config->tried && config->trial.compile_ms > 0)
            c->compile_ms += config->trial.compile_ms;
    }
    if (best == NULL)
        return;
    problem->timed = best->median_us > 0;
    problem->measured =
        problem->timed && (!study->has_winner || fa_origin_is_measured(study->winner.origin));
    problem->us = report_time(best);
    if (study->has_winner && problem->timed && study->winner.default_us > 0)
        problem->x_default = study->winner.default_us / problem->us;
}

/* What somebody else's kernel takes for the same problem on the same GPU type. Its ratio is its time over
 * ours: above 1 ours is faster. */
static cJSON *baselines_json(const report *report, const report_problem *problem, bool *ret_slow)
{
    fa_answer answer = problem->study.winner;
    cJSON *array = cJSON_CreateArray();
    answer.problem = problem->study.problem;
    answer.gpu = problem->study.gpu;
    *ret_slow = false;
    for (size_t i = 0; i < report->baselines; i++) {
        const fa_baseline *baseline = &report->baseline[i];
        if (!fa_baseline_concerns(baseline, &answer) || !(baseline->median_us > 0))
            continue;
        double ratio = problem->us > 0 ? baseline->median_us / problem->us : 0;
        *ret_slow |= problem->measured && ratio < SLOW;
        cJSON *item = cJSON_CreateObject();
        fa_json_add_text(item, "peer", baseline->peer);
        fa_json_add_text(item, "name", report_peer_name(baseline->peer));
        fa_json_add_number(item, "median_us", baseline->median_us);
        add_known(item, "low_us", baseline->low_us);
        add_known(item, "high_us", baseline->high_us);
        add_known(item, "ratio", ratio);
        fa_json_add_text(item, "source", baseline->source);
        add_known(item, "matmul_tflops", baseline->matmul_tflops);
        fa_json_push(array, item);
    }
    return array;
}

/* ---- the problem ----------------------------------------------------------------------------*/
static void add_range(cJSON *object, const char *name, const int32_t range[2])
{
    fa_json_add(object, name, range[0] < 0 ? cJSON_CreateNull() : cJSON_CreateIntArray(range, 2));
}

/* Gives the arrays that were gathered away. */
static void add_circumstances(cJSON *object, struct collecting *c)
{
    for (size_t i = 0; i < c->environments; i++)
        fa_json_add_number(c->environment[i].json, "trials", (double)c->environment[i].trials);
    fa_json_add(object, "environments", c->environment_array);
    fa_json_add_number(object, "trials_in_other_environments", (double)c->other_environments);
    add_range(object, "sm_mhz", c->sm_mhz);
    add_range(object, "memory_mhz", c->memory_mhz);
    add_range(object, "temperature_c", c->temperature_c);
    add_range(object, "power_limit_w", c->power_limit_w);
    fa_json_add(object, "drivers", c->drivers);
    fa_json_add(object, "throttled_by", c->throttles);
    fa_json_add(object, "seeds", c->seeds);
    fa_json_add_number(object, "other_seeds", (double)c->other_seeds);
    c->environment_array = c->throttles = c->seeds = c->drivers = NULL;
}

/* "measured", "predicted", …; "unfinished" when there is no winner yet, "failed" when none came through. */
static const char *standing(const struct collecting *c)
{
    const report_problem *problem = c->problem;
    return problem->study.has_winner ? fa_origin_name(problem->study.winner.origin)
           : problem->best != NULL || c->gate[FA_STATUS_PENDING].count > 0 ? "unfinished"
                                                                           : "failed";
}

static cJSON *problem_json(const report *report, struct collecting *c)
{
    const report_problem *problem = c->problem;
    const fa_study *study = &problem->study;
    double flops = fa_problem_nominal_flops(&study->problem);
    bool slow;
    cJSON *baselines = baselines_json(report, problem, &slow), *object = cJSON_CreateObject();
    report_add_problem(object, &study->problem);
    fa_json_add(object, "gpu", fa_gpu_to_json(&study->gpu));
    fa_json_add_text(object, "silicon", study->silicon);
    fa_json_add_text(object, "templates", study->templates);
    fa_json_add_bool(object, "templates_are_present", study->current);
    fa_json_add_text(object, "policy", study->policy);
    fa_json_add_text(object, "known_how", standing(c));
    fa_json_add_bool(object, "measured", problem->measured);
    if (problem->best == NULL)
        fa_json_add_null(object, "winner");
    else
        fa_trial_add_json(fa_json_add_object(object, "winner"), problem->best);
    add_known(object, "ties", study->has_winner ? study->winner.ties : 0);
    add_known(object, "tflops", problem->us > 0 ? flops / problem->us * 1e-6 : 0);
    add_known(object, "flops", flops);
    add_known(object, "least_bytes", fa_problem_bytes(&study->problem));
    fa_json_add_bool(object, "reads_fp32", fa_problem_reads_fp32(&study->problem));
    add_known(object, "default_us", problem->x_default > 0 ? study->winner.default_us : 0);
    add_known(object, "speedup_over_default", problem->x_default);
    add_known(object, "compile_ms", c->compile_ms);
    add_known(object, "tune_s", study->winner.tune_s);
    fa_json_add_bool(object, "slow", slow);
    fa_json_add_number(object, "unix_time", (double)study->unix_time);
    fa_json_add_bool(object, "undated", study->has_winner && study->winner.undated);
    fa_json_add_number(object, "configs_tried", (double)problem->tried);
    fa_json_add(object, "baselines", baselines);
    add_funnel(object, c);
    add_gates(object, c);
    add_circumstances(object, c);
    return object;
}

int report_collect(const report *report, const fa_study *study, report_problem *ret_problem,
                   fa_diag *diag)
{
    struct collecting c = {.problem = ret_problem,
                           .environment_array = cJSON_CreateArray(),
                           .seeds = cJSON_CreateArray(),
                           .throttles = cJSON_CreateArray(),
                           .drivers = cJSON_CreateArray(),
                           .sm_mhz = {-1, -1},
                           .memory_mhz = {-1, -1},
                           .temperature_c = {-1, -1},
                           .power_limit_w = {-1, -1}};
    *ret_problem = (report_problem){.study = *study};
    int rc = fa_list_study_trials(report->tuner, study, take_config, &c, diag);
    for (size_t i = 0; i < ret_problem->count && rc == 0; i++) {
        const fa_trial *trial = &ret_problem->config[i].trial;
        ret_problem->ranked += ret_problem->config[i].rank > 0;
        count_gate(&c.gate[trial->status], trial->reason);
    }
    for (int i = 0; i < FA_STAGES && rc == 0; i++)
        keep_frequent(&c.gate[i]);
    if (rc == 0) {
        fill_times(&c);
        ret_problem->json = problem_json(report, &c);
    }
    for (size_t i = 0; i < c.environments; i++)
        free(c.environment[i].text);
    cJSON_Delete(c.environment_array);
    cJSON_Delete(c.seeds);
    cJSON_Delete(c.throttles);
    cJSON_Delete(c.drivers);
    if (rc == 0)
        return 0;
    report_problem_free(ret_problem);
    return rc == FA_ENOMEM ? fa_fail(diag, rc, "out of memory for a report") : rc;
}

void report_problem_free(report_problem *problem)
{
    if (problem == NULL)
        return;
    for (size_t i = 0; i < problem->count; i++)
        free(problem->config[i].samples_us);
    free(problem->config);
    cJSON_Delete(problem->json);
    *problem = (report_problem){0};
}
