/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "error.h"
#include "pool.h"
#include "problem.h"
#include "text.h"
#include "trial.h"
#include "wording.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_ROWS = 5 };
static const double redraw_s = 0.1, plain_s = 5.0, plain_best_s = 1.0;

/* ---- Ctrl-C ---------------------------------------------------------------------------------*/
static volatile sig_atomic_t caught;

static void remember(int number)
{
    caught = number;
}

void cli_interrupt_install(void)
{
    /* RESETHAND: the second signal finds the default action. RESTART: nothing else is disturbed. */
    struct sigaction action = {.sa_handler = remember, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int cli_interrupted(void)
{
    return caught;
}

/* ---- lines ----------------------------------------------------------------------------------*/
static double now_s(void)
{
    return (double)fa_clock_ns() * 1e-9;
}

/* A terminal that takes no escapes gets lines, as a file does. */
static bool is_dumb(void)
{
    const char *term = getenv("TERM");
    return term != NULL && strcmp(term, "dumb") == 0;
}

void cli_progress_init(cli_progress *progress, const cli_options *options)
{
    *progress = (cli_progress){
        .rows = !options->quiet && !options->no_progress,
        .notes = !options->quiet,
        .verbose = options->verbose,
        .terminal = isatty(STDERR_FILENO) == 1 && !is_dumb(),
        .stage = -1,
        .last_s = now_s(),
    };
}

static void erase(cli_progress *progress)
{
    if (progress->drawn)
        fputs("\r\033[K", stderr);
    progress->drawn = false;
}

void cli_progress_tell(cli_progress *progress, fa_buf *line)
{
    erase(progress);
    if (!line->failed && line->size > 0) {
        fa_buf_text(line, "\n");
        fwrite(line->data, 1, line->size, stderr);
    }
    fa_buf_free(line);
    progress->last_s = now_s();
}

void cli_progress_note(void *context, const char *sentence)
{
    cli_progress *progress = context;
    if (!progress->notes)
        return;
    fa_buf line = {0};
    fa_buf_text(&line, "note: ");
    cli_text_safe(&line, sentence);
    cli_progress_tell(progress, &line);
}

void cli_progress_end(cli_progress *progress)
{
    erase(progress);
    fflush(stderr);
}

int32_t cli_progress_done(const fa_progress *event)
{
    return event->ended < event->in_budget ? event->ended : event->in_budget;
}

static double time_of(const fa_trial *trial)
{
    return trial->median_us > 0 ? trial->median_us : trial->predicted_us;
}

/* done/total · counts · best · time left */
static void text_counts(const cli_progress *progress, const fa_progress *event, fa_buf *out)
{
    const char *dot = cli_sym()->dot;
    fa_buf_printf(out, "%d/%d", cli_progress_done(event), event->in_budget);
    fa_buf_printf(out, " %s %d compiled", dot, event->compiled);
    if (event->best != NULL && !progress->absent) /* before the first it is not known */
        fa_buf_printf(out, ", %d measured", event->measured);
    if (event->failed > 0)
        fa_buf_printf(out, ", %d failed", event->failed);
    if (event->compiled == 0 && progress->error[0] != 0) {
        fa_buf_text(out, ": ");
        cli_text_safe(out, progress->error);
    }
    if (event->resumed > 0)
        fa_buf_printf(out, ", %d from earlier", event->resumed);
    if (event->best != NULL && time_of(event->best) > 0 && !progress->untimed) {
        fa_buf_printf(out, " %s best ", dot);
        cli_text_trial_time(out, event->best, false);
    }
    if (event->left_s >= 0) {
        fa_buf_printf(out, " %s ", dot);
        cli_text_seconds(out, event->left_s);
        fa_buf_text(out, " left");
    }
}

/* Cuts a line to a number of columns, at a code point. */
static void cut(fa_buf *line, size_t columns)
{
    size_t width = 0;
    for (size_t i = 0; i < line->size; i++) {
        if (((unsigned char)line->data[i] & 0xc0) == 0x80)
            continue;
        if (width++ == columns) {
            line->size = i;
            line->data[i] = 0;
        }
    }
}

static void draw_line(cli_progress *progress, fa_buf *line)
{
    size_t columns = fa_terminal_columns(STDERR_FILENO);
    erase(progress);
    if (!line->failed && line->size > 0) {
        cut(line, columns > 0 ? columns - 1 : 79);
        fwrite(line->data, 1, line->size, stderr);
        progress->drawn = true;
    }
    fflush(stderr);
    fa_buf_free(line);
    progress->last_s = now_s();
}

bool cli_progress_is_due(const cli_progress *progress)
{
    return progress->rows &&
           now_s() - progress->last_s >= (progress->terminal ? redraw_s : plain_s);
}

void cli_progress_show(cli_progress *progress, fa_buf *line)
{
    if (progress->terminal)
        draw_line(progress, line);
    else
        cli_progress_tell(progress, line);
}

int cli_progress_count(void *context, const char *what, int32_t done, int32_t all)
{
    cli_progress *progress = context;
    if (cli_progress_is_due(progress)) {
        fa_buf line = {0};
        fa_buf_printf(&line, "%s %d of %d", what, done, all);
        cli_progress_show(progress, &line);
    }
    return cli_interrupted();
}

static void draw(cli_progress *progress, const fa_progress *event)
{
    static const char *const stages[] = {
        [FA_STAGE_WAIT] = "waiting for the process that tunes this problem",
        [FA_STAGE_FINAL] = "racing the finalists ",
    };
    fa_buf line = {0};
    if (event->stage == FA_STAGE_WAIT || event->stage == FA_STAGE_FINAL)
        fa_buf_text(&line, stages[event->stage]);
    if (event->stage != FA_STAGE_WAIT)
        text_counts(progress, event, &line);
    draw_line(progress, &line);
}

static void tell_stage(cli_progress *progress, const fa_progress *event)
{
    const char *arrow = cli_sym()->arrow;
    fa_buf line = {0};
    char space[FA_COMMAS_MAX];
    fa_commas(event->space, space);
    progress->stage = (int)event->stage;
    if (event->stage == FA_STAGE_WAIT)
        fa_buf_text(&line, "another process tunes this problem: waiting for its result");
    else if (event->stage == FA_STAGE_TUNE && event->compile_workers == 0)
        fa_buf_printf(&line, "space %s %s every compile is on record", space, arrow);
    else if (event->stage == FA_STAGE_TUNE)
        fa_buf_printf(&line, "space %s %s %d to compile, with %d worker%s", space, arrow,
                      event->in_budget, event->compile_workers,
                      event->compile_workers == 1 ? "" : "s");
    else if (event->stage == FA_STAGE_FINAL)
        fa_buf_text(&line, "racing the finalists");
    cli_progress_tell(progress, &line);
}

/* "measured: 41.3 µs, attn_fwd_sm80 BLOCK_M=128 …"; what a model says is called so. */
static void tell_trial(cli_progress *progress, const fa_trial *trial, bool better)
{
    fa_buf line = {0};
    fa_buf_printf(&line, "  %s: ", better ? "best so far" : fa_status_name(trial->status));
    if (trial->reason[0] != 0) {
        cli_text_safe(&line, trial->reason);
        fa_buf_text(&line, ", ");
    } else if (!progress->untimed && time_of(trial) > 0) {
        cli_text_trial_time(&line, trial, false);
        fa_buf_text(&line, trial->median_us > 0 ? ", " : " by the model, ");
    }
    cli_text_config(&line, &trial->config);
    cli_progress_tell(progress, &line);
}

static void take_trial(cli_progress *progress, const fa_trial *trial, double waited)
{
    bool ended = fa_trial_finished(trial);
    bool first = ended && progress->told < FIRST_ROWS;
    bool better = ended && progress->best_us > 0 && time_of(trial) < progress->best_us;
    bool told = better && !progress->terminal && waited >= plain_best_s;
    bool error = trial->status == FA_STATUS_COMPILE_FAILED && progress->error[0] == 0;
    if (error)
        snprintf(progress->error, sizeof progress->error, "%.199s", trial->reason);
    if (first || told || error || progress->verbose) {
        tell_trial(progress, trial, told && !first);
        progress->told += ended;
    }
    if (ended && (progress->best_us <= 0 || better))
        progress->best_us = time_of(trial);
}

int cli_progress_event(void *context, const fa_progress *event)
{
    cli_progress *progress = context;
    progress->last = *event;
    progress->waiting = event->stage == FA_STAGE_WAIT;
    progress->last.trial = progress->last.best = NULL;
    if (event->stage == FA_STAGE_TUNE)
        progress->tune_s = event->elapsed_s;
    if (event->best != NULL)
        progress->absent = event->best->status == FA_STATUS_COMPILED;
    if (!progress->rows)
        return cli_interrupted();
    bool new_stage = (int)event->stage != progress->stage;
    if (new_stage && (!progress->terminal || event->stage == FA_STAGE_TUNE) &&
        event->stage != FA_STAGE_DONE)
        tell_stage(progress, event);
    double waited = now_s() - progress->last_s;
    if (event->kind == FA_EVENT_TRIAL && event->trial != NULL)
        take_trial(progress, event->trial, waited);
    if (progress->terminal && event->stage != FA_STAGE_DONE && (waited >= redraw_s || new_stage)) {
        draw(progress, event);
    } else if (!progress->terminal && now_s() - progress->last_s >= plain_s) {
        fa_buf line = {0};
        if (event->stage == FA_STAGE_WAIT)
            fa_buf_text(&line, "still waiting for the process that tunes this problem");
        else
            text_counts(progress, event, &line);
        cli_progress_tell(progress, &line);
    }
    return cli_interrupted();
}

/* ---- a sweep --------------------------------------------------------------------------------*/
void cli_text_spent(fa_buf *out, const fa_sweep_spent *spent, const fa_sweep_budget *budget)
{
    cli_text_seconds(out, spent->seconds);
    if (budget->seconds > 0) {
        fa_buf_text(out, " of ");
        cli_text_seconds(out, budget->seconds);
    }
    if (budget->trials > 0)
        fa_buf_printf(out, ", %" PRId64 " of %" PRId64 " trials", spent->trials, budget->trials);
    if (budget->cost > 0)
        fa_buf_printf(out, ", cost %.2f of %.2f", spent->cost, budget->cost);
    else if (budget->price > 0)
        fa_buf_printf(out, ", cost %.2f", spent->cost);
}

static bool is_begun(const fa_sweep *sweep, bool held)
{
    return held || sweep->done + sweep->failed > 0 || sweep->spent.seconds > 0;
}

const char *cli_sweep_state(const fa_sweep *sweep, bool held)
{
    return sweep->state == FA_SWEEP_RUNNING && !is_begun(sweep, held)
               ? "waiting"
               : fa_name_of_sweep_state(sweep->state);
}

void cli_text_worked_on(fa_buf *out, const fa_sweep *sweep, bool held)
{
    if (is_begun(sweep, held))
        cli_text_age(out, sweep->updated);
    else
        fa_buf_text(out, "not yet");
}

void cli_text_item(fa_buf *out, const fa_sweep_item *item, bool with_gpu)
{
    cli_text_problem_short(out, &item->problem);
    if (!with_gpu)
        return;
    fa_buf_printf(out, " %s ", cli_sym()->dot);
    cli_text_safe(out, item->gpu[0] != 0 ? item->gpu : "here");
}

/* fp16 B32 H32 S512 D64 causal */
static void text_brief(fa_buf *out, const fa_sweep_item *item, bool with_gpu)
{
    fa_problem_words(out, &item->problem, " ", true);
    if (with_gpu) {
        fa_buf_text(out, " ");
        cli_text_safe(out, item->gpu[0] != 0 ? item->gpu : "here");
    }
}

static void text_best(fa_buf *out, const fa_trial *trial, double default_us)
{
    cli_text_trial_time(out, trial, false);
    if (trial->median_us > 0 && default_us > 0)
        fa_buf_printf(out, ", %.2f%s default", default_us / trial->median_us, cli_sym()->times);
}

static void text_ended(fa_buf *out, const fa_sweep *sweep)
{
    fa_buf_printf(out, "%d/%d", sweep->done + sweep->failed, sweep->items);
    if (sweep->failed > 0)
        fa_buf_printf(out, ", %d failed", sweep->failed);
}

static void text_reused(fa_buf *out, int64_t reused)
{
    fa_buf_text(out, ", ");
    cli_text_count(out, reused, "cubin");
    fa_buf_text(out, " reused");
}

/* The problem under way: how far it is, its best so far. */
static void text_tune(const cli_sweep_progress *progress, const fa_sweep_progress *event,
                      fa_buf *out)
{
    const fa_progress *tune = event->tune;
    text_brief(out, event->item, progress->many_gpus);
    if (tune->stage == FA_STAGE_WAIT) {
        fa_buf_text(out, ": another process tunes it");
        return;
    }
    fa_buf_printf(out, ": %d/%d", cli_progress_done(tune), tune->in_budget);
    if (tune->best != NULL) {
        fa_buf_text(out, ", ");
        text_best(out, tune->best, tune->default_us);
    }
    if (tune->reused > 0)
        text_reused(out, tune->reused);
}

/* What matters most comes first: a narrow terminal cuts the rest. */
static void text_now(cli_sweep_progress *progress, const fa_sweep_progress *event, fa_buf *out)
{
    const char *dot = cli_sym()->dot;
    text_ended(out, event->sweep);
    fa_buf_printf(out, " %s ", dot);
    text_tune(progress, event, out);
    if (event->left_s >= 0) {
        fa_buf_printf(out, " %s ", dot);
        cli_text_seconds(out, event->left_s);
        fa_buf_text(out, " left");
    }
    fa_buf_printf(out, " %s ", dot);
    cli_text_spent(out, &event->sweep->spent, progress->budget);
    fa_buf_text(out, " spent");
}

/* "[3/48] problem: 41.3 µs, 1.31× default, 58 cubins reused", or why it failed. */
static void tell_end(cli_sweep_progress *progress, const fa_sweep_progress *event)
{
    fa_buf line = {0};
    fa_buf_text(&line, "[");
    text_ended(&line, event->sweep);
    fa_buf_text(&line, "] ");
    cli_text_item(&line, event->item, progress->many_gpus);
    fa_buf_text(&line, ": ");
    if (event->answer == NULL) {
        fa_buf_text(&line, "failed: ");
        cli_text_safe(&line, event->item->reason);
    } else {
        text_best(&line, &event->answer->trial, event->answer->default_us);
        if (event->answer->from_store)
            fa_buf_text(&line, ", from the store");
        else if (event->item->spent.reused > 0)
            text_reused(&line, event->item->spent.reused);
    }
    cli_progress_tell(progress->lines, &line);
}

static void tell_known(cli_sweep_progress *progress)
{
    fa_buf line = {0};
    if (progress->known == 0)
        return;
    fa_buf_printf(&line, "%d of %d problems were done before", progress->known, progress->items);
    cli_progress_tell(progress->lines, &line);
    progress->known = 0;
}

void cli_sweep_progress_event(cli_sweep_progress *progress, const fa_sweep_progress *event)
{
    cli_progress *lines = progress->lines;
    if (event->tune != NULL && event->tune->best != NULL)
        lines->absent = event->tune->best->status == FA_STATUS_COMPILED;
    if (!lines->rows)
        return;
    if (event->event == FA_SWEEP_ITEM_KNOWN) {
        progress->known++;
        progress->items = event->sweep->items;
        return;
    }
    tell_known(progress);
    if (event->event == FA_SWEEP_ITEM_ENDS)
        tell_end(progress, event);
    if (event->event == FA_SWEEP_ITEM_TUNES && event->tune->trial != NULL &&
        event->tune->kind == FA_EVENT_TRIAL && lines->verbose)
        tell_trial(lines, event->tune->trial, false);
    if (event->event != FA_SWEEP_ITEM_TUNES || event->tune->stage == FA_STAGE_DONE ||
        !cli_progress_is_due(lines))
        return;
    fa_buf line = {0};
    text_now(progress, event, &line);
    cli_progress_show(lines, &line);
}

void cli_sweep_progress_end(cli_sweep_progress *progress)
{
    tell_known(progress);
    cli_progress_end(progress->lines);
}
