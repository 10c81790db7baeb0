/* SPDX-License-Identifier: Apache-2.0
 *
 * The data of a proof's cases that are not drawn: inputs and answers of the program that tunes.
 *
 * The engine makes them in its process, where that program's function is (fa_spec_cases), and keeps them in a file without a
 * name; the measuring worker opens it by the descriptor's path and reads what its message says. The file stays as it is.
 *
 * May be used by: tuner, worker, engine. Thread-safety: one thread.
 */
#ifndef FA_TUNER_OPS_CASE_DATA_H
#define FA_TUNER_OPS_CASE_DATA_H

#include "bench.h"
#include "tensors.h"

typedef struct fa_case_data {
    int fd;
    uint64_t seed; /* of the cases; this and the next are for the program that tunes alone */
    int32_t contents; /* fa_spec_cases() of the inputs */
    /* Where each tensor's elements begin, in the order of the operation's; -1: an input is drawn, an output has no answer. */
    int64_t input[FA_BENCH_CASES][FA_TENSORS_MAX], answer[FA_BENCH_CASES][FA_TENSORS_MAX];
} fa_case_data;

/* The seed of an input. */
uint64_t fa_case_seed(uint64_t seed, int index, int tensor);

/* Calls the function for each case. FA_EINVAL with a sentence for NaN, for a case that is answered in part, and where nothing
 * answers the problem itself although the specification says so; else what the function returned. */
int fa_case_data_make(const fa_problem *cases, int count, uint64_t seed, fa_case_function *function,
                      void *context, fa_case_data **ret_data, fa_diag *diag);
void fa_case_data_close(fa_case_data **data); /* NULL is allowed */

/* The worker's way to it: a path of fa_case_data.fd. */
int fa_case_data_open(const char *path, fa_case_data **ret_data, fa_diag *diag);

/* Bytes of the file from there on; FA_EIO where it ends before. */
int fa_case_data_read(const fa_case_data *data, int64_t at, void *ret_bytes, size_t size,
                      fa_diag *diag);

#endif
