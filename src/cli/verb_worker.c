/* SPDX-License-Identifier: Apache-2.0
 *
 * worker: takes problems from the fleet's queue until it is told to stop.
 *
 * A line on stderr for each problem; on stdout, at the end, what came of them.
 */
#include "error.h"
#include "interrupt.h"
#include "json_make.h"
#include "rows.h"
#include "sweep_progress.h"
#include "text.h"
#include "verbs.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

struct run {
    cli_progress lines;
    char idle_for[256]; /* the last reason for idling that was told */
};

static const char *const ends[] = {
    [FA_WORK_DONE] = "done",
    [FA_WORK_FAILED] = "failed",
    [FA_WORK_HANDED_BACK] = "handed back",
    [FA_WORK_REFUSED] = "came too late, another worker has it",
    [FA_WORK_UNPUBLISHED] = "kept here, to be published by the next call",
};

static void print_event(struct run *run, const fa_worker_progress *event)
{
    fa_buf line = {0};
    cli_text_item(&line, event->item, true);
    fa_buf_text(&line, ": ");
    if (event->event == FA_WORK_BEGINS) {
        fa_buf_text(&line, event->stage == FA_WORK_MEASURE ? "measuring" : "compiling");
    } else if (event->end == FA_WORK_DONE && event->stage == FA_WORK_MEASURE) {
        cli_text_us(&line, event->answer->trial.median_us);
        if (event->answer->from_store)
            fa_buf_text(&line, ", from the store");
    } else if (event->end == FA_WORK_DONE) {
        fa_buf_text(&line, "compiled");
    } else {
        fa_buf_text(&line, ends[event->end]);
        if (event->end == FA_WORK_FAILED) {
            fa_buf_text(&line, ": ");
            cli_text_safe(&line, event->reason);
        }
    }
    cli_progress_tell(&run->lines, &line);
}

/* Each new reason once: nothing to do, the database does not answer. */
static void tell_idle(struct run *run, const char *reason)
{
    const char *text = reason[0] != 0 ? reason : "nothing to do";
    fa_buf line = {0};
    if (strncmp(run->idle_for, text, sizeof run->idle_for - 1) == 0)
        return;
    snprintf(run->idle_for, sizeof run->idle_for, "%s", text);
    fa_buf_text(&line, "waiting: ");
    cli_text_safe(&line, text);
    cli_progress_tell(&run->lines, &line);
}

static int on_event(void *context, const fa_worker_progress *event)
{
    struct run *run = context;
    if (run->lines.rows && event->event == FA_WORK_IDLE) {
        tell_idle(run, event->reason);
    } else if (run->lines.rows && event->event != FA_WORK_TUNES) {
        print_event(run, event);
        run->idle_for[0] = 0;
    }
    return cli_interrupted();
}

static int print(const cli_options *options, const fa_worker_report *report)
{
    const struct {
        const char *name, *words;
        int32_t count;
    } rows[] = {
        {"measured", "measured", report->measured},
        {"compiled", "compiled", report->compiled},
        {"failed", "failed", report->failed},
        {"handed_back", "handed back", report->handed_back},
        {"refused", "refused", report->refused},
        {"unpublished", "unpublished", report->unpublished},
    };
    fa_buf out = {0};
    cJSON *document = options->json ? cJSON_CreateObject() : NULL;
    fa_json_add_text(document, "fa_tune", fa_version());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fa_json_add_number(document, rows[i].name, rows[i].count);
        if (i < 2 || rows[i].count > 0)
            fa_buf_printf(&out, "%s%d %s", i > 0 ? ", " : "", rows[i].count, rows[i].words);
    }
    fa_buf_text(&out, "\n");
    int status = document != NULL ? cli_json_write(document) : cli_write(&out);
    fa_buf_free(&out);
    return status;
}

int cli_worker(const cli_options *options)
{
    struct run run = {.idle_for = ""};
    fa_tuner *tuner;
    fa_worker_report report = {0};
    fa_diag diag = {{0}};
    cli_progress_init(&run.lines, options);
    cli_interrupt_install();
    int status = cli_open(options, &run.lines, &tuner);
    if (status != 0)
        return status;
    fa_worker_request request = {
        .size = sizeof request,
        .gpu = options->gpu,
        .ordinal = options->device >= 0 ? options->device : 0,
        .once = options->fleet.once,
        .idle_exit_s = options->fleet.idle_exit_s,
        .progress = on_event,
        .context = &run,
    };
    int rc = fa_run_worker(tuner, &request, &report, &diag);
    cli_progress_end(&run.lines);
    /* To be told to stop is how a worker ends well. */
    status = rc == 0 || rc == FA_ECANCELED ? print(options, &report) : cli_fail(rc, options, &diag);
    fa_close(&tuner);
    return status;
}
