/* SPDX-License-Identifier: Apache-2.0
 *
 * import: a bundle's winners, or those of records, into the store, and what became of each.
 */
#include "bundle_out.h"
#include "error.h"
#include "interrupt.h"
#include "progress.h"
#include "records_out.h"
#include "text.h"

/* A filter is for records: what a bundle's signature vouches for is the whole. */
static int check_import_options(const cli_options *options, bool records, fa_diag *diag)
{
    bool filtered = options->problem_given || options->gpu != NULL || options->operation != NULL;
    return !filtered || records
               ? 0
               : fa_fail(diag, FA_EINVAL,
                         "a bundle is imported whole: --gpu and options of a problem keep records");
}

static int import_file(fa_tuner *tuner, const cli_options *options, const fa_import_options *import,
                       cli_progress *progress, fa_records_info *records, fa_bundle_info *info,
                       fa_diag *diag)
{
    if (records == NULL)
        return fa_import(tuner, import, info, diag);
    fa_export_options output = {
        .size = sizeof output, .keep = cli_records_keep, .context = (void *)(uintptr_t)options};
    fa_records_options source = {.size = sizeof source,
                                 .records = import->file,
                                 .output = &output,
                                 .progress = cli_progress_count,
                                 .context = progress};
    cli_interrupt_install();
    return fa_import_records(tuner, &source, import, records, info, diag);
}

int cli_import(const cli_options *options)
{
    cli_items items = {0};
    cli_progress progress;
    fa_records_info records = {0};
    fa_bundle_info info = {0};
    fa_tuner *tuner;
    fa_diag diag = {{0}};
    const char *file = options->operand[0];
    bool of_records = fa_is_records(file);
    if (check_import_options(options, of_records, &diag) != 0)
        return cli_error(2, &diag);
    cli_progress_init(&progress, options);
    int status = cli_check_gpu(options);
    if (status == 0)
        status = options->dry_run ? cli_open_to_read(options, &progress, &tuner)
                                  : cli_open(options, &progress, &tuner);
    if (status != 0)
        return status;
    fa_import_options import = {.size = sizeof import,
                                .file = file,
                                .allow_unsigned = options->bundle.allow_unsigned,
                                .dry_run = options->dry_run,
                                .visit = cli_items_take,
                                .context = &items};
    items.records = of_records ? &records : NULL;
    int rc =
        import_file(tuner, options, &import, &progress, of_records ? &records : NULL, &info, &diag);
    cli_progress_end(&progress);
    if (items.failed)
        rc = fa_fail(&diag, FA_ENOMEM, "out of memory after %zu winners", items.count);
    status = rc != 0 ? cli_fail(rc, options, &diag)
                     : cli_items_print(&items, import.file, &info, true, options);
    cli_items_free(&items);
    fa_close(&tuner);
    return status;
}
