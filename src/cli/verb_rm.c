/* SPDX-License-Identifier: Apache-2.0
 *
 * rm: forgets winners of the local store, and all that tuning stored with them. A dry run prints the same
 * lines and changes nothing.
 */
#include "error.h"
#include "json.h"
#include "problem.h"
#include "run.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

/* ---- which ----------------------------------------------------------------------------------*/
static bool names_some(const cli_options *options)
{
    return options->given != 0 || options->given_also != 0 || options->operation != NULL ||
           options->specification != NULL || options->gpu != NULL;
}

/* Its templates are gone: only winners that cannot be read have this name. */
static bool names_unknown(const cli_options *options)
{
    return options->operation != NULL &&
           strcmp(options->operation, fa_operation_of(&options->problem)->name) != 0;
}

static int check_selection(const cli_options *options, fa_diag *diag)
{
    if (options->forget_all && names_some(options))
        return fa_fail(
            diag, FA_EINVAL,
            "--all forgets everything: leave out either --all or the options that select winners");
    if (!options->forget_all && !names_some(options))
        return fa_fail(
            diag, FA_EINVAL,
            "say what to forget: FILE.cu, --gpu, options of a problem or --all; --dry-run lists what "
            "would be deleted");
    if (names_unknown(options) && (options->given != 0 || options->given_also != 0))
        return fa_fail(
            diag, FA_EINVAL,
            "fields of the operation %s are not known here: give its --templates, or leave "
            "them out",
            options->operation);
    return 0;
}

/* The problem that cannot be read, as JSON; NULL where it is none. */
static cJSON *read_stored(const fa_study *study)
{
    cJSON *problem = NULL;
    return fa_json_parse(study->unread, strlen(study->unread), "problem", &problem, NULL) == 0
               ? problem
               : NULL;
}

/* What the library's callbacks are given: what is asked for, and what went. */
struct asked {
    const cli_options *options;
    cli_list list; /* of fa_study */
};

/* Of a problem that cannot be read nothing is known but its operation's name. */
static bool keeps_unread(const cli_options *options, const fa_study *study)
{
    cJSON *problem = read_stored(study);
    const char *operation = NULL;
    fa_json_text(problem, "operation", &operation, "problem", NULL);
    bool keeps = options->given == 0 && options->given_also == 0 &&
                 options->specification == NULL &&
                 (options->operation == NULL ||
                  (operation != NULL && strcmp(operation, options->operation) == 0)) &&
                 cli_gpu_is(options->gpu, study->gpu.name);
    cJSON_Delete(problem);
    return keeps;
}

static int is_asked_for(void *context, const fa_study *study)
{
    const cli_options *options = ((const struct asked *)context)->options;
    bool keeps = study->unread != NULL
                     ? keeps_unread(options, study)
                     : !names_unknown(options) &&
                           cli_filter_keeps(options, &study->problem, study->gpu.name);
    return keeps;
}

/* ---- what went ------------------------------------------------------------------------------*/
static int keep_study(void *context, const fa_study *study)
{
    struct asked *gone = context;
    fa_study copy = *study;
    if (study->unread != NULL && (copy.unread = strdup(study->unread)) == NULL) {
        gone->list.failed = true;
        return FA_ENOMEM;
    }
    int rc = cli_list_keep(&gone->list, &copy, sizeof copy);
    if (rc != 0)
        free((void *)(uintptr_t)copy.unread);
    return rc;
}

/* As lists have them: the newest first. */
static int compare_studies(const void *a, const void *b)
{
    const fa_study *x = a, *y = b;
    if (x->unix_time != y->unix_time)
        return x->unix_time > y->unix_time ? -1 : 1;
    return strcmp(x->gpu.name, y->gpu.name);
}

static void put_table(const struct asked *gone, fa_buf *out)
{
    cli_table table = {0};
    const fa_study *study = gone->list.item;
    for (size_t left = gone->list.count; left > 0; left--, study++) {
        if (study->unread != NULL)
            fa_buf_text(&table.cell, study->unread);
        else
            cli_text_problem(&table.cell, &study->problem);
        cli_cell_end(&table);
        cli_cell(&table, "%s", study->gpu.name);
        cli_cell(&table, "%s",
                 !study->has_winner      ? "no winner"
                 : study->unread != NULL ? "not known here"
                                         : fa_name_of_origin(study->winner.origin));
        cli_cell(&table, "%d", study->trials);
        cli_text_age(&table.cell, study->unix_time);
        cli_cell_end(&table);
        cli_cell(&table, "%s", study->stale ? "stale" : "");
        cli_row_end(&table);
    }
    cli_table_put(&table, "problem|GPU|origin|>trials|made|", out);
}

/* Who else may answer for what was forgotten here. */
static void put_others(const fa_tuner *tuner, const fa_forgotten *forgotten, fa_buf *out)
{
    const char *server = fa_server_location(tuner), *shared = fa_store_location(tuner);
    if (forgotten->elsewhere > 0) {
        cli_text_count(out, forgotten->elsewhere, "winner");
        fa_buf_text(
            out, " of these a system bundle or the fleet has, too: the next lookup finds that\n");
    }
    if (strcmp(shared, fa_store_file(tuner)) != 0) {
        cli_text_safe(out, shared);
        fa_buf_text(out, " is left as it is: winners are forgotten in the local store alone\n");
    }
    if (server[0] != 0) {
        cli_text_safe(out, server);
        fa_buf_text(out, " is not asked: a service with its own store keeps its winners\n");
    }
}

static void print_text(cli_run *run, const struct asked *gone, const fa_forgotten *forgotten)
{
    const struct {
        const char *before;
        int64_t count;
        const char *what;
    } counts[] = {
        {run->options->dry_run ? "would forget " : "forgot ", forgotten->winners, "winner"},
        {", ", forgotten->trials, "trial"},
        {" and ", forgotten->cubins, "cubin"},
        {", ", forgotten->bytes, "byte"}};
    fa_buf *out = &run->out;
    put_table(gone, out);
    if (gone->list.count == 0 && forgotten->winners == 0 && forgotten->bytes == 0) {
        fa_buf_text(out, "nothing to forget: no problem matches in ");
        cli_text_path(out, fa_store_file(run->tuner));
        fa_buf_text(out, "\n");
        cli_text_buckets(out, run->options);
    } else {
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            fa_buf_text(out, counts[i].before);
            cli_text_count(out, counts[i].count, counts[i].what);
        }
        fa_buf_text(out, ", in ");
        cli_text_path(out, fa_store_file(run->tuner));
        if (forgotten->freed > 0) {
            fa_buf_text(out, ", which is ");
            cli_text_count(out, forgotten->freed, "byte");
            fa_buf_text(out, " smaller");
        }
        fa_buf_text(out, "\n");
    }
    put_others(run->tuner, forgotten, out);
}

static void print_json(cli_run *run, const struct asked *gone, const fa_forgotten *forgotten)
{
    cJSON *document = run->document;
    fa_json_add_bool(document, "dry_run", run->options->dry_run);
    cJSON *counts = fa_json_add_object(document, "forgotten");
    fa_json_add_number(counts, "winners", (double)forgotten->winners);
    fa_json_add_number(counts, "trials", (double)forgotten->trials);
    fa_json_add_number(counts, "cubins", (double)forgotten->cubins);
    fa_json_add_number(counts, "bytes", (double)forgotten->bytes);
    fa_json_add_number(counts, "freed", (double)forgotten->freed);
    fa_json_add_number(counts, "elsewhere", (double)forgotten->elsewhere);
    cJSON *array = fa_json_add_array(document, "problems");
    const fa_study *study = gone->list.item;
    for (size_t left = gone->list.count; left > 0; left--, study++) {
        cJSON *item = cJSON_CreateObject();
        cJSON *stored = study->unread != NULL ? read_stored(study) : NULL;
        if (study->unread == NULL)
            fa_json_add(item, "problem", fa_problem_to_json(&study->problem));
        else if (stored != NULL)
            fa_json_add(item, "problem", stored);
        else
            fa_json_add_text(item, "problem", study->unread);
        fa_json_add_bool(item, "unread", study->unread != NULL);
        fa_json_add(item, "gpu", fa_gpu_to_json(&study->gpu));
        fa_json_add_number(item, "trials", study->trials);
        fa_json_add_number(item, "unix_time", (double)study->unix_time);
        fa_json_add_bool(item, "stale", study->stale);
        if (study->has_winner && study->unread == NULL)
            fa_json_add(item, "answer", cli_json_answer(&study->winner));
        else
            fa_json_add_null(item, "answer");
        fa_json_push(array, item);
    }
    fa_json_add_text(document, "store", fa_store_file(run->tuner));
}

/* ---- the verb -------------------------------------------------------------------------------*/
static int forget(cli_run *run, struct asked *gone)
{
    const cli_options *options = run->options;
    fa_forgotten forgotten = {0};
    fa_forget_options request = {.size = sizeof request,
                                 .dry_run = options->dry_run,
                                 .select = options->forget_all ? NULL : is_asked_for,
                                 .visit = keep_study,
                                 .context = gone};
    int rc = fa_forget(run->tuner, &request, &forgotten, &run->diag);
    rc = cli_list_end(run, &gone->list, rc);
    if (rc == 0 && gone->list.count == 0 && names_unknown(options) &&
        fa_operation_find(options->operation, &(const fa_operation *){NULL}, &run->diag) != 0)
        return cli_error(EXIT_USAGE, &run->diag);
    if (rc == 0 && gone->list.count == 0)
        rc = cli_check_gpu(run); /* a name that nobody knows is a mistake, not an empty choice */
    if (rc != 0)
        return rc;
    cli_list_sort(&gone->list, sizeof(fa_study), compare_studies);
    if (options->json)
        print_json(run, gone, &forgotten);
    else
        print_text(run, gone, &forgotten);
    return 0;
}

int cli_rm(cli_run *run)
{
    struct asked gone = {.options = run->options};
    int rc = check_selection(run->options, &run->diag);
    if (rc == 0)
        rc = cli_open(run, true);
    if (rc == 0)
        rc = forget(run, &gone);
    const fa_study *study = gone.list.item;
    for (size_t i = 0; i < gone.list.count; i++)
        free((void *)(uintptr_t)study[i].unread);
    cli_list_free(&gone.list);
    return rc;
}
