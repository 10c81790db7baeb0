/* SPDX-License-Identifier: Apache-2.0
 *
 * report: the store as a page or a raw document, or its problems as a table in Markdown or CSV. A file appears whole or not
 * at all.
 */
#include "error.h"
#include "problem.h"
#include "report.h"
#include "run.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

/* As asked, else as the file ends, else Markdown, which reads well on a terminal. */
static int choose_format(const cli_options *options, unsigned *ret_format, fa_diag *diag)
{
    const char *ending = options->out != NULL ? strrchr(options->out, '.') : ".md";
    *ret_format = options->json ? CLI_FORMAT_JSON : options->format;
    for (unsigned i = 1; *ret_format == CLI_FORMAT_UNSET && cli_formats[i] != NULL; i++)
        if (ending != NULL && strcmp(ending + 1, cli_formats[i]) == 0)
            *ret_format = i;
    return *ret_format != CLI_FORMAT_UNSET
               ? 0
               : fa_fail(diag, FA_EINVAL,
                         "--out %s: its ending names no format; add --format html, md, csv or json",
                         options->out);
}

static bool is_asked_for(const void *context, const fa_problem *problem, const char *gpu)
{
    cli_run *const *run = context;
    return cli_filter_keeps((*run)->options, problem, gpu);
}

static bool tell_progress(const void *context, int32_t done, int32_t all)
{
    cli_run *const *run = context;
    return cli_progress_count(&(*run)->progress, "reported", done, all) != 0;
}

/* ---- the table of problems, for md and csv ----------------------------------------------------*/
static void put_problem(cli_table *table, const fa_study *study, bool csv)
{
    static const fa_trial none;
    const bool known = study->has_winner;
    const fa_trial *trial = known ? &study->winner.trial : &none;
    const double us = trial->median_us > 0 ? trial->median_us : trial->predicted_us;
    const double numbers[] = {
        trial->median_us,
        trial->low_us,
        trial->high_us,
        trial->predicted_us,
        us > 0 ? fa_problem_work(&study->problem, "flops") / us * 1e-6 : 0,
        known && trial->median_us > 0 ? study->winner.default_us / us : 0,
    };
    cli_text_problem(&table->cell, &study->problem);
    cli_cell_end(table);
    if (known)
        cli_text_config(&table->cell, &trial->config);
    cli_cell_end(table);
    cli_cell(table, "%s", study->gpu.name);
    if (known)
        cli_text_origin(&table->cell, &study->winner);
    else
        fa_buf_text(&table->cell, "no winner");
    cli_cell_end(table);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) { /* empty: it is not known */
        if (numbers[i] > 0)
            fa_buf_printf(&table->cell,
                          csv                  ? "%.9g"
                          : numbers[i] < 9.995 ? "%.2f"
                                               : "%.1f",
                          numbers[i]);
        cli_cell_end(table);
    }
    cli_row_end(table);
}

/* ---- the verb --------------------------------------------------------------------------------*/
int cli_report(cli_run *run)
{
    const char *file = run->options->out;
    unsigned format = CLI_FORMAT_UNSET;
    report_problems problems;
    cli_table table = {0};
    int rc = choose_format(run->options, &format, &run->diag);
    if (rc != 0)
        return rc;
    const fa_report_options report = {.format = format == CLI_FORMAT_HTML ? FA_REPORT_HTML
                                                                          : FA_REPORT_JSON,
                                      .keep = is_asked_for,
                                      .progress = tell_progress,
                                      .context = &run};
    rc = report_read(run->tuner, &report, 0, &problems, &run->diag);
    const bool csv = format == CLI_FORMAT_CSV, is_table = csv || format == CLI_FORMAT_MARKDOWN;
    for (size_t i = 0; rc == 0 && is_table && i < problems.count; i++)
        put_problem(&table, &problems.study[i], csv);
    if (rc == 0 && is_table)
        cli_table_write(&table,
                        "problem|kernel|GPU|known how|>median µs|>low µs|>high µs|>predicted µs|"
                        ">TFLOP/s|>default / winner",
                        csv, &run->out);
    else if (rc == 0)
        rc = report_write(run->tuner, &report, &problems, &run->out, &run->diag);
    const size_t told = problems.count, filtered = problems.filtered;
    report_problems_free(&problems);
    if (rc == 0 && told == 0)
        rc = cli_check_gpu(run); /* a name that nobody knows is a mistake, not an empty report */
    if (rc == 0 && file != NULL)
        rc = fa_output_write(file, run->out.data, run->out.size, &run->diag);
    if (rc != 0)
        return rc;
    if (file != NULL) { /* stdout gets where it is */
        size_t size = run->out.size;
        fa_buf_clear(&run->out);
        cli_text_count(&run->out, "", (int64_t)told, "problem");
        fa_buf_printf(&run->out, ", %zu kB in ", (size + 999) / 1000);
        cli_text_path(&run->out, file);
        fa_buf_text(&run->out, "\n");
    }
    char note[80] = "this store holds no problem yet: tune one, as in fa-tune --gpu L4 --seq 512";
    if (filtered > 0)
        snprintf(note, sizeof note, "%zu problem%s left out by the filters", filtered,
                 filtered == 1 ? " is" : "s are");
    if (filtered > 0 || told == 0)
        cli_progress_note(&run->progress, note);
    run->printed = true; /* with --json, too: the report is a document of its own */
    return cli_write(&run->out);
}
