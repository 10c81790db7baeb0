/* SPDX-License-Identifier: Apache-2.0
 *
 * export: the store's winners as a bundle or as records, and records as a bundle.
 */
#include "error.h"
#include "json_make.h"
#include "interrupt.h"
#include "progress.h"
#include "records_out.h"
#include "rows.h"
#include "text.h"
#include "verbs.h"

#include <stdio.h>

/* ---- results --------------------------------------------------------------------------------*/
static void add_bundle(cJSON *document, const char *file, const fa_bundle_info *info)
{
    cJSON *bundle = fa_json_add_object(document, "bundle");
    fa_json_add_text(bundle, "file", file);
    fa_json_add_number(bundle, "bytes", (double)info->bytes);
    fa_json_add_number(bundle, "winners", info->winners);
    fa_json_add_number(bundle, "cubins", info->cubins);
    fa_json_add_number(bundle, "skipped", info->skipped);
    fa_json_add_bool(bundle, "signed", info->is_signed);
    fa_json_add_text(bundle, "key", info->key);
}

static void put_bundle(fa_buf *out, const char *file, const fa_bundle_info *info)
{
    cli_text_path(out, file);
    fa_buf_printf(out, ": %d winner%s, %d cubin%s, ", info->winners, info->winners == 1 ? "" : "s",
                  info->cubins, info->cubins == 1 ? "" : "s");
    cli_text_grouped(out, info->bytes);
    if (info->is_signed)
        fa_buf_printf(out, " bytes, signed by %s\n", info->key);
    else
        fa_buf_text(out, " bytes, not signed\n");
    if (info->skipped > 0)
        fa_buf_printf(out, "%d left out: their cubins are gone; tune again\n", info->skipped);
}

/* What became of the records and of the bundle that were asked for. */
static int print(const cli_options *options, const fa_records_info *records,
                 const fa_bundle_info *bundle)
{
    const char *from = options->bundle.from_records, *to = options->bundle.records;
    const char *file = from != NULL ? from : to;
    if (options->json) {
        cJSON *document = cJSON_CreateObject();
        fa_json_add_text(document, "fa_tune", fa_version());
        if (to == NULL)
            add_bundle(document, options->bundle.out, bundle);
        if (file != NULL)
            cli_records_add_json(document, file, records);
        return cli_json_write(document);
    }
    fa_buf out = {0};
    if (file != NULL)
        cli_records_put(&out, file, records);
    if (to == NULL)
        put_bundle(&out, options->bundle.out, bundle);
    int status = cli_write(&out);
    fa_buf_free(&out);
    return status;
}

/* ---- the verb -------------------------------------------------------------------------------*/
static int check_export_options(const cli_options *options, fa_diag *diag)
{
    if (options->bundle.records != NULL && options->bundle.from_records != NULL)
        return fa_fail(diag, FA_EINVAL,
                       "--records writes records and --from-records reads them: "
                       "give one of them");
    if (options->bundle.predict && options->bundle.records == NULL)
        return fa_fail(diag, FA_EINVAL, "--predict goes with --records FILE");
    if (options->bundle.records == NULL && options->bundle.out == NULL)
        return fa_fail(diag, FA_EINVAL,
                       "say where the bundle goes: --out FILE, as in --out l4.fab");
    return 0;
}

static int export_what_was_asked(fa_tuner *tuner, const cli_options *options,
                                 cli_progress *progress, fa_records_info *records,
                                 fa_bundle_info *bundle, fa_diag *diag)
{
    fa_export_options output = {.size = sizeof output,
                                .file = options->bundle.out,
                                .key = options->bundle.key,
                                .no_signature = options->bundle.no_signature,
                                .keep = cli_records_keep,
                                .context = (void *)(uintptr_t)options};
    fa_records_options source = {.size = sizeof source,
                                 .output = &output,
                                 .progress = cli_progress_count,
                                 .context = progress};
    if (options->bundle.records != NULL) {
        source.records = options->bundle.records;
        int rc = options->bundle.predict ? fa_predict_catalogue(tuner, &source, diag) : 0;
        return rc != 0 ? rc : fa_export_records(tuner, &source, records, diag);
    }
    source.records = options->bundle.from_records;
    return source.records != NULL ? fa_export_from_records(tuner, &source, records, bundle, diag)
                                  : fa_export(tuner, &output, bundle, diag);
}

int cli_export(const cli_options *options)
{
    cli_progress progress;
    fa_tuner *tuner;
    fa_diag diag = {{0}};
    if (check_export_options(options, &diag) != 0)
        return cli_error(2, &diag);
    int rc = fa_output_check(
        options->bundle.records != NULL ? options->bundle.records : options->bundle.out, &diag);
    if (rc != 0)
        return cli_fail(rc, options, &diag);
    cli_progress_init(&progress, options);
    int status = cli_check_gpu(options);
    if (status == 0)
        status = options->bundle.predict ? cli_open(options, &progress, &tuner)
                                         : cli_open_to_read(options, &progress, &tuner);
    if (status != 0)
        return status;
    fa_records_info records = {0};
    fa_bundle_info bundle = {0};
    cli_interrupt_install();
    rc = export_what_was_asked(tuner, options, &progress, &records, &bundle, &diag);
    fa_close(&tuner);
    cli_progress_end(&progress);
    return rc != 0 ? cli_fail(rc, options, &diag) : print(options, &records, &bundle);
}
