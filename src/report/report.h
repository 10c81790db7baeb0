/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports from the store: which problems are told, in which order; and one raw document of their studies, trials and
 * baselines, alone as JSON or in a page whose script analyses and words it.
 *
 * A door: may use fa_tune.h and base. The command line and the service open it through this header.
 * Workload: tens of problems of some hundred configs each, in a second or two; one problem's configs are in memory at a
 * time.
 */
#ifndef FA_REPORT_REPORT_H
#define FA_REPORT_REPORT_H

#include "buf.h"
#include "fa_tune.h"

/* Further formats: the document that a page holds, which is shorter; and nothing, where the problems alone are asked for. */
enum { REPORT_PAGE_JSON = 4, REPORT_NO_TEXT = 5 };

/* The problems that a report tells, in its order, and every baseline. */
typedef struct report_problems {
    fa_study *study;
    size_t count;
    fa_baseline *baseline;
    size_t baselines;
    size_t filtered; /* others, that were not asked for, or are behind the first `most` */
    size_t older;    /* earlier generations of problems that are told (other templates) */
} report_problems;

/* Appends the report of the first `most` problems to `out`; 0: of all. ret_problems may be NULL; its lists are the caller's. */
FA_API int report_write(fa_tuner *tuner, const fa_report_options *options, size_t most, fa_buf *out,
                        report_problems *ret_problems, fa_diag *diag);

/* The page, made by embed.py from page/: what stands before the document, and what after it. The live page is the same
 * with page/live.js, which draws what it reads from the service that serves it. */
typedef struct report_part {
    const unsigned char *bytes;
    size_t size;
} report_part;

extern const report_part report_page_part[2], report_live_part[2];

#endif
