/* SPDX-License-Identifier: Apache-2.0
 *
 * What sweeps and the fleet's workers share.
 */
#ifndef FA_WORK_SWEEP_H
#define FA_WORK_SWEEP_H

#include "fa_tune.h"

/* Checks a caller's request; a shorter struct of an older version is completed with zeros. */
int fa_sweep_request_copy(const fa_sweep_request *request, fa_sweep_request *ret, fa_diag *diag);
/* Whether the error would make every other item fail too. */
bool fa_sweep_is_fatal(int rc);
/* What an event of a tune adds to the account. *seen holds the tune's counts at the event before and
 * begins as zeros. */
fa_sweep_spent fa_spent_of_event(fa_progress *seen, const fa_progress *tune);

#endif
