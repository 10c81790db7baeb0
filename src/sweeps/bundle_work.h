/* SPDX-License-Identifier: Apache-2.0
 *
 * What exporting and importing bundles share.
 */
#ifndef FA_WORK_BUNDLE_WORK_H
#define FA_WORK_BUNDLE_WORK_H

#include "bundle_check.h"
#include "hash.h"
#include "nvrtc.h"
#include "portable.h"
#include "trial_list.h"

/* ---- bundle_files.c -------------------------------------------------------------------------*/
/* Measured trials of a winner's scope, best first, the first few with samples; of a winner that was
 * imported those that it brought. */
int fa_bundle_trials(fa_store *store, const fa_winner_record *winner, fa_trial_list *list,
                     fa_diag *diag);
/* An evidence with these "trials". Caller frees; NULL: out of memory. */
char *fa_bundle_join_trials(const char *evidence, const fa_trial_list *list);
/* Both of these. */
int fa_bundle_add_trials(fa_store *store, fa_winner_record *winner, fa_diag *diag);

/* Whether a bundle could be written (a key is there), before work is spent on it; and the writing. */
int fa_bundle_check_output(const fa_export_options *options, fa_diag *diag);
int fa_bundle_finish(fa_store *part, const fa_export_options *options, fa_bundle_info *ret_info,
                     fa_diag *diag);

/* fa_import of one that is open. */
int fa_import_bundle(fa_tuner *tuner, fa_bundle *bundle, const fa_bundle_info *info,
                     const fa_import_options *options, fa_bundle_info *ret_info, fa_diag *diag);

/* ---- bundle_records.c -----------------------------------------------------------------------*/
int fa_records_options_check(const fa_records_options *options, fa_diag *diag);

#endif
