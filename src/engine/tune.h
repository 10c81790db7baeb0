/* SPDX-License-Identifier: Apache-2.0
 *
 * One request to its answer.
 */
#ifndef FA_ENGINE_TUNE_H
#define FA_ENGINE_TUNE_H

#include "job.h"

/* fa_tune() of a checked request, whatever server there is. */
int fa_tune_here(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag);
/* One request on its way to a tune. */
typedef struct fa_tuning {
    fa_tuner *tuner;
    const fa_request *request;
    fa_target target;
    bool looked;     /* `known` is what a look has just found for the target, enough or not */
    fa_lookup known; /* for fa_lookup_free() */
    fa_job *job;     /* NULL, or begun for this request: its workers are loading already */
} fa_tuning;

/* Waits for the key's lock, looks where that took a while or nobody has looked, then tunes; `work` is held, but not
 * during waits. Frees `known` and `job`. */
int fa_tune_target(fa_tuning *tuning, fa_answer *ret_answer, fa_diag *diag);
/* Calls request->ranking for an answer that was found or made here: with the configs on record that finished, the
 * answer's first, or with the answer alone where none is (explain.c). Takes `work` itself. */
int fa_ranking_tell(fa_tuner *tuner, const fa_request *request, const fa_answer *answer,
                    fa_diag *diag);

#endif
