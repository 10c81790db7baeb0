/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cli_table_column(cli_table *table, const char *title, cli_align align)
{
    if (table->columns == CLI_COLUMNS_MAX)
        return -1;
    table->column[table->columns].title = title;
    table->column[table->columns].align = align;
    return table->columns++;
}

void cli_table_row(cli_table *table)
{
    void *grown = fa_grow(table->cell, &table->capacity, table->rows, sizeof *table->cell);
    if (grown == NULL) {
        table->failed = true;
        return;
    }
    table->cell = grown;
    memset(table->cell[table->rows++], 0, sizeof *table->cell);
}

static void set_cell(cli_table *table, int column, const char *text)
{
    if (table->failed || table->rows == 0 || column < 0)
        return;
    table->cell[table->rows - 1][column] = table->text.size + 1;
    cli_text_safe(&table->text, text);
    fa_buf_append(&table->text, "", 1);
}

void cli_table_cell(cli_table *table, int column, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    set_cell(table, column, text);
}

void cli_table_take(cli_table *table, int column, fa_buf *text)
{
    table->failed = table->failed || text->failed;
    set_cell(table, column, text->data != NULL ? text->data : "");
    fa_buf_clear(text);
}

static const char *cell_text(const cli_table *table, size_t row, int column)
{
    size_t at = table->cell[row][column];
    return at == 0 ? "" : table->text.data + at - 1;
}

static void spaces(fa_buf *out, size_t count)
{
    fa_buf_printf(out, "%*s", (int)count, "");
}

/* One line; no spaces are left at its end. */
static void print_line(const cli_table *table, const size_t *width, const char *const *texts,
                       fa_buf *out)
{
    size_t owed = 0;
    for (int c = 0; c < table->columns; c++) {
        size_t taken = cli_text_width(texts[c]), pad = width[c] - taken;
        owed += 2;
        if (table->column[c].align == CLI_RIGHT)
            owed += pad;
        if (taken > 0) {
            spaces(out, owed);
            fa_buf_text(out, texts[c]);
            owed = 0;
        }
        if (table->column[c].align == CLI_LEFT)
            owed += pad;
    }
    fa_buf_text(out, "\n");
}

void cli_table_print(const cli_table *table, fa_buf *out)
{
    out->failed = out->failed || table->failed || table->text.failed;
    if (out->failed)
        return;
    size_t width[CLI_COLUMNS_MAX];
    const char *texts[CLI_COLUMNS_MAX];
    for (int c = 0; c < table->columns; c++) {
        texts[c] = table->column[c].title;
        width[c] = cli_text_width(texts[c]);
        for (size_t r = 0; r < table->rows; r++) {
            size_t taken = cli_text_width(cell_text(table, r, c));
            width[c] = taken > width[c] ? taken : width[c];
        }
    }
    print_line(table, width, texts, out);
    for (size_t r = 0; r < table->rows; r++) {
        for (int c = 0; c < table->columns; c++)
            texts[c] = cell_text(table, r, c);
        print_line(table, width, texts, out);
    }
}

void cli_table_free(cli_table *table)
{
    free(table->cell);
    fa_buf_free(&table->text);
    *table = (cli_table){0};
}
