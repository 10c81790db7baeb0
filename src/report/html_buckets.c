/* SPDX-License-Identifier: Apache-2.0
 *
 * Sections about more than one problem: what buckets of lengths cost between their points, and how
 * good predictions were.
 */
#include "html.h"

#include "error.h"

#include <stdio.h>

static void config_cell(fa_buf *out, const fa_config *config)
{
    fa_buf words = {0};
    report_config_words(&words, config);
    fa_buf_text(out, "<td class=\"mono\">");
    report_html_text(out, words.data != NULL ? words.data : "");
    out->failed |= words.failed;
    fa_buf_free(&words);
}

static void us_cell(fa_buf *out, double us)
{
    if (us > 0) {
        fa_buf_printf(out, "<td class=\"n\" data-v=\"%.9g\">", us);
        report_us(out, us);
    } else {
        fa_buf_text(out, "<td class=\"n\" data-v=\"\">–");
    }
}

static void open_section(fa_buf *out, const char *id, const char *title)
{
    fa_buf_printf(out, "<section aria-labelledby=\"%s\"><h2 id=\"%s\">%s</h2>\n", id, id, title);
}

static void open_table(fa_buf *out, const char *title)
{
    fa_buf_printf(out, "<div class=\"scroll stick summary\" tabindex=\"0\" role=\"region\" "
                       "aria-label=\"%s\"><table class=\"sort\"><caption "
                       "class=\"hidden\">%s</caption>\n<thead><tr>",
                  title, title);
}

static void regret_row(fa_buf *out, const fa_regret *regret)
{
    double value = report_regret_of(regret);
    fa_buf_text(out, "<tr><th scope=\"row\">");
    report_problem_words(out, &regret->problem);
    fa_buf_text(out, "<td>");
    report_problem_words(out, &regret->bucket);
    fa_buf_text(out, "<td>");
    report_html_text(out, regret->gpu);
    us_cell(out, regret->bucket_us);
    us_cell(out, regret->best_us);
    if (value >= 0)
        fa_buf_printf(out, "<td class=\"n\" data-v=\"%.6g\">%.1f%%", value, 100 * value);
    else
        fa_buf_text(out, "<td class=\"n\" data-v=\"\">did not pass");
    config_cell(out, &regret->best_config);
    fa_buf_text(out, "\n");
}

void html_buckets(fa_buf *out, const report *report)
{
    report_regret_sum sum;
    if (report->regrets == 0)
        return;
    if (report_regret_summary(report, &sum) != 0) {
        out->failed = true;
        return;
    }
    open_section(out, "buckets", "Shape buckets");
    fa_buf_text(out, "<p>A length that was not tuned gets the winner of its bucket. Regret is how much "
                     "longer that one takes there than the best of a tune of that very length. ");
    if (sum.points > 0)
        fa_buf_printf(out, "<strong>%zu point%s: median %.1f%%, worst %.1f%%.</strong>", sum.points,
                      sum.points == 1 ? "" : "s", 100 * sum.median, 100 * sum.worst);
    if (sum.failed > 0)
        fa_buf_printf(out, " At %zu the bucket’s winner did not pass.", sum.failed);
    fa_buf_text(out, "</p>\n");
    open_table(out, "Regret between buckets");
    fa_buf_text(out, "<th scope=\"col\">point<th scope=\"col\">its bucket<th scope=\"col\">GPU<th "
                     "scope=\"col\" class=\"n\">bucket’s answer there<th scope=\"col\" "
                     "class=\"n\">best there<th scope=\"col\" class=\"n\">regret<th "
                     "scope=\"col\">best config</thead>\n<tbody>\n");
    for (size_t i = 0; i < report->regrets; i++)
        regret_row(out, &report->regret[i]);
    fa_buf_text(out, "</tbody></table></div></section>\n");
}

static void prediction_row(fa_buf *out, const fa_prediction *prediction)
{
    fa_buf_text(out, "<tr><th scope=\"row\">");
    report_problem_words(out, &prediction->problem);
    fa_buf_text(out, "<td>");
    report_html_text(out, prediction->gpu);
    fa_buf_printf(out, "<td>%s", fa_origin_name(prediction->origin));
    if (prediction->origin == FA_ORIGIN_TRANSFERRED) {
        fa_buf_text(out, " from ");
        report_html_text(out, prediction->from_gpu);
    }
    if (prediction->predicted_us > 0) {
        fa_buf_printf(out, "<td class=\"n\" data-v=\"%.6g\"><span class=\"guess\">",
                      prediction->predicted_us);
        report_about(out, prediction->predicted_us);
        fa_buf_text(out, "</span>");
    } else {
        fa_buf_text(out, "<td class=\"n\" data-v=\"\">–");
    }
    us_cell(out, prediction->measured_us);
    us_cell(out, prediction->best_us);
    if (prediction->measured_us > 0 && prediction->best_us > 0) {
        double cost = prediction->measured_us / prediction->best_us - 1;
        fa_buf_printf(out, "<td class=\"n\" data-v=\"%.6g\">%.1f%%<td class=\"n\" "
                           "data-v=\"%d\">%d of %d",
                      cost, 100 * cost, prediction->rank, prediction->rank, prediction->measured);
    } else {
        fa_buf_text(out, "<td class=\"n\" data-v=\"\">–<td class=\"n\" data-v=\"\">–");
    }
    config_cell(out, &prediction->config);
    fa_buf_text(out, "\n");
}

void html_predictions(fa_buf *out, const report *report)
{
    if (report->predictions == 0)
        return;
    open_section(out, "predictions", "Predictions that were measured");
    fa_buf_text(out, "<p>Choices that the model or another GPU’s winner gave, and what they turned out "
                     "to be. The cost is how much longer the choice takes than the best that was "
                     "measured beside it.</p>\n");
    open_table(out, "Predictions that were measured");
    fa_buf_text(out, "<th scope=\"col\">problem<th scope=\"col\">GPU<th scope=\"col\">known how<th "
                     "scope=\"col\" class=\"n\">model said<th scope=\"col\" "
                     "class=\"n\">measured<th scope=\"col\" class=\"n\">best<th scope=\"col\" "
                     "class=\"n\">cost<th scope=\"col\" class=\"n\">place<th "
                     "scope=\"col\">config</thead>\n<tbody>\n");
    for (size_t i = 0; i < report->predictions; i++)
        prediction_row(out, &report->prediction[i]);
    fa_buf_text(out, "</tbody></table></div></section>\n");
}
