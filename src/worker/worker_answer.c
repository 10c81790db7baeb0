/* SPDX-License-Identifier: Apache-2.0
 *
 * What every answer of a worker begins with.
 */
#include "worker.h"
#include "json_make.h"

cJSON *fa_worker_answer(int rc, const fa_diag *diag)
{
    cJSON *json = cJSON_CreateObject();
    fa_json_add_number(json, "rc", rc);
    if (rc != 0)
        fa_json_add_text(json, "text", diag->text);
    return json;
}
