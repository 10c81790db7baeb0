/* SPDX-License-Identifier: Apache-2.0
 *
 * Options that set several fields of a problem, as an operation's file lists them.
 */
#ifndef FA_CLI_SHORTHAND_H
#define FA_CLI_SHORTHAND_H

#include "buf.h"
#include "options.h"

/* Sets what the shorthand stands for; `text` must outlive the options. */
int cli_shorthand_set(int index, const char *text, cli_options *options, fa_diag *diag);
/* Appends those that were typed. */
void cli_shorthand_words(const cli_options *options, fa_buf *out);
/* Appends those that say what no option of one field says, and that hold for the problem. */
void cli_shorthand_hint(const fa_problem *problem, fa_buf *out);
/* Whether the list of this field comes of one. */
bool cli_shorthand_lists(const cli_options *options, int field);

/* The options of the index-th kind of layer and of work of --model; FA_ENOTFOUND past the last. What was
 * typed stands. */
int cli_model_variant(const cli_options *options, int index, cli_options *ret_options,
                      fa_diag *diag);

#endif
