/* SPDX-License-Identifier: Apache-2.0
 *
 * How this program words numbers, problems, GPUs and configs, in UTF-8. Text that is not ours (names, reasons, paths) goes
 * through cli_text_safe, because terminals act on control bytes.
 */
#ifndef FA_CLI_TEXT_H
#define FA_CLI_TEXT_H

#include "buf.h"
#include "fa_tune.h"

#include <cJSON.h>

void cli_text_safe(fa_buf *out, const char *text);
/* Wrong usage, FA_EINVAL: `OPTION: "TEXT" is not WHAT`, without an option where that is NULL, and what of `names`, which NULL
 * ends, was meant. */
int cli_refuse(const char *option, const char *text, const char *what, const char *const *names,
               fa_diag *diag);
/* A trial's time: measured, else estimated; false where it has neither, and nothing is appended. elsewhere: it was
 * measured for another problem, and is an estimate for this one. */
bool cli_text_known_time(fa_buf *out, const fa_trial *trial, bool elsewhere);
/* The same; "unranked" where there is none. */
void cli_text_trial_time(fa_buf *out, const fa_trial *trial, bool elsewhere);
/* How an answer is known, and whose bits it has where that was asked: "measured, same bits as default". */
void cli_text_origin(fa_buf *out, const fa_answer *answer);
void cli_text_interval(fa_buf *out, const fa_trial *trial); /* ±0.4, half of the 95% interval */
/* "1 winner", "2,000 winners", behind what stands before. */
void cli_text_count(fa_buf *out, const char *before, int64_t count, const char *what);
void cli_text_seconds(fa_buf *out, double seconds); /* 41 s, 12 min, 3.2 h */
void cli_text_problem(fa_buf *out, const fa_problem *problem);
/* A result's first line: the problem, and the GPU it is for. */
void cli_text_heading(fa_buf *out, const fa_problem *problem, const fa_gpu *gpu);
void cli_text_config(fa_buf *out, const fa_config *config); /* family BLOCK_M=128 … */
void cli_text_path(fa_buf *out, const char *path);          /* ~/.cache/fa-tune/store.db */

/* Writes the buffer to stdout; 0, or 1 after a sentence on stderr (disk full, closed pipe). */
int cli_write(const fa_buf *out);

/* "fa-tune: sentence" on stderr; returns `status`. */
int cli_error(int status, const fa_diag *diag);
/* The same for a sentence that fails nothing more. */
void cli_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The sentences of both, as an array of texts that is the caller's; NULL where there are none, or where
 * a result was written after all. */
cJSON *cli_errors_take(void);

/* ---- tables ------------------------------------------------------------------------*/
/* A table of texts with columns as wide as their widest cell, written cell after cell and row after row; and configs as
 * rows of one.
 *
 *     cli_table table = {0};
 *     cli_text_problem(&table.cell, problem);
 *     cli_cell_end(&table);
 *     cli_cell(&table, "%s", gpu->name);
 *     cli_row_end(&table);
 *     cli_table_put(&table, "problem|GPU", out);
 *
 * Out of memory shows in the printed buffer's `failed`. */
typedef enum cli_form { CLI_ALIGNED, CLI_MARKDOWN, CLI_CSV } cli_form;
typedef struct cli_table {
    cli_form form;
    fa_buf cell; /* the text of the next cell so far */
    fa_buf text; /* those before it: a tab ends a cell, a line feed a row */
    fa_buf columns; /* titles before those of cli_table_put() */
} cli_table;

/* Ends the cell; its control bytes are escaped. */
void cli_cell_end(cli_table *table);
/* The same for a whole cell at once. */
void cli_cell(cli_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Those of the columns "problem|GPU|origin"; answer NULL: there is none, with these words for it. */
void cli_answer_cells(cli_table *table, const fa_problem *problem, const char *gpu,
                      const fa_answer *answer, const char *none);
/* Ends the last cell, too; those that the row lacks are empty. */
void cli_row_end(cli_table *table);
/* Appends the table, unless it has no row, and frees it. `columns` are their titles divided by '|', each behind
 * what is to be said of the column, in this order:
 *   '?'  it is left out where all of its cells are empty, but not from CSV;
 *   '>'  it stands at the right. */
void cli_table_put(cli_table *table, const char *columns, fa_buf *out);

/* The configs of a problem's space as fa_explain() lists them, printed: a table of those that finished, and the
 * same as JSON. */
typedef struct cli_rows {
    fa_study_trial *row;
    size_t count;
    int32_t tied;   /* the model does not tell the first so many apart: their ranks are not shown */
    bool elsewhere; /* times were measured for another problem */
} cli_rows;

/* The tunables that any of the rows has, in order of appearance; and their columns ("|>NAME"). */
typedef struct cli_tunables {
    int count;
    const char *name[48]; /* point into the rows */
} cli_tunables;
void cli_tunables_find(cli_tunables *tunables, const fa_study_trial *rows, size_t count,
                       fa_buf *columns);
void cli_tunables_cells(const cli_tunables *tunables, cli_table *table, const fa_config *config);

/* Whether any time stands behind the rows' order, measured or a model's. */
bool cli_rows_ranked(const fa_study_trial *rows, size_t count);
/* The ranked rows among the first `count`, or, where no time stands behind their order, what their cubins say.
 * default_us > 0 adds the speed-up over the default config. */
void cli_print_ranking(const cli_rows *rows, size_t count, double default_us, fa_buf *out);

/* Stable field names; what is not known is null. NULL when out of memory. */
cJSON *cli_json_rows(const cli_rows *rows, size_t count);

#endif
