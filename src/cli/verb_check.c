/* SPDX-License-Identifier: Apache-2.0
 *
 * check: whether a kernel of one's own compiles and takes what its specification says, without a GPU and without a tune.
 */
#include "json.h"
#include "run.h"
#include "text.h"
#include "wording.h"

#include "problem.h"

#include <stdio.h>
#include <string.h>

struct checked {
    int faults;
    cli_table table;
    cJSON *kernels;
    fa_buf *logs;
};

static int visit(void *context, const fa_checked_kernel *kernel)
{
    struct checked *checked = context;
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
    cli_cell(&checked->table, "%s",
             kernel->fault[0] != 0 ? kernel->fault
             : kernel->typed       ? "right"
                                   : "sizes agree");
    cli_row_end(&checked->table);
    fa_json_add_text(item, "fault", kernel->fault);
    fa_json_add_bool(item, "typed", kernel->typed);
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
    return 0;
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
    int rc = cli_check_gpu(run);
    fa_options library = cli_library_options(run->options);
    library.existing_store = true;
    library.log = note;
    library.log_context = run;
    if (rc == 0)
        rc = fa_open(&library, &run->tuner, &run->diag);
    if (rc != 0)
        return rc;
    fa_request request = cli_request(run->options);
    if (request.gpu == NULL && fa_gpu_device(request.ordinal, &gpu, NULL) != 0)
        request.gpu = absent;
    rc = fa_check_kernels(run->tuner, &request, visit, &checked, &gpu, &run->diag);
    if (rc == 0) {
        cli_text_heading(&run->out, &run->options->problem, &gpu);
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
