/* SPDX-License-Identifier: Apache-2.0
 *
 * Baselines: what others' kernels take. Lines of them may be anybody's.
 */
#include "baselines.h"

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

static const double longest_us = 1e12; /* eleven days */

/* ---- a baseline as JSON ---------------------------------------------------------------------*/
static bool is_printable(const char *text)
{
    for (; *text != 0; text++)
        if (*text < 0x20 || *text > 0x7e)
            return false;
    return true;
}

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
    return fa_problem_from_strict_json(json, FA_NEED_INTEGERS, "*", ret_problem, diag);
}

#define ROW(kind, name, member, ...) FA_MEMBER(name, kind, fa_baseline, member, __VA_ARGS__),
static const fa_member baseline_members[] = {
    FA_BASELINE_FIELDS(ROW)
        FA_MEMBER("problem", OTHER, fa_baseline, problem, .read = read_any_problem),
    {.key = NULL},
};
#undef ROW

static int check_baseline(const fa_baseline *baseline, fa_diag *diag)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
    double median = baseline->median_us, low = baseline->low_us, high = baseline->high_us;
    if (baseline->gpu_name[0] == 0 || !is_printable(baseline->gpu_name) ||
        !is_printable(baseline->source))
        return fa_fail(diag, FA_EINVAL,
                       "\"gpu\" and \"source\" take printable ASCII, and "
                       "\"gpu\" may not be empty");
    if (baseline->peer[0] == 0 || strspn(baseline->peer, letters) != strlen(baseline->peer))
        return fa_fail(diag, FA_EINVAL, "peer \"%s\": use letters, digits, '.', '_', '+' and '-'",
                       baseline->peer);
    if (!(median > 0 && median < longest_us))
        return fa_fail(diag, FA_EINVAL, "\"median_us\" is %g: it must be above 0 and below %g",
                       median, longest_us);
    if (!(low == 0 && high == 0) &&
        !(0 < low && low <= median && median <= high && high < longest_us))
        return fa_fail(diag, FA_EINVAL,
                       "the interval from %g to %g us does not hold the median %g: give both ends "
                       "or neither",
                       low, high, median);
    if (!(baseline->matmul_tflops >= 0 && baseline->matmul_tflops < 1e6))
        return fa_fail(diag, FA_EINVAL,
                       "\"matmul_tflops\" is %g: it must be at least 0 and below 1e6",
                       baseline->matmul_tflops);
    return 0;
}

/* Lines that show the form alone say so, and are no evidence. */
static int refuse_dry_run(const cJSON *json, fa_diag *diag)
{
    bool dry_run = false;
    int rc = fa_json_bool(json, "dry_run", &dry_run, "baseline", diag);
    if (rc == 0 && dry_run)
        return fa_fail(diag, FA_EINVAL, "its time is made up (\"dry_run\"), not measured");
    return rc == FA_ENOTFOUND ? 0 : rc;
}

int fa_baseline_from_json(const cJSON *json, fa_baseline *ret_baseline, fa_diag *diag)
{
    fa_baseline baseline = {.unix_time = (int64_t)time(NULL)};
    int rc;
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "must be a JSON object");
    if ((rc = refuse_dry_run(json, diag)) != 0 ||
        (rc = fa_struct_from_json(json, baseline_members, &baseline, "baseline", diag)) != 0 ||
        (rc = check_baseline(&baseline, diag)) != 0)
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
