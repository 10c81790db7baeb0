/* SPDX-License-Identifier: Apache-2.0
 *
 * From the library's answers to results and exit statuses.
 *
 * Field names of documents are a promise: they may be joined by others, never renamed. A number that is
 * not known is null, so that 0 always means 0.
 */
#include "run.h"

#include "error.h"
#include "json.h"
#include "problem.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- opening --------------------------------------------------------------------------------*/
int cli_open(cli_run *run, bool to_read)
{
    fa_options library = cli_library_options(run->options);
    library.existing_store = to_read;
    library.log = cli_progress_note;
    library.log_context = &run->progress;
    return fa_open(&library, &run->tuner, &run->diag);
}

int cli_check_gpu(cli_run *run)
{
    fa_gpu gpu;
    return run->options->request.gpu == NULL ||
                   fa_gpu_find(run->options->request.gpu, 0, &gpu, &run->diag) == 0
               ? 0
               : FA_EINVAL;
}

/* ---- the result -----------------------------------------------------------------------------*/
int cli_json_write(cJSON *document)
{
    fa_buf out = {0};
    char *text = fa_json_finish(document);
    fa_buf_text(&out, text != NULL ? text : "");
    fa_buf_text(&out, "\n");
    out.failed |= text == NULL;
    free(text);
    int status = cli_write(&out);
    fa_buf_free(&out);
    return status;
}

int cli_print(cli_run *run)
{
    cJSON *document = run->document;
    if (run->tuner != NULL)
        fa_json_add_text(document, "store", fa_store_location(run->tuner));
    run->printed = true;
    run->document = NULL;
    return run->options->json ? cli_json_write(document) : cli_write(&run->out);
}

int cli_fail(cli_run *run, int rc)
{
    if (run->diag.text[0] == 0)
        fa_fail(&run->diag, rc, "%s", fa_strerror(rc));
    cli_error(0, &run->diag);
    if (rc == FA_ENOTFOUND && run->options->request.effort == FA_EFFORT_CACHED &&
        run->tuner != NULL)
        cli_tell("leave --effort cached out to tune for it");
    if (rc == FA_ECANCELED && cli_interrupted() != 0)
        return 128 + cli_interrupted();
    return rc == FA_EINVAL || rc == FA_EMANIFEST ? EXIT_USAGE : EXIT_FAILED;
}

/* ---- places ---------------------------------------------------------------------------------*/
void cli_text_store(cli_run *run, const char *before)
{
    fa_buf_text(&run->out, before);
    cli_text_path(&run->out, fa_store_location(run->tuner));
    fa_buf_text(&run->out, "\n");
}

/* ---- winners --------------------------------------------------------------------------------*/
bool cli_gpu_is(const char *asked, const char *name)
{
    fa_gpu one, other;
    if (asked == NULL)
        return true;
    return strcasecmp(fa_gpu_find(asked, 0, &one, NULL) == 0 ? one.name : asked,
                      fa_gpu_find(name, 0, &other, NULL) == 0 ? other.name : name) == 0;
}

bool cli_filter_keeps(const cli_options *options, const fa_problem *is, const char *gpu)
{
    const fa_problem *want = &options->request.problem, bucket = fa_problem_bucket(want);
    uint32_t given = cli_given(options);
    bool named = options->operation != NULL || options->specification != NULL;
    if ((given != 0 || named) && fa_operation_of(is) != fa_operation_of(want))
        return false;
    for (int i = 0; i < FA_PROBLEM_VALUES; i++)
        if ((given >> i & 1) && is->value[i] != want->value[i] && is->value[i] != bucket.value[i])
            return false;
    return cli_gpu_is(options->request.gpu, gpu);
}

int cli_answer_compare(const fa_answer *a, const fa_answer *b)
{
    int gpu = strcmp(a->gpu.name, b->gpu.name);
    return gpu != 0 ? gpu : fa_problem_compare(&a->problem, &b->problem);
}

cJSON *cli_json_of(int rc, char **text)
{
    cJSON *json = rc == 0 ? cJSON_Parse(*text) : NULL;
    free(*text);
    return json;
}

cJSON *cli_json_answer(const fa_answer *answer)
{
    char *text = NULL;
    return cli_json_of(fa_answer_write(answer, &text, NULL), &text);
}

cJSON *cli_json_winner(const fa_answer *answer)
{
    cJSON *object = cJSON_CreateObject();
    fa_json_add(object, "problem", fa_problem_to_json(&answer->problem));
    fa_json_add(object, "gpu", fa_gpu_to_json(&answer->gpu));
    fa_json_add(object, "answer", cli_json_answer(answer));
    return object;
}
