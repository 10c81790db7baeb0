/* SPDX-License-Identifier: Apache-2.0
 *
 * What exporting and importing bundles share.
 */
#ifndef FA_WORK_BUNDLE_WORK_H
#define FA_WORK_BUNDLE_WORK_H

#include "bundle.h"
#include "lines.h"

/* ---- bundle_files.c -------------------------------------------------------------------------*/
/* Joins the measured trials of its scope to a winner's evidence, best first, the first few with samples; a winner that was
 * imported keeps those that it brought. */
int fa_bundle_add_trials(fa_store *store, fa_winner_record *winner, fa_diag *diag);

/* Sets what a winner from elsewhere is to the store's of its scope, and why, which *ret_stored is then. A winner that
 * cannot be served (its cubin is gone, its row is invalid) does not count. */
int fa_bundle_weigh_here(fa_store *store, const fa_winner_record *winner, fa_bundle_item *item,
                         fa_answer *ret_stored, fa_diag *diag);

/* ---- bundle_make.c --------------------------------------------------------------------------*/
typedef struct fa_made {
    fa_store *part; /* of fa_portable_new() */
    fa_lines lines;
    int32_t failed; /* lines whose config no longer compiles cleanly: left out */
} fa_made;

int fa_lines_make(fa_tuner *tuner, const fa_lines_source *source, fa_made *ret_made, fa_diag *diag);
void fa_made_free(fa_made *made);

#endif
