/* SPDX-License-Identifier: Apache-2.0
 *
 * report: the store as a page, Markdown, CSV or JSON. A file appears whole or not at all.
 */
#include "error.h"
#include "filter.h"
#include "interrupt.h"
#include "progress.h"
#include "report.h"
#include "text.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
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

/* What the report's callbacks are given. */
struct asked {
    const cli_options *options;
    cli_progress *progress;
};

static bool is_asked_for(const void *context, const fa_problem *problem, const char *gpu)
{
    const struct asked *asked = context;
    return cli_filter_keeps(asked->options, problem, gpu);
}

static bool tell_progress(const void *context, int32_t done, int32_t all)
{
    const struct asked *asked = context;
    return cli_progress_count(asked->progress, "reported", done, all) != 0;
}

static report_options wanted(const struct asked *asked, unsigned format)
{
    static const report_format formats[] = {[CLI_FORMAT_HTML] = REPORT_HTML,
                                            [CLI_FORMAT_MARKDOWN] = REPORT_MARKDOWN,
                                            [CLI_FORMAT_CSV] = REPORT_CSV,
                                            [CLI_FORMAT_JSON] = REPORT_JSON};
    return (report_options){.format = formats[format],
                            .keep = is_asked_for,
                            .progress = tell_progress,
                            .context = asked,
                            .top = asked->options->top};
}

/* What stdout gets when the report itself went into a file. */
static int say_where_report_is(const char *path, const fa_buf *report,
                               const report_outcome *outcome)
{
    fa_buf line = {0};
    fa_buf_printf(&line, "%zu problem%s, %zu kB in ", outcome->problems,
                  outcome->problems == 1 ? "" : "s", (report->size + 999) / 1000);
    cli_text_path(&line, path);
    fa_buf_text(&line, "\n");
    int status = cli_write(&line);
    fa_buf_free(&line);
    return status;
}

int cli_report(const cli_options *options)
{
    fa_diag diag = {{0}};
    fa_buf out = {0};
    cli_progress progress;
    fa_tuner *tuner;
    unsigned format = CLI_FORMAT_UNSET;
    report_outcome outcome = {0};
    if (choose_format(options, &format, &diag) != 0)
        return cli_error(2, &diag);
    int rc = options->out != NULL ? fa_output_check(options->out, &diag) : 0;
    if (rc != 0)
        return cli_fail(rc, options, &diag);
    cli_progress_init(&progress, options);
    int status = cli_open_to_read(options, &progress, &tuner);
    if (status != 0)
        return status;
    struct asked asked = {options, &progress};
    report_options report = wanted(&asked, format);
    cli_interrupt_install();
    rc = report_write(tuner, &report, &out, &outcome, &diag);
    cli_progress_end(&progress);
    status = rc != 0 ? cli_fail(rc, options, &diag) : 0;
    if (status == 0 && outcome.problems == 0 && cli_check_gpu(options) != 0) {
        status = 2; /* a name that nobody knows is a mistake, not an empty report */
    } else if (status == 0 && options->out != NULL) {
        rc = fa_output_write(options->out, out.data, out.size, &diag);
        status = rc != 0 ? cli_fail(rc, options, &diag)
                         : say_where_report_is(options->out, &out, &outcome);
    } else if (status == 0) {
        status = cli_write(&out);
    }
    fa_buf_free(&out);
    fa_close(&tuner);
    return status;
}
