/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

#include "problem.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

int cli_rows_visit(void *context, int32_t rank, const fa_trial *trial)
{
    cli_rows *rows = context;
    if (rows->winner != NULL && rank > 0 && fa_config_equal(rows->winner, &trial->config))
        rows->winner_rank = rank;
    if (rows->ranked_limit > 0 && (rank < 1 || rank > rows->ranked_limit))
        return 0;
    cli_row *grown = fa_grow(rows->row, &rows->capacity, rows->count, sizeof *grown);
    if (grown == NULL) {
        rows->failed = true;
        return FA_ENOMEM;
    }
    rows->row = grown;
    rows->row[rows->count++] = (cli_row){.rank = rank, .trial = *trial};
    return 0;
}

void cli_rows_free(cli_rows *rows)
{
    free(rows->row);
    *rows = (cli_rows){0};
}

int cli_answer_compare(const fa_answer *a, const fa_answer *b)
{
    int gpu = strcmp(a->gpu.name, b->gpu.name);
    return gpu != 0 ? gpu : fa_problem_compare(&a->problem, &b->problem);
}

void cli_tunables_columns(cli_tunables *tunables, cli_table *table, const cli_row *rows,
                          size_t count)
{
    tunables->count = 0;
    for (size_t r = 0; r < count; r++) {
        const fa_config *config = &rows[r].trial.config;
        for (int i = 0; i < config->count; i++) {
            const char *name = config->tunable[i].name;
            int known = 0;
            while (known < tunables->count && strcmp(tunables->tunable[known].name, name) != 0)
                known++;
            if (known < tunables->count || known == CLI_COLUMNS_MAX)
                continue;
            tunables->tunable[known].name = name;
            tunables->tunable[known].column = cli_table_column(table, name, CLI_RIGHT);
            tunables->count++;
        }
    }
}

void cli_tunables_cells(const cli_tunables *tunables, cli_table *table, const fa_config *config)
{
    for (int i = 0; i < tunables->count; i++) {
        int32_t value;
        if (fa_config_get(config, tunables->tunable[i].name, &value))
            cli_table_cell(table, tunables->tunable[i].column, "%d", value);
        else
            cli_table_cell(table, tunables->tunable[i].column, "-");
    }
}

static void print_number(cli_table *table, int column, int64_t value, bool known, fa_buf *cell)
{
    if (known)
        cli_text_grouped(cell, value);
    else
        fa_buf_text(cell, "-");
    cli_table_take(table, column, cell);
}

bool cli_rows_ranked(const cli_row *rows, size_t count)
{
    bool ranked = count == 0;
    for (size_t r = 0; r < count; r++)
        ranked = ranked || rows[r].trial.median_us > 0 || rows[r].trial.predicted_us > 0;
    return ranked;
}

void cli_print_ranking(const cli_row *rows, size_t count, double default_us, fa_buf *out)
{
    cli_table table = {0};
    cli_tunables tunables;
    fa_buf cell = {0};
    bool ranked = cli_rows_ranked(rows, count);
    int rank = ranked ? cli_table_column(&table, "#", CLI_RIGHT) : -1;
    int family = cli_table_column(&table, "family", CLI_LEFT);
    cli_tunables_columns(&tunables, &table, rows, count);
    int smem = cli_table_column(&table, "shared B", CLI_RIGHT);
    int regs = cli_table_column(&table, "regs", CLI_RIGHT);
    int spills = ranked ? -1 : cli_table_column(&table, "spill B", CLI_RIGHT);
    int blocks = cli_table_column(&table, "blocks/SM", CLI_RIGHT);
    int time = ranked ? cli_table_column(&table, "time", CLI_RIGHT) : -1;
    int interval = cli_table_column(&table, "", CLI_LEFT);
    int speed = default_us > 0 ? cli_table_column(&table, "vs default", CLI_RIGHT) : -1;
    for (size_t r = 0; r < count; r++) {
        const fa_trial *trial = &rows[r].trial;
        if (rows[r].rank < 1)
            continue;
        cli_table_row(&table);
        cli_table_cell(&table, rank, "%d", rows[r].rank);
        cli_table_cell(&table, family, "%s", trial->config.family);
        cli_tunables_cells(&tunables, &table, &trial->config);
        print_number(&table, smem, trial->smem_bytes, trial->smem_bytes >= 0, &cell);
        print_number(&table, regs, trial->registers, trial->registers > 0, &cell);
        print_number(&table, spills, trial->spill_bytes, trial->spill_bytes >= 0, &cell);
        print_number(&table, blocks, trial->blocks_per_sm, trial->blocks_per_sm > 0, &cell);
        if (trial->median_us > 0) {
            cli_text_us(&cell, trial->median_us);
            cli_table_take(&table, time, &cell);
            cli_table_cell(&table, interval, "%s%.*f", cli_sym()->plus_minus,
                           trial->median_us < 9.995 ? 2 : 1, (trial->high_us - trial->low_us) / 2);
        } else if (trial->predicted_us > 0) {
            cli_text_about(&cell, trial->predicted_us);
            cli_table_take(&table, time, &cell);
        }
        if (speed >= 0 && trial->raced) /* only times of one race compare finely */
            cli_table_cell(&table, speed, "%.2f%s", default_us / trial->median_us,
                           cli_sym()->times);
        else
            cli_table_cell(&table, speed, "-");
    }
    cli_table_print(&table, out);
    cli_table_free(&table);
    fa_buf_free(&cell);
}
