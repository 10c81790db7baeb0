/* SPDX-License-Identifier: Apache-2.0
 *
 * What export and import say of records.
 */
#ifndef FA_CLI_RECORDS_OUT_H
#define FA_CLI_RECORDS_OUT_H

#include "buf.h"
#include "fa_tune.h"

#include <cJSON.h>

/* An fa_export_options.keep, by the problem and the GPU that were asked for; context is a cli_options. */
bool cli_records_keep(void *context, const fa_answer *answer);
void cli_records_add_json(cJSON *document, const char *file, const fa_records_info *info);
void cli_records_put(fa_buf *out, const char *file, const fa_records_info *info);

#endif
