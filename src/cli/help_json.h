/* SPDX-License-Identifier: Apache-2.0
 *
 * The help as a document: what manual pages and completions are made from (manual.py).
 */
#ifndef FA_CLI_HELP_JSON_H
#define FA_CLI_HELP_JSON_H

#include "options.h"

/* One verb: its words, its operands and its options. */
cJSON *cli_help_verb(const cli_verb *verb, const fa_operation *operation);

#endif
