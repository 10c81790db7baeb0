/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "error.h"
#include "pool.h"
#include "text.h"
#include "trial.h"
#include "wording.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_ROWS = 5 };
static const double redraw_s = 0.1, plain_s = 5.0;

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

void cli_progress_init(cli_progress *progress, const cli_options *options)
{
    const char *term =
        getenv("TERM"); /* a terminal that takes no escapes gets lines, as a file does */
    *progress = (cli_progress){
        .rows = !options->quiet && !options->no_progress,
        .notes = !options->quiet,
        .terminal = isatty(STDERR_FILENO) == 1 && (term == NULL || strcmp(term, "dumb") != 0),
        .stage = -1,
        .last_s = now_s(),
    };
}

static void put(cli_progress *progress, fa_buf *line, bool updating)
{
    const size_t columns = fa_terminal_columns(STDERR_FILENO),
                 most = columns > 0 ? columns - 1 : 79;
    cli_progress_end(progress);
    for (size_t i = 0, width = 0; updating && i < line->size; i++) /* cut at a code point */
        if (((unsigned char)line->data[i] & 0xc0) != 0x80 && width++ == most)
            line->data[line->size = i] = 0;
    if (!line->failed && line->size > 0) {
        fprintf(stderr, "%s%s", line->data, updating ? "" : "\n");
        progress->drawn = updating;
    }
    fflush(stderr);
    fa_buf_free(line);
    progress->last_s = now_s();
}

void cli_progress_tell(cli_progress *progress, fa_buf *line)
{
    put(progress, line, false);
}

void cli_progress_show(cli_progress *progress, fa_buf *line)
{
    put(progress, line, progress->terminal);
}

void cli_progress_note(void *context, const char *sentence)
{
    cli_progress *progress = context;
    fa_buf line = {0};
    if (!progress->notes)
        return;
    fa_buf_text(&line, "note: ");
    cli_text_safe(&line, sentence);
    cli_progress_tell(progress, &line);
}

void cli_progress_end(cli_progress *progress)
{
    if (progress->drawn)
        fputs("\r\033[K", stderr);
    progress->drawn = false;
    fflush(stderr);
}

bool cli_progress_is_due(const cli_progress *progress)
{
    return progress->rows &&
           now_s() - progress->last_s >= (progress->terminal ? redraw_s : plain_s);
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

/* ---- a tune ---------------------------------------------------------------------------------*/
int32_t cli_progress_done(const fa_progress *event)
{
    return event->ended < event->in_budget ? event->ended : event->in_budget;
}

void cli_text_counts(fa_buf *out, const fa_progress *event)
{
    if (event->stage == FA_STAGE_WAIT) {
        fa_buf_text(out, "waiting for the process that tunes this problem");
        return;
    }
    fa_buf_printf(out, "%d/%d · %d compiled", cli_progress_done(event), event->in_budget,
                  event->compiled);
    if (event->measured > 0)
        fa_buf_printf(out, ", %d measured", event->measured);
    if (event->failed > 0)
        fa_buf_printf(out, ", %d failed", event->failed);
    if (event->resumed > 0)
        fa_buf_printf(out, ", %d from earlier", event->resumed);
    if (event->best != NULL) {
        fa_buf_text(out, " · best ");
        cli_text_trial_time(out, event->best, false);
    }
}

static void tell_stage(cli_progress *progress, const fa_progress *event)
{
    fa_buf line = {0};
    char space[FA_COMMAS_MAX];
    if (event->stage == FA_STAGE_WAIT)
        fa_buf_text(&line, "another process tunes this problem: waiting for its result");
    else if (event->stage == FA_STAGE_FINAL)
        fa_buf_text(&line, "racing the finalists");
    else if (event->stage == FA_STAGE_TUNE)
        fa_buf_printf(&line, "space %s → ", fa_commas(event->space, space));
    if (event->stage == FA_STAGE_TUNE && event->compile_workers == 0)
        fa_buf_text(&line, "every compile is on record");
    else if (event->stage == FA_STAGE_TUNE)
        fa_buf_printf(&line, "%d to compile, with %d worker%s", event->in_budget,
                      event->compile_workers, event->compile_workers == 1 ? "" : "s");
    cli_progress_tell(progress, &line);
}

/* "  measured: 41.3 µs, attn_fwd_sm80 BLOCK_M=128 …" */
static void tell_trial(cli_progress *progress, const fa_trial *trial)
{
    fa_buf line = {0};
    fa_buf_printf(&line, "  %s: ", fa_status_name(trial->status));
    if (trial->reason[0] != 0) {
        cli_text_safe(&line, trial->reason);
        fa_buf_text(&line, ", ");
    } else if (cli_text_known_time(&line, trial, false)) {
        fa_buf_text(&line, trial->median_us > 0 ? ", " : " by the model, ");
    }
    cli_text_config(&line, &trial->config);
    cli_progress_tell(progress, &line);
}

int cli_progress_event(void *context, const fa_progress *event)
{
    cli_progress *progress = context;
    const fa_trial *trial = event->kind == FA_EVENT_TRIAL ? event->trial : NULL;
    const bool begins = (int)event->stage != progress->stage;
    progress->last = *event;
    progress->last.trial = progress->last.best = NULL;
    progress->stage = (int)event->stage;
    if (event->stage == FA_STAGE_TUNE)
        progress->tune_s = event->elapsed_s;
    if (!progress->rows)
        return cli_interrupted();
    bool due = cli_progress_is_due(progress) || (begins && progress->terminal);
    if (begins && event->stage != FA_STAGE_DONE)
        tell_stage(progress, event);
    const bool ended = trial != NULL && fa_trial_finished(trial);
    const bool error =
        trial != NULL && trial->status == FA_STATUS_COMPILE_FAILED && !progress->failed;
    if ((ended && progress->told < FIRST_ROWS) || error)
        tell_trial(progress, trial);
    progress->told += ended;
    progress->failed |= error;
    if (due && event->stage != FA_STAGE_DONE) {
        fa_buf line = {0};
        cli_text_counts(&line, event);
        cli_text_left(&line, event->left_s);
        cli_progress_show(progress, &line);
    }
    return cli_interrupted();
}
