/* SPDX-License-Identifier: Apache-2.0
 *
 * What a person sees on stderr while a sweep runs: a line as each problem ends and, between them, on a
 * terminal an updating one with the overall bar, elsewhere a plain one at least every five seconds.
 */
#ifndef FA_CLI_SWEEP_PROGRESS_H
#define FA_CLI_SWEEP_PROGRESS_H

#include "progress.h"

typedef struct cli_sweep_progress {
    cli_progress *lines;
    const fa_sweep_budget *budget;
    int32_t known; /* items that an earlier run has done, until they are told in one line */
    int32_t items;
    bool many_gpus; /* each line names its GPU */
} cli_sweep_progress;

void cli_sweep_progress_event(cli_sweep_progress *progress, const fa_sweep_progress *event);
void cli_sweep_progress_end(cli_sweep_progress *progress);

/* "12 min of 30 min, 0.14 of 0.50 spent": what has been spent of what there is. */
void cli_text_spent(fa_buf *out, const fa_sweep_spent *spent, const fa_sweep_budget *budget);
/* Its state; "waiting" while nobody has begun it. held: somebody works on it now. */
const char *cli_sweep_state(const fa_sweep *sweep, bool held);
/* When somebody last worked on it: "3 min", or "not yet". */
void cli_text_worked_on(fa_buf *out, const fa_sweep *sweep, bool held);
/* A problem, with its GPU where there are several. */
void cli_text_item(fa_buf *out, const fa_sweep_item *item, bool with_gpu);

#endif
