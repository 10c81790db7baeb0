/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents for programs. Field names are a promise: they may be joined by others, never renamed.
 * A number that is not known is null, so that 0 always means 0.
 */
#include "json.h"
#include "json_make.h"
#include "problem.h"
#include "rows.h"
#include "text.h"
#include "trial.h"

#include <stdlib.h>

cJSON *cli_json_rows(const cli_row *rows, size_t count)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t r = 0; r < count && array != NULL; r++) {
        cJSON *object = cJSON_CreateObject();
        fa_json_add_known(object, "rank", rows[r].rank,
                          rows[r].rank > 0 && cli_rows_ranked(&rows[r], 1));
        fa_trial_add_json(object, &rows[r].trial);
        fa_json_push(array, object);
    }
    return array;
}

cJSON *cli_json_answer(const fa_answer *answer)
{
    char *text = NULL;
    cJSON *object = fa_answer_write(answer, &text, NULL) == 0 ? cJSON_Parse(text) : NULL;
    free(text);
    return object;
}

int cli_json_write(cJSON *document)
{
    fa_buf out = {0};
    char *text = document != NULL ? fa_json_print_tidy(document) : NULL;
    if (text != NULL) {
        fa_buf_text(&out, text);
        fa_buf_text(&out, "\n");
    } else {
        out.failed = true;
    }
    cJSON_free(text);
    cJSON_Delete(document);
    int status = cli_write(&out);
    fa_buf_free(&out);
    return status;
}
