/* SPDX-License-Identifier: Apache-2.0
 *
 * What exporting and importing bundles share.
 */
#ifndef FA_WORK_BUNDLE_WORK_H
#define FA_WORK_BUNDLE_WORK_H

#include "bundle.h"
#include "records.h"

/* ---- bundle_files.c -------------------------------------------------------------------------*/
/* Replaces the "trials" of an evidence, which must be an object. */
int fa_bundle_join_trials(const fa_trial_list *list, char **evidence, fa_diag *diag);
/* Joins the measured trials of its scope to a winner's evidence, best first, the first few with samples; a winner that was
 * imported keeps those that it brought. */
int fa_bundle_add_trials(fa_store *store, fa_winner_record *winner, fa_diag *diag);

/* Whether a bundle could be written (a key is there), before work is spent on it; and the writing. */
int fa_bundle_check_output(const fa_export_options *options, fa_diag *diag);
int fa_bundle_finish(fa_store *part, const fa_export_options *options, fa_bundle_info *ret_info,
                     fa_diag *diag);

/* fa_import of one that is open. */
int fa_import_bundle(fa_tuner *tuner, fa_bundle *bundle, const fa_bundle_info *info,
                     const fa_import_options *options, fa_bundle_info *ret_info, fa_diag *diag);

#endif
