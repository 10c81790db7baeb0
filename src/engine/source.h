/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources of winners besides the local store: system bundles, a service. The engine knows
 * them by this table alone; fa_open lists them in the order in which they are asked.
 */
#ifndef FA_ENGINE_SOURCE_H
#define FA_ENGINE_SOURCE_H

#include "request.h"

/* Not an error: the source cannot be used (a note has said so) or has no answer. */
enum { FA_SOURCE_NONE = 1 };

struct fa_source;

/* A source sets the functions that it has, and leaves the others NULL. */
typedef struct fa_source_class {
    void (*close)(struct fa_source *source);

    /* A source that answers in this machine's place; `work` is not held. Each returns 0,
     * FA_SOURCE_NONE or the request's own failure. FA_ENOTFOUND of a cubin: it may be here. */
    int (*tune)(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag);
    int (*answer_cubin)(fa_tuner *tuner, const char *key, void **ret_bytes, size_t *ret_size,
                        fa_diag *diag);
    /* For a device that is here: an answer for its architecture, driver and effort, with its cubin. */
    int (*kernel)(fa_tuner *tuner, const fa_target *target, const fa_problem *problem,
                  fa_effort effort, fa_answer *ret_answer, fa_cubin_record *ret_cubin,
                  fa_diag *diag);
    int (*give_up)(fa_tuner *tuner, const char *why); /* for a while; FA_SOURCE_NONE */

    /* Winners beside the local store's; `work` is held for these and all that follow. */
    int (*find)(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                fa_cubin_record *ret_cubin);
    int (*each)(fa_tuner *tuner, const fa_problem *like, fa_winner_visit *visit, void *context);
    int (*cubin)(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin);
} fa_source_class;

/* The first member of a source's own state; `id` is an address that no other kind of source has. */
typedef struct fa_source {
    const fa_source_class *is;
    const void *id;
    bool believed; /* whether what it measured is trusted */
} fa_source;

void fa_source_add(fa_tuner *tuner, fa_source *source);
/* The source of this kind; NULL: none. */
fa_source *fa_source_of(const fa_tuner *tuner, const void *id);

/* Each asks the sources in their order until one has an answer: FA_SOURCE_NONE when none has. */
int fa_sources_tune(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer,
                    fa_diag *diag);
int fa_sources_answer_cubin(fa_tuner *tuner, const char *key, void **ret_bytes, size_t *ret_size,
                            fa_diag *diag);
/* The same for what is beside the local store: FA_ENOTFOUND when none has it. */
int fa_sources_find(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                    fa_cubin_record *ret_cubin);
int fa_sources_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin);
/* All winners; a non-zero return of visit stops and is returned. */
int fa_sources_each(fa_tuner *tuner, const fa_problem *like, fa_winner_visit *visit, void *context);

#endif
