/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sweep is to tune: every combination of the lists that were typed, or the lines of a plan.
 *
 * Lists are numbers or names between commas; 512:16384:x2 multiplies and 512:2048:+512 adds, up to
 * and with the end. Everything is checked before anything runs, and the number of problems is bounded.
 */
#ifndef FA_CLI_GRID_H
#define FA_CLI_GRID_H

#include "fa_tune.h"
#include "options.h"

typedef struct cli_grid {
    fa_sweep_item *item;
    int32_t count;
    size_t capacity;
    char plan[sizeof((fa_sweep *)NULL)->plan]; /* the options that make this grid, as typed */
} cli_grid;

void cli_grid_free(cli_grid *grid);

/* The problems that the options ask for; FA_EINVAL, FA_ENOTFOUND or FA_ENOTSUP with a sentence. */
int cli_grid_make(const cli_options *options, cli_grid *ret_grid, fa_diag *diag);

/* Whether the options name a grid or a plan at all. */
bool cli_grid_given(const cli_options *options);

/* Joins the items of a file of JSON lines, each a problem or an object with a "problem", with "gpu"
 * beside it or not; lines without one are for each of the GPUs named. Problems that name no operation
 * are of this one. */
int cli_plan_read(const char *path, const fa_operation *operation, const char (*gpus)[64],
                  int gpu_count, cli_grid *grid, fa_diag *diag);

#endif
