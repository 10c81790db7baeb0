/* SPDX-License-Identifier: Apache-2.0
 *
 * The page as a whole: head, facts, summary, and its assembly. The policy in its head allows its
 * own style and script by their hashes and nothing else: no network, and no script that a text of
 * the store might smuggle in.
 */
#include "html.h"

#include "error.h"
#include "problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void html_time(fa_buf *out, const fa_trial *trial)
{
    if (trial->median_us > 0) {
        report_us(out, trial->median_us);
        fa_buf_text(out, " <span class=\"soft\">");
        report_plus_minus(out, trial);
        fa_buf_text(out, "</span>");
    } else if (trial->predicted_us > 0) {
        fa_buf_text(out, "<span class=\"guess\">");
        report_about(out, trial->predicted_us);
        fa_buf_text(out, "</span>");
    } else {
        fa_buf_text(out, "–");
    }
}

void html_badge(fa_buf *out, const report_problem *problem)
{
    const fa_study *study = &problem->study;
    const char *class_name = !study->has_winner                           ? "bad"
                             : study->winner.origin == FA_ORIGIN_IMPORTED ? "second"
                             : !problem->measured                         ? "predicted"
                             : study->winner.origin == FA_ORIGIN_MEASURED ? "measured"
                                                                          : "second";
    fa_buf_printf(out, "<span class=\"badge %s\">%s</span>", class_name, report_standing(problem));
    if (problem->slow)
        fa_buf_text(out, " <span class=\"badge bad\">⚠ slow: profile</span>");
}

void html_gpu_words(fa_buf *out, const fa_gpu *gpu)
{
    report_html_text(out, gpu->name);
    if (gpu->sm > 0)
        fa_buf_printf(out, " (sm_%d, %d SMs)", gpu->sm, gpu->sm_count);
}

/* ---- summary --------------------------------------------------------------------------------*/
static void ratio_cell(fa_buf *out, double ratio, bool measured)
{
    if (!(ratio > 0)) {
        fa_buf_text(out, "<td class=\"n\" data-v=\"\">–");
        return;
    }
    fa_buf_printf(out, "<td class=\"n\" data-v=\"%.5g\"><span class=\"%s\">%s", ratio,
                  !measured ? "guess" : ratio >= 1 ? "ahead" : "behind", measured ? "" : "~");
    report_ratio(out, ratio);
    fa_buf_text(out, "</span>");
}

static void summary_row(html_page *page, const report_problem *problem)
{
    fa_buf *out = &page->rows;
    const fa_study *study = &problem->study;
    fa_buf_printf(out, "<tr><th scope=\"row\" data-v=\"%05d\"><a href=\"#p%d\">", problem->number,
                  problem->number);
    report_problem_words(out, &study->problem);
    fa_buf_text(out, "</a><td>");
    report_html_text(out, study->gpu.name);
    fa_buf_text(out, "<td>");
    html_badge(out, problem);
    if (problem->us > 0) {
        fa_buf_printf(out, "<td class=\"n\" data-v=\"%.9g\">", problem->us);
        html_time(out, problem->best);
        fa_buf_printf(out, "<td class=\"n\" data-v=\"%.5g\"><span%s>%s", problem->tflops,
                      problem->measured ? "" : " class=\"guess\"", problem->measured ? "" : "~");
        report_tflops(out, problem->tflops);
        fa_buf_text(out, "</span>");
    } else {
        fa_buf_text(out, "<td class=\"n\" data-v=\"\">–<td class=\"n\" data-v=\"\">–");
    }
    ratio_cell(out, problem->x_default, problem->measured);
    for (size_t i = 0; i < page->peers; i++) {
        const report_peer *peer = report_peer_named(problem, page->peer[i]);
        ratio_cell(out, peer != NULL ? peer->ratio : 0, problem->measured);
        if (peer != NULL && peer->ratio > 0 && problem->measured) {
            page->sum[i].log_sum += log(peer->ratio);
            page->sum[i].count++;
        }
    }
    fa_buf_printf(out, "<td class=\"n\" data-v=\"%zu\">", problem->tried);
    report_grouped(out, (int64_t)problem->tried);
    fa_buf_printf(out, "<td class=\"n\" data-v=\"%.6g\">", problem->compile_ms / 1000);
    report_seconds(out, problem->compile_ms / 1000);
    if (study->winner.tune_s > 0) {
        fa_buf_printf(out, "<td class=\"n\" data-v=\"%.6g\">", study->winner.tune_s);
        report_seconds(out, study->winner.tune_s);
    } else {
        fa_buf_text(out, "<td class=\"n\" data-v=\"\">–");
    }
    fa_buf_text(out, "<td class=\"mono\">");
    if (problem->best != NULL) {
        fa_buf words = {0};
        report_config_words(&words, &problem->best->config);
        if (words.data != NULL)
            report_html_text(out, words.data);
        fa_buf_free(&words);
    } else {
        fa_buf_text(out, "–");
    }
    fa_buf_text(out, "\n");
}

static void summary(fa_buf *out, const html_page *page, const report *report)
{
    fa_buf_text(out, "<section id=\"summary\" aria-labelledby=\"summary-h\"><h2 "
                     "id=\"summary-h\">Summary</h2>\n");
    if (report->outcome.problems == 0) {
        fa_buf_text(out, "<p>");
        if (report->outcome.filtered > 0)
            fa_buf_printf(out, "None of the %zu problems in this store is what was asked for.",
                          report->outcome.filtered);
        else
            fa_buf_text(out, "This store holds no problem yet: tune one, as in <code>fa-tune --gpu "
                             "L4 --seq 512</code>.");
        fa_buf_text(out, "</p></section>\n");
        return;
    }
    fa_buf_text(out, "<p class=\"small soft\">± is half the 95% interval of a median. × is the "
                     "other’s time over ours: above 1, ours is faster. <span class=\"guess\">~ in "
                     "italics</span> is predicted, not measured; what was transferred or imported is told as "
                     "such.</p>\n"
                     "<div class=\"scroll stick summary\" tabindex=\"0\" role=\"region\" "
                     "aria-label=\"Summary\"><table class=\"sort\"><caption "
                     "class=\"hidden\">Summary of all problems</caption>\n<thead><tr><th "
                     "scope=\"col\">problem<th "
                     "scope=\"col\">GPU<th scope=\"col\">known how<th scope=\"col\" "
                     "class=\"n\">time<th scope=\"col\" class=\"n\">TFLOP/s<th scope=\"col\" "
                     "class=\"n\">× default");
    for (size_t i = 0; i < page->peers; i++) {
        fa_buf_text(out, "<th scope=\"col\" class=\"n\">× ");
        report_html_text(out, page->peer[i]);
    }
    fa_buf_text(out, "<th scope=\"col\" class=\"n\">tried<th scope=\"col\" class=\"n\">compile<th "
                     "scope=\"col\" class=\"n\">tune<th scope=\"col\">winner</thead>\n<tbody>\n");
    fa_buf_append(out, page->rows.data != NULL ? page->rows.data : "", page->rows.size);
    fa_buf_text(out, "</tbody></table></div></section>\n");
}

static void rooflines(fa_buf *out, const html_page *page)
{
    if (page->points < 2) /* it would be that of the problem */
        return;
    fa_buf_text(out, "<section aria-labelledby=\"roofs\"><h2 id=\"roofs\">Rooflines</h2>\n<div "
                     "class=\"panels alike\">\n");
    for (size_t first = 0, i = 1; i <= page->points; i++) {
        if (i < page->points && strcmp(page->point[i].silicon, page->point[first].silicon) == 0)
            continue;
        fa_buf_text(out, "<div><h3>");
        html_gpu_words(out, &page->point[first].gpu);
        fa_buf_text(out, "</h3>\n");
        html_roofline_of_all(out, &page->point[first], i - first);
        fa_buf_text(out, "</div>\n");
        first = i;
    }
    fa_buf_text(out, "</div></section>\n");
}

/* ---- facts ----------------------------------------------------------------------------------*/
static void fact(fa_buf *out, const char *number, const char *what)
{
    fa_buf_printf(out, "<li><b>%s</b> <span>", number);
    report_html_text(out, what);
    fa_buf_text(out, "</span>\n");
}

static void facts(fa_buf *out, const html_page *page, const report *report)
{
    char number[64], what[128];
    size_t problems = report->outcome.problems;
    if (problems == 0)
        return;
    fa_buf_text(out, "<ul class=\"facts\">\n");
    snprintf(number, sizeof number, "%zu", problems);
    snprintf(what, sizeof what, "problem%s on %zu GPU type%s", problems == 1 ? "" : "s", page->gpus,
             page->gpus == 1 ? "" : "s");
    fact(out, number, what);
    snprintf(number, sizeof number, "%zu", page->tried);
    fact(out, number, "configs tried");
    snprintf(number, sizeof number, "%zu", page->measured);
    fact(out, number, "measured");
    snprintf(number, sizeof number, "%zu", page->predicted);
    fact(out, number, "not measured here");
    if (page->defaults > 0) {
        snprintf(number, sizeof number, "%.2f×",
                 exp(page->log_default / (double)page->defaults));
        fact(out, number, "the default config, geometric mean");
    }
    for (size_t i = 0; i < page->peers; i++) {
        if (page->sum[i].count == 0)
            continue;
        snprintf(number, sizeof number, "%.2f×",
                 exp(page->sum[i].log_sum / (double)page->sum[i].count));
        snprintf(what, sizeof what, "%s, mean of %zu", page->peer[i], page->sum[i].count);
        fact(out, number, what);
    }
    if (page->slow > 0) {
        snprintf(number, sizeof number, "⚠ %zu", page->slow);
        fact(out, number, "below half a baseline’s speed");
    }
    fa_buf_text(out, "</ul>\n");
}

/* ---- assembly -------------------------------------------------------------------------------*/
static void head(fa_buf *out, const report *report)
{
    fa_buf_text(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "style-src '");
    fa_buf_text(out, report_style_hash);
    fa_buf_text(out, "'; script-src '");
    fa_buf_text(out, report_script_hash);
    fa_buf_text(out, "'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                     "<meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" "
                     "href=\"data:,\">\n<title>fa-tune report</title>\n<style>");
    fa_buf_text(out, (const char *)report_style);
    fa_buf_text(out, "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#summary\">To the "
                     "summary</a>\n<svg width=\"0\" height=\"0\" class=\"hidden\" "
                     "aria-hidden=\"true\"><defs><pattern id=\"hatch\" width=\"7\" height=\"7\" "
                     "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><path "
                     "d=\"M0 0v7\"/></pattern></defs></svg>\n<header><h1>fa-tune report</h1>\n<p "
                     "class=\"soft\">");
    report_html_text(out, report->store);
    fa_buf_text(out, " · ");
    report_date(out, report->made);
    fa_buf_printf(out, " · fa-tune %s</p>\n", fa_version());
}

static void foot(fa_buf *out, const html_page *page, const report *report)
{
    fa_buf_text(out, "<footer>\n");
    if (report->outcome.filtered > 0)
        fa_buf_printf(out, "<p>%zu other problem%s in the store: not asked for.</p>\n",
                      report->outcome.filtered, report->outcome.filtered == 1 ? "" : "s");
    if (report->outcome.older > 0)
        fa_buf_printf(out, "<p>%zu earlier generation%s of these problems, made with other "
                           "templates, left out.</p>\n",
                      report->outcome.older, report->outcome.older == 1 ? "" : "s");
    if (page->left_out > 0)
        fa_buf_printf(out, "<p>To keep this page small, up to %zu finished configs of a problem are "
                           "told in full and %zu further ones that were tried only counted: "
                           "<code>--top N</code> tells more, <code>--format json</code> all.</p>\n",
                      page->cap, page->left_out);
    fa_buf_text(out, "<p>TFLOP/s count 4·B·H·Sq·Sk·D operations, half of them when causal. Bytes are "
                     "Q, K, V and O moved once.</p>\n</footer>\n"
                     "<div id=\"tip\" role=\"tooltip\" hidden></div>\n<dialog id=\"record\" "
                     "aria-labelledby=\"record-h\"><h2 id=\"record-h\">Config</h2><div "
                     "id=\"record-text\"></div><button type=\"button\" "
                     "id=\"record-close\">Close</button></dialog>\n<p id=\"live\" class=\"hidden\" "
                     "role=\"status\"></p>\n<script type=\"application/json\" id=\"labels\">");
    html_labels(out);
    fa_buf_text(out, "</script>\n<script>");
    fa_buf_text(out, (const char *)report_script);
    fa_buf_text(out, "</script>\n</body>\n</html>\n");
}

static int begin(report *report)
{
    html_page *page = calloc(1, sizeof *page);
    if (page == NULL)
        return FA_ENOMEM;
    report->format = page;
    int rc = report_peer_names(report, &page->peer, &page->peers);
    if (rc == 0 && page->peers > 0) {
        page->sum = calloc(page->peers, sizeof *page->sum);
        if (page->sum == NULL)
            rc = FA_ENOMEM;
    }
    size_t problems = report->outcome.problems > 0 ? report->outcome.problems : 1;
    size_t share = REPORT_PAGE_CONFIGS / problems;
    page->cap = report->options->top > 0 ? (size_t)report->options->top
                : share > 200            ? 200
                : share < 10             ? 10
                                         : share;
    return rc;
}

static void add_point(html_page *page, const report_problem *problem)
{
    const fa_study *study = &problem->study;
    double intensity = fa_problem_nominal_flops(&study->problem) / problem->bytes;
    if (!(problem->tflops > 0) || !(intensity > 0) || !isfinite(intensity))
        return;
    html_point *grown = fa_grow(page->point, &page->capacity, page->points, sizeof *grown);
    if (grown == NULL) {
        page->failed = true;
        return;
    }
    page->point = grown;
    html_point *point = &page->point[page->points++];
    *point = (html_point){.number = problem->number,
                          .intensity = intensity,
                          .tflops = problem->tflops,
                          .measured = problem->measured,
                          .known_how = report_known_how(problem),
                          .problem = study->problem,
                          .gpu = study->gpu};
    memcpy(point->silicon, study->silicon, sizeof point->silicon);
}

static void add_problem(report *report, report_problem *problem)
{
    html_page *page = report->format;
    if (strcmp(page->silicon, problem->study.silicon) != 0) {
        memcpy(page->silicon, problem->study.silicon, sizeof page->silicon);
        page->gpus++;
        fa_buf_text(&page->body, "<h2>");
        html_gpu_words(&page->body, &problem->study.gpu);
        fa_buf_text(&page->body, "</h2>\n");
    }
    page->tried += problem->tried;
    page->measured += problem->measured;
    page->predicted += problem->best != NULL && !problem->measured;
    page->slow += problem->slow;
    if (problem->x_default > 0) {
        page->log_default += log(problem->x_default);
        page->defaults++;
    }
    summary_row(page, problem);
    add_point(page, problem);
    html_article(page, problem);
}

static void end(report *report)
{
    html_page *page = report->format;
    fa_buf *out = report->out;
    if (page == NULL)
        return;
    head(out, report);
    facts(out, page, report);
    fa_buf_text(out, "</header>\n<main>\n");
    summary(out, page, report);
    rooflines(out, page);
    html_buckets(out, report);
    html_predictions(out, report);
    fa_buf_append(out, page->body.data != NULL ? page->body.data : "", page->body.size);
    fa_buf_text(out, "</main>\n");
    foot(out, page, report);
    out->failed |= page->rows.failed || page->body.failed || page->failed;
    fa_buf_free(&page->rows);
    fa_buf_free(&page->body);
    free(page->point);
    free(page->peer);
    free(page->sum);
    free(page);
    report->format = NULL;
}

const report_writer report_html = {begin, add_problem, end};
