/* SPDX-License-Identifier: Apache-2.0 */
#include "records_out.h"

#include "filter.h"
#include "json_make.h"
#include "text.h"

/* ---- which winners --------------------------------------------------------------------------*/
bool cli_records_keep(void *context, const fa_answer *answer)
{
    return cli_filter_keeps(context, &answer->problem, answer->gpu.name);
}

/* ---- results ----------------------------------------------------------------------------------*/
void cli_records_add_json(cJSON *document, const char *file, const fa_records_info *info)
{
    cJSON *records = fa_json_add_object(document, "records");
    fa_json_add_text(records, "file", file);
    fa_json_add_number(records, "winners", info->winners);
    fa_json_add_number(records, "measured", info->measured);
    fa_json_add_number(records, "predicted", info->predicted);
    fa_json_add_number(records, "taken", info->taken);
    fa_json_add_number(records, "dropped", info->dropped);
    fa_json_add_number(records, "unlisted", info->unlisted);
    fa_json_add_number(records, "failed", info->failed);
    fa_json_add_number(records, "baselines", info->baselines);
}

void cli_records_put(fa_buf *out, const char *file, const fa_records_info *info)
{
    cli_text_path(out, file);
    fa_buf_printf(out, ": %d winner%s, %d measured and %d untimed", info->winners,
                  info->winners == 1 ? "" : "s", info->measured, info->predicted);
    if (info->baselines > 0)
        fa_buf_printf(out, "; %d baseline%s", info->baselines, info->baselines == 1 ? "" : "s");
    if (info->taken > 0)
        fa_buf_printf(out, "; %d from the store", info->taken);
    if (info->dropped > 0)
        fa_buf_printf(out, "; %d dropped, their templates have changed", info->dropped);
    if (info->unlisted > 0)
        fa_buf_printf(out, "; %d for GPUs that the catalogue does not list", info->unlisted);
    if (info->failed > 0)
        fa_buf_printf(out, "; %d left out, they no longer compile cleanly", info->failed);
    fa_buf_text(out, "\n");
}
