/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is raced: chosen from the probes, then from a heat where those are many.
 */
#ifndef FA_ENGINE_JOB_FINALISTS_H
#define FA_ENGINE_JOB_FINALISTS_H

#include "job.h"

/* Sorts indices of attempts, best first. */
void fa_job_sort(fa_job *job, int *order, int count);
/* Indices of trials with this status, best first; returns their number. ret_order: [space.count] */
int fa_job_sorted(fa_job *job, fa_status status, int *ret_order);

/* Chooses who is raced, and whether a heat comes first (measure.heat); 0: no config was measured. */
int fa_job_choose_finalists(fa_job *job);
/* After a heat: keeps those that may be the best by its times. */
void fa_job_cut_finalists(fa_job *job);
/* Takes out of the finalists' times what the rounds of their race have in common. 0, or diag. */
int fa_job_level_finalists(fa_job *job);

#endif
