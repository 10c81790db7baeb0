/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress while a verb runs; from the library's answers to results and exit statuses.
 *
 * Field names of documents are a promise: they may be joined by others, never renamed. A number that is
 * not known is null, so that 0 always means 0.
 */
#include "run.h"

#include "error.h"
#include "json.h"
#include "pool.h"
#include "problem.h"
#include "text.h"
#include "trial.h"
#include "words.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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
void cli_progress_init(cli_progress *progress, const cli_options *options)
{
    const char *term = getenv("TERM"); /* without escapes it gets lines, as a file does */
    *progress = (cli_progress){
        .rows = !options->quiet && !options->no_progress,
        .notes = !options->quiet,
        .terminal = isatty(STDERR_FILENO) == 1 && (term == NULL || strcmp(term, "dumb") != 0),
        .stage = -1,
        .last_s = fa_clock_s(),
    };
}

void cli_progress_put(cli_progress *progress, fa_buf *line, bool updating)
{
    updating = updating && progress->terminal;
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
    progress->last_s = fa_clock_s();
}

void cli_progress_note(void *context, const char *sentence)
{
    cli_progress *progress = context;
    fa_buf line = {0};
    if (!progress->notes)
        return;
    fa_buf_text(&line, "note: ");
    cli_text_safe(&line, sentence);
    cli_progress_put(progress, &line, false);
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
           fa_clock_s() - progress->last_s >= (progress->terminal ? redraw_s : plain_s);
}

int cli_progress_count(void *context, const char *what, int32_t done, int32_t all)
{
    cli_progress *progress = context;
    if (cli_progress_is_due(progress)) {
        fa_buf line = {0};
        fa_buf_printf(&line, "%s %d of %d", what, done, all);
        cli_progress_put(progress, &line, true);
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
    cli_progress_put(progress, &line, false);
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
    cli_progress_put(progress, &line, false);
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
        cli_progress_put(progress, &line, true);
    }
    return cli_interrupted();
}

/* ---- opening --------------------------------------------------------------------------------*/
int cli_open(cli_run *run, bool to_read)
{
    fa_options library = cli_library_options(run->options);
    library.existing_store = to_read;
    library.log = cli_progress_note;
    library.log_context = &run->progress;
    return fa_open(&library, &run->tuner, &run->diag);
}

int cli_check_gpu(cli_run *run)
{
    const char *gpu = run->options->request.gpu;
    fa_gpu found;
    return gpu == NULL || fa_gpu_find(gpu, 0, &found, &run->diag) == 0 ? 0 : FA_EINVAL;
}

/* ---- the result -----------------------------------------------------------------------------*/
int cli_json_write(cJSON *document)
{
    FA_ENDS(fa_buf_free) fa_buf out = {0};
    FA_ENDS(fa_free_at) char *text = fa_json_finish(document);
    fa_buf_text(&out, text != NULL ? text : "");
    fa_buf_text(&out, "\n");
    out.failed |= text == NULL;
    return cli_write(&out);
}

int cli_print(cli_run *run)
{
    cJSON *document = run->document;
    if (run->tuner != NULL)
        fa_json_add_text(document, "store", fa_store_location(run->tuner));
    run->printed = true;
    run->document = NULL;
    return run->options->json ? cli_json_write(document) : cli_write(&run->out);
}

int cli_fail(cli_run *run, int rc)
{
    if (run->diag.text[0] == 0)
        fa_fail(&run->diag, rc, "%s", fa_strerror(rc));
    cli_error(0, &run->diag);
    if (rc == FA_ENOTFOUND && run->options->request.effort == FA_EFFORT_CACHED &&
        run->tuner != NULL)
        cli_tell("leave --effort cached out to tune for it");
    if (rc == FA_ECANCELED && cli_interrupted() != 0)
        return 128 + cli_interrupted();
    return rc == FA_EINVAL || rc == FA_EMANIFEST ? EXIT_USAGE : EXIT_FAILED;
}

/* ---- places ---------------------------------------------------------------------------------*/
void cli_text_store(cli_run *run, const char *before)
{
    fa_buf_text(&run->out, before);
    cli_text_path(&run->out, fa_store_location(run->tuner));
    fa_buf_text(&run->out, "\n");
}

/* ---- winners --------------------------------------------------------------------------------*/
bool cli_gpu_is(const char *asked, const char *name)
{
    fa_gpu one, other;
    if (asked == NULL)
        return true;
    return strcasecmp(fa_gpu_find(asked, 0, &one, NULL) == 0 ? one.name : asked,
                      fa_gpu_find(name, 0, &other, NULL) == 0 ? other.name : name) == 0;
}

bool cli_filter_keeps(const cli_options *options, const fa_problem *is, const char *gpu)
{
    const fa_problem *want = &options->request.problem, bucket = fa_problem_bucket(want);
    uint32_t given = cli_given(options);
    bool named = options->operation != NULL || options->specification != NULL;
    if ((given != 0 || named) && fa_operation_of(is) != fa_operation_of(want))
        return false;
    for (int i = 0; i < FA_PROBLEM_VALUES; i++)
        if ((given >> i & 1) && is->value[i] != want->value[i] && is->value[i] != bucket.value[i])
            return false;
    return cli_gpu_is(options->request.gpu, gpu);
}

int cli_answer_compare(const fa_answer *a, const fa_answer *b)
{
    int gpu = strcmp(a->gpu.name, b->gpu.name);
    return gpu != 0 ? gpu : fa_problem_compare(&a->problem, &b->problem);
}

cJSON *cli_json_of(int rc, char **text)
{
    cJSON *json = rc == 0 ? cJSON_Parse(*text) : NULL;
    free(*text);
    return json;
}

cJSON *cli_json_answer(const fa_answer *answer)
{
    char *text = NULL;
    return cli_json_of(fa_answer_write(answer, &text, NULL), &text);
}

cJSON *cli_json_winner(const fa_answer *answer)
{
    cJSON *object = cJSON_CreateObject();
    fa_json_add(object, "problem", fa_problem_to_json(&answer->problem));
    fa_json_add(object, "gpu", fa_gpu_to_json(&answer->gpu));
    fa_json_add(object, "answer", cli_json_answer(answer));
    return object;
}
