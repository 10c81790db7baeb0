/* SPDX-License-Identifier: Apache-2.0
 *
 * What other kernels take, as somebody measured it.
 */
#ifndef FA_DB_BASELINES_H
#define FA_DB_BASELINES_H

#include "store_types.h"

/* All in one transaction. A baseline of the same problem, GPU and peer replaces the earlier baseline. */
int fa_store_baselines_put(fa_store *store, const fa_baseline *baselines, size_t count,
                           fa_diag *diag);
/* All, in order of their import; a non-zero return stops and is returned. */
typedef int fa_store_baseline_visit(void *context, const fa_baseline *baseline);
int fa_store_baselines_each(fa_store *store, fa_store_baseline_visit *visit, void *context,
                            fa_diag *diag);

#endif
