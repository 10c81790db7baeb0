/* SPDX-License-Identifier: Apache-2.0
 *
 * The fleet's queue: worker takes problems from it until it is told to stop, with a line on stderr for each and
 * at the end what came of them; queue says how it stands.
 */
#include "error.h"
#include "json.h"
#include "run.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- worker ---------------------------------------------------------------------------------*/
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

/* ---- queue ----------------------------------------------------------------------------------*/
enum { FOLLOW_MS = 1000, KEY_SHOWN = 10 };

/* All sweeps in the queue, and who holds what of them. */
struct queues {
    cli_list list; /* of fa_queue */
    fa_queue now;  /* all together */
};

static int keep_queue(void *context, const fa_queue *queue)
{
    struct queues *queues = context;
    fa_queue *now = &queues->now;
    now->sweep.items += queue->sweep.items;
    now->sweep.done += queue->sweep.done;
    now->sweep.failed += queue->sweep.failed;
    now->pending += queue->pending;
    now->running += queue->running;
    now->expired += queue->expired;
    now->compiled += queue->compiled;
    now->refused += queue->refused;
    return cli_list_keep(&queues->list, queue, sizeof *queue);
}

static int read_queue(cli_run *run, struct queues *queues)
{
    cli_list_free(&queues->list);
    *queues = (struct queues){0};
    int rc = fa_list_queues(run->tuner, keep_queue, queues, &run->diag);
    return cli_list_end(run, &queues->list, rc);
}

static int print_json(cli_run *run)
{
    char *text = NULL;
    int rc = fa_queue_write(run->tuner, &text, &run->diag);
    if (rc != 0)
        return rc;
    cJSON *queue = cJSON_Parse(text);
    free(text);
    fa_json_add_text(run->document, "store", fa_store_location(run->tuner));
    fa_json_add(run->document, "sweeps", cJSON_DetachItemFromObjectCaseSensitive(queue, "sweeps"));
    cJSON_Delete(queue);
    return 0;
}

/* ---- for persons ----------------------------------------------------------------------------*/
static const char *stage_name(fa_work_stage stage)
{
    return stage == FA_WORK_MEASURE ? "measure" : "compile";
}

static int holding_text(void *context, const fa_queue_holding *holding)
{
    fa_buf *out = context;
    cli_text_safe(out, holding->holder);
    fa_buf_printf(out, " %ss ", stage_name(holding->stage));
    cli_text_item(out, &holding->item, true);
    if (holding->left_s < 0)
        fa_buf_text(out, ", not heard of for too long");
    fa_buf_text(out, "\n");
    return 0;
}

static void put_table(const struct queues *queues, fa_buf *out)
{
    cli_table table = {0};
    for (size_t i = 0; i < queues->list.count; i++) {
        const fa_queue *queue = (const fa_queue *)queues->list.item + i;
        const fa_sweep *sweep = &queue->sweep;
        const int64_t number[] = {sweep->items,   sweep->done,     sweep->failed,
                                  queue->running, queue->compiled, queue->refused};
        cli_cell(&table, "%s", cli_sweep_state(sweep, queue->running > 0));
        for (size_t n = 0; n < sizeof number / sizeof *number; n++)
            cli_cell(&table, "%" PRId64, number[n]);
        cli_text_worked_on(&table.cell, sweep, queue->running > 0);
        cli_cell_end(&table);
        cli_cell(&table, "%.*s", KEY_SHOWN, sweep->key);
        cli_cell(&table, "%s", sweep->plan);
        cli_row_end(&table);
    }
    cli_table_put(&table, "state|>items|>done|>failed|>held|>compiled|>refused|worked on|key|plan",
                  out);
}

static int print_text(cli_run *run, const struct queues *queues)
{
    const fa_queue *queue = queues->list.item;
    int rc = 0;
    put_table(queues, &run->out);
    for (size_t i = 0; i < queues->list.count && rc == 0; i++)
        rc = fa_list_queue_holdings(run->tuner, queue[i].sweep.key, holding_text, &run->out,
                                    &run->diag);
    cli_text_count(&run->out, (int64_t)queues->list.count, "sweep");
    fa_buf_text(&run->out, " in the queue of ");
    cli_text_path(&run->out, fa_store_location(run->tuner));
    fa_buf_text(&run->out, "\n");
    return rc;
}

/* ---- following ------------------------------------------------------------------------------*/
static void tell_now(cli_progress *lines, const fa_queue *now)
{
    fa_buf line = {0};
    fa_buf_printf(&line, "%d/%d done, %d failed, %" PRId64 " held, %" PRId64 " refused",
                  now->sweep.done, now->sweep.items, now->sweep.failed, now->running, now->refused);
    cli_progress_show(lines, &line);
}

/* Until nothing is left to do. What the database does not answer meanwhile is asked again. */
static int follow(cli_run *run, struct queues *queues)
{
    const struct timespec pause = {.tv_sec = FOLLOW_MS / 1000};
    cli_progress *lines = &run->progress;
    fa_queue told = {.pending = -1};
    int rc = read_queue(run, queues);
    while (rc == 0 && cli_interrupted() == 0) {
        const fa_queue *now = &queues->now, *queue = queues->list.item;
        bool moved = memcmp(&told, now, sizeof told) != 0, open = false;
        if (lines->rows && (lines->terminal || (moved && cli_progress_is_due(lines))))
            tell_now(lines, now);
        if (moved)
            told = *now;
        for (size_t i = 0; i < queues->list.count; i++)
            open = open || queue[i].sweep.state == FA_SWEEP_RUNNING;
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
    const fa_queue *queue = queues->list.item, *found = NULL;
    char shown[CLI_SHORT_SIZE];
    cli_text_short(typed, shown);
    for (size_t i = 0; i < queues->list.count; i++) {
        if (strncmp(queue[i].sweep.key, typed, strlen(typed)) != 0)
            continue;
        if (found != NULL)
            return fa_fail(&run->diag, FA_EINVAL,
                           "several sweeps begin with %s: give more of the key", shown);
        found = &queue[i];
    }
    if (found == NULL)
        return fa_fail(&run->diag, FA_ENOTFOUND, "no sweep in the queue of %s has the key %s",
                       fa_store_location(run->tuner), shown);
    int rc = fa_stop_queue(run->tuner, found->sweep.key, &run->diag);
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
    if (rc != 0 || !options->fleet.follow || queues->now.sweep.failed == 0)
        return rc;
    int status = cli_print(run);
    return status != 0 ? status : EXIT_FAILED;
}

int cli_queue(cli_run *run)
{
    struct queues queues = {0};
    cli_interrupt_install();
    int rc = cli_open(run, true);
    if (rc == 0)
        rc = queue(run, &queues);
    cli_list_free(&queues.list);
    return rc;
}
