/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that the program tells its user to run: as they must be typed here, for what was asked.
 */
#ifndef FA_CLI_HINT_H
#define FA_CLI_HINT_H

#include "options.h"

/* Appends "`fa-tune VERB --gpu … --seq …`": GPU, problem, store and templates as these options have
 * them, so that it works as it is printed. */
void cli_hint(fa_buf *out, const char *verb, const cli_options *options);
/* The same without a GPU and a problem. */
void cli_hint_store(fa_buf *out, const char *verb, const cli_options *options);

#endif
