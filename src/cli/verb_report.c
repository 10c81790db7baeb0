/* SPDX-License-Identifier: Apache-2.0
 *
 * report: the store as a page, Markdown, CSV or JSON. A file appears whole or not at all.
 */
#include "error.h"
#include "report.h"
#include "run.h"
#include "text.h"

#include <string.h>

static const struct {
    const char *ending;
    unsigned format;
} endings[] = {
    {".html", CLI_FORMAT_HTML},         {".htm", CLI_FORMAT_HTML}, {".md", CLI_FORMAT_MARKDOWN},
    {".markdown", CLI_FORMAT_MARKDOWN}, {".csv", CLI_FORMAT_CSV},  {".json", CLI_FORMAT_JSON},
};

/* As asked, else as the file ends, else Markdown, which reads well on a terminal. */
static int choose_format(const cli_options *options, unsigned *ret_format, fa_diag *diag)
{
    unsigned format = options->format;
    if (options->json && format != CLI_FORMAT_UNSET && format != CLI_FORMAT_JSON)
        return fa_fail(diag, FA_EINVAL, "--json and another --format exclude one another");
    if (options->json)
        format = CLI_FORMAT_JSON;
    size_t length = options->out != NULL ? strlen(options->out) : 0;
    for (size_t i = 0; i < sizeof endings / sizeof *endings && format == CLI_FORMAT_UNSET; i++) {
        size_t tail = strlen(endings[i].ending);
        if (length > tail && strcmp(options->out + length - tail, endings[i].ending) == 0)
            format = endings[i].format;
    }
    if (format == CLI_FORMAT_UNSET && options->out != NULL)
        return fa_fail(diag, FA_EINVAL,
                       "--out %s: its ending names no format; add --format html, md, csv or json",
                       options->out);
    *ret_format = format != CLI_FORMAT_UNSET ? format : CLI_FORMAT_MARKDOWN;
    return 0;
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

int cli_report(cli_run *run)
{
    static const report_format formats[] = {[CLI_FORMAT_HTML] = REPORT_HTML,
                                            [CLI_FORMAT_MARKDOWN] = REPORT_MARKDOWN,
                                            [CLI_FORMAT_CSV] = REPORT_CSV,
                                            [CLI_FORMAT_JSON] = REPORT_JSON};
    const char *file = run->options->out;
    unsigned format = CLI_FORMAT_UNSET;
    report_outcome outcome = {0};
    int rc;
    if ((rc = choose_format(run->options, &format, &run->diag)) != 0 ||
        (file != NULL && (rc = fa_output_check(file, &run->diag)) != 0) ||
        (rc = cli_open(run, true)) != 0)
        return rc;
    cli_interrupt_install();
    report_options report = {.format = formats[format],
                             .keep = is_asked_for,
                             .progress = tell_progress,
                             .context = &run,
                             .top = run->options->top};
    rc = report_write(run->tuner, &report, &run->out, &outcome, &run->diag);
    if (rc == 0 && outcome.problems == 0)
        rc = cli_check_gpu(run); /* a name that nobody knows is a mistake, not an empty report */
    if (rc == 0 && file != NULL)
        rc = fa_output_write(file, run->out.data, run->out.size, &run->diag);
    if (rc != 0)
        return rc;
    if (file == NULL && outcome.filtered > 0) {
        fa_buf note = {0};
        fa_buf_printf(&note, "%zu problem%s left out by the filters", outcome.filtered,
                      outcome.filtered == 1 ? " is" : "s are");
        if (outcome.problems == 0) {
            fa_buf_text(&note, "\n");
            cli_text_buckets(&note, run->options);
        }
        for (char *line = note.failed ? NULL : strtok(note.data, "\n"); line != NULL;
             line = strtok(NULL, "\n"))
            cli_progress_note(&run->progress, line);
        fa_buf_free(&note);
    }
    if (file != NULL) { /* stdout gets where it is */
        size_t size = run->out.size;
        fa_buf_clear(&run->out);
        fa_buf_printf(&run->out, "%zu problem%s, %zu kB in ", outcome.problems,
                      outcome.problems == 1 ? "" : "s", (size + 999) / 1000);
        cli_text_path(&run->out, file);
        if (outcome.filtered > 0)
            fa_buf_printf(&run->out, ", %zu left out by the filters", outcome.filtered);
        fa_buf_text(&run->out, "\n");
        if (outcome.problems == 0 && outcome.filtered > 0)
            cli_text_buckets(&run->out, run->options);
    }
    run->printed = true; /* with --json, too: the report is a document of its own */
    return cli_write(&run->out);
}
