/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a job.
 */
#ifndef FA_ENGINE_JOB_RUN_H
#define FA_ENGINE_JOB_RUN_H

#include "job.h"

/* Runs the tune for a target, once; `work` is held, but not while workers are waited for, and so is the key's
 * lock. */
int fa_job_run(fa_job *job, const fa_target *target, const fa_plan *plan, fa_answer *ret_answer,
               fa_diag *diag);

#endif
