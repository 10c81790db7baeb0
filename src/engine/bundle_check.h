/* SPDX-License-Identifier: Apache-2.0
 *
 * A bundle that is believed, one winner of it with its cubin, and which of two winners is the better.
 */
#ifndef FA_ENGINE_BUNDLE_CHECK_H
#define FA_ENGINE_BUNDLE_CHECK_H

#include "fa_bundle.h"

#include "bundle.h"
#include "store.h"

/* What a winner of a bundle is called here: what was measured elsewhere is imported. */
fa_origin fa_bundle_origin(fa_origin there);
/* Opens a bundle and checks it: hash, signature, signer, tables and pages, in this order.
 * trusted NULL: the signer may be anybody, and the bundle's info says whether it is trusted. */
int fa_bundle_open_whole(const char *path, const fa_import_options *trusted, fa_bundle **ret_bundle,
                         fa_diag *diag);
/* Whether a cubin is what its winner says: entry, architecture, registers, stack, threads. */
int fa_bundle_check_cubin(const fa_winner_record *winner, const void *bytes, size_t size,
                          fa_diag *diag);
/* Puts {"imported":{"origin":…,"signer":…}} into a winner's evidence, unless it has that from an
 * earlier journey, and changes its origin. */
int fa_bundle_adopt(fa_winner_record *winner, const char *signer, fa_diag *diag);
/* What becomes of a winner where `stored` is. */
fa_bundle_change fa_bundle_weigh(const fa_winner_record *stored, const fa_winner_record *incoming,
                                 const char **ret_why);

/* A copy, into a list of items; its end. ret_items and ret_count may be NULL. */
void fa_bundle_item_add(fa_list *list, const fa_bundle_item *item);
int fa_bundle_items_end(fa_list *list, int rc, fa_bundle_item **ret_items, size_t *ret_count,
                        fa_diag *diag);

#endif
