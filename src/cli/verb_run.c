/* SPDX-License-Identifier: Apache-2.0
 *
 * run: one config of a tuned problem, proved and launched, to be put behind a profiler.
 */
#include "json.h"
#include "problem.h"
#include "run.h"
#include "text.h"
#include "trial.h"

int cli_run_config(cli_run *run)
{
    const cli_options *options = run->options;
    const int32_t rank = options->launch.config > 0 ? options->launch.config : 1;
    const int32_t launches = options->launch.count > 0 ? options->launch.count : 1;
    fa_request request = cli_request(options);
    fa_trial trial;
    int rc = cli_check_gpu(run);
    if (rc == 0)
        rc = cli_open(run, true);
    if (rc != 0)
        return rc;
    request.progress = cli_progress_event;
    request.context = &run->progress;
    cli_interrupt_install();
    rc = fa_run_config(run->tuner, &request, rank, launches, &trial, &run->diag);
    if (rc != 0)
        return rc;
    fa_json_add(run->document, "problem", fa_problem_to_json(&options->problem));
    fa_json_add_number(run->document, "rank", rank);
    fa_json_add_number(run->document, "launches", launches);
    fa_json_add(run->document, "config", fa_config_to_json(&trial.config));
    fa_buf_printf(&run->out, "#%d ", rank);
    cli_text_config(&run->out, &trial.config);
    fa_buf_printf(&run->out, "\nproved, and launched %d time%s\n", launches,
                  launches == 1 ? "" : "s");
    return 0;
}
