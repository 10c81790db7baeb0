/* SPDX-License-Identifier: Apache-2.0
 *
 * Baselines: what others' kernels take. Lines of them may be anybody's.
 */
#include "lines.h"

#include "catalogue.h"
#include "json_struct.h"
#include "problem.h"
#include "session.h"
#include "store.h"

#include "error.h"
#include "json.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- a baseline as JSON ---------------------------------------------------------------------*/
static void baseline_gpu(const char *name, char ret_name[64])
{
    fa_gpu gpu;
    if (fa_catalogue_find(name, &gpu, NULL) == 0)
        name = gpu.name;
    snprintf(ret_name, 64, "%s", name);
}

static int read_any_problem(const cJSON *json, void *ret_problem, fa_diag *diag)
{
    if (json == NULL)
        return fa_fail(diag, FA_EINVAL, "\"problem\" is missing");
    return fa_problem_from_json(json, true, "*", ret_problem, diag);
}

#define ROW(kind, name, member, ...) FA_MEMBER(name, kind, fa_baseline, member, __VA_ARGS__),
static const fa_member baseline_members[] = {
    FA_BASELINE_FIELDS(ROW)
        FA_MEMBER("problem", OTHER, fa_baseline, problem, .read = read_any_problem),
    {.key = NULL},
};
#undef ROW

int fa_baseline_from_json(const cJSON *json, fa_baseline *ret_baseline, fa_diag *diag)
{
    fa_baseline baseline = {.unix_time = (int64_t)time(NULL)};
    bool dry_run = false; /* lines that show the form alone say so, and are no evidence */
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "must be a JSON object");
    int rc = fa_json_bool(json, "dry_run", &dry_run, "baseline", diag);
    if (rc == 0 && dry_run)
        rc = fa_fail(diag, FA_EINVAL, "its time is made up (\"dry_run\"), not measured");
    if ((rc != 0 && rc != FA_ENOTFOUND) ||
        (rc = fa_struct_from_json(json, baseline_members, &baseline, "baseline", diag)) != 0 ||
        (rc = fa_baseline_check(&baseline, diag)) != 0)
        return rc;
    *ret_baseline = baseline;
    baseline_gpu(baseline.gpu_name, ret_baseline->gpu_name);
    return 0;
}

/* ---- lists ----------------------------------------------------------------------------------*/
int fa_list_baselines(fa_tuner *tuner, fa_baseline **ret_baselines, size_t *ret_count,
                      fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, ret_baselines != NULL && ret_count != NULL,
                                 "ret_baselines or ret_count", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_baselines(tuner->store, ret_baselines, ret_count, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

bool fa_baseline_concerns(const fa_baseline *baseline, const fa_answer *answer)
{
    char here[sizeof baseline->gpu_name];
    if (!fa_problem_same_work(&answer->problem, &baseline->problem))
        return false;
    baseline_gpu(answer->gpu.name, here);
    return strcmp(baseline->gpu_name, here) == 0;
}
