/* SPDX-License-Identifier: Apache-2.0
 *
 * What a report tells: of each problem its study, every config and what follows from them; and over all problems, of each
 * GPU type and operation, a headline, whether tuning pays, and what layers take in training. Formats only word this;
 * nothing is computed twice.
 *
 * Workload: a thousand problems of some dozen measured configs each, a few GPU types and operations.
 */
#ifndef FA_REPORT_DATA_INTERNAL_H
#define FA_REPORT_DATA_INTERNAL_H

#include "report.h"
#include "wording.h"

#include <cJSON.h>

typedef struct report_config {
    int32_t rank; /* 0: did not finish */
    bool tried, is_default, is_winner;
    bool in_heat_map; /* the first config of some cell */
    int32_t told;     /* its place among those that the document tells; -1: it does not */
    fa_trial trial;
    char cubin_key[65];
    float *samples_us;
    int32_t sample_count;
    int32_t sm_mhz, memory_mhz, temperature_c; /* -1: not known */
    char throttle[160];
    uint64_t seed;
    int64_t unix_time;
} report_config;

typedef struct report_problem {
    int number; /* from 1, in the order of the report */
    fa_study study;
    report_config *config; /* in the order of `fa-tune explain` */
    size_t count, ranked, tried;
    const fa_trial *best; /* the winner, else the best so far; NULL: none came through */
    bool timed;           /* best was timed; else its time is the model's */
    bool measured; /* it was timed on this silicon by this store's tunes, not by another store's
                             from which it was imported */
    double us;     /* best's time */
    double x_default; /* the default's time over it; 0: not known */
    cJSON *json; /* the problem in the document, without its configs; who takes it leaves NULL */
} report_problem;

/* What one report keeps while it goes through the problems. */
typedef struct report {
    fa_tuner *tuner;
    const report_options *options;
    fa_buf *out;
    report_outcome outcome;
    fa_baseline *baseline;
    size_t baselines;
    fa_regret *regret; /* what buckets of lengths cost between their points */
    size_t regrets, regret_capacity;
    fa_prediction *prediction;
    size_t predictions, prediction_capacity;
    struct report_pass *pass; /* among which pairs are looked for */
    size_t passes, pass_capacity;
    struct report_paying *paying; /* overall.c's own, while problems come */
    struct report_pay *pay;       /* what tuning was worth, for each GPU type and operation */
    size_t pays, pay_capacity;
    struct report_headline *headline; /* what is said first, for each GPU type and operation */
    size_t headlines, headline_capacity;
    char store[4096]; /* its path as told */
    int64_t made;     /* unix time */
    void *format;     /* a format's own */
} report;

typedef struct report_writer {
    int (*begin)(report *report);
    void (*problem)(report *report, report_problem *problem);
    void (*end)(report *report); /* also frees report->format */
} report_writer;

extern const report_writer report_markdown, report_csv, report_json;

/* collect.c: everything about one study. */
int report_collect(const report *report, const fa_study *study, report_problem *ret_problem,
                   fa_diag *diag);
void report_problem_free(report_problem *problem);

/* overall.c: what the store knows beyond single problems, as far as it was asked for. */
int report_collect_extras(report *report, fa_diag *diag);
bool report_asked_for(const report_options *options, const fa_problem *problem, const char *gpu);
/* Time at the point over the best there, less 1; a negative number when the bucket's winner did not
 * pass there. */
double report_regret_of(const fa_regret *regret);
typedef struct report_regret_sum {
    size_t points, failed; /* with a regret; where the bucket's winner did not pass */
    double median, worst;
} report_regret_sum;
/* FA_ENOMEM. */
int report_regret_summary(const report *report, report_regret_sum *ret_sum);

/* As it was measured, else as the model says, else 0. */
double report_time(const fa_trial *trial);
/* Whether a config ended before it was compiled. */
bool report_pruned(fa_status status);

/* ---- headline.c ------------------------------------------------------------------------------*/
/* What is said first: how much faster the measured kernels are than others' kernels, in one sentence, and under which
 * circumstances they were measured, in one line. */

/* Takes a problem of the document into account; problems of one silicon and operation follow one another. FA_ENOMEM. */
int report_headline_add(report *report, const report_problem *problem);
/* The list "headlines" of the document (docs/json.md). NULL: out of memory. */
cJSON *report_headlines_json(const report *report);
void report_headlines_free(report *report);

/* ---- whether tuning pays (overall.c) ---------------------------------------------------------*/
/* How much faster the measured winners are than their families' default configs, than one config for every problem, and
 * than the best of four. */
enum { REPORT_PAY_FIXED = 4, REPORT_PAY_ROWS = 3 };

/* The winners against something else. */
typedef struct report_pay_row {
    size_t problems;   /* on which its time is known; the rest say nothing */
    double mean, most; /* its time over the winner's: geometric mean, largest */
    size_t probes;     /* of its times, those that were not measured in a race with the winner */
    size_t configs;    /* 0: each problem's default */
    char *config[REPORT_PAY_FIXED]; /* in words */
} report_pay_row;

typedef struct report_pay {
    char silicon[sizeof((fa_study *)NULL)->silicon], gpu[64];
    const fa_operation *operation;
    size_t problems;                     /* with a winner that was timed */
    report_pay_row row[REPORT_PAY_ROWS]; /* against the default, one config, four configs */
} report_pay;

/* Takes a problem into account; problems of one silicon and operation follow one another. FA_ENOMEM. */
int report_pay_add(report *report, const report_problem *problem);
/* After the last one: `report->pay` is whole. FA_ENOMEM. */
int report_pay_end(report *report);
void report_pay_free(report *report);
/* Whether a row says anything: a fixed config for one problem, or a second choice that adds nothing, do not. */
bool report_pay_told(const report_pay *pay, int row);
/* "the family's default config", "one config for all", "the best of 4 configs". */
void report_pay_words(fa_buf *out, const report_pay_row *row);

/* ---- training (overall.c) --------------------------------------------------------------------*/
/* What a layer takes in training: each forward pass beside its backward pass, on the same GPU type. */

/* Takes a problem into account. FA_ENOMEM. */
int report_training_add(report *report, const report_problem *problem);
/* The list "training" of the document (docs/json.md), in the order of the forward passes. NULL: out of memory. */
cJSON *report_training_json(const report *report);

/* ---- words.c: escaping ----------------------------------------------------------------------*/
/* For texts that are not ours, by where they go. All of it is UTF-8. Control characters and those that reorder text are
 * shown as \x1b or \u202e everywhere but in JSON, which has its own way to write them. */

/* Makes a text valid UTF-8 in place: a byte that is part of no character becomes '?'. The functions below do so as they
 * write. */
void report_mend(char *text);
void report_html_lines(fa_buf *out, const char *text);    /* with its line breaks */
void report_markdown_text(fa_buf *out, const char *text); /* also inside a table's cell */
void report_markdown_code(fa_buf *out, const char *text); /* `text`, if it is a plain one */
/* One field of RFC 4180; one that a spreadsheet would run begins with a quote mark. */
void report_csv_text(fa_buf *out, const char *text);
/* A JSON text as it may stand inside a script element: no markup, nothing that reorders text. */
void report_script_json(fa_buf *out, const char *json);

/* ---- words.c: wording -----------------------------------------------------------------------*/
/* These write no character that needs escaping but those of the texts that they are given. */
void report_us(fa_buf *out, double us);           /* 41.3 µs */
void report_about(fa_buf *out, double us);        /* ~41 µs: a model's estimate */
void report_seconds(fa_buf *out, double seconds); /* 10.9 s, 2 min 3 s; "–" for none */
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

/* ---- the document (document.c) --------------------------------------------------------------*/
/* The report's document: JSON, a problem a line. A short one, which a page holds, leaves out members
 * that are null, false or empty, and the gpu, silicon, templates, policy and environments of a problem
 * that has those of the problem before it; its numbers have seven digits, and of each problem it tells
 * as many configs as there is room for. */
enum { DOCUMENT_REPEATED = 5 }; /* members of a problem that often are the last one's */

typedef struct report_document {
    bool is_short;
    size_t room; /* bytes for the next problem of a short document */
    char **near; /* configs that come near the best of some problem, each once, as text */
    size_t nears, near_capacity;
    cJSON *last[DOCUMENT_REPEATED];
} report_document;

void report_document_begin(const report *report, fa_buf *out);
/* A problem with all its configs that were tried, for other formats; the caller deletes it. */
cJSON *report_document_whole_problem(report_problem *problem);
void report_document_problem(const report *report, report_document *document,
                             report_problem *problem, fa_buf *out);
/* What follows the problems. NULL document: no "near_configs" are known. */
cJSON *report_document_tail(const report *report, const report_document *document);
void report_document_end(const report *report, report_document *document, fa_buf *out);
void report_document_free(report_document *document);

#endif
