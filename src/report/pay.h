/* SPDX-License-Identifier: Apache-2.0
 *
 * Does tuning pay? For each GPU type and operation: how much faster the measured winners are than their
 * families' default configs, than one config for every problem, and than the best of four.
 *
 * Workload: a thousand problems of some dozen measured configs each.
 */
#ifndef FA_REPORT_PAY_H
#define FA_REPORT_PAY_H

#include "data.h"

enum { REPORT_PAY_FIXED = 4, REPORT_PAY_ROWS = 3 };

/* The winners against something else. */
typedef struct report_pay_row {
    size_t problems;      /* on which its time is known; the rest say nothing */
    double mean, most;    /* its time over the winner's: geometric mean, largest */
    size_t probes;        /* of its times, those that were not measured in a race with the winner */
    size_t configs;       /* 0: each problem's default */
    char *config[REPORT_PAY_FIXED]; /* in words */
} report_pay_row;

typedef struct report_pay {
    char silicon[sizeof((fa_study *)NULL)->silicon], gpu[64];
    const fa_operation *operation;
    size_t problems; /* with a winner that was timed */
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

#endif
