/* SPDX-License-Identifier: Apache-2.0 */
#include "runner.h"

#include "buf.h"
#include "error.h"
#include "families.h"
#include "reply.h"
#include "tuners.h"

#include <stdlib.h>

enum { TELL_MS = 200 };

static int need_tuner(serve_runner *runner, fa_tuner **tuner, fa_diag *diag)
{
    fa_options options;
    if (*tuner != NULL)
        return 0;
    serve_tuner_options(runner->service->settings, &options);
    return fa_open(&options, tuner, diag);
}

/* ---- tunes ----------------------------------------------------------------------------------*/
/* Clients that listen hear of every trial; otherwise now and then is enough. */
static bool worth_telling(serve_job *job, const fa_progress *progress)
{
    int64_t now = (int64_t)(uv_hrtime() / 1000000);
    bool listened = atomic_load(&job->watched) && progress->kind == FA_EVENT_TRIAL;
    if (!listened && progress->kind != FA_EVENT_STAGE && now - job->told_ms < TELL_MS)
        return false;
    job->told_ms = now;
    return true;
}

static int tune_event(void *context, const fa_progress *progress)
{
    serve_job *job = context;
    char *text;
    if (worth_telling(job, progress) && fa_progress_write(progress, &text, NULL) == 0)
        serve_job_post_event(job, "progress", text);
    return atomic_load(&job->cancel);
}

static int tune(serve_job *job, serve_runner *runner, fa_diag *diag)
{
    fa_answer answer = {.size = sizeof answer};
    fa_request request = job->request;
    request.progress = tune_event;
    request.context = job;
    fa_tuner **tuner = job->ask.family[0] != 0 ? &runner->family.tuner : &runner->tuner;
    int rc = job->ask.family[0] != 0
                 ? serve_family_open(runner->service, job->ask.family, &runner->family, diag)
                 : need_tuner(runner, tuner, diag);
    if (rc == 0)
        rc = fa_tune(*tuner, &request, &answer, diag);
    if (rc == 0)
        return serve_kernel_text(*tuner, &answer, &job->result, diag);
    if (*tuner != NULL && serve_tuner_is_broken(*tuner, rc))
        fa_close(tuner);
    return rc;
}

/* ---- sweeps ---------------------------------------------------------------------------------*/
struct sweeping {
    serve_job *job;
    serve_thread *thread;
};

static int sweep_event(void *context, const fa_sweep_progress *progress)
{
    struct sweeping *sweeping = context;
    serve_job *job = sweeping->job;
    char *text;
    bool ends = progress->event == FA_SWEEP_ITEM_ENDS || progress->event == FA_SWEEP_ITEM_KNOWN;
    bool tell = progress->event != FA_SWEEP_ITEM_TUNES ||
                (progress->tune != NULL && worth_telling(job, progress->tune));
    if (tell && fa_sweep_event_write(progress, &text, NULL) == 0)
        serve_job_post_event(job, ends ? "item" : "progress", text);
    while (ends && !atomic_load(&job->cancel) && serve_thread_run_interleaved(sweeping->thread))
        continue;
    return atomic_load(&job->cancel);
}

static int sweep(serve_job *job, serve_runner *runner, fa_diag *diag)
{
    struct sweeping sweeping = {job, runner->thread};
    fa_sweep result = {0};
    char *text = NULL;
    fa_sweep_request request = job->sweep;
    request.progress = sweep_event;
    request.context = &sweeping;
    int rc = need_tuner(runner, &runner->sweeper, diag);
    if (rc == 0)
        rc = fa_run_sweep(runner->sweeper, &request, &result, diag);
    if (rc != 0 && runner->sweeper != NULL && serve_tuner_is_broken(runner->sweeper, rc))
        fa_close(&runner->sweeper);
    if (rc == 0)
        rc = fa_sweep_write(&result, &text, diag);
    if (rc == 0) {
        fa_buf out = {0};
        fa_buf_printf(&out, "{\"sweep\":%s}", text);
        free(text);
        job->result = serve_text_of(&out);
        if (job->result == NULL)
            rc = fa_fail(diag, FA_ENOMEM, "out of memory for a sweep's end");
    }
    return rc;
}

/* ---- runners --------------------------------------------------------------------------------*/
void serve_runner_work(serve_task *task, serve_thread *thread)
{
    serve_job *job = (serve_job *)task;
    if (atomic_exchange(&job->taken, true))
        return;
    if (atomic_load(&job->cancel)) {
        job->code = fa_fail(&job->message, FA_ECANCELED, "canceled");
        return;
    }
    serve_job_post_start(job);
    serve_runner *runner = serve_thread_context(thread);
    int (*run)(serve_job * job, serve_runner * runner, fa_diag * diag) =
        job->kind == SERVE_TUNE ? tune : sweep;
    job->code = run(job, runner, &job->message);
    if (job->code == FA_ECORRUPT) /* opening the store anew mends it, or moves it away */
        job->code = run(job, runner, &job->message);
    if (job->code == FA_EINVAL) /* the request was found right before it became a job */
        job->code = FA_EIO;
    if (job->code == 0)
        job->message.text[0] = 0; /* of a lookup that found nothing before the tune */
}

static void runner_end(void *context)
{
    serve_runner *runner = context;
    fa_close(&runner->tuner);
    fa_close(&runner->sweeper);
    fa_close(&runner->family.tuner);
}

static void runner_ended(void *context)
{
    serve_runner *runner = context;
    serve_service_thread_ended(runner->service);
}

int serve_runner_get(serve_service *service, int index, serve_runner **ret_runner, fa_diag *diag)
{
    static const serve_thread_calls calls = {NULL, runner_end, runner_ended, false};
    if (service->runner[index] == NULL) {
        serve_runner *runner = calloc(1, sizeof *runner);
        if (runner == NULL)
            return fa_fail(diag, FA_ENOMEM, "out of memory for a thread");
        runner->service = service;
        int rc = serve_thread_start(service->queue, &calls, runner, &runner->thread, diag);
        if (rc != 0) {
            free(runner);
            return rc;
        }
        service->runner[index] = runner;
        service->threads++;
    }
    *ret_runner = service->runner[index];
    return 0;
}
