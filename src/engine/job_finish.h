/* SPDX-License-Identifier: Apache-2.0
 *
 * A tune's end: who wins, and what is kept.
 */
#ifndef FA_ENGINE_JOB_FINISH_H
#define FA_ENGINE_JOB_FINISH_H

#include "job.h"

/* *ret_winner: the winner's index, or FA_JOB_NOBODY; fills ties, default and counts of the answer. */
int fa_job_choose_winner(fa_job *job, fa_answer *answer, int *ret_winner, fa_diag *diag);
int fa_job_store_winner(fa_job *job, int index, fa_answer *answer, fa_diag *diag);
/* Notes the first error of each family of which no config came to a kernel. */
void fa_job_note_families(const fa_job *job);
/* 0 when what was to be verified passed, else FA_JOB_NOBODY; fills the answer's trial, cubin key and
 * compiler either way. */
int fa_job_verified(const fa_job *job, fa_answer *answer);

#endif
