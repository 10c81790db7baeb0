/* SPDX-License-Identifier: Apache-2.0
 *
 * explain: the whole funnel of a problem, every config with where it ended and why. Compiles
 * nothing.
 */
#include "error.h"
#include "json.h"
#include "problem.h"
#include "run.h"
#include "text.h"
#include "wording.h"

static size_t count_of(const cli_rows *rows, fa_status status, bool ranked)
{
    size_t count = 0;
    for (size_t r = 0; r < rows->count; r++)
        count += rows->row[r].trial.status == status && (rows->row[r].rank > 0) == ranked;
    return count;
}

static size_t count_all(const cli_rows *rows, fa_status status)
{
    return count_of(rows, status, false) + count_of(rows, status, true);
}

/* The configs that ended at one stage with their reasons, at most `limit`. */
static void print_stage(const cli_rows *rows, fa_status stage, size_t limit, fa_buf *out)
{
    size_t total = count_of(rows, stage, false), printed = 0;
    if (total == 0)
        return;
    cli_table table = {0};
    cli_tunables tunables;
    fa_buf columns = {0};
    bool pending = stage == FA_STATUS_PENDING;
    char number[FA_COMMAS_MAX];
    cli_tunables_find(&tunables, rows->row, rows->count);
    fa_buf_text(&columns, "~family");
    cli_tunables_columns(&tunables, &columns);
    fa_buf_text(&columns, pending ? "|model" : "|=reason");
    for (size_t r = 0; r < rows->count && printed < limit; r++) {
        const fa_trial *trial = &rows->row[r].trial;
        if (trial->status != stage || rows->row[r].rank > 0)
            continue;
        cli_cell(&table, "%s", trial->config.family);
        cli_tunables_cells(&tunables, &table, &trial->config);
        if (pending && trial->predicted_us > 0)
            cli_text_about(&table.cell, trial->predicted_us);
        else
            fa_buf_text(&table.cell, trial->reason);
        cli_cell_end(&table);
        cli_row_end(&table);
        printed++;
    }
    fa_buf_printf(out, "\n%s: %s %s\n", fa_status_name(stage), fa_commas((int64_t)total, number),
                  fa_stage_meaning(stage));
    out->failed |= columns.failed;
    cli_table_put(&table, columns.data != NULL ? columns.data : "", out);
    fa_buf_free(&columns);
    if (printed < total)
        fa_buf_printf(out, "%s and %s more\n", cli_sym()->ellipsis,
                      fa_commas((int64_t)(total - printed), number));
}

/* Whether the times are those that an imported winner brought with it. */
static int find_imported(fa_tuner *tuner, const fa_request *request, const cli_rows *rows,
                         bool *ret_imported, fa_diag *diag)
{
    fa_request cached = *request;
    fa_answer answer = {.size = sizeof answer};
    cached.effort = FA_EFFORT_CACHED;
    *ret_imported = false;
    if (rows->count == 0 || rows->row[0].trial.status != FA_STATUS_MEASURED)
        return 0;
    int rc = fa_tune(tuner, &cached, &answer, diag);
    *ret_imported = rc == 0 && answer.origin == FA_ORIGIN_IMPORTED;
    return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
}

static void print_space(const fa_space_count *space, const cli_rows *rows, fa_buf *out)
{
    char number[FA_COMMAS_MAX];
    if (space->is_searched)
        fa_buf_printf(out, "space %s%s: searched, not built %s tried %zu",
                      space->about ? "about " : "", fa_commas(space->configs, number),
                      cli_sym()->dot, rows->count);
    else
        fa_buf_printf(out, "space %s", fa_commas((int64_t)rows->count, number));
    for (int s = FA_STAGES - 1; s >= 0; s--)
        if (count_all(rows, fa_stages[s]) > 0)
            fa_buf_printf(out, " %s %s %s", cli_sym()->dot, fa_status_name(fa_stages[s]),
                          fa_commas((int64_t)count_all(rows, fa_stages[s]), number));
    fa_buf_text(out, "\n");
}

static void print_text(const cli_options *options, const fa_gpu *gpu, const fa_space_count *space,
                       const cli_rows *rows, bool imported, fa_buf *out)
{
    size_t limit = options->top > 0 ? (size_t)options->top : SIZE_MAX, ranked = 0;
    while (ranked < rows->count && rows->row[ranked].rank > 0)
        ranked++;
    cli_text_heading(out, &options->problem, gpu);
    if (cli_text_too_large(out, &options->problem))
        fa_buf_text(out, "\n");
    print_space(space, rows, out);
    if (ranked > 0) {
        fa_buf_printf(
            out, "\n%s: %zu passed%s\n",
            cli_rows_ranked(rows->row, ranked) ? "ranked" : "unranked, without a model", ranked,
            imported ? ", where their winner was imported from: none was tried here" : "");
        cli_print_ranking(rows->row, ranked < limit ? ranked : limit, 0, out);
        if (limit < ranked)
            fa_buf_printf(out, "%s and %zu more\n", cli_sym()->ellipsis, ranked - limit);
    }
    for (int s = FA_STAGES - 1; s >= 0; s--)
        print_stage(rows, fa_stages[s], limit, out);
}

static void print_json(cJSON *document, const cli_options *options, const fa_gpu *gpu,
                       const fa_space_count *space, const cli_rows *rows, bool imported)
{
    fa_json_add(document, "problem", fa_problem_to_json(&options->problem));
    fa_json_add(document, "gpu", fa_gpu_to_json(gpu));
    cJSON *counts = fa_json_add_object(document, "counts");
    fa_json_add_number(counts, "space", (double)space->configs);
    for (int s = FA_STAGES - 1; s >= 0; s--)
        fa_json_add_number(counts, fa_status_name(fa_stages[s]),
                           (double)count_all(rows, fa_stages[s]));
    fa_json_add_bool(document, "searched", space->is_searched);
    fa_json_add_bool(document, "space_estimated", space->about);
    size_t limit = options->top > 0 ? (size_t)options->top : SIZE_MAX;
    fa_json_add(document, "configs",
                cli_json_rows(rows->row, rows->count < limit ? rows->count : limit));
    fa_json_add_bool(document, "imported", imported);
}

int cli_explain(cli_run *run)
{
    cli_rows rows = {0};
    fa_gpu gpu;
    fa_space_count space;
    bool imported = false;
    int rc = cli_check_gpu(run);
    if (rc == 0)
        rc = cli_open(run, true);
    if (rc != 0)
        return rc;
    fa_request request = cli_request(run->options);
    rc = fa_count_space(run->tuner, &request, &space, &run->diag);
    if (rc != 0)
        return rc;
    rc = fa_explain(run->tuner, &request, cli_rows_visit, &rows, &gpu, &run->diag);
    if (rows.failed)
        rc = fa_fail(&run->diag, FA_ENOMEM, "out of memory after %zu configs", rows.count);
    if (rc != 0 || (rc = find_imported(run->tuner, &request, &rows, &imported, &run->diag)) != 0)
        goto done;
    if (run->options->json) {
        print_json(run->document, run->options, &gpu, &space, &rows, imported);
        fa_json_add_text(run->document, "store", fa_store_location(run->tuner));
    } else {
        print_text(run->options, &gpu, &space, &rows, imported, &run->out);
    }
done:
    cli_rows_free(&rows);
    return rc;
}
