/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations without C code of their own: what is needed of them stands in their operation.json, whose
 * keys, with what kernels and references are passed, docs/your-own-kernel.md tells.
 *
 * May be used by: tuner/ops/op.c.
 */
#ifndef FA_TUNER_OPS_GENERIC_H
#define FA_TUNER_OPS_GENERIC_H

#include "call.h"
#include "manifest.h"
#include "prover.h"

/* The problem itself, and small ones in which every integer field that does not shape the source is
 * small and off every tile. */
int fa_generic_cases(const fa_problem *problem, uint64_t seed, fa_problem ret_case[FA_BENCH_CASES]);

extern const struct fa_proof_type fa_generic_proof;

/* ---- generic_launch.c ------------------------------------------------------------------------*/
/* As fa_op.check_entry. */
int fa_generic_check_entry(const fa_problem *problem, const fa_cubin_entry *entry, fa_diag *diag);
extern const fa_launcher fa_generic_launcher; /* of fa_args */
/* The variables of the module, of what that launcher loaded. */
const fa_symbols *fa_generic_symbols(const void *shared);

#endif
