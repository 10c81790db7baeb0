/* SPDX-License-Identifier: Apache-2.0
 *
 * What a person sees on stderr while a tune runs: on a terminal one line that updates at most ten
 * times a second and is erased at the end; elsewhere plain lines, at least one every five seconds.
 * The first configs that finish are told either way, so that something useful is on the screen
 * within the first second.
 *
 * Thread-safety: all calls come from the thread that tunes.
 */
#ifndef FA_CLI_PROGRESS_H
#define FA_CLI_PROGRESS_H

#include "fa_tune.h"
#include "options.h"

typedef struct cli_progress {
    bool rows;      /* progress is wanted at all */
    bool notes;     /* the library's notes are wanted */
    bool terminal;  /* one updating line */
    bool waiting;   /* another process tunes this problem */
    bool drawn;     /* the updating line is on the screen */
    bool untimed;   /* configs run at another length than was asked for: no times are told */
    bool absent;    /* the GPU is not here: configs end when they are compiled */
    bool verbose;   /* every config is told as it ends */
    int32_t told;   /* first rows told */
    double last_s;  /* when the line was last drawn or a plain line printed */
    double best_us; /* last best that was told; 0: none */
    int stage;      /* last stage told, -1: none */
    double rate;    /* configs per second, smoothed */
    double rate_s;
    int32_t rate_done;
    fa_progress last; /* counts of the last event; its pointers are not kept */
    double tune_s;    /* how long the TUNE stage took, seconds */
} cli_progress;

void cli_progress_init(cli_progress *progress, const cli_options *options);
/* An fa_request.progress; context is a cli_progress. Non-zero once the person wants to stop. */
int cli_progress_event(void *context, const fa_progress *event);
/* How many configs have ended, of in_budget. */
int32_t cli_progress_done(const fa_progress *event);
/* An fa_options.log. */
void cli_progress_note(void *context, const char *sentence);
/* One whole line, above the updating one; the buffer is freed. */
void cli_progress_tell(cli_progress *progress, fa_buf *line);
/* "WHAT done of all", on the updating line or in plain ones: an fa_records_options.progress, whose context is a
 * cli_progress. Non-zero once the person wants to stop. */
int cli_progress_count(void *context, const char *what, int32_t done, int32_t all);
/* Whether a line is wanted again: ten times a second on a terminal, elsewhere every five seconds. */
bool cli_progress_is_due(const cli_progress *progress);
/* On a terminal the updating line, cut to its width, behind a bar of `done` of `total` where there is room for
 * it and total is above 0; elsewhere as cli_progress_tell. The buffer is freed. */
void cli_progress_show(cli_progress *progress, fa_buf *line, int64_t done, int64_t total);
/* Erases the updating line. */
void cli_progress_end(cli_progress *progress);

/* Ctrl-C as a wish: the first SIGINT or SIGTERM is remembered and the work ends in order; a second one kills
 * as if this program did nothing about it. */
void cli_interrupt_install(void);
int cli_interrupted(void); /* the signal's number, or 0 */

/* ---- a sweep --------------------------------------------------------------------------------*/
/* A line as each problem ends and, between them, one about all of them. */
typedef struct cli_sweep_progress {
    cli_progress *lines;
    const fa_sweep_budget *budget;
    int32_t known; /* items that an earlier run has done, until they are told in one line */
    int32_t items;
    bool many_gpus; /* each line names its GPU */
} cli_sweep_progress;

void cli_sweep_progress_event(cli_sweep_progress *progress, const fa_sweep_progress *event);
void cli_sweep_progress_end(cli_sweep_progress *progress);

/* "12 min of 30 min, 0.14 of 0.50 spent": what has been spent of what there is. */
void cli_text_spent(fa_buf *out, const fa_sweep_spent *spent, const fa_sweep_budget *budget);
/* Its state; "waiting" while nobody has begun it. held: somebody works on it now. */
const char *cli_sweep_state(const fa_sweep *sweep, bool held);
/* When somebody last worked on it: "3 min", or "not yet". */
void cli_text_worked_on(fa_buf *out, const fa_sweep *sweep, bool held);
/* A problem, with its GPU where there are several. */
void cli_text_item(fa_buf *out, const fa_sweep_item *item, bool with_gpu);

#endif
