/* SPDX-License-Identifier: Apache-2.0
 *
 * What every answer of a worker begins with.
 */
#include "worker.h"

cJSON *fa_worker_answer(int rc, const fa_diag *diag)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "rc", rc);
    if (rc != 0)
        cJSON_AddStringToObject(json, "text", diag->text);
    return json;
}
