/* SPDX-License-Identifier: Apache-2.0 */
#include "data.h"

#include "json.h"
#include "problem.h"

#include <string.h>

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
