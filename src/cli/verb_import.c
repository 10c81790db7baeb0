/* SPDX-License-Identifier: Apache-2.0
 *
 * import: a bundle's winners into the store, and what became of each.
 */
#include "bundle_out.h"
#include "error.h"
#include "progress.h"

int cli_import(const cli_options *options)
{
    cli_items items = {0};
    cli_progress progress;
    fa_bundle_info info;
    fa_tuner *tuner;
    fa_diag diag = {{0}};
    cli_progress_init(&progress, options);
    int status = options->bundle.dry_run ? cli_open_to_read(options, &progress, &tuner)
                                         : cli_open(options, &progress, &tuner);
    if (status != 0)
        return status;
    fa_import_options import = {.size = sizeof import,
                                .file = options->operand[0],
                                .allow_unsigned = options->bundle.allow_unsigned,
                                .dry_run = options->bundle.dry_run,
                                .visit = cli_items_take,
                                .context = &items};
    int rc = fa_import(tuner, &import, &info, &diag);
    if (items.failed)
        rc = fa_fail(&diag, FA_ENOMEM, "out of memory after %zu winners", items.count);
    status = rc != 0 ? cli_fail(rc, options, &diag)
                     : cli_items_print(&items, import.file, &info, true, options);
    cli_items_free(&items);
    fa_close(&tuner);
    return status;
}
