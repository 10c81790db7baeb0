/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials that travel with a winner, in its evidence: in a bundle and in a line of records alike.
 *
 * Workload: some dozen measured trials a winner, the best of them with their samples. What is read may
 * be anybody's.
 *
 *   "trials": [{"config":{…},"predicted_us":…,"median_us":…,"low_us":…,"high_us":…,"max_error":…,"tolerance":…,
 *               "raced":true,"seed":"…","environment":{…},"clocks":{…},"samples_us":[…]},…]
 */
#ifndef FA_BUNDLE_TRIAL_LIST_H
#define FA_BUNDLE_TRIAL_LIST_H

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

/* ---- as JSON --------------------------------------------------------------------------------*/
/* What is kept of a trial where its cubin is not: the config, its times and its proof. */
extern const fa_member fa_timed_members[];
/* With its times to the nanosecond, and 0 for what is not known. */
fa_trial fa_timed_trial(const fa_trial *trial);
/* Whether its median lies in its interval. */
bool fa_timed_is_good(const fa_trial *trial);

/* The "trials" of an evidence. NULL: out of memory. */
cJSON *fa_trial_list_to_json(const fa_trial_list *list);
/* Joins those of an evidence, which may be NULL; FA_EINVAL with a sentence leaves some of them in the list. FA_ENOMEM. */
int fa_trial_list_from_json(const cJSON *trials, fa_trial_list *list, fa_diag *diag);
/* The same of a text, which may be NULL; a trial that cannot be is passed over. FA_ENOMEM. */
int fa_trial_list_from_evidence(const char *evidence, fa_trial_list *list, fa_diag *diag);

#endif
