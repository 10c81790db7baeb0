/* SPDX-License-Identifier: Apache-2.0
 *
 * Carrying winners: export and import of bundles and of records, a bundle shown, and keys.
 */
#include "error.h"
#include "json.h"
#include "run.h"
#include "text.h"
#include "wording.h"

#include <stdio.h>
#include <string.h>

/* ---- records --------------------------------------------------------------------------------*/
static bool keep_asked_for(void *context, const fa_answer *answer)
{
    return cli_filter_keeps(context, &answer->problem, answer->gpu.name);
}

static void add_records(cJSON *document, const char *file, const fa_records_info *info)
{
    cJSON *records = fa_json_add_object(document, "records");
    fa_json_add_text(records, "file", file);
    fa_json_add_number(records, "winners", info->winners);
    fa_json_add_number(records, "measured", info->measured);
    fa_json_add_number(records, "predicted", info->predicted);
    fa_json_add_number(records, "taken", info->taken);
    fa_json_add_number(records, "dropped", info->dropped);
    fa_json_add_number(records, "unlisted", info->unlisted);
    fa_json_add_number(records, "failed", info->failed);
    fa_json_add_number(records, "baselines", info->baselines);
}

static void put_records(fa_buf *out, const char *file, const fa_records_info *info)
{
    cli_text_path(out, file);
    fa_buf_printf(out, ": %d winner%s, %d measured and %d untimed", info->winners,
                  info->winners == 1 ? "" : "s", info->measured, info->predicted);
    if (info->baselines > 0)
        fa_buf_printf(out, "; %d baseline%s", info->baselines, info->baselines == 1 ? "" : "s");
    if (info->taken > 0)
        fa_buf_printf(out, "; %d from the store", info->taken);
    if (info->dropped > 0)
        fa_buf_printf(out, "; %d dropped, their templates have changed", info->dropped);
    if (info->unlisted > 0)
        fa_buf_printf(out, "; %d for GPUs that the catalogue does not list", info->unlisted);
    if (info->failed > 0)
        fa_buf_printf(out, "; %d left out, they no longer compile cleanly", info->failed);
    fa_buf_text(out, "\n");
}

/* ---- winners of a file ----------------------------------------------------------------------*/
/* A winner of a bundle or of records, and what became of it. */
struct item {
    fa_bundle_change change;
    bool served;
    char why[64];
    fa_answer answer;
    fa_origin stored_origin;
};

static const char *const change_name[] = {"listed", "added", "replaced", "kept", "same"};

struct items {
    const cli_options *filter; /* what is asked for; NULL: everything */
    const char *file;
    bool import;                    /* what became of each; else they are only shown */
    const fa_records_info *records; /* they came from records, and not from a bundle; or NULL */
    fa_bundle_info info;
    cli_list list; /* of struct item */
};

static int take_item(void *context, const fa_bundle_item *from)
{
    struct items *items = context;
    struct item item = {.change = from->change, .served = from->served, .answer = *from->answer};
    if (items->filter != NULL &&
        !cli_filter_keeps(items->filter, &from->answer->problem, from->answer->gpu.name))
        return 0;
    snprintf(item.why, sizeof item.why, "%s", from->why);
    if (from->stored != NULL)
        item.stored_origin = from->stored->origin;
    return cli_list_keep(&items->list, &item, sizeof item);
}

static int compare_items(const void *a, const void *b)
{
    return cli_answer_compare(&((const struct item *)a)->answer, &((const struct item *)b)->answer);
}

static void put_table(const struct items *items, fa_buf *out)
{
    cli_table table = {0};
    bool import = items->import;
    for (size_t i = 0; i < items->list.count; i++) {
        const struct item *item = (const struct item *)items->list.item + i;
        cli_cell(&table, "%s", import ? change_name[item->change] : "");
        cli_text_problem(&table.cell, &item->answer.problem);
        cli_cell_end(&table);
        cli_cell(&table, "%s", item->answer.gpu.name);
        cli_cell(&table, "%s", fa_origin_name(item->answer.origin));
        cli_text_known_time(&table.cell, &item->answer.trial, false);
        cli_cell_end(&table);
        if (!import)
            cli_text_config(&table.cell, &item->answer.trial.config);
        else if (item->why[0] != 0)
            fa_buf_printf(&table.cell, "%s (%s)", item->why, fa_origin_name(item->stored_origin));
        else if (!item->served)
            fa_buf_text(&table.cell, "for other templates than these");
        cli_cell_end(&table);
        cli_row_end(&table);
    }
    cli_table_put(&table,
                  import ? "|problem|GPU|origin|>time|why" : "?|problem|GPU|origin|>time|config",
                  out);
}

static void put_signer(const fa_bundle_info *info, fa_buf *out)
{
    if (!info->is_signed) {
        fa_buf_text(out, "not signed");
        return;
    }
    if (!info->trusted) {
        fa_buf_printf(out, "signed by key ID %s, which is not trusted here", info->key);
        return;
    }
    fa_buf_printf(out, "signed by %s (", info->key);
    cli_text_safe(out, info->name);
    fa_buf_text(out, ")");
}

/* export: what was left out is said, too; import and show: whose it is. */
static void put_bundle(fa_buf *out, const char *file, const fa_bundle_info *info, bool export)
{
    cli_text_path(out, file);
    fa_buf_printf(out, ": %d winner%s, %d cubin%s, ", info->winners, info->winners == 1 ? "" : "s",
                  info->cubins, info->cubins == 1 ? "" : "s");
    fa_words_grouped(out, info->bytes);
    fa_buf_text(out, " bytes, ");
    if (export && info->is_signed)
        fa_buf_printf(out, "signed by %s", info->key);
    else
        put_signer(info, out);
    fa_buf_text(out, "\n");
    if (export && info->skipped > 0)
        fa_buf_printf(out, "%d left out: their cubins are gone; tune again\n", info->skipped);
}

static void put_items(const struct items *items, bool dry_run, fa_buf *out)
{
    const fa_bundle_info *info = &items->info;
    put_table(items, out);
    if (items->records != NULL)
        put_records(out, items->file, items->records);
    else
        put_bundle(out, items->file, info, false);
    if (!items->import) {
        fa_buf_text(out, "whole: every hash is right and every cubin is what its winner says\n");
        return;
    }
    fa_buf_printf(out, "%s%d added, %d replaced, %d kept, %d the same\n",
                  dry_run ? "it would be: " : "", info->added, info->replaced, info->kept,
                  info->same);
    if (items->records != NULL)
        fa_buf_text(out, "compiled here: each winner is proved before it is launched\n");
    else if (!info->is_signed)
        fa_buf_text(out, "unsigned: each winner is proved here before it is launched\n");
    if (info->unserved > 0)
        fa_buf_printf(out,
                      "%d of them are for other templates than this fa-tune's, which will not use "
                      "them\n",
                      info->unserved);
}

static void add_items(const struct items *items, bool dry_run, cJSON *document)
{
    const fa_bundle_info *info = &items->info;
    if (items->records != NULL)
        add_records(document, items->file, items->records);
    cJSON *bundle = fa_json_add_object(document, "bundle");
    fa_json_add_text(bundle, "file", items->file);
    fa_json_add_number(bundle, "version", info->version);
    fa_json_add_number(bundle, "bytes", (double)info->bytes);
    fa_json_add_number(bundle, "winners", info->winners);
    fa_json_add_number(bundle, "cubins", info->cubins);
    fa_json_add_bool(bundle, "signed", info->is_signed);
    fa_json_add_bool(bundle, "trusted", info->trusted);
    fa_json_add_text(bundle, "key", info->key);
    if (items->import) {
        fa_json_add_bool(document, "dry_run", dry_run);
        fa_json_add_number(document, "added", info->added);
        fa_json_add_number(document, "replaced", info->replaced);
        fa_json_add_number(document, "kept", info->kept);
        fa_json_add_number(document, "same", info->same);
        fa_json_add_number(document, "unserved", info->unserved);
    }
    cJSON *array = fa_json_add_array(document, "winners");
    for (size_t i = 0; i < items->list.count; i++) {
        const struct item *one = (const struct item *)items->list.item + i;
        cJSON *item = cli_json_winner(&one->answer);
        if (items->import) {
            fa_json_add_text(item, "change", change_name[one->change]);
            fa_json_add_text(item, "why", one->why);
            fa_json_add_bool(item, "served", one->served);
        }
        fa_json_push(array, item);
    }
}

/* What a library call that listed these items ended with. */
static int finish_items(cli_run *run, struct items *items, int rc)
{
    rc = cli_list_end(run, &items->list, rc);
    if (rc == 0) {
        cli_list_sort(&items->list, sizeof(struct item), compare_items);
        if (run->options->json)
            add_items(items, run->options->dry_run, run->document);
        else
            put_items(items, run->options->dry_run, &run->out);
    }
    cli_list_free(&items->list);
    return rc;
}

int cli_show_bundle(cli_run *run)
{
    struct items items = {.filter = run->options, .file = run->options->operand[0]};
    int rc = fa_bundle_inspect(items.file, take_item, &items, &items.info, &run->diag);
    return finish_items(run, &items, rc);
}

/* ---- export ---------------------------------------------------------------------------------*/
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

static int export(cli_run *run, fa_records_info *records, fa_bundle_info *bundle)
{
    const cli_options *options = run->options;
    fa_export_options output = {.size = sizeof output,
                                .file = options->bundle.out,
                                .key = options->bundle.key,
                                .no_signature = options->bundle.no_signature,
                                .keep = keep_asked_for,
                                .context = (void *)(uintptr_t)options};
    fa_records_options source = {.size = sizeof source,
                                 .output = &output,
                                 .progress = cli_progress_count,
                                 .context = &run->progress};
    if (options->bundle.records != NULL) {
        source.records = options->bundle.records;
        int rc =
            options->bundle.predict ? fa_predict_catalogue(run->tuner, &source, &run->diag) : 0;
        return rc != 0 ? rc : fa_export_records(run->tuner, &source, records, &run->diag);
    }
    source.records = options->bundle.from_records;
    return source.records != NULL
               ? fa_export_from_records(run->tuner, &source, records, bundle, &run->diag)
               : fa_export(run->tuner, &output, bundle, &run->diag);
}

int cli_export(cli_run *run)
{
    const char *from = run->options->bundle.from_records, *to = run->options->bundle.records;
    const char *out = run->options->bundle.out, *file = from != NULL ? from : to;
    fa_records_info records = {0};
    fa_bundle_info bundle = {0};
    int rc = to == NULL && out == NULL
                 ? fa_fail(&run->diag, FA_EINVAL, "--out FILE is missing, as in --out l4.fab")
                 : 0;
    if (rc != 0 || (rc = fa_output_check(to != NULL ? to : out, &run->diag)) != 0 ||
        (rc = cli_check_gpu(run)) != 0 || (rc = cli_open(run, !run->options->bundle.predict)) != 0)
        return rc;
    cli_interrupt_install();
    rc = export(run, &records, &bundle);
    if (rc != 0)
        return rc;
    if (to == NULL)
        add_bundle(run->document, out, &bundle);
    if (file != NULL) {
        add_records(run->document, file, &records);
        put_records(&run->out, file, &records);
    }
    if (to == NULL)
        put_bundle(&run->out, out, &bundle, true);
    return 0;
}

/* ---- import ---------------------------------------------------------------------------------*/
/* A filter is for records: what a bundle's signature vouches for is the whole. */
static int check_import_options(const cli_options *options, bool records, fa_diag *diag)
{
    bool filtered = options->problem_given || options->gpu != NULL || options->operation != NULL;
    return !filtered || records
               ? 0
               : fa_fail(
                     diag, FA_EINVAL,
                     "a bundle is imported whole: --gpu and options of a problem select from files of records alone");
}

int cli_import(cli_run *run)
{
    const cli_options *options = run->options;
    fa_records_info records = {0};
    struct items items = {.file = options->operand[0], .import = true};
    bool of_records = fa_is_records(items.file);
    fa_import_options import = {.size = sizeof import,
                                .file = items.file,
                                .allow_unsigned = options->bundle.allow_unsigned,
                                .dry_run = options->dry_run,
                                .visit = take_item,
                                .context = &items};
    int rc;
    if ((rc = check_import_options(options, of_records, &run->diag)) != 0 ||
        (rc = cli_check_gpu(run)) != 0 || (rc = cli_open(run, options->dry_run)) != 0)
        return rc;
    if (!of_records)
        return finish_items(run, &items, fa_import(run->tuner, &import, &items.info, &run->diag));
    items.records = &records;
    fa_export_options output = {
        .size = sizeof output, .keep = keep_asked_for, .context = (void *)(uintptr_t)options};
    fa_records_options source = {.size = sizeof source,
                                 .records = items.file,
                                 .output = &output,
                                 .progress = cli_progress_count,
                                 .context = &run->progress};
    cli_interrupt_install();
    rc = fa_import_records(run->tuner, &source, &import, &records, &items.info, &run->diag);
    return finish_items(run, &items, rc);
}

/* ---- keys -----------------------------------------------------------------------------------*/
int cli_keygen(cli_run *run)
{
    char key[FA_KEY_TEXT_MAX], path[4096] = "";
    int rc = fa_keygen(run->options->bundle.out, key, path, sizeof path, &run->diag);
    if (rc != 0)
        return rc;
    fa_json_add_text(run->document, "key", key);
    fa_json_add_text(run->document, "file", path);
    fa_buf_printf(&run->out, "%s\nsecret half in ", key);
    cli_text_path(&run->out, path);
    fa_buf_text(&run->out, "; hosts that import your bundles have the line above in a file of "
                           "~/.config/fa-tune/trusted, such as lab.pub\n");
    return 0;
}
