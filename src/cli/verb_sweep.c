/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep: a grid of problems as one job in the store, and how it stands.
 */
#include "error.h"
#include "grid.h"
#include "json_make.h"
#include "run.h"
#include "sweep_out.h"
#include "table.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

struct sweep {
    cli_run *run;
    cli_grid grid;
    cli_sweep_rows rows;
    cli_sweep_progress progress;
};

static fa_sweep_request request_of(const cli_options *options, const cli_grid *grid)
{
    return (fa_sweep_request){
        .size = sizeof(fa_sweep_request),
        .items = grid->item,
        .count = grid->count,
        .plan = grid->plan,
        .ordinal = options->device >= 0 ? options->device : 0,
        .effort = options->effort,
        .again = options->again,
        .exact = options->exact,
        .restart = options->sweep.restart,
        .budget = {.seconds = options->sweep.seconds,
                   .trials = options->sweep.trials,
                   .cost = options->sweep.cost,
                   .price = options->sweep.price},
    };
}

static int on_event(void *context, const fa_sweep_progress *event)
{
    struct sweep *s = context;
    if (event->event == FA_SWEEP_ITEM_ENDS || event->event == FA_SWEEP_ITEM_KNOWN)
        cli_sweep_rows_item(&s->rows, event->index, event->item);
    if (event->answer != NULL)
        cli_sweep_rows_answer(&s->rows, event->index, event->answer);
    cli_sweep_progress_event(&s->progress, event);
    return cli_interrupted();
}

/* ---- how sweeps stand -----------------------------------------------------------------------*/
struct listing {
    cli_table table;
    cJSON *array;
    const char *key; /* only this one; NULL: the first */
    fa_sweep found;
    size_t count;
};

static int list_one(void *context, const fa_sweep *sweep)
{
    struct listing *list = context;
    cli_table *table = &list->table;
    list->count++;
    fa_json_push(list->array, cli_json_sweep(sweep));
    cli_cell(table, "%s", cli_sweep_state(sweep, false));
    cli_cell(table, "%d/%d%s", sweep->done, sweep->items, sweep->failed > 0 ? ", some failed" : "");
    cli_text_spent(&table->cell, &sweep->spent, &sweep->budget);
    cli_cell_end(table);
    cli_text_worked_on(&table->cell, sweep, false);
    cli_cell_end(table);
    cli_cell(table, "%s", sweep->plan);
    cli_row_end(table);
    return 0;
}

static int list_sweeps(cli_run *run)
{
    struct listing list = {.array = fa_json_add_array(run->document, "sweeps")};
    int rc = fa_list_sweeps(run->tuner, list_one, &list, &run->diag);
    cli_table_put(&list.table, "state|done|spent|last worked on|plan", &run->out);
    cli_text_count(&run->out, (int64_t)list.count, "sweep");
    fa_buf_text(&run->out, " in ");
    cli_text_path(&run->out, fa_store_location(run->tuner));
    fa_buf_text(&run->out, "\n");
    return rc;
}

static int find_one(void *context, const fa_sweep *sweep)
{
    struct listing *list = context;
    if (list->key != NULL && strcmp(list->key, sweep->key) != 0)
        return 0;
    list->found = *sweep;
    list->count++;
    return 1; /* found */
}

static int print_failed(void *context, int32_t index, const fa_sweep_item *item)
{
    fa_buf *out = context;
    (void)index;
    if (item->state != FA_ITEM_FAILED && item->state != FA_ITEM_RUNNING)
        return 0;
    fa_buf_printf(out, "%s: ", fa_item_state_name(item->state));
    cli_text_item(out, item, item->gpu[0] != 0);
    if (item->reason[0] != 0) {
        fa_buf_text(out, ": ");
        cli_text_safe(out, item->reason);
    }
    fa_buf_text(out, "\n");
    return 0;
}

static int print_status(cli_run *run, const fa_sweep *sweep)
{
    fa_buf *out = &run->out;
    fa_json_add(run->document, "sweep", cli_json_sweep(sweep));
    if (run->options->json)
        return 0;
    fa_buf_text(out, "fa-tune sweep ");
    cli_text_safe(out, sweep->plan);
    fa_buf_printf(out, "\n%s: %d of %d done, %d failed, %d left; ", cli_sweep_state(sweep, false),
                  sweep->done, sweep->items, sweep->failed,
                  sweep->items - sweep->done - sweep->failed);
    cli_text_spent(out, &sweep->spent, &sweep->budget);
    fa_buf_text(out, " spent; last worked on ");
    cli_text_worked_on(out, sweep, false);
    fa_buf_text(out, "\n");
    return fa_list_sweep_items(run->tuner, sweep->key, print_failed, out, &run->diag);
}

static int fail_no_sweep(cli_run *run, bool named)
{
    fa_buf hint = {0};
    fa_buf_printf(&hint, "%s is in %s: ", named ? "no such sweep" : "no sweep",
                  fa_store_location(run->tuner));
    cli_hint_store(&hint, named ? "sweep --list" : "sweep --help", run->options);
    int rc = fa_fail(&run->diag, hint.failed ? FA_ENOMEM : FA_ENOTFOUND, "%s %s",
                     hint.failed ? "out of memory" : hint.data,
                     named ? "shows what is" : "says how to begin one");
    fa_buf_free(&hint);
    return rc;
}

static int show_status(cli_run *run, const cli_grid *grid)
{
    struct listing list = {0};
    char key[65];
    if (grid->count > 0) {
        fa_sweep_request request = request_of(run->options, grid);
        int rc = fa_sweep_key(&request, key, &run->diag);
        if (rc != 0)
            return rc;
        list.key = key;
    }
    int rc = fa_list_sweeps(run->tuner, find_one, &list, &run->diag);
    if (rc < 0)
        return rc;
    return list.count == 0 ? fail_no_sweep(run, list.key != NULL) : print_status(run, &list.found);
}

/* ---- a run ----------------------------------------------------------------------------------*/
/* Stopped by the person who runs it, by somebody at the service, or by what would stop every
 * problem. */
static int stopped(cli_run *run, int rc, const fa_sweep *sweep)
{
    int number = rc == FA_ECANCELED ? cli_interrupted() : 0;
    if (rc != FA_ECANCELED)
        return rc;
    int status = number != 0 ? 128 + number : cli_fail(run, rc);
    fprintf(stderr, "fa-tune: stopped; ");
    if (sweep->items > 0) /* a service may have told nothing yet */
        fprintf(stderr, "%d of %d problems are done, ", sweep->done, sweep->items);
    fprintf(stderr, "the same command goes on from there\n");
    return status;
}

static int run_sweep(struct sweep *s)
{
    cli_run *run = s->run;
    fa_sweep_request request = request_of(run->options, &s->grid);
    fa_sweep sweep = {0};
    if (cli_sweep_rows_init(&s->rows, s->grid.item, s->grid.count) != 0)
        return fa_fail(&run->diag, FA_ENOMEM, "out of memory for a sweep");
    request.progress = on_event;
    request.context = s;
    int rc = fa_run_sweep(run->tuner, &request, &sweep, &run->diag);
    cli_sweep_progress_end(&s->progress);
    if (rc != 0)
        return stopped(run, rc, &sweep);
    if (fa_server_location(run->tuner)[0] == 0) /* else its events have told all of them */
        rc = fa_list_sweep_items(run->tuner, sweep.key, cli_sweep_rows_item, &s->rows, &run->diag);
    if (rc == 0)
        rc = fa_list_baselines(run->tuner, cli_sweep_rows_baseline, &s->rows, &run->diag);
    if (s->rows.failed)
        rc = fa_fail(&run->diag, FA_ENOMEM, "out of memory for a sweep's result");
    if (rc != 0)
        return rc;
    cli_sweep_rows_match(&s->rows);
    cli_sweep_put(&s->rows, &sweep, run);
    int status = cli_print(run);
    if (status != 0 || sweep.failed == 0)
        return status;
    fa_buf hint = {0};
    cli_hint_store(&hint, "sweep --status", run->options);
    cli_tell("%d of %d problems failed; %s and their rows say why", sweep.failed, sweep.items,
             hint.failed ? "the sweep's status" : hint.data);
    fa_buf_free(&hint);
    return EXIT_FAILED;
}

/* Into the fleet's queue; workers do the rest. */
static int enqueue(cli_run *run, const cli_grid *grid)
{
    fa_sweep_request request = request_of(run->options, grid);
    fa_buf *out = &run->out;
    fa_sweep sweep;
    int rc = fa_enqueue_sweep(run->tuner, &request, &sweep, &run->diag);
    if (rc != 0)
        return rc;
    fa_json_add_text(run->document, "store", fa_store_location(run->tuner));
    fa_json_add(run->document, "sweep", cli_json_sweep(&sweep));
    fa_buf_printf(out, "%d problem%s in the queue of ", sweep.items, sweep.items == 1 ? "" : "s");
    cli_text_path(out, fa_store_location(run->tuner));
    if (sweep.done > 0)
        fa_buf_printf(out, ", %d of them done before", sweep.done);
    fa_buf_text(out, "\n");
    cli_hint_store(out, "worker", run->options);
    fa_buf_text(out, " works on it, ");
    cli_hint_store(out, "queue --follow", run->options);
    fa_buf_text(out, " tells how it stands\n");
    return 0;
}

static int import(cli_run *run)
{
    int32_t count = 0;
    if (run->options->sweep.baseline == NULL)
        return 0;
    int rc = fa_import_baselines(run->tuner, run->options->sweep.baseline, &count, &run->diag);
    if (rc == 0) {
        char sentence[96];
        snprintf(sentence, sizeof sentence, "%d baseline%s taken into the store", count,
                 count == 1 ? "" : "s");
        cli_progress_note(&run->progress, sentence);
    }
    return rc;
}

static int sweep(struct sweep *s)
{
    cli_run *run = s->run;
    const cli_options *options = run->options;
    int rc = cli_open(run, (options->sweep.list || options->sweep.status) &&
                               options->sweep.baseline == NULL);
    if (rc == 0)
        rc = import(run);
    if (rc != 0)
        return rc;
    if (options->sweep.list)
        return list_sweeps(run);
    if (options->sweep.status)
        return show_status(run, &s->grid);
    if (s->grid.count > 0)
        return options->fleet.enqueue ? enqueue(run, &s->grid) : run_sweep(s);
    run->printed = true; /* only baselines were to be taken */
    return 0;
}

/* What no single option can tell. */
static int check_sweep_options(const cli_options *options, fa_diag *diag)
{
    if (options->sweep.list && options->sweep.status)
        return fa_fail(diag, FA_EINVAL, "--list and --status exclude one another");
    if (options->server != NULL && (options->sweep.list || options->sweep.status))
        return fa_fail(diag, FA_EINVAL,
                       "--list and --status tell of the store's sweeps: leave "
                       "--server out");
    if (options->sweep.list && cli_grid_given(options))
        return fa_fail(diag, FA_EINVAL, "--list takes no grid: --status tells of one sweep");
    if (options->sweep.restart && (options->sweep.list || options->sweep.status))
        return fa_fail(diag, FA_EINVAL, "--restart runs a sweep: leave --list or --status out");
    if (options->fleet.enqueue && (options->sweep.list || options->sweep.status))
        return fa_fail(diag, FA_EINVAL,
                       "--enqueue enters a sweep: `fa-tune queue` tells how it stands");
    if (options->sweep.cost > 0 && !(options->sweep.price > 0))
        return fa_fail(diag, FA_EINVAL,
                       "--cost needs --price, what an hour of the GPU costs, as in --price 0.68");
    return 0;
}

int cli_sweep(cli_run *run)
{
    const cli_options *options = run->options;
    struct sweep s = {.run = run};
    bool may_lack_grid = options->sweep.status || options->sweep.baseline != NULL;
    int rc = check_sweep_options(options, &run->diag);
    if (rc == 0 && !options->sweep.list && !(may_lack_grid && !cli_grid_given(options)))
        rc = cli_grid_make(options, &s.grid, &run->diag);
    if (rc != 0)
        return cli_error(rc == FA_ENOMEM ? EXIT_FAILED : EXIT_USAGE, &run->diag);
    fa_sweep_budget budget = request_of(options, &s.grid).budget;
    s.progress = (cli_sweep_progress){.lines = &run->progress, .budget = &budget};
    for (int32_t i = 1; i < s.grid.count; i++)
        s.progress.many_gpus |= strcmp(s.grid.item[i].gpu, s.grid.item[0].gpu) != 0;
    cli_interrupt_install();
    rc = sweep(&s);
    cli_sweep_rows_free(&s.rows);
    cli_grid_free(&s.grid);
    return rc;
}
