/* SPDX-License-Identifier: Apache-2.0
 *
 * Where winners come from besides the local store: a service, and system bundles. The engine knows both by these tables
 * alone; fa_open makes them.
 */
#ifndef FA_ENGINE_SOURCE_H
#define FA_ENGINE_SOURCE_H

#include "session.h"

/* Not an error: the service cannot be used (a note has said so) or has no answer. */
enum { FA_SOURCE_NONE = 1 };

/* It answers in this machine's place; `work` is not held. Each returns 0, FA_SOURCE_NONE or the request's own failure.
 * FA_ENOTFOUND of a cubin: it may be here. The first member of its own state, which free() ends. */
typedef struct fa_service {
    int (*tune)(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag);
    int (*cubin)(fa_tuner *tuner, const char *key, void **ret_bytes, size_t *ret_size,
                 fa_diag *diag);
    /* For a device that is here: an answer for its architecture, driver and effort, with its cubin. */
    int (*kernel)(fa_tuner *tuner, const fa_target *target, const fa_problem *problem,
                  fa_effort effort, fa_answer *ret_answer, fa_cubin_record *ret_cubin,
                  fa_diag *diag);
    int (*give_up)(fa_tuner *tuner, const char *why); /* for a while; FA_SOURCE_NONE */
    bool believed;                                    /* whether what it measured is trusted */
} fa_service;

/* Winners beside the local store's; `work` is held. FA_ENOTFOUND when none has it. The first member of its own state. */
typedef struct fa_source {
    void (*close)(struct fa_source *source);
    int (*find)(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                fa_cubin_record *ret_cubin);
    void (*list)(fa_tuner *tuner, const fa_problem *like, fa_list *list);
    int (*cubin)(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin);
} fa_source;

#endif
