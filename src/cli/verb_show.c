/* SPDX-License-Identifier: Apache-2.0
 *
 * show: the winners in the store, newest first, or those of a bundle. Needs no GPU and changes
 * nothing.
 * explain: the whole funnel of a problem, every config with where it ended and why. Compiles nothing.
 * report: the store as a page, as the raw document that the page draws, or as a table. A file appears whole or not at all.
 * rm: forgets winners of the local store, and all that tuning stored with them. A dry run prints the same
 * lines and changes nothing.
 * export, import, keygen, and a bundle shown: carrying winners, as bundles or as lines.
 */
#include "json.h"

#include "error.h"
#include "problem.h"
#include "report.h"
#include "run.h"
#include "text.h"
#include "trial.h"
#include "words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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
        fa_buf_printf(out, "%d left out: they no longer compile cleanly, or repeat a problem\n",
                      info->failed);
}

static void put_import(fa_buf *out, const char *file, const fa_bundle_info *info, bool dry_run)
{
    put_bundle(out, file, info);
    fa_buf_printf(out, "%s%d added, %d replaced, %d kept, %d the same\n",
                  dry_run ? "it would be: " : "", info->added, info->replaced, info->kept,
                  info->same);
    if (info->from_lines || !info->is_signed)
        fa_buf_printf(out, "%s: each winner is proved before it is launched\n",
                      info->from_lines ? "compiled here" : "unsigned");
    if (info->unserved > 0)
        fa_buf_printf(out, "%d of them are for other templates than this fa-tune's: not used\n",
                      info->unserved);
}

#define AS(key, kind, member) FA_MEMBER(key, kind, fa_bundle_info, member)
#define ROW(kind, member) AS(#member, kind, member)
static const fa_member bundle_members[] = {
    ROW(COUNT, version), ROW(COUNT64, bytes), ROW(COUNT, winners),   ROW(COUNT, cubins),
    ROW(COUNT, skipped), ROW(COUNT, failed),  ROW(COUNT, baselines), AS("signed", FLAG, is_signed),
    ROW(FLAG, trusted),  ROW(TEXT, key),      {.key = NULL},
};
static const fa_member import_members[] = {ROW(COUNT, added),    ROW(COUNT, replaced),
                                           ROW(COUNT, kept),     ROW(COUNT, same),
                                           ROW(COUNT, unserved), {0}};

static void add_bundle(cJSON *document, const char *file, const fa_bundle_info *info)
{
    cJSON *bundle = fa_json_add_object(document, "bundle");
    fa_json_add_text(bundle, "file", file);
    fa_struct_add_json(bundle, bundle_members, info);
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

/* A row of a table of winners; made: with the time when it was made. */
static void put_winner(cli_table *table, const fa_answer *answer, bool made)
{
    cli_answer_cells(table, &answer->problem, answer->gpu.name, answer, NULL);
    cli_text_known_time(&table->cell, &answer->trial, false);
    cli_cell_end(table);
    if (made) {
        fa_buf_text(&table->cell, answer->undated ? "by " : "");
        (answer->undated ? fa_words_day : fa_words_time)(&table->cell, answer->unix_time);
        cli_cell_end(table);
    }
    cli_text_config(&table->cell, &answer->trial.config);
    cli_row_end(table);
}

/* Winners of a kernel of one's own are read with its file alone. */
static void note_unread(cli_run *run, size_t unread)
{
    if (unread > 0 && run->options->operation == NULL && run->options->specification == NULL)
        cli_progress_note(&run->progress,
                          "winners of kernels whose files are not named are left out");
}

static int show_bundle(cli_run *run)
{
    const char *file = run->options->operand;
    fa_bundle_info info;
    FA_ENDS(fa_free_at) fa_bundle_item *item = NULL;
    cli_table table = {0};
    size_t count = 0, kept = 0;
    FA_OR_RETURN(fa_bundle_inspect(file, &item, &count, &info, &run->diag));
    for (size_t i = 0; i < count; i++)
        if (keep_asked_for(run, item[i].answer))
            item[kept++] = item[i];
    if (kept > 0)
        qsort(item, kept, sizeof *item, compare_items);
    add_bundle(run->document, file, &info);
    add_items(item, kept, run->document);
    for (size_t i = 0; i < kept; i++)
        put_winner(&table, item[i].answer, false);
    cli_table_put(&table, "problem|GPU|origin|>time|config", &run->out);
    put_bundle(&run->out, file, &info);
    fa_buf_text(&run->out, "whole: every hash is right and every cubin is what its winner says\n");
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
    FA_OR_RETURN(fa_export(run->tuner, &output, &bundle, &run->diag));
    add_bundle(run->document, out, &bundle);
    put_bundle(&run->out, out, &bundle);
    note_unread(run, (size_t)bundle.unread);
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
    FA_OR_RETURN(cli_open(run, options->dry_run));
    FA_OR_RETURN(fa_import(run->tuner, &import, &info, &run->diag));
    add_bundle(run->document, file, &info);
    fa_json_add_bool(run->document, "dry_run", options->dry_run);
    fa_struct_add_json(run->document, import_members, &info);
    put_import(&run->out, file, &info, options->dry_run);
    return 0;
}

/* ---- keys -----------------------------------------------------------------------------------*/
int cli_keygen(cli_run *run)
{
    char key[FA_KEY_TEXT_MAX], path[4096] = "";
    FA_OR_RETURN(fa_keygen(key, path, sizeof path, &run->diag));
    fa_json_add_text(run->document, "key", key);
    fa_json_add_text(run->document, "file", path);
    fa_buf_printf(&run->out, "%s\nsecret half in ", key);
    cli_text_path(&run->out, path);
    fa_buf_text(&run->out, "; hosts that import your bundles have the line above in a file of "
                           "~/.config/fa-tune/trusted, such as lab.pub\n");
    return 0;
}

/* ---- winners ------------------------------------------------------------------------------*/
/* The newest first; a sweep's or an import's of one second in the order of lists. */
static int compare_answers(const void *a, const void *b)
{
    const fa_answer *x = a, *y = b;
    if (x->unix_time != y->unix_time)
        return x->unix_time > y->unix_time ? -1 : 1;
    return cli_answer_compare(x, y);
}

static int show_winners(cli_run *run)
{
    cJSON *array = fa_json_add_array(run->document, "winners");
    fa_buf *out = &run->out;
    cli_table table = {0};
    FA_ENDS(fa_free_at) fa_answer *answer = NULL;
    size_t listed = 0, count = 0, unread = 0;
    int rc = fa_list_winners(run->tuner, &answer, &listed, &unread, &run->diag);
    for (size_t i = 0; i < listed; i++)
        if (cli_filter_keeps(run->options, &answer[i].problem, answer[i].gpu.name))
            answer[count++] = answer[i];
    if (rc == 0 && count == 0)
        rc = cli_check_gpu(run); /* a name that nobody knows is a mistake, not an empty list */
    if (count > 0)
        qsort(answer, count, sizeof *answer, compare_answers);
    for (size_t i = 0; i < count; i++) {
        if (array != NULL)
            fa_json_push(array, cli_json_winner(&answer[i]));
        else
            put_winner(&table, &answer[i], true);
    }
    cli_table_put(&table, "problem|GPU|origin|>time|made|config", out);
    cli_text_count(out, "", (int64_t)count, "winner");
    if (listed > count)
        fa_buf_printf(out, ", %zu left out by the filters,", listed - count);
    cli_text_store(run, " in ");
    note_unread(run, unread);
    return rc;
}

/* ---- why ------------------------------------------------------------------------------------*/
static void step_text(const fa_step *step, fa_buf *out)
{
    const char *indent = "\n               "; /* as wide as the arrow and the name */
    fa_buf_printf(out, "%s %-11s  ", step->taken ? "→" : " ", step->name);
    if (step->found) {
        cli_text_config(out, &step->answer.trial.config);
        fa_buf_text(out, ", ");
        cli_text_trial_time(out, &step->answer.trial, step->answer.origin == FA_ORIGIN_NEAREST);
        fa_buf_text(out, indent);
    }
    cli_text_safe(out, step->why); /* may quote what a bundle said */
    if (step->found && step->answer.from_system)
        fa_buf_printf(out, "%sin a system bundle", indent);
    fa_buf_text(out, "\n");
}

static int show_why(cli_run *run)
{
    const fa_problem *problem = &run->options->request.problem;
    fa_request request = run->options->request;
    fa_problem bucket = fa_problem_bucket(problem);
    fa_gpu gpu;
    FA_ENDS(fa_free_at) fa_step *step = NULL;
    size_t count = 0;
    FA_OR_RETURN(fa_why(run->tuner, &request, &step, &count, &gpu, &run->diag));
    fa_json_add(run->document, "problem", fa_problem_to_json(problem));
    fa_json_add(run->document, "bucket", fa_problem_to_json(&bucket));
    fa_json_add(run->document, "gpu", fa_gpu_to_json(&gpu));
    cJSON *steps = fa_json_add_array(run->document, "steps");
    cli_text_heading(&run->out, problem, &gpu);
    if (!fa_problem_equal(&bucket, problem)) {
        fa_buf_text(&run->out, "bucket ");
        cli_text_problem(&run->out, &bucket);
        fa_buf_text(&run->out, "\n");
    }
    for (size_t i = 0; i < count; i++) {
        step_text(&step[i], &run->out);
        cJSON *item = cJSON_CreateObject();
        fa_json_add_text(item, "step", step[i].name);
        fa_json_add_bool(item, "found", step[i].found);
        fa_json_add_bool(item, "taken", step[i].taken);
        fa_json_add_text(item, "why", step[i].why);
        if (step[i].found)
            fa_json_add(item, "answer", cli_json_answer(&step[i].answer));
        fa_json_push(steps, item);
    }
    return 0;
}

int cli_show(cli_run *run)
{
    if (run->options->operand != NULL)
        return show_bundle(run);
    FA_OR_RETURN(cli_open(run, true));
    return run->options->why ? show_why(run) : show_winners(run);
}

/* ---- explain --------------------------------------------------------------------------------*/
/* A problem's space: every config with where it ended, and how many ended at each stage. */
typedef struct funnel {
    cli_rows rows;
    fa_explained space;
    size_t ended[FA_GATES], ranked; /* by status; of all, those with a rank, which come first */
} funnel;

/* The configs that ended at one stage with their reasons, at most `limit`. */
static void print_gate(const funnel *f, const struct fa_gate *gate, size_t limit, fa_buf *out)
{
    const cli_rows *rows = &f->rows;
    size_t total = 0;
    cli_table table = {0};
    cli_tunables tunables;
    bool pending = gate->status == FA_STATUS_PENDING;
    char number[FA_COMMAS_MAX];
    fa_buf_text(&table.columns, "family");
    cli_tunables_find(&tunables, rows->row, rows->count, &table.columns);
    for (size_t r = 0; r < rows->count; r++) {
        const fa_trial *trial = &rows->row[r].trial;
        if (trial->status != gate->status || rows->row[r].rank > 0 || total++ >= limit)
            continue;
        cli_cell(&table, "%s", trial->config.family);
        cli_tunables_cells(&tunables, &table, &trial->config);
        if (pending && trial->predicted_us > 0)
            fa_words_about(&table.cell, trial->predicted_us);
        else
            fa_buf_text(&table.cell, trial->reason);
        cli_row_end(&table);
    }
    if (total > 0)
        fa_buf_printf(out, "\n%s: %s %s\n", fa_status_name(gate->status),
                      fa_commas((int64_t)total, number), gate->meaning);
    cli_table_put(&table, pending ? "|model" : "|reason", out);
    if (total > limit)
        fa_buf_printf(out, "… and %s more\n", fa_commas((int64_t)(total - limit), number));
}

static void print_funnel(cli_run *run, const funnel *f, size_t limit)
{
    const fa_study_trial *row = f->rows.row;
    const size_t ranked = f->ranked;
    fa_buf *out = &run->out;
    char number[FA_COMMAS_MAX];
    cli_text_heading(out, &run->options->request.problem, &f->space.gpu);
    if (f->space.is_searched)
        fa_buf_printf(out, "space %s: searched, not built · tried %zu",
                      fa_commas(f->space.configs, number), f->rows.count);
    else
        fa_buf_printf(out, "space %s", fa_commas((int64_t)f->rows.count, number));
    for (int s = FA_GATES - 1; s >= 0; s--)
        if (f->ended[fa_gates[s].status] > 0)
            fa_buf_printf(out, " · %s %s", fa_status_name(fa_gates[s].status),
                          fa_commas((int64_t)f->ended[fa_gates[s].status], number));
    fa_buf_text(out, "\n");
    if (ranked > 0) {
        fa_buf_printf(out, "\n%s: %zu passed\n",
                      cli_rows_ranked(row, ranked) ? "ranked" : "unranked, without a model",
                      ranked);
        cli_print_ranking(&f->rows, ranked < limit ? ranked : limit, 0, out);
        if (limit < ranked)
            fa_buf_printf(out, "… and %zu more\n", ranked - limit);
    }
    for (int s = FA_GATES - 1; s >= 0; s--)
        print_gate(f, &fa_gates[s], limit, out);
}

static void add_funnel(cli_run *run, const funnel *f, size_t limit)
{
    cJSON *document = run->document;
    fa_json_add(document, "problem", fa_problem_to_json(&run->options->request.problem));
    fa_json_add(document, "gpu", fa_gpu_to_json(&f->space.gpu));
    cJSON *counts = fa_json_add_object(document, "counts");
    fa_json_add_number(counts, "space", (double)f->space.configs);
    for (int s = FA_GATES - 1; s >= 0; s--)
        fa_json_add_number(counts, fa_status_name(fa_gates[s].status),
                           (double)f->ended[fa_gates[s].status]);
    fa_json_add_bool(document, "searched", f->space.is_searched);
    fa_json_add(document, "configs",
                cli_json_rows(&f->rows, f->rows.count < limit ? f->rows.count : limit));
}

int cli_explain(cli_run *run)
{
    funnel f = {0};
    const fa_request request = run->options->request;
    int rc = fa_explain(run->tuner, &request, &f.rows.row, &f.rows.count, &f.space, &run->diag);
    for (size_t r = 0; rc == 0 && r < f.rows.count; r++) {
        f.ended[f.rows.row[r].trial.status]++;
        f.ranked += f.rows.row[r].rank > 0;
    }
    if (rc == 0)
        (run->options->json ? add_funnel : print_funnel)(
            run, &f, run->options->top > 0 ? (size_t)run->options->top : SIZE_MAX);
    free(f.rows.row);
    return rc;
}

/* ---- report ---------------------------------------------------------------------------------*/
static bool is_asked_for(const void *context, const fa_problem *problem, const char *gpu)
{
    cli_run *const *run = context;
    return cli_filter_keeps((*run)->options, problem, gpu);
}

static bool tell_progress(const void *context, int32_t done, int32_t all)
{
    cli_run *const *run = context;
    return cli_progress_count(&(*run)->progress, "reported", done, all) != 0;
}

static void put_number(cli_table *table, double value)
{
    if (value > 0)
        fa_buf_printf(&table->cell, "%.2f", value);
    cli_cell_end(table);
}

static void put_problems(const report_problems *problems, cli_form form, fa_buf *out)
{
    cli_table table = {.form = form};
    const fa_baseline *baseline = problems->baseline, *end = baseline + problems->baselines;
    const char *peer[32];
    size_t peers = 0;
    fa_buf_text(&table.columns,
                "problem|GPU|origin|>time µs|>±|>predicted µs|>TFLOP/s|>default µs");
    for (const fa_baseline *b = baseline; b < end; b++) {
        size_t p = 0;
        while (p < peers && strcmp(peer[p], b->peer) != 0)
            p++;
        if (p == peers && p < sizeof peer / sizeof *peer)
            fa_buf_printf(&table.columns, "|?>%s µs", peer[peers++] = b->peer);
    }
    for (const fa_study *s = problems->study; s < problems->study + problems->count; s++) {
        const fa_trial *trial = &s->winner.trial; /* zeros where there is none */
        const fa_answer of_study = {.problem = s->problem, .gpu = s->gpu};
        const double work = fa_problem_work(&s->problem, "flops");
        cli_answer_cells(&table, &s->problem, s->gpu.name, s->has_winner ? &s->winner : NULL,
                         "no winner");
        put_number(&table, trial->median_us);
        put_number(&table, (trial->high_us - trial->low_us) / 2);
        put_number(&table, trial->predicted_us);
        put_number(&table, trial->median_us > 0 ? work / trial->median_us * 1e-6 : 0);
        put_number(&table, s->winner.default_us);
        for (size_t p = 0; p < peers; p++) {
            double us = 0;
            for (const fa_baseline *b = baseline; b < end && us <= 0; b++)
                if (strcmp(b->peer, peer[p]) == 0 && fa_baseline_concerns(b, &of_study))
                    us = b->median_us;
            put_number(&table, us);
        }
        cli_text_config(&table.cell, &trial->config);
        cli_row_end(&table);
    }
    cli_table_put(&table, "|config", out);
}

int cli_report(cli_run *run)
{
    enum { HTML, JSON, MD, CSV };
    const char *file = run->options->out, *ending = file != NULL ? strrchr(file, '.') : NULL;
    const bool by_name = ending != NULL && strcasecmp(ending, ".json") == 0;
    const int32_t said = run->options->json ? JSON : run->options->format;
    const int32_t format = said >= 0 ? said : by_name ? JSON : HTML;
    static const int formats[] = {FA_REPORT_HTML, FA_REPORT_JSON, REPORT_NO_TEXT, REPORT_NO_TEXT};
    const fa_report_options report = {.format = (fa_report_format)formats[format],
                                      .keep = is_asked_for,
                                      .progress = tell_progress,
                                      .context = &run};
    report_problems told;
    if (file != NULL && format == HTML && (ending == NULL || strcasecmp(ending, ".html") != 0))
        return cli_refuse("--out", file, "a page's name, which ends in .html", NULL, &run->diag);
    int rc = report_write(run->tuner, &report, 0, &run->out, &told, &run->diag);
    if (rc == 0 && told.count == 0)
        rc = cli_check_gpu(run); /* a name that nobody knows is a mistake, not an empty report */
    if (rc == 0 && format >= MD)
        put_problems(&told, format == MD ? CLI_MARKDOWN : CLI_CSV, &run->out);
    free(told.study);
    free(told.baseline);
    if (rc == 0 && file != NULL)
        rc = fa_output_write(file, run->out.data, run->out.size, &run->diag);
    if (rc != 0)
        return rc;
    if (file != NULL) { /* stdout gets where it is */
        size_t size = run->out.size;
        fa_buf_clear(&run->out);
        cli_text_count(&run->out, "", (int64_t)told.count, "problem");
        fa_buf_printf(&run->out, ", %zu kB in ", (size + 999) / 1000);
        cli_text_path(&run->out, file);
        fa_buf_text(&run->out, "\n");
    }
    char note[80] = "this store holds no problem yet: tune one, as in fa-tune --gpu L4 --seq 512";
    if (told.filtered > 0)
        snprintf(note, sizeof note, "%zu problem%s left out by the filters", told.filtered,
                 told.filtered == 1 ? " is" : "s are");
    if (told.filtered > 0 || told.count == 0)
        cli_progress_note(&run->progress, note);
    run->printed = true; /* with --json, too: the report is a document of its own */
    return cli_write(&run->out);
}

/* ---- rm -------------------------------------------------------------------------------------*/
static cJSON *study_json(const fa_study *study)
{
    cJSON *item = cJSON_CreateObject(), *problem = NULL;
    if (study->unread == NULL)
        problem = fa_problem_to_json(&study->problem);
    else if (fa_json_parse(study->unread, strlen(study->unread), "problem", &problem, NULL) != 0)
        problem = cJSON_CreateString(study->unread);
    fa_json_add(item, "problem", problem);
    fa_json_add_bool(item, "unread", study->unread != NULL);
    fa_json_add(item, "gpu", fa_gpu_to_json(&study->gpu));
    fa_json_add_number(item, "trials", study->trials);
    fa_json_add_number(item, "unix_time", (double)study->unix_time);
    fa_json_add(item, "answer",
                study->has_winner && study->unread == NULL ? cli_json_answer(&study->winner)
                                                           : cJSON_CreateNull());
    return item;
}

static const fa_member forgotten_members[] = {FA_MEMBER("winners", COUNT64, fa_forgotten, winners),
                                              FA_MEMBER("trials", COUNT64, fa_forgotten, trials),
                                              FA_MEMBER("cubins", COUNT64, fa_forgotten, cubins),
                                              FA_MEMBER("bytes", COUNT64, fa_forgotten, bytes),
                                              {0}};

static void put_result(cli_run *run, const fa_study *study, size_t count,
                       const fa_forgotten *forgotten)
{
    cJSON *array = fa_json_add_array(run->document, "problems");
    fa_buf *out = &run->out;
    cli_table table = {0};
    for (const fa_study *one = study; one < study + count; one++) {
        if (array != NULL)
            fa_json_push(array, study_json(one));
        if (one->unread != NULL)
            fa_buf_text(&table.cell, one->unread);
        else
            cli_text_problem(&table.cell, &one->problem);
        cli_cell_end(&table);
        cli_cell(&table, "%s", one->gpu.name);
        cli_cell(&table, "%s",
                 !one->has_winner      ? "no winner"
                 : one->unread != NULL ? "not known here"
                                       : fa_name_of_origin(one->winner.origin));
        cli_cell(&table, "%d", one->trials);
        fa_words_time(&table.cell, one->unix_time);
        cli_row_end(&table);
    }
    cli_table_put(&table, "problem|GPU|origin|>trials|made", out);
    if (count == 0 && forgotten->winners == 0 && forgotten->bytes == 0) {
        cli_text_store(run, "nothing to forget: no problem matches in ");
    } else {
        fa_buf_text(out, run->options->dry_run ? "would forget " : "forgot ");
        cli_text_count(out, "", forgotten->winners, "winner");
        cli_text_count(out, ", ", forgotten->trials, "trial");
        cli_text_count(out, " and ", forgotten->cubins, "cubin");
        cli_text_count(out, ", ", forgotten->bytes, "byte");
        cli_text_store(run, " in ");
    }
    fa_json_add_bool(run->document, "dry_run", run->options->dry_run);
    if (run->document != NULL)
        fa_json_add(run->document, "forgotten", fa_struct_to_json(forgotten_members, forgotten));
}

int cli_rm(cli_run *run)
{
    const cli_options *options = run->options;
    FA_ENDS(fa_free_at) fa_study *study = NULL;
    fa_forgotten forgotten = {0};
    size_t listed = 0, count = 0;
    const bool problems =
        cli_given(options) != 0 || options->operation != NULL || options->specification != NULL;
    if (options->forget_all == (problems || options->request.gpu != NULL))
        return fa_fail(&run->diag, FA_EINVAL,
                       "say what to forget: FILE.cu, --gpu, options of a problem, or "
                       "--all alone; --dry-run lists what would be deleted");
    int rc = fa_list_studies(run->tuner, &study, &listed, &run->diag);
    for (size_t i = 0; i < listed; i++) /* of a problem that cannot be read nothing is known */
        if (options->forget_all ||
            (study[i].unread == NULL
                 ? cli_filter_keeps(options, &study[i].problem, study[i].gpu.name)
                 : !problems && cli_gpu_is(options->request.gpu, study[i].gpu.name)))
            study[count++] = study[i];
    if (rc == 0)
        rc = fa_forget(run->tuner, study, options->forget_all ? NULL : &count, options->dry_run,
                       &forgotten, &run->diag);
    if (rc == 0 && count == 0)
        rc = cli_check_gpu(run); /* a name that nobody knows is a mistake, not an empty choice */
    if (rc == 0)
        put_result(run, study, count, &forgotten);
    return rc;
}
