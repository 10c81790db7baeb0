/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep: a grid of problems as one job in the store, and how it stands.
 */
#include "error.h"
#include "options.h"
#include "json.h"
#include "problem.h"
#include "run.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A problem's result; answer is NULL until it has one. */
typedef struct sweep_row {
    fa_sweep_item item;
    fa_answer *answer;
    const fa_baseline *best; /* the fastest baseline of this very problem, or NULL */
} sweep_row;

typedef struct sweep_rows {
    sweep_row *row;
    int32_t count;
    cli_list baselines; /* of fa_baseline */
    bool failed;        /* out of memory for an answer */
} sweep_rows;

/* Slower than this share of the best baseline's speed is worth a person's time. */
static const double SLOW = 0.5;

/* ---- rows -----------------------------------------------------------------------------------*/
static int rows_init(sweep_rows *rows, const fa_sweep_item *items, int32_t count)
{
    *rows = (sweep_rows){.row = calloc((size_t)count, sizeof *rows->row), .count = count};
    for (int32_t i = 0; i < count && rows->row != NULL; i++)
        rows->row[i].item = items[i];
    return rows->row != NULL ? 0 : FA_ENOMEM;
}

static void rows_free(sweep_rows *rows)
{
    for (int32_t i = 0; i < rows->count && rows->row != NULL; i++)
        free(rows->row[i].answer);
    free(rows->row);
    cli_list_free(&rows->baselines);
    *rows = (sweep_rows){0};
}

static int keep_baseline(void *context, const fa_baseline *baseline)
{
    sweep_rows *rows = context;
    return cli_list_keep(&rows->baselines, baseline, sizeof *baseline);
}

static int keep_item(void *context, int32_t index, const fa_sweep_item *item)
{
    sweep_rows *rows = context;
    if (index < rows->count)
        rows->row[index].item = *item;
    return 0;
}

static void keep_answer(sweep_rows *rows, int32_t index, const fa_answer *answer)
{
    sweep_row *row = &rows->row[index];
    if (row->answer == NULL)
        row->answer = malloc(sizeof *row->answer);
    if (row->answer != NULL)
        *row->answer = *answer;
    else
        rows->failed = true;
}

static void match_baselines(sweep_rows *rows)
{
    for (int32_t i = 0; i < rows->count; i++) {
        sweep_row *row = &rows->row[i];
        /* A winner that stands for this problem was timed on another one, or elsewhere. */
        if (row->answer == NULL || !fa_origin_is_measured(row->answer->origin) ||
            !fa_problem_equal(&row->answer->problem, &row->item.problem))
            continue;
        const fa_baseline *baseline = rows->baselines.item;
        for (size_t b = 0; b < rows->baselines.count; b++)
            if (fa_baseline_concerns(&baseline[b], row->answer) &&
                (row->best == NULL || baseline[b].median_us < row->best->median_us))
                row->best = &baseline[b];
    }
}

/* What there is over what we take: above 1 is ahead of the best baseline; 0: not known. */
static double ratio_of(const sweep_row *row)
{
    return row->best != NULL && row->answer->trial.median_us > 0
               ? row->best->median_us / row->answer->trial.median_us
               : 0;
}

static bool slow(const sweep_row *row)
{
    double ratio = ratio_of(row);
    return ratio > 0 && ratio < SLOW;
}

/* ---- text -----------------------------------------------------------------------------------*/
static void put_speeds(cli_table *table, const sweep_row *row)
{
    const fa_answer *answer = row->answer;
    bool timed = answer->trial.median_us > 0, other = answer->origin == FA_ORIGIN_NEAREST;
    cli_text_known_time(&table->cell, &answer->trial, other);
    cli_cell_end(table);
    if (timed && !other)
        cli_text_interval(&table->cell, &answer->trial);
    cli_cell_end(table);
    if (timed && !other && answer->default_us > 0)
        fa_buf_printf(&table->cell, "%.2f%s", answer->default_us / answer->trial.median_us,
                      cli_sym()->times);
    cli_cell_end(table);
    if (ratio_of(row) > 0)
        fa_buf_printf(&table->cell, "%.2f%s %s%s", ratio_of(row), cli_sym()->times, row->best->peer,
                      slow(row) ? " SLOW" : "");
    cli_cell_end(table);
}

/* Whether problems of several operations are swept. */
static bool several_operations(const sweep_rows *rows)
{
    for (int32_t i = 1; i < rows->count; i++)
        if (fa_operation_of(&rows->row[i].item.problem) !=
            fa_operation_of(&rows->row[0].item.problem))
            return true;
    return false;
}

static void print_table(const sweep_rows *rows, bool with_gpu, fa_buf *out)
{
    bool with_operation = several_operations(rows);
    cli_table table = {0};
    for (int32_t i = 0; i < rows->count; i++) {
        const sweep_row *row = &rows->row[i];
        const char *gpu = row->answer != NULL     ? row->answer->gpu.name
                          : row->item.gpu[0] != 0 ? row->item.gpu
                                                  : "here";
        if (with_operation)
            cli_text_problem(&table.cell, &row->item.problem);
        else
            cli_text_problem_short(&table.cell, &row->item.problem);
        cli_cell_end(&table);
        cli_cell(&table, "%s", with_gpu ? gpu : "");
        if (row->answer != NULL) {
            put_speeds(&table, row);
            cli_cell(&table, "%s", fa_origin_name(row->answer->origin));
            cli_text_config(&table.cell, &row->answer->trial.config);
        } else {
            for (int c = 0; c < 4; c++) /* no times */
                cli_cell_end(&table);
            cli_cell(&table, "%s", fa_item_state_name(row->item.state));
        }
        cli_cell_end(&table);
        cli_row_end(&table);
    }
    cli_table_put(&table, "problem|?GPU|>time||>vs default|?vs best baseline|origin|config", out);
}

/* A problem that failed or is under way, with the reason. An fa_list_sweep_items visit. */
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

/* Speeds over the best baselines of all rows that have one. */
static void print_baselines(const sweep_rows *rows, fa_buf *out)
{
    int32_t ahead = 0, compared = 0;
    for (int32_t i = 0; i < rows->count; i++) {
        double ratio = ratio_of(&rows->row[i]);
        compared += ratio > 0;
        ahead += ratio >= 1;
    }
    if (compared > 0)
        fa_buf_printf(out, "%d of %d at or ahead of their best baseline\n", ahead, compared);
}

static void print_closing(const fa_sweep *sweep, const char *store, fa_buf *out)
{
    int32_t left = sweep->items - sweep->done - sweep->failed;
    fa_buf_printf(out, "%d of %d done", sweep->done, sweep->items);
    if (sweep->failed > 0)
        fa_buf_printf(out, ", %d failed (the same command tries them again)", sweep->failed);
    if (left > 0)
        fa_buf_printf(out, ", %d left", left);
    fa_buf_text(out, "; ");
    cli_text_spent(out, &sweep->spent, &sweep->budget);
    fa_buf_text(out, " spent, ");
    cli_text_count(out, sweep->spent.trials, "trial");
    fa_buf_text(out, ", ");
    cli_text_count(out, sweep->spent.compiled, "cubin");
    fa_buf_printf(out, " compiled, %" PRId64 " reused\n", sweep->spent.reused);
    if (sweep->state == FA_SWEEP_BUDGET_SPENT)
        fa_buf_printf(out,
                      "the budget is spent; %d problem%s left: the same command with a larger "
                      "budget goes on from here\n",
                      left, left == 1 ? " is" : "s are");
    fa_buf_text(out, "kept in ");
    cli_text_path(out, store);
    fa_buf_text(out, "\n");
}

static void print_text(const sweep_rows *rows, bool with_gpu, const fa_sweep *sweep, cli_run *run)
{
    print_table(rows, with_gpu, &run->out);
    for (int32_t i = 0; i < rows->count; i++)
        if (rows->row[i].item.state == FA_ITEM_FAILED)
            print_failed(&run->out, i, &rows->row[i].item);
    print_baselines(rows, &run->out);
    print_closing(sweep, fa_store_location(run->tuner), &run->out);
}

/* ---- JSON -----------------------------------------------------------------------------------*/
static void add_limit(cJSON *object, const char *name, double value)
{
    if (value > 0)
        fa_json_add_number(object, name, value);
    else
        fa_json_add_null(object, name);
}

static void add_spent(cJSON *object, const fa_sweep_spent *spent)
{
    cJSON *json = fa_json_add_object(object, "spent");
    fa_json_add_number(json, "seconds", spent->seconds);
    fa_json_add_number(json, "trials", (double)spent->trials);
    fa_json_add_number(json, "cost", spent->cost);
    fa_json_add_number(json, "cubins_compiled", (double)spent->compiled);
    fa_json_add_number(json, "cubins_reused", (double)spent->reused);
}

static cJSON *sweep_json(const fa_sweep *sweep)
{
    char *text = NULL;
    cJSON *json = fa_sweep_write(sweep, &text, NULL) == 0 ? cJSON_Parse(text) : NULL;
    free(text);
    return json;
}

static cJSON *json_baseline(const sweep_row *row)
{
    double ratio = ratio_of(row);
    if (!(ratio > 0))
        return cJSON_CreateNull();
    cJSON *json = cJSON_CreateObject();
    fa_json_add_text(json, "peer", row->best->peer);
    fa_json_add_number(json, "median_us", row->best->median_us);
    add_limit(json, "low_us", row->best->low_us);
    add_limit(json, "high_us", row->best->high_us);
    fa_json_add_text(json, "source", row->best->source);
    fa_json_add_number(json, "speed_ratio", ratio);
    fa_json_add_bool(json, "slow", slow(row));
    return json;
}

static cJSON *json_row(const sweep_row *row)
{
    cJSON *json = cJSON_CreateObject();
    fa_json_add(json, "problem", fa_problem_to_json(&row->item.problem));
    if (row->answer != NULL && !fa_problem_equal(&row->answer->problem, &row->item.problem))
        fa_json_add(json, "answered_problem", fa_problem_to_json(&row->answer->problem));
    fa_json_add(json, "gpu",
                row->answer != NULL ? fa_gpu_to_json(&row->answer->gpu) : cJSON_CreateNull());
    fa_json_add_text(json, "asked_gpu", row->item.gpu);
    fa_json_add_text(json, "state", fa_item_state_name(row->item.state));
    fa_json_add_number(json, "attempts", row->item.attempts);
    fa_json_add_text(json, "reason", row->item.reason);
    add_spent(json, &row->item.spent);
    fa_json_add(json, "answer",
                row->answer != NULL ? cli_json_answer(row->answer) : cJSON_CreateNull());
    fa_json_add(json, "baseline", json_baseline(row));
    return json;
}

static void put_result(const sweep_rows *rows, bool with_gpu, const fa_sweep *sweep, cli_run *run)
{
    if (!run->options->json) {
        print_text(rows, with_gpu, sweep, run);
        return;
    }
    fa_json_add(run->document, "sweep", sweep_json(sweep));
    cJSON *items = fa_json_add_array(run->document, "items");
    for (int32_t i = 0; i < rows->count; i++)
        fa_json_push(items, json_row(&rows->row[i]));
    fa_json_add_text(run->document, "store", fa_store_location(run->tuner));
}

/* ---- the request ----------------------------------------------------------------------------*/
struct sweep {
    cli_run *run;
    cli_grid grid;
    sweep_rows rows;
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
        .strategy = options->search.strategy,
        .evaluations = options->search.evaluations,
        .seconds_each = options->search.seconds,
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
        keep_item(&s->rows, event->index, event->item);
    if (event->answer != NULL)
        keep_answer(&s->rows, event->index, event->answer);
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
    fa_json_push(list->array, sweep_json(sweep));
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

static int print_status(cli_run *run, const fa_sweep *sweep)
{
    fa_buf *out = &run->out;
    fa_json_add(run->document, "sweep", sweep_json(sweep));
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
    fprintf(stderr, "the same command continues\n");
    return status;
}

static int run_sweep(struct sweep *s)
{
    cli_run *run = s->run;
    fa_sweep_request request = request_of(run->options, &s->grid);
    fa_sweep sweep = {0};
    if (rows_init(&s->rows, s->grid.item, s->grid.count) != 0)
        return fa_fail(&run->diag, FA_ENOMEM, "out of memory for a sweep");
    request.progress = on_event;
    request.context = s;
    int rc = fa_run_sweep(run->tuner, &request, &sweep, &run->diag);
    cli_sweep_progress_end(&s->progress);
    if (rc != 0)
        return stopped(run, rc, &sweep);
    rc = fa_list_sweep_items(run->tuner, sweep.key, keep_item, &s->rows, &run->diag);
    if (rc == 0)
        rc = fa_list_baselines(run->tuner, keep_baseline, &s->rows, &run->diag);
    if (s->rows.failed || s->rows.baselines.failed)
        rc = fa_fail(&run->diag, FA_ENOMEM, "out of memory for a sweep's result");
    if (rc != 0)
        return rc;
    match_baselines(&s->rows);
    put_result(&s->rows, s->progress.many_gpus, &sweep, run);
    int status = cli_print(run);
    if (status != 0 || sweep.failed == 0)
        return status;
    fa_buf hint = {0};
    cli_hint_store(&hint, "sweep --status", run->options);
    cli_tell("%d of %d problems failed, for the reasons above; %s shows them again", sweep.failed,
             sweep.items, hint.failed ? "the sweep's status" : hint.data);
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
    fa_json_add(run->document, "sweep", sweep_json(&sweep));
    fa_buf_printf(out, "%d problem%s in the queue of ", sweep.items, sweep.items == 1 ? "" : "s");
    cli_text_path(out, fa_store_location(run->tuner));
    if (sweep.done > 0)
        fa_buf_printf(out, ", %d of them done before", sweep.done);
    fa_buf_text(out, "\n");
    cli_hint_store(out, "worker", run->options);
    fa_buf_text(out, " works on it, ");
    cli_hint_store(out, "queue --follow", run->options);
    fa_buf_text(out, " shows its progress\n");
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

int cli_sweep(cli_run *run)
{
    const cli_options *options = run->options;
    struct sweep s = {.run = run};
    bool may_lack_grid = options->sweep.status || options->sweep.baseline != NULL;
    int rc = options->sweep.list && cli_grid_given(options)
                 ? fa_fail(&run->diag, FA_EINVAL, "--list: does not go with options of a grid")
                 : 0;
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
    rows_free(&s.rows);
    cli_grid_free(&s.grid);
    return rc;
}
