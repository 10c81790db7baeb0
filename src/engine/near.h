/* SPDX-License-Identifier: Apache-2.0
 *
 * The loaded kernel that is nearest to a problem and right for it.
 */
#ifndef FA_ENGINE_NEAR_H
#define FA_ENGINE_NEAR_H

#include "request.h"

/* Sets *ret_answer for the target's asked problem, with the cubin of one that is loaded in the context. FA_ENOTFOUND: none
 * is right for it. `work` is held. */
int fa_near_find(fa_tuner *tuner, const fa_target *target, uint64_t context, fa_answer *ret_answer,
                 fa_diag *diag);

#endif
