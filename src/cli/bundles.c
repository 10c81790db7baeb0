/* SPDX-License-Identifier: Apache-2.0
 *
 * Carrying winners: export and import of bundles and of lines, a bundle shown, and keys.
 */
#include "error.h"
#include "json.h"
#include "run.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- a bundle shown --------------------------------------------------------------------------*/
static bool keep_asked_for(void *context, const fa_answer *answer)
{
    const cli_run *run = context;
    return cli_filter_keeps(run->options, &answer->problem, answer->gpu.name);
}

static int count_compiled(void *context, const char *what, int32_t done, int32_t all)
{
    cli_run *run = context;
    return cli_progress_count(&run->progress, what, done, all);
}

static int compare_items(const void *a, const void *b)
{
    return cli_answer_compare(((const fa_bundle_item *)a)->answer,
                              ((const fa_bundle_item *)b)->answer);
}

/* What is in a bundle, whose it is, and what was left out of it. */
static void put_bundle(fa_buf *out, const char *file, const fa_bundle_info *info)
{
    cli_text_path(out, file);
    cli_text_count(out, ": ", info->winners, "winner");
    fa_buf_text(out, ", ");
    if (info->from_lines) {
        cli_text_count(out, "", info->baselines, "baseline");
    } else {
        cli_text_count(out, "", info->cubins, "cubin");
        cli_text_count(out, ", ", info->bytes, "byte");
        fa_buf_text(out, !info->is_signed ? ", not signed"
                         : info->trusted  ? ", signed by "
                                          : ", signed by key ID ");
        fa_buf_text(out, info->is_signed ? info->key : "");
        fa_buf_text(out, info->is_signed && !info->trusted ? ", which is not trusted here" : "");
    }
    if (info->name[0] != 0) {
        fa_buf_text(out, " (");
        cli_text_safe(out, info->name);
        fa_buf_text(out, ")");
    }
    fa_buf_text(out, "\n");
    if (info->skipped > 0)
        fa_buf_printf(out, "%d left out: their cubins are gone; tune again\n", info->skipped);
    if (info->failed > 0)
        fa_buf_printf(out, "%d left out: they no longer compile cleanly\n", info->failed);
}

static void put_import(fa_buf *out, const char *file, const fa_bundle_info *info, bool dry_run)
{
    put_bundle(out, file, info);
    fa_buf_printf(out, "%s%d added, %d replaced, %d kept, %d the same\n",
                  dry_run ? "it would be: " : "", info->added, info->replaced, info->kept,
                  info->same);
    if (info->from_lines)
        fa_buf_text(out, "compiled here: each winner is proved before it is launched\n");
    else if (!info->is_signed)
        fa_buf_text(out, "unsigned: each winner is proved here before it is launched\n");
    if (info->unserved > 0)
        fa_buf_printf(out,
                      "%d of them are for other templates than this fa-tune's, which will not use "
                      "them\n",
                      info->unserved);
}

static void add_bundle(cJSON *document, const char *file, const fa_bundle_info *info)
{
    cJSON *bundle = fa_json_add_object(document, "bundle");
    fa_json_add_text(bundle, "file", file);
    fa_json_add_number(bundle, "version", info->version);
    fa_json_add_number(bundle, "bytes", (double)info->bytes);
    fa_json_add_number(bundle, "winners", info->winners);
    fa_json_add_number(bundle, "cubins", info->cubins);
    fa_json_add_number(bundle, "skipped", info->skipped);
    fa_json_add_number(bundle, "failed", info->failed);
    fa_json_add_number(bundle, "baselines", info->baselines);
    fa_json_add_bool(bundle, "signed", info->is_signed);
    fa_json_add_bool(bundle, "trusted", info->trusted);
    fa_json_add_text(bundle, "key", info->key);
}

static void add_items(const fa_bundle_item *one, size_t count, cJSON *document)
{
    cJSON *array = fa_json_add_array(document, "winners");
    for (size_t i = 0; i < count; i++) {
        cJSON *item = cli_json_winner(one[i].answer), *evidence = NULL, *trials = NULL;
        if (fa_json_parse_object(one[i].evidence, "evidence", &evidence, NULL) == 0)
            trials = cJSON_DetachItemFromObjectCaseSensitive(evidence, "trials");
        if (trials != NULL)
            fa_json_add(item, "trials", trials);
        cJSON_Delete(evidence);
        fa_json_push(array, item);
    }
}

int cli_show_bundle(cli_run *run)
{
    const char *file = run->options->operand;
    fa_bundle_info info;
    fa_bundle_item *item = NULL;
    cli_table table = {0};
    size_t count = 0, kept = 0;
    int rc = fa_bundle_inspect(file, &item, &count, &info, &run->diag);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < count; i++)
        if (keep_asked_for(run, item[i].answer))
            item[kept++] = item[i];
    if (kept > 0)
        qsort(item, kept, sizeof *item, compare_items);
    add_bundle(run->document, file, &info);
    add_items(item, kept, run->document);
    for (size_t i = 0; i < kept; i++) {
        const fa_answer *answer = item[i].answer;
        cli_answer_cells(&table, &answer->problem, answer->gpu.name, answer, NULL);
        cli_text_known_time(&table.cell, &answer->trial, false);
        cli_cell_end(&table);
        cli_text_config(&table.cell, &answer->trial.config);
        cli_row_end(&table);
    }
    cli_table_put(&table, "problem|GPU|origin|>time|config", &run->out);
    put_bundle(&run->out, file, &info);
    fa_buf_text(&run->out, "whole: every hash is right and every cubin is what its winner says\n");
    free(item);
    return 0;
}

/* ---- export ---------------------------------------------------------------------------------*/
int cli_export(cli_run *run)
{
    const cli_options *options = run->options;
    const char *out = options->bundle.out;
    fa_bundle_info bundle = {0};
    const fa_export_options output = {.size = sizeof output,
                                      .file = out,
                                      .key = options->bundle.key,
                                      .no_signature = options->bundle.no_signature,
                                      .keep = keep_asked_for,
                                      .context = run,
                                      .lines = options->bundle.from_records,
                                      .progress = count_compiled};
    if (out == NULL)
        return fa_fail(&run->diag, FA_EINVAL, "--out FILE is missing, as in --out l4.fab");
    int rc = fa_export(run->tuner, &output, &bundle, &run->diag);
    if (rc != 0)
        return rc;
    add_bundle(run->document, out, &bundle);
    put_bundle(&run->out, out, &bundle);
    return 0;
}

/* ---- import ---------------------------------------------------------------------------------*/
int cli_import(cli_run *run)
{
    const cli_options *options = run->options;
    const char *file = options->operand;
    fa_bundle_info info;
    bool filtered =
        cli_given(options) != 0 || options->request.gpu != NULL || options->operation != NULL;
    const fa_import_options import = {.size = sizeof import,
                                      .file = file,
                                      .allow_unsigned = options->bundle.allow_unsigned,
                                      .dry_run = options->dry_run,
                                      .keep = filtered ? keep_asked_for : NULL,
                                      .progress = count_compiled,
                                      .context = run};
    int rc = cli_open(run, options->dry_run);
    if (rc != 0)
        return rc;
    rc = fa_import(run->tuner, &import, &info, &run->diag);
    if (rc != 0)
        return rc;
    cJSON *document = run->document;
    add_bundle(document, file, &info);
    fa_json_add_bool(document, "dry_run", options->dry_run);
    fa_json_add_number(document, "added", info.added);
    fa_json_add_number(document, "replaced", info.replaced);
    fa_json_add_number(document, "kept", info.kept);
    fa_json_add_number(document, "same", info.same);
    fa_json_add_number(document, "unserved", info.unserved);
    put_import(&run->out, file, &info, options->dry_run);
    return 0;
}

/* ---- keys -----------------------------------------------------------------------------------*/
int cli_keygen(cli_run *run)
{
    char key[FA_KEY_TEXT_MAX], path[4096] = "";
    int rc = fa_keygen(key, path, sizeof path, &run->diag);
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
