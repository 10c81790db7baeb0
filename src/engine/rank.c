/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of trials.
 */
#include "rank.h"

#include "problem.h"
#include "tunable.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int compare_double(double a, double b)
{
    return (a > b) - (a < b);
}

/* What has no prediction comes behind what has one. */
static double known_or_endless(double us)
{
    return us > 0 ? us : INFINITY;
}

/* The order of fa_config_text(). Writing both out for each comparison took a third of a report's time, so of configs
 * with the same tunables only the first values that differ are, each with the character behind it. */
static int compare_configs(const fa_config *a, const fa_config *b)
{
    int i = 0;
    while (i < a->count && i < b->count && a->tunable[i].value == b->tunable[i].value &&
           strcmp(a->tunable[i].name, b->tunable[i].name) == 0)
        i++;
    if (a->count == b->count &&
        (i == a->count || strcmp(a->tunable[i].name, b->tunable[i].name) == 0)) {
        char x[FA_VALUE_TEXT_MAX + 1], y[FA_VALUE_TEXT_MAX + 1], room[FA_VALUE_TEXT_MAX],
            behind = i + 1 < a->count ? ',' : '}';
        if (i == a->count)
            return 0;
        snprintf(x, sizeof x, "%s%c", fa_value_json(a->tunable[i].value, room), behind);
        snprintf(y, sizeof y, "%s%c", fa_value_json(b->tunable[i].value, room), behind);
        return strcmp(x, y);
    }
    char text_a[FA_CONFIG_TEXT_MAX], text_b[FA_CONFIG_TEXT_MAX];
    fa_config_text(a, text_a);
    fa_config_text(b, text_b);
    return strcmp(text_a, text_b);
}

int fa_trial_compare(const fa_trial *a, const fa_trial *b)
{
    bool measured = a->status == FA_STATUS_MEASURED;
    if (a->status != b->status)
        return measured                          ? -1
               : b->status == FA_STATUS_MEASURED ? 1
                                                 : (int)a->status - (int)b->status;
    if (measured && a->raced != b->raced) /* the raced hold the best of the rest, too */
        return a->raced ? -1 : 1;
    int order = measured ? compare_double(a->median_us, b->median_us)
                         : compare_double(known_or_endless(a->predicted_us),
                                          known_or_endless(b->predicted_us));
    if (order == 0)
        order = strcmp(a->config.family, b->config.family);
    return order != 0 ? order : compare_configs(&a->config, &b->config);
}

bool fa_trial_finished(const fa_trial *trial)
{
    return trial->status == FA_STATUS_MEASURED || trial->status == FA_STATUS_COMPILED;
}

int fa_trial_compare_ends(const fa_trial *x, const fa_trial *y)
{
    if (fa_trial_finished(x) != fa_trial_finished(y))
        return fa_trial_finished(x) ? -1 : 1;
    if (fa_trial_finished(x))
        return fa_trial_compare(x, y);
    /* The gate reached last comes first; what was not tried comes right after what finished. */
    if (x->status != y->status)
        return x->status == FA_STATUS_PENDING   ? -1
               : y->status == FA_STATUS_PENDING ? 1
                                                : (int)y->status - (int)x->status;
    return fa_trial_compare(x, y);
}
