/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the store's records and the answers that callers see.
 */
#ifndef FA_ENGINE_EVIDENCE_H
#define FA_ENGINE_EVIDENCE_H

#include "fa_tune.h"

#include "store.h"

/* A stored winner as an answer; gpu NULL: of no GPU in particular. 0 or FA_ENOMEM. */
__attribute__((warn_unused_result)) int fa_records_answer(const fa_winner_record *winner,
                                                          const fa_gpu *gpu, fa_answer *ret_answer,
                                                          fa_diag *diag);
/* {"gpu":…,"uuid":…,"driver":…,"nvrtc":…,"library":…}: where trials were made. Caller frees. */
char *fa_records_environment(const fa_gpu *gpu, int driver_version, const char *nvrtc);
/* The driver and the NVRTC that an environment names; false: not both. */
bool fa_records_tools(const char *environment, int32_t *ret_driver, char *ret_nvrtc, size_t size);
/* Whether an environment names this NVRTC, and this driver too unless driver_version is 0. */
bool fa_records_same_tools(const char *environment, int driver_version, const char *nvrtc);
/* The counts, times and ties of an answer as a winner's evidence. Caller frees. */
char *fa_records_evidence(const fa_answer *answer);

#endif
