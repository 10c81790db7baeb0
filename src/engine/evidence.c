/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the store's records and the answers that callers see.
 */
#include "evidence.h"

#include "store.h"

#include "error.h"
#include "json.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The funnel of an answer, by the names that its evidence uses. */
#define FUNNEL(X) X(space) X(in_budget) X(compiled) X(clean) X(proved) X(measured) X(failed) X(ties)

char *fa_records_evidence(const fa_answer *answer)
{
    cJSON *json = cJSON_CreateObject();
#define ADD(field) cJSON_AddNumberToObject(json, #field, answer->field);
    FUNNEL(ADD)
#undef ADD
    cJSON_AddNumberToObject(json, "default_us", answer->default_us);
    cJSON_AddNumberToObject(json, "tune_s", answer->tune_s);
    if (answer->top_few)
        cJSON_AddBoolToObject(json, "top_few", true);
    if (answer->from_gpu[0] != 0)
        cJSON_AddStringToObject(json, "from_gpu", answer->from_gpu);
    if (answer->promised_rank > 0) {
        cJSON_AddNumberToObject(json, "promised_us", answer->promised_us);
        cJSON_AddNumberToObject(json, "promised_measured_us", answer->promised_measured_us);
        cJSON_AddNumberToObject(json, "promised_rank", answer->promised_rank);
    }
    cJSON_AddStringToObject(json, "uuid", answer->gpu.uuid);
    cJSON *gpu = fa_gpu_to_json(&answer->gpu);
    cJSON_AddItemToObject(json, "gpu", gpu);
    char *text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return text;
}

static void read_evidence(const char *text, fa_answer *answer)
{
    cJSON *json = NULL;
    if (text == NULL || fa_json_parse(text, strlen(text), "evidence", &json, NULL) != 0)
        return;
    int64_t value;
#define READ(field)                                                             \
    if (fa_json_int(json, #field, 0, INT32_MAX, &value, "evidence", NULL) == 0) \
        answer->field = (int32_t)value;
    FUNNEL(READ)
#undef READ
    fa_json_number(json, "default_us", &answer->default_us, "evidence", NULL);
    fa_json_number(json, "tune_s", &answer->tune_s, "evidence", NULL);
    fa_json_bool(json, "top_few", &answer->top_few, "evidence", NULL);
    fa_json_copy(json, "from_gpu", answer->from_gpu, sizeof answer->from_gpu, "evidence", NULL);
    fa_json_number(json, "promised_us", &answer->promised_us, "evidence", NULL);
    fa_json_number(json, "promised_measured_us", &answer->promised_measured_us, "evidence", NULL);
    if (fa_json_int(json, "promised_rank", 0, INT32_MAX, &value, "evidence", NULL) == 0)
        answer->promised_rank = (int32_t)value;
    fa_gpu_from_json(cJSON_GetObjectItemCaseSensitive(json, "gpu"), &answer->gpu, NULL);
    cJSON_Delete(json);
}

char *fa_records_environment(const fa_gpu *gpu, int driver_version, const char *nvrtc)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "gpu", gpu->name);
    cJSON_AddStringToObject(json, "uuid", gpu->uuid);
    cJSON_AddNumberToObject(json, "driver", driver_version);
    cJSON_AddStringToObject(json, "nvrtc", nvrtc);
    cJSON_AddStringToObject(json, "library", FA_TUNE_VERSION);
    cJSON_AddStringToObject(json, "host", host);
    char *text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return text;
}

bool fa_records_tools(const char *environment, int32_t *ret_driver, char *ret_nvrtc, size_t size)
{
    cJSON *json = NULL;
    int64_t driver = 0;
    if (fa_json_parse(environment, strlen(environment), "environment", &json, NULL) != 0)
        return false;
    bool known = fa_json_copy(json, "nvrtc", ret_nvrtc, size, "environment", NULL) == 0 &&
                 fa_json_int(json, "driver", 0, INT32_MAX, &driver, "environment", NULL) == 0;
    *ret_driver = (int32_t)driver;
    cJSON_Delete(json);
    return known;
}

bool fa_records_same_tools(const char *environment, int driver_version, const char *nvrtc)
{
    char made_by[256];
    int32_t driver;
    return fa_records_tools(environment, &driver, made_by, sizeof made_by) &&
           strcmp(made_by, nvrtc) == 0 && (driver_version == 0 || driver == driver_version);
}

void fa_records_answer(const fa_winner_record *winner, const fa_gpu *gpu, fa_answer *ret_answer)
{
    fa_answer answer = {.size = sizeof answer};
    answer.problem = answer.from_problem = winner->scope.problem;
    answer.origin = winner->origin;
    answer.trial = winner->trial;
    snprintf(answer.entry, sizeof answer.entry, "%s", winner->entry);
    snprintf(answer.cubin_key, sizeof answer.cubin_key, "%s", winner->cubin_key);
    snprintf(answer.nvrtc, sizeof answer.nvrtc, "%s", winner->nvrtc);
    answer.driver_version = winner->driver_version;
    answer.unix_time = winner->unix_time;
    read_evidence(winner->evidence, &answer);
    /* A bundle's evidence may tell of another GPU than the one that the winner is stored for. */
    char silicon[FA_SILICON_MAX];
    fa_gpu_silicon(&answer.gpu, silicon);
    if (strcmp(silicon, winner->scope.silicon) != 0)
        answer.gpu = (fa_gpu){0};
    char measured_on[sizeof answer.gpu.uuid];
    memcpy(measured_on, answer.gpu.uuid, sizeof measured_on);
    if (gpu != NULL)
        answer.gpu = *gpu;
    else if (answer.gpu.name[0] == 0)
        snprintf(answer.gpu.name, sizeof answer.gpu.name, "%s", winner->gpu_name);
    /* Another board of the same silicon: as good, and said so. */
    if (answer.origin == FA_ORIGIN_MEASURED && gpu != NULL && strcmp(measured_on, gpu->uuid) != 0)
        answer.origin = FA_ORIGIN_MEASURED_SAME_SILICON;
    answer.from_store = true;
    *ret_answer = answer;
}
