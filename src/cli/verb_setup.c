/* SPDX-License-Identifier: Apache-2.0
 *
 * What can be asked before a tune.
 * gpus: the GPU types that can be tuned for, whether or not one is here.
 * check: whether a kernel of one's own compiles and takes what its specification says, without a GPU and without a tune.
 * doctor: what would keep a tune from working here, each with what to do about it.
 */
#include "json.h"

#include "problem.h"
#include "run.h"
#include "text.h"
#include "wording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cli_gpus(cli_run *run)
{
    cJSON *array = fa_json_add_array(run->document, "gpus");
    const char *asked = run->options->request.gpu, *refused;
    cli_table table = {0};
    fa_gpu gpu;
    for (int32_t i = 0; fa_gpu_type(i, &gpu, &refused) == 0; i++) {
        if (asked != NULL && !cli_gpu_is(asked, gpu.name) && strcasestr(gpu.name, asked) == NULL)
            continue;
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
    cli_table_put(&table, "GPU|arch|>SMs|>shared B|>L2 MiB|>GB/s|>TFLOP/s|?", &run->out);
    fa_buf_text(&run->out, "shared B: dynamic shared memory of one block. TFLOP/s: dense fp16 with "
                           "fp32 sums.\n");
    return 0;
}

/* ---- check ----------------------------------------------------------------------------------*/
enum { LEFT_TOLD = 8 };

struct checked {
    int faults;
    cli_table table;
    cJSON *kernels;
    fa_buf *logs;
};

static void put_kernel(struct checked *checked, const fa_checked_kernel *kernel)
{
    const int32_t numbers[] = {kernel->registers, kernel->spill_bytes, kernel->smem_bytes,
                               kernel->parameter_bytes};
    static const char *const names[] = {"registers", "spill_bytes", "smem_bytes",
                                        "parameter_bytes"};
    const bool compiled = kernel->registers > 0;
    cJSON *item = cJSON_CreateObject();
    fa_json_add_text(item, "entry", kernel->entry);
    fa_json_add_bool(item, "answer", kernel->answer);
    cli_cell(&checked->table, "%s", kernel->entry);
    for (int i = 0; i < 4; i++) {
        fa_json_add(item, names[i], compiled ? cJSON_CreateNumber(numbers[i]) : cJSON_CreateNull());
        if (compiled)
            fa_words_grouped(&checked->table.cell, numbers[i]);
        cli_cell_end(&checked->table);
    }
    cli_cell(&checked->table, "%s", kernel->fault[0] != 0 ? kernel->fault : "right");
    cli_row_end(&checked->table);
    fa_json_add_text(item, "fault", kernel->fault);
    fa_json_add_text(item, "log", kernel->log);
    fa_json_push(checked->kernels, item);
    if (kernel->log[0] != 0 && kernel->fault[0] != 0) { /* with every line of the compiler */
        fa_buf_printf(checked->logs, "\n%s:\n", kernel->entry);
        for (const char *line = kernel->log; *line != 0; line += strspn(line, "\n")) {
            char text[512];
            snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
            cli_text_safe(checked->logs, text);
            fa_buf_text(checked->logs, "\n");
            line += strcspn(line, "\n");
        }
    }
    checked->faults += kernel->fault[0] != 0;
}

/* What of the source NVRTC does not see, the first lines of it. */
static void put_left(fa_buf *out, cJSON *document, const char *left)
{
    cJSON *list = fa_json_add_array(document, "left_out");
    int told = 0;
    for (const char *line = left; *line != 0; line += strspn(line, "\n")) {
        char one[256];
        snprintf(one, sizeof one, "%.*s", (int)strcspn(line, "\n"), line);
        fa_json_push(list, cJSON_CreateString(one));
        if (told++ < LEFT_TOLD) {
            fa_buf_text(out, told == 1 ? "\nleft out for NVRTC: " : ", ");
            cli_text_safe(out, one);
        }
        line += strcspn(line, "\n");
    }
    if (told > LEFT_TOLD)
        fa_buf_printf(out, " and %d more", told - LEFT_TOLD);
    fa_buf_text(out, told > 0 ? "\n" : "");
}

/* Once the tuner is open: what it says of the store before that is of no use here. */
static void note(void *context, const char *sentence)
{
    cli_run *run = context;
    if (run->tuner != NULL)
        cli_progress_note(&run->progress, sentence);
}

int cli_check(cli_run *run)
{
    static const char absent[] = "A100"; /* where there is no GPU and none is named */
    fa_gpu gpu;
    fa_buf logs = {0};
    struct checked checked = {.kernels = fa_json_add_array(run->document, "kernels"),
                              .logs = &logs};
    fa_options library = cli_library_options(run->options);
    library.existing_store = true;
    library.log = note;
    library.log_context = run;
    int rc = fa_open(&library, &run->tuner, &run->diag);
    if (rc != 0)
        return rc;
    fa_request request = run->options->request;
    if (request.gpu == NULL && fa_gpu_find(NULL, request.ordinal, &gpu, NULL) != 0)
        request.gpu = absent;
    fa_checked_kernel *kernel = NULL;
    size_t count = 0;
    rc = fa_check_kernels(run->tuner, &request, &kernel, &count, &gpu, &run->diag);
    for (size_t i = 0; i < count; i++)
        put_kernel(&checked, &kernel[i]);
    put_left(&logs, run->document, count > 0 ? kernel[0].left_out : "");
    free(kernel);
    if (rc == 0) {
        cli_text_heading(&run->out, &run->options->request.problem, &gpu);
        fa_json_add(run->document, "gpu", fa_gpu_to_json(&gpu));
        fa_json_add_number(run->document, "faults", checked.faults);
    }
    cli_table_put(&checked.table, "kernel|>regs|>spill B|>shared B|>parameters B|", &run->out);
    fa_buf_text(&run->out, logs.data != NULL ? logs.data : "");
    run->out.failed |= logs.failed;
    fa_buf_free(&logs);
    int status = rc == 0 ? cli_print(run) : 0;
    return rc != 0 ? rc : status != 0 ? status : checked.faults > 0;
}

/* ---- doctor ---------------------------------------------------------------------------------*/
static const char *const levels[] = {"ok", "warn", "fail"};

int cli_doctor(cli_run *run)
{
    int found[3] = {0}; /* by level */
    fa_buf *out = &run->out;
    cJSON *checks = fa_json_add_array(run->document, "checks");
    fa_options library = cli_library_options(run->options);
    fa_check *all = NULL;
    size_t count = 0;
    int rc = fa_doctor(&library, &all, &count, &run->diag);
    if (rc != 0)
        return rc;
    for (const fa_check *check = all; check < all + count; check++) {
        cJSON *item = cJSON_CreateObject();
        fa_json_add_text(item, "level", levels[check->level]);
        fa_json_add_text(item, "name", check->name);
        fa_json_add_text(item, "text", check->text);
        fa_json_add_text(item, "advice", check->advice);
        fa_json_push(checks, item);
        fa_buf_printf(out, "%-4s  %-9s  ", levels[check->level], check->name);
        cli_text_safe(out, check->text);
        if (check->advice[0] != 0)
            fa_buf_printf(out, "\n%17s→ ", "");
        cli_text_safe(out, check->advice);
        fa_buf_text(out, "\n");
        found[check->level]++;
    }
    free(all);
    for (int i = 0; i < 3; i++)
        fa_json_add_number(run->document, levels[i], found[i]);
    int warnings = found[FA_CHECK_WARN], failures = found[FA_CHECK_FAIL];
    fa_buf_printf(out, "%d ok, %d warning%s, %d failure%s\n", found[FA_CHECK_OK], warnings,
                  warnings == 1 ? "" : "s", failures, failures == 1 ? "" : "s");
    int status = cli_print(run);
    return status != 0 ? status : failures > 0;
}
