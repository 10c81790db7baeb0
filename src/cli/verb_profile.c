/* SPDX-License-Identifier: Apache-2.0
 *
 * profile: what bounds a config, by Nsight Compute's counters; one config, or two side by side; and the winners of a
 * report.
 */
#include "error.h"
#include "json.h"
#include "problem.h"
#include "trial.h"
#include "run.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

enum { BOTH = 2, STALLS_MAX = BOTH * FA_PROFILE_LAUNCHES * FA_PROFILE_STALLS };

struct profiles {
    fa_profile profile[BOTH];
    int count;
};

typedef void put_cell(fa_buf *cell, const fa_profile_launch *launch, const void *what);

/* A row: what it is about, and a cell for each launch of each profile. */
static void put_row(const struct profiles *all, const char *words, put_cell *put, const void *what,
                    cli_table *table)
{
    cli_cell(table, "%s", words);
    for (int p = 0; p < all->count; p++)
        for (int l = 0; l < all->profile[p].launch_count; l++) {
            put(&table->cell, &all->profile[p].launch[l], what);
            cli_cell_end(table);
        }
    cli_row_end(table);
}

static void put_time(fa_buf *cell, const fa_profile_launch *launch, const void *what)
{
    (void)what;
    if (launch->time_us > 0)
        cli_text_us(cell, launch->time_us);
    else
        fa_buf_text(cell, "-");
}

static void put_figure(fa_buf *cell, const fa_profile_launch *launch, const void *what)
{
    double percent = fa_profile_figure_of(launch, *(const int *)what);
    if (percent >= 0)
        fa_buf_printf(cell, "%.0f%%", percent);
    else
        fa_buf_text(cell, "-");
}

/* Empty where it is not among the launch's largest. */
static void put_stall(fa_buf *cell, const fa_profile_launch *launch, const void *what)
{
    for (int i = 0; i < FA_PROFILE_STALLS; i++)
        if (strcmp(launch->stall[i].reason, what) == 0)
            fa_buf_printf(cell, "%.1f", launch->stall[i].warps);
}

/* The reasons that any launch has among its largest, each once. */
static void put_stalls(const struct profiles *all, cli_table *table)
{
    const char *seen[STALLS_MAX];
    int count = 0;
    for (int i = 0; i < all->count * FA_PROFILE_LAUNCHES * FA_PROFILE_STALLS; i++) {
        const fa_profile *profile = &all->profile[i / (FA_PROFILE_LAUNCHES * FA_PROFILE_STALLS)];
        const int launch = i / FA_PROFILE_STALLS % FA_PROFILE_LAUNCHES;
        const char *reason = profile->launch[launch].stall[i % FA_PROFILE_STALLS].reason;
        char words[FA_NAME_MAX + 16];
        int known = 0;
        while (known < count && strcmp(seen[known], reason) != 0)
            known++;
        if (launch >= profile->launch_count || reason[0] == 0 || known < count)
            continue;
        seen[count++] = reason;
        snprintf(words, sizeof words, "stall %s", reason);
        put_row(all, words, put_stall, reason, table);
    }
}

static void put_table(const struct profiles *all, fa_buf *out)
{
    cli_table table = {0};
    fa_buf columns = {0};
    for (int p = 0; p < all->count; p++)
        for (int l = 0; l < all->profile[p].launch_count; l++) {
            fa_buf_printf(&columns, "|>#%d ", all->profile[p].rank);
            cli_text_safe(&columns, all->profile[p].launch[l].kernel);
        }
    put_row(all, "time", put_time, NULL, &table);
    for (int i = 0; i < FA_PROFILE_FIGURES; i++)
        put_row(all, fa_profile_figures[i].words, put_figure, &i, &table);
    put_stalls(all, &table);
    cli_table_put(&table, columns.data != NULL ? columns.data : "", out);
    out->failed |= columns.failed;
    fa_buf_free(&columns);
}

static void print_text(const cli_run *run, const struct profiles *all, fa_buf *out)
{
    cli_text_heading(out, &all->profile[0].problem, &all->profile[0].gpu);
    cli_text_buckets(out, run->options);
    for (int i = 0; i < all->count; i++) {
        fa_buf_printf(out, "#%d ", all->profile[i].rank);
        cli_text_config(out, &all->profile[i].config);
        fa_buf_text(out, "\n");
    }
    fa_buf_text(out, "\n");
    put_table(all, out);
    fa_buf_text(out, "%: of the peak. stall: how many warps of a scheduler wait for it at each instruction.\n");
    for (int i = 0; i < all->count; i++) {
        fa_buf_printf(out, "\n#%d: ", all->profile[i].rank);
        cli_text_safe(out, all->profile[i].sentence);
        fa_buf_text(out, ".\n");
    }
}

static void print_json(const cli_run *run, const struct profiles *all)
{
    fa_json_add(run->document, "problem", fa_problem_to_json(&all->profile[0].problem));
    fa_json_add(run->document, "gpu", fa_gpu_to_json(&all->profile[0].gpu));
    cJSON *profiles = fa_json_add_array(run->document, "profiles");
    for (int i = 0; i < all->count; i++) {
        cJSON *profile = fa_profile_to_json(&all->profile[i]);
        fa_json_add_number(profile, "rank", all->profile[i].rank);
        fa_json_push(profiles, profile);
    }
    fa_json_add_text(run->document, "store", fa_store_location(run->tuner));
}

/* An fa_request.progress. */
struct watching {
    cli_progress *progress;
    int done, all;
};

static int watch(void *context, const fa_progress *event)
{
    const struct watching *watching = context;
    (void)event; /* of the config's proof and of ncu: what counts here are configs */
    return cli_progress_count(watching->progress, "profiled", watching->done, watching->all);
}

int cli_profile(cli_run *run)
{
    const cli_options *options = run->options;
    const int32_t ranks[BOTH] = {options->profile.config > 0 ? options->profile.config : 1,
                                 options->profile.beside};
    struct profiles all = {.count = 0};
    int rc = cli_check_gpu(run);
    if (rc != 0)
        return rc;
    if (ranks[0] == ranks[1])
        return fa_fail(&run->diag, FA_EINVAL,
                       "--beside %d is the config of the first column: name another", ranks[1]);
    rc = cli_open(run, false);
    if (rc != 0)
        return rc;
    fa_request request = cli_request(options);
    struct watching watching = {&run->progress, 0, 1 + (options->profile.beside > 0)};
    request.progress = watch;
    request.context = &watching;
    cli_interrupt_install();
    for (int i = 0; i < BOTH && ranks[i] > 0 && rc == 0; i++) {
        all.profile[i].size = sizeof all.profile[i];
        rc = fa_profile_config(run->tuner, &request, ranks[i], &all.profile[i], &run->diag);
        all.count += rc == 0;
        watching.done = all.count;
    }
    if (rc == 0 && options->json)
        print_json(run, &all);
    else if (rc == 0)
        print_text(run, &all, &run->out);
    return rc;
}

/* ---- report --profile -----------------------------------------------------------------------*/
struct choosing {
    cli_run *run;
    cli_list studies; /* with a measured winner that is current, of those asked for */
};

static int choose_study(void *context, const fa_study *study)
{
    struct choosing *choosing = context;
    return study->has_winner && study->current && fa_origin_is_measured(study->winner.origin) &&
                   cli_filter_keeps(choosing->run->options, &study->problem, study->gpu.name)
               ? cli_list_keep(&choosing->studies, study, sizeof *study)
               : 0;
}

/* An fa_study_trial_visit: whether the first config, which is the winner, has a profile. */
static int look_at_winner(void *context, const fa_study_trial *trial)
{
    *(bool *)context = trial->profile != NULL;
    return 1; /* the first is enough */
}

/* The device here of the study's GPU type; -1: there is none. */
static int32_t device_of(const fa_study *study)
{
    fa_gpu gpu;
    for (int32_t i = 0; fa_gpu_device(i, &gpu, NULL) == 0; i++)
        if (cli_gpu_is(study->gpu.name, gpu.name))
            return i;
    return -1;
}

static int profile_winner(cli_run *run, const fa_study *study, struct watching *watching)
{
    bool known = false;
    fa_profile profile = {.size = sizeof profile};
    fa_request request = {.size = sizeof request,
                          .problem = study->problem,
                          .ordinal = device_of(study),
                          .exact = true, /* it is a bucket's already, or was meant so */
                          .progress = watch,
                          .context = watching};
    if (request.ordinal < 0)
        return 0; /* measured on another machine's GPU */
    int rc = fa_list_study_trials(run->tuner, study, look_at_winner, &known, &run->diag);
    if (rc < 0 || known)
        return rc < 0 ? rc : 0;
    rc = fa_profile_config(run->tuner, &request, 1, &profile, &run->diag);
    if (rc != FA_ENOKERNEL && rc != FA_EWORKER && rc != FA_ECORRUPT && rc != FA_ETIMEOUT)
        return rc;
    fa_buf note = {0}; /* of this config alone */
    cli_text_problem(&note, &study->problem);
    fa_buf_printf(&note, " has no profile: %s", run->diag.text);
    if (!note.failed)
        cli_progress_note(&run->progress, note.data);
    fa_buf_free(&note);
    return 0;
}

int cli_profile_winners(cli_run *run)
{
    struct choosing choosing = {.run = run};
    int rc = fa_list_studies(run->tuner, choose_study, &choosing, &run->diag);
    rc = cli_list_end(run, &choosing.studies, rc);
    struct watching watching = {&run->progress, 0, (int)choosing.studies.count};
    for (; rc == 0 && watching.done < watching.all; watching.done++)
        rc =
            profile_winner(run, (const fa_study *)choosing.studies.item + watching.done, &watching);
    cli_list_free(&choosing.studies);
    return rc;
}
