/* SPDX-License-Identifier: Apache-2.0
 *
 * The report as rows (RFC 4180, UTF-8, CRLF), one kind of row for each kind of fact, all with the
 * same columns; what a row does not know is empty.
 *
 *   winner       the problem's best and how it is known
 *   baseline     a peer's time; `ratio` is that time over ours
 *   gate         `count` configs ended at `status`
 *   reason       `count` of them because of `text`; some examples
 *   config       one that was tried
 *   regret       a bucket's winner at a point between buckets; `ratio` is its time over the best's
 *   prediction   a choice that was predicted or transferred, measured; `ratio` as above
 *   environment  `count` trials were made in it; `text` is its JSON
 *
 * Measured and predicted times have columns of their own.
 */
#include "words.h"

#include "error.h"
#include "operation.h"
#include "problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Before and after the columns of the operations' fields. */
static const char
    header[] = "row,problem,gpu,sm,silicon",
    header_rest[] =
        "known_how,name,tunables,rank,status,count,median_us,low_us,high_us,predicted_us,"
        "samples,raced,tflops,ratio,slow,default_us,compile_ms,tune_s,registers,spill_"
        "bytes,smem_bytes,threads,blocks_per_sm,max_error,tolerance,sm_mhz,temperature_"
        "c,seed,cubin_key,unix_time,text\r\n";

/* What differs between rows; the rest is the problem's. */
struct row {
    const char *kind, *name, *text;
    const fa_trial *trial;       /* NULL: none */
    const report_config *config; /* where the trial is a config's */
    bool winner;
    const char *status, *known_how; /* NULL: the problem's */
    size_t count;                   /* 0: empty */
    double median_us, low_us, high_us, ratio;
};

static void text_field(fa_buf *out, const char *text)
{
    fa_buf_text(out, ",");
    report_csv_text(out, text != NULL ? text : "");
}

static void number_field(fa_buf *out, double value, bool known)
{
    fa_buf_text(out, ",");
    if (known && isfinite(value))
        fa_buf_printf(out, "%.9g", value);
}

static void positive(fa_buf *out, double value)
{
    number_field(out, value, value > 0);
}

static void tunables(fa_buf *out, const fa_config *config)
{
    fa_buf words = {0};
    for (int i = 0; i < config->count; i++)
        fa_buf_printf(&words, "%s%s=%d", i > 0 ? " " : "", config->tunable[i].name,
                      config->tunable[i].value);
    text_field(out, words.data);
    out->failed |= words.failed;
    fa_buf_free(&words);
}

/* Calls back for every field of every operation, those of one name once, in the order of columns. */
static void each_column(fa_buf *out, const fa_problem *problem,
                        void (*visit)(fa_buf *out, const fa_problem *problem, const char *name))
{
    const fa_operation *operation, *earlier;
    for (int i = 0; (operation = fa_operation_at(i)) != NULL; i++) {
        int field[FA_PROBLEM_VALUES];
        fa_operation_order(operation, FA_ORDER_COLUMNS, field);
        for (int f = 0; f < operation->field_count; f++) {
            const char *name = operation->field[field[f]].name;
            int e = 0;
            while ((earlier = fa_operation_at(e)) != operation &&
                   fa_operation_field_index(earlier, name) < 0)
                e++;
            if (earlier == operation)
                visit(out, problem, name);
        }
    }
}

static void column_name(fa_buf *out, const fa_problem *problem, const char *name)
{
    (void)problem;
    fa_buf_printf(out, ",%s", name);
}

static void column_value(fa_buf *out, const fa_problem *problem, const char *name)
{
    const fa_operation *operation = fa_operation_of(problem);
    int i = fa_operation_field_index(operation, name);
    char room[16];
    if (i >= 0 && operation->field[i].kind == FA_FIELD_CHOICE)
        text_field(out, fa_field_text(&operation->field[i], problem->value[i], room));
    else
        number_field(out, i >= 0 ? problem->value[i] : 0, i >= 0);
}

static void problem_fields(fa_buf *out, const report_problem *problem, const char *known_how)
{
    positive(out, problem->number);
    text_field(out, problem->study.gpu.name);
    positive(out, problem->study.gpu.sm);
    text_field(out, problem->study.silicon);
    each_column(out, &problem->study.problem, column_value);
    text_field(out, known_how != NULL ? known_how : report_standing(problem));
}

static void cubin_fields(fa_buf *out, const struct row *row)
{
    const fa_trial *trial = row->trial;
    const report_config *config = row->config;
    bool compiled = trial != NULL && trial->registers > 0;
    positive(out, trial != NULL ? trial->registers : 0);
    number_field(out, compiled ? trial->spill_bytes : 0, compiled);
    number_field(out, trial != NULL ? trial->smem_bytes : 0, trial != NULL && trial->threads > 0);
    positive(out, trial != NULL ? trial->threads : 0);
    positive(out, trial != NULL ? trial->blocks_per_sm : 0);
    bool proved = trial != NULL && trial->tolerance > 0;
    number_field(out, proved ? trial->max_error : 0, proved);
    number_field(out, proved ? trial->tolerance : 0, proved);
    number_field(out, config != NULL ? config->sm_mhz : 0, config != NULL && config->sm_mhz >= 0);
    number_field(out, config != NULL ? config->temperature_c : 0,
                 config != NULL && config->temperature_c >= 0);
    if (config != NULL)
        fa_buf_printf(out, ",%" PRIu64, config->seed);
    else
        fa_buf_text(out, ",");
    text_field(out, config != NULL ? config->cubin_key : NULL);
}

static void write_row(fa_buf *out, const report_problem *problem, const struct row *row)
{
    const fa_trial *trial = row->trial;
    const fa_study *study = &problem->study;
    double median_us = trial != NULL ? trial->median_us : row->median_us;
    fa_buf_text(out, row->kind);
    problem_fields(out, problem, row->known_how);
    text_field(out, trial != NULL ? trial->config.family : row->name);
    if (trial != NULL)
        tunables(out, &trial->config);
    else
        fa_buf_text(out, ",");
    positive(out, row->config != NULL ? row->config->rank : 0);
    text_field(out, trial != NULL ? fa_status_name(trial->status) : row->status);
    positive(out, (double)row->count);
    positive(out, median_us);
    positive(out, trial != NULL && median_us > 0 ? trial->low_us : row->low_us);
    positive(out, trial != NULL && median_us > 0 ? trial->high_us : row->high_us);
    positive(out, trial != NULL ? trial->predicted_us : 0);
    positive(out, trial != NULL ? trial->sample_count : 0);
    fa_buf_printf(out, ",%s", trial == NULL ? "" : trial->raced ? "1" : "0");
    positive(out, row->winner && problem->measured ? problem->tflops : 0);
    positive(out, row->ratio);
    fa_buf_printf(out, ",%s", !row->winner ? "" : problem->slow ? "1" : "0");
    positive(out, row->winner ? problem->default_us : 0);
    positive(out, row->winner ? problem->compile_ms : trial != NULL ? trial->compile_ms : 0);
    positive(out, row->winner ? study->winner.tune_s : 0);
    cubin_fields(out, row);
    positive(out, row->config != NULL ? (double)row->config->unix_time
                  : row->winner       ? (double)study->unix_time
                                      : 0);
    text_field(out, row->text);
    fa_buf_text(out, "\r\n");
}

static int csv_begin(report *report)
{
    fa_buf_text(report->out, header);
    each_column(report->out, NULL, column_name);
    fa_buf_printf(report->out, ",%s", header_rest);
    return 0;
}

static void csv_problem(report *report, report_problem *problem)
{
    fa_buf *out = report->out;
    struct row winner = {.kind = "winner",
                         .winner = true,
                         .trial = problem->best,
                         .ratio = problem->x_default,
                         .status = ""};
    write_row(out, problem, &winner);
    for (size_t i = 0; i < problem->peers; i++) {
        const report_peer *peer = &problem->peer[i];
        struct row row = {.kind = "baseline",
                          .name = peer->baseline.peer,
                          .median_us = peer->baseline.median_us,
                          .low_us = peer->baseline.low_us,
                          .high_us = peer->baseline.high_us,
                          .ratio = peer->ratio,
                          .text = peer->baseline.source};
        write_row(out, problem, &row);
    }
    for (int g = 0; g < REPORT_STATUSES; g++) {
        const report_gate *gate = &problem->gate[report_gates[g]];
        struct row row = {
            .kind = "gate", .status = fa_status_name(report_gates[g]), .count = gate->count};
        if (gate->count > 0)
            write_row(out, problem, &row);
        row.kind = "reason";
        for (int r = 0; r < gate->reasons; r++) {
            row.count = gate->reason[r].count;
            row.text = gate->reason[r].text;
            write_row(out, problem, &row);
        }
    }
    for (size_t i = 0; i < problem->count; i++) {
        const report_config *config = &problem->config[i];
        struct row row = {.kind = "config",
                          .trial = &config->trial,
                          .config = config,
                          .text = config->trial.reason};
        if (config->tried)
            write_row(out, problem, &row);
    }
    for (size_t i = 0; i < problem->environments; i++) {
        struct row row = {.kind = "environment",
                          .name = problem->environment[i].gpu,
                          .count = problem->environment[i].trials,
                          .text = problem->environment[i].text};
        write_row(out, problem, &row);
    }
}

/* What is told of no problem of the report in particular. */
static void lone_row(fa_buf *out, struct row *row, const fa_problem *problem, const char *gpu,
                     double best_us, const fa_config *config)
{
    report_problem none = {.study = {.problem = *problem}};
    fa_trial trial = *row->trial;
    snprintf(none.study.gpu.name, sizeof none.study.gpu.name, "%s", gpu);
    trial.config = *config;
    trial.status = trial.median_us > 0 ? FA_STATUS_MEASURED : FA_STATUS_WRONG;
    row->trial = &trial;
    row->ratio = trial.median_us > 0 && best_us > 0 ? trial.median_us / best_us : 0;
    write_row(out, &none, row);
}

static void csv_end(report *report)
{
    fa_buf *out = report->out, text = {0};
    for (size_t i = 0; i < report->regrets; i++) {
        const fa_regret *regret = &report->regret[i];
        fa_trial trial = {.median_us = regret->bucket_us};
        fa_buf_clear(&text);
        fa_buf_text(&text, "bucket ");
        report_problem_words(&text, &regret->bucket);
        fa_buf_printf(&text, "; best %.9g us with ", regret->best_us);
        report_config_words(&text, &regret->best_config);
        struct row row = {
            .kind = "regret", .known_how = "measured", .trial = &trial, .text = text.data};
        lone_row(out, &row, &regret->problem, regret->gpu, regret->best_us, &regret->bucket_config);
    }
    for (size_t i = 0; i < report->predictions; i++) {
        const fa_prediction *prediction = &report->prediction[i];
        fa_trial trial = {.median_us = prediction->measured_us,
                          .predicted_us = prediction->predicted_us};
        struct row row = {.kind = "prediction",
                          .known_how = fa_origin_name(prediction->origin),
                          .trial = &trial,
                          .text = prediction->from_gpu};
        lone_row(out, &row, &prediction->problem, prediction->gpu, prediction->best_us,
                 &prediction->config);
    }
    out->failed |= text.failed;
    fa_buf_free(&text);
}

const report_writer report_csv = {csv_begin, csv_problem, csv_end};
