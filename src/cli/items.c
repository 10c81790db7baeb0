/* SPDX-License-Identifier: Apache-2.0
 *
 * The problems of a sweep, each once.
 */
#include "items.h"

#include "buf.h"
#include "error.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cli_grid_add(cli_grid *grid, const fa_problem *problem, const char *gpu, fa_diag *diag)
{
    fa_sweep_item item = {.problem = *problem};
    int rc = fa_problem_check(problem, diag);
    if (rc != 0)
        return rc;
    snprintf(item.gpu, sizeof item.gpu, "%s", gpu);
    for (int32_t i = 0; i < grid->count; i++)
        if (strcmp(grid->item[i].gpu, item.gpu) == 0 &&
            fa_problem_equal(&grid->item[i].problem, problem))
            return 0;
    if (grid->count == FA_SWEEP_ITEMS_MAX)
        return fa_fail(diag, FA_EINVAL, "more than %d problems: sweep them in parts",
                       FA_SWEEP_ITEMS_MAX);
    fa_sweep_item *grown = fa_grow(grid->item, &grid->capacity, (size_t)grid->count, sizeof *grown);
    if (grown == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a grid");
    grid->item = grown;
    grid->item[grid->count++] = item;
    return 0;
}

void cli_grid_free(cli_grid *grid)
{
    free(grid->item);
    *grid = (cli_grid){0};
}
