/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports from the store: what every problem cost, what won and how it is known, as a page, as
 * Markdown, as rows or as one document for programs.
 *
 * A door: may use fa_tune.h and base. The command line and the service open it through this header.
 * Workload: tens of problems of some hundred configs each, in a second or two; one problem is in
 * memory at a time. Nothing of the store is trusted: every text is escaped for where it goes.
 */
#ifndef FA_REPORT_REPORT_H
#define FA_REPORT_REPORT_H

#include "buf.h"
#include "fa_tune.h"

typedef enum report_format {
    REPORT_HTML = FA_REPORT_HTML,
    REPORT_MARKDOWN = FA_REPORT_MARKDOWN,
    REPORT_CSV = FA_REPORT_CSV,
    REPORT_JSON = FA_REPORT_JSON,
    REPORT_PAGE_JSON = 4 /* the document that a page holds: shorter */
} report_format;

typedef struct report_options {
    report_format format;
    /* Which problems are told, by the name of their GPU too; NULL: all. */
    bool (*keep)(const void *context, const fa_problem *problem, const char *gpu);
    const void *context;
    int32_t top;  /* configs told in full per problem; 0: as many as keep the page small */
    int32_t most; /* problems told, the first in the report's order; 0: all */
    /* Called before each problem with the number done and the number of all; true ends the report with FA_ECANCELED.
     * NULL: not called. */
    bool (*progress)(const void *context, int32_t done, int32_t all);
} report_options;

typedef struct report_outcome {
    size_t problems; /* told */
    size_t filtered; /* others, that were not asked for, or are above `most` */
    size_t older;    /* earlier generations of problems that are told (other templates) */
} report_outcome;

/* Appends the report to `out`. A store without problems makes a report that says so. */
FA_API int report_write(fa_tuner *tuner, const report_options *options, fa_buf *out,
                        report_outcome *ret_outcome, fa_diag *diag);

/* The page's static file, made by embed.py from page/: what stands before the summary, between it and the document, and
 * after the document. The live page is the same with page/live.js, which asks the service that serves it for a link's
 * session, and draws what it then reads there. */
typedef struct report_part {
    const unsigned char *bytes;
    size_t size;
} report_part;

extern const report_part report_page_part[3], report_live_part[3];

#endif
