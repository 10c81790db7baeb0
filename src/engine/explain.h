/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranking behind an answer.
 */
#ifndef FA_ENGINE_EXPLAIN_H
#define FA_ENGINE_EXPLAIN_H

#include "session.h"

/* Calls request->ranking for an answer that was found or made here: with the configs on record that finished, the
 * answer's first, or with the answer alone where none is. Takes `work` itself. */
int fa_ranking_tell(fa_tuner *tuner, const fa_request *request, const fa_answer *answer,
                    fa_diag *diag);

#endif
