/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials that travel with a winner, in its evidence: in a bundle, and in a line that `fa-tune show FILE.fab --json` has of
 * it, alike.
 *
 * Workload: some dozen measured trials a winner, the best of them with their samples. What is read may
 * be anybody's.
 *
 *   "trials": [{"config":{…},"predicted_us":…,"median_us":…,"low_us":…,"high_us":…,"max_error":…,"tolerance":…,
 *               "raced":true,"seed":"…","environment":{…},"clocks":{…},"samples_us":[…]},…] */
#ifndef FA_BUNDLE_TRIALS_H
#define FA_BUNDLE_TRIALS_H

#include "json_struct.h"
#include "store.h"

enum { FA_TRIAL_LIST_MAX = 128, FA_TRIAL_SAMPLES_MAX = 128 };

/* What is kept of a trial: the config, its times and its error. null and an absent member are 0. */
extern const fa_member fa_timed_members[];
/* Whether its median lies in its interval. */
bool fa_trial_is_timed(const fa_trial *trial);

/* Those of an array, which may be NULL. FA_EINVAL with a sentence; FA_ENOMEM. */
int fa_trials_from_json(const cJSON *array, fa_study_trial **ret_rows, size_t *ret_count,
                        fa_diag *diag);
/* Those of an evidence, which may be NULL; a trial that cannot be is passed over. FA_ENOMEM. */
int fa_trials_from_evidence(const char *evidence, fa_study_trial **ret_rows, size_t *ret_count,
                            fa_diag *diag);
/* Replaces the "trials" of an evidence, which must be an object; of each at most FA_TRIAL_SAMPLES_MAX samples. */
int fa_trials_join(const fa_study_trial *rows, size_t count, char **evidence, fa_diag *diag);

#endif
