/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners and cubins as lookups see them, stored winners as answers, and what lists and reports read.
 */
#ifndef FA_ENGINE_STORED_H
#define FA_ENGINE_STORED_H

#include "fa_tune.h"
#include "store.h"
#include "request.h"

/* A stored winner as an answer; gpu NULL: of no GPU in particular. 0 or FA_ENOMEM. */
__attribute__((warn_unused_result)) int fa_records_answer(const fa_winner_record *winner,
                                                          const fa_gpu *gpu, fa_answer *ret_answer,
                                                          fa_diag *diag);
/* {"gpu":…,"uuid":…,"driver":…,"nvrtc":…,"library":…}: where trials were made. Caller frees. */
char *fa_records_environment(const fa_gpu *gpu, int driver_version, const char *nvrtc,
                             int32_t contents);
int32_t fa_records_contents(const char *environment); /* of the inputs, fa_spec_contents() */
/* The driver and the NVRTC that an environment names; false: not both. */
bool fa_records_tools(const char *environment, int32_t *ret_driver, char *ret_nvrtc, size_t size);
/* Whether an environment names this NVRTC, and this driver too unless driver_version is 0. */
bool fa_records_same_tools(const char *environment, int driver_version, const char *nvrtc);
/* The counts, times and ties of an answer as a winner's evidence. Caller frees. */
char *fa_records_evidence(const fa_answer *answer);

/* The stored winner of a target's scope as an answer, with its cubin when ret_cubin is not NULL.
 * FA_ENOTFOUND when there is none. */
int fa_records_lookup(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                      fa_cubin_record *ret_cubin, fa_diag *diag);
/* Winners of any GPU for problems that differ from the target's in their lengths at most. */
int fa_records_like(fa_tuner *tuner, const fa_target *target, fa_winner_visit *visit, void *context,
                    fa_diag *diag);
/* A cubin by key: the store's, else a system bundle's. */
int fa_records_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin, fa_diag *diag);
/* Whether there is one; the store's bytes are not compared with their hash. */
bool fa_records_has_cubin(fa_tuner *tuner, const char *key);

#endif
