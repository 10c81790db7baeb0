/* SPDX-License-Identifier: Apache-2.0
 *
 * rm: forgets winners of the local store, and all that tuning stored with them. A dry run prints the same
 * lines and changes nothing.
 */
#include "error.h"
#include "json_struct.h"
#include "problem.h"
#include "run.h"
#include "text.h"
#include "trial.h"
#include "wording.h"

#include <stdlib.h>
#include <string.h>

/* ---- what went ------------------------------------------------------------------------------*/
static int compare_studies(const void *a, const void *b)
{
    const fa_study *x = a, *y = b;
    if (x->unix_time != y->unix_time)
        return x->unix_time > y->unix_time ? -1 : 1;
    return strcmp(x->gpu.name, y->gpu.name);
}

static void put_study(cli_table *table, const fa_study *study)
{
    if (study->unread != NULL)
        fa_buf_text(&table->cell, study->unread);
    else
        cli_text_problem(&table->cell, &study->problem);
    cli_cell_end(table);
    cli_cell(table, "%s", study->gpu.name);
    cli_cell(table, "%s",
             !study->has_winner      ? "no winner"
             : study->unread != NULL ? "not known here"
                                     : fa_name_of_origin(study->winner.origin));
    cli_cell(table, "%d", study->trials);
    fa_words_time(&table->cell, study->unix_time);
    cli_cell_end(table);
    cli_row_end(table);
}

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
                                              FA_MEMBER("freed", COUNT64, fa_forgotten, freed),
                                              {0}};

static void put_result(cli_run *run, const fa_study *study, size_t count,
                       const fa_forgotten *forgotten)
{
    cJSON *array = fa_json_add_array(run->document, "problems");
    fa_buf *out = &run->out;
    cli_table table = {0};
    for (size_t i = 0; i < count; i++) {
        if (array != NULL)
            fa_json_push(array, study_json(&study[i]));
        put_study(&table, &study[i]);
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

/* ---- the verb -------------------------------------------------------------------------------*/
int cli_rm(cli_run *run)
{
    const cli_options *options = run->options;
    fa_study *study = NULL;
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
    if (count > 0)
        qsort(study, count, sizeof *study, compare_studies);
    if (rc == 0)
        put_result(run, study, count, &forgotten);
    free(study);
    return rc;
}
