/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep: a grid of problems as one job in the store, and how it stands.
 */
#include "error.h"
#include "grid.h"
#include "hint.h"
#include "json_make.h"
#include "interrupt.h"
#include "sweep_out.h"
#include "sweep_progress.h"
#include "table.h"
#include "text.h"
#include "verbs.h"

#include <stdio.h>
#include <string.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct run {
    const cli_options *options;
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
    struct run *run = context;
    if (event->event == FA_SWEEP_ITEM_ENDS || event->event == FA_SWEEP_ITEM_KNOWN)
        cli_sweep_rows_item(&run->rows, event->index, event->item);
    if (event->answer != NULL)
        cli_sweep_rows_answer(&run->rows, event->index, event->answer);
    cli_sweep_progress_event(&run->progress, event);
    return cli_interrupted();
}

/* ---- how sweeps stand -----------------------------------------------------------------------*/
struct listing {
    cli_table *table;
    cJSON *array;
    const char *key; /* only this one; NULL: the first */
    fa_sweep found;
    size_t count;
};

static int list_one(void *context, const fa_sweep *sweep)
{
    struct listing *list = context;
    list->count++;
    if (list->array != NULL) {
        fa_json_push(list->array, cli_json_sweep(sweep));
        return 0;
    }
    cli_table *table = list->table;
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

static int list_sweeps(fa_tuner *tuner, const cli_options *options, fa_diag *diag)
{
    cli_table table = {0};
    fa_buf out = {0};
    struct listing list = {.table = &table};
    cJSON *document = options->json ? cJSON_CreateObject() : NULL;
    fa_json_add_text(document, "fa_tune", fa_version());
    list.array = fa_json_add_array(document, "sweeps");
    int rc = fa_list_sweeps(tuner, list_one, &list, diag), status;
    if (rc != 0) {
        cJSON_Delete(document);
        status = cli_fail(rc, options, diag);
    } else if (document != NULL) {
        status = cli_json_write(document);
    } else {
        cli_table_put(&table, "state|done|spent|last worked on|plan", &out);
        cli_text_count(&out, (int64_t)list.count, "sweep");
        fa_buf_text(&out, " in ");
        cli_text_path(&out, fa_store_location(tuner));
        fa_buf_text(&out, "\n");
        status = cli_write(&out);
    }
    cli_table_free(&table);
    fa_buf_free(&out);
    return status;
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

static int print_status(fa_tuner *tuner, const cli_options *options, const fa_sweep *sweep,
                        fa_diag *diag)
{
    if (options->json) {
        cJSON *document = cJSON_CreateObject();
        fa_json_add_text(document, "fa_tune", fa_version());
        fa_json_add(document, "sweep", cli_json_sweep(sweep));
        return cli_json_write(document);
    }
    fa_buf out = {0};
    fa_buf_text(&out, "fa-tune sweep ");
    cli_text_safe(&out, sweep->plan);
    fa_buf_printf(&out, "\n%s: %d of %d done, %d failed, %d left; ", cli_sweep_state(sweep, false),
                  sweep->done, sweep->items, sweep->failed,
                  sweep->items - sweep->done - sweep->failed);
    cli_text_spent(&out, &sweep->spent, &sweep->budget);
    fa_buf_text(&out, " spent; last worked on ");
    cli_text_worked_on(&out, sweep, false);
    fa_buf_text(&out, "\n");
    int rc = fa_list_sweep_items(tuner, sweep->key, print_failed, &out, diag);
    int status = rc != 0 ? cli_fail(rc, options, diag) : cli_write(&out);
    fa_buf_free(&out);
    return status;
}

static int fail_no_sweep(fa_tuner *tuner, const cli_options *options, bool named, fa_diag *diag)
{
    fa_buf hint = {0};
    fa_buf_printf(&hint, "%s is in %s: ", named ? "no such sweep" : "no sweep",
                  fa_store_location(tuner));
    cli_hint_store(&hint, named ? "sweep --list" : "sweep --help", options);
    int rc = fa_fail(diag, hint.failed ? FA_ENOMEM : FA_ENOTFOUND, "%s %s",
                     hint.failed ? "out of memory" : hint.data,
                     named ? "shows what is" : "says how to begin one");
    fa_buf_free(&hint);
    return cli_fail(rc, options, diag);
}

static int show_status(fa_tuner *tuner, const cli_options *options, const cli_grid *grid,
                       fa_diag *diag)
{
    struct listing list = {0};
    char key[65];
    if (grid->count > 0) {
        fa_sweep_request request = request_of(options, grid);
        int rc = fa_sweep_key(&request, key, diag);
        if (rc != 0)
            return cli_fail(rc, options, diag);
        list.key = key;
    }
    int rc = fa_list_sweeps(tuner, find_one, &list, diag);
    if (rc < 0)
        return cli_fail(rc, options, diag);
    if (list.count == 0)
        return fail_no_sweep(tuner, options, list.key != NULL, diag);
    return print_status(tuner, options, &list.found, diag);
}

/* ---- a run ----------------------------------------------------------------------------------*/
/* Stopped by the person who runs it, by somebody at the service, or by what would stop every
 * problem. */
static int stopped(int rc, const cli_options *options, const fa_sweep *sweep, const fa_diag *diag)
{
    int number = rc == FA_ECANCELED ? cli_interrupted() : 0;
    int status = number != 0 ? 128 + number : cli_fail(rc, options, diag);
    if (rc != FA_ECANCELED)
        return status;
    fprintf(stderr, "fa-tune: stopped; ");
    if (sweep->items > 0) /* a service may have told nothing yet */
        fprintf(stderr, "%d of %d problems are done, ", sweep->done, sweep->items);
    fprintf(stderr, "the same command goes on from there\n");
    return status;
}

static int run_sweep(fa_tuner *tuner, struct run *run, fa_diag *diag)
{
    const cli_options *options = run->options;
    fa_sweep_request request = request_of(options, &run->grid);
    fa_sweep sweep = {0};
    if (cli_sweep_rows_init(&run->rows, run->grid.item, run->grid.count) != 0)
        return cli_fail(fa_fail(diag, FA_ENOMEM, "out of memory for a sweep"), options, diag);
    request.progress = on_event;
    request.context = run;
    int rc = fa_run_sweep(tuner, &request, &sweep, diag);
    cli_sweep_progress_end(&run->progress);
    if (rc != 0)
        return stopped(rc, options, &sweep, diag);
    if (fa_server_location(tuner)[0] == 0) /* else its events have told all of them */
        rc = fa_list_sweep_items(tuner, sweep.key, cli_sweep_rows_item, &run->rows, diag);
    if (rc == 0)
        rc = fa_list_baselines(tuner, cli_sweep_rows_baseline, &run->rows, diag);
    if (run->rows.failed)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a sweep's result");
    if (rc != 0)
        return cli_fail(rc, options, diag);
    cli_sweep_rows_match(&run->rows);
    int status = options->json ? cli_sweep_print_json(&run->rows, &sweep, tuner)
                               : cli_sweep_print_text(&run->rows, &sweep, cli_location(tuner));
    if (status == 0 && sweep.failed > 0) {
        fa_buf hint = {0};
        cli_hint_store(&hint, "sweep --status", options);
        cli_tell("%d of %d problems failed; %s and their rows say why", sweep.failed, sweep.items,
                 hint.failed ? "the sweep's status" : hint.data);
        fa_buf_free(&hint);
        status = EXIT_FAILED;
    }
    return status;
}

/* Into the fleet's queue; workers do the rest. */
static int enqueue(fa_tuner *tuner, const struct run *run, fa_diag *diag)
{
    const cli_options *options = run->options;
    fa_sweep_request request = request_of(options, &run->grid);
    fa_sweep sweep;
    int rc = fa_enqueue_sweep(tuner, &request, &sweep, diag);
    if (rc != 0)
        return cli_fail(rc, options, diag);
    if (options->json) {
        cJSON *document = cJSON_CreateObject();
        fa_json_add_text(document, "fa_tune", fa_version());
        fa_json_add_text(document, "store", fa_store_location(tuner));
        fa_json_add(document, "sweep", cli_json_sweep(&sweep));
        return cli_json_write(document);
    }
    fa_buf out = {0};
    fa_buf_printf(&out, "%d problem%s in the queue of ", sweep.items, sweep.items == 1 ? "" : "s");
    cli_text_path(&out, fa_store_location(tuner));
    if (sweep.done > 0)
        fa_buf_printf(&out, ", %d of them done before", sweep.done);
    fa_buf_text(&out, "\n");
    cli_hint_store(&out, "worker", options);
    fa_buf_text(&out, " works on it, ");
    cli_hint_store(&out, "queue --follow", options);
    fa_buf_text(&out, " tells how it stands\n");
    int status = cli_write(&out);
    fa_buf_free(&out);
    return status;
}

static int import(fa_tuner *tuner, struct run *run, fa_diag *diag)
{
    const char *path = run->options->sweep.baseline;
    int32_t count = 0;
    int rc = path != NULL ? fa_import_baselines(tuner, path, &count, diag) : 0;
    if (rc == 0 && path != NULL) {
        char sentence[96];
        snprintf(sentence, sizeof sentence, "%d baseline%s taken into the store", count,
                 count == 1 ? "" : "s");
        cli_progress_note(&run->progress.lines, sentence);
    }
    return rc;
}

static int sweep(struct run *r)
{
    const cli_options *options = r->options;
    fa_tuner *tuner;
    fa_diag diag = {{0}};
    bool told_only =
        (options->sweep.list || options->sweep.status) && options->sweep.baseline == NULL;
    int status = told_only ? cli_open_to_read(options, &r->progress.lines, &tuner)
                           : cli_open(options, &r->progress.lines, &tuner);
    if (status != 0)
        return status;
    int rc = import(tuner, r, &diag);
    if (rc != 0)
        status = cli_fail(rc, options, &diag);
    else if (options->sweep.list)
        status = list_sweeps(tuner, options, &diag);
    else if (options->sweep.status)
        status = show_status(tuner, options, &r->grid, &diag);
    else if (r->grid.count > 0)
        status = options->fleet.enqueue ? enqueue(tuner, r, &diag) : run_sweep(tuner, r, &diag);
    else
        status = 0; /* only baselines were to be taken */
    fa_close(&tuner);
    return status;
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

int cli_sweep(const cli_options *options)
{
    struct run r = {.options = options};
    fa_diag diag = {{0}};
    bool needs_grid = !options->sweep.list &&
                      !(options->sweep.status && !cli_grid_given(options)) &&
                      !(options->sweep.baseline != NULL && !cli_grid_given(options));
    int rc = check_sweep_options(options, &diag);
    if (rc == 0 && needs_grid)
        rc = cli_grid_make(options, &r.grid, &diag);
    if (rc != 0)
        return cli_error(rc == FA_ENOMEM ? EXIT_FAILED : EXIT_USAGE, &diag);
    bool many = false;
    for (int32_t i = 1; i < r.grid.count; i++)
        many = many || strcmp(r.grid.item[i].gpu, r.grid.item[0].gpu) != 0;
    fa_sweep_budget budget = request_of(options, &r.grid).budget;
    cli_sweep_progress_init(&r.progress, options, &budget, many);
    cli_interrupt_install();
    int status = sweep(&r);
    cli_sweep_rows_free(&r.rows);
    cli_grid_free(&r.grid);
    return status;
}
