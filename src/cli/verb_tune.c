/* SPDX-License-Identifier: Apache-2.0
 *
 * tune: the winner for a problem on a GPU, found or made, and the configs it beat.
 * run: one config of a tuned problem, proved and launched, to be put behind a profiler.
 *
 * stdout depends on the answer alone, never on whether anything is a terminal.
 */
#include "error.h"
#include "json_struct.h"
#include "problem.h"
#include "run.h"
#include "text.h"
#include "wording.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { DEFAULT_TOP = 10 };

/* Counts of the funnel: of this run where it tuned, else as the store recorded them. */
static void print_funnel(const fa_answer *answer, const cli_progress *progress, fa_buf *out)
{
    const char *arrow = cli_sym()->arrow;
    if (answer->space == 0)
        return;
    bool searched = answer->strategy[0] != 0;
    char number[FA_COMMAS_MAX];
    fa_buf_printf(out, "space %s%s %s %s %d", answer->space_estimated ? "about " : "",
                  fa_commas(answer->space, number), arrow, searched ? "tried" : "budget",
                  answer->in_budget);
    if (searched)
        fa_buf_printf(out, " (%s)", answer->strategy);
    fa_buf_printf(out, " %s compiled %d", arrow, answer->compiled);
    int32_t workers = answer->from_store ? 0 : progress->last.compile_workers;
    int32_t resumed = answer->from_store ? 0 : progress->last.resumed;
    if (workers > 0)
        fa_buf_printf(out, " in %.1f s (%d worker%s)", progress->tune_s, workers,
                      workers == 1 ? "" : "s");
    if (resumed > 0)
        fa_buf_printf(out, ", %d of them before", resumed);
    fa_buf_printf(out, " %s clean %d", arrow, answer->clean);
    if (answer->proved > 0 || answer->measured > 0)
        fa_buf_printf(out, " %s proved %d %s measured %d", arrow, answer->proved, arrow,
                      answer->measured);
    else
        fa_buf_printf(out, " %s %s", arrow,
                      answer->trial.predicted_us > 0 ? "ranked by model" : "unranked");
    if (answer->failed > 0)
        fa_buf_printf(out, " (%d failed)", answer->failed);
    fa_buf_text(out, "\n");
}

/* Whether the model took other configs for as fast as the winner. */
static bool is_tied(const fa_answer *answer)
{
    return answer->origin == FA_ORIGIN_PREDICTED && answer->ties > 0;
}

static void print_times(const fa_answer *answer, fa_buf *out)
{
    const double us = answer->trial.median_us;
    /* Another problem's time is an estimate for this one, and makes neither a rate nor a ratio. */
    const bool own = answer->origin != FA_ORIGIN_NEAREST;
    if (!(us > 0))
        return;
    fa_buf_text(out, ": ");
    (own ? cli_text_us : cli_text_about)(out, us);
    if (own) {
        fa_buf_text(out, ", ");
        fa_words_tflops(out, fa_problem_nominal_flops(&answer->problem) / us * 1e-6);
        fa_buf_text(out, " TFLOP/s");
    }
    if (own && answer->default_us > 0) {
        fa_buf_printf(out, ", %.2f%s as fast as the default config (", answer->default_us / us,
                      cli_sym()->times);
        cli_text_us(out, answer->default_us);
        fa_buf_text(out, ")");
    }
    if (answer->ties > 0)
        fa_buf_printf(out, "; %d other%s", answer->ties,
                      answer->ties == 1 ? " ties with it" : "s tie with it");
}

/* "winner #1, measured: 23.7 µs": what was chosen, how that is known, and what would know more. */
static void print_winner(const fa_answer *answer, int32_t rank, fa_buf *out)
{
    const bool unranked = answer->origin == FA_ORIGIN_UNRANKED;
    const bool guessed = unranked || answer->origin == FA_ORIGIN_PREDICTED ||
                         answer->origin == FA_ORIGIN_TRANSFERRED;
    fa_buf_text(out, cli_style_begin(STDOUT_FILENO, CLI_BOLD));
    fa_buf_text(out, unranked ? "unranked: no model tells these kernels apart" : "winner");
    if (rank > 0 && (answer->trial.median_us > 0 || answer->trial.predicted_us > 0) && !unranked &&
        !is_tied(answer))
        fa_buf_printf(out, " #%d", rank);
    if (!unranked)
        fa_buf_printf(out, ", %s", fa_origin_name(answer->origin));
    fa_buf_text(out, cli_style_end(STDOUT_FILENO));
    if (is_tied(answer))
        fa_buf_printf(out, "; the model cannot tell %d other config%s from it", answer->ties,
                      answer->ties == 1 ? "" : "s");
    if (answer->from_gpu[0] != 0)
        fa_buf_printf(out, " from %s", answer->from_gpu);
    if (!unranked && fa_problem_has_no_answer(&answer->problem))
        fa_buf_text(out, ", not checked: the kernel has no reference; all configs agree");
    print_times(answer, out);
    fa_buf_text(out, guessed && answer->gpu.present
                         ? ". Proved, not timed: without --effort configs are timed.\n"
                     : guessed ? ". The first tune on a machine with that GPU measures.\n"
                     : answer->shortlist_only
                         ? ". A race of the top few: without --effort the whole space is timed.\n"
                         : ".\n");
}

/* Where it is kept, and what shows more. */
static void print_place(const fa_answer *answer, const cli_options *options, const fa_tuner *tuner,
                        fa_buf *out)
{
    const bool served = fa_server_location(tuner)[0] != 0; /* its store has the other configs */
    const char *dot = cli_sym()->dot;
    char space[FA_COMMAS_MAX];
    fa_buf_printf(out, "%s %s", answer->from_store ? "found" : "kept", served ? "by " : "in ");
    if (served)
        cli_text_path(out, fa_server_location(tuner));
    else
        cli_text_places(out, answer, tuner);
    if (answer->from_store && answer->unix_time > 0) {
        fa_buf_text(out, ", made ");
        fa_words_time(out, answer->unix_time);
    }
    if (answer->space > 0 && !served && answer->origin != FA_ORIGIN_NEAREST) {
        fa_buf_printf(out, " %s ", dot);
        cli_hint(out, "explain", options);
        fa_buf_printf(out, " shows %s%s", answer->strategy[0] != 0 ? "what was tried" : "all ",
                      answer->strategy[0] != 0 ? "" : fa_commas(answer->space, space));
    }
    if (answer->from_store)
        fa_buf_printf(out, " %s --again tunes once more", dot);
    fa_buf_text(out, "\n");
}

/* Of the answer's config; 0: it is none of them. */
static int32_t rank_of(const fa_answer *answer, const cli_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        if (fa_config_equal(&rows->row[i].trial.config, &answer->trial.config))
            return rows->row[i].rank;
    return 0;
}

static void print_text(const cli_options *options, const fa_answer *answer, const cli_rows *rows,
                       int32_t rank, const cli_progress *progress, const fa_tuner *tuner,
                       fa_buf *out)
{
    cli_text_heading(out, &options->problem, &answer->gpu);
    if (cli_text_too_large(out, &options->problem))
        fa_buf_text(out, "\n");
    bool empty = !fa_problem_equal(&options->problem, &answer->problem);
    if (empty || !fa_problem_equal(&answer->problem, &answer->from_problem)) {
        bool timed = answer->trial.median_us > 0;
        fa_buf_text(
            out, empty ? "this problem has no batch or no query: its kernel is the same as that of "
                 : timed ? "its kernel and times are the same as those of "
                         : "its kernel is the same as that of ");
        cli_text_problem(out, &answer->from_problem);
        if (!empty)
            fa_buf_printf(out, " (%s)", answer->why);
        fa_buf_text(out, "\n");
    }
    print_funnel(answer, progress, out);
    cli_print_ranking(rows, rows->count, answer->default_us, out);
    print_winner(answer, rank, out);
    print_place(answer, options, tuner, out);
}

static const fa_member funnel_members[] = {FA_MEMBER("space", COUNT, fa_answer, space),
                                           FA_MEMBER("in_budget", COUNT, fa_answer, in_budget),
                                           FA_MEMBER("compiled", COUNT, fa_answer, compiled),
                                           FA_MEMBER("clean", COUNT, fa_answer, clean),
                                           FA_MEMBER("proved", COUNT, fa_answer, proved),
                                           FA_MEMBER("measured", COUNT, fa_answer, measured),
                                           FA_MEMBER("failed", COUNT, fa_answer, failed),
                                           {0}};

static void print_json(cJSON *document, const fa_answer *answer, const cli_rows *rows, int32_t rank,
                       const cli_progress *progress, const fa_tuner *tuner)
{
    const char *server = fa_server_location(tuner);
    fa_json_add(document, "problem", fa_problem_to_json(&answer->problem));
    fa_json_add(document, "gpu", fa_gpu_to_json(&answer->gpu));
    cJSON *json = cli_json_answer(answer), *funnel = fa_struct_to_json(funnel_members, answer);
    fa_json_add_bool(json, "proved",
                     answer->driver_version != 0 && !fa_problem_has_no_answer(&answer->problem));
    fa_json_add_known(json, "rank", rank,
                      rank > 0 && answer->origin != FA_ORIGIN_UNRANKED && !is_tied(answer));
    fa_json_add(document, "answer", json);
    fa_json_add_number(funnel, "resumed", answer->from_store ? 0 : progress->last.resumed);
    fa_json_add_number(funnel, "seconds", answer->from_store ? 0 : progress->last.elapsed_s);
    fa_json_add(document, "funnel", funnel);
    fa_json_add(document, "ranking", cli_json_rows(rows, rows->count));
    fa_json_add(document, "server",
                server[0] != 0 ? cJSON_CreateString(server) : cJSON_CreateNull());
}

static int stopped(const cli_progress *progress)
{
    int32_t kept = cli_progress_done(&progress->last);
    if (progress->stage == FA_STAGE_WAIT)
        fputs("fa-tune: stopped waiting; the other process continues its tune\n", stderr);
    else
        fprintf(stderr, "fa-tune: stopped; %d config%s %s kept, the same command continues\n", kept,
                kept == 1 ? "" : "s", kept == 1 ? "is" : "are");
    return 128 + cli_interrupted();
}

/* A failure of the tune itself; what ended in an earlier run was not tried in this one. */
static int failed(cli_run *run, int rc)
{
    int status = cli_fail(run, rc);
    int32_t earlier = run->progress.last.resumed;
    fa_buf hint = {0};
    if (rc != FA_ENOKERNEL)
        return status;
    cli_hint(&hint, "explain", run->options);
    if (run->progress.last.space > 0 && !hint.failed)
        cli_tell("%s says where each ended", hint.data);
    fa_buf_clear(&hint);
    if (cli_text_too_large(&hint, &run->options->problem) && !hint.failed)
        cli_tell("%s", hint.data);
    fa_buf_free(&hint);
    if (earlier > 0)
        cli_tell("%d of them ended in an earlier run: --effort patient tries %s again", earlier,
                 earlier == 1 ? "it" : "them");
    return status;
}

static int tune(cli_run *run)
{
    const cli_options *options = run->options;
    const size_t most = options->top > 0 ? (size_t)options->top : DEFAULT_TOP;
    cli_progress *progress = &run->progress;
    fa_request request = cli_request(options);
    fa_problem bucket = fa_problem_bucket(&options->problem);
    fa_answer answer = {.size = sizeof answer};
    fa_ranked *ranked = NULL;
    cli_rows rows = {.count = 0};
    progress->untimed = !options->exact && !fa_problem_equal(&bucket, &options->problem);
    request.progress = cli_progress_event;
    request.context = progress;
    request.ret_ranking = &ranked;
    request.ret_ranked = &rows.count;
    int rc = fa_tune(run->tuner, &request, &answer, &run->diag), status = 0;
    fa_ranked only = {1, answer.trial};
    rows.row = ranked;
    rows.tied = is_tied(&answer) ? answer.ties + 1 : 0;
    rows.elsewhere = answer.origin == FA_ORIGIN_NEAREST;
    cli_progress_end(progress);
    if (rc == FA_ECANCELED && cli_interrupted() != 0)
        return stopped(progress); /* before there was a row */
    if (answer.entry[0] == 0)
        return failed(run, rc);
    if (ranked == NULL) { /* the ranking could not be read */
        rows.row = &only;
        rows.count = 1;
    }
    const int32_t rank = rank_of(&answer, &rows);
    rows.count = rows.count < most ? rows.count : most;
    if (run->options->json)
        print_json(run->document, &answer, &rows, rank, progress, run->tuner);
    else
        print_text(options, &answer, &rows, rank, progress, run->tuner, &run->out);
    status = cli_print(run);
    free(ranked);
    return status != 0 ? status : rc;
}

int cli_tune(cli_run *run)
{
    int rc = cli_check_gpu(run);
    if (rc != 0)
        return rc;
    cli_interrupt_install();
    rc = cli_open(run, false);
    return rc != 0 ? rc : tune(run);
}

/* ---- run ------------------------------------------------------------------------------------*/
int cli_run_config(cli_run *run)
{
    const cli_options *options = run->options;
    const int32_t rank = options->launch.config > 0 ? options->launch.config : 1;
    const int32_t launches = options->launch.count > 0 ? options->launch.count : 1;
    fa_request request = cli_request(options);
    fa_trial trial;
    int rc = cli_check_gpu(run);
    if (rc == 0)
        rc = cli_open(run, true);
    if (rc != 0)
        return rc;
    request.progress = cli_progress_event;
    request.context = &run->progress;
    cli_interrupt_install();
    rc = fa_run_config(run->tuner, &request, rank, launches, &trial, &run->diag);
    if (rc != 0)
        return rc;
    fa_json_add(run->document, "problem", fa_problem_to_json(&options->problem));
    fa_json_add_number(run->document, "rank", rank);
    fa_json_add_number(run->document, "launches", launches);
    fa_json_add(run->document, "config", fa_config_to_json(&trial.config));
    fa_buf_printf(&run->out, "#%d ", rank);
    cli_text_config(&run->out, &trial.config);
    fa_buf_printf(&run->out, "\nproved, and launched %d time%s\n", launches,
                  launches == 1 ? "" : "s");
    return 0;
}
