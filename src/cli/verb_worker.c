/* SPDX-License-Identifier: Apache-2.0
 *
 * worker: takes problems from the fleet's queue until it is told to stop.
 *
 * A line on stderr for each problem; on stdout, at the end, what came of them.
 */
#include "error.h"
#include "json_make.h"
#include "run.h"
#include "sweep_progress.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

struct work {
    cli_progress *lines;
    char idle_for[256]; /* the last reason for idling that was told */
};

static const char *const ends[] = {
    [FA_WORK_DONE] = "done",
    [FA_WORK_FAILED] = "failed",
    [FA_WORK_HANDED_BACK] = "handed back",
    [FA_WORK_REFUSED] = "came too late, another worker has it",
    [FA_WORK_UNPUBLISHED] = "kept here, to be published by the next call",
};

static void print_event(struct work *work, const fa_worker_progress *event)
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
    cli_progress_tell(work->lines, &line);
}

/* Each new reason once: nothing to do, the database does not answer. */
static void tell_idle(struct work *work, const char *reason)
{
    const char *text = reason[0] != 0 ? reason : "nothing to do";
    fa_buf line = {0};
    if (strncmp(work->idle_for, text, sizeof work->idle_for - 1) == 0)
        return;
    snprintf(work->idle_for, sizeof work->idle_for, "%s", text);
    fa_buf_text(&line, "waiting: ");
    cli_text_safe(&line, text);
    cli_progress_tell(work->lines, &line);
}

static int on_event(void *context, const fa_worker_progress *event)
{
    struct work *work = context;
    if (work->lines->rows && event->event == FA_WORK_IDLE) {
        tell_idle(work, event->reason);
    } else if (work->lines->rows && event->event != FA_WORK_TUNES) {
        print_event(work, event);
        work->idle_for[0] = 0;
    }
    return cli_interrupted();
}

int cli_worker(cli_run *run)
{
    struct work work = {.lines = &run->progress};
    fa_worker_report report = {0};
    cli_interrupt_install();
    int rc = cli_open(run, false);
    if (rc != 0)
        return rc;
    fa_worker_request request = {
        .size = sizeof request,
        .gpu = run->options->gpu,
        .ordinal = run->options->device >= 0 ? run->options->device : 0,
        .once = run->options->fleet.once,
        .idle_exit_s = run->options->fleet.idle_exit_s,
        .progress = on_event,
        .context = &work,
    };
    rc = fa_run_worker(run->tuner, &request, &report, &run->diag);
    if (rc != 0 && rc != FA_ECANCELED) /* to be told to stop is how a worker ends well */
        return rc;
    const struct {
        const char *name, *words;
        int32_t count;
    } rows[] = {
        {"measured", "measured", report.measured},
        {"compiled", "compiled", report.compiled},
        {"failed", "failed", report.failed},
        {"handed_back", "handed back", report.handed_back},
        {"refused", "refused", report.refused},
        {"unpublished", "unpublished", report.unpublished},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fa_json_add_number(run->document, rows[i].name, rows[i].count);
        if (i < 2 || rows[i].count > 0)
            fa_buf_printf(&run->out, "%s%d %s", i > 0 ? ", " : "", rows[i].count, rows[i].words);
    }
    fa_buf_text(&run->out, "\n");
    return 0;
}
