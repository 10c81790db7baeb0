/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the store's records and the answers that callers see.
 */
#include "evidence.h"

#include "store.h"

#include "error.h"
#include "json.h"
#include "json_struct.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What an answer tells besides its winner's row. */
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_answer, member, __VA_ARGS__)
#define COUNT(member) ROW(member, COUNT, .rules = FA_MEMBER_OPTIONAL)
#define TIME(member) ROW(member, NUMBER, .rules = FA_MEMBER_OPTIONAL)
static const fa_member evidence_members[] = {COUNT(space),
                                             COUNT(in_budget),
                                             COUNT(compiled),
                                             COUNT(clean),
                                             COUNT(proved),
                                             COUNT(measured),
                                             COUNT(failed),
                                             COUNT(ties),
                                             TIME(default_us),
                                             TIME(tune_s),
                                             ROW(from_gpu, TEXT, .rules = FA_MEMBER_LEFT_OUT),
                                             {NULL}};
static const fa_member race_members[] = {ROW(top_few, FLAG, .rules = FA_MEMBER_OPTIONAL), {NULL}};
static const fa_member promise_members[] = {
    TIME(promised_us), TIME(promised_measured_us), COUNT(promised_rank), {NULL}};
#undef TIME
#undef COUNT
#undef ROW

char *fa_records_evidence(const fa_answer *answer)
{
    cJSON *json = fa_struct_to_json(evidence_members, answer);
    bool whole =
        json != NULL && (!answer->top_few || fa_struct_add_json(json, race_members, answer)) &&
        (answer->promised_rank == 0 || fa_struct_add_json(json, promise_members, answer)) &&
        fa_json_add(json, "uuid", cJSON_CreateString(answer->gpu.uuid)) &&
        fa_json_add(json, "gpu", fa_gpu_to_json(&answer->gpu));
    char *text = whole ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    return text;
}

/* What is not understood of it is not known. */
static void read_evidence(const char *text, fa_answer *answer)
{
    cJSON *json = NULL;
    if (text == NULL || fa_json_parse(text, strlen(text), "evidence", &json, NULL) != 0)
        return;
    fa_struct_from_json(json, evidence_members, answer, "evidence", NULL);
    fa_struct_from_json(json, race_members, answer, "evidence", NULL);
    fa_struct_from_json(json, promise_members, answer, "evidence", NULL);
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
