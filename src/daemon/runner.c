/* SPDX-License-Identifier: Apache-2.0
 *
 * Where jobs run: a thread for each device and one for GPUs that are not here, each with tuners of
 * its own, because a tune holds its tuner until it ends. Between two problems of a sweep the tunes
 * that have come meanwhile go first.
 */
#include "service.h"

#include "buf.h"
#include "error.h"
#include "hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TELL_MS = 200 };

static void note(void *context, const char *sentence)
{
    (void)context;
    serve_log(SERVE_WARN, "note", "text", sentence, NULL);
}

void serve_tuner_options(const serve_settings *settings, fa_options *ret_options)
{
    *ret_options = (fa_options){.size = sizeof *ret_options,
                                .store = settings->store,
                                .templates = settings->templates,
                                .worker = settings->worker,
                                .compile_workers = settings->compile_workers,
                                .compile_timeout_ms = settings->compile_timeout_s * 1000,
                                .trial_timeout_ms = settings->trial_timeout_s * 1000,
                                .compile_nice = settings->compile_nice,
                                .untrusted_templates = settings->untrusted_templates == 1,
                                .log = note,
                                .server = ""}; /* it is one itself */
}

static int need_tuner(serve_runner *runner, fa_tuner **tuner, fa_diag *diag)
{
    fa_options options;
    if (*tuner != NULL)
        return 0;
    serve_tuner_options(runner->service->settings, &options);
    return fa_open(&options, tuner, diag);
}

static int64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- tunes ----------------------------------------------------------------------------------*/
/* Whoever listens hears of every trial; otherwise now and then is enough. */
static bool worth_telling(serve_job *job, const fa_progress *progress)
{
    int64_t now = monotonic_ms();
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
        serve_job_tell(job, "progress", text);
    return atomic_load(&job->cancel);
}

int serve_compose(fa_tuner *tuner, const fa_answer *answer, char **ret_text, fa_diag *diag)
{
    char *text = NULL, hash[FA_HASH_HEX];
    void *bytes = NULL;
    size_t size = 0;
    fa_buf out = {0};
    int rc = fa_answer_write(answer, &text, diag);
    if (rc != 0)
        return rc;
    fa_buf_text(&out, "{\"answer\":");
    fa_buf_text(&out, text);
    if (fa_answer_cubin(tuner, answer, &bytes, &size, NULL) == 0) {
        fa_hash_bytes(bytes, size, hash);
        fa_buf_printf(&out, ",\"cubin\":{\"key\":\"%s\",\"sha256\":\"%s\",\"size\":%zu}}",
                      answer->cubin_key, hash, size);
    } else {
        fa_buf_text(&out, ",\"cubin\":null}");
    }
    free(bytes);
    free(text);
    if (out.failed) {
        fa_buf_free(&out);
        return fa_fail(diag, FA_ENOMEM, "out of memory for an answer");
    }
    *ret_text = out.data;
    return 0;
}

static int tune(serve_job *job, serve_runner *runner, fa_diag *diag)
{
    fa_answer answer;
    fa_request request = job->request;
    request.progress = tune_event;
    request.context = job;
    fa_tuner *tuner = NULL;
    int rc = job->family[0] != 0
                 ? serve_guest_open(runner->service, job->family, &runner->guest, &tuner, diag)
                 : need_tuner(runner, &runner->tuner, diag);
    if (rc == 0 && tuner == NULL)
        tuner = runner->tuner;
    if (rc == 0)
        rc = fa_tune(tuner, &request, &answer, diag);
    return rc == 0 ? serve_compose(tuner, &answer, &job->result, diag) : rc;
}

/* ---- sweeps ---------------------------------------------------------------------------------*/
struct sweeping {
    serve_job *job;
    serve_worker *worker;
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
        serve_job_tell(job, ends ? "item" : "progress", text);
    while (ends && !atomic_load(&job->cancel) && serve_worker_do_short(sweeping->worker))
        continue;
    return atomic_load(&job->cancel);
}

static int sweep(serve_job *job, serve_runner *runner, fa_diag *diag)
{
    struct sweeping sweeping = {job, runner->worker};
    fa_sweep result = {0};
    char *text = NULL;
    fa_sweep_request request = job->sweep;
    request.progress = sweep_event;
    request.context = &sweeping;
    int rc = need_tuner(runner, &runner->sweeper, diag);
    if (rc == 0)
        rc = fa_run_sweep(runner->sweeper, &request, &result, diag);
    if (rc == 0)
        rc = fa_sweep_write(&result, &text, diag);
    if (rc == 0) {
        fa_buf out = {0};
        fa_buf_text(&out, "{\"sweep\":");
        fa_buf_text(&out, text);
        fa_buf_text(&out, "}");
        free(text);
        if (out.failed) {
            fa_buf_free(&out);
            return fa_fail(diag, FA_ENOMEM, "out of memory for a sweep's end");
        }
        job->result = out.data;
    }
    return rc;
}

/* ---- runners --------------------------------------------------------------------------------*/
void serve_job_work(serve_task *task, serve_worker *worker)
{
    serve_job *job = (serve_job *)task;
    if (atomic_exchange(&job->taken, true))
        return;
    if (atomic_load(&job->cancel)) {
        job->code = fa_fail(&job->message, FA_ECANCELED, "canceled");
        return;
    }
    serve_job_tell_started(job);
    serve_runner *runner = serve_worker_context(worker);
    job->code = job->kind == SERVE_TUNE ? tune(job, runner, &job->message)
                                        : sweep(job, runner, &job->message);
    if (job->code == FA_EINVAL) /* the request was found right before it became a job */
        job->code = FA_EIO;
    if (job->code == 0)
        job->message.text[0] = 0; /* of a lookup that found nothing before the tune */
}

static void runner_end(serve_worker *worker, void *context)
{
    serve_runner *runner = context;
    (void)worker;
    fa_close(&runner->tuner);
    fa_close(&runner->sweeper);
    serve_guest_close(&runner->guest);
}

static void runner_ended(void *context)
{
    serve_runner *runner = context;
    serve_worker_gone(runner->service);
}

int serve_runner_get(serve_service *service, int index, serve_runner **ret_runner, fa_diag *diag)
{
    static const serve_worker_calls calls = {NULL, runner_end, runner_ended, false};
    if (service->runner[index] == NULL) {
        serve_runner *runner = calloc(1, sizeof *runner);
        if (runner == NULL)
            return fa_fail(diag, FA_ENOMEM, "out of memory for a thread");
        runner->service = service;
        int rc = serve_worker_start(service->mail, &calls, runner, &runner->worker, diag);
        if (rc != 0) {
            free(runner);
            return rc;
        }
        service->runner[index] = runner;
        service->workers++;
    }
    *ret_runner = service->runner[index];
    return 0;
}
