/* SPDX-License-Identifier: Apache-2.0
 *
 * The problems of a sweep, each once.
 */
#ifndef FA_CLI_ITEMS_H
#define FA_CLI_ITEMS_H

#include "fa_tune.h"

typedef struct cli_grid {
    fa_sweep_item *item;
    int32_t count;
    size_t capacity;
    char plan[sizeof((fa_sweep *)NULL)->plan]; /* the options that make this grid, as typed */
} cli_grid;

void cli_grid_free(cli_grid *grid);

/* Joins an item, unless it is there already. */
int cli_grid_add(cli_grid *grid, const fa_problem *problem, const char *gpu, fa_diag *diag);

#endif
