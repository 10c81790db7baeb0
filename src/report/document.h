/* SPDX-License-Identifier: Apache-2.0
 *
 * The report's document: JSON, a problem a line. A short one, which a page holds, leaves out members
 * that are null, false or empty, and the gpu, silicon, templates, policy and environments of a problem
 * that has those of the problem before it; its numbers have seven digits, and of each problem it tells
 * as many configs as there is room for.
 */
#ifndef FA_REPORT_DOCUMENT_H
#define FA_REPORT_DOCUMENT_H

#include "data.h"

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

/* ---- document_configs.c ---------------------------------------------------------------------*/
/* Joins "configs" and "heat": the best `cap` configs of those that finished and some failures, or with
 * SIZE_MAX all that were tried. */
void document_add_configs(cJSON *object, report_problem *problem, size_t cap);
/* Joins "near": the numbers of the configs that are as fast as the best. FA_ENOMEM. */
int document_add_near(report_document *document, cJSON *object, const report_problem *problem);

#endif
