/* SPDX-License-Identifier: Apache-2.0
 *
 * What the store knows beyond single problems: what buckets of lengths cost between their points,
 * and what became of choices that were predicted or transferred before they were measured.
 */
#include "data.h"

#include <stdlib.h>

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
