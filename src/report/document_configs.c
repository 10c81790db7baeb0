/* SPDX-License-Identifier: Apache-2.0
 *
 * The configs of a problem in the report's document: which of them are told in full, the heat maps,
 * and those that are as fast as the best.
 */
#include "data.h"

#include "error.h"
#include "json.h"
#include "problem.h"
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEAT_TOLD = 25,   /* where so many configs are told, those of the heat map are told too */
    HEAT_CONFIGS = 5, /* where fewer are told, there is no heat map */
    HEAT_CELLS = 1024,
    HEAT_AXES = 3
};

static const double NEAR = 1.02; /* times the best: as good */

/* ---- configs --------------------------------------------------------------------------------*/
double document_short(double value)
{
    const double size = fabs(value);
    double power = 1;
    char digits[32];
    if (size >= 1e-4 && size < 1e7) { /* nearly all, in a tenth of the time */
        while (size * power < 1e6)
            power *= 10;
        return copysign(rint(size * power) / power, value);
    }
    snprintf(digits, sizeof digits, "%.7g", value);
    return strtod(digits, NULL);
}

static void add_samples(cJSON *item, const report_config *config)
{
    cJSON *samples = fa_json_add_array(item, "samples_us");
    for (int32_t s = 0; s < config->sample_count; s++)
        fa_json_push(samples, cJSON_CreateNumber(document_short((double)config->samples_us[s])));
}

static void add_clocks(cJSON *item, const report_config *config)
{
    if (config->sm_mhz < 0) {
        fa_json_add_null(item, "clocks");
        return;
    }
    cJSON *clocks = fa_json_add_object(item, "clocks");
    fa_json_add_number(clocks, "sm_mhz", config->sm_mhz);
    fa_json_add_number(clocks, "memory_mhz", config->memory_mhz);
    fa_json_add_number(clocks, "temperature_c", config->temperature_c);
    fa_json_add_text(clocks, "throttle", config->throttle);
}

static cJSON *config_json(const report_config *config)
{
    cJSON *item = cJSON_CreateObject();
    char seed[24];
    fa_json_add_known(item, "rank", config->rank, config->rank > 0);
    fa_trial_add_json(item, &config->trial);
    fa_json_add_bool(item, "default", config->is_default);
    fa_json_add_bool(item, "winner", config->is_winner);
    add_samples(item, config);
    add_clocks(item, config);
    /* 64 bits: as text, because a JSON number may lose some. */
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)config->seed);
    fa_json_add_text(item, "seed", seed);
    fa_json_add_text(item, "cubin_key", config->cubin_key);
    fa_json_add_number(item, "unix_time", (double)config->unix_time);
    return item;
}

/* Numbers the configs that are told. */
static void choose_configs(report_problem *problem, size_t cap)
{
    size_t failures = 0, most = cap == SIZE_MAX ? cap : cap / 4;
    int32_t told = 0;
    for (size_t i = 0; i < problem->count; i++) {
        report_config *config = &problem->config[i];
        bool wanted = cap == SIZE_MAX || (cap >= HEAT_TOLD && config->in_heat_map);
        if (config->rank > 0)
            wanted |= (size_t)config->rank <= cap || (cap > 0 && config->is_default);
        else if (config->tried && !report_pruned(config->trial.status))
            wanted |= failures++ < most;
        config->told = wanted && config->tried ? told++ : -1;
    }
}

/* ---- heat maps ------------------------------------------------------------------------------*/
/* The first three tunables of a family as rows, columns and maps; of each cell the config that comes
 * first, and they come best first: the winner, then by race, probe, model, and how far they got. */
struct heat {
    int axes;
    const char *axis[HEAT_AXES];
    int count;
    struct cell {
        int32_t at[HEAT_AXES];
        size_t config;
    } cell[HEAT_CELLS];
};

static bool join_cell(struct heat *heat, const fa_config *config, size_t index)
{
    struct cell cell = {.config = index};
    for (int a = 0; a < heat->axes; a++)
        if (!fa_config_get(config, heat->axis[a], &cell.at[a]))
            return true;
    for (int c = 0; c < heat->count; c++)
        if (memcmp(heat->cell[c].at, cell.at, sizeof cell.at) == 0)
            return true;
    if (heat->count == HEAT_CELLS)
        return false;
    heat->cell[heat->count++] = cell;
    return true;
}

/* False when there are more cells than are told. */
static bool find_cells(const report_problem *problem, size_t first, struct heat *heat)
{
    const fa_config *config = &problem->config[first].trial.config;
    bool whole = true;
    heat->count = 0;
    heat->axes = config->count < HEAT_AXES ? config->count : HEAT_AXES;
    for (int a = 0; a < heat->axes; a++)
        heat->axis[a] = config->tunable[a].name;
    for (size_t i = first; i < problem->count; i++) {
        const fa_config *other = &problem->config[i].trial.config;
        if (strcmp(other->family, config->family) == 0)
            whole &= join_cell(heat, other, i);
    }
    return whole;
}

static void add_map(cJSON *array, const report_problem *problem, size_t first,
                    const struct heat *heat, bool whole)
{
    cJSON *item = cJSON_CreateObject();
    fa_json_add_text(item, "family", problem->config[first].trial.config.family);
    fa_json_add(item, "axes", cJSON_CreateStringArray(heat->axis, heat->axes));
    fa_json_add_bool(item, "cut", !whole);
    cJSON *cells = fa_json_add_array(item, "cells");
    for (int c = 0; c < heat->count; c++) {
        const report_config *config = &problem->config[heat->cell[c].config];
        double us = report_time(&config->trial);
        cJSON *cell = cJSON_CreateArray();
        for (int a = 0; a < heat->axes; a++)
            fa_json_push(cell, fa_value_to_json(heat->cell[c].at[a]));
        fa_json_push(cell, cJSON_CreateString(fa_status_name(config->trial.status)));
        fa_json_push(cell,
                     config->rank > 0 && us > 0 ? cJSON_CreateNumber(us) : cJSON_CreateNull());
        fa_json_push(cell, cJSON_CreateNumber(config->told));
        if (config->trial.raced)
            fa_json_push(cell, cJSON_CreateTrue());
        fa_json_push(cells, cell);
    }
    fa_json_push(array, item);
}

/* Marks what the maps show, or with an array tells them: a map for each family. */
static void each_family(report_problem *problem, struct heat *heat, cJSON *array)
{
    for (size_t i = 0; i < problem->count; i++) {
        const fa_config *config = &problem->config[i].trial.config;
        size_t before = 0;
        while (before < i &&
               strcmp(problem->config[before].trial.config.family, config->family) != 0)
            before++;
        if (before < i || config->count == 0)
            continue;
        bool whole = find_cells(problem, i, heat);
        if (array != NULL)
            add_map(array, problem, i, heat, whole);
        for (int c = 0; c < heat->count && array == NULL; c++)
            problem->config[heat->cell[c].config].in_heat_map = true;
    }
}

void document_add_configs(cJSON *object, report_problem *problem, size_t cap)
{
    bool maps = problem->ranked > 1 && cap >= HEAT_CONFIGS; /* one cell is no map */
    struct heat *heat = maps ? malloc(sizeof *heat) : NULL;
    if (heat != NULL)
        each_family(problem, heat, NULL);
    choose_configs(problem, cap);
    cJSON *array = fa_json_add_array(object, "configs");
    size_t told = 0;
    for (size_t i = 0; i < problem->count; i++) {
        if (problem->config[i].told < 0)
            continue;
        fa_json_push(array, config_json(&problem->config[i]));
        told++;
    }
    fa_json_add_number(object, "configs_left_out", (double)(problem->tried - told));
    array = fa_json_add_array(object, "heat");
    if (heat != NULL)
        each_family(problem, heat, array);
    free(heat);
}

/* ---- those near the best --------------------------------------------------------------------*/
/* The config's number in the document, by its words. Negative: FA_ENOMEM. */
static int number_of(report_document *document, const fa_config *config)
{
    fa_buf words = {0};
    fa_words_config(&words, config);
    size_t n = 0;
    while (n < document->nears && words.data != NULL && strcmp(document->near[n], words.data) != 0)
        n++;
    if (n == document->nears) {
        char **grown = fa_grow(document->near, &document->near_capacity, n, sizeof *grown);
        if (grown != NULL)
            document->near = grown;
        if (grown == NULL || words.failed || words.data == NULL) {
            fa_buf_free(&words);
            return FA_ENOMEM;
        }
        document->near[document->nears++] = words.data;
        return (int)n;
    }
    fa_buf_free(&words);
    return (int)n;
}

int document_add_near(report_document *document, cJSON *object, const report_problem *problem)
{
    cJSON *array = fa_json_add_array(object, "near");
    int number = 0;
    for (size_t i = 0; i < problem->count && problem->timed && number >= 0; i++) {
        const report_config *config = &problem->config[i];
        if (!(config->trial.median_us > 0 && config->trial.median_us <= problem->us * NEAR))
            continue;
        number = number_of(document, &config->trial.config);
        fa_json_push(array, cJSON_CreateNumber(number));
    }
    if (problem->timed && number >= 0 &&
        array->child == NULL) { /* imported: no trial is on record */
        number = number_of(document, &problem->best->config);
        fa_json_push(array, cJSON_CreateNumber(number));
    }
    return number < 0 ? number : 0;
}
