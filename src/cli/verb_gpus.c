/* SPDX-License-Identifier: Apache-2.0
 *
 * gpus: the GPU types that can be tuned for, whether or not one is here.
 */
#include "problem.h"
#include "rows.h"
#include "json_make.h"
#include "text.h"
#include "verbs.h"

static int print_json(void)
{
    cJSON *document = cJSON_CreateObject();
    fa_json_add_text(document, "fa_tune", fa_version());
    cJSON *array = fa_json_add_array(document, "gpus");
    fa_gpu gpu;
    const char *refused;
    for (int32_t i = 0; fa_gpu_type(i, &gpu, &refused) == 0; i++) {
        cJSON *item = fa_gpu_to_json(&gpu);
        if (refused != NULL)
            fa_json_add_text(item, "refused", refused);
        else
            fa_json_add_null(item, "refused");
        fa_json_push(array, item);
    }
    return cli_json_write(document);
}

static int print_text(void)
{
    cli_table table = {0};
    fa_buf out = {0}, cell = {0};
    int name = cli_table_column(&table, "GPU", CLI_LEFT);
    int sm = cli_table_column(&table, "arch", CLI_LEFT);
    int sms = cli_table_column(&table, "SMs", CLI_RIGHT);
    int smem = cli_table_column(&table, "shared B", CLI_RIGHT);
    int l2 = cli_table_column(&table, "L2 MiB", CLI_RIGHT);
    int bandwidth = cli_table_column(&table, "GB/s", CLI_RIGHT);
    int tensor = cli_table_column(&table, "TFLOP/s", CLI_RIGHT);
    int note = cli_table_column(&table, "", CLI_LEFT);
    fa_gpu gpu;
    const char *refused;
    for (int32_t i = 0; fa_gpu_type(i, &gpu, &refused) == 0; i++) {
        cli_table_row(&table);
        cli_table_cell(&table, name, "%s", gpu.name);
        cli_table_cell(&table, sm, "sm_%d", gpu.sm);
        cli_table_cell(&table, sms, "%d", gpu.sm_count);
        cli_text_grouped(&cell, gpu.smem_per_block);
        cli_table_take(&table, smem, &cell);
        cli_table_cell(&table, l2, "%lld", (long long)(gpu.l2_bytes >> 20));
        cli_table_cell(&table, bandwidth, "%.0f", gpu.bandwidth_gbs);
        cli_table_cell(&table, tensor, "%.0f", gpu.tensor_tflops);
        if (refused != NULL)
            cli_table_cell(&table, note, "%s", refused);
    }
    cli_table_print(&table, &out);
    fa_buf_text(&out, "shared B: dynamic shared memory of one block. TFLOP/s: dense fp16 with fp32 "
                      "sums.\n");
    int status = cli_write(&out);
    cli_table_free(&table);
    fa_buf_free(&cell);
    fa_buf_free(&out);
    return status;
}

int cli_gpus(const cli_options *options)
{
    return options->json ? print_json() : print_text();
}
