/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* ---- printing -------------------------------------------------------------------------------*/
enum { GAP = 2, INDENT = 6, NARROWEST = 24 /* terminal columns that are reckoned with */ };
enum { TEXT_MIN = 32 /* columns in which a last column of text stays on its line */ };

/* Where the columns stand. */
struct layout {
    size_t limit; /* of the terminal; SIZE_MAX: no terminal */
    size_t width[CLI_COLUMNS_MAX];
    int line[CLI_COLUMNS_MAX]; /* of a row's lines, the one that has the column */
};

static void lay_out(const cli_table *table, struct layout *layout)
{
    size_t columns = cli_terminal_columns(STDOUT_FILENO), end = 0;
    layout->limit = columns == 0 ? SIZE_MAX : columns > NARROWEST ? columns : NARROWEST;
    for (int c = 0; c < table->columns; c++) {
        size_t width = cli_text_width(table->column[c].title);
        for (size_t r = 0; r < table->rows; r++) {
            size_t taken = cli_text_width(cell_text(table, r, c));
            width = taken > width ? taken : width;
        }
        bool last = c + 1 == table->columns && table->column[c].align == CLI_LEFT;
        size_t least = last && width > TEXT_MIN ? TEXT_MIN : width;
        bool folds = c > 0 && end + GAP + least > layout->limit;
        layout->line[c] = c == 0 ? 0 : layout->line[c - 1] + folds;
        end = (folds ? INDENT : end + GAP) + width;
        layout->width[c] = width;
    }
}

/* The bytes of a text's beginning, in whole words, that fit so many columns; the first word even where it does not. */
static size_t fitting(const char *text, size_t columns)
{
    size_t fit = 0;
    for (size_t i = 0, width = 0;; i++) {
        if ((text[i] == ' ' || text[i] == 0) && (width <= columns || fit == 0))
            fit = i;
        if (text[i] == 0 || (width > columns && fit > 0))
            return fit;
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
}

/* A text that begins in the column `at`. */
static void print_text(fa_buf *out, const char *text, size_t at, size_t limit)
{
    for (;;) {
        size_t fit = fitting(text, limit > at ? limit - at : 0);
        fa_buf_append(out, text, fit);
        text += fit;
        while (*text == ' ')
            text++;
        if (*text == 0)
            return;
        fa_buf_text(out, "\n");
        spaces(out, at);
    }
}

/* One row; no spaces are left at the end of its lines, and none is empty. */
static void print_row(const cli_table *table, const struct layout *layout, const char *const *texts,
                      fa_buf *out)
{
    size_t end = 0, owed = 0;
    int line = 0;
    for (int c = 0, last = 0; c < table->columns; last = layout->line[c++]) {
        size_t taken = cli_text_width(texts[c]), pad = layout->width[c] - taken;
        bool right = table->column[c].align == CLI_RIGHT;
        if (layout->line[c] != last)
            end = 0, owed = INDENT - GAP;
        owed += GAP + (right ? pad : 0);
        if (taken > 0) {
            if (layout->line[c] != line)
                fa_buf_text(out, "\n");
            line = layout->line[c];
            spaces(out, owed);
            print_text(out, texts[c], end + owed, layout->limit);
            end += owed + taken;
            owed = 0;
        }
        owed += right ? 0 : pad;
    }
    fa_buf_text(out, "\n");
}

void cli_table_print(const cli_table *table, fa_buf *out)
{
    out->failed = out->failed || table->failed || table->text.failed;
    if (out->failed)
        return;
    struct layout layout;
    const char *texts[CLI_COLUMNS_MAX];
    lay_out(table, &layout);
    for (int c = 0; c < table->columns; c++)
        texts[c] = table->column[c].title;
    print_row(table, &layout, texts, out);
    for (size_t r = 0; r < table->rows; r++) {
        for (int c = 0; c < table->columns; c++)
            texts[c] = cell_text(table, r, c);
        print_row(table, &layout, texts, out);
    }
}

void cli_table_free(cli_table *table)
{
    free(table->cell);
    fa_buf_free(&table->text);
    *table = (cli_table){0};
}
