/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the store's records and the answers that callers see.
 */
#include "evidence.h"

#include "store.h"

#include "error.h"
#include "json_struct.h"
#include "json_make.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cJSON *write_uuid(const void *gpu)
{
    return cJSON_CreateString(((const fa_gpu *)gpu)->uuid);
}

static int pass_over(const cJSON *json, void *member, fa_diag *diag)
{
    (void)json, (void)member, (void)diag;
    return 0; /* it stands in the GPU */
}

static cJSON *write_gpu(const void *gpu)
{
    return fa_gpu_to_json(gpu);
}

static int read_gpu(const cJSON *json, void *ret_gpu, fa_diag *diag)
{
    return fa_gpu_from_json(json, ret_gpu, diag);
}

#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_answer, member, __VA_ARGS__)
#define LEFT_OUT .rules = FA_MEMBER_LEFT_OUT
static const fa_member evidence_members[] = {
    ROW(space, COUNT),
    ROW(in_budget, COUNT),
    ROW(compiled, COUNT),
    ROW(clean, COUNT),
    ROW(proved, COUNT),
    ROW(measured, COUNT),
    ROW(failed, COUNT),
    ROW(ties, COUNT),
    ROW(default_us, NUMBER),
    ROW(tune_s, NUMBER),
    ROW(top_few, FLAG, LEFT_OUT),
    ROW(from_gpu, TEXT, LEFT_OUT),
    ROW(promised_us, NUMBER, LEFT_OUT),
    ROW(promised_measured_us, NUMBER, LEFT_OUT),
    ROW(promised_rank, COUNT, LEFT_OUT),
    FA_MEMBER("uuid", OTHER, fa_answer, gpu, .write = write_uuid, .read = pass_over),
    ROW(gpu, OTHER, .write = write_gpu, .read = read_gpu),
    {.key = NULL},
};
#undef ROW

char *fa_records_evidence(const fa_answer *answer)
{
    cJSON *json = fa_struct_to_json(evidence_members, answer);
    char *text = json != NULL ? fa_json_print(json) : NULL;
    cJSON_Delete(json);
    return text;
}

/* Evidence may be somebody else's or an older version's: each member that can be read is taken. */
static int read_evidence(const char *text, fa_answer *answer, fa_diag *diag)
{
    cJSON *json;
    int rc = fa_json_parse_object(text, "evidence", &json, diag);
    if (rc != 0 || json == NULL)
        return rc;
    for (const fa_member *m = evidence_members; m->key != NULL; m++) {
        const fa_member one[] = {*m, {.key = NULL}};
        fa_struct_from_json(json, one, answer, "evidence", NULL);
    }
    cJSON_Delete(json);
    return 0;
}

char *fa_records_environment(const fa_gpu *gpu, int driver_version, const char *nvrtc)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    cJSON *json = cJSON_CreateObject();
    fa_json_add_text(json, "gpu", gpu->name);
    fa_json_add_text(json, "uuid", gpu->uuid);
    fa_json_add_number(json, "driver", driver_version);
    fa_json_add_text(json, "nvrtc", nvrtc);
    fa_json_add_text(json, "library", FA_TUNE_VERSION);
    fa_json_add_text(json, "host", host);
    char *text = fa_json_print(json);
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

int fa_records_answer(const fa_winner_record *winner, const fa_gpu *gpu, fa_answer *ret_answer,
                      fa_diag *diag)
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
    int rc = read_evidence(winner->evidence, &answer, diag);
    if (rc != 0)
        return rc;
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
    answer.from_store = answer.in_local = true;
    *ret_answer = answer;
    return 0;
}
