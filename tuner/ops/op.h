/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tuner does for an operation beyond its table of fields, as a table of functions: one for
 * each operation that has C code of its own, and one (generic.c) for all that their operation.json
 * describes.
 *
 * May be used by: tuner, engine. Thread-safety: the table is constant, its functions are pure.
 */
#ifndef FA_TUNER_OPS_OP_H
#define FA_TUNER_OPS_OP_H

#include "bench.h"
#include "call.h"
#include "cubin.h"
#include "manifest.h"
#include "prover.h"

typedef struct fa_op {
    const char *name; /* of the operation; NULL: of any */
    /* The problems that a candidate is proved on; the first is the problem itself. */
    int (*cases)(const fa_problem *problem, uint64_t seed, fa_problem ret_case[FA_BENCH_CASES]);
    /* The reference kernel, by which its cubin is listed; NULL: the operation says. */
    const char *reference_entry;
    /* The tensors of these cases, and how outputs are judged. */
    const struct fa_proof_type *proof;
    /* The cost model: fills trial.blocks_per_sm and trial.predicted_us (0: it has none, or the config cannot run). */
    void (*predict)(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                    fa_trial *trial);
    double blur; /* predictions that differ by less than this share do not tell configs apart */
} fa_op;

/* The functions of this problem's operation. */
const fa_op *fa_op_of(const fa_problem *problem);

/* A kernel of the reference's cubin, by which it is listed. */
const char *fa_op_reference_entry(const fa_problem *problem);

/* Whether an entry of a cubin takes what it is passed: FA_ECORRUPT with a sentence when not. */
int fa_op_check_entry(const fa_problem *problem, const fa_cubin_entry *entry, fa_diag *diag);

/* What a candidate's cubin says of its kernels: of the first launch, but with the most registers,
 * stack and static shared memory of all. FA_ECORRUPT: an entry is missing, takes something else than it
 * is passed, or fewer threads than it is launched with. */
int fa_op_read_cubin(const fa_family *family, const fa_candidate *candidate,
                     const fa_problem *problem, const void *cubin, size_t size,
                     fa_cubin_info *ret_info, fa_diag *diag);

/* ---- generic.c ---------------------------------------------------------------------------------*/
/* Of operations without C code of their own, as their operation.json says (docs/your-own-kernel.md). */
/* The problem itself, and small ones in which every integer field that does not shape the source is small and off every tile. In
 * every other case lengths are at most the problem's, so that a kernel whose shared memory grows with them can hold these. */
int fa_generic_cases(const fa_problem *problem, uint64_t seed, fa_problem ret_case[FA_BENCH_CASES]);

extern const struct fa_proof_type fa_generic_proof; /* its launcher is of fa_args */

#endif
