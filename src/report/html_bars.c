/* SPDX-License-Identifier: Apache-2.0
 *
 * Drawings that are rows of a table: label, bar or interval, number. The numbers are in the cells;
 * the drawings are hidden from screen readers.
 */
#include "html.h"

#include "error.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- funnel ---------------------------------------------------------------------------------*/
static void funnel_row(fa_buf *out, const char *label, int32_t count, int32_t of)
{
    fa_buf_printf(out, "<tr><th scope=\"row\">%s<td><svg viewBox=\"0 0 1000 20\" "
                       "preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"track\" "
                       "width=\"1000\" height=\"20\"/><rect class=\"bar\" width=\"%.1f\" "
                       "height=\"20\"/></svg><td class=\"n\">",
                  label, of > 0 ? 1000.0 * count / of : 0.0);
    report_grouped(out, count);
    fa_buf_text(out, "\n");
}

static void gate_row(fa_buf *out, const report_gate *gate, fa_status status)
{
    fa_buf_printf(out, "<tr><th scope=\"row\">%s<td class=\"n\" data-v=\"%zu\">",
                  fa_status_name(status), gate->count);
    report_grouped(out, (int64_t)gate->count);
    fa_buf_printf(out, "<td class=\"wide small\">%s", report_gate_meaning(status));
    for (int i = 0; i < gate->reasons; i++) {
        fa_buf_printf(out, "<br><span class=\"soft\">%zu×</span> ", gate->reason[i].count);
        report_html_text(out, gate->reason[i].text);
    }
    if (gate->elsewhere > 0)
        fa_buf_printf(out, "<br><span class=\"soft\">%zu with other reasons</span>",
                      gate->elsewhere);
    fa_buf_text(out, "\n");
}

void html_funnel(fa_buf *out, const report_problem *problem)
{
    const report_funnel *funnel = &problem->funnel;
    fa_buf_text(out, "<section class=\"panel\"><h4>Funnel</h4>\n");
    if (!funnel->known)
        fa_buf_text(out, "<p class=\"small soft\">Only configs on record are counted: the templates "
                         "have moved on and their whole space cannot be told any more.</p>\n");
    fa_buf_text(out, "<table class=\"bars\"><caption class=\"hidden\">How many configs came how "
                     "far</caption><tbody>\n");
    if (funnel->known)
        funnel_row(out, "space", funnel->space, funnel->space);
    funnel_row(out, "in budget", funnel->in_budget, funnel->space);
    funnel_row(out, "compiled", funnel->compiled, funnel->space);
    funnel_row(out, "clean cubin", funnel->clean, funnel->space);
    if (funnel->on_device)
        funnel_row(out, "proved and timed", funnel->measured, funnel->space);
    fa_buf_text(out, "</tbody></table>\n");
    if (!funnel->on_device)
        fa_buf_text(out, "<p class=\"small\">Nothing was timed on a device: the model ranks the "
                         "clean ones.</p>\n");
    fa_buf_text(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Gates\">"
                     "<table class=\"sort\"><caption class=\"hidden\">Where configs ended and "
                     "why</caption><thead><tr><th scope=\"col\">ended at<th scope=\"col\" "
                     "class=\"n\">configs<th scope=\"col\">why, with examples</thead><tbody>\n");
    for (int i = 0; i < REPORT_STATUSES; i++)
        if (problem->gate[report_gates[i]].count > 0)
            gate_row(out, &problem->gate[report_gates[i]], report_gates[i]);
    fa_buf_text(out, "</tbody></table></div></section>\n");
}

/* ---- race -----------------------------------------------------------------------------------*/
static const double NEAR = 1.25; /* times the best: drawn to scale */

struct race {
    const report_config *row[REPORT_RACE_ROWS];
    int count;
    size_t left_out;
    bool raced, measured;
    bool varies[FA_MAX_TUNABLES]; /* tunables of the first row */
    bool families;                /* there are several */
    double low, high;             /* the axis */
};

/* Those of the last race; else the measured; else those that the model ranks. */
static void choose_rows(const report_problem *problem, struct race *race)
{
    for (size_t i = 0; i < problem->count; i++) {
        const fa_trial *trial = &problem->config[i].trial;
        race->measured |= problem->config[i].rank > 0 && trial->median_us > 0;
        race->raced |= problem->config[i].rank > 0 && trial->raced;
    }
    int limit = race->raced ? REPORT_RACE_ROWS : REPORT_RACE_ROWS / 2;
    for (size_t i = 0; i < problem->count; i++) {
        const report_config *config = &problem->config[i];
        if (config->rank == 0 || (race->raced && !config->trial.raced) ||
            (race->measured && !(config->trial.median_us > 0)))
            continue;
        if (race->count < limit)
            race->row[race->count++] = config;
        else
            race->left_out++;
    }
}

static void find_varying(struct race *race)
{
    const fa_config *first = &race->row[0]->trial.config;
    for (int r = 1; r < race->count; r++) {
        const fa_config *config = &race->row[r]->trial.config;
        race->families |= strcmp(config->family, first->family) != 0;
        for (int t = 0; t < first->count; t++) {
            int32_t value;
            race->varies[t] |= !fa_config_get(config, first->tunable[t].name, &value) ||
                               value != first->tunable[t].value;
        }
    }
}

/* The axis holds those that come near the best: one far behind (the default config is always
 * raced) would squeeze them to one point. */
static void find_axis(struct race *race)
{
    race->low = race->row[0]->trial.low_us;
    race->high = race->row[0]->trial.high_us;
    for (int r = 0; r < race->count; r++) {
        const report_config *config = race->row[r];
        if (config->trial.high_us > race->row[0]->trial.median_us * NEAR)
            continue;
        if (config->trial.low_us < race->low)
            race->low = config->trial.low_us;
        if (config->trial.high_us > race->high)
            race->high = config->trial.high_us;
    }
    double margin = (race->high - race->low) * 0.3;
    if (!(margin > 0))
        margin = race->high * 0.01;
    race->low -= margin;
    race->high += margin;
    if (race->low < 0)
        race->low = 0;
}

static double place(const struct race *race, double us)
{
    return 1000 * (us - race->low) / (race->high - race->low);
}

static void interval(fa_buf *out, const struct race *race, const report_config *config,
                     size_t *beyond)
{
    const fa_trial *trial = &config->trial;
    if (trial->low_us > race->high || trial->high_us > race->row[0]->trial.median_us * NEAR) {
        fa_buf_text(out, "<span class=\"soft small beyond\">beyond this axis →</span>");
        return;
    }
    fa_buf_text(out, "<svg viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" "
                     "aria-hidden=\"true\">");
    fa_buf_printf(out, "<path class=\"reference\" d=\"M%.0f 0v20\"/><path class=\"sample\" d=\"",
                  place(race, race->row[0]->trial.median_us));
    for (int32_t i = 0; i < config->sample_count; i++) {
        double x = place(race, (double)config->samples_us[i]);
        if (x >= 0 && x <= 1000)
            fa_buf_printf(out, "M%.0f 4v12", x);
        else
            ++*beyond;
    }
    double low = place(race, trial->low_us), high = place(race, trial->high_us);
    fa_buf_printf(out, "\"/><rect class=\"interval\" x=\"%.1f\" y=\"2\" width=\"%.1f\" "
                       "height=\"16\"/><path class=\"median\" d=\"M%.1f 1v18\"/></svg>",
                  low, high - low > 2 ? high - low : 2, place(race, trial->median_us));
}

/* What tells this row from the others. */
static void row_label(fa_buf *out, const struct race *race, const report_config *config)
{
    const fa_config *first = &race->row[0]->trial.config, *own = &config->trial.config;
    if (race->families) {
        fa_buf_text(out, " ");
        report_html_text(out, own->family);
    }
    for (int t = 0; t < own->count; t++) {
        bool tell = race->families && strcmp(own->family, first->family) != 0;
        for (int f = 0; f < first->count && !tell; f++)
            tell = race->varies[f] && strcmp(first->tunable[f].name, own->tunable[t].name) == 0;
        if (!tell)
            continue;
        fa_buf_text(out, " <span class=\"soft\">");
        report_html_text(out, own->tunable[t].name);
        fa_buf_printf(out, "</span> %d", own->tunable[t].value);
    }
}

static void constant_part(fa_buf *out, const struct race *race)
{
    const fa_config *first = &race->row[0]->trial.config;
    bool any = false;
    for (int t = 0; t < first->count && !race->families; t++) {
        if (race->varies[t])
            continue;
        fa_buf_text(out, any ? " " : " All have <span class=\"mono\">");
        report_html_text(out, first->tunable[t].name);
        fa_buf_printf(out, "=%d", first->tunable[t].value);
        any = true;
    }
    fa_buf_text(out, any ? "</span>." : "");
}

static void race_row(fa_buf *out, const report_problem *problem, const struct race *race, int r,
                     size_t *beyond)
{
    const report_config *config = race->row[r];
    const fa_trial *best = &race->row[0]->trial, *trial = &config->trial;
    char rank[32];
    snprintf(rank, sizeof rank, "#%d", config->rank);
    fa_buf_text(out, "<tr><th scope=\"row\">");
    html_config_button(out, problem, config, "config", rank);
    row_label(out, race, config);
    fa_buf_text(out, "<td>");
    if (race->measured)
        interval(out, race, config, beyond);
    else
        fa_buf_printf(out, "<svg viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" "
                           "aria-hidden=\"true\"><rect class=\"bar predicted\" y=\"2\" "
                           "width=\"%.1f\" height=\"16\"/></svg>",
                      1000 * trial->predicted_us / race->high);
    fa_buf_text(out, "<td class=\"n\">");
    html_time(out, trial);
    if (config->is_winner)
        fa_buf_text(out, " <strong>winner</strong>");
    else if (race->raced && trial->low_us <= best->high_us && best->low_us <= trial->high_us)
        fa_buf_text(out, " overlaps");
    if (config->is_default)
        fa_buf_text(out, " default");
    fa_buf_text(out, "\n");
}

void html_race(fa_buf *out, const report_problem *problem)
{
    struct race race = {.count = 0};
    size_t beyond = 0;
    choose_rows(problem, &race);
    if (race.count == 0)
        return;
    find_varying(&race);
    if (race.measured)
        find_axis(&race);
    for (int r = 0; r < race.count && !race.measured; r++)
        if (race.row[r]->trial.predicted_us > race.high)
            race.high = race.row[r]->trial.predicted_us;
    if (!(race.high > race.low))
        return;
    fa_buf_printf(out, "<section class=\"panel whole\"><h4>%s</h4>\n",
                  race.raced      ? "The race"
                  : race.measured ? "Probes"
                                  : "Prediction <span class=\"badge predicted\">predicted</span>");
    fa_buf_text(out, "<p class=\"small soft\">");
    fa_buf_text(out, race.raced ? "Finalists, timed in turns: thin ticks are single samples, the "
                                  "band is the 95% interval of their median, the line the median "
                                  "without what slowed all of a round."
                     : race.measured
                         ? "Each timed by itself, not in a race: differences of a few percent mean "
                           "nothing. Ticks are samples, the band is the median’s 95% interval."
                         : "Nothing was measured here. These are the model’s guesses, best first.");
    constant_part(out, &race);
    fa_buf_text(out, "</p>\n<table class=\"bars race\" data-keys><caption class=\"hidden\">Times "
                     "of the best configs</caption><tbody>\n");
    for (int r = 0; r < race.count; r++)
        race_row(out, problem, &race, r, &beyond);
    fa_buf_text(out, "</tbody></table>\n");
    if (race.measured) {
        fa_buf_text(out, "<div class=\"axis\"><span>");
        report_us(out, race.low);
        fa_buf_text(out, "</span><span>");
        report_us(out, race.high);
        fa_buf_printf(out, "</span></div><p class=\"small soft\">The axis does not begin at zero; "
                           "the dotted line is #%d’s median.",
                      race.row[0]->rank);
        if (beyond > 0)
            fa_buf_printf(out, " %zu sample%s beyond its ends.", beyond,
                          beyond == 1 ? " lies" : "s lie");
        fa_buf_text(out, "</p>");
    }
    if (race.left_out > 0)
        fa_buf_printf(out, "<p class=\"small soft\">%zu slower ones are not drawn.</p>",
                      race.left_out);
    fa_buf_text(out, "</section>\n");
}

/* ---- against others -------------------------------------------------------------------------*/
static void peer_row(fa_buf *out, const char *label, const char *class_name, double us, double most)
{
    fa_buf_text(out, "<tr><th scope=\"row\">");
    report_html_text(out, label);
    fa_buf_printf(out, "<td><svg viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" "
                       "aria-hidden=\"true\"><rect class=\"bar %s\" y=\"1\" width=\"%.1f\" "
                       "height=\"18\"/></svg><td class=\"n\">",
                  class_name, 1000 * us / most);
}

static int compare_peers(const void *a, const void *b)
{
    double x = (*(const report_peer *const *)a)->baseline.median_us;
    double y = (*(const report_peer *const *)b)->baseline.median_us;
    return (x > y) - (x < y);
}

static void told_ratio(fa_buf *out, const report_problem *problem, double ratio)
{
    if (!(ratio > 0))
        return;
    fa_buf_printf(out, " <span class=\"%s\">%s",
                  !problem->measured ? "guess" : ratio >= 1 ? "ahead" : "behind",
                  problem->measured ? "" : "~");
    report_ratio(out, ratio);
    fa_buf_text(out, "</span>");
}

void html_peers(fa_buf *out, const report_problem *problem)
{
    if (problem->peers == 0 && !(problem->default_us > 0))
        return;
    const report_peer **order = calloc(problem->peers + 1, sizeof *order);
    if (order == NULL) {
        out->failed = true;
        return;
    }
    double most = problem->us > problem->default_us ? problem->us : problem->default_us;
    for (size_t i = 0; i < problem->peers; i++) {
        order[i] = &problem->peer[i];
        if (order[i]->baseline.median_us > most)
            most = order[i]->baseline.median_us;
    }
    qsort(order, problem->peers, sizeof *order, compare_peers);
    fa_buf_text(out, "<section class=\"panel\"><h4>Ours against others</h4>\n<p class=\"small "
                     "soft\">Shorter is faster. × is the other’s time over ours: above 1, ours is "
                     "faster.</p>\n<table class=\"bars\"><caption class=\"hidden\">Times of ours, "
                     "of the default config and of other kernels</caption><tbody>\n");
    if (problem->us > 0) {
        char name[64];
        snprintf(name, sizeof name, "ours, %s", report_known_how(problem));
        peer_row(out, problem->measured ? "ours" : name, problem->measured ? "" : "predicted",
                 problem->us, most);
        html_time(out, problem->best);
        fa_buf_text(out, "\n");
    }
    if (problem->default_us > 0) {
        peer_row(out, "the family's default", "default", problem->default_us, most);
        report_us(out, problem->default_us);
        told_ratio(out, problem, problem->x_default);
        fa_buf_text(out, "\n");
    }
    for (size_t i = 0; i < problem->peers; i++) {
        const fa_baseline *baseline = &order[i]->baseline;
        peer_row(out, baseline->peer, "peer", baseline->median_us, most);
        report_us(out, baseline->median_us);
        told_ratio(out, problem, order[i]->ratio);
        if (baseline->source[0] != 0) {
            fa_buf_text(out, "<br><span class=\"soft small\">");
            report_html_text(out, baseline->source);
            fa_buf_text(out, "</span>");
        }
        fa_buf_text(out, "\n");
    }
    fa_buf_text(out, "</tbody></table>\n");
    if (problem->peers == 0)
        fa_buf_text(out, "<p class=\"small soft\">No baseline is stored for this problem.</p>\n");
    fa_buf_text(out, "</section>\n");
    free(order);
}
