/* SPDX-License-Identifier: Apache-2.0
 *
 * What a report says first of each GPU type and operation: how much faster its measured kernels are than those
 * of others, in one sentence, and under which circumstances they were measured, in one line.
 *
 * Workload: a few GPU types and operations, some peers each.
 */
#ifndef FA_REPORT_HEADLINE_H
#define FA_REPORT_HEADLINE_H

#include "data.h"

/* Takes a problem of the document into account; problems of one silicon and operation follow one another. FA_ENOMEM. */
int report_headline_add(report *report, const report_problem *problem);
/* The list "headlines" of the document (docs/json.md). NULL: out of memory. */
cJSON *report_headlines_json(const report *report);
void report_headlines_free(report *report);

#endif
