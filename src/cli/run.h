/* SPDX-License-Identifier: Apache-2.0
 *
 * A run of one verb. The verb reads its options, opens the tuner where it needs one, and fills in either the
 * text or, with --json, the document; main.c says what failed, prints the result and closes what was opened.
 */
#ifndef FA_CLI_RUN_H
#define FA_CLI_RUN_H

#include "fa_tune.h"
#include "options.h"

#include <cJSON.h>

/* ---- progress -------------------------------------------------------------------------------*/
/* What a person sees on stderr while a tune runs: on a terminal one line that updates at most ten times a second and is
 * erased at the end; elsewhere plain lines, at least one every five seconds. The first configs that finish are told either
 * way. All calls come from the thread that tunes. */
typedef struct cli_progress {
    bool rows;        /* progress is wanted at all */
    bool notes;       /* the library's notes are wanted */
    bool terminal;    /* one updating line */
    bool drawn;       /* the updating line is on the screen */
    bool failed;      /* a config that did not compile was told */
    int32_t told;     /* configs that finished */
    int stage;        /* last stage told, -1: none */
    double last_s;    /* when a line was last written */
    fa_progress last; /* counts of the last event; its pointers are not kept */
    double tune_s;    /* how long the TUNE stage took, seconds */
} cli_progress;

void cli_progress_init(cli_progress *progress, const cli_options *options);
/* An fa_request.progress; context is a cli_progress. Non-zero once the person wants to stop. */
int cli_progress_event(void *context, const fa_progress *event);
/* How many configs have ended, of in_budget. */
int32_t cli_progress_done(const fa_progress *event);
/* "12/45 · 30 compiled, 7 measured · best 41.3 µs" */
void cli_text_counts(fa_buf *out, const fa_progress *event);
/* An fa_options.log. */
void cli_progress_note(void *context, const char *sentence);
/* One whole line, above the updating one, or that, which is cut to the terminal's width and is whole elsewhere; the buffer is
 * freed. */
void cli_progress_put(cli_progress *progress, fa_buf *line, bool updating);
/* "WHAT done of all", on the updating line or in plain ones: the progress of an fa_import_options, whose context is a
 * cli_progress. Non-zero once the person wants to stop. */
int cli_progress_count(void *context, const char *what, int32_t done, int32_t all);
/* Whether a line is wanted again: ten times a second on a terminal, elsewhere every five seconds. */
bool cli_progress_is_due(const cli_progress *progress);
/* Erases the updating line. */
void cli_progress_end(cli_progress *progress);

/* Ctrl-C as a wish: the first SIGINT or SIGTERM is remembered and the work ends in order; a second one kills
 * as if this program did nothing about it. */
void cli_interrupt_install(void);
int cli_interrupted(void); /* the signal's number, or 0 */

/* ---- the run --------------------------------------------------------------------------------*/
enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

typedef struct cli_run {
    const cli_options *options;
    cli_progress progress;
    fa_tuner *tuner; /* NULL: not opened */
    fa_diag diag;    /* why the verb failed */
    fa_buf out;      /* the result for people; not printed with --json */
    cJSON *document; /* the result for programs, begun with the version; NULL without --json */
    bool printed;
} cli_run;

/* The verbs. Each returns 0, a negative FA_E… with the sentence in run->diag, or an exit status above 0 when
 * all has been said. */
int cli_tune(cli_run *run);
int cli_explain(cli_run *run);
int cli_check(cli_run *run);
int cli_run_config(cli_run *run);
int cli_show(cli_run *run);
int cli_report(cli_run *run);
int cli_export(cli_run *run);
int cli_import(cli_run *run);
int cli_keygen(cli_run *run);
int cli_rm(cli_run *run);
int cli_sweep(cli_run *run);
int cli_worker(cli_run *run);
int cli_queue(cli_run *run);
int cli_push(cli_run *run);
int cli_doctor(cli_run *run);
int cli_gpus(cli_run *run);

/* Opens run->tuner as the options ask. to_read: the verb keeps nothing, so that no store is made where none is. */
int cli_open(cli_run *run, bool to_read);
/* FA_EINVAL when a GPU is named that the catalogue does not list. */
int cli_check_gpu(cli_run *run);

/* Prints the document on stdout and deletes it; returns the exit status. */
int cli_json_write(cJSON *document);
/* Prints the result now, for a verb that has more to say afterwards; returns the exit status. */
int cli_print(cli_run *run);
/* Says why a run failed, with what to do where the command line knows more than the library; returns the
 * exit status. */
int cli_fail(cli_run *run, int rc);

/* Ends a line of the result: BEFORE ~/.cache/fa-tune/store.db. */
void cli_text_store(cli_run *run, const char *before);

/* Whether both name one GPU type ("NVIDIA L4" is "L4"); also when `asked` is NULL. */
bool cli_gpu_is(const char *asked, const char *name);
/* Whether a problem agrees with every option of a problem that was given, or is its bucket, and its GPU type with --gpu. */
bool cli_filter_keeps(const cli_options *options, const fa_problem *problem, const char *gpu);

/* The order of winners in a list: by GPU, then as problems are listed. */
int cli_answer_compare(const fa_answer *a, const fa_answer *b);
/* A document that the library wrote, which is freed; NULL where `rc` says that it did not. */
cJSON *cli_json_of(int rc, char **text);
cJSON *cli_json_answer(const fa_answer *answer);
/* An object with the answer, its problem and its GPU. */
cJSON *cli_json_winner(const fa_answer *answer);

#endif
