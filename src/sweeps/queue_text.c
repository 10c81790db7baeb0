/* SPDX-License-Identifier: Apache-2.0
 *
 * The fleet's queue as JSON text.
 */
#include "fa_tune.h"

#include "error.h"
#include "json_make.h"
#include "problem.h"

#include <stdlib.h>

struct sweeps {
    cJSON *array;
    fa_diag *diag;
};

static int add_holding(void *context, const fa_queue_holding *holding)
{
    cJSON *object = cJSON_CreateObject();
    fa_json_add_number(object, "index", holding->index);
    fa_json_add(object, "problem", fa_problem_to_json(&holding->item.problem));
    fa_json_add_text(object, "gpu", holding->item.gpu);
    fa_json_add_number(object, "attempts", holding->item.attempts);
    fa_json_add_text(object, "stage", holding->stage == FA_WORK_MEASURE ? "measure" : "compile");
    fa_json_add_text(object, "holder", holding->holder);
    fa_json_add_number(object, "left_s", holding->left_s);
    return fa_json_push(context, object) ? 0 : FA_ENOMEM;
}

static int add_sweep(void *context, const fa_queue *queue)
{
    struct sweeps *sweeps = context;
    char *text = NULL;
    int rc = fa_sweep_write(&queue->sweep, &text, sweeps->diag);
    cJSON *object = rc == 0 ? cJSON_Parse(text) : NULL;
    free(text);
    fa_json_add_number(object, "pending", (double)queue->pending);
    fa_json_add_number(object, "running", (double)queue->running);
    fa_json_add_number(object, "expired", (double)queue->expired);
    fa_json_add_number(object, "compiled", (double)queue->compiled);
    fa_json_add_number(object, "refused", (double)queue->refused);
    fa_json_add_array(object, "held");
    return fa_json_push(sweeps->array, object) ? 0 : rc != 0 ? rc : FA_ENOMEM;
}

int fa_queue_write(fa_tuner *tuner, char **ret_text, fa_diag *diag)
{
    if (ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_text is NULL");
    cJSON *json = cJSON_CreateObject(), *object;
    struct sweeps sweeps = {fa_json_add_array(json, "sweeps"), diag};
    int rc = fa_list_queues(tuner, add_sweep, &sweeps, diag);
    cJSON_ArrayForEach (object, sweeps.array) {
        if (rc == 0)
            rc = fa_list_queue_holdings(
                tuner, cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "key")),
                add_holding, cJSON_GetObjectItemCaseSensitive(object, "held"), diag);
        if (rc == FA_ENOTFOUND) /* it has left the queue meanwhile */
            rc = 0;
    }
    char *text = rc == 0 && json != NULL ? fa_json_print(json) : NULL;
    cJSON_Delete(json);
    if (rc == FA_ENOMEM || (rc == 0 && text == NULL))
        return fa_fail(diag, FA_ENOMEM, "out of memory for a queue");
    *ret_text = rc == 0 ? text : *ret_text;
    return rc;
}
