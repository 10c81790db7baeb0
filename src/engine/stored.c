/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners and cubins as lookups see them, from the local store and the sources behind it; what lies between a
 * stored winner and the answer that callers see, its evidence, as JSON; and what lists and reports read: the shared
 * store, and of the local one what the shared one lacks.
 *
 * Workload: a row or two for a lookup; thousands of scopes, named once each, for a list.
 */
#include "stored.h"

#include "buf.h"
#include "catalogue.h"
#include "error.h"
#include "hash.h"
#include "json.h"
#include "json_struct.h"
#include "problem.h"
#include "trial.h"
#include "source.h"
#include "store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- answers ---------------------------------------------------------------------------------*/
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
    ROW(shortlist_only, FLAG, LEFT_OUT),
    ROW(from_gpu, TEXT, LEFT_OUT),
    ROW(strategy, TEXT, LEFT_OUT),
    ROW(space_estimated, FLAG, LEFT_OUT),
    ROW(undated, FLAG, LEFT_OUT),
    ROW(contents, COUNT, LEFT_OUT),
    ROW(gpu, STRUCT, .members = fa_gpu_members),
    {.key = NULL},
};
#undef ROW

char *fa_records_environment(const fa_gpu *gpu, int driver_version, const char *nvrtc,
                             int32_t contents)
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
    if (contents != 0)
        fa_json_add_number(json, "contents", (double)contents);
    return fa_json_finish(json);
}

bool fa_records_tools(const char *environment, fa_tools *ret_tools)
{
    cJSON *json = NULL;
    *ret_tools = (fa_tools){0};
    if (fa_json_parse(environment, strlen(environment), "environment", &json, NULL) != 0)
        return false;
    bool known =
        fa_json_copy(json, "nvrtc", ret_tools->nvrtc, sizeof ret_tools->nvrtc, "environment",
                     NULL) == 0 &&
        fa_json_int(json, "driver", 0, INT32_MAX, &ret_tools->driver, "environment", NULL) == 0;
    fa_json_int(json, "contents", 0, INT32_MAX, &ret_tools->contents, "environment", NULL);
    cJSON_Delete(json);
    return known;
}

int fa_records_winner(const fa_answer *answer, const fa_scope *scope, fa_winner_record *ret_winner,
                      fa_diag *diag)
{
    *ret_winner =
        (fa_winner_record){.scope = *scope,
                           .origin = answer->origin,
                           .trial = answer->trial,
                           .driver_version = answer->driver_version,
                           .unix_time = answer->unix_time,
                           .evidence = fa_json_finish(fa_struct_to_json(evidence_members, answer))};
    memcpy(ret_winner->entry, answer->entry, sizeof ret_winner->entry);
    memcpy(ret_winner->cubin_key, answer->cubin_key, sizeof ret_winner->cubin_key);
    memcpy(ret_winner->nvrtc, answer->nvrtc, sizeof ret_winner->nvrtc);
    memcpy(ret_winner->gpu_name, answer->gpu.name, sizeof ret_winner->gpu_name);
    return ret_winner->evidence != NULL
               ? 0
               : fa_fail(diag, FA_ENOMEM, "out of memory for a winner's evidence");
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
    cJSON *json;
    int rc = fa_json_parse_object(winner->evidence, "evidence", &json, diag);
    if (rc != 0)
        return rc;
    /* May be somebody else's or an older version's: each member that can be read is taken. */
    if (json != NULL)
        fa_struct_take_json(json, evidence_members, &answer);
    cJSON_Delete(json);
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
    return 0;
}

/* ---- where winners and cubins come from -------------------------------------------------------*/
/* The user's own comes first, but a guess of his own gives way to what somebody has measured. */
int fa_records_lookup(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                      fa_cubin_record *ret_cubin, fa_diag *diag)
{
    fa_winner_record winner = {0};
    fa_cubin_record own = {0}, other = {0};
    fa_answer answer;
    int rc = fa_store_winner_get(tuner->store, &target->scope, &winner, &own, diag);
    if (rc != 0 && rc != FA_ENOTFOUND)
        return rc;
    const bool none = rc == FA_ENOTFOUND;
    bool taken = (none || fa_origin_trust(winner.origin) > fa_origin_trust(FA_ORIGIN_IMPORTED)) &&
                 tuner->system->find(tuner, target, &answer, &other) == 0 &&
                 (none || fa_origin_trust(answer.origin) < fa_origin_trust(winner.origin));
    rc = taken  ? 0
         : none ? fa_fail(diag, rc, "no winner is stored for this problem on %s", target->gpu.name)
                : fa_records_answer(&winner, &target->gpu, &answer, diag);
    if (rc == 0)
        *ret_answer = answer;
    fa_cubin_record *chosen = taken ? &other : &own;
    if (rc == 0 && ret_cubin != NULL) {
        *ret_cubin = *chosen;
        *chosen = (fa_cubin_record){0};
    }
    fa_winner_record_free(&winner);
    fa_cubin_record_free(&own);
    fa_cubin_record_free(&other);
    return rc;
}

static double apart(double a, double b)
{
    return a > 0 && b > 0 ? fabs(log2(a / b)) : 1; /* not known: as if it were the double */
}

/* How unlike two GPUs are: those of one major architecture come first. */
static double gpu_distance(const fa_gpu *a, const fa_gpu *b)
{
    return 1000 * (a->sm / 10 != b->sm / 10) + abs(a->sm - b->sm) / 10.0 +
           apart(a->sm_count, b->sm_count) + apart(a->smem_per_sm, b->smem_per_sm) +
           apart(a->bandwidth_gbs, b->bandwidth_gbs);
}

int fa_records_elsewhere(fa_tuner *tuner, const fa_target *target, fa_elsewhere *ret_elsewhere,
                         fa_diag *diag)
{
    const fa_scope *scope = &target->scope;
    fa_winner_record *rows = NULL;
    fa_list list = {0};
    fa_answer answer;
    double nearest = INFINITY;
    size_t count = 0;
    int rc = fa_store_winners(tuner->store, &scope->problem, &rows, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++)
        fa_winners_add(&list, &rows[i]);
    free(rows);
    if (rc == 0)
        tuner->system->list(tuner, &scope->problem, &list);
    rc = fa_winners_end(&list, rc, &rows, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const fa_scope *other = &rows[i].scope;
        if (!fa_origin_is_timed(rows[i].origin) || strcmp(other->silicon, scope->silicon) == 0 ||
            !fa_problem_equal(&other->problem, &scope->problem) ||
            strcmp(other->templates, scope->templates) != 0 ||
            strcmp(other->policy, scope->policy) != 0 ||
            (rc = fa_records_answer(&rows[i], NULL, &answer, diag)) != 0)
            continue;
        /* The GPU's facts as they were stored, else the catalogue's. */
        if (answer.gpu.sm <= 0 && fa_catalogue_find(rows[i].gpu_name, &answer.gpu, NULL) != 0)
            continue;
        const double distance = gpu_distance(&answer.gpu, &target->gpu);
        if (distance < nearest) {
            nearest = distance;
            ret_elsewhere->config = answer.trial.config;
            memcpy(ret_elsewhere->gpu, answer.gpu.name, sizeof ret_elsewhere->gpu);
        }
    }
    if (rc == 0)
        free(rows);
    return rc;
}

int fa_records_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin, fa_diag *diag)
{
    int rc = fa_store_cubin_get(tuner->store, key, ret_cubin, diag);
    return rc == FA_ENOTFOUND && tuner->system->cubin(tuner, key, ret_cubin) == 0 ? 0 : rc;
}

bool fa_records_has_cubin(fa_tuner *tuner, const char *key)
{
    fa_cubin_record cubin = {0};
    bool here = false;
    if (fa_store_cubin_exists(tuner->store, key, &here, NULL) != 0 || here)
        return here;
    here = tuner->system->cubin(tuner, key, &cubin) == 0;
    fa_cubin_record_free(&cubin);
    return here;
}
