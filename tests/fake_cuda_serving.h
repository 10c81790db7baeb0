/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention as serving engines call it, on the CPU for the fake CUDA driver.
 */
#ifndef FA_TESTS_FAKE_CUDA_SERVING_H
#define FA_TESTS_FAKE_CUDA_SERVING_H

#include "fake_cuda.h"

#include "attn_serving_params.h"

/* Elements of a row of O. */
static inline int fake_columns(const struct fake_build *build)
{
    return build->head_dim_v > 0 ? build->head_dim_v : build->head_dim;
}

/* Of a launch, whose dense problems pass the beginning alone. */
struct fa_attn_serving_params fake_serving_params(const struct fake_build *build,
                                                  const void *argument);
/* Rows of O; ids count through them as attn_ref_serving.cu says. */
int64_t fake_serving_rows(const struct fa_attn_serving_params *p, const struct fake_build *build);
/* Rows, those of ids or NULL for 0, 1, 2, …: o[count][columns] and lse[count]. False: something lies outside the blocks. */
bool fake_serving_attend(const struct fa_attn_serving_params *p, const struct fake_build *build,
                         const long long *ids, int64_t count, bool lowp, float *ret_o,
                         float *ret_lse);
/* Where it is stored; NULL: outside. *ret_lse NULL: there is none. */
uint16_t *fake_serving_output(const struct fa_attn_serving_params *p, const struct fake_build *build,
                              int64_t id, bool write, float **ret_lse);
bool fake_serving_forward(const struct fake_build *build, void **arguments,
                          const struct fake_damage *damage);

#endif
