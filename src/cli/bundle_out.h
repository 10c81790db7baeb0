/* SPDX-License-Identifier: Apache-2.0
 *
 * A bundle's winners, collected as the library tells them and printed as a table or as JSON.
 */
#ifndef FA_CLI_BUNDLE_OUT_H
#define FA_CLI_BUNDLE_OUT_H

#include "options.h"
#include "verbs.h"

typedef struct cli_items {
    const char *gpu; /* to keep, or NULL */
    struct cli_item *item;
    size_t count, capacity;
    bool failed; /* out of memory */
    const fa_records_info *records; /* they came from records, and not from a bundle; or NULL */
} cli_items;

/* An fa_bundle_visit; context is a cli_items. */
int cli_items_take(void *context, const fa_bundle_item *item);
void cli_items_free(cli_items *items);
/* Sorts them. import: what became of each; else they are only shown. Returns the exit status. */
int cli_items_print(cli_items *items, const char *file, const fa_bundle_info *info, bool import,
                    const cli_options *options);

#endif
