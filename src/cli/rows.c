/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include "json.h"
#include "problem.h"
#include "text.h"
#include "wording.h"
#include "trial.h"
#include "tunable.h"

#include <stdlib.h>
#include <string.h>

int cli_rows_visit(void *context, int32_t rank, const fa_trial *trial)
{
    cli_rows *rows = context;
    if (rows->winner != NULL && rank > 0 && fa_config_equal(rows->winner, &trial->config))
        rows->winner_rank = rank;
    if (rows->ranked_limit > 0 && (rank < 1 || rank > rows->ranked_limit))
        return 0;
    cli_row row = {.rank = rank, .trial = *trial};
    rows->failed = fa_append(&rows->row, &rows->count, &rows->capacity, &row, sizeof row) != 0;
    return rows->failed ? FA_ENOMEM : 0;
}

void cli_rows_free(cli_rows *rows)
{
    free(rows->row);
    *rows = (cli_rows){0};
}

/* ---- the table ------------------------------------------------------------------------------*/
void cli_tunables_find(cli_tunables *tunables, const cli_row *rows, size_t count)
{
    enum { MOST = sizeof tunables->name / sizeof *tunables->name };
    tunables->count = 0;
    for (size_t r = 0; r < count; r++) {
        const fa_config *config = &rows[r].trial.config;
        for (int i = 0; i < config->count; i++) {
            int known = 0;
            while (known < tunables->count &&
                   strcmp(tunables->name[known], config->tunable[i].name) != 0)
                known++;
            if (known == tunables->count && known < MOST)
                tunables->name[tunables->count++] = config->tunable[i].name;
        }
    }
}

void cli_tunables_columns(const cli_tunables *tunables, fa_buf *columns)
{
    for (int i = 0; i < tunables->count; i++) {
        fa_buf_text(columns, "|~>");
        cli_text_safe(columns, tunables->name[i]);
    }
}

void cli_tunables_cells(const cli_tunables *tunables, cli_table *table, const fa_config *config)
{
    for (int i = 0; i < tunables->count; i++) {
        int32_t value;
        char room[FA_VALUE_TEXT_MAX];
        if (fa_config_get(config, tunables->name[i], &value))
            cli_cell(table, "%s", fa_value_words(value, room));
        else
            cli_cell(table, "-");
    }
}

static void put_number(cli_table *table, int64_t value, bool known)
{
    if (known)
        fa_words_grouped(&table->cell, value);
    cli_cell(table, "%s", known ? "" : "-");
}

bool cli_rows_ranked(const cli_row *rows, size_t count)
{
    bool ranked = count == 0;
    for (size_t r = 0; r < count; r++)
        ranked = ranked || rows[r].trial.median_us > 0 || rows[r].trial.predicted_us > 0;
    return ranked;
}

static void put_row(cli_table *table, const cli_tunables *tunables, const cli_row *row, bool ranked,
                    double default_us)
{
    const fa_trial *trial = &row->trial;
    bool timed = trial->median_us > 0;
    cli_cell(table, "%.0d", ranked && !row->tied ? row->rank : 0);
    cli_cell(table, "%s", trial->config.family);
    cli_tunables_cells(tunables, table, &trial->config);
    put_number(table, (int64_t)trial->smem_bytes + trial->static_smem_bytes,
               trial->smem_bytes >= 0);
    put_number(table, trial->registers, trial->registers > 0);
    if (ranked)
        cli_cell_end(table);
    else
        put_number(table, trial->spill_bytes, trial->spill_bytes >= 0);
    put_number(table, trial->blocks_per_sm, trial->blocks_per_sm > 0);
    cli_text_known_time(&table->cell, trial);
    cli_cell_end(table);
    if (timed)
        cli_text_interval(&table->cell, trial);
    cli_cell_end(table);
    if (default_us > 0 && trial->raced) /* only times of one race compare finely */
        cli_cell(table, "%.2f%s", default_us / trial->median_us, cli_sym()->times);
    else
        cli_cell(table, "%s", default_us > 0 ? "-" : "");
    cli_row_end(table);
}

void cli_print_ranking(const cli_row *rows, size_t count, double default_us, fa_buf *out)
{
    cli_table table = {0};
    cli_tunables tunables;
    fa_buf columns = {0};
    cli_tunables_find(&tunables, rows, count);
    fa_buf_text(&columns, "?>#|~family");
    cli_tunables_columns(&tunables, &columns);
    fa_buf_text(&columns, "|~>shared B|~>regs|?~>spill B|~>blocks/SM|?>time||?>vs default");
    bool ranked = cli_rows_ranked(rows, count);
    for (size_t r = 0; r < count; r++)
        if (rows[r].rank > 0)
            put_row(&table, &tunables, &rows[r], ranked, default_us);
    out->failed |= columns.failed;
    cli_table_put(&table, columns.data != NULL ? columns.data : "", out);
    fa_buf_free(&columns);
}

cJSON *cli_json_rows(const cli_row *rows, size_t count)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t r = 0; r < count && array != NULL; r++) {
        cJSON *object = cJSON_CreateObject();
        fa_json_add_known(object, "rank", rows[r].rank,
                          rows[r].rank > 0 && !rows[r].tied && cli_rows_ranked(&rows[r], 1));
        fa_trial_add_json(object, &rows[r].trial);
        fa_json_push(array, object);
    }
    return array;
}
