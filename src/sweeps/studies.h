/* SPDX-License-Identifier: Apache-2.0
 *
 * Scopes of the store as studies, for listing and for forgetting them.
 */
#ifndef FA_WORK_STUDIES_H
#define FA_WORK_STUDIES_H

#include "session.h"

typedef struct fa_study_list {
    fa_study *study;
    size_t count, capacity;
} fa_study_list;

/* An fa_scope_visit: adds the scope's row to an fa_study_list. */
int fa_study_list_add(void *context, const fa_scope *scope, int32_t trials, int64_t unix_time);
/* Adds the winner, the GPU and whether the templates are current. local: reads the local store alone, otherwise the
 * shared store first. The caller holds `work`. */
int fa_study_complete(fa_tuner *tuner, bool local, fa_study *study, fa_diag *diag);
/* For a study without a winner: sets the catalogue's GPU of its silicon. */
void fa_study_find_gpu(fa_study *study);
/* Whether lists show it: scopes without a winner and without trials are left out. */
bool fa_study_is_listed(const fa_study *study);
int fa_study_scope(const fa_study *study, fa_scope *ret_scope, fa_diag *diag);

#endif
