/* SPDX-License-Identifier: Apache-2.0 */

#include "json.h"
#include "problem.h"
#include "text.h"
#include "trial.h"
#include "wording.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COLUMNS_MAX = 64, GAP = 2 };

typedef struct cell {
    const char *text;
    size_t length;
} cell;

typedef struct column {
    const char *title;
    size_t length; /* of the title */
    size_t width;
    bool right, left_out;
} column;

void cli_cell_end(cli_table *table)
{
    if (table->cell.data != NULL)
        cli_text_safe(&table->text, table->cell.data);
    fa_buf_text(&table->text, "\t");
    table->text.failed |= table->cell.failed;
    fa_buf_clear(&table->cell);
}

void cli_cell(cli_table *table, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fa_buf_text(&table->cell, text);
    cli_cell_end(table);
}

void cli_row_end(cli_table *table)
{
    fa_buf_text(&table->text, "\n");
    table->rows++;
}

/* Reads the titles; returns how many there are. */
static size_t read_columns(const char *titles, column *columns)
{
    size_t count = 0;
    for (const char *at = titles; count < COLUMNS_MAX; at++) {
        column *c = &columns[count++];
        *c = (column){.left_out = *at == '?'};
        at += *at == '?';
        c->right = *at == '>';
        at += *at == '>';
        c->title = at;
        c->length = strcspn(at, "|");
        c->width = fa_columns_of(at, c->length);
        at += c->length;
        if (*at == 0)
            break;
    }
    return count;
}

/* The cells of the row at `at`; returns where the next row begins. */
static const char *read_row(const char *at, cell *cells, size_t count)
{
    for (size_t c = 0; c < count; c++) {
        cells[c] = (cell){at, strcspn(at, "\t\n")};
        at += cells[c].length;
        at += *at == '\t';
    }
    at += strcspn(at, "\n");
    return at + (*at == '\n');
}

static void measure(const char *text, column *columns, size_t count)
{
    cell cells[COLUMNS_MAX];
    while (*text != 0) {
        text = read_row(text, cells, count);
        for (size_t c = 0; c < count; c++) {
            size_t width = fa_columns_of(cells[c].text, cells[c].length);
            columns[c].left_out &= cells[c].length == 0;
            columns[c].width = width > columns[c].width ? width : columns[c].width;
        }
    }
}

/* The spaces before a cell that has text; none are left at a line's end. */
static void put_cell(const column *c, cell cell, size_t *owed, fa_buf *out)
{
    size_t taken = fa_columns_of(cell.text, cell.length);
    size_t pad = c->width > taken ? c->width - taken : 0;
    *owed += c->right ? GAP + pad : GAP;
    if (taken > 0) {
        fa_buf_printf(out, "%*s", (int)*owed, "");
        fa_buf_append(out, cell.text, cell.length);
        *owed = 0;
    }
    *owed += c->right ? 0 : pad;
}

static void put_row(const column *columns, const cell *cells, size_t count, fa_buf *out)
{
    size_t owed = 0;
    for (size_t c = 0; c < count; c++)
        if (!columns[c].left_out)
            put_cell(&columns[c], cells[c], &owed, out);
    fa_buf_text(out, "\n");
}

static void put_rows(const char *text, const column *columns, size_t count, fa_buf *out)
{
    cell cells[COLUMNS_MAX];
    for (size_t c = 0; c < count; c++)
        cells[c] = (cell){columns[c].title, columns[c].length};
    fa_buf_text(out, cli_style_begin(STDOUT_FILENO, CLI_BOLD));
    put_row(columns, cells, count, out);
    fa_buf_text(out, cli_style_end(STDOUT_FILENO));
    while (*text != 0) {
        text = read_row(text, cells, count);
        put_row(columns, cells, count, out);
    }
}

void cli_table_put(cli_table *table, const char *titles, fa_buf *out)
{
    column columns[COLUMNS_MAX];
    size_t count = read_columns(titles, columns);
    out->failed |= table->text.failed || table->cell.failed;
    if (table->rows > 0 && !out->failed) {
        measure(table->text.data, columns, count);
        put_rows(table->text.data, columns, count, out);
    }
    cli_table_free(table);
}

/* ---- as Markdown and as CSV ------------------------------------------------------------------*/
static void write_character(char c, bool csv, fa_buf *out)
{
    if (!csv && strchr("<>&", c) != NULL)
        fa_buf_text(out, c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;");
    else if (strchr(csv ? "\"" : "\\`*_[]|#~!", c) != NULL)
        fa_buf_printf(out, "%c%c", csv ? '"' : '\\', c);
    else
        fa_buf_append(out, &c, 1);
}

static void write_cell(cell cell, bool csv, fa_buf *out)
{
    bool runs = cell.length > 0 && strchr("=+-@", cell.text[0]) != NULL;
    bool quoted = csv && (runs || (cell.length > 0 && cell.text[0] == ' '));
    for (size_t i = 0; i < cell.length && csv; i++)
        quoted |= strchr(",\"\r\n;'", cell.text[i]) != NULL;
    fa_buf_text(out, !quoted ? "" : runs ? "\"'" : "\"");
    for (size_t i = 0; i < cell.length; i++)
        write_character(cell.text[i], csv, out);
    fa_buf_text(out, quoted ? "\"" : "");
}

static void write_row(const cell *cells, size_t count, bool csv, fa_buf *out)
{
    for (size_t c = 0; c < count; c++) {
        fa_buf_text(out, !csv ? (c > 0 ? " | " : "| ") : c > 0 ? "," : "");
        write_cell(cells[c], csv, out);
    }
    fa_buf_text(out, csv ? "\r\n" : " |\n");
}

void cli_table_write(cli_table *table, const char *titles, bool csv, fa_buf *out)
{
    column columns[COLUMNS_MAX];
    cell cells[COLUMNS_MAX] = {{0}};
    size_t count = read_columns(titles, columns);
    out->failed |= table->text.failed || table->cell.failed;
    for (size_t c = 0; c < count; c++)
        cells[c] = (cell){columns[c].title, columns[c].length};
    write_row(cells, count, csv, out);
    for (size_t c = 0; c < count && !csv; c++)
        fa_buf_printf(out, "|%s", columns[c].right ? "--:" : "---");
    fa_buf_text(out, csv ? "" : "|\n");
    for (const char *at = table->text.data; at != NULL && *at != 0;) {
        at = read_row(at, cells, count);
        write_row(cells, count, csv, out);
    }
    cli_table_free(table);
}

void cli_table_free(cli_table *table)
{
    fa_buf_free(&table->cell);
    fa_buf_free(&table->text);
    *table = (cli_table){0};
}

/* ---- configs as rows -------------------------------------------------------------------------*/
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
        fa_buf_text(columns, "|>");
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

static bool is_probe(const fa_trial *trial)
{
    return trial->median_us > 0 && !trial->raced;
}

static void put_ranked(cli_table *table, const cli_tunables *tunables, const cli_row *row,
                       bool ranked, bool raced, double default_us)
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
    cli_text_known_time(&table->cell, trial, row->elsewhere);
    cli_cell_end(table);
    if (timed && !row->elsewhere)
        cli_text_interval(&table->cell, trial);
    cli_cell(table, "%s", raced && is_probe(trial) ? cli_sym()->probe : "");
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
    fa_buf_text(&columns, "?>#|family");
    cli_tunables_columns(&tunables, &columns);
    fa_buf_text(&columns, "|>shared B|>regs|?>spill B|>blocks/SM|?>time||?>vs default");
    bool ranked = cli_rows_ranked(rows, count), raced = false, probed = false;
    for (size_t r = 0; r < count; r++) {
        raced = raced || rows[r].trial.raced;
        probed = probed || (rows[r].rank > 0 && is_probe(&rows[r].trial));
    }
    for (size_t r = 0; r < count; r++)
        if (rows[r].rank > 0)
            put_ranked(&table, &tunables, &rows[r], ranked, raced, default_us);
    out->failed |= columns.failed;
    cli_table_put(&table, columns.data != NULL ? columns.data : "", out);
    fa_buf_free(&columns);
    if (raced && probed)
        fa_buf_printf(out, "%s: a probe, timed alone; it ranks below every config that raced\n",
                      cli_sym()->probe);
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
