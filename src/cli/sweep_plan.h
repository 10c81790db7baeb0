/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan: a sweep's problems from a file.
 */
#ifndef FA_CLI_SWEEP_PLAN_H
#define FA_CLI_SWEEP_PLAN_H

#include "items.h"

/* Joins the items of a file of JSON lines, each a problem or an object with a "problem", with "gpu"
 * beside it or not; lines without one are for each of the GPUs named. Problems that name no operation
 * are of this one. */
int cli_plan_read(const char *path, const fa_operation *operation, const char (*gpus)[64],
                  int gpu_count, cli_grid *grid, fa_diag *diag);

#endif
