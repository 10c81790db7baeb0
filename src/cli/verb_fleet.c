/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of a store: worker takes problems from it until it is told to stop, with a line on stderr for each and
 * at the end what came of them; queue says how it stands; push brings what was kept in the local file to the server.
 */
#include "error.h"
#include "json.h"
#include "run.h"
#include "text.h"
#include "wording.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* Each new reason once: nothing to do, the server does not answer. */
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

static int on_event(void *context, const fa_sweep_progress *event)
{
    struct work *work = context;
    if (event->event == FA_SWEEP_ITEM_ENDS)
        work->ended[event->item->state == FA_ITEM_DONE     ? MEASURED
                    : event->item->state == FA_ITEM_FAILED ? FAILED
                    : event->answer != NULL                ? COMPILED
                                                           : HANDED_BACK]++;
    if (work->lines->rows && event->event == FA_SWEEP_IDLE) {
        tell_idle(work, event->reason);
    } else if (work->lines->rows && event->event != FA_SWEEP_ITEM_TUNES) {
        cli_tell_item(work->lines, event, true);
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
        .gpu = run->options->gpu,
        .ordinal = run->options->device >= 0 ? run->options->device : 0,
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
    fa_pushed pushed = {.size = sizeof pushed};
    int rc = fa_push(run->tuner, &pushed, &run->diag);
    if (rc != 0)
        return rc;
    const int32_t counts[] = {pushed.added, pushed.replaced, pushed.same, pushed.worse,
                              pushed.refused};
    put_counts(run, names, counts, sizeof counts / sizeof *counts);
    cli_text_store(run, " in ");
    return 0;
}

/* ---- queue ----------------------------------------------------------------------------------*/
enum { FOLLOW_MS = 1000 };

/* All sweeps in the queue. */
struct queues {
    fa_sweep *sweep;
    size_t count;
    fa_sweep now; /* the counts of all together */
};

static int read_queue(cli_run *run, struct queues *queues)
{
    free(queues->sweep);
    *queues = (struct queues){0};
    int rc = fa_list_sweeps(run->tuner, &queues->sweep, &queues->count, &run->diag);
    for (size_t i = 0; i < queues->count; i++) {
        queues->now.items += queues->sweep[i].items;
        queues->now.done += queues->sweep[i].done;
        queues->now.failed += queues->sweep[i].failed;
        queues->now.running += queues->sweep[i].running;
    }
    return rc;
}

static int print_json(cli_run *run)
{
    char *text = NULL;
    int rc = fa_queue_write(run->tuner, &text, &run->diag);
    cJSON *queue = cli_json_of(rc, &text);
    if (rc == 0)
        fa_json_add(run->document, "sweeps",
                    cJSON_DetachItemFromObjectCaseSensitive(queue, "sweeps"));
    cJSON_Delete(queue);
    return rc;
}

/* ---- for persons ----------------------------------------------------------------------------*/
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
        cli_text_item(out, &item[i], true);
        fa_buf_text(out, "\n");
    }
    free(item);
    return rc;
}

static int print_text(cli_run *run, const struct queues *queues)
{
    const fa_sweep *sweep = queues->sweep;
    int rc = 0;
    cli_put_sweeps(&run->out, sweep, queues->count);
    for (size_t i = 0; i < queues->count && rc == 0; i++)
        if (sweep[i].running + sweep[i].failed > 0)
            rc = put_open(run, &sweep[i]);
    cli_text_count(&run->out, "", (int64_t)queues->count, "sweep");
    cli_text_store(run, " in the queue of ");
    return rc;
}

/* ---- following ------------------------------------------------------------------------------*/
/* Until nothing is left to do. What the server does not answer meanwhile is asked again. */
static int follow(cli_run *run, struct queues *queues)
{
    const struct timespec pause = {.tv_sec = FOLLOW_MS / 1000};
    cli_progress *lines = &run->progress;
    fa_sweep told = {.items = -1};
    int rc = read_queue(run, queues);
    while (rc == 0 && cli_interrupted() == 0) {
        const fa_sweep *now = &queues->now, *sweep = queues->sweep;
        bool moved = memcmp(&told, now, sizeof told) != 0, open = false;
        if (lines->rows && (lines->terminal || (moved && cli_progress_is_due(lines)))) {
            fa_buf line = {0};
            fa_buf_printf(&line, "%d/%d done, %d failed, %d held", now->done, now->items,
                          now->failed, now->running);
            cli_progress_show(lines, &line);
        }
        if (moved)
            told = *now;
        for (size_t i = 0; i < queues->count; i++)
            open = open || sweep[i].state == FA_SWEEP_RUNNING;
        if (!open)
            break;
        nanosleep(&pause, NULL);
        while ((rc = read_queue(run, queues)) == FA_EIO && cli_interrupted() == 0)
            nanosleep(&pause, NULL);
    }
    cli_progress_end(lines);
    return rc;
}

/* ---- stopping -------------------------------------------------------------------------------*/
static int stop_queue(cli_run *run, struct queues *queues)
{
    const char *typed = run->options->fleet.stop;
    const fa_sweep *sweep = queues->sweep, *found = NULL;
    char shown[CLI_SHORT_SIZE];
    cli_text_short(typed, shown);
    for (size_t i = 0; i < queues->count; i++) {
        if (strncmp(sweep[i].key, typed, strlen(typed)) != 0)
            continue;
        if (found != NULL)
            return fa_fail(&run->diag, FA_EINVAL,
                           "several sweeps begin with %s: give more of the key", shown);
        found = &sweep[i];
    }
    if (found == NULL)
        return fa_fail(&run->diag, FA_ENOTFOUND, "no sweep in the queue of %s has the key %s",
                       fa_store_location(run->tuner), shown);
    int rc = fa_stop_sweep(run->tuner, found->key, &run->diag);
    return rc == 0 ? read_queue(run, queues) : rc;
}

static int queue(cli_run *run, struct queues *queues)
{
    const cli_options *options = run->options;
    int rc = options->fleet.follow ? follow(run, queues) : read_queue(run, queues);
    if (rc == 0 && options->fleet.stop != NULL)
        rc = stop_queue(run, queues);
    if (rc != 0)
        return rc;
    if (cli_interrupted() != 0)
        return 128 + cli_interrupted();
    rc = options->json ? print_json(run) : print_text(run, queues);
    if (rc != 0 || !options->fleet.follow || queues->now.failed == 0)
        return rc;
    int status = cli_print(run);
    return status != 0 ? status : EXIT_FAILED;
}

int cli_queue(cli_run *run)
{
    struct queues queues = {0};
    int rc = queue(run, &queues);
    free(queues.sweep);
    return rc;
}
