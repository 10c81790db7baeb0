/* SPDX-License-Identifier: Apache-2.0
 *
 * report: the store as a page, or the raw document that the page draws. A file appears whole or not at all.
 */
#include "error.h"
#include "report.h"
#include "run.h"
#include "text.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

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

int cli_report(cli_run *run)
{
    const char *file = run->options->out, *ending = file != NULL ? strrchr(file, '.') : NULL;
    const bool json = run->options->json || (ending != NULL && strcasecmp(ending, ".json") == 0);
    const fa_report_options report = {.format = json ? FA_REPORT_JSON : FA_REPORT_HTML,
                                      .keep = is_asked_for,
                                      .progress = tell_progress,
                                      .context = &run};
    report_told told;
    if (file != NULL && !json && (ending == NULL || strcasecmp(ending, ".html") != 0))
        return cli_refuse("--out", file, "a file that ends in .html or .json", NULL, &run->diag);
    int rc = report_write(run->tuner, &report, 0, &run->out, &told, &run->diag);
    if (rc == 0 && told.problems == 0)
        rc = cli_check_gpu(run); /* a name that nobody knows is a mistake, not an empty report */
    if (rc == 0 && file != NULL)
        rc = fa_output_write(file, run->out.data, run->out.size, &run->diag);
    if (rc != 0)
        return rc;
    if (file != NULL) { /* stdout gets where it is */
        size_t size = run->out.size;
        fa_buf_clear(&run->out);
        cli_text_count(&run->out, "", (int64_t)told.problems, "problem");
        fa_buf_printf(&run->out, ", %zu kB in ", (size + 999) / 1000);
        cli_text_path(&run->out, file);
        fa_buf_text(&run->out, "\n");
    }
    char note[80] = "this store holds no problem yet: tune one, as in fa-tune --gpu L4 --seq 512";
    if (told.filtered > 0)
        snprintf(note, sizeof note, "%zu problem%s left out by the filters", told.filtered,
                 told.filtered == 1 ? " is" : "s are");
    if (told.filtered > 0 || told.problems == 0)
        cli_progress_note(&run->progress, note);
    run->printed = true; /* with --json, too: the report is a document of its own */
    return cli_write(&run->out);
}
