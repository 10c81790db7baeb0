/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials that travel with a winner: in a bundle's evidence, and shorter in a line of records.
 *
 * Workload: some dozen measured trials a winner, the best of them with their samples. What is read may
 * be anybody's: a trial of an evidence that cannot be is passed over, one of a record is refused.
 */
#ifndef FA_BUNDLE_TRIAL_LIST_H
#define FA_BUNDLE_TRIAL_LIST_H

#include "json.h"
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

/* The "trials" of an evidence. NULL: out of memory. */
cJSON *fa_trial_list_to_evidence(const fa_trial_list *list);
/* Joins those that an evidence has, which may be NULL. FA_ENOMEM. */
int fa_trial_list_from_evidence(const char *evidence, fa_trial_list *list, fa_diag *diag);

/* The "trials" of a record, for each family
 *   {"family":…,"tunables":["BLOCK_M",…],"trials":[[128,…, median, low, high, model's, raced, samples…],…]}
 * with times in microseconds and 1 for raced. NULL: out of memory. */
cJSON *fa_trial_list_to_record(const fa_trial_list *list);
/* json may be NULL. FA_EINVAL with a sentence, FA_ENOMEM. */
int fa_trial_list_from_record(const cJSON *json, fa_trial_list *list, const char *where,
                              fa_diag *diag);

#endif
