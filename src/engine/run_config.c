/* SPDX-License-Identifier: Apache-2.0
 *
 * One config of a space, proved and launched again for a profiler that watches this process's children.
 *
 * Workload: one config, a second; a profiler may repeat each launch for every few counters.
 * Called with no lock held; takes the tuner's lock, and lets go of it while the job runs.
 */
#include "job.h"

#include "error.h"
#include "request.h"
#include "session.h"

enum { LAUNCHES_MAX = 1000000 };

struct chosen {
    fa_trial trial;
    int32_t rank, ranked;
    bool found;
};

static int choose(void *context, int32_t rank, const fa_trial *trial)
{
    struct chosen *chosen = context;
    chosen->ranked += rank > 0;
    if (rank == chosen->rank) {
        chosen->trial = *trial;
        chosen->found = true;
    }
    return 0;
}

static int find_config(fa_tuner *tuner, const fa_request *request, struct chosen *chosen,
                       fa_diag *diag)
{
    fa_gpu gpu;
    int rc = fa_explain(tuner, request, choose, chosen, &gpu, diag);
    if (rc != 0)
        return rc;
    if (!gpu.present)
        return fa_fail(diag, FA_ENODEVICE, "a kernel runs on the GPU itself, and no %s is here",
                       gpu.name);
    if (chosen->ranked == 0)
        return fa_fail(diag, FA_ENOTFOUND,
                       "nothing is tuned yet for this problem on %s: tune it first", gpu.name);
    return chosen->found
               ? 0
               : fa_fail(diag, FA_ENOTFOUND, "there is no config %d: `fa-tune explain` lists %d",
                         chosen->rank, chosen->ranked);
}

/* `work` is held. */
static int run(fa_tuner *tuner, const fa_request *request, const fa_config *config,
               int32_t launches, fa_answer *ret_end, fa_diag *diag)
{
    fa_plan plan = {.count = 1, .prove_only = true, .verify = true, .launches = launches};
    fa_case_data *data = NULL;
    fa_target target;
    fa_lock *gpu_lock = NULL;
    fa_job *job = NULL;
    plan.item[0].config = *config;
    int rc = fa_target_resolve(tuner, request, &target, diag);
    if (rc == 0)
        rc = fa_job_ask_caller(tuner, &target, true, &data, diag);
    plan.data = data;
    if (rc == 0 && !fa_store_is_read_only(tuner->store))
        rc = fa_request_wait(tuner, request, target.gpu.uuid, &gpu_lock, NULL, diag);
    if (rc == 0)
        rc = fa_job_new(tuner, request, target.gpu.sm, &job, diag);
    if (rc == 0)
        rc = fa_job_run(job, &target, &plan, ret_end, diag);
    fa_job_free(&job);
    fa_lock_release(&gpu_lock);
    fa_case_data_close(&data);
    return rc;
}

int fa_run_config(fa_tuner *tuner, const fa_request *request, int32_t rank, int32_t launches,
                  fa_trial *ret_trial, fa_diag *diag)
{
    struct chosen chosen = {.rank = rank};
    fa_answer end = {.size = sizeof end};
    fa_request known;
    int rc = fa_tuner_check(tuner, diag);
    if (rc == 0 && (rank < 1 || launches < 1 || launches > LAUNCHES_MAX))
        rc = fa_fail(diag, FA_EINVAL, "rank counts from 1, and launches are 1 to %d", LAUNCHES_MAX);
    if (rc != 0 || (rc = fa_request_copy(request, &known, diag)) != 0 ||
        (rc = find_config(tuner, &known, &chosen, diag)) != 0)
        return rc;
    known.effort = FA_EFFORT_PREDICT;
    pthread_mutex_lock(&tuner->work);
    rc = run(tuner, &known, &chosen.trial.config, launches, &end, diag);
    pthread_mutex_unlock(&tuner->work);
    if (rc == 0 && ret_trial != NULL)
        *ret_trial = end.trial;
    return rc;
}
