/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of trials.
 */
#ifndef FA_ENGINE_RANK_H
#define FA_ENGINE_RANK_H

#include "fa_types.h"

#include <stdbool.h>

/* Orders finished trials: measured by time, then compiled by prediction; ties by config text. */
int fa_trial_compare(const fa_trial *a, const fa_trial *b);

bool fa_trial_finished(const fa_trial *trial); /* measured or compiled */
/* Orders trials wherever they ended: the finished as above, then what was not tried, then by gate,
 * the one reached last first. */
int fa_trial_compare_ends(const fa_trial *a, const fa_trial *b);

#endif
