/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of texts with columns as wide as their widest cell, written cell after cell and row after row; and configs as
 * rows of one.
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
#include "fa_tune.h"

#include <cJSON.h>

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

/* ---- rows.c ----------------------------------------------------------------------------------*/
/* The configs of a problem's space as fa_explain() lists them, kept for printing: a table of those that finished, and the
 * same as JSON. */
typedef struct cli_row {
    int32_t rank; /* from 1; 0: did not finish */
    bool tied;    /* the model does not tell it from the winner: its rank is not shown */
    fa_trial trial;
} cli_row;

typedef struct cli_rows {
    cli_row *row;
    size_t count, capacity;
    int32_t ranked_limit; /* keeps only this many ranked rows and no others; 0: everything */
    int32_t winner_rank;  /* of the config *winner; 0: not among the visited */
    const fa_config *winner;
    bool failed; /* out of memory */
} cli_rows;

/* An fa_explain_visit; context is a cli_rows. */
int cli_rows_visit(void *context, int32_t rank, const fa_trial *trial);
void cli_rows_free(cli_rows *rows);

/* The tunables that any of the rows has, in order of appearance. */
typedef struct cli_tunables {
    int count;
    const char *name[48]; /* point into the rows */
} cli_tunables;
void cli_tunables_find(cli_tunables *tunables, const cli_row *rows, size_t count);
/* Appends their columns ("|>NAME"), or the cells of a config. */
void cli_tunables_columns(const cli_tunables *tunables, fa_buf *columns);
void cli_tunables_cells(const cli_tunables *tunables, cli_table *table, const fa_config *config);

/* Whether any time stands behind the rows' order, measured or a model's. */
bool cli_rows_ranked(const cli_row *rows, size_t count);
/* The ranked rows among `count`, or, where no time stands behind their order, what their cubins say. default_us > 0
 * adds the speed-up over the default config. */
void cli_print_ranking(const cli_row *rows, size_t count, double default_us, fa_buf *out);

/* Stable field names; what is not known is null. NULL when out of memory. */
cJSON *cli_json_rows(const cli_row *rows, size_t count);

#endif
