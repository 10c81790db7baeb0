/* SPDX-License-Identifier: Apache-2.0
 *
 * A baseline as JSON: a line of a file of baselines, and of one of records. What is read may be anybody's.
 */
#ifndef FA_BUNDLE_BASELINE_JSON_H
#define FA_BUNDLE_BASELINE_JSON_H

#include "fa_tune.h"
#include "json.h"

/* The catalogue's name of a GPU that it knows under this one, else the name itself. */
void fa_baseline_gpu(const char *name, char ret_name[64]);
/* FA_EINVAL with a sentence: also of lines whose times are made up ("dry_run"). */
int fa_baseline_from_json(const cJSON *json, fa_baseline *ret_baseline, fa_diag *diag);
/* NULL: out of memory. */
cJSON *fa_baseline_to_json(const fa_baseline *baseline);

#endif
