/* SPDX-License-Identifier: Apache-2.0
 *
 * gpus: the GPU types that can be tuned for, whether or not one is here.
 */
#include "json_make.h"
#include "problem.h"
#include "run.h"
#include "table.h"
#include "text.h"
#include "wording.h"

int cli_gpus(cli_run *run)
{
    cJSON *array = fa_json_add_array(run->document, "gpus");
    cli_table table = {0};
    fa_gpu gpu;
    const char *refused;
    for (int32_t i = 0; fa_gpu_type(i, &gpu, &refused) == 0; i++) {
        cJSON *item = fa_gpu_to_json(&gpu);
        fa_json_add(item, "refused",
                    refused != NULL ? cJSON_CreateString(refused) : cJSON_CreateNull());
        fa_json_push(array, item);
        cli_cell(&table, "%s", gpu.name);
        cli_cell(&table, "sm_%d", gpu.sm);
        cli_cell(&table, "%d", gpu.sm_count);
        fa_words_grouped(&table.cell, gpu.smem_per_block);
        cli_cell_end(&table);
        cli_cell(&table, "%lld", (long long)(gpu.l2_bytes >> 20));
        cli_cell(&table, "%.0f", gpu.bandwidth_gbs);
        cli_cell(&table, "%.0f", gpu.tensor_tflops);
        cli_cell(&table, "%s", refused != NULL ? refused : "");
        cli_row_end(&table);
    }
    cli_table_put(&table, "GPU|arch|>SMs|>shared B|>L2 MiB|>GB/s|>TFLOP/s|", &run->out);
    fa_buf_text(&run->out, "shared B: dynamic shared memory of one block. TFLOP/s: dense fp16 with "
                           "fp32 sums.\n");
    return 0;
}
