/* SPDX-License-Identifier: Apache-2.0 */
#include "bundle_out.h"

#include "error.h"
#include "json_make.h"
#include "filter.h"
#include "problem.h"
#include "records_out.h"
#include "rows.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cli_item {
    fa_bundle_change change;
    bool served;
    char why[64];
    fa_answer answer;
    fa_origin stored_origin;
    double stored_us; /* 0: none, or not measured */
};

static const char *const change_name[] = {"listed", "added", "replaced", "kept", "same"};

int cli_items_take(void *context, const fa_bundle_item *item)
{
    cli_items *items = context;
    if (!cli_gpu_is(items->gpu, item->answer->gpu.name))
        return 0;
    struct cli_item *grown = fa_grow(items->item, &items->capacity, items->count, sizeof *grown);
    if (grown == NULL) {
        items->failed = true;
        return FA_ENOMEM;
    }
    items->item = grown;
    struct cli_item *copy = &items->item[items->count++];
    *copy =
        (struct cli_item){.change = item->change, .served = item->served, .answer = *item->answer};
    snprintf(copy->why, sizeof copy->why, "%s", item->why);
    if (item->stored != NULL) {
        copy->stored_origin = item->stored->origin;
        copy->stored_us = item->stored->trial.median_us;
    }
    return 0;
}

void cli_items_free(cli_items *items)
{
    free(items->item);
    items->item = NULL;
    items->count = items->capacity = 0;
}

/* ---- text -----------------------------------------------------------------------------------*/
static void put_table(const cli_items *items, bool import, fa_buf *out)
{
    cli_table table = {0};
    for (size_t i = 0; i < items->count; i++) {
        const struct cli_item *item = &items->item[i];
        cli_cell(&table, "%s", import ? change_name[item->change] : "");
        cli_text_problem(&table.cell, &item->answer.problem);
        cli_cell_end(&table);
        cli_cell(&table, "%s", item->answer.gpu.name);
        cli_cell(&table, "%s", fa_origin_name(item->answer.origin));
        cli_text_known_time(&table.cell, &item->answer.trial);
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
    fa_buf_printf(out, "signed by %s", info->key);
    if (info->name[0] != 0) {
        fa_buf_text(out, " (");
        cli_text_safe(out, info->name);
        fa_buf_text(out, ")");
    } else if (!info->trusted) {
        fa_buf_text(out, ", which is not trusted here");
    }
}

static void put_bundle(fa_buf *out, const char *file, const fa_bundle_info *info)
{
    cli_text_path(out, file);
    fa_buf_printf(out, ": %d winner%s, %d cubin%s, ", info->winners, info->winners == 1 ? "" : "s",
                  info->cubins, info->cubins == 1 ? "" : "s");
    cli_text_grouped(out, info->bytes);
    fa_buf_text(out, " bytes, ");
    put_signer(info, out);
    fa_buf_text(out, "\n");
}

static int print_text(const cli_items *items, const char *file, const fa_bundle_info *info,
                      bool import, bool dry_run)
{
    fa_buf out = {0};
    put_table(items, import, &out);
    if (items->records != NULL)
        cli_records_put(&out, file, items->records);
    else
        put_bundle(&out, file, info);
    if (!import)
        fa_buf_text(&out, "whole: every hash is right and every cubin is what its winner says\n");
    else
        fa_buf_printf(&out, "%s%d added, %d replaced, %d kept, %d the same\n",
                      dry_run ? "it would be: " : "", info->added, info->replaced, info->kept,
                      info->same);
    if (import && items->records != NULL)
        fa_buf_text(&out, "compiled here: each winner is proved before it is launched\n");
    else if (import && !info->is_signed)
        fa_buf_text(&out, "nobody signed it: each winner is proved here before it is launched\n");
    if (import && info->unserved > 0)
        fa_buf_printf(&out,
                      "%d of them are for other templates than this fa-tune's, which will not use "
                      "them\n",
                      info->unserved);
    int status = cli_write(&out);
    fa_buf_free(&out);
    return status;
}

/* ---- JSON -----------------------------------------------------------------------------------*/
static int print_json(const cli_items *items, const char *file, const fa_bundle_info *info,
                      bool import, bool dry_run)
{
    cJSON *document = cJSON_CreateObject();
    fa_json_add_text(document, "fa_tune", fa_version());
    if (items->records != NULL)
        cli_records_add_json(document, file, items->records);
    cJSON *bundle = fa_json_add_object(document, "bundle");
    fa_json_add_text(bundle, "file", file);
    fa_json_add_number(bundle, "version", info->version);
    fa_json_add_number(bundle, "bytes", (double)info->bytes);
    fa_json_add_number(bundle, "winners", info->winners);
    fa_json_add_number(bundle, "cubins", info->cubins);
    fa_json_add_bool(bundle, "signed", info->is_signed);
    fa_json_add_bool(bundle, "trusted", info->trusted);
    fa_json_add_text(bundle, "key", info->key);
    if (import) {
        fa_json_add_bool(document, "dry_run", dry_run);
        fa_json_add_number(document, "added", info->added);
        fa_json_add_number(document, "replaced", info->replaced);
        fa_json_add_number(document, "kept", info->kept);
        fa_json_add_number(document, "same", info->same);
        fa_json_add_number(document, "unserved", info->unserved);
    }
    cJSON *array = fa_json_add_array(document, "winners");
    for (size_t i = 0; i < items->count; i++) {
        const struct cli_item *one = &items->item[i];
        cJSON *item = cli_json_winner(&one->answer);
        if (import) {
            fa_json_add_text(item, "change", change_name[one->change]);
            fa_json_add_text(item, "why", one->why);
            fa_json_add_bool(item, "served", one->served);
        }
        fa_json_push(array, item);
    }
    return cli_json_write(document);
}

static int compare_items(const void *a, const void *b)
{
    return cli_answer_compare(&((const struct cli_item *)a)->answer,
                              &((const struct cli_item *)b)->answer);
}

int cli_items_print(cli_items *items, const char *file, const fa_bundle_info *info, bool import,
                    const cli_options *options)
{
    if (items->count > 1)
        qsort(items->item, items->count, sizeof *items->item, compare_items);
    return options->json ? print_json(items, file, info, import, options->dry_run)
                         : print_text(items, file, info, import, options->dry_run);
}
