/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model of operations without one of their own: what a manifest's "work" says of each launch, over what the GPU does.
 *
 * May be used by: tuner. Thread-safety: pure.
 */
#ifndef FA_TUNER_OPS_ROOFLINE_H
#define FA_TUNER_OPS_ROOFLINE_H

#include "manifest.h"

/* As fa_model_predict. Without "work" in the manifest predicted_us is 0. */
void fa_roofline_predict(const fa_candidate *candidate, const fa_problem *problem,
                         const fa_gpu *gpu, fa_trial *trial);

#endif
