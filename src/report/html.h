/* SPDX-License-Identifier: Apache-2.0
 *
 * The page: its parts and what they share. Every text that comes from the store goes through
 * report_html_text or report_script_text; everything else is written here.
 *
 * Times that were measured and times that a model says never look alike: the model's have a tilde,
 * the class "guess" or "predicted" (italic, broken lines, hatched) and a word beside them.
 */
#ifndef FA_REPORT_HTML_H
#define FA_REPORT_HTML_H

#include "words.h"

/* One problem in the page's drawings of all of them. */
typedef struct html_point {
    int number;
    double intensity, tflops;
    bool measured;
    const char *known_how;
    fa_problem problem;
    fa_gpu gpu;
    char silicon[128];
} html_point;

typedef struct html_peer_sum {
    double log_sum;
    size_t count;
} html_peer_sum;

typedef struct html_page {
    fa_buf rows, body;  /* of the summary; the problems */
    const char **peer;  /* names, columns of the summary */
    html_peer_sum *sum; /* of each */
    size_t peers;
    size_t cap;         /* finished configs told per problem */
    char silicon[128];  /* of the last problem */
    size_t gpus, tried, measured, predicted, slow, left_out;
    double log_default;
    size_t defaults;
    html_point *point;
    size_t points, capacity;
    bool failed;        /* out of memory */
} html_page;

/* html.c */
void html_time(fa_buf *out, const fa_trial *trial); /* with its ± or as a guess */
void html_badge(fa_buf *out, const report_problem *problem);
void html_gpu_words(fa_buf *out, const fa_gpu *gpu); /* name (sm_89, 58 SMs) */

/* html_buckets.c: nothing when there is nothing to tell. */
void html_buckets(fa_buf *out, const report *report);
void html_predictions(fa_buf *out, const report *report);

/* html_problem.c: one problem's article. */
void html_article(html_page *page, report_problem *problem);

/* html_heat.c. Marks the configs that it shows as told. */
void html_mark_heat(report_problem *problem);
void html_heat(fa_buf *out, const report_problem *problem);

/* html_bars.c: rows of label, drawing and number. */
void html_funnel(fa_buf *out, const report_problem *problem);
void html_race(fa_buf *out, const report_problem *problem);
void html_peers(fa_buf *out, const report_problem *problem);

/* html_roof.c */
void html_roofline(fa_buf *out, const report_problem *problem);
/* Of one silicon: points [first, first + count). */
void html_roofline_of_all(fa_buf *out, const html_point *points, size_t count);

/* html_configs.c: the table of configs and their records. Numbers those that are told; data-c is
 * "problem.number". */
void html_configs(fa_buf *out, const report_problem *problem);
/* A button that tells the config's record; text is not escaped. Plain text for one without record. */
void html_config_button(fa_buf *out, const report_problem *problem, const report_config *config,
                        const char *class_name, const char *text);
void html_labels(fa_buf *out); /* names of a record's fields, as a JSON array */

/* Made by embed.py; NUL-terminated. */
extern const unsigned char report_style[], report_script[];
extern const char report_style_hash[], report_script_hash[];

#endif
