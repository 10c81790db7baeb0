/* SPDX-License-Identifier: Apache-2.0
 *
 * The report as Markdown: a summary table and a short section per problem. Readable as it is, on a
 * terminal too.
 */
#include "pay.h"
#include "words.h"

#include "error.h"

#include <stdio.h>
#include <stdlib.h>

enum { RANKING = 10 };

typedef struct markdown {
    report_summary summary;
    fa_buf body;
} markdown;

static void config(fa_buf *out, const fa_config *config)
{
    fa_buf words = {0};
    report_config_words(&words, config);
    report_markdown_code(out, words.data != NULL ? words.data : "");
    out->failed |= words.failed;
    fa_buf_free(&words);
}

static void time_cell(fa_buf *out, const fa_trial *trial)
{
    fa_buf_text(out, trial->median_us > 0 ? "" : trial->predicted_us > 0 ? "*" : "");
    report_time_of(out, trial);
    if (trial->median_us > 0) {
        fa_buf_text(out, " ");
        report_plus_minus(out, trial);
    } else if (trial->predicted_us > 0) {
        fa_buf_text(out, "* predicted");
    }
}

static void ratio(fa_buf *out, double value, bool timed)
{
    if (value > 0) {
        fa_buf_text(out, timed ? "" : "~");
        report_ratio(out, value);
    } else {
        fa_buf_text(out, "–");
    }
}

void report_summary_row(report_summary *summary, const report_problem *problem)
{
    fa_buf *out = &summary->rows;
    fa_buf_text(out, "| ");
    report_problem_words(out, &problem->study.problem);
    fa_buf_text(out, " | ");
    report_markdown_text(out, problem->study.gpu.name);
    fa_buf_printf(out, " | %s%s | ", report_standing(problem), problem->slow ? ", SLOW" : "");
    if (problem->best != NULL)
        time_cell(out, problem->best);
    else
        fa_buf_text(out, "–");
    fa_buf_text(out, problem->tflops > 0 ? problem->timed ? " | " : " | ~" : " | –");
    if (problem->tflops > 0)
        report_tflops(out, problem->tflops);
    fa_buf_text(out, " | ");
    ratio(out, problem->x_default, problem->timed);
    for (size_t i = 0; i < summary->peers; i++) {
        const report_peer *peer = report_peer_named(problem, summary->peer[i]);
        fa_buf_text(out, " | ");
        ratio(out, peer != NULL ? peer->ratio : 0, problem->timed);
    }
    fa_buf_printf(out, " | %zu | ", problem->tried);
    report_seconds(out, problem->compile_ms / 1000);
    fa_buf_text(out, " | ");
    report_seconds(out, problem->study.winner.tune_s);
    fa_buf_text(out, " | ");
    if (problem->best != NULL)
        config(out, &problem->best->config);
    fa_buf_text(out, " |\n");
}

static void funnel(fa_buf *out, const report_problem *problem)
{
    const report_funnel *f = &problem->funnel;
    fa_buf_text(out, "Funnel: ");
    if (f->known)
        fa_buf_printf(out, "space %d → ", f->space);
    fa_buf_printf(out, "budget %d → compiled %d → clean %d", f->in_budget, f->compiled, f->clean);
    if (f->on_device)
        fa_buf_printf(out, " → proved and timed %d", f->measured);
    else
        fa_buf_printf(out, " → %snothing timed",
                      problem->best == NULL             ? ""
                      : problem->best->predicted_us > 0 ? "ranked by the model, "
                                                        : "unranked, ");
    fa_buf_text(out, "\n\n| ended at | configs | why, with examples |\n|---|--:|---|\n");
    for (int g = 0; g < REPORT_STATUSES; g++) {
        const report_gate *gate = &problem->gate[report_gates[g]];
        if (gate->count == 0)
            continue;
        fa_buf_printf(out, "| %s | %zu | %s", fa_status_name(report_gates[g]), gate->count,
                      report_gate_meaning(report_gates[g]));
        for (int i = 0; i < gate->reasons; i++) {
            fa_buf_printf(out, "; %zu× ", gate->reason[i].count);
            report_markdown_text(out, gate->reason[i].text);
        }
        if (gate->elsewhere > 0)
            fa_buf_printf(out, "; %zu with other reasons", gate->elsewhere);
        fa_buf_text(out, " |\n");
    }
    fa_buf_text(out, "\n");
}

static void ranking(fa_buf *out, const report_problem *problem, size_t most)
{
    if (problem->ranked == 0)
        return;
    fa_buf_text(out,
                "| # | config | time | 95% interval | samples | model says | registers | shared "
                "B | note |\n|--:|---|--:|---|--:|--:|--:|--:|---|\n");
    for (size_t i = 0; i < problem->count && i < most && problem->config[i].rank > 0; i++) {
        const report_config *row = &problem->config[i];
        const fa_trial *trial = &row->trial;
        fa_buf_printf(out, "| %d | ", row->rank);
        config(out, &trial->config);
        fa_buf_text(out, " | ");
        time_cell(out, trial);
        fa_buf_text(out, " | ");
        if (trial->median_us > 0)
            fa_buf_printf(out, "%.6g–%.6g | %d | ", trial->low_us, trial->high_us,
                          trial->sample_count);
        else
            fa_buf_text(out, "– | – | ");
        if (trial->predicted_us > 0)
            report_about(out, trial->predicted_us);
        if (trial->registers > 0)
            fa_buf_printf(out, " | %d | ", trial->registers);
        else
            fa_buf_text(out, " | – | ");
        if (trial->threads > 0)
            report_grouped(out, trial->smem_bytes);
        else
            fa_buf_text(out, "–");
        fa_buf_printf(out, " | %s%s%s |\n", row->is_winner ? "winner " : "",
                      row->is_default ? "default " : "", trial->raced ? "raced" : "");
    }
    if (problem->ranked > most)
        fa_buf_printf(out, "\n%zu more came through.\n", problem->ranked - most);
    fa_buf_text(out, "\n");
}

static void peers(fa_buf *out, const report_problem *problem)
{
    fa_buf advice = {0};
    for (size_t i = 0; i < problem->peers; i++) {
        const report_peer *peer = &problem->peer[i];
        fa_buf_text(out, "- ");
        report_markdown_text(out, peer->baseline.peer);
        fa_buf_text(out, ": ");
        report_us(out, peer->baseline.median_us);
        fa_buf_text(out, ", × ");
        ratio(out, peer->ratio, problem->timed);
        if (peer->baseline.source[0] != 0) {
            fa_buf_text(out, " (");
            report_markdown_text(out, peer->baseline.source);
            fa_buf_text(out, ")");
        }
        fa_buf_text(out, "\n");
    }
    if (problem->slow) {
        report_slow_advice(&advice, problem);
        fa_buf_text(out, "\n**⚠ ");
        report_markdown_text(out, advice.data != NULL ? advice.data : "");
        out->failed |= advice.failed;
        fa_buf_text(out, "**\n");
    }
    fa_buf_text(out, problem->peers > 0 ? "\n" : "");
    fa_buf_free(&advice);
}

static void environments(fa_buf *out, const report_problem *problem)
{
    for (size_t i = 0; i < problem->environments; i++) {
        const report_environment *environment = &problem->environment[i];
        fa_buf_printf(out, "Made by %zu trials on ", environment->trials);
        report_markdown_text(out, environment->gpu[0] != 0 ? environment->gpu : "an unnamed GPU");
        fa_buf_text(out, environment->uuid[0] != 0 ? " "
                         : environment->driver > 0 ? ""
                                                   : ", which was not there");
        report_markdown_text(out, environment->uuid);
        if (environment->driver > 0) {
            fa_buf_text(out, "; driver for ");
            report_driver(out, environment->driver);
        }
        fa_buf_text(out, "; NVRTC ");
        report_markdown_code(out, environment->nvrtc);
        if (environment->library[0] != 0)
            fa_buf_text(out, "; fa-tune ");
        report_markdown_text(out, environment->library);
        fa_buf_text(out, "\n");
    }
    if (problem->environments_left_out > 0)
        fa_buf_printf(out, "and by %zu trials in further environments\n",
                      problem->environments_left_out);
    if (problem->sm_mhz[0] >= 0)
        fa_buf_printf(out, "SM clock %d to %d MHz\n", problem->sm_mhz[0], problem->sm_mhz[1]);
    for (size_t i = 0; i < problem->throttles; i++) {
        fa_buf_text(out, "Throttled by ");
        report_markdown_text(out, problem->throttle[i]);
        fa_buf_text(out, "\n");
    }
    fa_buf_text(out, "\n");
}

static void buckets(fa_buf *out, const report *report)
{
    report_regret_sum sum;
    if (report->regrets == 0)
        return;
    if (report_regret_summary(report, &sum) != 0) {
        out->failed = true;
        return;
    }
    fa_buf_printf(out,
                  "## Shape buckets\n\n%zu point%s between buckets: median regret %.1f%%, worst "
                  "%.1f%%.",
                  sum.points, sum.points == 1 ? "" : "s", 100 * sum.median, 100 * sum.worst);
    if (sum.failed > 0)
        fa_buf_printf(out, " At %zu the bucket's winner did not pass.", sum.failed);
    fa_buf_text(out,
                "\n\n| point | its bucket | GPU | bucket's answer there | best there | regret |\n"
                "|---|---|---|--:|--:|--:|\n");
    for (size_t i = 0; i < report->regrets; i++) {
        const fa_regret *regret = &report->regret[i];
        double value = report_regret_of(regret);
        fa_buf_text(out, "| ");
        report_problem_words(out, &regret->problem);
        fa_buf_text(out, " | ");
        report_problem_words(out, &regret->bucket);
        fa_buf_text(out, " | ");
        report_markdown_text(out, regret->gpu);
        fa_buf_text(out, " | ");
        if (value >= 0)
            report_us(out, regret->bucket_us);
        fa_buf_text(out, " | ");
        report_us(out, regret->best_us);
        if (value >= 0)
            fa_buf_printf(out, " | %.1f%% |\n", 100 * value);
        else
            fa_buf_text(out, " | did not pass |\n");
    }
    fa_buf_text(out, "\n");
}

static void predictions(fa_buf *out, const report *report)
{
    if (report->predictions == 0)
        return;
    fa_buf_text(out,
                "## Predictions that were measured\n\n| problem | GPU | known how | model said | "
                "measured | best | place |\n|---|---|---|--:|--:|--:|--:|\n");
    for (size_t i = 0; i < report->predictions; i++) {
        const fa_prediction *prediction = &report->prediction[i];
        fa_buf_text(out, "| ");
        report_problem_words(out, &prediction->problem);
        fa_buf_text(out, " | ");
        report_markdown_text(out, prediction->gpu);
        fa_buf_printf(out, " | %s | ", fa_origin_name(prediction->origin));
        if (prediction->predicted_us > 0)
            report_about(out, prediction->predicted_us);
        fa_buf_text(out, " | ");
        report_us(out, prediction->measured_us);
        fa_buf_text(out, " | ");
        report_us(out, prediction->best_us);
        fa_buf_printf(out, " | %d of %d |\n", prediction->rank, prediction->measured);
    }
    fa_buf_text(out, "\n");
}

static void pay(fa_buf *out, const report *report)
{
    if (report->pays == 0)
        return;
    fa_buf_text(out, "## Does tuning pay?\n\n| GPU | the winners against | problems where that was "
                     "measured | gain, geometric mean | most | configs |\n|---|---|--:|--:|--:|---|\n");
    for (size_t i = 0; i < report->pays; i++) {
        const report_pay *one = &report->pay[i];
        for (int r = 0; r < REPORT_PAY_ROWS; r++) {
            const report_pay_row *row = &one->row[r];
            if (!report_pay_told(one, r))
                continue;
            fa_buf_text(out, "| ");
            report_markdown_text(out, one->gpu);
            fa_buf_text(out, " | ");
            report_pay_words(out, row);
            fa_buf_printf(out, " | %zu of %zu", row->problems, one->problems);
            if (row->probes > 0)
                fa_buf_printf(out, ", %zu by probes", row->probes);
            fa_buf_text(out, " | ");
            report_ratio(out, row->mean);
            fa_buf_text(out, " | ");
            report_ratio(out, row->most);
            fa_buf_text(out, " | ");
            for (size_t c = 0; c < row->configs; c++) {
                fa_buf_text(out, c > 0 ? "; " : "");
                report_markdown_code(out, row->config[c]);
            }
            fa_buf_text(out, " |\n");
        }
    }
    fa_buf_text(out, "\nGain is the other's time over the winner's. A fixed config is the one that was measured "
                     "on most of the problems and costs least there; on the others nothing is known of "
                     "it. Probes are timed by themselves, not in a race with the winner: their "
                     "differences of a few percent mean nothing.\n\n");
}

/* ---- the summary ----------------------------------------------------------------------------*/
int report_summary_begin(const report *report, report_summary *ret_summary)
{
    *ret_summary = (report_summary){0};
    return report_peer_names(report, &ret_summary->peer, &ret_summary->peers);
}

void report_summary_end(const report *report, report_summary *summary, fa_buf *out)
{
    const report_outcome *outcome = &report->outcome;
    fa_buf_text(out, "# fa-tune report\n\n");
    report_markdown_text(out, report->store);
    fa_buf_text(out, " · ");
    report_date(out, report->made);
    fa_buf_printf(out, " · fa-tune %s\n\n", fa_version());
    if (outcome->problems == 0 && outcome->filtered > 0) {
        fa_buf_printf(out, "None of the %zu problems in this store is what was asked for.\n",
                      outcome->filtered);
    } else if (outcome->problems == 0) {
        fa_buf_text(out, "This store holds no problem yet: tune one, as in `fa-tune --gpu L4 "
                         "--seq 512`.\n");
    } else {
        fa_buf_text(out, "| problem | GPU | known how | time | TFLOP/s | × default");
        for (size_t i = 0; i < summary->peers; i++) {
            fa_buf_text(out, " | × ");
            report_markdown_text(out, summary->peer[i]);
        }
        fa_buf_text(out, " | tried | compile | tune | winner |\n|---|---|---|--:|--:|--:");
        for (size_t i = 0; i < summary->peers; i++)
            fa_buf_text(out, "|--:");
        fa_buf_text(out, "|--:|--:|--:|---|\n");
        fa_buf_append(out, summary->rows.data, summary->rows.size);
        fa_buf_text(out, "\n× is the other's time over ours: above 1, ours is faster. ~ is "
                         "predicted, not measured; what was transferred or imported is told as "
                         "such.\n\n");
    }
    out->failed |= summary->rows.failed;
    fa_buf_free(&summary->rows);
    free(summary->peer);
    *summary = (report_summary){0};
}

/* ---- --format md ----------------------------------------------------------------------------*/
static int markdown_begin(report *report)
{
    markdown *md = calloc(1, sizeof *md);
    if (md == NULL)
        return FA_ENOMEM;
    report->format = md;
    return report_summary_begin(report, &md->summary);
}

static void markdown_problem(report *report, report_problem *problem)
{
    markdown *md = report->format;
    fa_buf *out = &md->body;
    int32_t top = report->options->top;
    report_summary_row(&md->summary, problem);
    fa_buf_text(out, "## ");
    report_problem_words(out, &problem->study.problem);
    fa_buf_text(out, " on ");
    report_markdown_text(out, problem->study.gpu.name);
    fa_buf_printf(out, ": %s\n\n", report_standing(problem));
    if (problem->best == NULL)
        fa_buf_text(out,
                    "**No config came through.** `fa-tune doctor` looks for causes outside the "
                    "kernels.\n\n");
    peers(out, problem);
    funnel(out, problem);
    ranking(out, problem, top > 0 ? (size_t)top : RANKING);
    environments(out, problem);
}

static void markdown_end(report *report)
{
    markdown *md = report->format;
    fa_buf *out = report->out;
    size_t older = report->outcome.older;
    if (md == NULL)
        return;
    report_summary_end(report, &md->summary, out);
    if (report->outcome.problems > 0) {
        pay(out, report);
        buckets(out, report);
        predictions(out, report);
        fa_buf_append(out, md->body.data, md->body.size);
    }
    if (report->outcome.problems > 0 && older > 0)
        fa_buf_printf(out,
                      "%zu earlier generations of these problems, made with other "
                      "templates, are left out.\n",
                      older);
    out->failed |= md->body.failed;
    fa_buf_free(&md->body);
    free(md);
    report->format = NULL;
}

const report_writer report_markdown = {markdown_begin, markdown_problem, markdown_end};
