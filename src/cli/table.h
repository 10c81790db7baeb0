/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of texts with columns as wide as their widest cell, written cell after cell and row after row.
 *
 *     cli_table table = {0};
 *     cli_text_problem(&table.cell, problem);
 *     cli_cell_end(&table);
 *     cli_cell(&table, "%s", gpu->name);
 *     cli_row_end(&table);
 *     cli_table_put(&table, "problem|GPU", out);
 *
 * Out of memory shows in the printed buffer's `failed`.
 */
#ifndef FA_CLI_TABLE_H
#define FA_CLI_TABLE_H

#include "buf.h"

typedef struct cli_table {
    fa_buf cell; /* the text of the next cell so far */
    fa_buf text; /* those before it: a tab ends a cell, a line feed a row */
    size_t rows;
} cli_table;

/* Ends the cell; its control bytes are escaped. */
void cli_cell_end(cli_table *table);
/* The same for a whole cell at once. */
void cli_cell(cli_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Cells that the row lacks are empty. */
void cli_row_end(cli_table *table);
/* Appends the table, unless it has no row, and frees it. `columns` are their titles divided by '|', each behind
 * what is to be said of the column, in this order:
 *   '?'  it is left out where all of its cells are empty;
 *   '~'  it may be left out where stdout is a terminal that is too narrow: first those whose cells are all the
 *        same, then those at the right. A line below the table names them;
 *   '='  its cells may be wrapped there (one column at most);
 *   '>'  it stands at the right.
 * A file or a pipe gets the whole table. */
void cli_table_put(cli_table *table, const char *columns, fa_buf *out);
void cli_table_free(cli_table *table); /* one that is not printed */

#endif
