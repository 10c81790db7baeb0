/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch of attention's kernels on tensors of the caller: fa_attn_args (fa_attn.h).
 *
 * May be used by: tuner/ops. Thread-safety: any thread at any time.
 */
#ifndef FA_TUNER_OPS_ATTN_LAUNCH_H
#define FA_TUNER_OPS_ATTN_LAUNCH_H

#include "attn_maps.h"
#include "call.h"

extern const fa_launcher fa_attn_launcher;

typedef struct fa_attn_map_cache fa_attn_map_cache;

/* For kernels that want these boxes, of tensors of this form. */
int fa_attn_map_cache_create(const struct fa_attn_boxes *boxes, const struct fa_attn_form *form,
                             fa_attn_map_cache **ret_cache, fa_diag *diag);
void fa_attn_map_cache_free(fa_attn_map_cache **cache); /* NULL is allowed */

/* The maps for a launch, of params as fa_attn_maps_encode reads them. Any thread at any time; never waits. Errors: as fa_attn_maps_encode. */
int fa_attn_map_cache_get(fa_attn_map_cache *cache, fa_driver *driver,
                          const struct fa_attn_serving_params *params,
                          struct fa_attn_tensor_maps *ret_maps,
                          fa_diag *diag);

#endif
