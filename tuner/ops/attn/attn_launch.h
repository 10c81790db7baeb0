/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch of attention's kernels on tensors of the caller: fa_attn_args (fa_attn.h).
 *
 * May be used by: tuner/ops. Thread-safety: any thread at any time.
 */
#ifndef FA_TUNER_OPS_ATTN_LAUNCH_H
#define FA_TUNER_OPS_ATTN_LAUNCH_H

#include "call.h"

extern const fa_launcher fa_attn_launcher;

#endif
