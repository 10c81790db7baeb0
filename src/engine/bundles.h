/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundles inside the engine: one that is believed, one winner of it with its cubin, and which of
 * two winners is the better.
 */
#ifndef FA_ENGINE_BUNDLES_H
#define FA_ENGINE_BUNDLES_H

#include "hash.h"
#include "nvrtc.h"
#include "store.h"

#include "bundle.h"
#include "cubin.h"
#include "fa_bundle.h"

/* What a winner of a bundle is called here: what was measured elsewhere is imported. */
fa_origin fa_bundle_origin(fa_origin there);
/* Opens and checks a bundle wholly: hash, signature, signer, index, every part, in this order.
 * trusted NULL: the signer may be anybody, and *ret_info says whether it is trusted. */
int fa_bundle_open_whole(const char *path, const fa_import_options *trusted, fa_bundle **ret_bundle,
                         fa_bundle_info *ret_info, fa_diag *diag);
/* Whether a cubin is what its winner says: entry, architecture, registers, stack, threads. */
int fa_bundle_check_cubin(const fa_winner_record *winner, const void *bytes, size_t size,
                          fa_diag *diag);
/* Puts {"imported":{"origin":…,"signer":…}} into a winner's evidence, unless it has that from an
 * earlier journey, and changes its origin. */
int fa_bundle_adopt(fa_winner_record *winner, const char *signer, fa_diag *diag);
/* What becomes of a winner where `stored` is. */
fa_bundle_change fa_bundle_weigh(const fa_winner_record *stored, const fa_winner_record *incoming,
                                 const char **ret_why);
/* The best trials of a winner's scope, joined to its evidence as "trials". */
int fa_bundle_add_trials(fa_store *store, fa_winner_record *winner, fa_diag *diag);

/* Whether a bundle could be written (a key is there), before work is spent on it; and the writing. */
int fa_bundle_check_output(const fa_export_options *options, fa_diag *diag);
int fa_bundle_finish(fa_bundle_writer *writer, const fa_export_options *options,
                     fa_bundle_info *ret_info, fa_diag *diag);

int fa_records_options_check(const fa_records_options *options, fa_diag *diag);

/* Sources to be compiled by the compile workers, all in one go (bundle_compile.c). */
typedef struct fa_build {
    char key[FA_HASH_HEX];
    char architecture[32];
    char *source; /* malloced */
    /* Afterwards, or beforehand where there is nothing to compile: */
    void *cubin; /* malloced; NULL: failed, and diag says why */
    size_t size;
    char *log;
    fa_diag diag;
} fa_build;
int fa_builds_run(fa_tuner *tuner, const fa_nvrtc_location *nvrtc, fa_build *build, int32_t count,
                  const fa_records_options *options, fa_diag *diag);
void fa_builds_free(fa_build *build, int32_t count);

#endif
