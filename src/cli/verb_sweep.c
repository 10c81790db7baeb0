/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep: a grid of problems as one job in the store, and how it stands. worker takes problems from the store's queue until it
 * is told to stop, with a line on stderr for each and at the end what came of them; queue says how it stands; push brings
 * what was kept in the local file to the server.
 */
#include "error.h"
#include "json.h"
#include "problem.h"
#include "run.h"
#include "text.h"
#include "trial.h"
#include "words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A problem's result; its item is the grid's. */
typedef struct row {
    bool known; /* it has an answer */
    fa_answer answer;
} row;

typedef struct sweep_run {
    cli_run *run;
    cli_grid grid;
    row *row;
    int32_t before;     /* items that an earlier run has done, until they are told in one line */
} sweep_run;

/* ---- words ----------------------------------------------------------------------------------*/
/* A problem, with the GPU that was named for it. */
static void text_item(fa_buf *out, const fa_sweep_item *item)
{
    fa_problem_words(out, &item->problem, " · ", false);
    fa_buf_text(out, item->gpu[0] != 0 ? " · " : "");
    cli_text_safe(out, item->gpu);
}

/* "12 min of 30 min, 40 of 100 trials": what has been spent of what there is. */
static void text_spent(fa_buf *out, const fa_sweep *sweep)
{
    cli_text_seconds(out, sweep->spent.seconds);
    if (sweep->budget.seconds > 0) {
        fa_buf_text(out, " of ");
        cli_text_seconds(out, sweep->budget.seconds);
    }
    if (sweep->budget.trials > 0)
        fa_buf_printf(out, ", %" PRId64 " of %" PRId64 " trials", sweep->spent.trials,
                      sweep->budget.trials);
}

/* A problem that failed, with the reason. */
static void text_failed(fa_buf *out, const fa_sweep_item *item)
{
    fa_buf_printf(out, "%s: ", fa_item_state_name(item->state));
    text_item(out, item);
    fa_buf_text(out, item->reason[0] != 0 ? ": " : "");
    cli_text_safe(out, item->reason);
    fa_buf_text(out, "\n");
}

/* ---- progress: a line as each problem ends and, between them, one about all of them -----------*/
static void text_ended(fa_buf *out, const fa_sweep *sweep)
{
    fa_buf_printf(out, "%d/%d", sweep->done + sweep->failed, sweep->items);
    if (sweep->failed > 0)
        fa_buf_printf(out, ", %d failed", sweep->failed);
}

/* "[3/48] problem: 41.3 µs, 1.31× default", that it begins, or why it failed; a worker counts nothing. */
static void tell_item(cli_progress *progress, const fa_sweep_progress *event)
{
    const fa_sweep_item *item = event->item;
    const fa_answer *answer = event->answer;
    fa_buf line = {0};
    if (event->sweep != NULL) {
        fa_buf_text(&line, "[");
        text_ended(&line, event->sweep);
        fa_buf_text(&line, "] ");
    }
    text_item(&line, item);
    fa_buf_text(&line, ": ");
    if (event->event == FA_SWEEP_ITEM_BEGINS) {
        fa_buf_text(&line, item->stage == FA_WORK_MEASURE ? "measuring" : "compiling");
    } else if (item->state == FA_ITEM_FAILED) {
        fa_buf_text(&line, "failed: ");
        cli_text_safe(&line, item->reason);
    } else if (item->state == FA_ITEM_DONE) {
        cli_text_trial_time(&line, &answer->trial, false);
        if (answer->trial.median_us > 0 && answer->default_us > 0)
            fa_buf_printf(&line, ", %.2f× default", answer->default_us / answer->trial.median_us);
        fa_buf_text(&line, answer->from_store ? ", from the store" : "");
    } else {
        fa_buf_text(&line, answer != NULL ? "compiled" : "handed back");
    }
    cli_progress_put(progress, &line, false);
}

static void tell_before(sweep_run *s)
{
    fa_buf line = {0};
    if (s->before > 0) {
        fa_buf_printf(&line, "%d of %d problems were done before", s->before, s->grid.count);
        cli_progress_put(&s->run->progress, &line, false);
    }
    s->before = 0;
}

static int on_event(void *context, const fa_sweep_progress *event)
{
    sweep_run *s = context;
    cli_progress *lines = &s->run->progress;
    const fa_progress *tune = event->event == FA_SWEEP_ITEM_TUNES ? event->tune : NULL;
    const bool ends = event->event == FA_SWEEP_ITEM_ENDS,
               known = event->event == FA_SWEEP_ITEM_KNOWN;
    if (ends || known)
        s->grid.item[event->index] = *event->item;
    if (event->answer != NULL)
        s->row[event->index] = (row){.known = true, .answer = *event->answer};
    s->before += known && lines->rows;
    if (!known)
        tell_before(s);
    if (ends && lines->rows)
        tell_item(lines, event);
    if (tune != NULL && tune->stage != FA_STAGE_DONE && cli_progress_is_due(lines)) {
        fa_buf line = {0}; /* what matters most comes first: a narrow terminal cuts the rest */
        text_ended(&line, event->sweep);
        fa_buf_text(&line, " · ");
        fa_problem_words(&line, &event->item->problem, " ", true);
        fa_buf_text(&line, event->item->gpu[0] != 0 ? " " : "");
        cli_text_safe(&line, event->item->gpu);
        fa_buf_text(&line, ": ");
        cli_text_counts(&line, tune);
        fa_buf_text(&line, " · ");
        text_spent(&line, event->sweep);
        fa_buf_text(&line, " spent");
        cli_progress_put(lines, &line, true);
    }
    return cli_interrupted();
}

/* ---- the result as text ---------------------------------------------------------------------*/
static void put_table(const sweep_run *s, fa_buf *out)
{
    cli_table table = {0};
    for (int32_t i = 0; i < s->grid.count; i++) {
        const fa_sweep_item *item = &s->grid.item[i];
        const fa_answer *answer = s->row[i].known ? &s->row[i].answer : NULL;
        const fa_trial *trial = &s->row[i].answer.trial; /* zeros where there is none */
        const bool other = s->row[i].answer.origin == FA_ORIGIN_NEAREST,
                   timed = trial->median_us > 0 && !other;
        const char *gpu = answer != NULL      ? answer->gpu.name
                          : item->gpu[0] != 0 ? item->gpu
                                              : "here";
        cli_answer_cells(&table, &item->problem, gpu, answer, fa_item_state_name(item->state));
        cli_text_known_time(&table.cell, trial, other);
        cli_cell_end(&table);
        if (timed)
            cli_text_interval(&table.cell, trial);
        cli_cell_end(&table);
        if (timed && answer->default_us > 0)
            fa_buf_printf(&table.cell, "%.2f×", answer->default_us / trial->median_us);
        cli_cell_end(&table);
        cli_text_config(&table.cell, &trial->config);
        cli_row_end(&table);
    }
    cli_table_put(&table, "problem|GPU|origin|>time||>vs default|config", out);
}

static void put_text(const sweep_run *s, const fa_sweep *sweep, fa_buf *out)
{
    const int32_t left = sweep->items - sweep->done - sweep->failed;
    put_table(s, out);
    for (int32_t i = 0; i < s->grid.count; i++)
        if (s->grid.item[i].state == FA_ITEM_FAILED)
            text_failed(out, &s->grid.item[i]);
    fa_buf_printf(out, "%d of %d done", sweep->done, sweep->items);
    if (sweep->failed > 0)
        fa_buf_printf(out, ", %d failed (the same command tries them again)", sweep->failed);
    if (left > 0)
        fa_buf_printf(out, ", %d left", left);
    fa_buf_text(out, "; ");
    text_spent(out, sweep);
    cli_text_count(out, " spent, ", sweep->spent.trials, "trial");
    cli_text_count(out, ", ", sweep->spent.compiled, "cubin");
    fa_buf_printf(out, " compiled, %" PRId64 " reused\n", sweep->spent.reused);
    if (sweep->state == FA_SWEEP_BUDGET_SPENT)
        fa_buf_text(out, "the budget is spent: the same command with a larger one goes on\n");
    cli_text_store(s->run, "kept in ");
}

/* ---- the result as JSON ---------------------------------------------------------------------*/
static const fa_member item_members[] = {
    FA_MEMBER("asked_gpu", TEXT, fa_sweep_item, gpu),
    FA_MEMBER("state", CHOICE, fa_sweep_item, state, .names = fa_item_state_names),
    FA_MEMBER("attempts", COUNT, fa_sweep_item, attempts),
    FA_MEMBER("reason", TEXT, fa_sweep_item, reason),
    FA_MEMBER("spent", STRUCT, fa_sweep_item, spent, .members = fa_sweep_spent_members),
    {0}};

static cJSON *sweep_json(const fa_sweep *sweep)
{
    char *text = NULL;
    return cli_json_of(fa_sweep_write(sweep, &text, NULL), &text);
}

/* ---- the request ----------------------------------------------------------------------------*/
static fa_sweep_request request_of(const cli_options *options, const cli_grid *grid)
{
    return (fa_sweep_request){
        .size = sizeof(fa_sweep_request),
        .items = grid->item,
        .count = grid->count,
        .plan = options->typed,
        .restart = options->sweep.restart,
        .each = options->request,
        .budget = {.seconds = options->sweep.seconds, .trials = options->sweep.trials},
    };
}

/* ---- how sweeps stand -----------------------------------------------------------------------*/
/* How they stand, one a row. */
static void put_sweeps(fa_buf *out, const fa_sweep *sweep, size_t count)
{
    cli_table table = {0};
    for (size_t i = 0; i < count; i++, sweep++) {
        const bool begun =
            sweep->running + sweep->done + sweep->failed > 0 || sweep->spent.seconds > 0;
        cli_cell(&table, "%s",
                 begun || sweep->state != FA_SWEEP_RUNNING ? fa_sweep_state_name(sweep->state)
                                                           : "waiting");
        cli_cell(&table, "%d/%d", sweep->done, sweep->items);
        cli_cell(&table, "%.0d", sweep->failed);
        cli_cell(&table, "%.0d", sweep->running);
        cli_cell(&table, "%.0d", sweep->compiled);
        text_spent(&table.cell, sweep);
        cli_cell_end(&table);
        if (begun)
            fa_words_time(&table.cell, sweep->updated);
        else
            fa_buf_text(&table.cell, "not yet");
        cli_cell_end(&table);
        cli_cell(&table, "%.10s", sweep->key);
        cli_cell(&table, "%s", sweep->plan);
        cli_row_end(&table);
    }
    cli_table_put(&table, "state|done|?>failed|?>held|?>compiled|spent|worked on|key|plan", out);
}

/* ---- a run ----------------------------------------------------------------------------------*/
/* Stopped by the person who runs it, or by what would stop every problem. */
static int stopped(cli_run *run, int rc, const fa_sweep *sweep)
{
    if (rc != FA_ECANCELED)
        return rc;
    int status = cli_interrupted() != 0 ? 128 + cli_interrupted() : cli_fail(run, rc);
    fprintf(stderr, "fa-tune: stopped; %d of %d problems are done, the same command continues\n",
            sweep->done, sweep->items);
    return status;
}

static int run_sweep(sweep_run *s)
{
    cli_run *run = s->run;
    fa_sweep_request request = request_of(run->options, &s->grid);
    fa_sweep sweep = {0};
    FA_ENDS(fa_free_at) fa_sweep_item *item = NULL;
    size_t count = 0;
    s->row = calloc((size_t)s->grid.count, sizeof *s->row);
    FA_OR_RETURN(fa_have(s->row != NULL, "a sweep", &run->diag));
    request.progress = on_event;
    request.context = s;
    int rc = fa_run_sweep(run->tuner, &request, &sweep, &run->diag);
    tell_before(s);
    cli_progress_end(&run->progress);
    if (rc != 0)
        return stopped(run, rc, &sweep);
    rc = fa_list_sweep_items(run->tuner, sweep.key, &item, &count, &run->diag);
    for (size_t i = 0; i < count; i++) /* those, too, that no event was about */
        if (item[i].index < s->grid.count)
            s->grid.item[item[i].index] = item[i];
    FA_OR_RETURN(rc);
    fa_json_add(run->document, "sweep", sweep_json(&sweep));
    cJSON *items = fa_json_add_array(run->document, "items");
    for (int32_t i = 0; i < s->grid.count && items != NULL; i++) {
        const fa_problem *asked = &s->grid.item[i].problem;
        const fa_answer *answer = s->row[i].known ? &s->row[i].answer : NULL;
        cJSON *json = cJSON_CreateObject();
        fa_json_add(json, "problem", fa_problem_to_json(asked));
        if (answer != NULL && !fa_problem_equal(&answer->problem, asked))
            fa_json_add(json, "answered_problem", fa_problem_to_json(&answer->problem));
        fa_json_add(json, "gpu",
                    answer != NULL ? fa_gpu_to_json(&answer->gpu) : cJSON_CreateNull());
        fa_struct_add_json(json, item_members, &s->grid.item[i]);
        fa_json_add(json, "answer", answer != NULL ? cli_json_answer(answer) : cJSON_CreateNull());
        fa_json_push(items, json);
    }
    put_text(s, &sweep, &run->out);
    rc = cli_print(run);
    if (rc != 0 || sweep.failed == 0)
        return rc;
    cli_tell("%d of %d problems failed, for the reasons above", sweep.failed, sweep.items);
    return EXIT_FAILED;
}

/* Into the store's queue; workers do the rest. */
static int enqueue(cli_run *run, const cli_grid *grid)
{
    fa_sweep_request request = request_of(run->options, grid);
    fa_buf *out = &run->out;
    fa_sweep sweep;
    request.enqueue = true;
    FA_OR_RETURN(fa_run_sweep(run->tuner, &request, &sweep, &run->diag));
    fa_json_add(run->document, "sweep", sweep_json(&sweep));
    cli_text_count(out, "", sweep.items, "problem");
    if (sweep.done > 0)
        fa_buf_printf(out, ", %d of them done before,", sweep.done);
    cli_text_store(run, " in the queue of ");
    fa_buf_text(out, "`fa-tune worker` works on it, `fa-tune queue` shows its progress\n");
    return 0;
}

int cli_sweep(cli_run *run)
{
    const cli_options *options = run->options;
    sweep_run s = {.run = run};
    int rc = cli_grid_make(options, &s.grid, &run->diag);
    if (rc != 0)
        return cli_error(rc == FA_ENOMEM ? EXIT_FAILED : EXIT_USAGE, &run->diag);
    rc = cli_open(run, false);
    if (rc == 0)
        rc = options->fleet.enqueue ? enqueue(run, &s.grid) : run_sweep(&s);
    free(s.row);
    cli_grid_free(&s.grid);
    return rc;
}

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

static int on_worked(void *context, const fa_sweep_progress *event)
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
        tell_item(work->lines, event);
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
        .progress = on_worked,
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
    FA_OR_RETURN(fa_push(run->tuner, &pushed, &run->diag));
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
    FA_ENDS(fa_free_at) fa_sweep_item *item = NULL;
    size_t count = 0;
    int rc = fa_list_sweep_items(run->tuner, sweep->key, &item, &count, &run->diag);
    for (size_t i = 0; i < count; i++) {
        if (item[i].state == FA_ITEM_FAILED)
            text_failed(out, &item[i]);
        if (item[i].state != FA_ITEM_RUNNING)
            continue;
        cli_text_safe(out, item[i].holder);
        fa_buf_text(out, item[i].stage == FA_WORK_MEASURE ? " measures " : " compiles ");
        text_item(out, &item[i]);
        fa_buf_text(out, "\n");
    }
    return rc;
}

static int stop_sweep(cli_run *run, const char *typed)
{
    FA_ENDS(fa_free_at) fa_sweep *sweep = NULL;
    size_t count = 0, found = 0, at = 0;
    FA_OR_RETURN(fa_list_sweeps(run->tuner, &sweep, &count, &run->diag));
    for (size_t i = 0; i < count; i++)
        if (strncmp(sweep[i].key, typed, strlen(typed)) == 0)
            found++, at = i;
    if (found == 1)
        return fa_stop_sweep(run->tuner, sweep[at].key, &run->diag);
    if (found > 1)
        return cli_refuse("--stop", typed, "one sweep's key, but begins several: give more of it",
                          NULL, &run->diag);
    cli_refuse("--stop", typed, "the key of a sweep in this queue", NULL, &run->diag);
    return FA_ENOTFOUND;
}

int cli_queue(cli_run *run)
{
    FA_ENDS(fa_free_at) fa_sweep *sweep = NULL;
    size_t count = 0;
    char *text = NULL;
    const char *stop = run->options->fleet.stop;
    int rc = stop != NULL ? stop_sweep(run, stop) : 0;
    if (rc == 0)
        rc = fa_list_sweeps(run->tuner, &sweep, &count, &run->diag);
    if (rc == 0 && run->options->json) {
        rc = fa_queue_write(run->tuner, &text, &run->diag);
        FA_ENDS(fa_json_end) cJSON *queue = cli_json_of(rc, &text);
        fa_json_add(run->document, "sweeps",
                    cJSON_DetachItemFromObjectCaseSensitive(queue, "sweeps"));
    } else if (rc == 0) {
        put_sweeps(&run->out, sweep, count);
        for (size_t i = 0; i < count && rc == 0; i++)
            if (sweep[i].running + sweep[i].failed > 0)
                rc = put_open(run, &sweep[i]);
        cli_text_count(&run->out, "", (int64_t)count, "sweep");
        cli_text_store(run, " in the queue of ");
    }
    return rc;
}
