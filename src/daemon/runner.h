/* SPDX-License-Identifier: Apache-2.0
 *
 * Where jobs run: a thread for each device and one for GPUs that are not here, each with tuners of
 * its own, because a tune holds its tuner until it ends. Between two problems of a sweep the tunes
 * that have come meanwhile go first.
 */
#ifndef FA_DAEMON_RUNNER_H
#define FA_DAEMON_RUNNER_H

#include "job.h"

typedef struct serve_runner {
    serve_service *service;
    serve_thread *thread;
    fa_tuner *tuner, *sweeper; /* the thread's */
    serve_family_tuner family;
} serve_runner;

/* The runner of this index, whose thread is started when it is first asked for. */
int serve_runner_get(serve_service *service, int index, serve_runner **ret_runner, fa_diag *diag);
/* A job's serve_task.work. */
void serve_runner_work(serve_task *task, serve_thread *thread);

#endif
