/* SPDX-License-Identifier: Apache-2.0
 *
 * A place with winners to bundle, another machine to take them to, and bundles made by hand.
 */
#ifndef FA_TESTS_BUNDLE_FIXTURE_H
#define FA_TESTS_BUNDLE_FIXTURE_H

#include "engine_fixture.h"

#include "bundle.h"
#include "bundle_work.h"
#include "session.h"
#include "error.h"
#include "sign.h"

static char config[400], bundle[400], other_store[300];
static fa_diag diag;

/* A fixture with a device, whose store holds a predicted winner for an L4 and one measured here; a
 * place for keys; and the names used below. */
static inline bool open_place(engine_fixture *f)
{
    const fa_kernel *kernel;
    if (!fixture_open(f, ""))
        return false;
    snprintf(config, sizeof config, "%s/config", f->directory);
    snprintf(bundle, sizeof bundle, "%s/out.fab", f->directory);
    snprintf(other_store, sizeof other_store, "%s/other.db", f->directory);
    setenv("XDG_CONFIG_HOME", config, 1);
    setenv("FA_TUNE_SYSTEM", "", 1);
    return fa_get_best_kernel(f->tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag) == 0;
}

static inline bool make_key(void)
{
    char key[FA_KEY_TEXT_MAX];
    return fa_keygen(NULL, key, NULL, 0, &diag) == 0;
}

static inline int export_all(engine_fixture *f, bool no_signature)
{
    fa_export_options options = {.size = sizeof options,
                                 .file = bundle,
                                 .no_signature = no_signature};
    return fa_export(f->tuner, &options, NULL, &diag);
}

/* Another machine: another store, no GPU unless the script names one. */
static inline bool restart_elsewhere(engine_fixture *f, const char *script)
{
    snprintf(f->store, sizeof f->store, "%s", other_store);
    return fixture_restart(f, script);
}

static inline int import(engine_fixture *f, bool allow_unsigned, bool dry_run, fa_bundle_info *info)
{
    fa_import_options options = {.size = sizeof options,
                                 .file = bundle,
                                 .allow_unsigned = allow_unsigned,
                                 .dry_run = dry_run};
    return fa_import(f->tuner, &options, info, &diag);
}

static inline bool same_file(const char *path, const fa_buf *before)
{
    fa_buf now;
    bool same = fa_buf_read_file(&now, path, 1 << 28) == 0 && now.size == before->size &&
                memcmp(now.data, before->data, now.size) == 0;
    fa_buf_free(&now);
    return same;
}

static inline int count_one(void *context, const fa_answer *answer)
{
    (void)answer;
    ++*(int *)context;
    return 0;
}

static inline int winners_in(fa_tuner *tuner)
{
    int count = 0;
    fa_list_winners(tuner, count_one, &count, NULL);
    return count;
}

static inline int find_measured(void *context, const fa_answer *answer)
{
    fa_answer *found = context;
    if (answer->origin != FA_ORIGIN_PREDICTED)
        *found = *answer;
    return 0;
}

/* ---- bundles made by hand -------------------------------------------------------------------*/
/* A winner of the fixture's store with its cubin, to be changed and bundled. */
struct made {
    fa_winner_record winner;
    fa_cubin_record cubin;
};

static inline int take_winner(void *context, const fa_winner_record *winner)
{
    struct made *made = context;
    if (winner->origin != FA_ORIGIN_MEASURED)
        return 0;
    made->winner = *winner;
    made->winner.evidence = strdup(winner->evidence);
    return 0;
}

static inline bool take_made(engine_fixture *f, struct made *made)
{
    *made = (struct made){0};
    return fa_store_winners_each(f->tuner->store, take_winner, made, &diag) == 0 &&
           made->winner.evidence != NULL &&
           fa_store_cubin_get(f->tuner->store, made->winner.cubin_key, &made->cubin, &diag) == 0;
}

static inline void free_made(struct made *made)
{
    fa_winner_record_free(&made->winner);
    fa_cubin_record_free(&made->cubin);
}

static const fa_sign_secret *signing; /* what bundle_made signs with; NULL: with nothing */

/* `count` winners like this one, of growing lengths. */
static inline bool bundle_made(const struct made *made, int count)
{
    fa_store *part = NULL;
    bool good = fa_portable_new(&part, &diag) == 0;
    for (int i = 0; good && i < count; i++) {
        fa_winner_record winner = made->winner;
        winner.scope.problem.seq_k += i;
        good = fa_bundle_add(part, &winner, made->cubin.bytes, made->cubin.size, &diag) == 0;
    }
    good = good && fa_bundle_write(part, bundle, signing, NULL, &diag) == 0;
    fa_store_close(&part);
    return good;
}

#endif
