/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents for programs. Field names are a promise: they may be joined by others, never renamed.
 * A number that is not known is null, so that 0 always means 0.
 */
#include "error.h"
#include "problem.h"
#include "rows.h"
#include "text.h"

static void add_known(cJSON *object, const char *name, double value, bool known)
{
    if (known)
        cJSON_AddNumberToObject(object, name, value);
    else
        cJSON_AddNullToObject(object, name);
}

cJSON *cli_json_trial(const fa_trial *trial)
{
    cJSON *object = cJSON_CreateObject();
    if (object != NULL && !fa_trial_add_json(object, trial)) {
        cJSON_Delete(object);
        return NULL;
    }
    return object;
}

cJSON *cli_json_rows(const cli_row *rows, size_t count)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t r = 0; r < count && array != NULL; r++) {
        cJSON *object = cJSON_CreateObject();
        add_known(object, "rank", rows[r].rank, rows[r].rank > 0);
        if (object == NULL || !fa_trial_add_json(object, &rows[r].trial) ||
            !cJSON_AddItemToArray(array, object)) {
            cJSON_Delete(object);
            cJSON_Delete(array);
            return NULL;
        }
    }
    return array;
}

cJSON *cli_json_answer(const fa_answer *answer)
{
    const fa_trial *trial = &answer->trial;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "origin", fa_origin_name(answer->origin));
    cJSON_AddBoolToObject(object, "from_store", answer->from_store);
    cJSON_AddBoolToObject(object, "from_system", answer->from_system);
    if (object == NULL || !fa_trial_add_json(object, trial)) {
        cJSON_Delete(object);
        return NULL;
    }
    cJSON_AddStringToObject(object, "entry", answer->entry);
    cJSON_AddStringToObject(object, "cubin_key", answer->cubin_key);
    cJSON_AddStringToObject(object, "nvrtc", answer->nvrtc);
    add_known(object, "driver_version", answer->driver_version, answer->driver_version > 0);
    cJSON_AddNumberToObject(object, "unix_time", (double)answer->unix_time);
    add_known(object, "default_us", answer->default_us, answer->default_us > 0);
    add_known(object, "speedup_over_default",
              trial->median_us > 0 ? answer->default_us / trial->median_us : 0,
              answer->default_us > 0 && trial->median_us > 0);
    add_known(object, "tflops",
              trial->median_us > 0
                  ? fa_problem_nominal_flops(&answer->from_problem) / trial->median_us * 1e-6
                  : 0,
              trial->median_us > 0);
    cJSON_AddNumberToObject(object, "ties", answer->ties);
    cJSON_AddItemToObject(object, "from_problem", fa_problem_to_json(&answer->from_problem));
    if (answer->from_gpu[0] != 0)
        cJSON_AddStringToObject(object, "from_gpu", answer->from_gpu);
    else
        cJSON_AddNullToObject(object, "from_gpu");
    cJSON_AddStringToObject(object, "why", answer->why);
    cJSON_AddBoolToObject(object, "top_few", answer->top_few);
    bool promised = answer->promised_rank > 0;
    add_known(object, "promised_us", answer->promised_us, promised);
    add_known(object, "promised_measured_us", answer->promised_measured_us, promised);
    add_known(object, "promised_rank", answer->promised_rank, promised);
    return object;
}

int cli_json_write(cJSON *document)
{
    fa_buf out = {0};
    char *text = document != NULL ? cJSON_Print(document) : NULL;
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
