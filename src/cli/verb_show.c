/* SPDX-License-Identifier: Apache-2.0
 *
 * show: the winners in the store, newest first, or those of a bundle. Needs no GPU and changes
 * nothing.
 */
#include "bundle_out.h"
#include "error.h"
#include "json_make.h"
#include "filter.h"
#include "problem.h"
#include "progress.h"
#include "rows.h"
#include "text.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct winners {
    fa_answer *answer;
    size_t count, capacity, skipped;
    const char *gpu; /* to keep, or NULL */
    bool failed;
    fa_buf waiting; /* a line for each fleet that results wait for */
    cJSON *waiting_json;
    const char *file;
} winners;

static int keep_answer(void *context, const fa_answer *answer)
{
    winners *list = context;
    if (!cli_gpu_is(list->gpu, answer->gpu.name)) {
        list->skipped++;
        return 0;
    }
    fa_answer *grown = fa_grow(list->answer, &list->capacity, list->count, sizeof *grown);
    if (grown == NULL) {
        list->failed = true;
        return FA_ENOMEM;
    }
    list->answer = grown;
    list->answer[list->count++] = *answer;
    return 0;
}

/* The newest first; a sweep's or an import's of one second in the order of lists. */
static int compare_answers(const void *a, const void *b)
{
    const fa_answer *x = a, *y = b;
    if (x->unix_time != y->unix_time)
        return x->unix_time > y->unix_time ? -1 : 1;
    return cli_answer_compare(x, y);
}

static int keep_waiting(void *context, const fa_waiting *waiting)
{
    winners *list = context;
    bool one = waiting->results == 1;
    cJSON *item = cJSON_CreateObject();
    fa_json_add_text(item, "fleet", waiting->fleet);
    fa_json_add_number(item, "results", (double)waiting->results);
    fa_json_push(list->waiting_json, item);
    fa_buf_printf(&list->waiting, "%lld result%s in ", (long long)waiting->results, one ? "" : "s");
    cli_text_path(&list->waiting, list->file);
    fa_buf_printf(&list->waiting, " wait%s for ", one ? "s" : "");
    cli_text_safe(&list->waiting, waiting->fleet);
    fa_buf_text(&list->waiting, "\n");
    return 0;
}

static void print_sum(const winners *list, const fa_tuner *tuner, fa_buf *out)
{
    size_t fleet = 0, local = 0;
    for (size_t i = 0; i < list->count; i++) {
        fleet += list->answer[i].in_fleet;
        local += list->answer[i].in_local;
    }
    fa_buf_printf(out, "%zu winner%s", list->count, list->count == 1 ? "" : "s");
    if (cli_asked_fleet(tuner)) {
        fa_buf_printf(out, ": %zu in ", fleet);
        cli_text_path(out, fa_store_location(tuner));
        fa_buf_printf(out, ", %zu in ", local);
        cli_text_path(out, fa_store_file(tuner));
    } else {
        fa_buf_text(out, " in ");
        cli_text_path(out, cli_location(tuner));
    }
    if (list->skipped > 0)
        fa_buf_printf(out, ", %zu for other GPUs", list->skipped);
    fa_buf_text(out, "\n");
}

static int print_text(const winners *list, const fa_tuner *tuner)
{
    fa_buf out = {0};
    bool fleet = cli_asked_fleet(tuner);
    cli_table table = {0};
    for (size_t i = 0; i < list->count; i++) {
        const fa_answer *answer = &list->answer[i];
        cli_text_problem(&table.cell, &answer->problem);
        cli_cell_end(&table);
        cli_cell(&table, "%s", answer->gpu.name);
        cli_cell(&table, "%s", fa_origin_name(answer->origin));
        cli_text_known_time(&table.cell, &answer->trial);
        cli_cell_end(&table);
        cli_text_age(&table.cell, answer->unix_time);
        cli_cell_end(&table);
        cli_cell(&table, "%s",
                 !fleet              ? ""
                 : !answer->in_fleet ? "local"
                 : answer->in_local  ? "both"
                                     : "fleet");
        cli_text_config(&table.cell, &answer->trial.config);
        cli_cell_end(&table);
        cli_row_end(&table);
    }
    cli_table_put(&table, "problem|GPU|origin|>time|made|?store|config", &out);
    print_sum(list, tuner, &out);
    fa_buf_text(&out, list->waiting.data != NULL ? list->waiting.data : "");
    out.failed = out.failed || list->waiting.failed;
    int status = cli_write(&out);
    fa_buf_free(&out);
    return status;
}

static int print_json(winners *list, const fa_tuner *tuner)
{
    cJSON *document = cJSON_CreateObject();
    fa_json_add_text(document, "fa_tune", fa_version());
    cJSON *array = fa_json_add_array(document, "winners");
    for (size_t i = 0; i < list->count; i++)
        fa_json_push(array, cli_json_winner(&list->answer[i]));
    fa_json_add(document, "waiting", list->waiting_json);
    list->waiting_json = NULL;
    cli_json_location(document, tuner);
    return cli_json_write(document);
}

/* ---- why ------------------------------------------------------------------------------------*/
typedef struct why {
    const fa_tuner *tuner;
    fa_buf text;
    cJSON *steps; /* NULL: text */
} why;

static void step_text(const fa_step *step, const fa_tuner *tuner, fa_buf *out)
{
    fa_buf_printf(out, "%s %-11s  ", step->taken ? cli_sym()->arrow : " ", step->name);
    if (step->found) {
        cli_text_config(out, &step->answer.trial.config);
        fa_buf_text(out, ", ");
        cli_text_trial_time(out, &step->answer.trial);
        fa_buf_printf(out, "\n               ");
    }
    cli_text_safe(out, step->why); /* may quote what a bundle said */
    if (step->found && (cli_asked_fleet(tuner) || step->answer.from_system)) {
        fa_buf_text(out, "\n               in ");
        cli_text_places(out, &step->answer, tuner);
    }
    fa_buf_text(out, "\n");
    if (step->found && step->answer.promised_rank > 0) {
        fa_buf_text(out, "               promised ");
        cli_text_about(out, step->answer.promised_us);
        fa_buf_text(out, " before it was measured, took ");
        cli_text_us(out, step->answer.promised_measured_us);
        fa_buf_printf(out, ", rank %d\n", step->answer.promised_rank);
    }
}

static int why_step(void *context, const fa_step *step)
{
    why *w = context;
    if (w->steps == NULL) {
        step_text(step, w->tuner, &w->text);
        return 0;
    }
    cJSON *item = cJSON_CreateObject();
    fa_json_add_text(item, "step", step->name);
    fa_json_add_bool(item, "found", step->found);
    fa_json_add_bool(item, "taken", step->taken);
    fa_json_add_text(item, "why", step->why);
    if (step->found)
        fa_json_add(item, "answer", cli_json_answer(&step->answer));
    fa_json_push(w->steps, item);
    return 0;
}

static int show_why(fa_tuner *tuner, const cli_options *options)
{
    fa_request request = cli_request(options);
    fa_problem bucket;
    fa_gpu gpu;
    fa_diag diag = {{0}};
    why w = {.tuner = tuner, .steps = options->json ? cJSON_CreateArray() : NULL};
    fa_bucket(&options->problem, &bucket);
    int rc = fa_why(tuner, &request, why_step, &w, &gpu, &diag), status;
    if (rc != 0) {
        status = cli_fail(rc, options, &diag);
        cJSON_Delete(w.steps);
    } else if (options->json) {
        cJSON *document = cJSON_CreateObject();
        fa_json_add_text(document, "fa_tune", fa_version());
        fa_json_add(document, "problem", fa_problem_to_json(&options->problem));
        fa_json_add(document, "bucket", fa_problem_to_json(&bucket));
        fa_json_add(document, "gpu", fa_gpu_to_json(&gpu));
        fa_json_add(document, "steps", w.steps);
        fa_json_add_text(document, "store", fa_store_location(tuner));
        status = cli_json_write(document);
    } else {
        fa_buf out = {0};
        cli_text_heading(&out, &options->problem, &gpu);
        if (!fa_problem_equal(&bucket, &options->problem)) {
            fa_buf_text(&out, "bucket ");
            cli_text_problem(&out, &bucket);
            fa_buf_text(&out, "\n");
        }
        fa_buf_text(&out, w.text.data != NULL ? w.text.data : "");
        out.failed = out.failed || w.text.failed;
        status = cli_write(&out);
        fa_buf_free(&out);
    }
    fa_buf_free(&w.text);
    return status;
}

/* show FILE.fab: checks a bundle and lists it. */
static int show_bundle(const cli_options *options)
{
    cli_items items = {.gpu = options->gpu};
    fa_bundle_info info;
    fa_diag diag = {{0}};
    int rc = fa_bundle_inspect(options->operand[0], cli_items_take, &items, &info, &diag);
    int status = rc != 0 ? cli_fail(rc, options, &diag)
                         : cli_items_print(&items, options->operand[0], &info, false, options);
    cli_items_free(&items);
    return status;
}

int cli_show(const cli_options *options)
{
    if (options->operands > 0)
        return show_bundle(options);
    winners list = {.gpu = options->gpu};
    cli_progress progress;
    fa_tuner *tuner;
    fa_diag diag = {{0}};
    cli_progress_init(&progress, options);
    int status = cli_open_to_read(options, &progress, &tuner);
    if (status != 0)
        return status;
    if (options->why) {
        int told = show_why(tuner, options);
        fa_close(&tuner);
        return told;
    }
    list.file = fa_store_file(tuner);
    list.waiting_json = cJSON_CreateArray();
    int rc = fa_list_winners(tuner, keep_answer, &list, &diag);
    if (rc == 0)
        rc = fa_list_waiting(tuner, keep_waiting, &list, &diag);
    if (list.failed)
        rc = fa_fail(&diag, FA_ENOMEM, "out of memory after %zu winners", list.count);
    if (list.count > 1)
        qsort(list.answer, list.count, sizeof *list.answer, compare_answers);
    if (rc != 0)
        status = cli_fail(rc, options, &diag);
    else if (list.count == 0 && cli_check_gpu(options) != 0)
        status = 2; /* a name that nobody knows is a mistake, not an empty list */
    else if (options->json)
        status = print_json(&list, tuner);
    else
        status = print_text(&list, tuner);
    free(list.answer);
    fa_buf_free(&list.waiting);
    cJSON_Delete(list.waiting_json);
    fa_close(&tuner);
    return status;
}
