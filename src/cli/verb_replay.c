/* SPDX-License-Identifier: Apache-2.0
 *
 * replay: how well each way of searching does on a space that was once measured whole. Needs no GPU and no store.
 */
#include "json.h"
#include "run.h"
#include "text.h"

#include <string.h>

struct replay {
    cli_table table;
    cJSON *strategies; /* NULL: text */
};

static int keep_result(void *context, const fa_replay_result *result)
{
    struct replay *replay = context;
    cJSON *item = cJSON_CreateObject();
    fa_json_add_text(item, "strategy", result->strategy);
    fa_json_add_text(item, "chosen", result->chosen);
    fa_json_add_number(item, "median", result->median);
    fa_json_add_number(item, "tenth_percentile", result->tenth);
    fa_json_add_number(item, "evaluations", result->evaluations);
    fa_json_push(replay->strategies, item);
    cli_cell(&replay->table, "%s", result->strategy);
    cli_cell(&replay->table, "%.3f", result->median);
    cli_cell(&replay->table, "%.3f", result->tenth);
    cli_cell(&replay->table, "%.0f", result->evaluations);
    cli_cell(&replay->table, "%s",
             strcmp(result->chosen, result->strategy) != 0 ? result->chosen : "");
    cli_row_end(&replay->table);
    return 0;
}

static void put_space(fa_buf *out, const fa_replay_space *space)
{
    cli_text_safe(out, space->kernel[0] != 0 ? space->kernel : "a kernel");
    if (space->device[0] != 0) {
        fa_buf_text(out, " on ");
        cli_text_safe(out, space->device);
    }
    fa_buf_text(out, ": ");
    cli_text_count(out, space->points, "config");
    fa_buf_text(out, " of ");
    cli_text_count(out, space->parameters, "parameter");
    if (space->unbuilt > 0)
        fa_buf_printf(out, ", %lld did not compile", (long long)space->unbuilt);
    if (space->failed > 0)
        fa_buf_printf(out, ", %lld failed", (long long)space->failed);
    fa_buf_text(out, "\n");
}

static void add_space(cJSON *document, const fa_replay_space *space)
{
    cJSON *json = fa_json_add_object(document, "space");
    fa_json_add_text(json, "kernel", space->kernel);
    fa_json_add_text(json, "device", space->device);
    fa_json_add_text(json, "objective", space->objective);
    fa_json_add_number(json, "parameters", space->parameters);
    fa_json_add_number(json, "points", (double)space->points);
    fa_json_add_number(json, "unbuilt", (double)space->unbuilt);
    fa_json_add_number(json, "failed", (double)space->failed);
}

int cli_replay(cli_run *run)
{
    const cli_options *options = run->options;
    struct replay replay = {.strategies = fa_json_add_array(run->document, "strategies")};
    fa_replay_space space;
    fa_replay_options ask = {.size = sizeof ask,
                             .file = options->operand[0],
                             .strategy = options->replay.strategy,
                             .evaluations = options->replay.evaluations,
                             .repeats = options->replay.repeats,
                             .batch = options->replay.batch,
                             .seed = options->seed,
                             .visit = keep_result,
                             .context = &replay};
    int rc = fa_replay(&ask, &space, &run->diag);
    if (rc != 0) {
        cli_table_free(&replay.table);
        return rc;
    }
    add_space(run->document, &space);
    put_space(&run->out, &space);
    cli_table_put(&replay.table, "strategy|>median|>tenth percentile|>evaluations|?", &run->out);
    fa_buf_text(&run->out,
                "median and tenth percentile of optimum / found: 1 is the best config on "
                "record.\n");
    return 0;
}
