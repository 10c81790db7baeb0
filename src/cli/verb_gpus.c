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
    fa_buf out = {0};
    fa_gpu gpu;
    const char *refused;
    for (int32_t i = 0; fa_gpu_type(i, &gpu, &refused) == 0; i++) {
        cli_cell(&table, "%s", gpu.name);
        cli_cell(&table, "sm_%d", gpu.sm);
        cli_cell(&table, "%d", gpu.sm_count);
        cli_text_grouped(&table.cell, gpu.smem_per_block);
        cli_cell_end(&table);
        cli_cell(&table, "%lld", (long long)(gpu.l2_bytes >> 20));
        cli_cell(&table, "%.0f", gpu.bandwidth_gbs);
        cli_cell(&table, "%.0f", gpu.tensor_tflops);
        cli_cell(&table, "%s", refused != NULL ? refused : "");
        cli_row_end(&table);
    }
    cli_table_put(&table, "GPU|arch|>SMs|>shared B|>L2 MiB|>GB/s|>TFLOP/s|", &out);
    fa_buf_text(&out, "shared B: dynamic shared memory of one block. TFLOP/s: dense fp16 with fp32 "
                      "sums.\n");
    int status = cli_write(&out);
    fa_buf_free(&out);
    return status;
}

int cli_gpus(const cli_options *options)
{
    return options->json ? print_json() : print_text();
}
