/* SPDX-License-Identifier: Apache-2.0 */
#include "sweep_out.h"

#include "error.h"
#include "json_make.h"
#include "problem.h"
#include "table.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Slower than this share of the best baseline's speed is worth a person's time. */
static const double SLOW = 0.5;

/* ---- rows -----------------------------------------------------------------------------------*/
int cli_sweep_rows_init(cli_sweep_rows *rows, const fa_sweep_item *items, int32_t count)
{
    *rows = (cli_sweep_rows){.row = calloc((size_t)count, sizeof *rows->row), .count = count};
    for (int32_t i = 0; i < count && rows->row != NULL; i++)
        rows->row[i].item = items[i];
    return rows->row != NULL ? 0 : FA_ENOMEM;
}

void cli_sweep_rows_free(cli_sweep_rows *rows)
{
    for (int32_t i = 0; i < rows->count && rows->row != NULL; i++)
        free(rows->row[i].answer);
    free(rows->row);
    free(rows->baseline);
    *rows = (cli_sweep_rows){0};
}

int cli_sweep_rows_baseline(void *context, const fa_baseline *baseline)
{
    cli_sweep_rows *rows = context;
    fa_baseline *grown =
        fa_grow(rows->baseline, &rows->baseline_capacity, rows->baseline_count, sizeof *grown);
    if (grown == NULL) {
        rows->failed = true;
        return FA_ENOMEM;
    }
    rows->baseline = grown;
    rows->baseline[rows->baseline_count++] = *baseline;
    return 0;
}

int cli_sweep_rows_item(void *context, int32_t index, const fa_sweep_item *item)
{
    cli_sweep_rows *rows = context;
    if (index < rows->count)
        rows->row[index].item = *item;
    return 0;
}

void cli_sweep_rows_answer(cli_sweep_rows *rows, int32_t index, const fa_answer *answer)
{
    cli_sweep_row *row = &rows->row[index];
    if (row->answer == NULL)
        row->answer = malloc(sizeof *row->answer);
    if (row->answer != NULL)
        *row->answer = *answer;
    else
        rows->failed = true;
}

void cli_sweep_rows_match(cli_sweep_rows *rows)
{
    for (int32_t i = 0; i < rows->count; i++) {
        cli_sweep_row *row = &rows->row[i];
        /* A winner that stands for this problem was timed on another one, or elsewhere. */
        if (row->answer == NULL || !fa_origin_is_measured(row->answer->origin) ||
            !fa_problem_equal(&row->answer->problem, &row->item.problem))
            continue;
        for (size_t b = 0; b < rows->baseline_count; b++)
            if (fa_baseline_concerns(&rows->baseline[b], row->answer) &&
                (row->best == NULL || rows->baseline[b].median_us < row->best->median_us))
                row->best = &rows->baseline[b];
    }
}

/* What there is over what we take: above 1 is ahead of the best baseline; 0: not known. */
static double ratio_of(const cli_sweep_row *row)
{
    return row->best != NULL && row->answer->trial.median_us > 0
               ? row->best->median_us / row->answer->trial.median_us
               : 0;
}

static bool slow(const cli_sweep_row *row)
{
    double ratio = ratio_of(row);
    return ratio > 0 && ratio < SLOW;
}

/* ---- text -----------------------------------------------------------------------------------*/
static void put_speeds(cli_table *table, const cli_sweep_row *row)
{
    const fa_answer *answer = row->answer;
    bool timed = answer->trial.median_us > 0, other = answer->origin == FA_ORIGIN_NEAREST;
    if (timed && other) /* of other lengths */
        cli_text_about(&table->cell, answer->trial.median_us);
    else
        cli_text_known_time(&table->cell, &answer->trial);
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

static void print_table(const cli_sweep_rows *rows, bool with_gpu, fa_buf *out)
{
    cli_table table = {0};
    for (int32_t i = 0; i < rows->count; i++) {
        const cli_sweep_row *row = &rows->row[i];
        const char *gpu = row->answer != NULL     ? row->answer->gpu.name
                          : row->item.gpu[0] != 0 ? row->item.gpu
                                                  : "here";
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
            fa_buf_text(&table.cell, row->item.state == FA_ITEM_FAILED ? row->item.reason : "");
        }
        cli_cell_end(&table);
        cli_row_end(&table);
    }
    cli_table_put(&table, "problem|?GPU|>time||>vs default|?vs best baseline|origin|config", out);
}

static bool coloured(void)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && (none == NULL || none[0] == 0) && term != NULL &&
           strcmp(term, "dumb") != 0;
}

static void print_slow(const cli_sweep_rows *rows, fa_buf *out)
{
    bool red = coloured(), any = false;
    for (int32_t i = 0; i < rows->count; i++) {
        const cli_sweep_row *row = &rows->row[i];
        if (!slow(row))
            continue;
        any = true;
        fa_buf_printf(out, "%sSLOW%s ", red ? "\033[1;31m" : "", red ? "\033[0m" : "");
        cli_text_problem_short(out, &row->item.problem);
        fa_buf_printf(out, ": %.2f%s the speed of %s, which takes ", ratio_of(row),
                      cli_sym()->times, row->best->peer);
        cli_text_us(out, row->best->median_us);
        fa_buf_text(out, "\n");
    }
    if (any)
        fa_buf_text(out, "profile what is below half a baseline's speed: `ncu --set full` on a "
                         "program that launches its winner, as examples/tune_and_launch.c does\n");
}

/* Speeds over the best baselines of all rows that have one. */
static void print_baselines(const cli_sweep_rows *rows, fa_buf *out)
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
    fa_buf_printf(out,
                  " spent, %" PRId64 " trials, %" PRId64 " cubins compiled, %" PRId64 " reused\n",
                  sweep->spent.trials, sweep->spent.compiled, sweep->spent.reused);
    if (sweep->state == FA_SWEEP_BUDGET_SPENT)
        fa_buf_printf(out,
                      "the budget is spent; %d problem%s left: the same command with a larger "
                      "budget goes on from here\n",
                      left, left == 1 ? " is" : "s are");
    fa_buf_text(out, "kept in ");
    cli_text_path(out, store);
    fa_buf_text(out, "\n");
}

static bool several_gpus(const cli_sweep_rows *rows)
{
    for (int32_t i = 1; i < rows->count; i++)
        if (strcmp(rows->row[i].item.gpu, rows->row[0].item.gpu) != 0)
            return true;
    return false;
}

static void print_text(const cli_sweep_rows *rows, const fa_sweep *sweep, cli_run *run)
{
    print_table(rows, several_gpus(rows), &run->out);
    print_slow(rows, &run->out);
    print_baselines(rows, &run->out);
    print_closing(sweep, cli_location(run->tuner), &run->out);
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

cJSON *cli_json_sweep(const fa_sweep *sweep)
{
    char *text = NULL;
    cJSON *json = fa_sweep_write(sweep, &text, NULL) == 0 ? cJSON_Parse(text) : NULL;
    free(text);
    return json;
}

static cJSON *json_baseline(const cli_sweep_row *row)
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

static cJSON *json_row(const cli_sweep_row *row)
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

void cli_sweep_put(const cli_sweep_rows *rows, const fa_sweep *sweep, cli_run *run)
{
    if (!run->options->json) {
        print_text(rows, sweep, run);
        return;
    }
    fa_json_add(run->document, "sweep", cli_json_sweep(sweep));
    cJSON *items = fa_json_add_array(run->document, "items");
    for (int32_t i = 0; i < rows->count; i++)
        fa_json_push(items, json_row(&rows->row[i]));
    cli_json_location(run->document, run->tuner);
}
