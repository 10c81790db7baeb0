/* SPDX-License-Identifier: Apache-2.0 */
#include "sweep_progress.h"

#include "problem.h"
#include "text.h"

#include <inttypes.h>

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
        fa_buf_printf(out, ", %.2f of %.2f in money", spent->cost, budget->cost);
    else if (budget->price > 0)
        fa_buf_printf(out, ", %.2f in money", spent->cost);
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
    cli_text_trial_time(out, trial);
    if (trial->median_us > 0 && default_us > 0)
        fa_buf_printf(out, ", %.2f%s default", default_us / trial->median_us, cli_sym()->times);
}

static void text_ended(fa_buf *out, const fa_sweep *sweep)
{
    fa_buf_printf(out, "%d/%d", sweep->done + sweep->failed, sweep->items);
    if (sweep->failed > 0)
        fa_buf_printf(out, ", %d failed", sweep->failed);
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
        fa_buf_printf(out, ", %d cubins reused", tune->reused);
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
            fa_buf_printf(&line, ", %" PRId64 " cubins reused", event->item->spent.reused);
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
    if (event->event != FA_SWEEP_ITEM_TUNES || event->tune->stage == FA_STAGE_DONE ||
        !cli_progress_is_due(lines))
        return;
    fa_buf line = {0};
    text_now(progress, event, &line);
    cli_progress_show(lines, &line, event->sweep->done + event->sweep->failed, event->sweep->items);
}

void cli_sweep_progress_end(cli_sweep_progress *progress)
{
    tell_known(progress);
    cli_progress_end(progress->lines);
}
