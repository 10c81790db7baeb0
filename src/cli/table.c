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

enum { COLUMNS_MAX = 64, GAP = 2, WRAPPED_LEAST = 32, WRAPPED_NARROWEST = 12 };

typedef struct cell {
    const char *text;
    size_t length;
} cell;

typedef struct column {
    const char *title;
    size_t length; /* of the title */
    size_t width, least; /* least: what a wrapped one needs, for its longest word */
    bool right, left_out, may_go, wraps, gone; /* gone: for want of width */
    cell same; /* the text of all of its cells; NULL where they differ */
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
        c->may_go = *at == '~';
        at += *at == '~';
        c->wraps = *at == '=';
        at += *at == '=';
        c->right = *at == '>';
        at += *at == '>';
        c->title = at;
        c->length = strcspn(at, "|");
        c->width = fa_columns_of(at, c->length);
        c->least = WRAPPED_NARROWEST;
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

static size_t longest_word(cell cell)
{
    size_t longest = 0;
    while (cell.length > 0) {
        const char *space = memchr(cell.text, ' ', cell.length);
        size_t size = space != NULL ? (size_t)(space - cell.text) : cell.length;
        size_t width = fa_columns_of(cell.text, size);
        longest = width > longest ? width : longest;
        size += space != NULL;
        cell.text += size;
        cell.length -= size;
    }
    return longest;
}

static void measure(const char *text, column *columns, size_t count)
{
    cell cells[COLUMNS_MAX];
    for (bool first = true; *text != 0; first = false) {
        text = read_row(text, cells, count);
        for (size_t c = 0; c < count; c++) {
            size_t width = fa_columns_of(cells[c].text, cells[c].length);
            bool same =
                first ||
                (columns[c].same.text != NULL && columns[c].same.length == cells[c].length &&
                 memcmp(columns[c].same.text, cells[c].text, cells[c].length) == 0);
            columns[c].same = same ? cells[c] : (cell){NULL, 0};
            columns[c].left_out &= cells[c].length == 0;
            columns[c].width = width > columns[c].width ? width : columns[c].width;
            size_t least = columns[c].wraps ? longest_word(cells[c]) : 0;
            columns[c].least = least > columns[c].least ? least : columns[c].least;
        }
    }
}

static size_t width_of_all(const column *columns, size_t count)
{
    size_t width = 0;
    for (size_t c = 0; c < count; c++)
        width += columns[c].left_out ? 0 : columns[c].width + GAP;
    return width;
}

/* Leaves columns out from the right until the others take `width` columns; returns how many they take. */
static size_t leave_out(column *columns, size_t count, bool same, size_t total, size_t width)
{
    for (size_t c = count; c-- > 0 && total > width;) {
        if (!columns[c].may_go || columns[c].left_out || (columns[c].same.text != NULL) != same)
            continue;
        columns[c].gone = columns[c].left_out = true;
        total -= columns[c].width + GAP;
    }
    return total;
}

/* Of those that wrap and can be narrower; NULL: none can. */
static column *widest_wrapped(column *columns, size_t count)
{
    column *widest = NULL;
    for (size_t c = 0; c < count; c++)
        if (columns[c].wraps && !columns[c].left_out && columns[c].width > columns[c].least &&
            (widest == NULL || columns[c].width > widest->width))
            widest = &columns[c];
    return widest;
}

/* Leaves out and wraps what a terminal of `width` columns has no room for: first the columns that tell no row from
 * another. */
static void fit(column *columns, size_t count, size_t width)
{
    size_t total = width_of_all(columns, count), spare = 0;
    for (size_t c = 0; c < count; c++)
        if (columns[c].wraps && !columns[c].left_out && columns[c].width > WRAPPED_LEAST)
            spare += columns[c].width - WRAPPED_LEAST;
    total = leave_out(columns, count, true, total, width + spare);
    total = leave_out(columns, count, false, total, width + spare);
    for (column *widest; total > width && (widest = widest_wrapped(columns, count)) != NULL;
         total--)
        widest->width--;
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

/* Whether " · " or its like ends at text[i], a space. */
static bool ends_part(const char *text, size_t i)
{
    const char *dot = cli_sym()->dot;
    size_t size = strlen(dot);
    return i > size && text[i - size - 1] == ' ' && memcmp(text + i - size, dot, size) == 0;
}

/* Takes from a cell what one line of its column has room for, up to a space: behind a dot, where there is one. */
static cell take_line(cell *rest, const column *c)
{
    size_t length = 0, part = 0;
    for (size_t i = 0; i <= rest->length; i++)
        if (i == rest->length || rest->text[i] == ' ') {
            if (length > 0 && fa_columns_of(rest->text, i) > c->width) {
                length = part > 0 ? part : length;
                break;
            }
            length = i;
            part = i < rest->length && ends_part(rest->text, i) ? i : part;
        }
    cell line = {rest->text, length};
    length += length < rest->length; /* the space */
    *rest = (cell){rest->text + length, rest->length - length};
    return line;
}

/* A row: as many lines as its wrapped cells take. */
static void put_row(const column *columns, cell *cells, size_t count, fa_buf *out)
{
    bool more = true;
    for (bool first = true; more; first = false) {
        size_t owed = 0;
        more = false;
        for (size_t c = 0; c < count; c++) {
            cell line = first ? cells[c] : (cell){"", 0};
            if (columns[c].left_out)
                continue;
            if (columns[c].wraps) {
                line = take_line(&cells[c], &columns[c]);
                more |= cells[c].length > 0;
            }
            put_cell(&columns[c], line, &owed, out);
        }
        fa_buf_text(out, "\n");
    }
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

/* Appends the columns that are gone, of those whose cells are all the same or of the others, behind `before`. */
static void name_gone(const column *columns, size_t count, bool same, const char *before,
                      fa_buf *out)
{
    for (size_t c = 0; c < count; c++) {
        cell value = columns[c].same;
        if (!columns[c].gone || (value.text != NULL) != same)
            continue;
        fa_buf_printf(out, "%s%.*s", before, (int)columns[c].length, columns[c].title);
        if (same)
            fa_buf_printf(out, " %.*s", (int)value.length, value.text);
        before = ", ";
    }
}

static void put_gone(const column *columns, size_t count, size_t width, fa_buf *out)
{
    fa_buf line = {0};
    char before[64];
    name_gone(columns, count, true, "  the same in all rows: ", &line);
    snprintf(before, sizeof before, "%s not shown, to fit %zu columns: ", line.size > 0 ? ";" : " ",
             width);
    name_gone(columns, count, false, before, &line);
    if (line.size > 0) {
        fa_wrap(out, line.data, line.size, 0, 2, width);
        fa_buf_text(out, "\n");
    }
    out->failed |= line.failed;
    fa_buf_free(&line);
}

void cli_table_put(cli_table *table, const char *titles, fa_buf *out)
{
    column columns[COLUMNS_MAX];
    size_t count = read_columns(titles, columns), width = fa_terminal_columns(STDOUT_FILENO);
    out->failed |= table->text.failed || table->cell.failed;
    if (table->rows > 0 && !out->failed) {
        measure(table->text.data, columns, count);
        if (width > 0)
            fit(columns, count, width);
        put_rows(table->text.data, columns, count, out);
        put_gone(columns, count, width, out);
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
    fa_buf_text(&columns, "?>#|~family");
    cli_tunables_columns(&tunables, &columns);
    fa_buf_text(&columns, "|~>shared B|~>regs|?~>spill B|~>blocks/SM|?>time||?>vs default");
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
