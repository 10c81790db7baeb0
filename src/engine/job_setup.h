/* SPDX-License-Identifier: Apache-2.0
 *
 * A tune's beginning and end as an object.
 */
#ifndef FA_ENGINE_JOB_SETUP_H
#define FA_ENGINE_JOB_SETUP_H

#include "job.h"

/* `request` must outlive the job. */
int fa_job_new(fa_tuner *tuner, const fa_request *request, fa_job **ret_job, fa_diag *diag);
void fa_job_free(fa_job **job);
int fa_job_set_up(fa_job *job);
int fa_job_set_up_cases(fa_job *job);

#endif
