/* SPDX-License-Identifier: Apache-2.0
 *
 * One problem's article: headline, drawings, circumstances, configs.
 */
#include "html.h"

#include "error.h"
#include "problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Which configs have a row and a record: the best ones, failures of which each is worth a look,
 * and whatever the drawings show. */
static void mark_told(report_problem *problem, size_t cap)
{
    size_t failures = 0, most = cap / 4 > 5 ? cap / 4 : 5;
    for (size_t i = 0; i < problem->count; i++) {
        report_config *config = &problem->config[i];
        if (config->rank > 0)
            config->told = (size_t)config->rank <= cap || config->is_default || config->is_winner ||
                           (config->trial.raced && config->rank <= REPORT_RACE_ROWS);
        else if (config->tried && !report_pruned(config->trial.status))
            config->told = failures++ < most;
    }
    html_mark_heat(problem);
}

static void headline(fa_buf *out, const report_problem *problem)
{
    const fa_gpu *gpu = &problem->study.gpu;
    if (problem->best == NULL) {
        fa_buf_text(out, "<p class=\"warn\">No config came through: see where they ended and why. "
                         "<code>fa-tune doctor</code> looks for causes outside the kernels.</p>\n");
        return;
    }
    const char *guess = problem->measured ? "" : " class=\"guess\"";
    fa_buf_printf(out, "<p class=\"headline\"><span><b%s>", guess);
    report_time_of(out, problem->best);
    fa_buf_text(out, "</b> ");
    if (problem->measured) {
        fa_buf_text(out, "<span class=\"soft\">");
        report_us(out, problem->low_us);
        fa_buf_text(out, " to ");
        report_us(out, problem->high_us);
        fa_buf_text(out, "</span>");
    } else {
        fa_buf_printf(out, problem->best->median_us > 0 ? "%s: measured elsewhere"
                                                        : "%s, not measured",
                      report_known_how(problem));
    }
    fa_buf_printf(out, "</span><span><b%s>%s", guess, problem->measured ? "" : "~");
    report_tflops(out, problem->tflops);
    fa_buf_text(out, "</b> TFLOP/s");
    if (gpu->tensor_tflops > 0) {
        fa_buf_printf(out, ", <span%s>%s", guess, problem->measured ? "" : "~");
        report_percent(out, problem->tflops / gpu->tensor_tflops);
        fa_buf_text(out, "</span> of peak");
    }
    fa_buf_text(out, "</span>");
    if (problem->x_default > 0) {
        fa_buf_text(out, "<span><b>");
        report_ratio(out, problem->x_default);
        fa_buf_text(out, "</b> the default config</span>");
    }
    fa_buf_text(out, "</p>\n<p class=\"mono\">");
    report_html_text(out, problem->best->config.family);
    for (int i = 0; i < problem->best->config.count; i++) {
        fa_buf_text(out, " ");
        report_html_text(out, problem->best->config.tunable[i].name);
        fa_buf_printf(out, "=%d", problem->best->config.tunable[i].value);
    }
    fa_buf_text(out, "</p>\n");
    if (!problem->study.has_winner)
        fa_buf_text(out, "<p class=\"small\">The tune did not end: this is the best so far. The same "
                         "command goes on from there.</p>\n");
    if (problem->slow) {
        fa_buf words = {0};
        report_slow_advice(&words, problem);
        fa_buf_text(out, "<p class=\"warn\">⚠ ");
        if (words.data != NULL)
            report_html_text(out, words.data);
        fa_buf_text(out, "</p>\n");
        fa_buf_free(&words);
    }
}

/* ---- circumstances --------------------------------------------------------------------------*/
static void term(fa_buf *out, const char *name)
{
    fa_buf_printf(out, "<dt>%s<dd>", name);
}

static void range(fa_buf *out, const char *name, const int32_t values[2], const char *unit)
{
    if (values[0] < 0)
        return;
    term(out, name);
    report_grouped(out, values[0]);
    if (values[1] > values[0]) {
        fa_buf_text(out, " to ");
        report_grouped(out, values[1]);
    }
    fa_buf_printf(out, " %s", unit);
}

static void times(fa_buf *out, const report_problem *problem)
{
    const fa_study *study = &problem->study;
    term(out, "compile time");
    report_seconds(out, problem->compile_ms / 1000);
    fa_buf_text(out, " of one core");
    term(out, "tune time");
    if (study->winner.tune_s > 0)
        report_seconds(out, study->winner.tune_s);
    else
        fa_buf_text(out, study->has_winner ? "not recorded" : "not ended");
    if (study->winner.tune_s > 0)
        fa_buf_text(out, ", the last run");
    term(out, "configs tried");
    report_grouped(out, (int64_t)problem->tried);
    term(out, "newest record");
    report_date(out, study->unix_time);
}

static void environment(fa_buf *out, const report_problem *problem, size_t i)
{
    const report_environment *environment = &problem->environment[i];
    fa_buf_printf(out, "<dt>%s<dd>", i == 0 ? "made by" : "and by");
    fa_buf_printf(out, "%zu trial%s on ", environment->trials, environment->trials == 1 ? "" : "s");
    report_html_text(out, environment->gpu[0] != 0 ? environment->gpu : "an unnamed GPU");
    if (environment->uuid[0] != 0) {
        fa_buf_text(out, " <span class=\"mono\">");
        report_html_text(out, environment->uuid);
        fa_buf_text(out, "</span>");
    } else {
        fa_buf_text(out, ", which was not there");
    }
    if (environment->driver > 0) {
        fa_buf_text(out, "; driver for ");
        report_driver(out, environment->driver);
    }
    fa_buf_text(out, "; NVRTC <span class=\"mono\">");
    report_html_text(out, environment->nvrtc);
    fa_buf_text(out, "</span>; fa-tune ");
    report_html_text(out, environment->library);
    if (environment->host[0] != 0) {
        fa_buf_text(out, "; host ");
        report_html_text(out, environment->host);
    }
    fa_buf_text(out, "\n");
}

static void circumstances(fa_buf *out, const report_problem *problem)
{
    const fa_study *study = &problem->study;
    fa_buf_text(out, "<section class=\"panel\"><h4>Time and environment</h4>\n<dl "
                     "class=\"pairs\">\n");
    times(out, problem);
    for (size_t i = 0; i < problem->environments; i++)
        environment(out, problem, i);
    if (problem->environments_left_out > 0)
        fa_buf_printf(out, "<dt>and<dd>%zu trials in further environments, which the JSON report "
                           "does not name either",
                      problem->environments_left_out);
    range(out, "SM clock", problem->sm_mhz, "MHz");
    range(out, "memory clock", problem->memory_mhz, "MHz");
    range(out, "temperature", problem->temperature_c, "°C");
    if (problem->funnel.on_device && problem->sm_mhz[0] < 0) {
        term(out, "clocks");
        fa_buf_text(out, "not recorded: no NVML there");
    }
    for (size_t i = 0; i < problem->throttles; i++) {
        term(out, i == 0 ? "throttled by" : "");
        report_html_text(out, problem->throttle[i]);
    }
    term(out, problem->seeds == 1 ? "seed" : "seeds");
    for (size_t i = 0; i < problem->seeds; i++)
        fa_buf_printf(out, "%s%" PRIu64, i > 0 ? ", " : "", problem->seed[i]);
    if (problem->seeds_left_out > 0)
        fa_buf_printf(out, " and more");
    fa_buf_text(out, problem->seeds == 0 ? "–" : "");
    term(out, "silicon");
    report_html_text(out, study->silicon);
    term(out, "templates");
    fa_buf_text(out, "<span class=\"mono\">");
    report_html_text(out, study->templates);
    fa_buf_printf(out, "</span>, %s", study->current ? "the present ones" : "not the present ones");
    fa_buf_text(out, "</dl></section>\n");
}

void html_article(html_page *page, report_problem *problem)
{
    fa_buf *out = &page->body;
    mark_told(problem, page->cap);
    for (size_t i = 0; i < problem->count; i++)
        page->left_out += problem->config[i].tried && !problem->config[i].told;
    fa_buf_printf(out, "<article id=\"p%d\" aria-labelledby=\"p%dh\">\n<header><h3 id=\"p%dh\">",
                  problem->number, problem->number, problem->number);
    report_problem_words(out, &problem->study.problem);
    fa_buf_text(out, "</h3> ");
    html_badge(out, problem);
    fa_buf_text(out, " <span class=\"soft\">");
    html_gpu_words(out, &problem->study.gpu);
    fa_buf_text(out, "</span> <a class=\"small screen\" href=\"#summary\">↑ summary</a></header>\n");
    headline(out, problem);
    fa_buf_text(out, "<div class=\"panels\">\n");
    html_race(out, problem);
    html_peers(out, problem);
    html_roofline(out, problem);
    html_heat(out, problem);
    html_funnel(out, problem);
    circumstances(out, problem);
    fa_buf_text(out, "</div>\n");
    html_configs(out, problem);
    fa_buf_text(out, "</article>\n");
}
