/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of trials.
 */
#include "rank.h"

#include "problem.h"

#include <string.h>

static int compare_double(double a, double b)
{
    return (a > b) - (a < b);
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
                         : compare_double(a->predicted_us, b->predicted_us);
    if (order == 0)
        order = strcmp(a->config.family, b->config.family);
    if (order != 0)
        return order;
    char text_a[FA_CONFIG_TEXT_MAX], text_b[FA_CONFIG_TEXT_MAX];
    fa_config_text(&a->config, text_a);
    fa_config_text(&b->config, text_b);
    return strcmp(text_a, text_b);
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
