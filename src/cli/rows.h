/* SPDX-License-Identifier: Apache-2.0
 *
 * The configs of a problem's space as fa_explain() lists them, kept for printing: a table of those
 * that finished, and the same as JSON.
 */
#ifndef FA_CLI_ROWS_H
#define FA_CLI_ROWS_H

#include "fa_tune.h"
#include "table.h"

#include <cJSON.h>

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
