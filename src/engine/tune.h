/* SPDX-License-Identifier: Apache-2.0
 *
 * One request from its door to its answer.
 */
#ifndef FA_ENGINE_TUNE_H
#define FA_ENGINE_TUNE_H

#include "job.h"

/* fa_tune() of a checked request, whatever server there is. */
int fa_tune_here(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag);
/* Waits for the key's lock, looks again, then tunes; `work` is held, but not during waits. *job may hold a job that was
 * begun for this request, whose workers are loading already; it is NULL afterwards. */
int fa_tune_target(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                   fa_job **job, fa_answer *ret_answer, fa_diag *diag);
/* Calls request->ranking for an answer that was found or made here: with the configs on record that finished, the
 * answer's first, or with the answer alone where none is (explain.c). Takes `work` itself. */
int fa_ranking_tell(fa_tuner *tuner, const fa_request *request, const fa_answer *answer,
                    fa_diag *diag);

#endif
