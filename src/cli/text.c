/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include "error.h"
#include "json.h"
#include "problem.h"
#include "trial.h"
#include "words.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cli_text_safe(fa_buf *out, const char *text)
{
    for (size_t length; *text != 0; text += length) {
        unsigned code = 0;
        for (length = 0; text[length] >= ' ' && text[length] <= '~';)
            length++;
        const int control = length == 0 ? fa_control_at(text, &code) : 0;
        if (control > 0) {
            length = (size_t)control;
            fa_buf_printf(out, control == 1 ? "\\x%02x" : "\\u%04x", code);
        } else {
            length = length > 0 ? length : 1; /* a byte of UTF-8 */
            fa_buf_append(out, text, length);
        }
    }
}

enum { SHORT_SIZE = 84 };
/* What was typed, cut so that the rest of a sentence about it fits a fa_diag; returns ret. */
static const char *shortened(const char *text, char ret[SHORT_SIZE])
{
    size_t length = strlen(text), most = SHORT_SIZE - 4; /* "..." and its NUL */
    const bool cut = length > most;
    length = cut ? most : length;
    while (cut && length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--; /* not within a code point */
    snprintf(ret, SHORT_SIZE, "%.*s%s", (int)length, text, cut ? "..." : "");
    return ret;
}

int cli_refuse(const char *option, const char *text, const char *what, const char *const *names,
               fa_diag *diag)
{
    const char *near = names != NULL ? fa_nearest(text, names) : NULL;
    char typed[SHORT_SIZE];
    return fa_fail(diag, FA_EINVAL, "%s%s\"%s\" is not %s%s%s%s", option != NULL ? option : "",
                   option != NULL ? ": " : "", shortened(text, typed), what,
                   near != NULL ? ": did you mean " : "", near != NULL ? near : "",
                   near != NULL ? "?" : "");
}

bool cli_text_known_time(fa_buf *out, const fa_trial *trial, bool elsewhere)
{
    if (trial->median_us > 0)
        (elsewhere ? fa_words_about : fa_words_us)(out, trial->median_us);
    else if (trial->predicted_us > 0)
        fa_words_about(out, trial->predicted_us);
    return trial->median_us > 0 || trial->predicted_us > 0;
}

void cli_text_origin(fa_buf *out, const fa_answer *answer)
{
    fa_buf_printf(out, "%s%s", fa_origin_name(answer->origin),
                  answer->same_bits[0] != 0 ? ", same bits as " : "");
    cli_text_safe(out, answer->same_bits);
}

void cli_text_trial_time(fa_buf *out, const fa_trial *trial, bool elsewhere)
{
    if (!cli_text_known_time(out, trial, elsewhere))
        fa_buf_text(out, "unranked");
}

void cli_text_interval(fa_buf *out, const fa_trial *trial)
{
    if (trial->high_us > trial->low_us) /* a single launch has none */
        fa_buf_printf(out, "±%.*f", trial->median_us < 9.995 ? 2 : 1,
                      (trial->high_us - trial->low_us) / 2);
}

void cli_text_count(fa_buf *out, const char *before, int64_t count, const char *what)
{
    fa_buf_text(out, before);
    fa_words_grouped(out, count);
    fa_buf_printf(out, " %s%s", what, count == 1 ? "" : "s");
}

void cli_text_seconds(fa_buf *out, double seconds)
{
    if (seconds > 0 && seconds < 0.995)
        fa_buf_printf(out, "%.2g s", seconds);
    else if (seconds < 100)
        fa_buf_printf(out, "%.0f s", seconds);
    else if (seconds < 6000)
        fa_buf_printf(out, "%.0f min", seconds / 60);
    else
        fa_buf_printf(out, "%.1f h", seconds / 3600);
}

void cli_text_problem(fa_buf *out, const fa_problem *p)
{
    fa_buf_printf(out, "%s · ", fa_operation_of(p)->title);
    fa_problem_words(out, p, " · ", false);
}

void cli_text_heading(fa_buf *out, const fa_problem *problem, const fa_gpu *gpu)
{
    cli_text_problem(out, problem);
    fa_buf_text(out, " · on ");
    cli_text_safe(out, gpu->name);
    fa_buf_printf(out, " (sm_%d, %d SMs, ", gpu->sm, gpu->sm_count);
    if (gpu->present)
        fa_buf_printf(out, "device %d)\n", gpu->ordinal);
    else
        fa_buf_text(out, "not present here)\n");
}

void cli_text_config(fa_buf *out, const fa_config *config)
{
    FA_ENDS(fa_buf_free) fa_buf words = {0};
    fa_words_config(&words, config);
    cli_text_safe(out, words.data != NULL ? words.data : "");
    out->failed |= words.failed;
}

void cli_text_path(fa_buf *out, const char *path)
{
    const char *home = getenv("HOME");
    size_t length = home != NULL ? strlen(home) : 0;
    if (length > 1 && strncmp(path, home, length) == 0 && path[length] == '/') {
        fa_buf_text(out, "~");
        path += length;
    }
    cli_text_safe(out, path);
}

static bool result_written;

int cli_write(const fa_buf *out)
{
    fa_diag diag;
    int rc = 0;
    result_written = result_written || out->size > 0;
    if (out->failed)
        rc = fa_fail(&diag, FA_ENOMEM, "out of memory while wording the result");
    else if ((out->size > 0 && fwrite(out->data, 1, out->size, stdout) != out->size) ||
             fflush(stdout) != 0)
        rc = fa_fail(&diag, FA_EIO, "cannot write the result to standard output: %s",
                     strerror(errno));
    return rc == 0 ? 0 : cli_error(1, &diag);
}

/* ---- failures -------------------------------------------------------------------------------*/
static cJSON *errors; /* the sentences so far */

cJSON *cli_errors_take(void)
{
    cJSON *taken = result_written ? NULL : errors;
    if (result_written)
        cJSON_Delete(errors);
    errors = NULL;
    return taken;
}

int cli_error(int status, const fa_diag *diag)
{
    if (errors == NULL)
        errors = cJSON_CreateArray();
    fa_json_push(errors, cJSON_CreateString(diag->text));
    fprintf(stderr, "fa-tune: %s\n", diag->text);
    return status;
}

void cli_tell(const char *format, ...)
{
    fa_diag diag;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(diag.text, sizeof diag.text, format, arguments);
    va_end(arguments);
    cli_error(0, &diag);
}

/* ---- tables ---------------------------------------------------------------------------------*/
enum { COLUMNS_MAX = 64, GAP = 2 };

typedef struct cell {
    const char *text;
    size_t length;
} cell;

typedef struct column {
    cell title;
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

void cli_answer_cells(cli_table *table, const fa_problem *problem, const char *gpu,
                      const fa_answer *answer, const char *none)
{
    cli_text_problem(&table->cell, problem);
    cli_cell_end(table);
    cli_cell(table, "%s", gpu);
    if (answer != NULL)
        cli_text_origin(&table->cell, answer);
    cli_cell(table, "%s", answer != NULL ? "" : none);
}

void cli_row_end(cli_table *table)
{
    cli_cell_end(table);
    fa_buf_text(&table->text, "\n");
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
        c->title = (cell){at, strcspn(at, "|")};
        c->width = fa_columns_of(at, c->title.length);
        at += c->title.length;
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

/* Of Markdown or CSV. A spreadsheet takes what begins so for a formula. */
static void put_marked(bool csv, const column *columns, const cell *cells, size_t count,
                       fa_buf *out)
{
    for (size_t c = 0; c < count; c++) {
        const char *text = cells[c].text, *end = text + cells[c].length;
        if (columns[c].left_out)
            continue;
        fa_buf_text(out, !csv ? "| " : c > 0 ? ",\"" : "\"");
        fa_buf_text(out, csv && text < end && strchr("=+-@", *text) != NULL ? "'" : "");
        for (; text < end; text++)
            fa_buf_printf(out, "%s%c",
                          strchr(csv ? "\"" : "|<*`\\", *text) == NULL ? ""
                          : csv ? "\""
                                : "\\",
                          *text);
        fa_buf_text(out, csv ? "\"" : " ");
    }
    fa_buf_text(out, csv ? "\n" : "|\n");
}

static void put_row(cli_form form, const column *columns, const cell *cells, size_t count,
                    fa_buf *out)
{
    size_t owed = 0; /* spaces before the next cell that has text: none are left at a line's end */
    if (form != CLI_ALIGNED)
        return put_marked(form == CLI_CSV, columns, cells, count, out);
    for (size_t c = 0; c < count; c++) {
        if (columns[c].left_out)
            continue;
        size_t pad = columns[c].width - fa_columns_of(cells[c].text, cells[c].length);
        owed += columns[c].right ? GAP + pad : GAP;
        if (cells[c].length > 0) {
            fa_buf_printf(out, "%*s%.*s", (int)owed, "", (int)cells[c].length, cells[c].text);
            owed = 0;
        }
        owed += columns[c].right ? 0 : pad;
    }
    fa_buf_text(out, "\n");
}

void cli_table_put(cli_table *table, const char *titles, fa_buf *out)
{
    column columns[COLUMNS_MAX];
    cell cells[COLUMNS_MAX];
    fa_buf_text(&table->columns, titles);
    size_t count = read_columns(table->columns.failed ? "" : table->columns.data, columns);
    out->failed |= table->text.failed || table->cell.failed || table->columns.failed;
    const char *text = out->failed || table->text.data == NULL ? "" : table->text.data;
    for (const char *at = text; *at != 0;) {
        at = read_row(at, cells, count);
        for (size_t c = 0; c < count; c++) {
            size_t width = fa_columns_of(cells[c].text, cells[c].length);
            columns[c].left_out &= cells[c].length == 0 && table->form != CLI_CSV;
            columns[c].width = width > columns[c].width ? width : columns[c].width;
        }
    }
    for (size_t c = 0; c < count; c++)
        cells[c] = columns[c].title;
    if (*text != 0)
        put_row(table->form, columns, cells, count, out);
    for (size_t c = 0; c < count; c++)
        cells[c] = (cell){columns[c].right ? "--:" : "---", 3};
    if (*text != 0 && table->form == CLI_MARKDOWN)
        put_row(table->form, columns, cells, count, out);
    for (const char *at = text; *at != 0;) {
        at = read_row(at, cells, count);
        put_row(table->form, columns, cells, count, out);
    }
    fa_buf_free(&table->cell);
    fa_buf_free(&table->text);
    fa_buf_free(&table->columns);
    *table = (cli_table){0};
}

/* ---- configs as rows -------------------------------------------------------------------------*/
void cli_tunables_find(cli_tunables *tunables, const fa_study_trial *rows, size_t count,
                       fa_buf *columns)
{
    enum { MOST = sizeof tunables->name / sizeof *tunables->name };
    tunables->count = 0;
    for (size_t r = 0; r < count; r++) {
        const fa_config *config = &rows[r].trial.config;
        for (int i = 0; i < config->count; i++) {
            const char *name = config->tunable[i].name;
            int known = 0;
            while (known < tunables->count && strcmp(tunables->name[known], name) != 0)
                known++;
            if (known < tunables->count || known == MOST)
                continue;
            tunables->name[tunables->count++] = name;
            fa_buf_text(columns, "|>");
            cli_text_safe(columns, name);
        }
    }
}

void cli_tunables_cells(const cli_tunables *tunables, cli_table *table, const fa_config *config)
{
    for (int i = 0; i < tunables->count; i++) {
        int32_t value;
        char room[FA_VALUE_TEXT_MAX];
        bool has = fa_config_get(config, tunables->name[i], &value);
        cli_cell(table, "%s", has ? fa_value_words(value, room) : "-");
    }
}

static void put_number(cli_table *table, int64_t value, bool known)
{
    if (known)
        fa_words_grouped(&table->cell, value);
    cli_cell(table, "%s", known ? "" : "-");
}

bool cli_rows_ranked(const fa_study_trial *rows, size_t count)
{
    bool ranked = count == 0;
    for (size_t r = 0; r < count; r++)
        ranked = ranked || rows[r].trial.median_us > 0 || rows[r].trial.predicted_us > 0;
    return ranked;
}

void cli_print_ranking(const cli_rows *rows, size_t count, double default_us, fa_buf *out)
{
    cli_table table = {0};
    cli_tunables tunables;
    bool ranked = cli_rows_ranked(rows->row, count), raced = false, probed = false;
    fa_buf_text(&table.columns, "?>#|family");
    cli_tunables_find(&tunables, rows->row, count, &table.columns);
    for (size_t r = 0; r < count; r++)
        raced = raced || rows->row[r].trial.raced;
    for (size_t r = 0; r < count; r++) {
        const int32_t rank = rows->row[r].rank;
        const fa_trial *trial = &rows->row[r].trial;
        const bool timed = trial->median_us > 0, probe = raced && timed && !trial->raced;
        if (rank < 1)
            continue;
        probed |= probe;
        cli_cell(&table, "%.0d", ranked && rank > rows->tied ? rank : 0);
        cli_cell(&table, "%s", trial->config.family);
        cli_tunables_cells(&tunables, &table, &trial->config);
        put_number(&table, (int64_t)trial->smem_bytes + trial->static_smem_bytes,
                   trial->smem_bytes >= 0);
        put_number(&table, trial->registers, trial->registers > 0);
        if (ranked)
            cli_cell_end(&table);
        else
            put_number(&table, trial->spill_bytes, trial->spill_bytes >= 0);
        put_number(&table, trial->blocks_per_sm, trial->blocks_per_sm > 0);
        cli_text_known_time(&table.cell, trial, rows->elsewhere);
        cli_cell_end(&table);
        if (timed && !rows->elsewhere)
            cli_text_interval(&table.cell, trial);
        cli_cell(&table, "%s", probe ? "ᵖ" : "");
        if (default_us > 0 && trial->raced) /* only times of one race compare finely */
            cli_cell(&table, "%.2f×", default_us / trial->median_us);
        else
            cli_cell(&table, "%s", default_us > 0 ? "-" : "");
        cli_row_end(&table);
    }
    cli_table_put(&table, "|>shared B|>regs|?>spill B|>blocks/SM|?>time||?>vs default", out);
    if (probed)
        fa_buf_text(out, "ᵖ: a probe, timed alone; it ranks below every config that raced\n");
}

cJSON *cli_json_rows(const cli_rows *rows, size_t count)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t r = 0; r < count && array != NULL; r++) {
        const fa_study_trial *row = &rows->row[r];
        cJSON *object = cJSON_CreateObject();
        fa_json_add_known(object, "rank", row->rank,
                          row->rank > rows->tied && cli_rows_ranked(row, 1));
        fa_struct_add_json(object, fa_trial_members, &row->trial);
        fa_json_push(array, object);
    }
    return array;
}
