/* SPDX-License-Identifier: Apache-2.0
 *
 * The verbs. Each prints its result on stdout and returns the exit status: 0 done, 1 failed,
 * 2 asked wrongly, 128 + signal when stopped by one.
 */
#ifndef FA_CLI_VERBS_H
#define FA_CLI_VERBS_H

#include "fa_tune.h"
#include "options.h"
#include "progress.h"

int cli_tune(const cli_options *options);
int cli_explain(const cli_options *options);
int cli_show(const cli_options *options);
int cli_report(const cli_options *options);
int cli_export(const cli_options *options);
int cli_import(const cli_options *options);
int cli_keygen(const cli_options *options);
int cli_trust(const cli_options *options);
int cli_rm(const cli_options *options);
int cli_sweep(const cli_options *options);
int cli_worker(const cli_options *options);
int cli_queue(const cli_options *options);
int cli_compare(const cli_options *options);
int cli_doctor(const cli_options *options);
int cli_gpus(const cli_options *options);

/* Becomes fa-tune-serve, with these arguments after the verb; returns only where it cannot. */
int cli_serve(int count, char **arguments);

/* Opens the tuner that these options ask for; its notes go to `progress`, which is ready and stays
 * until fa_close. Returns 0, or the exit status after the sentence. */
int cli_open(const cli_options *options, cli_progress *progress, fa_tuner **ret_tuner);
/* The same for a verb that keeps nothing: makes no store where none is. */
int cli_open_to_read(const cli_options *options, cli_progress *progress, fa_tuner **ret_tuner);
/* The library's options and request for the options given here. */
fa_options cli_library_options(const cli_options *options);
fa_request cli_request(const cli_options *options);

/* Who keeps what a tuner finds: a service, else the store. */
const char *cli_location(const fa_tuner *tuner);
/* Whether the last call reached the fleet's store itself, and not through a service. */
bool cli_asked_fleet(const fa_tuner *tuner);
/* The stores that an answer's winner lies in. */
void cli_text_places(fa_buf *out, const fa_answer *answer, const fa_tuner *tuner);

/* Prints what a library call answered, with what to do where the command line knows more than the
 * library; returns the exit status. */
int cli_fail(int rc, const cli_options *options, const fa_diag *diag);

/* 0 when the GPU named exists in the catalogue or none is named; else the exit status, after the
 * sentence. */
int cli_check_gpu(const cli_options *options);

#endif
