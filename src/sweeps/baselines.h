/* SPDX-License-Identifier: Apache-2.0
 *
 * A line of a file of baselines, which may be anybody's.
 */
#ifndef FA_SWEEPS_BASELINES_H
#define FA_SWEEPS_BASELINES_H

#include "store.h"

#include <cJSON.h>

/* FA_EINVAL with a sentence: also of lines whose times are made up ("dry_run"). */
int fa_baseline_from_json(const cJSON *json, fa_baseline *ret_baseline, fa_diag *diag);

#endif
