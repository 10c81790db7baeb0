/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations without C code of their own: what is needed of them stands in their operation.json.
 *   "reference": "NAME.cu"     a file with the entry `reference`, which computes all outputs in fp32
 *   "arguments": [{"name": "x", "type": "f16", "shape": ["ROWS", 64], "is": "in"}, …, {"name": "epsilon", "value": 1e-5}]
 *                              with a shape a tensor: packed, the last dimension is contiguous; a dimension is an
 *                              expression of fields or a number; the type is an element's or the name of a field
 *                              whose choices are. "strided": true: its strides are passed too, of all dimensions
 *                              but the last. "align": 4: bytes that its address and its strides are multiples of,
 *                              16 unless it says otherwise; where the problem has a field "unaligned" that is set,
 *                              those of an element do. "when": "FIELD": callers need not pass it where that field
 *                              is at its default. "is": "made", of an input: the reference's entry `inputs`
 *                              computes it from the others, in its own type. "symbol": "NAME", of an input of a
 *                              specification: it is copied to this variable of the kernel's module before each
 *                              launch, and its address is passed only if "parameter" is true. "is": "partial": it is
 *                              zero before each launch of a proof, a kernel writes any part of it, and
 *                              the sum of its elements is compared. Without a shape a number, in a struct of fp32
 *   "tolerance": {"ulps": 2, "absolute": 1e-5}   |o - reference| <= ulps * 2^-10 * |reference| +
 *                              absolute for fp16; 2^-7 for bf16, 2^-23 for fp32. "of_largest" counts
 *                              likewise, of the output's largest reference
 *   "flops", "bytes"           expressions, as fa_problem_nominal_flops reads them (for reports)
 * Every entry takes one struct by value: the address of each tensor in the order of "arguments", then the
 * strides (long long, in elements) of those that are strided, then the scalars (float), then the operation's integer fields (int) in the order of its table; then, if the
 * manifest has a workspace, its address. For `reference` outputs are arrays of float; it is launched
 * with blocks of 128 threads and any grid.
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
