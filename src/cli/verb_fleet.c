/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of a store: worker takes problems from it until it is told to stop, with a line on stderr for each and
 * at the end what came of them; queue says how it stands; push brings what was kept in the local file to the server.
 */
#include "error.h"
#include "json.h"
#include "run.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_counts(cli_run *run, const char *const *names, const int32_t *counts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fa_json_add_number(run->document, names[i], counts[i]);
        if (i < 2 || counts[i] > 0)
            fa_buf_printf(&run->out, "%s%d %s", i > 0 ? ", " : "", counts[i],
                          strcmp(names[i], "handed_back") == 0 ? "handed back" : names[i]);
    }
}

/* ---- worker ---------------------------------------------------------------------------------*/
enum { MEASURED, COMPILED, FAILED, HANDED_BACK, ENDS };

struct work {
    cli_progress *lines;
    int32_t ended[ENDS];
    char idle_for[256]; /* the last reason for idling that was told */
};

static int on_event(void *context, const fa_sweep_progress *event)
{
    struct work *work = context;
    fa_buf line = {0};
    if (event->event == FA_SWEEP_ITEM_ENDS)
        work->ended[event->item->state == FA_ITEM_DONE     ? MEASURED
                    : event->item->state == FA_ITEM_FAILED ? FAILED
                    : event->answer != NULL                ? COMPILED
                                                           : HANDED_BACK]++;
    if (work->lines->rows && event->event == FA_SWEEP_IDLE) {
        const char *text = event->reason[0] != 0 ? event->reason : "nothing to do";
        if (strncmp(work->idle_for, text, sizeof work->idle_for - 1) == 0)
            return cli_interrupted();
        snprintf(work->idle_for, sizeof work->idle_for, "%s", text);
        fa_buf_text(&line, "waiting: ");
        cli_text_safe(&line, text);
        cli_progress_put(work->lines, &line, false);
    } else if (work->lines->rows && event->event != FA_SWEEP_ITEM_TUNES) {
        cli_tell_item(work->lines, event);
        work->idle_for[0] = 0;
    }
    return cli_interrupted();
}

int cli_worker(cli_run *run)
{
    static const char *const names[ENDS] = {"measured", "compiled", "failed", "handed_back"};
    struct work work = {.lines = &run->progress};
    fa_worker_request request = {
        .size = sizeof request,
        .gpu = run->options->request.gpu,
        .ordinal = run->options->request.ordinal,
        .once = run->options->fleet.once,
        .idle_exit_s = run->options->fleet.idle_exit_s,
        .progress = on_event,
        .context = &work,
    };
    int rc = fa_run_worker(run->tuner, &request, &run->diag);
    if (rc != 0 && rc != FA_ECANCELED) /* to be told to stop is how a worker ends well */
        return rc;
    put_counts(run, names, work.ended, ENDS);
    fa_buf_text(&run->out, "\n");
    return 0;
}

/* ---- push -----------------------------------------------------------------------------------*/
int cli_push(cli_run *run)
{
    static const char *const names[] = {"added", "replaced", "same", "worse", "refused"};
    fa_bundle_info pushed;
    int rc = fa_push(run->tuner, &pushed, &run->diag);
    if (rc != 0)
        return rc;
    const int32_t counts[] = {pushed.added, pushed.replaced, pushed.same, pushed.kept,
                              pushed.skipped};
    put_counts(run, names, counts, sizeof counts / sizeof *counts);
    cli_text_store(run, " in ");
    return 0;
}

/* ---- queue ----------------------------------------------------------------------------------*/
/* Who works on which item, and the items that failed. */
static int put_open(cli_run *run, const fa_sweep *sweep)
{
    fa_buf *out = &run->out;
    fa_sweep_item *item = NULL;
    size_t count = 0;
    int rc = fa_list_sweep_items(run->tuner, sweep->key, &item, &count, &run->diag);
    for (size_t i = 0; i < count; i++) {
        if (item[i].state == FA_ITEM_FAILED)
            cli_text_failed(out, &item[i]);
        if (item[i].state != FA_ITEM_RUNNING)
            continue;
        cli_text_safe(out, item[i].holder);
        fa_buf_text(out, item[i].stage == FA_WORK_MEASURE ? " measures " : " compiles ");
        cli_text_item(out, &item[i]);
        fa_buf_text(out, "\n");
    }
    free(item);
    return rc;
}

static int stop_sweep(cli_run *run, const char *typed)
{
    fa_sweep *sweep = NULL;
    size_t count = 0, found = 0, at = 0;
    int rc = fa_list_sweeps(run->tuner, &sweep, &count, &run->diag);
    for (size_t i = 0; i < count; i++)
        if (strncmp(sweep[i].key, typed, strlen(typed)) == 0)
            found++, at = i;
    if (rc == 0 && found == 1)
        rc = fa_stop_sweep(run->tuner, sweep[at].key, &run->diag);
    else if (rc == 0 && found > 1)
        rc = fa_fail(&run->diag, FA_EINVAL, "several sweeps begin with %.80s: give more of the key",
                     typed);
    else if (rc == 0)
        rc = fa_fail(&run->diag, FA_ENOTFOUND, "no sweep in the queue of %s has the key %.80s",
                     fa_store_location(run->tuner), typed);
    free(sweep);
    return rc;
}

int cli_queue(cli_run *run)
{
    fa_sweep *sweep = NULL;
    size_t count = 0;
    char *text = NULL;
    const char *stop = run->options->fleet.stop;
    int rc = stop != NULL ? stop_sweep(run, stop) : 0;
    if (rc == 0)
        rc = fa_list_sweeps(run->tuner, &sweep, &count, &run->diag);
    if (rc == 0 && run->options->json) {
        rc = fa_queue_write(run->tuner, &text, &run->diag);
        cJSON *queue = cli_json_of(rc, &text);
        fa_json_add(run->document, "sweeps",
                    cJSON_DetachItemFromObjectCaseSensitive(queue, "sweeps"));
        cJSON_Delete(queue);
    } else if (rc == 0) {
        cli_put_sweeps(&run->out, sweep, count);
        for (size_t i = 0; i < count && rc == 0; i++)
            if (sweep[i].running + sweep[i].failed > 0)
                rc = put_open(run, &sweep[i]);
        cli_text_count(&run->out, "", (int64_t)count, "sweep");
        cli_text_store(run, " in the queue of ");
    }
    free(sweep);
    return rc;
}
