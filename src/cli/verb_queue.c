/* SPDX-License-Identifier: Apache-2.0
 *
 * queue: how the fleet's queue stands.
 */
#include "error.h"
#include "interrupt.h"
#include "json_make.h"
#include "sweep_out.h"
#include "sweep_progress.h"
#include "table.h"
#include "text.h"
#include "verbs.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EXIT_FAILED = 1, FOLLOW_MS = 1000, KEY_SHOWN = 10 };

/* All sweeps in the queue, and who holds what of them. */
struct queue_list {
    fa_queue *queue;
    size_t count, capacity;
    fa_queue now; /* all together */
    bool failed;
};

static int keep_queue(void *context, const fa_queue *queue)
{
    struct queue_list *list = context;
    fa_queue *grown = fa_grow(list->queue, &list->capacity, list->count, sizeof *grown);
    if (grown == NULL) {
        list->failed = true;
        return 1;
    }
    list->queue = grown;
    list->queue[list->count++] = *queue;
    list->now.sweep.items += queue->sweep.items;
    list->now.sweep.done += queue->sweep.done;
    list->now.sweep.failed += queue->sweep.failed;
    list->now.pending += queue->pending;
    list->now.running += queue->running;
    list->now.expired += queue->expired;
    list->now.compiled += queue->compiled;
    list->now.refused += queue->refused;
    return 0;
}

static int read_queue(fa_tuner *tuner, struct queue_list *list, fa_diag *diag)
{
    *list = (struct queue_list){0};
    int rc = fa_list_queues(tuner, keep_queue, list, diag);
    return list->failed ? fa_fail(diag, FA_ENOMEM, "out of memory for a queue") : rc;
}

/* ---- for programs ---------------------------------------------------------------------------*/
static int print_json(fa_tuner *tuner, const cli_options *options, fa_diag *diag)
{
    char *text = NULL;
    int rc = fa_queue_write(tuner, &text, diag);
    if (rc != 0)
        return cli_fail(rc, options, diag);
    cJSON *document = cJSON_CreateObject(), *queue = cJSON_Parse(text);
    free(text);
    fa_json_add_text(document, "fa_tune", fa_version());
    fa_json_add_text(document, "store", fa_store_location(tuner));
    fa_json_add(document, "sweeps", cJSON_DetachItemFromObjectCaseSensitive(queue, "sweeps"));
    cJSON_Delete(queue);
    return cli_json_write(document);
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

static void put_table(const struct queue_list *list, fa_buf *out)
{
    cli_table table = {0};
    for (size_t i = 0; i < list->count; i++) {
        const fa_queue *queue = &list->queue[i];
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

static int print_text(fa_tuner *tuner, const cli_options *options, const struct queue_list *list,
                      fa_diag *diag)
{
    fa_buf out = {0};
    int rc = 0;
    put_table(list, &out);
    for (size_t i = 0; i < list->count && rc == 0; i++)
        rc = fa_list_queue_holdings(tuner, list->queue[i].sweep.key, holding_text, &out, diag);
    cli_text_count(&out, (int64_t)list->count, "sweep");
    fa_buf_text(&out, " in the queue of ");
    cli_text_path(&out, fa_store_location(tuner));
    fa_buf_text(&out, "\n");
    int status = rc != 0 ? cli_fail(rc, options, diag) : cli_write(&out);
    fa_buf_free(&out);
    return status;
}

/* ---- following ------------------------------------------------------------------------------*/
static void tell_now(cli_progress *lines, const fa_queue *now)
{
    fa_buf line = {0};
    fa_buf_printf(&line, "%d/%d done, %d failed, %" PRId64 " held, %" PRId64 " refused",
                  now->sweep.done, now->sweep.items, now->sweep.failed, now->running, now->refused);
    cli_progress_show(lines, &line, now->sweep.done + now->sweep.failed, now->sweep.items);
}

/* Until nothing is left to do. What the database does not answer meanwhile is asked again. */
static int follow(fa_tuner *tuner, cli_progress *lines, struct queue_list *list, fa_diag *diag)
{
    const struct timespec pause = {.tv_sec = FOLLOW_MS / 1000};
    fa_queue told = {.pending = -1};
    int rc = read_queue(tuner, list, diag);
    while (rc == 0 && cli_interrupted() == 0) {
        const fa_queue *now = &list->now;
        bool moved = memcmp(&told, now, sizeof told) != 0;
        if (lines->rows && (lines->terminal || (moved && cli_progress_is_due(lines))))
            tell_now(lines, now);
        if (moved)
            told = *now;
        bool open = false;
        for (size_t i = 0; i < list->count; i++)
            open = open || list->queue[i].sweep.state == FA_SWEEP_RUNNING;
        if (!open)
            break;
        nanosleep(&pause, NULL);
        free(list->queue);
        while ((rc = read_queue(tuner, list, diag)) == FA_EIO && cli_interrupted() == 0)
            nanosleep(&pause, NULL);
    }
    cli_progress_end(lines);
    return rc;
}

/* ---- stopping -------------------------------------------------------------------------------*/
static int stop_queue(fa_tuner *tuner, const cli_options *options, const struct queue_list *list,
                      fa_diag *diag)
{
    const char *typed = options->fleet.stop;
    const fa_queue *found = NULL;
    char shown[CLI_SHORT_SIZE];
    cli_text_short(typed, shown);
    for (size_t i = 0; i < list->count; i++) {
        if (strncmp(list->queue[i].sweep.key, typed, strlen(typed)) != 0)
            continue;
        if (found != NULL)
            return fa_fail(diag, FA_EINVAL, "several sweeps begin with %s: give more of the key",
                           shown);
        found = &list->queue[i];
    }
    if (found == NULL)
        return fa_fail(diag, FA_ENOTFOUND, "no sweep in the queue of %s has the key %s",
                       fa_store_location(tuner), shown);
    return fa_stop_queue(tuner, found->sweep.key, diag);
}

int cli_queue(const cli_options *options)
{
    cli_progress lines;
    struct queue_list list = {0};
    fa_tuner *tuner;
    fa_diag diag = {{0}};
    cli_progress_init(&lines, options);
    cli_interrupt_install();
    int status = cli_open_to_read(options, &lines, &tuner);
    if (status != 0)
        return status;
    int rc = options->fleet.follow ? follow(tuner, &lines, &list, &diag)
                                   : read_queue(tuner, &list, &diag);
    if (rc == 0 && options->fleet.stop != NULL &&
        (rc = stop_queue(tuner, options, &list, &diag)) == 0) {
        free(list.queue);
        rc = read_queue(tuner, &list, &diag);
    }
    if (rc != 0)
        status = cli_fail(rc, options, &diag);
    else if (cli_interrupted() != 0)
        status = 128 + cli_interrupted();
    else
        status = options->json ? print_json(tuner, options, &diag)
                               : print_text(tuner, options, &list, &diag);
    if (status == 0 && options->fleet.follow && list.now.sweep.failed > 0)
        status = EXIT_FAILED;
    free(list.queue);
    fa_close(&tuner);
    return status;
}
