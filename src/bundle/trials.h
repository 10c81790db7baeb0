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

typedef struct fa_trial_list {
    fa_trial_record *record; /* owns its samples, environment and clocks */
    size_t count, capacity;
} fa_trial_list;

/* Joins a copy. FA_ENOMEM. */
int fa_trial_list_add(fa_trial_list *list, const fa_trial_record *record);
/* Leaves a trial without its samples and circumstances. */
void fa_trial_list_lighten(fa_trial_record *record);
/* The first `left` stay. */
void fa_trial_list_cut(fa_trial_list *list, size_t left);
void fa_trial_list_free(fa_trial_list *list);

/* What is kept of a trial: the config, its times and its error. null and an absent member are 0. */
extern const fa_member fa_timed_members[];
/* Whether its median lies in its interval. */
bool fa_trial_is_timed(const fa_trial *trial);

/* The "trials" of an evidence. NULL: out of memory. */
cJSON *fa_trial_list_to_json(const fa_trial_list *list);
/* Adds those of an array, which may be NULL; FA_EINVAL with a sentence leaves some of them in the list. FA_ENOMEM. */
int fa_trial_list_from_json(const cJSON *array, fa_trial_list *list, fa_diag *diag);
/* The same of an evidence, which may be NULL; a trial that cannot be is passed over. FA_ENOMEM. */
int fa_trial_list_from_evidence(const char *evidence, fa_trial_list *list, fa_diag *diag);
/* Replaces the "trials" of an evidence, which must be an object. */
int fa_trial_list_join(const fa_trial_list *list, char **evidence, fa_diag *diag);

#endif
