/* SPDX-License-Identifier: Apache-2.0
 *
 * tune: the winner for a problem on a GPU, found or made, and the configs it beat.
 * run: one config of a tuned problem, proved and launched, to be put behind a profiler.
 * What can be asked before a tune:
 * gpus: the GPU types that can be tuned for, whether or not one is here.
 * check: whether a kernel of one's own compiles and takes what its specification says, without a GPU and without a tune.
 * doctor: what would keep a tune from working here, each with what to do about it.
 *
 * stdout depends on the answer alone, never on whether anything is a terminal.
 */
#include "error.h"
#include "json.h"

#include "problem.h"
#include "run.h"
#include "text.h"
#include "words.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_TOP = 10, LEFT_TOLD = 8 };

/* Counts of the funnel, as the store recorded them. */
static void print_funnel(const fa_answer *answer, const cli_progress *progress, fa_buf *out)
{
    const bool searched = answer->strategy[0] != 0, timed = answer->proved + answer->measured > 0;
    char number[FA_COMMAS_MAX];
    if (answer->space == 0)
        return;
    fa_buf_printf(out, "space %s → %s %d", fa_commas(answer->space, number),
                  searched ? "tried" : "budget", answer->in_budget);
    if (searched)
        fa_buf_printf(out, " (%s)", answer->strategy);
    fa_buf_printf(out, " → compiled %d", answer->compiled);
    if (!answer->from_store && progress->last.compile_workers > 0)
        fa_buf_printf(out, " in %.1f s (%d worker%s)", progress->tune_s,
                      progress->last.compile_workers,
                      progress->last.compile_workers == 1 ? "" : "s");
    fa_buf_printf(out, " → clean %d", answer->clean);
    if (timed)
        fa_buf_printf(out, " → proved %d → measured %d", answer->proved, answer->measured);
    else
        fa_buf_text(out, answer->trial.predicted_us > 0 ? " → ranked by model" : " → unranked");
    if (answer->failed > 0)
        fa_buf_printf(out, " (%d failed)", answer->failed);
    fa_buf_text(out, "\n");
}

/* Whether the model took other configs for as fast as the winner. */
static bool is_tied(const fa_answer *answer)
{
    return answer->origin == FA_ORIGIN_PREDICTED && answer->ties > 0;
}

/* Another problem's time is an estimate for this one, and makes neither a rate nor a ratio. */
static void print_times(const fa_answer *answer, fa_buf *out)
{
    const double us = answer->trial.median_us;
    const bool own = answer->origin != FA_ORIGIN_NEAREST;
    if (!(us > 0))
        return;
    fa_buf_text(out, ": ");
    (own ? fa_words_us : fa_words_about)(out, us);
    if (own) {
        const double rate = fa_problem_work(&answer->problem, "flops") / us * 1e-6;
        const int digits = rate < 0.995 ? 2 : rate < 9.95 ? 1 : 0;
        fa_buf_text(out, ", "); /* 467, 9.9, 0.57, 0.002 */
        fa_buf_printf(out, rate < 0.0995 ? "%.*g TFLOP/s" : "%.*f TFLOP/s",
                      rate < 0.0995 ? 1 : digits, rate);
    }
    if (own && answer->default_us > 0) {
        fa_buf_printf(out, ", %.2f× as fast as the default config (", answer->default_us / us);
        fa_words_us(out, answer->default_us);
        fa_buf_text(out, ")");
    }
}

/* "winner #1, measured: 23.7 µs": what was chosen, how that is known, and what would know more. */
static void print_winner(const fa_answer *answer, int32_t rank, fa_buf *out)
{
    const fa_origin origin = answer->origin;
    const bool unranked = origin == FA_ORIGIN_UNRANKED;
    const bool guessed =
        unranked || origin == FA_ORIGIN_PREDICTED || origin == FA_ORIGIN_TRANSFERRED;
    if (unranked)
        fa_buf_text(out, "unranked: no model tells these kernels apart");
    else if (rank > 0 && !is_tied(answer) &&
             answer->trial.median_us + answer->trial.predicted_us > 0)
        fa_buf_printf(out, "winner #%d, ", rank);
    else
        fa_buf_text(out, "winner, ");
    if (!unranked)
        cli_text_origin(out, answer);
    if (answer->from_gpu[0] != 0)
        fa_buf_printf(out, "; it won on %s", answer->from_gpu);
    if (fa_problem_has_no_answer(&answer->problem))
        fa_buf_text(out, ", not checked: the kernel has no reference; all configs agree");
    print_times(answer, out);
    if (answer->ties > 0)
        fa_buf_printf(out, "; ties: %d", answer->ties);
    if (answer->ties_differ > 0)
        fa_buf_printf(out, ", %d of them in other bits", answer->ties_differ);
    fa_buf_text(out, guessed && answer->gpu.present
                         ? ". Proved, not timed: without --effort configs are timed.\n"
                     : guessed ? ". The first tune on a machine with that GPU measures.\n"
                     : answer->shortlist_only
                         ? ". A race of the top few: without --effort all that may win is timed.\n"
                         : ".\n");
}

/* Where it is kept, and what shows more. */
static void print_place(const fa_answer *answer, const fa_tuner *tuner, fa_buf *out)
{
    const char *server = fa_server_location(tuner); /* its store has the other configs */
    fa_buf_text(out, answer->from_store ? "found in " : "kept in ");
    if (answer->from_system)
        fa_buf_text(out, "a system bundle");
    else
        cli_text_path(out, server[0] != 0 ? server : fa_store_location(tuner));
    if (answer->from_store && answer->unix_time > 0) {
        fa_buf_text(out, ", made ");
        fa_words_time(out, answer->unix_time);
    }
    if (answer->space > 0 && server[0] == 0 && answer->origin != FA_ORIGIN_NEAREST)
        fa_buf_text(out, " · `fa-tune explain` with the same options shows every config");
    fa_buf_text(out, "\n");
}

static void print_text(cli_run *run, const fa_answer *answer, const cli_rows *rows, int32_t rank)
{
    const fa_problem *asked = &run->options->request.problem;
    const bool other = !fa_problem_equal(asked, &answer->problem);
    fa_buf *out = &run->out;
    cli_text_heading(out, asked, &answer->gpu);
    if (other || !fa_problem_equal(&answer->problem, &answer->from_problem)) {
        fa_buf_text(out, "its kernel is that of ");
        cli_text_problem(out, &answer->from_problem);
        fa_buf_printf(out, " (%s)\n",
                      !other                       ? answer->why
                      : fa_problem_is_empty(asked) ? "it has no batch or no query"
                                                   : "these fields say what its mask says");
    }
    print_funnel(answer, &run->progress, out);
    cli_print_ranking(rows, rows->count, answer->default_us, out);
    print_winner(answer, rank, out);
    print_place(answer, run->tuner, out);
}

static void print_json(cli_run *run, const fa_answer *answer, const cli_rows *rows, int32_t rank)
{
    const char *server = fa_server_location(run->tuner);
    const fa_progress *last = &run->progress.last;
    cJSON *document = run->document;
    fa_json_add(document, "problem", fa_problem_to_json(&answer->problem));
    fa_json_add(document, "gpu", fa_gpu_to_json(&answer->gpu));
    cJSON *json = cli_json_answer(answer),
          *funnel = cJSON_Duplicate(fa_json_member(json, "funnel"), true);
    fa_json_add_bool(json, "proved",
                     answer->driver_version != 0 && !fa_problem_has_no_answer(&answer->problem));
    fa_json_add_known(json, "rank", rank,
                      rank > 0 && answer->origin != FA_ORIGIN_UNRANKED && !is_tied(answer));
    fa_json_add(document, "answer", json);
    fa_json_add_number(funnel, "resumed", answer->from_store ? 0 : last->resumed);
    fa_json_add_number(funnel, "seconds", answer->from_store ? 0 : last->elapsed_s);
    fa_json_add(document, "funnel", funnel);
    fa_json_add(document, "ranking", cli_json_rows(rows, rows->count));
    fa_json_add(document, "server",
                server[0] != 0 ? cJSON_CreateString(server) : cJSON_CreateNull());
}

static int stopped(const cli_progress *progress)
{
    int32_t kept = cli_progress_done(&progress->last);
    if (progress->stage == FA_STAGE_WAIT)
        fputs("fa-tune: stopped waiting; the other process continues its tune\n", stderr);
    else
        fprintf(stderr, "fa-tune: stopped; %d config%s %s kept, the same command continues\n", kept,
                kept == 1 ? "" : "s", kept == 1 ? "is" : "are");
    return 128 + cli_interrupted();
}

/* A failure of the tune itself; what ended in an earlier run was not tried in this one. */
static int failed(cli_run *run, int rc)
{
    int status = cli_fail(run, rc);
    int32_t earlier = run->progress.last.resumed;
    if (rc == FA_ENOKERNEL && run->progress.last.space > 0)
        cli_tell("`fa-tune explain` says where each ended");
    if (rc == FA_ENOKERNEL && earlier > 0)
        cli_tell("%d of them ended in an earlier run: --effort patient tries %s again", earlier,
                 earlier == 1 ? "it" : "them");
    return status;
}

int cli_tune(cli_run *run)
{
    const cli_options *options = run->options;
    const size_t most = options->top > 0 ? (size_t)options->top : DEFAULT_TOP;
    cli_progress *progress = &run->progress;
    fa_request request = options->request;
    fa_answer answer = {.size = sizeof answer};
    FA_ENDS(fa_free_at) fa_study_trial *ranked = NULL;
    cli_rows rows = {.count = 0};
    request.progress = cli_progress_event;
    request.context = progress;
    request.ret_ranking = &ranked;
    request.ret_ranked = &rows.count;
    int rc = fa_tune(run->tuner, &request, &answer, &run->diag), status = 0;
    fa_study_trial only = {.rank = 1, .trial = answer.trial};
    rows.row = ranked;
    rows.tied = is_tied(&answer) ? answer.ties + 1 : 0;
    rows.elsewhere = answer.origin == FA_ORIGIN_NEAREST;
    cli_progress_end(progress);
    if (rc == FA_ECANCELED && cli_interrupted() != 0)
        return stopped(progress); /* before there was a row */
    if (answer.entry[0] == 0)
        return failed(run, rc);
    if (rows.count == 0) { /* of a service, or the ranking could not be read */
        rows.row = &only;
        rows.count = 1;
    }
    int32_t rank = 0; /* of the answer's config, where it is among them */
    for (size_t i = 0; i < rows.count && rank == 0; i++)
        if (fa_config_equal(&rows.row[i].trial.config, &answer.trial.config))
            rank = rows.row[i].rank;
    rows.count = rows.count < most ? rows.count : most;
    (options->json ? print_json : print_text)(run, &answer, &rows, rank);
    status = cli_print(run);
    return status != 0 ? status : rc;
}

/* ---- run ------------------------------------------------------------------------------------*/
int cli_run_config(cli_run *run)
{
    const cli_options *options = run->options;
    const int32_t rank = options->launch.config, launches = options->launch.count;
    fa_request request = options->request;
    fa_trial trial;
    request.progress = cli_progress_event;
    request.context = &run->progress;
    FA_OR_RETURN(fa_run_config(run->tuner, &request, rank, launches, &trial, &run->diag));
    fa_json_add(run->document, "problem", fa_problem_to_json(&options->request.problem));
    fa_json_add_number(run->document, "rank", rank);
    fa_json_add_number(run->document, "launches", launches);
    fa_json_add(run->document, "config", fa_config_to_json(&trial.config));
    fa_buf_printf(&run->out, "#%d ", rank);
    cli_text_config(&run->out, &trial.config);
    fa_buf_printf(&run->out, "\nproved, and launched %d time%s\n", launches,
                  launches == 1 ? "" : "s");
    return 0;
}

/* ---- gpus -----------------------------------------------------------------------------------*/
int cli_gpus(cli_run *run)
{
    cJSON *array = fa_json_add_array(run->document, "gpus");
    const char *asked = run->options->request.gpu, *refused;
    cli_table table = {0};
    fa_gpu gpu;
    for (int32_t i = 0; fa_gpu_type(i, &gpu, &refused) == 0; i++) {
        if (asked != NULL && !cli_gpu_is(asked, gpu.name) && strcasestr(gpu.name, asked) == NULL)
            continue;
        cJSON *item = fa_gpu_to_json(&gpu);
        fa_json_add(item, "refused",
                    refused != NULL ? cJSON_CreateString(refused) : cJSON_CreateNull());
        fa_json_push(array, item);
        cli_cell(&table, "%s", gpu.name);
        cli_cell(&table, "sm_%d", gpu.sm);
        cli_cell(&table, "%d", gpu.sm_count);
        fa_words_grouped(&table.cell, gpu.smem_per_block);
        cli_cell_end(&table);
        cli_cell(&table, "%lld", (long long)(gpu.l2_bytes >> 20));
        cli_cell(&table, "%.0f", gpu.bandwidth_gbs);
        cli_cell(&table, "%.0f", gpu.tensor_tflops);
        cli_cell(&table, "%s", refused != NULL ? refused : "");
        cli_row_end(&table);
    }
    cli_table_put(&table, "GPU|arch|>SMs|>shared B|>L2 MiB|>GB/s|>TFLOP/s|?", &run->out);
    fa_buf_text(&run->out, "shared B: dynamic shared memory of one block. TFLOP/s: dense fp16 with "
                           "fp32 sums.\n");
    return 0;
}

/* ---- check ----------------------------------------------------------------------------------*/
struct checked {
    int faults;
    cli_table table;
    cJSON *kernels;
    fa_buf *logs;
};

static void put_kernel(struct checked *checked, const fa_checked_kernel *kernel)
{
    const int32_t numbers[] = {kernel->registers, kernel->spill_bytes, kernel->smem_bytes,
                               kernel->parameter_bytes};
    static const char *const names[] = {"registers", "spill_bytes", "smem_bytes",
                                        "parameter_bytes"};
    const bool compiled = kernel->registers > 0;
    cJSON *item = cJSON_CreateObject();
    fa_json_add_text(item, "entry", kernel->entry);
    fa_json_add_bool(item, "answer", kernel->answer);
    cli_cell(&checked->table, "%s", kernel->entry);
    for (int i = 0; i < 4; i++) {
        fa_json_add(item, names[i], compiled ? cJSON_CreateNumber(numbers[i]) : cJSON_CreateNull());
        if (compiled)
            fa_words_grouped(&checked->table.cell, numbers[i]);
        cli_cell_end(&checked->table);
    }
    cli_cell(&checked->table, "%s", kernel->fault[0] != 0 ? kernel->fault : "right");
    cli_row_end(&checked->table);
    fa_json_add_text(item, "fault", kernel->fault);
    fa_json_add_text(item, "log", kernel->log);
    fa_json_push(checked->kernels, item);
    if (kernel->log[0] != 0 && kernel->fault[0] != 0) { /* with every line of the compiler */
        fa_buf_printf(checked->logs, "\n%s:\n", kernel->entry);
        for (const char *line = kernel->log; *line != 0; line += strspn(line, "\n")) {
            char text[512];
            snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
            cli_text_safe(checked->logs, text);
            fa_buf_text(checked->logs, "\n");
            line += strcspn(line, "\n");
        }
    }
    checked->faults += kernel->fault[0] != 0;
}

/* What of the source NVRTC does not see, the first lines of it. */
static void put_left(fa_buf *out, cJSON *document, const char *left)
{
    cJSON *list = fa_json_add_array(document, "left_out");
    int told = 0;
    for (const char *line = left; *line != 0; line += strspn(line, "\n")) {
        char one[256];
        snprintf(one, sizeof one, "%.*s", (int)strcspn(line, "\n"), line);
        fa_json_push(list, cJSON_CreateString(one));
        if (told++ < LEFT_TOLD) {
            fa_buf_text(out, told == 1 ? "\nleft out for NVRTC: " : ", ");
            cli_text_safe(out, one);
        }
        line += strcspn(line, "\n");
    }
    if (told > LEFT_TOLD)
        fa_buf_printf(out, " and %d more", told - LEFT_TOLD);
    fa_buf_text(out, told > 0 ? "\n" : "");
}

/* Once the tuner is open: what it says of the store before that is of no use here. */
static void note(void *context, const char *sentence)
{
    cli_run *run = context;
    if (run->tuner != NULL)
        cli_progress_note(&run->progress, sentence);
}

int cli_check(cli_run *run)
{
    static const char absent[] = "A100"; /* where there is no GPU and none is named */
    fa_gpu gpu;
    FA_ENDS(fa_buf_free) fa_buf logs = {0};
    struct checked checked = {.kernels = fa_json_add_array(run->document, "kernels"),
                              .logs = &logs};
    fa_options library = cli_library_options(run->options);
    library.existing_store = true;
    library.log = note;
    library.log_context = run;
    FA_OR_RETURN(fa_open(&library, &run->tuner, &run->diag));
    fa_request request = run->options->request;
    if (request.gpu == NULL && fa_gpu_find(NULL, request.ordinal, &gpu, NULL) != 0)
        request.gpu = absent;
    FA_ENDS(fa_free_at) fa_checked_kernel *kernel = NULL;
    size_t count = 0;
    int rc = fa_check_kernels(run->tuner, &request, &kernel, &count, &gpu, &run->diag);
    for (size_t i = 0; i < count; i++)
        put_kernel(&checked, &kernel[i]);
    put_left(&logs, run->document, count > 0 ? kernel[0].left_out : "");
    if (rc == 0) {
        cli_text_heading(&run->out, &run->options->request.problem, &gpu);
        fa_json_add(run->document, "gpu", fa_gpu_to_json(&gpu));
        fa_json_add_number(run->document, "faults", checked.faults);
    }
    cli_table_put(&checked.table, "kernel|>regs|>spill B|>shared B|>parameters B|", &run->out);
    fa_buf_text(&run->out, logs.data != NULL ? logs.data : "");
    run->out.failed |= logs.failed;
    int status = rc == 0 ? cli_print(run) : 0;
    return rc != 0 ? rc : status != 0 ? status : checked.faults > 0;
}

/* ---- doctor ---------------------------------------------------------------------------------*/
static const char *const levels[] = {"ok", "warn", "fail"};

int cli_doctor(cli_run *run)
{
    int found[3] = {0}; /* by level */
    fa_buf *out = &run->out;
    cJSON *checks = fa_json_add_array(run->document, "checks");
    fa_options library = cli_library_options(run->options);
    FA_ENDS(fa_free_at) fa_check *all = NULL;
    size_t count = 0;
    FA_OR_RETURN(fa_doctor(&library, &all, &count, &run->diag));
    for (const fa_check *check = all; check < all + count; check++) {
        cJSON *item = cJSON_CreateObject();
        fa_json_add_text(item, "level", levels[check->level]);
        fa_json_add_text(item, "name", check->name);
        fa_json_add_text(item, "text", check->text);
        fa_json_add_text(item, "advice", check->advice);
        fa_json_push(checks, item);
        fa_buf_printf(out, "%-4s  %-9s  ", levels[check->level], check->name);
        cli_text_safe(out, check->text);
        if (check->advice[0] != 0)
            fa_buf_printf(out, "\n%17s→ ", "");
        cli_text_safe(out, check->advice);
        fa_buf_text(out, "\n");
        found[check->level]++;
    }
    for (int i = 0; i < 3; i++)
        fa_json_add_number(run->document, levels[i], found[i]);
    int warnings = found[FA_CHECK_WARN], failures = found[FA_CHECK_FAIL];
    fa_buf_printf(out, "%d ok, %d warning%s, %d failure%s\n", found[FA_CHECK_OK], warnings,
                  warnings == 1 ? "" : "s", failures, failures == 1 ? "" : "s");
    int status = cli_print(run);
    return status != 0 ? status : failures > 0;
}
