/* SPDX-License-Identifier: Apache-2.0
 *
 * The report as one JSON document, a problem a line: what `--format json` writes, and what the page's
 * script draws. docs/json.md describes it. `version` is the document's: fields may join others in a
 * version, a field that goes or changes its meaning makes a new one. A number that is not known is
 * null. Which configs of a problem are told in full, the heat maps, and the configs that are as fast as the best stand
 * first. Measured times are median_us, low_us and high_us; predicted_us is the model's.
 */
#include "data.h"

#include "error.h"
#include "json.h"
#include "operation.h"
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
static double shortened(double value)
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
        fa_json_push(samples, cJSON_CreateNumber(shortened((double)config->samples_us[s])));
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

/* Joins "configs" and "heat": the best `cap` configs of those that finished and some failures, or with
 * SIZE_MAX all that were tried. */
static void add_configs(cJSON *object, report_problem *problem, size_t cap)
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

/* Joins "near": the numbers of the configs that are as fast as the best. FA_ENOMEM. */
static int add_near(report_document *document, cJSON *object, const report_problem *problem)
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

enum {
    VERSION = 1,
    PAGE_CONFIGS = 200, /* of one problem, told in full where there is room */
    CONFIG_BYTES = 500  /* that one takes at least */
};

static void add_known(cJSON *object, const char *name, double value)
{
    fa_json_add_known(object, name, value, value > 0);
}

static void add_text(cJSON *object, const char *name, const char *text)
{
    fa_json_add_text(object, name, text);
}

static void add_number(cJSON *object, const char *name, double value)
{
    fa_json_add_number(object, name, value);
}

static void mend(cJSON *json)
{
    for (; json != NULL; json = json->next) {
        if (json->string != NULL)
            report_mend(json->string);
        if (cJSON_IsString(json))
            report_mend(json->valuestring);
        mend(json->child);
    }
}

static void print(fa_buf *out, cJSON *json)
{
    mend(json);
    char *text = fa_json_print(json);
    if (text != NULL)
        fa_buf_text(out, text);
    else
        out->failed = true;
    free(text);
    cJSON_Delete(json);
}

/* ---- shortening -----------------------------------------------------------------------------*/
static bool says_nothing(const cJSON *item)
{
    return cJSON_IsNull(item) || cJSON_IsFalse(item) ||
           (cJSON_IsString(item) && item->valuestring[0] == 0) ||
           ((cJSON_IsArray(item) || cJSON_IsObject(item)) && item->child == NULL);
}

static void shorten(cJSON *json)
{
    for (cJSON *item = json != NULL ? json->child : NULL, *next; item != NULL; item = next) {
        next = item->next;
        shorten(item);
        if (cJSON_IsObject(json) && says_nothing(item)) {
            cJSON_Delete(cJSON_DetachItemViaPointer(json, item));
        } else if (cJSON_IsNumber(item) && item->valuedouble != floor(item->valuedouble)) {
            item->valuedouble = shortened(item->valuedouble);
        }
    }
}

static void drop_repeated(report_document *document, cJSON *json)
{
    static const char *const names[DOCUMENT_REPEATED] = {"gpu", "silicon", "templates", "policy",
                                                         "environments"};
    for (int i = 0; i < DOCUMENT_REPEATED; i++) {
        cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(json, names[i]);
        if (item == NULL) /* it is empty, which must not be taken for repeated */
            item = cJSON_CreateArray();
        if (document->last[i] != NULL && cJSON_Compare(document->last[i], item, true)) {
            cJSON_Delete(item);
            continue;
        }
        cJSON_Delete(document->last[i]);
        document->last[i] = cJSON_Duplicate(item, true);
        fa_json_add(json, names[i], item);
    }
}

/* ---- the document ---------------------------------------------------------------------------*/
/* The operations that reports know, each with the fields of its problems (docs/json.md). */
static cJSON *operations_json(void)
{
    static const char *const told[] = {"name", "title", "default", "counts", "fields"};
    const fa_operation *operation;
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; (operation = fa_operation_at(i)) != NULL; i++) {
        cJSON *item = cJSON_CreateObject();
        for (size_t t = 0; t < sizeof told / sizeof *told; t++) {
            const cJSON *value = cJSON_GetObjectItemCaseSensitive(operation->document, told[t]);
            if (value != NULL)
                fa_json_add(item, told[t], cJSON_Duplicate(value, true));
        }
        fa_json_push(array, item);
    }
    return array;
}

void report_document_begin(const report *report, fa_buf *out)
{
    cJSON *head = cJSON_CreateObject();
    add_text(head, "document", "fa-tune-report");
    add_number(head, "version", VERSION);
    add_text(head, "fa_tune", fa_version());
    add_text(head, "store", report->store);
    add_number(head, "unix_time", (double)report->made);
    add_number(head, "not_asked_for", (double)report->outcome.filtered);
    add_number(head, "earlier_generations", (double)report->outcome.older);
    cJSON *gates = fa_json_add_array(head, "gates");
    for (int g = 0; g < FA_STAGES; g++) {
        cJSON *gate = cJSON_CreateObject();
        add_text(gate, "status", fa_status_name(fa_stages[g]));
        add_text(gate, "meaning", fa_stage_meaning(fa_stages[g]));
        fa_json_push(gates, gate);
    }
    fa_json_add(head, "operations", operations_json());
    print(out, head);
    if (out->size > 0 && !out->failed)
        out->data[--out->size] = 0; /* the head goes on */
    fa_buf_text(out, ",\"problems\":[");
}

/* Tells as many configs as there is room for, fewer at each try. */
static void add_what_fits(const report *report, report_document *document, cJSON *json,
                          report_problem *problem)
{
    bool limited = document->is_short && report->options->top == 0;
    size_t cap = !document->is_short ? SIZE_MAX : (size_t)report->options->top;
    if (limited && (cap = document->room / CONFIG_BYTES + 1) > PAGE_CONFIGS)
        cap = PAGE_CONFIGS;
    for (;; cap /= 2) {
        add_configs(json, problem, cap);
        fa_buf text = {0};
        if (document->is_short) {
            shorten(cJSON_GetObjectItemCaseSensitive(json, "configs"));
            shorten(cJSON_GetObjectItemCaseSensitive(json, "heat"));
        }
        if (limited && cap > 0)
            print(&text, cJSON_Duplicate(json, true));
        bool fits = text.size <= document->room;
        fa_buf_free(&text);
        if (fits)
            return;
        cJSON_DeleteItemFromObjectCaseSensitive(json, "configs");
        cJSON_DeleteItemFromObjectCaseSensitive(json, "configs_left_out");
        cJSON_DeleteItemFromObjectCaseSensitive(json, "heat");
    }
}

cJSON *report_document_whole_problem(report_problem *problem)
{
    cJSON *json = problem->json;
    problem->json = NULL;
    add_configs(json, problem, SIZE_MAX);
    return json;
}

void report_document_problem(const report *report, report_document *document,
                             report_problem *problem, fa_buf *out)
{
    cJSON *json = problem->json;
    problem->json = NULL;
    out->failed |= !fa_json_is_whole(json);
    if (add_near(document, json, problem) != 0)
        out->failed = true;
    if (document->is_short) {
        shorten(json);
        drop_repeated(document, json);
    }
    add_what_fits(report, document, json, problem);
    fa_buf_text(out, problem->number > 1 ? ",\n" : "\n");
    print(out, json);
}

static cJSON *regret_json(const fa_regret *regret)
{
    cJSON *item = cJSON_CreateObject();
    report_add_problem(item, &regret->problem);
    fa_json_add(item, "bucket", fa_problem_to_json(&regret->bucket));
    report_add_words(item, "bucket_words", &regret->bucket);
    fa_json_add_text(item, "gpu", regret->gpu);
    add_known(item, "bucket_us", regret->bucket_us);
    add_known(item, "best_us", regret->best_us);
    double value = report_regret_of(regret);
    if (value >= 0)
        fa_json_add_number(item, "regret", value);
    else
        fa_json_add_null(item, "regret");
    add_known(item, "ratio", value >= 0 ? 1 + value : 0);
    fa_json_add(item, "bucket_config", fa_config_to_json(&regret->bucket_config));
    fa_json_add(item, "best_config", fa_config_to_json(&regret->best_config));
    return item;
}

static cJSON *prediction_json(const fa_prediction *prediction)
{
    cJSON *item = cJSON_CreateObject();
    report_add_problem(item, &prediction->problem);
    fa_json_add_text(item, "gpu", prediction->gpu);
    fa_json_add_text(item, "known_how", fa_origin_name(prediction->origin));
    fa_json_add_text(item, "from_gpu", prediction->from_gpu);
    add_known(item, "predicted_us", prediction->predicted_us);
    add_known(item, "measured_us", prediction->measured_us);
    add_known(item, "best_us", prediction->best_us);
    add_known(item, "ratio",
              prediction->best_us > 0 ? prediction->measured_us / prediction->best_us : 0);
    add_known(item, "rank", prediction->rank);
    add_known(item, "measured", prediction->measured);
    fa_json_add(item, "config", fa_config_to_json(&prediction->config));
    return item;
}

static cJSON *pay_row_json(const report_pay_row *row)
{
    cJSON *item = cJSON_CreateObject();
    fa_buf words = {0};
    report_pay_words(&words, row);
    add_text(item, "against", words.data != NULL ? words.data : "");
    fa_buf_free(&words);
    add_number(item, "problems", (double)row->problems);
    add_number(item, "gain", row->mean);
    add_number(item, "most", row->most);
    add_number(item, "probes", (double)row->probes);
    cJSON *configs = fa_json_add_array(item, "configs");
    for (size_t i = 0; i < row->configs; i++)
        fa_json_push(configs, cJSON_CreateString(row->config[i]));
    return item;
}

static cJSON *pay_json(const report_pay *pay)
{
    cJSON *item = cJSON_CreateObject();
    add_text(item, "gpu", pay->gpu);
    add_text(item, "silicon", pay->silicon);
    add_text(item, "operation", pay->operation->name);
    add_number(item, "problems", (double)pay->problems);
    cJSON *rows = fa_json_add_array(item, "rows");
    for (int r = 0; r < REPORT_PAY_ROWS; r++)
        if (report_pay_told(pay, r))
            fa_json_push(rows, pay_row_json(&pay->row[r]));
    return item;
}

cJSON *report_document_tail(const report *report, const report_document *document)
{
    cJSON *tail = cJSON_CreateObject();
    fa_json_add(tail, "headlines", report_headlines_json(report));
    cJSON *list = fa_json_add_array(tail, "near_configs");
    for (size_t i = 0; document != NULL && i < document->nears; i++)
        fa_json_push(list, cJSON_CreateString(document->near[i]));
    list = fa_json_add_array(tail, "pay");
    for (size_t i = 0; i < report->pays; i++)
        fa_json_push(list, pay_json(&report->pay[i]));
    fa_json_add(tail, "training", report_training_json(report));
    list = fa_json_add_array(tail, "regret");
    for (size_t i = 0; i < report->regrets; i++)
        fa_json_push(list, regret_json(&report->regret[i]));
    list = fa_json_add_array(tail, "predictions");
    for (size_t i = 0; i < report->predictions; i++)
        fa_json_push(list, prediction_json(&report->prediction[i]));
    return tail;
}

void report_document_end(const report *report, report_document *document, fa_buf *out)
{
    fa_buf tail = {0};
    print(&tail, report_document_tail(report, document));
    fa_buf_text(out, "\n],");
    if (tail.size > 1) /* its members */
        fa_buf_append(out, tail.data + 1, tail.size - 1);
    fa_buf_text(out, "\n");
    out->failed |= tail.failed;
    fa_buf_free(&tail);
}

void report_document_free(report_document *document)
{
    for (size_t i = 0; i < document->nears; i++)
        free(document->near[i]);
    for (int i = 0; i < DOCUMENT_REPEATED; i++)
        cJSON_Delete(document->last[i]);
    free(document->near);
    *document = (report_document){0};
}

/* ---- --format json --------------------------------------------------------------------------*/
static int json_begin(report *report)
{
    report->format = calloc(1, sizeof(report_document));
    if (report->format == NULL)
        return FA_ENOMEM;
    report_document_begin(report, report->out);
    return 0;
}

static void json_problem(report *report, report_problem *problem)
{
    report_document_problem(report, report->format, problem, report->out);
}

static void json_end(report *report)
{
    if (report->format == NULL)
        return;
    report_document_end(report, report->format, report->out);
    report_document_free(report->format);
    free(report->format);
}

const report_writer report_json = {json_begin, json_problem, json_end};
