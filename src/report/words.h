/* SPDX-License-Identifier: Apache-2.0
 *
 * How reports word numbers, problems and times, and how a text that is not ours is escaped for
 * where it goes. All of it is UTF-8. Control characters and those that reorder text are shown as
 * \x1b or \u202e everywhere but in JSON, which has its own way to write them.
 */
#ifndef FA_REPORT_WORDS_H
#define FA_REPORT_WORDS_H

#include "data.h"
#include "wording.h"

#include <cJSON.h>

/* ---- escaping -------------------------------------------------------------------------------*/
/* Makes a text valid UTF-8, byte by byte: what is none becomes '?'. The others do so as they write. */
void report_mend(char *text);
void report_html_lines(fa_buf *out, const char *text);    /* with its line breaks */
void report_markdown_text(fa_buf *out, const char *text); /* also inside a table's cell */
void report_markdown_code(fa_buf *out, const char *text); /* `text`, if it is a plain one */
/* One field of RFC 4180; one that a spreadsheet would run begins with a quote mark. */
void report_csv_text(fa_buf *out, const char *text);
/* A JSON text as it may stand inside a script element: no markup, nothing that reorders text. */
void report_script_json(fa_buf *out, const char *json);

/* ---- wording: these write no character that needs escaping but those of the texts given -------*/
void report_us(fa_buf *out, double us);                     /* 41.3 µs */
void report_about(fa_buf *out, double us);                  /* ~41 µs: a model's estimate */
void report_seconds(fa_buf *out, double seconds); /* 10.9 s, 2 min 3 s; "–" for none */
void report_tflops(fa_buf *out, double tflops);   /* 317, 5.2, 0.08 */
void report_ratio(fa_buf *out, double ratio);     /* 1.24× */
void report_driver(fa_buf *out, double version);  /* CUDA 13.0 */
/* "cuDNN": a peer as people call it; one that is not known is called as it is stored. */
const char *report_peer_name(const char *peer);
/* A problem's words (fp16 · B 4 · H 8 · …) as a member; the problem and its words as "problem" and "words". */
void report_add_words(cJSON *object, const char *name, const fa_problem *problem);
void report_add_problem(cJSON *object, const fa_problem *problem);

/* A number of the document. NaN: it is none. */
double report_number(const cJSON *value);

/* ---- the summary in Markdown (tables.c) -----------------------------------------------------*/
/* Joins the row of a problem, which is a whole one of the document. */
void report_summary_row(fa_buf *rows, const cJSON *problem);
/* The report's title and its one table, of the rows that were gathered. */
void report_summary(const report *report, const fa_buf *rows, fa_buf *out);

#endif
