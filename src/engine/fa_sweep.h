/* SPDX-License-Identifier: Apache-2.0
 *
 * What others' kernels take for the same problems: baselines, so that every report says how far ahead
 * or behind a winner is. Part of fa_tune.h.
 */
#ifndef FA_SWEEP_H
#define FA_SWEEP_H

#include "fa_tune.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- baselines ------------------------------------------------------------------------------*/
/* Takes a file of JSON lines into the store, all of them or none:
 *
 *   {"gpu": "H200", "peer": "pytorch-fa2", "median_us": 41.2,
 *    "problem": {"dtype": "fp16", "causal": "none", "head_dim": 64, "batch": 4, "heads_q": 8,
 *                "heads_kv": 8, "seq_q": 512, "seq_k": 512},
 *    "low_us": 41.0, "high_us": 41.5, "sample_count": 50, "unix_time": 1760000000,
 *    "source": "PyTorch 2.11"}
 *
 * The second half may be left out, and of the problem "layout", "lse" and "unaligned"; keys that are
 * not known are passed over, and so are empty lines. A line of the same problem, GPU and peer as one
 * before it or in the store replaces that one. FA_EINVAL names each bad line by its number. */
FA_API int fa_import_baselines(fa_tuner *tuner, const char *path, int32_t *ret_count,
                               fa_diag *diag);

/* Every baseline in the store. A non-zero return stops and is returned. */
typedef int fa_baseline_visit(void *context, const fa_baseline *baseline);
FA_API int fa_list_baselines(fa_tuner *tuner, fa_baseline_visit *visit, void *context,
                             fa_diag *diag);

/* Whether a baseline is for what an answer answers: the same computation on the same GPU type, under
 * any of its names. Where seq_q is seq_k both causal masks are one. */
FA_API bool fa_baseline_concerns(const fa_baseline *baseline, const fa_answer *answer);

#ifdef __cplusplus
}
#endif
#endif
