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
#include "job.h"

#include "buf.h"
#include "error.h"
#include "json.h"
#include "ncu.h"
#include "pool.h"
#include "problem.h"
#include "request.h"
#include "session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NEAR_PEAK = 60, SMS_IDLE = 70, TOLD = 4 }; /* percent, percent, tunables */
enum { MOST_RESIDENT = 32 };                      /* blocks that any SM holds */

/* A bound is the part of the GPU that is nearest to its limit: from 60% of its peak on, as Nsight Compute counts
 * ("speed of light"). Below that, warps wait, and what most of them wait for is the bound. SMs without work come before
 * both: shares of the peak are those of busy SMs.
 *
 * Which tunables move a bound is not written down anywhere: it is read off the space. A bound is moved by one property of a
 * config (its grid, its shared memory, …), and a tunable moves that if the property differs between the config and those
 * that differ from it in this tunable and in as few others as possible. Tunables that can change alone come first, and
 * of these the tunable with the largest effect on the measured time. */

/* ---- what moves a bound ---------------------------------------------------------------------*/
/* In the order in which one stands for another. */
enum property { BLOCKS, TILE, SMEM, THREADS, RESIDENT, PROPERTIES };
static const char *const property_words[] = {[BLOCKS] = "the number of blocks",
                                             [TILE] = "the tile of a block",
                                             [SMEM] = "the shared memory of a block",
                                             [THREADS] = "the threads of a block",
                                             [RESIDENT] = "the blocks that an SM holds"};

/* Whether the grid just fills the GPU. So does that of a persistent kernel, whose blocks take tile after tile: their
 * number says nothing of the tile. */
static bool fills_gpu(const fa_trial *trial, int32_t sms)
{
    const double blocks = (double)trial->grid[0] * trial->grid[1] * trial->grid[2];
    const int32_t most = trial->blocks_per_sm > 0 ? trial->blocks_per_sm : MOST_RESIDENT;
    return sms > 0 && fmod(blocks, sms) == 0 && blocks <= (double)sms * most;
}

/* Whether the property is known of both and differs. */
static bool differs(enum property property, int32_t sms, const fa_trial *a, const fa_trial *b)
{
    switch (property) {
    case TILE:
        return differs(BLOCKS, sms, a, b) && !fills_gpu(a, sms) && !fills_gpu(b, sms);
    case SMEM: /* by more than barriers take */
        return a->smem_bytes >= 0 && b->smem_bytes >= 0 &&
               64 * labs((long)a->smem_bytes - b->smem_bytes) > a->smem_bytes;
    case THREADS:
        return a->threads > 0 && b->threads > 0 && a->threads != b->threads;
    case RESIDENT:
        return a->blocks_per_sm > 0 && b->blocks_per_sm > 0 && a->blocks_per_sm != b->blocks_per_sm;
    default:
        return a->grid[0] > 0 && b->grid[0] > 0 && memcmp(a->grid, b->grid, sizeof a->grid) != 0;
    }
}

struct mover {
    const char *name;
    int others;    /* tunables that differ besides, in the nearest configs */
    bool moves;    /* in one of these the property differs */
    double effect; /* largest |ln(time ÷ time)| among these; 0: not timed */
};

/* Looks at one config that differs in the tunable and in `others` more. */
static void look_at(struct mover *mover, int others, enum property property, int32_t sms,
                    const fa_trial *self, const fa_trial *trial)
{
    if (others > mover->others)
        return;
    if (others < mover->others)
        *mover = (struct mover){.name = mover->name, .others = others};
    mover->moves = mover->moves || differs(property, sms, self, trial);
    if (self->median_us > 0 && trial->median_us > 0)
        mover->effect = fmax(mover->effect, fabs(log(trial->median_us / self->median_us)));
}

static int compare_movers(const void *a, const void *b)
{
    const struct mover *x = a, *y = b;
    if (x->moves != y->moves)
        return x->moves ? -1 : 1;
    if (x->others != y->others)
        return x->others < y->others ? -1 : 1;
    return x->effect != y->effect ? (x->effect < y->effect) - (x->effect > y->effect)
                                  : strcmp(x->name, y->name);
}

/* Sorts the config's tunables, those that move the property first. Returns how many do. */
static int find_movers(enum property property, const fa_profile *profile, const fa_trial *trials,
                       size_t count, struct mover mover[FA_MAX_TUNABLES])
{
    const fa_config *config = &profile->config;
    const fa_trial *self = NULL;
    int moving = 0;
    for (size_t i = 0; i < count && self == NULL; i++)
        self = fa_config_equal(&trials[i].config, config) ? &trials[i] : NULL;
    for (int t = 0; t < config->count; t++)
        mover[t] = (struct mover){.name = config->tunable[t].name, .others = FA_MAX_TUNABLES};
    for (size_t i = 0; i < count && self != NULL; i++) {
        bool other[FA_MAX_TUNABLES] = {false};
        int differ = 0;
        if (strcmp(trials[i].config.family, config->family) != 0 || trials[i].threads <= 0)
            continue; /* nothing is known of an impossible one */
        for (int t = 0; t < config->count; t++) {
            int32_t value;
            other[t] = !fa_config_get(&trials[i].config, config->tunable[t].name, &value) ||
                       value != config->tunable[t].value;
            differ += other[t];
        }
        for (int t = 0; t < config->count; t++)
            if (other[t])
                look_at(&mover[t], differ - 1, property, profile->gpu.sm_count, self, &trials[i]);
    }
    qsort(mover, (size_t)config->count, sizeof *mover, compare_movers);
    while (moving < config->count && mover[moving].moves)
        moving++;
    return moving;
}

/* Appends which tunables move the bound. Where none changes the property, the next one is tried: the tile of a
 * persistent kernel shows in its shared memory alone. */
static void put_movers(enum property wanted, const fa_profile *profile, const fa_trial *trials,
                       size_t count, fa_buf *out)
{
    struct mover mover[FA_MAX_TUNABLES];
    enum property found = wanted;
    int moving = 0;
    for (int p = wanted; p < PROPERTIES && moving == 0; p++) {
        found = (enum property)p;
        moving = find_movers(found, profile, trials, count, mover);
    }
    if (moving == 0) {
        fa_buf_text(out, "no tunable of its space moves that");
        return;
    }
    fa_buf_printf(out, "%s moves that: ",
                  wanted == TILE && found == SMEM ? "the size of its tiles in shared memory"
                                                  : property_words[found]);
    for (int i = 0; i < moving && i < TOLD; i++)
        fa_buf_printf(out, "%s%s", i == 0 ? "" : ", ", mover[i].name);
}

/* ---- what bounds a kernel -------------------------------------------------------------------*/
static const struct {
    fa_bound bound;
    size_t at; /* of the share of the peak */
    const char *words;
    enum property moved_by;
} units[] = {
    {FA_BOUND_TENSOR, offsetof(fa_profile_launch, tensor), "the tensor cores", TILE},
    {FA_BOUND_SPECIAL, offsetof(fa_profile_launch, special), "the special functions", TILE},
    {FA_BOUND_ISSUE, offsetof(fa_profile_launch, issue), "the issue slots", TILE},
    {FA_BOUND_SHARED, offsetof(fa_profile_launch, shared), "shared memory", SMEM},
    {FA_BOUND_L2, offsetof(fa_profile_launch, l2), "the L2 cache", TILE},
    {FA_BOUND_MEMORY, offsetof(fa_profile_launch, memory), "the GPU's memory", TILE},
};

static const struct {
    const char *reason, *words;
    enum property moved_by;
} waits[] = {
    {"long_scoreboard", "waits for global memory", SMEM},
    {"lg_throttle", "full queues to global memory", THREADS},
    {"tex_throttle", "full queues of texture loads", THREADS},
    {"short_scoreboard", "waits for shared memory", SMEM},
    {"mio_throttle", "full queues to shared memory", SMEM},
    {"barrier", "waits at barriers", THREADS},
    {"membar", "waits at memory fences", THREADS},
    {"sleeping", "warps that sleep", THREADS},
    {"gmma", "waits for wgmma", SMEM},
    {"math_pipe_throttle", "busy arithmetic pipes", THREADS},
    {"wait", "the latency of instructions", RESIDENT},
    {"drain", "stores at the end of blocks", BLOCKS},
    {"dispatch_stall", "the dispatcher", RESIDENT},
    {"no_instruction", "misses of the instruction cache", TILE},
    {"branch_resolving", "branches", RESIDENT},
    {"imc_miss", "misses of the constant cache", RESIDENT},
};

static double share_at(const fa_profile_launch *launch, size_t at)
{
    double share;
    memcpy(&share, (const char *)launch + at, sizeof share);
    return share;
}

/* Most of the warps wait for it; a warp that could run while another does waits for nothing. NULL: none was counted. */
static const fa_profile_stall *longest_wait(const fa_profile_launch *launch)
{
    for (int i = 0; i < FA_PROFILE_STALLS && launch->stall[i].reason[0] != 0; i++)
        if (strcmp(launch->stall[i].reason, "not_selected") != 0)
            return &launch->stall[i];
    return NULL;
}

/* Appends the wait and what it is known by. */
static enum property put_wait(const fa_profile_stall *stall, fa_buf *out)
{
    size_t i = 0;
    const size_t count = sizeof waits / sizeof *waits;
    while (i < count && strcmp(waits[i].reason, stall->reason) != 0)
        i++;
    fa_buf_printf(out, "%s (%s %.1f, and no unit reaches %d%% of its peak)",
                  i < count ? waits[i].words : "waits", stall->reason, stall->warps, NEAR_PEAK);
    return i < count ? waits[i].moved_by : RESIDENT;
}

/* Appends what bounds the launch. */
static fa_bound put_bound(const fa_profile_launch *launch, enum property *ret_moved_by, fa_buf *out)
{
    const fa_profile_stall *stall = longest_wait(launch);
    size_t most = 0;
    for (size_t i = 1; i < sizeof units / sizeof *units; i++)
        if (share_at(launch, units[i].at) > share_at(launch, units[most].at))
            most = i;
    double share = share_at(launch, units[most].at);
    *ret_moved_by = BLOCKS;
    if (launch->busy >= 0 && launch->busy < SMS_IDLE) {
        fa_buf_printf(out, "SMs without work (busy %.0f%% of the time)", launch->busy);
        return FA_BOUND_IDLE;
    }
    if (share >= NEAR_PEAK) {
        *ret_moved_by = units[most].moved_by;
        fa_buf_printf(out, "%s (%.0f%% of the peak", units[most].words, share);
        if (units[most].bound == FA_BOUND_SHARED && launch->conflicts >= 1)
            fa_buf_printf(out, ", %.0f%% of it bank conflicts", launch->conflicts);
        fa_buf_text(out, ")");
        return units[most].bound;
    }
    if (share < 0 || stall == NULL)
        return FA_BOUND_UNKNOWN;
    *ret_moved_by = put_wait(stall, out);
    return FA_BOUND_LATENCY;
}

void fa_bound_tell(fa_profile *profile, const fa_trial *trials, size_t count)
{
    enum property moved_by;
    fa_buf words = {0}, out = {0};
    double total_us = 0;
    profile->longest = 0;
    for (int i = 0; i < profile->launch_count; i++) {
        total_us += fmax(profile->launch[i].time_us, 0);
        if (profile->launch[i].time_us > profile->launch[profile->longest].time_us)
            profile->longest = i;
    }
    const fa_profile_launch *launch = &profile->launch[profile->longest];
    profile->bound = put_bound(launch, &moved_by, &words);
    fa_buf_text(&out, launch->kernel);
    if (profile->launch_count > 1 && launch->time_us > 0)
        fa_buf_printf(&out, ", %.0f%% of the time of %d launches,",
                      100 * launch->time_us / total_us, profile->launch_count);
    if (profile->bound == FA_BOUND_UNKNOWN) {
        fa_buf_text(&out,
                    " has a bound that cannot be told: this GPU or this ncu counts too little");
    } else {
        fa_buf_printf(&out, " is bound by %s; ", words.data != NULL ? words.data : "");
        put_movers(moved_by, profile, trials, count, &out);
    }
    snprintf(profile->sentence, sizeof profile->sentence, "%s", out.data != NULL ? out.data : "");
    fa_buf_free(&words);
    fa_buf_free(&out);
}

/* ---- the profiler ---------------------------------------------------------------------------*/
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
    pid_t pid = 0;
    int fd = -1;
    snprintf(ordinal, sizeof ordinal, "%d", run->target.gpu.ordinal);
    int rc = fa_process_start(run->ncu, (char *const *)(uintptr_t)arguments, NULL, &pid, &fd, diag);
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
