/* SPDX-License-Identifier: Apache-2.0
 *
 * A tune's compile side.
 */
#ifndef FA_ENGINE_JOB_COMPILE_H
#define FA_ENGINE_JOB_COMPILE_H

#include "job.h"

/* Before anything else here. */
void fa_job_compile_init(fa_job *job);
/* Starts every worker before it is known what for; they load NVRTC meanwhile. */
void fa_job_compile_prestart(fa_job *job);
void fa_job_compile_start(fa_job *job);
void fa_job_compile_advance(fa_job *job);
bool fa_job_compile_done(const fa_job *job);
void fa_job_compile_stop(fa_job *job);

#endif
