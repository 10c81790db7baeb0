/* SPDX-License-Identifier: Apache-2.0
 *
 * How the program tells what it takes: to people, wrapped to their terminal, and as JSON, from which manual pages and
 * completions are made.
 */
#ifndef FA_CLI_HELP_H
#define FA_CLI_HELP_H

#include "options.h"

#include <cJSON.h>

/* The verbs in groups, and the options of the first one: those that people use first, or `all`. */
void cli_help_overview(const cli_verb *verbs, size_t count, bool all, fa_buf *out);
/* One verb with all of its options, those of the operation's problems among them. */
void cli_help_verb(const cli_verb *verb, const fa_operation *operation, fa_buf *out);
/* All verbs and options; the caller's. */
cJSON *cli_help_json(const cli_verb *verbs, size_t count);

#endif
