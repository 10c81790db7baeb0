/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a problem's configs, and the full record of each as data for the page's script.
 */
#include "html.h"

#include "error.h"
#include "problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS_MAX = 24 };

/* A record's fields, in the order in which they are told. */
static const char *const labels[] = {
    "rank",           "family",       "tunables",      "ended at",        "because",
    "measured",       "95% interval", "samples",       "model says",      "threads",
    "shared memory",  "registers",    "spills",        "blocks per SM",   "grid",
    "compile time",   "largest error", "error allowed", "SM clock after", "memory clock after",
    "temperature",    "throttled by", "seed",          "cubin",           "recorded",
};

enum { LABELS = sizeof labels / sizeof *labels };

void html_labels(fa_buf *out)
{
    for (size_t i = 0; i < LABELS; i++)
        fa_buf_printf(out, "%s\"%s\"", i == 0 ? "[" : ",", labels[i]);
    fa_buf_text(out, "]");
}

/* The number of a told config among those that are told. */
static size_t number_of(const report_problem *problem, const report_config *config)
{
    size_t number = 0;
    for (const report_config *other = problem->config; other < config; other++)
        number += other->told;
    return number;
}

void html_config_button(fa_buf *out, const report_problem *problem, const report_config *config,
                        const char *class_name, const char *text)
{
    if (!config->told) {
        fa_buf_printf(out, "<span class=\"%s\">%s</span>", class_name, text);
        return;
    }
    fa_buf_printf(out, "<button type=\"button\" class=\"%s\" data-c=\"%d.%zu\">%s</button>",
                  class_name, problem->number, number_of(problem, config), text);
}

/* The store holds any finite number. */
static int64_t whole(double value)
{
    return value < 1e15 ? (int64_t)(value + 0.5) : (int64_t)1e15;
}

/* ---- records --------------------------------------------------------------------------------*/
/* Writes the next field from `cell`, which is cleared. */
static void field(fa_buf *out, fa_buf *cell)
{
    if (out->data[out->size - 1] != '[')
        fa_buf_text(out, ",");
    report_script_text(out, cell->size > 0 ? cell->data : "");
    fa_buf_clear(cell);
}

static void number_field(fa_buf *out, fa_buf *cell, bool known, int64_t value, const char *unit)
{
    if (known) {
        report_grouped(cell, value);
        fa_buf_text(cell, unit);
    }
    field(out, cell);
}

static void times(fa_buf *out, fa_buf *cell, const report_config *config)
{
    const fa_trial *trial = &config->trial;
    bool measured = trial->median_us > 0;
    if (measured) {
        report_us(cell, trial->median_us);
        fa_buf_text(cell, trial->raced ? ", in the race of the finalists" : ", in its probe");
    }
    field(out, cell);
    if (measured) {
        report_us(cell, trial->low_us);
        fa_buf_text(cell, " to ");
        report_us(cell, trial->high_us);
    }
    field(out, cell);
    number_field(out, cell, measured, trial->sample_count, "");
    if (trial->predicted_us > 0) {
        report_about(cell, trial->predicted_us);
        fa_buf_text(cell, measured ? "" : " (a prediction)");
    }
    field(out, cell);
}

static void circumstances(fa_buf *out, fa_buf *cell, const report_config *config)
{
    const fa_trial *trial = &config->trial;
    if (trial->tolerance > 0)
        fa_buf_printf(cell, "%.3g", trial->max_error);
    field(out, cell);
    if (trial->tolerance > 0)
        fa_buf_printf(cell, "%.3g", trial->tolerance);
    field(out, cell);
    number_field(out, cell, config->tried && config->sm_mhz >= 0, config->sm_mhz, " MHz");
    number_field(out, cell, config->tried && config->memory_mhz >= 0, config->memory_mhz, " MHz");
    number_field(out, cell, config->tried && config->temperature_c >= 0, config->temperature_c,
                 " °C");
    fa_buf_text(cell, config->throttle);
    field(out, cell);
    if (config->tried)
        fa_buf_printf(cell, "%" PRIu64, config->seed);
    field(out, cell);
    fa_buf_text(cell, config->cubin_key);
    field(out, cell);
    if (config->tried)
        report_date(cell, config->unix_time);
    field(out, cell);
}

static void record(fa_buf *out, fa_buf *cell, const report_config *config)
{
    const fa_trial *trial = &config->trial;
    bool compiled = trial->registers > 0;
    fa_buf_text(out, "[");
    if (config->rank > 0)
        fa_buf_printf(cell, "#%d%s", config->rank, config->is_winner ? ", the winner" : "");
    if (config->is_default)
        fa_buf_printf(cell, "%sthe family's default", cell->size > 0 ? ", " : "");
    field(out, cell);
    fa_buf_text(cell, trial->config.family);
    field(out, cell);
    for (int i = 0; i < trial->config.count; i++)
        fa_buf_printf(cell, "%s%s=%d", i > 0 ? " " : "", trial->config.tunable[i].name,
                      trial->config.tunable[i].value);
    field(out, cell);
    fa_buf_printf(cell, "%s: %s", fa_status_name(trial->status),
                  report_gate_meaning(trial->status));
    field(out, cell);
    fa_buf_text(cell, trial->reason);
    field(out, cell);
    times(out, cell, config);
    number_field(out, cell, trial->threads > 0, trial->threads, "");
    number_field(out, cell, trial->threads > 0, trial->smem_bytes, " B");
    number_field(out, cell, compiled, trial->registers, " a thread");
    number_field(out, cell, compiled, trial->spill_bytes, " B a thread");
    number_field(out, cell, trial->blocks_per_sm > 0, trial->blocks_per_sm, "");
    if (trial->grid[0] > 0)
        fa_buf_printf(cell, "%u × %u × %u", trial->grid[0], trial->grid[1], trial->grid[2]);
    field(out, cell);
    number_field(out, cell, trial->compile_ms > 0, whole(trial->compile_ms), " ms");
    circumstances(out, cell, config);
    fa_buf_text(out, "]");
}

static void records(fa_buf *out, const report_problem *problem)
{
    fa_buf cell = {0};
    bool first = true;
    fa_buf_printf(out, "<script type=\"application/json\" id=\"c%d\">[", problem->number);
    for (size_t i = 0; i < problem->count; i++) {
        if (!problem->config[i].told)
            continue;
        fa_buf_text(out, first ? "" : ",\n");
        first = false;
        if (!out->failed)
            record(out, &cell, &problem->config[i]);
    }
    fa_buf_text(out, "]</script>\n");
    out->failed |= cell.failed;
    fa_buf_free(&cell);
}

/* ---- the table ------------------------------------------------------------------------------*/
struct columns {
    const char *name[COLUMNS_MAX];
    int count;
};

static void find_columns(const report_problem *problem, struct columns *columns)
{
    for (size_t i = 0; i < problem->count; i++) {
        const fa_config *config = &problem->config[i].trial.config;
        for (int t = 0; problem->config[i].told && t < config->count; t++) {
            int known = 0;
            while (known < columns->count &&
                   strcmp(columns->name[known], config->tunable[t].name) != 0)
                known++;
            if (known == columns->count && known < COLUMNS_MAX)
                columns->name[columns->count++] = config->tunable[t].name;
        }
    }
}

static void number_cell(fa_buf *out, bool known, int64_t value)
{
    if (!known) {
        fa_buf_text(out, "<td class=\"n\" data-v=\"\">–");
        return;
    }
    fa_buf_printf(out, "<td class=\"n\" data-v=\"%" PRId64 "\">", value);
    report_grouped(out, value);
}

static void row(fa_buf *out, const report_problem *problem, const report_config *config,
                const struct columns *columns)
{
    const fa_trial *trial = &config->trial;
    char text[64];
    snprintf(text, sizeof text, config->rank > 0 ? "#%d" : "–", config->rank);
    fa_buf_printf(out, "<tr><th scope=\"row\" class=\"n\" data-v=\"%.0d\">", config->rank);
    html_config_button(out, problem, config, "config", text);
    fa_buf_text(out, config->is_winner ? " winner" : config->is_default ? " default" : "");
    fa_buf_text(out, "<td>");
    report_html_text(out, trial->config.family);
    for (int i = 0; i < columns->count; i++) {
        int32_t value = 0;
        bool known = fa_config_get(&trial->config, columns->name[i], &value);
        number_cell(out, known, value);
    }
    number_cell(out, trial->threads > 0, trial->smem_bytes);
    number_cell(out, trial->registers > 0, trial->registers);
    number_cell(out, trial->blocks_per_sm > 0, trial->blocks_per_sm);
    number_cell(out, trial->compile_ms > 0, whole(trial->compile_ms));
    if (trial->predicted_us > 0) {
        fa_buf_printf(out, "<td class=\"n\" data-v=\"%.4g\"><span class=\"guess\">",
                      trial->predicted_us);
        report_about(out, trial->predicted_us);
        fa_buf_text(out, "</span>");
    } else {
        fa_buf_text(out, "<td class=\"n\" data-v=\"\">–");
    }
    if (trial->median_us > 0) {
        fa_buf_printf(out, "<td class=\"n\" data-v=\"%.9g\">", trial->median_us);
        html_time(out, trial);
    } else {
        fa_buf_text(out, "<td class=\"n\" data-v=\"\">–");
    }
    fa_buf_printf(out, "<td>%s%s", fa_status_name(trial->status), trial->raced ? ", raced" : "");
    if (trial->reason[0] != 0) {
        fa_buf_text(out, ": ");
        report_html_text(out, trial->reason);
    }
    fa_buf_text(out, "\n");
}

void html_configs(fa_buf *out, const report_problem *problem)
{
    struct columns columns = {.count = 0};
    size_t told = 0;
    for (size_t i = 0; i < problem->count; i++)
        told += problem->config[i].told;
    if (told == 0)
        return;
    find_columns(problem, &columns);
    fa_buf_printf(out, "<details><summary>%zu configs in full", told);
    if (told < problem->count)
        fa_buf_printf(out, " of %zu", problem->count);
    fa_buf_text(out, "</summary>\n");
    fa_buf_text(out, "<p class=\"small soft\">");
    if (told < problem->count)
        fa_buf_printf(out, "%zu more are counted in the funnel only; <code>fa-tune explain</code> "
                           "lists every one. ",
                      problem->count - told);
    fa_buf_text(out, "The model’s times are guesses, marked ~. The first column opens a config’s "
                     "full record.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                     "aria-label=\"Configs\"><table class=\"sort\" data-keys><caption "
                     "class=\"hidden\">Configs, best first</caption>\n<thead><tr><th scope=\"col\" class=\"n\">rank"
                     "<th scope=\"col\">family");
    for (int i = 0; i < columns.count; i++) {
        fa_buf_text(out, "<th scope=\"col\" class=\"n\">");
        report_html_text(out, columns.name[i]);
    }
    fa_buf_text(out, "<th scope=\"col\" class=\"n\">shared B<th scope=\"col\" class=\"n\">registers"
                     "<th scope=\"col\" class=\"n\">blocks/SM<th scope=\"col\" class=\"n\">compile "
                     "ms<th scope=\"col\" class=\"n\">model says<th scope=\"col\" "
                     "class=\"n\">measured<th scope=\"col\">ended</thead>\n<tbody>\n");
    for (size_t i = 0; i < problem->count; i++)
        if (problem->config[i].told)
            row(out, problem, &problem->config[i], &columns);
    fa_buf_text(out, "</tbody></table></div></details>\n");
    records(out, problem);
}
