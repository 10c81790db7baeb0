/* SPDX-License-Identifier: Apache-2.0
 *
 * What a report says over all problems: whether tuning pays, what layers take in training, and what buckets of lengths and
 * choices before a measurement have cost.
 *
 * A fixed config is chosen by how many problems it was measured on, then by how little it costs there; the
 * next ones by what they add to those before. A config that was not measured on a problem serves it not: no
 * time is made up.
 */
#include "data.h"

#include "json.h"
#include "operation.h"
#include "problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One measured config of one problem. */
typedef struct sample {
    char *config; /* owned */
    size_t problem;
    double ratio; /* its time over the winner's */
    bool raced;
} sample;

struct report_paying {
    report_pay group;
    double defaults; /* sum of logarithms */
    sample *sample;
    size_t samples, capacity;
};

/* ---- gathering ------------------------------------------------------------------------------*/
static bool is_timed(const report_problem *problem)
{
    return problem->study.has_winner && problem->timed && problem->us > 0;
}

static int take_config(struct report_paying *paying, const report_problem *problem,
                       const report_config *config)
{
    fa_buf words = {0};
    fa_words_config(&words, &config->trial.config);
    sample one = {words.data, paying->group.problems, config->trial.median_us / problem->us,
                  config->trial.raced};
    int rc = words.failed || words.data == NULL ? FA_ENOMEM
                                                : fa_append(&paying->sample, &paying->samples,
                                                            &paying->capacity, &one, sizeof one);
    if (rc != 0)
        fa_buf_free(&words);
    return rc;
}

static void take_default(struct report_paying *paying, const report_problem *problem)
{
    report_pay_row *row = &paying->group.row[0];
    if (!(problem->x_default > 0))
        return;
    row->problems++;
    paying->defaults += log(problem->x_default);
    if (problem->x_default > row->most)
        row->most = problem->x_default;
}

/* ---- choosing -------------------------------------------------------------------------------*/
static int compare_samples(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    int order = strcmp(x->config, y->config);
    return order != 0 ? order : (x->problem > y->problem) - (x->problem < y->problem);
}

struct choice {
    const sample **best; /* [problems]: of the configs that are chosen; NULL: none was measured there */
    size_t served;
    double cost; /* sum of logarithms over them */
};

/* What the run of one config's samples would make of a choice. */
static void weigh(const struct choice *choice, const sample *run, size_t count, size_t *ret_served,
                  double *ret_cost)
{
    *ret_served = choice->served;
    *ret_cost = choice->cost;
    for (size_t i = 0; i < count; i++) {
        const sample *before = choice->best[run[i].problem];
        *ret_served += before == NULL;
        if (before == NULL)
            *ret_cost += log(run[i].ratio);
        else if (run[i].ratio < before->ratio)
            *ret_cost += log(run[i].ratio / before->ratio);
    }
}

static void choose(struct choice *choice, const sample *run, size_t count)
{
    weigh(choice, run, count, &choice->served, &choice->cost);
    for (size_t i = 0; i < count; i++) {
        const sample **best = &choice->best[run[i].problem];
        if (*best == NULL || run[i].ratio < (*best)->ratio)
            *best = &run[i];
    }
}

/* Joins the config that adds most. false: none adds anything. */
static bool choose_next(struct report_paying *paying, struct choice *choice, const char **ret_config)
{
    size_t found = 0, found_count = 0, most = choice->served;
    double least = choice->cost;
    for (size_t i = 0, next; i < paying->samples; i = next) {
        size_t served;
        double cost;
        for (next = i + 1; next < paying->samples; next++)
            if (strcmp(paying->sample[next].config, paying->sample[i].config) != 0)
                break;
        weigh(choice, &paying->sample[i], next - i, &served, &cost);
        if (served < most || (served == most && !(cost < least - 1e-9)))
            continue;
        found = i;
        found_count = next - i;
        most = served;
        least = cost;
    }
    if (found_count == 0)
        return false;
    choose(choice, &paying->sample[found], found_count);
    *ret_config = paying->sample[found].config;
    return true;
}

static void sum_up(const struct choice *choice, size_t problems, report_pay_row *row)
{
    row->problems = choice->served;
    row->mean = choice->served > 0 ? exp(choice->cost / (double)choice->served) : 0;
    for (size_t i = 0; i < problems; i++) {
        if (choice->best[i] == NULL)
            continue;
        row->probes += !choice->best[i]->raced;
        if (choice->best[i]->ratio > row->most)
            row->most = choice->best[i]->ratio;
    }
}

static int choose_fixed(struct report_paying *paying)
{
    report_pay *group = &paying->group;
    struct choice choice = {.best = calloc(group->problems, sizeof *choice.best)};
    const char *chosen[REPORT_PAY_FIXED];
    size_t count = 0;
    int rc = choice.best != NULL ? 0 : FA_ENOMEM;
    if (rc == 0 && paying->samples > 0)
        qsort(paying->sample, paying->samples, sizeof *paying->sample, compare_samples);
    while (rc == 0 && count < REPORT_PAY_FIXED && choose_next(paying, &choice, &chosen[count])) {
        count++;
        if (count == 1)
            sum_up(&choice, group->problems, &group->row[1]);
    }
    if (rc == 0)
        sum_up(&choice, group->problems, &group->row[2]);
    for (size_t i = 0; i < count && rc == 0; i++)
        for (int r = 1; r < REPORT_PAY_ROWS && rc == 0; r++)
            if (r == 2 || i == 0) {
                char *copy = strdup(chosen[i]);
                group->row[r].config[group->row[r].configs] = copy;
                group->row[r].configs += copy != NULL;
                rc = copy != NULL ? 0 : FA_ENOMEM;
            }
    free(choice.best);
    return rc;
}

/* ---- groups ---------------------------------------------------------------------------------*/
static void free_group(report_pay *group)
{
    for (int r = 0; r < REPORT_PAY_ROWS; r++)
        for (size_t i = 0; i < group->row[r].configs; i++)
            free(group->row[r].config[i]);
}

static void forget(struct report_paying *paying)
{
    for (size_t i = 0; i < paying->samples; i++)
        free(paying->sample[i].config);
    free(paying->sample);
    *paying = (struct report_paying){0};
}

static int end_group(report *report)
{
    struct report_paying *paying = report->paying;
    if (paying == NULL || paying->group.problems == 0)
        return 0;
    report_pay_row *first = &paying->group.row[0];
    if (first->problems > 0)
        first->mean = exp(paying->defaults / (double)first->problems);
    int rc = choose_fixed(paying);
    if (rc == 0)
        rc = fa_append(&report->pay, &report->pays, &report->pay_capacity, &paying->group,
                       sizeof paying->group);
    if (rc != 0)
        free_group(&paying->group);
    forget(paying);
    return rc;
}

int report_pay_add(report *report, const report_problem *problem)
{
    const fa_study *study = &problem->study;
    if (!is_timed(problem))
        return 0;
    if (report->paying == NULL && (report->paying = calloc(1, sizeof *report->paying)) == NULL)
        return FA_ENOMEM;
    struct report_paying *paying = report->paying;
    report_pay *group = &paying->group;
    const fa_operation *operation = fa_operation_of(&study->problem);
    int rc = 0;
    if (group->problems > 0 &&
        (strcmp(group->silicon, study->silicon) != 0 || group->operation != operation))
        rc = end_group(report);
    if (group->problems == 0) {
        memcpy(group->silicon, study->silicon, sizeof group->silicon);
        memcpy(group->gpu, study->gpu.name, sizeof group->gpu);
        group->operation = operation;
    }
    take_default(paying, problem);
    for (size_t i = 0; i < problem->count && rc == 0; i++)
        if (problem->config[i].tried && problem->config[i].trial.median_us > 0)
            rc = take_config(paying, problem, &problem->config[i]);
    group->problems++;
    return rc;
}

int report_pay_end(report *report)
{
    return end_group(report);
}

void report_pay_free(report *report)
{
    for (size_t i = 0; i < report->pays; i++)
        free_group(&report->pay[i]);
    free(report->pay);
    if (report->paying != NULL)
        forget(report->paying);
    free(report->paying);
    report->pay = NULL;
    report->paying = NULL;
    report->pays = 0;
}

bool report_pay_told(const report_pay *pay, int row)
{
    const report_pay_row *one = &pay->row[row];
    return one->problems > 0 && (row == 0 || (pay->problems > 1 && one->configs >= (size_t)row));
}

void report_pay_words(fa_buf *out, const report_pay_row *row)
{
    if (row->configs == 0)
        fa_buf_text(out, "the family's default config");
    else if (row->configs == 1)
        fa_buf_text(out, "one config for all of them");
    else
        fa_buf_printf(out, "the best of %zu fixed configs", row->configs);
}

/* ---- training --------------------------------------------------------------------------------*/
struct report_pass {
    fa_problem problem;
    char silicon[sizeof((fa_study *)NULL)->silicon], gpu[64];
    int number;
    fa_trial best;
};

int report_training_add(report *report, const report_problem *problem)
{
    if (problem->best == NULL || !(problem->us > 0))
        return 0;
    struct report_pass pass = {
        .problem = problem->study.problem, .number = problem->number, .best = *problem->best};
    memcpy(pass.silicon, problem->study.silicon, sizeof pass.silicon);
    memcpy(pass.gpu, problem->study.gpu.name, sizeof pass.gpu);
    return fa_append(&report->pass, &report->passes, &report->pass_capacity, &pass, sizeof pass);
}

/* The pass that computes its gradients; NULL: none is told, or this one is no forward pass of training. */
static const struct report_pass *backward_of(const report *report, const struct report_pass *pass)
{
    fa_problem forward = pass->problem, gradients;
    if (fa_problem_train(&forward, &gradients, NULL) != 0 ||
        !fa_problem_equal(&forward, &pass->problem))
        return NULL;
    for (size_t i = 0; i < report->passes; i++)
        if (strcmp(report->pass[i].silicon, pass->silicon) == 0 &&
            fa_problem_equal(&report->pass[i].problem, &gradients))
            return &report->pass[i];
    return NULL;
}

static void add_pass(cJSON *row, const char *name, const struct report_pass *pass)
{
    cJSON *json = fa_json_add_object(row, name);
    const fa_trial *best = &pass->best;
    bool timed = best->median_us > 0;
    fa_json_add_number(json, "number", pass->number);
    fa_json_add_known(json, "median_us", best->median_us, timed);
    fa_json_add_known(json, "low_us", best->low_us, timed);
    fa_json_add_known(json, "high_us", best->high_us, timed);
    fa_json_add_known(json, "predicted_us", best->predicted_us, best->predicted_us > 0);
}

static cJSON *row_json(const struct report_pass *forward, const struct report_pass *backward)
{
    cJSON *row = cJSON_CreateObject();
    double one = report_time(&forward->best), other = report_time(&backward->best);
    bool alike = (forward->best.median_us > 0) == (backward->best.median_us > 0);
    report_add_problem(row, &forward->problem);
    fa_json_add_text(row, "gpu", forward->gpu);
    add_pass(row, "forward", forward);
    add_pass(row, "backward", backward);
    fa_json_add_known(row, "together_us", one + other, alike);
    fa_json_add_known(row, "ratio", other / one, alike);
    fa_json_add_bool(row, "measured", alike && forward->best.median_us > 0);
    return row;
}

cJSON *report_training_json(const report *report)
{
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; i < report->passes; i++) {
        const struct report_pass *backward = backward_of(report, &report->pass[i]);
        if (backward != NULL)
            fa_json_push(list, row_json(&report->pass[i], backward));
    }
    return list;
}

/* ---- between the points of a bucket, and choices before a measurement ------------------------*/
bool report_asked_for(const report_options *options, const fa_problem *problem, const char *gpu)
{
    return options->keep == NULL || options->keep(options->context, problem, gpu);
}

static int keep_regret(void *context, const fa_regret *regret)
{
    report *report = context;
    return report_asked_for(report->options, &regret->problem, regret->gpu)
               ? fa_append(&report->regret, &report->regrets, &report->regret_capacity, regret,
                           sizeof *regret)
               : 0;
}

static int keep_prediction(void *context, const fa_prediction *prediction)
{
    report *report = context;
    return report_asked_for(report->options, &prediction->problem, prediction->gpu)
               ? fa_append(&report->prediction, &report->predictions, &report->prediction_capacity,
                           prediction, sizeof *prediction)
               : 0;
}

int report_collect_extras(report *report, fa_diag *diag)
{
    int rc = fa_list_regret(report->tuner, keep_regret, report, diag);
    return rc != 0 ? rc : fa_list_predictions(report->tuner, keep_prediction, report, diag);
}

double report_regret_of(const fa_regret *regret)
{
    return regret->bucket_us > 0 && regret->best_us > 0
               ? regret->bucket_us > regret->best_us ? regret->bucket_us / regret->best_us - 1 : 0
               : -1;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int report_regret_summary(const report *report, report_regret_sum *ret_sum)
{
    report_regret_sum sum = {0};
    double *values = calloc(report->regrets + 1, sizeof *values);
    if (values == NULL)
        return FA_ENOMEM;
    for (size_t i = 0; i < report->regrets; i++) {
        double value = report_regret_of(&report->regret[i]);
        if (value >= 0)
            values[sum.points++] = value;
        else
            sum.failed++;
    }
    if (sum.points > 0) {
        qsort(values, sum.points, sizeof *values, compare_doubles);
        sum.median = (values[(sum.points - 1) / 2] + values[sum.points / 2]) / 2;
        sum.worst = values[sum.points - 1];
    }
    free(values);
    *ret_sum = sum;
    return 0;
}
