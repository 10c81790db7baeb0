/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials: every config that was tried, and what became of it.
 */
#ifndef FA_DB_TRIALS_H
#define FA_DB_TRIALS_H

#include "scopes.h"

typedef struct fa_trial_record {
    fa_trial trial;
    char cubin_key[FA_HASH_HEX]; /* "" when it has none */
    const float *samples_us;     /* on put; all raw samples, microseconds */
    int32_t sample_count;
    const char *environment; /* JSON: GPU label and uuid, driver, NVRTC identity, library */
    const char *clocks;      /* JSON: clocks, throttle reasons, temperature; may be NULL */
    uint64_t seed;           /* of the inputs it was proved and timed on */
    int64_t unix_time;       /* on get; put takes the present time */
} fa_trial_record;

/* Appends; later trials of one config do not erase earlier ones. */
int fa_store_trial_put(fa_store *store, const fa_scope *scope, const fa_trial_record *record,
                       fa_diag *diag);
/* Calls back with the newest trial of each config of a scope (samples included while the callback
 * runs), oldest first; a non-zero return stops and is returned. */
typedef int fa_trial_visit(void *context, const fa_trial_record *record);
int fa_store_trials_each(fa_store *store, const fa_scope *scope, fa_trial_visit *visit,
                         void *context, fa_diag *diag);
/* The same without samples, of those that ended as `status` (measured or compiled) alone, and of
 * these the `most` fastest ones: the raced before the others, fastest first by the clock when
 * measured, else by the model. */
int fa_store_trials_fastest(fa_store *store, const fa_scope *scope, fa_status status, int32_t most,
                            fa_trial_visit *visit, void *context, fa_diag *diag);

#endif
