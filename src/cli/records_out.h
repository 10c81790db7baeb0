/* SPDX-License-Identifier: Apache-2.0
 *
 * What export and import say of records.
 */
#ifndef FA_CLI_RECORDS_OUT_H
#define FA_CLI_RECORDS_OUT_H

#include "progress.h"

#include "buf.h"

#include <cJSON.h>
#include <time.h>

typedef struct cli_telling {
    cli_progress *progress;
    time_t last;
} cli_telling;

/* An fa_records_options.progress; context is a cli_telling. */
int cli_records_tell(void *context, const char *what, int32_t done, int32_t all);
/* An fa_export_options.keep, by the problem and the GPU that were asked for; context is a cli_options. */
bool cli_records_keep(void *context, const fa_answer *answer);
void cli_records_add_json(cJSON *document, const char *file, const fa_records_info *info);
void cli_records_put(fa_buf *out, const char *file, const fa_records_info *info);

#endif
