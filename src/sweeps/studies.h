/* SPDX-License-Identifier: Apache-2.0
 *
 * Scopes of the store as studies, for those who list and for those who forget them.
 */
#ifndef FA_WORK_STUDIES_H
#define FA_WORK_STUDIES_H

#include "session.h"

typedef struct fa_study_list {
    fa_study *study;
    size_t count, capacity;
} fa_study_list;

/* An fa_scope_visit into an fa_study_list: what a scope's row says, alone. */
int fa_study_list_add(void *context, const fa_scope *scope, int32_t trials, int64_t unix_time);
/* Adds the winner, the GPU and what the templates say; of the local store alone, or of the shared one first.
 * `work` is held. */
int fa_study_complete(fa_tuner *tuner, bool local, fa_study *study, fa_diag *diag);
/* Without a winner only the silicon is on record: the catalogue's GPU of that silicon. */
void fa_study_find_gpu(fa_study *study);
/* Lists leave out a scope of which nothing but its row is there. */
bool fa_study_is_told(const fa_study *study);
int fa_study_scope(const fa_study *study, fa_scope *ret_scope, fa_diag *diag);

#endif
