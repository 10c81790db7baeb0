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
/* What an environment names. */
typedef struct fa_tools {
    int64_t driver, contents; /* contents: of the inputs, fa_spec_cases() */
    char nvrtc[256];
} fa_tools;
bool fa_records_tools(const char *environment, fa_tools *ret_tools); /* false: not all of it */
/* The record of an answer that is to be stored under this scope; FA_ENOMEM. */
int fa_records_winner(const fa_answer *answer, const fa_scope *scope, fa_winner_record *ret_winner,
                      fa_diag *diag);

/* The stored winner of a target's scope as an answer, with its cubin when ret_cubin is not NULL.
 * FA_ENOTFOUND when there is none. */
int fa_records_lookup(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                      fa_cubin_record *ret_cubin, fa_diag *diag);
/* The config that won on the nearest other GPU for the very problem that is to be tuned; where there is none, its config has
 * no name and fits none. */
typedef struct fa_elsewhere {
    fa_config config;
    char gpu[64];
} fa_elsewhere;
int fa_records_elsewhere(fa_tuner *tuner, const fa_target *target, fa_elsewhere *ret_elsewhere,
                         fa_diag *diag);
/* A cubin by key: the store's, else a system bundle's. */
int fa_records_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin, fa_diag *diag);
/* Whether there is one; the store's bytes are not compared with their hash. */
bool fa_records_has_cubin(fa_tuner *tuner, const char *key);

#endif
