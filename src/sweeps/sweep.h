/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sweep and the fleet's workers share.
 */
#ifndef FA_WORK_SWEEP_H
#define FA_WORK_SWEEP_H

#include "fa_tune.h"

/* Checks a caller's request and completes one of an older, shorter struct. */
int fa_sweep_request_copy(const fa_sweep_request *request, fa_sweep_request *ret, fa_diag *diag);
/* Whether a tune failed for what no other item would escape. */
bool fa_sweep_is_fatal(int rc);
/* What a tune's event adds to the account. A tune's counts are of this tune alone: *seen, which begins
 * as all zeros, remembers what the account has seen of them. */
fa_sweep_spent fa_spent_of_event(fa_progress *seen, const fa_progress *tune);

#endif
