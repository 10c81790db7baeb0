/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof that a winner gets once more under another driver, and somebody else's before it is launched.
 */
#ifndef FA_ENGINE_REPROOF_H
#define FA_ENGINE_REPROOF_H

#include "lookup.h"

/* Proves a found winner of another driver's time once more in a worker; marks and winner are
 * updated. On success found's answer and cubin are as they may be launched now. FA_ENOKERNEL: it failed and
 * is dropped; FA_ETIMEOUT: its time ran out, and lookups pass it over for a while. A note says so;
 * after any other error the next look finds it again. FA_EBUSY: effort is CACHED, and another process
 * has measured on this GPU for longer than that waits. `work` is held. */
int fa_reproof_verify(fa_tuner *tuner, const fa_target *target, fa_effort effort, fa_lookup *found,
                      fa_diag *diag);
/* Whether somebody else's answer is for the kernel that the templates here render for its config, and
 * is launched as they say: its parameters are then ours too. `work` is held. */
bool fa_reproof_is_ours(fa_tuner *tuner, const fa_target *target, const fa_answer *answer);
/* Proves somebody else's cubin as it is, launched as the answer says, in a worker; keeps nothing.
 * FA_ENOKERNEL: it failed; FA_ETIMEOUT, FA_EBUSY: as above. `work` is held. */
int fa_reproof_prove(fa_tuner *tuner, const fa_target *target, fa_effort effort,
                     const fa_answer *answer, const fa_cubin_record *cubin, fa_diag *diag);

#endif
