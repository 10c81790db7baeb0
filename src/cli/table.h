/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of texts with columns as wide as their widest cell.
 *
 *     cli_table table = {0};
 *     int name = cli_table_column(&table, "name", CLI_LEFT);
 *     cli_table_row(&table);
 *     cli_table_cell(&table, name, "%s", "L4");
 *     cli_table_print(&table, out);
 *     cli_table_free(&table);
 *
 * Cells that are not set are empty. Out of memory shows in the printed buffer's `failed`.
 */
#ifndef FA_CLI_TABLE_H
#define FA_CLI_TABLE_H

#include "buf.h"

enum { CLI_COLUMNS_MAX = 48 };
typedef enum cli_align { CLI_LEFT, CLI_RIGHT } cli_align;

typedef struct cli_table {
    int columns;
    struct {
        const char *title; /* the caller's, until printed */
        cli_align align;
    } column[CLI_COLUMNS_MAX];
    size_t rows, capacity;           /* of cell[], in rows */
    size_t (*cell)[CLI_COLUMNS_MAX]; /* offset into text + 1; 0: empty */
    fa_buf text;                     /* NUL-terminated cells, one after another */
    bool failed;
} cli_table;

/* Returns the column's index. At most CLI_COLUMNS_MAX: later ones are dropped (-1). */
int cli_table_column(cli_table *table, const char *title, cli_align align);
void cli_table_row(cli_table *table);
/* A cell of the last row; control bytes are escaped. */
void cli_table_cell(cli_table *table, int column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, from a buffer, which is cleared. */
void cli_table_take(cli_table *table, int column, fa_buf *text);
void cli_table_print(const cli_table *table, fa_buf *out);
void cli_table_free(cli_table *table);

#endif
