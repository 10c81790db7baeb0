/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of jobs: how they begin, are kept on disk, end and are forgotten.
 */
#ifndef FA_DAEMON_JOBS_H
#define FA_DAEMON_JOBS_H

#include "job.h"

serve_job *serve_job_find(serve_service *service, const char *id);
/* A job that has not ended and gives at least what this effort does; of the same problem, where one
 * is given. */
serve_job *serve_job_of_key(serve_service *service, const char *key, const fa_problem *problem,
                            int effort);
/* A new job, queued, with no runner yet. */
serve_job *serve_job_new(serve_service *service, serve_job_kind kind);
/* Keeps the job in the journal with the body that it came in, and gives it to the runner of this
 * GPU. */
int serve_job_start(serve_job *job, const char *body, size_t size, const fa_gpu *gpu,
                    fa_diag *diag);
/* Replies 202 once the job will outlive this process. */
void serve_job_submit(serve_job *job, serve_exchange *exchange);
/* It ends without running: an answer was there. Takes `result`. */
void serve_job_answer(serve_job *job, char *result);
void serve_job_fail(serve_job *job, int code, const char *message);
void serve_job_cancel(serve_job *job);
bool serve_job_is_shared(const serve_job *job); /* somebody waits for it or listens */
bool serve_jobs_full(const serve_service *service, serve_job_kind kind);
void serve_jobs_forget(serve_service *service); /* jobs that ended long ago */
void serve_jobs_free(serve_service *service);

#endif
