/* SPDX-License-Identifier: Apache-2.0
 *
 * Heat maps: BLOCK_M by BLOCK_N for each STAGES, in each cell the best time that the other tunables
 * reach. Steps of colour are ratios to the problem's best, the same in every map; the numbers are in
 * the cells, so that no colour needs to be told from another. A cell without a time says at which
 * gate the configs that came furthest ended.
 */
#include "html.h"

#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AXIS_MAX = 24, MAPS_MAX = 8, STEPS = 8 };

static const double step_limit[STEPS - 1] = {1.02, 1.05, 1.1, 1.2, 1.4, 1.7, 2.5};
static const char *const step_name[STEPS] = {"to 1.02×", "1.05×", "1.1×", "1.2×",
                                             "1.4×",     "1.7×",  "2.5×", "slower"};

struct axis {
    int32_t value[AXIS_MAX];
    int count;
    bool full; /* values were dropped */
};

struct maps {
    const char *family;
    struct axis rows, columns, maps;
};

static void join(struct axis *axis, int limit, int32_t value)
{
    int at = 0;
    while (at < axis->count && axis->value[at] < value)
        at++;
    if (at < axis->count && axis->value[at] == value)
        return;
    if (axis->count == limit) {
        axis->full = true;
        return;
    }
    memmove(&axis->value[at + 1], &axis->value[at], (size_t)(axis->count - at) * sizeof value);
    axis->value[at] = value;
    axis->count++;
}

/* The axes that a family's configs span; false when it has no such tunables. */
static bool find_axes(const report_problem *problem, const char *family, struct maps *ret_maps)
{
    struct maps maps = {.family = family};
    for (size_t i = 0; i < problem->count; i++) {
        const report_config *config = &problem->config[i];
        if (!config->has_tile || strcmp(config->trial.config.family, family) != 0)
            continue;
        join(&maps.rows, AXIS_MAX, config->tile[0]);
        join(&maps.columns, AXIS_MAX, config->tile[1]);
        join(&maps.maps, MAPS_MAX, config->tile[2]);
    }
    *ret_maps = maps;
    return maps.rows.count > 0;
}

static double time_of(const report_config *config)
{
    return config->trial.median_us > 0 ? config->trial.median_us : config->trial.predicted_us;
}

/* What a cell shows is its first config, as they come best first: the winner, then by race, probe,
 * model, and how far they got. NULL: the space has none there. */
static const report_config *cell_of(const report_problem *problem, const struct maps *maps,
                                    const int32_t place[3])
{
    for (size_t i = 0; i < problem->count; i++) {
        const report_config *config = &problem->config[i];
        if (config->has_tile && memcmp(config->tile, place, sizeof config->tile) == 0 &&
            strcmp(config->trial.config.family, maps->family) == 0)
            return config;
    }
    return NULL;
}

/* Calls back for each family once, in the order of its first config. */
static void each_family(const report_problem *problem,
                        void (*visit)(void *context, const report_problem *problem,
                                      const char *family),
                        void *context)
{
    for (size_t i = 0; i < problem->count; i++) {
        const char *family = problem->config[i].trial.config.family;
        size_t before = 0;
        while (before < i && strcmp(problem->config[before].trial.config.family, family) != 0)
            before++;
        if (before == i)
            visit(context, problem, family);
    }
}

static void mark_family(void *context, const report_problem *problem, const char *family)
{
    struct maps maps;
    (void)context;
    if (!find_axes(problem, family, &maps))
        return;
    for (int m = 0; m < maps.maps.count; m++)
        for (int r = 0; r < maps.rows.count; r++)
            for (int c = 0; c < maps.columns.count; c++) {
                const int32_t place[3] = {maps.rows.value[r], maps.columns.value[c],
                                          maps.maps.value[m]};
                const report_config *config = cell_of(problem, &maps, place);
                if (config != NULL && config->rank > 0)
                    problem->config[config - problem->config].told = true;
            }
}

void html_mark_heat(report_problem *problem)
{
    each_family(problem, mark_family, NULL);
}

static void cell(fa_buf *out, const report_problem *problem, const report_config *config,
                 double best_us)
{
    char class_name[32], text[64];
    if (config == NULL) {
        fa_buf_text(out, "<td><span class=\"gone\">·</span>");
        return;
    }
    fa_buf_text(out, "<td>");
    if (config->rank == 0) {
        bool pruned = config->trial.status == FA_STATUS_CONSTRAINT;
        fa_buf_printf(out, "<span class=\"gone\">%s</span>",
                      pruned ? "–" : fa_status_name(config->trial.status));
        return;
    }
    double us = time_of(config);
    bool measured = config->trial.median_us > 0;
    int step = 0;
    while (step < STEPS - 1 && !(us <= best_us * step_limit[step]))
        step++;
    snprintf(class_name, sizeof class_name, "h%d%s%s", step, measured ? "" : " predicted",
             config->is_winner ? " best" : "");
    snprintf(text, sizeof text, "%s%.*f%s", measured ? "" : "~",
             us < 9.995 ? 2 : us < 999.95 && measured ? 1 : 0, us, config->is_winner ? " ★" : "");
    html_config_button(out, problem, config, class_name, text);
}

static void map(fa_buf *out, const report_problem *problem, const struct maps *maps, int32_t stages)
{
    fa_buf_printf(out, "<div><table class=\"heat\" data-keys><caption>STAGES %d</caption>\n"
                       "<thead><tr><td>",
                  stages);
    for (int c = 0; c < maps->columns.count; c++)
        fa_buf_printf(out, "<th scope=\"col\"><span class=\"hidden\">BLOCK_N </span>%d",
                      maps->columns.value[c]);
    fa_buf_text(out, "</thead>\n<tbody>\n");
    for (int r = 0; r < maps->rows.count; r++) {
        fa_buf_printf(out, "<tr><th scope=\"row\"><span class=\"hidden\">BLOCK_M </span>%d",
                      maps->rows.value[r]);
        for (int c = 0; c < maps->columns.count; c++) {
            const int32_t place[3] = {maps->rows.value[r], maps->columns.value[c], stages};
            cell(out, problem, cell_of(problem, maps, place), problem->us);
        }
        fa_buf_text(out, "\n");
    }
    fa_buf_text(out, "</tbody></table></div>\n");
}

static void family_maps(void *context, const report_problem *problem, const char *family)
{
    fa_buf *out = context;
    struct maps maps;
    fa_buf_text(out, "<p class=\"small\"><span class=\"mono\">");
    report_html_text(out, family);
    if (!find_axes(problem, family, &maps)) {
        fa_buf_text(out, "</span> has no BLOCK_M, BLOCK_N and STAGES to draw.</p>\n");
        return;
    }
    fa_buf_text(out, "</span>: BLOCK_M down, BLOCK_N across, µs");
    if (maps.rows.full || maps.columns.full || maps.maps.full)
        fa_buf_printf(out, "; the first %d values of a tunable and %d of STAGES are drawn", AXIS_MAX,
                      MAPS_MAX);
    fa_buf_text(out, ".</p>\n<div class=\"maps\">\n");
    for (int m = 0; m < maps.maps.count; m++)
        map(out, problem, &maps, maps.maps.value[m]);
    fa_buf_text(out, "</div>\n");
}

void html_heat(fa_buf *out, const report_problem *problem)
{
    fa_buf_text(out, "<section class=\"panel whole\"><h4>Heat map</h4>\n<p class=\"small soft\">Best "
                     "time of the other tunables in each cell");
    if (!problem->funnel.on_device)
        fa_buf_text(out, ", as the <em>model</em> says: none was measured, hence the ~");
    fa_buf_text(out, ". A word instead of a number is the gate at which the configs that came "
                     "furthest ended. Arrow keys move between cells, Enter opens a record.</p>\n");
    each_family(problem, family_maps, out);
    fa_buf_text(out, "<ul class=\"key\" aria-label=\"Steps of colour\"><li>times the best:");
    for (int i = 0; i < STEPS; i++)
        fa_buf_printf(out, "<li class=\"h%d\">%s", i, step_name[i]);
    fa_buf_text(out, "<li>★ winner<li>– excluded by a constraint</ul></section>\n");
}
