/* SPDX-License-Identifier: Apache-2.0
 *
 * A tune's GPU side.
 */
#ifndef FA_ENGINE_JOB_MEASURE_H
#define FA_ENGINE_JOB_MEASURE_H

#include "job.h"

int fa_job_measure_start(fa_job *job);
void fa_job_measure_advance(fa_job *job);
bool fa_job_measure_done(const fa_job *job);

#endif
