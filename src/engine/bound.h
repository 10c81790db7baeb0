/* SPDX-License-Identifier: Apache-2.0
 *
 * What bounds a kernel, by what a profiler counted of it, and which tunables move that.
 */
#ifndef FA_ENGINE_BOUND_H
#define FA_ENGINE_BOUND_H

#include "fa_types.h"

/* Sets longest, bound and sentence of a profile, whose config and launches are set. trials: of its space, the config's own
 * among them; any number. */
void fa_bound_tell(fa_profile *profile, const fa_trial *trials, size_t count);

#endif
