/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sweep is to tune: every combination of the lists that were typed, or the lines of a plan.
 *
 * Lists are numbers or names between commas; 512:16384:x2 multiplies and 512:2048:+512 adds, up to
 * and with the end. Everything is checked before anything runs, and the number of problems is bounded.
 */
#ifndef FA_CLI_GRID_H
#define FA_CLI_GRID_H

#include "items.h"
#include "options.h"

/* The problems that the options ask for; FA_EINVAL, FA_ENOTFOUND or FA_ENOTSUP with a sentence. */
int cli_grid_make(const cli_options *options, cli_grid *ret_grid, fa_diag *diag);

/* Whether the options name a grid or a plan at all. */
bool cli_grid_given(const cli_options *options);

#endif
