/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS_MAX = 64 };

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

static size_t width_of(const char *text, size_t length)
{
    size_t width = 0;
    for (size_t i = 0; i < length; i++)
        width += ((unsigned char)text[i] & 0xc0) != 0x80; /* continuation bytes take no column */
    return width;
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
        c->width = width_of(at, c->length);
        at += c->length;
        if (*at == 0)
            break;
    }
    return count;
}

/* The row's next cell: its length, and *at behind its tab; 0 at the row's end. */
static size_t next_cell(const char **at, const char **ret_cell)
{
    size_t length = strcspn(*at, "\t\n");
    *ret_cell = *at;
    *at += length + ((*at)[length] == '\t');
    return length;
}

/* The spaces before a cell that has text; none are left at a line's end. */
static void put_cell(const column *c, const char *text, size_t length, size_t *owed, fa_buf *out)
{
    size_t taken = width_of(text, length), pad = c->width - taken;
    *owed += c->right ? 2 + pad : 2;
    if (taken > 0) {
        fa_buf_printf(out, "%*s", (int)*owed, "");
        fa_buf_append(out, text, length);
        *owed = 0;
    }
    *owed += c->right ? 0 : pad;
}

static void put_lines(const char *text, const column *columns, size_t count, fa_buf *out)
{
    size_t owed = 0;
    for (size_t c = 0; c < count; c++)
        if (!columns[c].left_out)
            put_cell(&columns[c], columns[c].title, columns[c].length, &owed, out);
    fa_buf_text(out, "\n");
    for (const char *at = text; *at != 0;) {
        owed = 0;
        for (size_t c = 0; c < count; c++) {
            const char *cell;
            size_t length = next_cell(&at, &cell);
            if (!columns[c].left_out)
                put_cell(&columns[c], cell, length, &owed, out);
        }
        at += strcspn(at, "\n");
        at += *at == '\n';
        fa_buf_text(out, "\n");
    }
}

void cli_table_put(cli_table *table, const char *titles, fa_buf *out)
{
    column columns[COLUMNS_MAX];
    size_t count = read_columns(titles, columns);
    out->failed |= table->text.failed || table->cell.failed;
    if (table->rows > 0 && !out->failed) {
        for (const char *at = table->text.data; *at != 0;) {
            for (size_t c = 0; c < count; c++) {
                const char *cell;
                size_t length = next_cell(&at, &cell), width = width_of(cell, length);
                columns[c].left_out &= length == 0;
                if (width > columns[c].width)
                    columns[c].width = width;
            }
            at += strcspn(at, "\n");
            at += *at == '\n';
        }
        put_lines(table->text.data, columns, count, out);
    }
    cli_table_free(table);
}

void cli_table_free(cli_table *table)
{
    fa_buf_free(&table->cell);
    fa_buf_free(&table->text);
    *table = (cli_table){0};
}
