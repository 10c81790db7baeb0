/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sweep prints: a row for each problem, beside others' measured times where there are any, and
 * how the sweep stands; or the same as a document.
 */
#ifndef FA_CLI_SWEEP_OUT_H
#define FA_CLI_SWEEP_OUT_H

#include "run.h"

/* A problem's result; answer is NULL until it has one. */
typedef struct cli_sweep_row {
    fa_sweep_item item;
    fa_answer *answer;
    const fa_baseline *best; /* the fastest baseline of this very problem, or NULL */
} cli_sweep_row;

typedef struct cli_sweep_rows {
    cli_sweep_row *row;
    int32_t count;
    fa_baseline *baseline;
    size_t baseline_count, baseline_capacity;
    bool failed; /* out of memory */
} cli_sweep_rows;

int cli_sweep_rows_init(cli_sweep_rows *rows, const fa_sweep_item *items, int32_t count);
void cli_sweep_rows_free(cli_sweep_rows *rows);
/* An fa_baseline_visit; context is a cli_sweep_rows. */
int cli_sweep_rows_baseline(void *context, const fa_baseline *baseline);
/* An fa_sweep_item_visit: how an item ended. */
int cli_sweep_rows_item(void *context, int32_t index, const fa_sweep_item *item);
void cli_sweep_rows_answer(cli_sweep_rows *rows, int32_t index, const fa_answer *answer);
/* Finds each row's best baseline. */
void cli_sweep_rows_match(cli_sweep_rows *rows);

/* The result, as text or into the document. */
void cli_sweep_put(const cli_sweep_rows *rows, const fa_sweep *sweep, cli_run *run);
/* A sweep's own fields as JSON, NULL when out of memory. */
cJSON *cli_json_sweep(const fa_sweep *sweep);

#endif
