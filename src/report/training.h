/* SPDX-License-Identifier: Apache-2.0
 *
 * What a layer takes in training: each forward pass that is told beside its backward pass, on the same GPU type.
 *
 * Workload: a thousand problems.
 */
#ifndef FA_REPORT_TRAINING_H
#define FA_REPORT_TRAINING_H

#include "data.h"

/* Takes a problem into account. FA_ENOMEM. */
int report_training_add(report *report, const report_problem *problem);
/* The list "training" of the document (docs/json.md), in the order of the forward passes. NULL: out of memory. */
cJSON *report_training_json(const report *report);

#endif
