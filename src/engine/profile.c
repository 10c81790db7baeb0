/* SPDX-License-Identifier: Apache-2.0
 *
 * A config under the profiler: proved in the measuring worker as any config, then once more in a worker that ncu has
 * started, which calls it once for ncu to count.
 *
 * Workload: one config, some seconds: ncu repeats each launch for every few counters.
 * Invariants: the program that runs is found by absolute folders alone; it runs in a process group of its own, which is
 * killed when its time is over or the caller cancels; what passes between the processes lies in a folder of this user,
 * which goes at the end.
 * Called with no lock held; takes the tuner's lock, and lets go of it while it waits.
 */
#include "bound.h"
#include "job.h"
#include "ncu.h"
#include "pool.h"
#include "request.h"
#include "session.h"

#include "error.h"
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    PATIENCE = 10, /* times the limit of a trial: ncu runs the launches again and again */
    ATTEMPTS = 4,  /* fewer metrics each time */
    LOG_MAX = 4 << 20,
    ANSWER_MAX = 64 << 10,
    FILE_MAX = 1024
};

/* ---- the config -----------------------------------------------------------------------------*/
/* The space, as fa_explain() tells it. */
struct space {
    fa_trial *trial;
    size_t count, capacity;
    int32_t rank; /* of the config that is wanted */
    size_t at;    /* where it is; count: it is not there */
    int32_t ranked;
};

static int add_trial(void *context, int32_t rank, const fa_trial *trial)
{
    struct space *space = context;
    if (fa_append(&space->trial, &space->count, &space->capacity, trial, sizeof *trial) != 0)
        return FA_ENOMEM;
    if (rank == space->rank)
        space->at = space->count - 1;
    space->ranked += rank > 0;
    return 0;
}

static int find_config(fa_tuner *tuner, const fa_request *request, struct space *space,
                       fa_diag *diag)
{
    fa_gpu gpu;
    space->at = SIZE_MAX;
    int rc = fa_explain(tuner, request, add_trial, space, &gpu, diag);
    if (rc == FA_ENOMEM)
        fa_fail(diag, rc, "out of memory after %zu configs", space->count);
    if (rc != 0)
        return rc;
    if (!gpu.present)
        return fa_fail(diag, FA_ENODEVICE, "a profile needs the GPU itself, and no %s is here",
                       gpu.name);
    if (space->ranked == 0)
        return fa_fail(diag, FA_ENOTFOUND,
                       "nothing is tuned yet for this problem on %s: tune it first", gpu.name);
    if (space->at == SIZE_MAX)
        return fa_fail(diag, FA_ENOTFOUND, "there is no config %d: `fa-tune explain` lists %d",
                       space->rank, space->ranked);
    return 0;
}

/* ---- files between the processes ------------------------------------------------------------*/
struct folder {
    char path[FILE_MAX], request[FILE_MAX + 16], answer[FILE_MAX + 16], log[FILE_MAX + 16];
};

static int make_folder(struct folder *folder, fa_diag *diag)
{
    const char *place = getenv("TMPDIR");
    if (place == NULL || place[0] != '/' || strlen(place) > FILE_MAX / 2)
        place = "/tmp";
    snprintf(folder->path, sizeof folder->path, "%s/fa-tune-profile-XXXXXX", place);
    if (mkdtemp(folder->path) == NULL) {
        folder->path[0] = 0;
        return fa_fail(diag, FA_EIO, "no folder can be made in %s for a profile: %m", place);
    }
    snprintf(folder->request, sizeof folder->request, "%s/request", folder->path);
    snprintf(folder->answer, sizeof folder->answer, "%s/answer", folder->path);
    snprintf(folder->log, sizeof folder->log, "%s/ncu.csv", folder->path);
    return 0;
}

static void remove_folder(const struct folder *folder)
{
    if (folder->path[0] == 0)
        return;
    unlink(folder->request);
    unlink(folder->answer);
    unlink(folder->log);
    rmdir(folder->path);
}

/* ---- ncu ------------------------------------------------------------------------------------*/
struct run {
    fa_tuner *tuner;
    const fa_request *request;
    fa_target target;
    char ncu[FA_NCU_PATH_MAX];
    struct folder folder;
    fa_progress progress;
};

/* This process's environment in the language of C, in which ncu writes numbers; caller frees the array. */
static char **plain_environment(void)
{
    static char plain[] = "LC_ALL=C";
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    char **made = calloc(count + 2, sizeof *made);
    if (made == NULL)
        return NULL;
    made[kept++] = plain;
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "LC_ALL=", 7) != 0)
            made[kept++] = environ[i];
    return made;
}

static bool is_canceled(struct run *run)
{
    const fa_request *request = run->request;
    run->progress.elapsed_s += 0.05;
    return request->progress != NULL && request->progress(request->context, &run->progress) != 0;
}

/* Waits for the program's end, without the tuner's lock. */
static int wait_for(struct run *run, pid_t pid, fa_diag *diag)
{
    const int timeout_ms = PATIENCE * run->tuner->trial_timeout_ms;
    const uint64_t until_ns = fa_clock_ns() + (uint64_t)timeout_ms * 1000000u;
    bool over = false, canceled = false, late = false;
    fa_tuner_pause(run->tuner);
    while (!over && !canceled && !late) {
        over = fa_process_await(pid);
        canceled = !over && is_canceled(run);
        late = !over && fa_clock_ns() > until_ns;
    }
    fa_process_finish(pid);
    fa_tuner_resume(run->tuner);
    if (canceled)
        return fa_fail(diag, FA_ECANCELED, "canceled while ncu ran");
    return late ? fa_fail(diag, FA_ETIMEOUT,
                          "ncu did not end within %d s, %d times the time limit of a trial",
                          timeout_ms / 1000, PATIENCE)
                : 0;
}

static int start_ncu(struct run *run, const char *metrics, fa_diag *diag)
{
    char ordinal[16];
    /* Without its config file: ncu looks for one in the current folder, which could name programs for it to run. */
    const char *arguments[] = {"ncu",
                               "--config-file",
                               "off",
                               "--csv",
                               "--page",
                               "raw",
                               "--print-units",
                               "base",
                               "--clock-control",
                               "none",
                               "--profile-from-start",
                               "off",
                               "--log-file",
                               run->folder.log,
                               "--metrics",
                               metrics,
                               run->tuner->worker_path,
                               "profile",
                               ordinal,
                               run->folder.request,
                               run->folder.answer,
                               NULL};
    char **environment = plain_environment();
    pid_t pid = 0;
    int fd = -1;
    snprintf(ordinal, sizeof ordinal, "%d", run->target.gpu.ordinal);
    int rc = environment == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory for ncu")
                                 : fa_process_start(run->ncu, (char *const *)(uintptr_t)arguments,
                                                    environment, &pid, &fd, diag);
    free(environment);
    if (rc != 0)
        return rc;
    rc = wait_for(run, pid, diag);
    close(fd);
    return rc;
}

/* Replaces the sentence by what the worker says of itself, where it came to that and failed. */
static void read_answer(const struct run *run, fa_diag *diag)
{
    fa_buf text = {0};
    cJSON *json = NULL;
    int64_t code = 0;
    const char *sentence;
    if (fa_buf_read_file(&text, run->folder.answer, ANSWER_MAX) == 0 &&
        fa_json_parse(text.data, text.size, "answer", &json, NULL) == 0 &&
        fa_json_int(json, "rc", INT32_MIN, 0, &code, "answer", NULL) == 0 && code != 0 &&
        fa_json_text(json, "text", &sentence, "answer", NULL) == 0)
        fa_fail(diag, FA_EWORKER, "the worker that ncu started failed: %s", sentence);
    cJSON_Delete(json);
    fa_buf_free(&text);
}

/* Once; metrics in *unknown are left out, and those that ncu refuses join them (FA_EVERSION). */
static int count_once(struct run *run, int launches, fa_ncu_metrics *unknown,
                      fa_profile_launch *ret_launch, fa_diag *diag)
{
    fa_buf metrics = {0}, log = {0};
    fa_ncu_metrics refused = 0;
    unlink(run->folder.answer);
    unlink(run->folder.log);
    fa_ncu_names(*unknown, &metrics);
    int rc = metrics.failed || metrics.data == NULL
                 ? fa_fail(diag, FA_ENOMEM, "no metrics are left, or no memory")
                 : start_ncu(run, metrics.data, diag);
    fa_buf_free(&metrics);
    if (rc != 0)
        return rc;
    rc = fa_buf_read_file(&log, run->folder.log, LOG_MAX);
    if (rc == FA_ENOMEM)
        return fa_fail(diag, rc, "out of memory for ncu's log");
    if (rc == FA_EINVAL)
        return fa_fail(diag, FA_ECORRUPT, "ncu's log is not a file of at most %d MiB",
                       LOG_MAX >> 20);
    const bool empty = log.size == 0;
    rc = fa_ncu_read(empty ? "" : log.data, log.size, launches, *unknown, ret_launch, &refused,
                     diag);
    if (rc == FA_EVERSION)
        *unknown |= refused;
    if (rc == FA_EWORKER)
        read_answer(run, diag); /* which is why nothing was counted */
    fa_buf_free(&log);
    return rc;
}

static int count_launches(struct run *run, int launches, fa_profile_launch *ret_launch,
                          fa_diag *diag)
{
    fa_ncu_metrics unknown = 0;
    int rc = FA_EVERSION;
    for (int i = 0; rc == FA_EVERSION && i < ATTEMPTS; i++)
        rc = count_once(run, launches, &unknown, ret_launch, diag);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------*/
/* Proves the config and writes what the second worker needs; sets the profile's kernels. */
static int prepare(struct run *run, fa_profile *profile, fa_diag *diag)
{
    fa_plan plan = {.count = 1, .prove_only = true, .verify = true};
    fa_request request = *run->request;
    fa_answer end = {.size = sizeof end};
    fa_job *job = NULL;
    fa_buf messages = {0};
    plan.item[0].config = profile->config;
    request.effort = FA_EFFORT_PREDICT;
    int rc;
    if ((rc = fa_job_new(run->tuner, &request, &job, diag)) != 0 ||
        (rc = fa_job_run(job, &run->target, &plan, &end, diag)) != 0 ||
        (rc = fa_job_write_verified(job, &messages, diag)) != 0)
        goto done;
    const fa_candidate *candidate = &job->space.candidate[0];
    const fa_family *family =
        fa_families_for(run->tuner, &run->target.problem)->family[candidate->family];
    profile->launch_count = candidate->launches.count;
    for (int i = 0; i < profile->launch_count; i++)
        snprintf(profile->launch[i].kernel, sizeof profile->launch[i].kernel, "%s",
                 fa_family_launch_entry(family, i));
    if (fa_replace_file(run->folder.request, messages.data, messages.size, 0600) != 0)
        rc = fa_fail(diag, FA_EIO, "cannot write %s", run->folder.request);
done:
    fa_job_free(&job);
    fa_buf_free(&messages);
    return rc;
}

static int profile_locked(struct run *run, fa_profile *profile, const struct space *space,
                          fa_diag *diag)
{
    fa_tuner *tuner = run->tuner;
    fa_lock *gpu_lock = NULL;
    fa_profile_launch launch[FA_PROFILE_LAUNCHES];
    const bool keeps = !fa_store_is_read_only(tuner->store);
    int rc;
    if ((rc = fa_target_resolve(tuner, run->request, &run->target, diag)) != 0 ||
        (keeps && (rc = fa_request_wait(tuner, run->request, run->target.gpu.uuid, &gpu_lock, NULL,
                                        diag)) != 0))
        return rc;
    rc = prepare(run, profile, diag);
    if (rc == 0)
        rc = count_launches(run, profile->launch_count, launch, diag);
    fa_lock_release(&gpu_lock);
    if (rc != 0)
        return rc;
    for (int i = 0; i < profile->launch_count; i++) {
        memcpy(launch[i].kernel, profile->launch[i].kernel, sizeof launch[i].kernel);
        profile->launch[i] = launch[i];
    }
    profile->problem = run->target.problem;
    profile->gpu = run->target.gpu;
    profile->driver_version = fa_driver_version(tuner->driver);
    profile->unix_time = (int64_t)time(NULL);
    fa_bound_tell(profile, space->trial, space->count);
    return keeps ? fa_store_profile_put(tuner->store, &run->target.scope, profile, diag) : 0;
}

int fa_profile_config(fa_tuner *tuner, const fa_request *request, int32_t rank,
                      fa_profile *ret_profile, fa_diag *diag)
{
    struct space space = {.rank = rank};
    struct run run = {
        .tuner = tuner,
        .progress = {.kind = FA_EVENT_PROGRESS, .stage = FA_STAGE_TUNE, .left_s = -1}};
    fa_profile profile = {.size = sizeof profile, .rank = rank};
    fa_request known;
    int rc = fa_tuner_check_with(tuner, ret_profile != NULL, "ret_profile", diag);
    if (rc != 0)
        return rc;
    if (ret_profile->size != sizeof *ret_profile || rank < 1)
        return fa_fail(diag, FA_EINVAL, "rank counts from 1, and ret_profile's size is its sizeof");
    if ((rc = fa_request_copy(request, &known, diag)) != 0)
        return rc;
    run.request = &known;
    if ((rc = find_config(tuner, &known, &space, diag)) != 0 ||
        (rc = fa_ncu_locate(run.ncu, diag)) != 0 || (rc = make_folder(&run.folder, diag)) != 0)
        goto done;
    profile.config = space.trial[space.at].config;
    pthread_mutex_lock(&tuner->work);
    rc = profile_locked(&run, &profile, &space, diag);
    pthread_mutex_unlock(&tuner->work);
    remove_folder(&run.folder);
    if (rc == 0)
        *ret_profile = profile;
done:
    free(space.trial);
    return rc;
}
