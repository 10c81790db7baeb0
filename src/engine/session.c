/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: options, the store, the templates. Cheap to open: no GPU, no NVRTC, no process. And what each request begins
 * with: checked and completed; its target, and configs of that; its wait for a lock; and which answers are good enough.
 */
#include "session.h"

#include "buf.h"
#include "catalogue.h"
#include "error.h"
#include "family.h"
#include "model.h"
#include "pool.h"
#include "problem.h"
#include "search.h"
#include "snippet.h"
#include "spec.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

/* Counts forks seen from inside the child, so that a check costs a load and no system call. */
static atomic_int forks;

static void after_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

int fa_tuner_check_with(const fa_tuner *tuner, bool given, const char *names, fa_diag *diag)
{
    FA_OR_RETURN(fa_tuner_check(tuner, diag));
    return fa_expect(given, names, diag);
}

int fa_tuner_check(const fa_tuner *tuner, fa_diag *diag)
{
    if (tuner == NULL)
        return fa_fail(diag, FA_EINVAL, "tuner is NULL: open one with fa_open");
    if (tuner->forks != atomic_load_explicit(&forks, memory_order_relaxed))
        return fa_fail(diag, FA_EFORKED,
                       "this tuner was opened before a fork: open one in the child, before CUDA");
    return 0;
}

void fa_note(fa_tuner *tuner, const char *format, ...)
{
    fa_diag text;
    char sentence[sizeof text.text];
    va_list args;
    if (tuner->options.log == NULL)
        return;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    fa_fail(&text, 0, "%s", sentence); /* escapes control bytes */
    tuner->options.log(tuner->options.log_context, text.text);
}

void fa_note_text(void *tuner, const char *sentence)
{
    fa_note(tuner, "%s", sentence);
}

int fa_tuner_driver(fa_tuner *tuner, fa_diag *diag)
{
    if (tuner->driver != NULL)
        return 0;
    int rc = fa_driver_open(&tuner->driver, diag);
    if (rc == 0)
        atomic_store_explicit(&tuner->launch_driver, tuner->driver, memory_order_release);
    return rc;
}

fa_failed *fa_tuner_failed(fa_tuner *tuner, const char *key, const char *silicon)
{
    for (int i = 0; tuner->failed != NULL && i < FA_FAILED_MAX; i++)
        if (strcmp(tuner->failed[i].key, key) == 0 &&
            strcmp(tuner->failed[i].silicon, silicon) == 0)
            return &tuner->failed[i];
    return NULL;
}

void fa_tuner_keep_failed(fa_tuner *tuner, const char *key, const char *silicon, const char *error)
{
    if (tuner->failed == NULL)
        tuner->failed = calloc(FA_FAILED_MAX, sizeof(*tuner->failed));
    if (tuner->failed == NULL)
        return;
    fa_failed *kept = &tuner->failed[tuner->failed_next++ % FA_FAILED_MAX];
    kept->hopeless = false;
    snprintf(kept->key, sizeof kept->key, "%s", key);
    snprintf(kept->silicon, sizeof kept->silicon, "%s", silicon);
    snprintf(kept->error, sizeof kept->error, "%s", error);
}

int fa_tuner_families(fa_tuner *tuner, fa_diag *diag)
{
    if (tuner->families.count != 0)
        return 0;
    return fa_families_load(tuner->templates, NULL, &tuner->families, diag);
}

const fa_templates *fa_templates_for(const fa_tuner *tuner, const fa_problem *problem)
{
    const fa_spec *spec = fa_operation_of(problem)->spec;
    return spec != NULL ? spec->templates : tuner->templates;
}

const fa_family_list *fa_families_for(const fa_tuner *tuner, const fa_problem *problem)
{
    const fa_spec *spec = fa_operation_of(problem)->spec;
    return spec != NULL ? &spec->families : &tuner->families;
}

fa_task fa_task_for(const fa_tuner *tuner, const fa_problem *problem, const fa_gpu *gpu)
{
    return (fa_task){fa_families_for(tuner, problem), problem, gpu};
}

int fa_tuner_enumerate(fa_tuner *tuner, const fa_problem *problem, const fa_gpu *gpu,
                       fa_space *ret_space, fa_diag *diag)
{
    FA_OR_RETURN(fa_tuner_families(tuner, diag));
    fa_task task = fa_task_for(tuner, problem, gpu);
    pthread_mutex_unlock(&tuner->work);
    int rc = fa_space_enumerate(&task, ret_space, diag);
    pthread_mutex_lock(&tuner->work);
    return rc;
}

/* ---- a config of a target, without a tune ----------------------------------------------------*/
int fa_render_candidate(const fa_tuner *tuner, const fa_task *task, const fa_candidate *candidate,
                        const char *nvrtc_identity, fa_compile_task *ret, fa_diag *diag)
{
    const fa_templates *templates = fa_templates_for(tuner, task->problem);
    const fa_family *family = candidate != NULL ? task->families->family[candidate->family] : NULL;
    fa_buf source = {0};
    char options[1024];
    FA_OR_RETURN(candidate != NULL ? fa_render(templates, task, candidate, &source, diag)
                                   : fa_render_reference(templates, task, &source, diag));
    *ret = (fa_compile_task){.name = candidate != NULL ? "candidate.cu" : "reference.cu",
                             .source = source.data}; /* the buffer's memory goes on as the source */
    fa_render_architecture(family, task->gpu, ret->architecture, sizeof ret->architecture);
    fa_nvrtc_options(ret->architecture, options, sizeof options);
    fa_render_key(templates, ret->source, options, ret->architecture, nvrtc_identity, ret->key);
    return 0;
}

int fa_target_candidate(fa_tuner *tuner, const fa_target *target, const fa_config *config,
                        fa_candidate *ret_candidate, fa_diag *diag)
{
    FA_OR_RETURN(fa_tuner_families(tuner, diag));
    fa_task task = fa_task_for(tuner, &target->asked, &target->gpu);
    return fa_space_one(&task, config, ret_candidate, diag);
}

bool fa_target_predict(fa_tuner *tuner, const fa_target *target, fa_trial *trial)
{
    fa_candidate candidate;
    if (fa_target_candidate(tuner, target, &trial->config, &candidate, NULL) != 0 ||
        candidate.trial.status != FA_STATUS_PENDING)
        return false;
    candidate.trial.registers = trial->registers;
    candidate.trial.static_smem_bytes = trial->static_smem_bytes;
    fa_model_predict(&candidate, &target->asked, &target->gpu, &candidate.trial);
    trial->predicted_us = candidate.trial.predicted_us;
    trial->blocks_per_sm = candidate.trial.blocks_per_sm;
    return true;
}

int fa_record_render(fa_tuner *tuner, const fa_answer *record, const char *nvrtc,
                     fa_candidate *ret_candidate, fa_compile_task *ret, fa_diag *diag)
{
    fa_task task = fa_task_for(tuner, &record->problem, &record->gpu);
    FA_OR_RETURN(fa_space_one(&task, &record->trial.config, ret_candidate, diag));
    if (ret_candidate->trial.status != FA_STATUS_PENDING)
        return fa_fail(diag, FA_ENOKERNEL, "%s", ret_candidate->trial.reason);
    return fa_render_candidate(tuner, &task, ret_candidate, nvrtc, ret, diag);
}

bool fa_record_holds(fa_tuner *tuner, const fa_answer *record)
{
    fa_candidate candidate;
    fa_compile_task task = {.source = NULL};
    bool same = fa_record_render(tuner, record, record->nvrtc, &candidate, &task, NULL) == 0 &&
                strcmp(task.key, record->cubin_key) == 0;
    free(task.source);
    return same;
}

/* ---- what options and environment say -------------------------------------------------------*/
static const char *option_or_environment(const char *option, const char *variable)
{
    if (option != NULL)
        return option;
    const char *value = getenv(variable);
    return value != NULL && *value != 0 ? value : NULL;
}

/* Cores by affinity, and no more than a container's quota pays for: 1 to FA_WORKERS_MAX. */
static int usable_cores(void)
{
    cpu_set_t set;
    FA_ENDS(fa_buf_free) fa_buf quota = {0};
    long long used, period;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    if (fa_buf_read_file(&quota, "/sys/fs/cgroup/cpu.max", 4096) == 0 &&
        sscanf(quota.data, "%lld %lld", &used, &period) == 2 && used > 0 && period > 0 &&
        (used + period - 1) / period < cores)
        cores = (int)((used + period - 1) / period);
    return cores < 1 ? 1 : cores > FA_WORKERS_MAX ? FA_WORKERS_MAX : cores;
}

static int copy_path(const char *path, char *ret, size_t size, const char *what, fa_diag *diag)
{
    if (strlen(path) >= size)
        return fa_fail(diag, FA_EINVAL, "the path of the %s is longer than %zu bytes", what,
                       size - 1);
    memcpy(ret, path, strlen(path) + 1);
    return 0;
}

int fa_options_copy(const fa_options *options, fa_options *ret_options, fa_diag *diag)
{
    *ret_options = (fa_options){0};
    return options == NULL ? 0
                           : fa_copy_sized(ret_options, sizeof *ret_options, options,
                                           "options.size is not sizeof(fa_options)", diag);
}

const char *fa_options_templates(const fa_options *options)
{
    return option_or_environment(options->templates, "FA_TUNE_TEMPLATES");
}

int fa_options_worker(const fa_options *options, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag)
{
    const char *worker = option_or_environment(options->worker, "FA_TUNE_WORKER");
    if (worker != NULL)
        return copy_path(worker, ret_path, FA_STORE_PATH_MAX, "worker", diag);
    fa_own_file("fa-tune-worker", ret_path, FA_STORE_PATH_MAX);
    return 0;
}

int fa_options_store(const fa_options *options, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag)
{
    return options->store != NULL
               ? copy_path(options->store, ret_path, FA_STORE_PATH_MAX, "store", diag)
               : fa_store_default_path("FA_TUNE_STORE", ret_path, diag);
}

/* ---- opening --------------------------------------------------------------------------------*/
static int open_store(fa_tuner *tuner, const char *path, bool existing, fa_diag *diag)
{
    fa_diag note = {{0}}, reason = {{0}};
    fa_store_mode mode = existing ? FA_STORE_EXISTING : FA_STORE_READ_WRITE;
    fa_store_spare spare = {.note = fa_note_text, .context = tuner};
    snprintf(tuner->store_path, sizeof tuner->store_path, "%s",
             fa_store_is_address(path) ? "on the server" : path);
    if (fa_store_is_address(path)) {
        FA_OR_RETURN(fa_store_default_path("FA_TUNE_LOCAL_STORE", tuner->spare_path, diag));
        spare.file = tuner->spare_path;
    }
    int rc = fa_store_open(path, mode, &spare, &tuner->store, &note, &reason);
    if (rc == FA_EREADONLY) {
        rc = fa_store_open(path, FA_STORE_READ_ONLY, &spare, &tuner->store, &note, diag);
        if (rc == 0)
            fa_note(tuner, "%s; using it read-only, nothing new is kept", reason.text);
        else if (rc == FA_ENOTFOUND) /* none is there, because none can be made there */
            rc = fa_fail(diag, FA_EREADONLY, "%s", reason.text);
    } else if (rc != 0) {
        fa_fail(diag, rc, "%s", reason.text);
    }
    if (note.text[0] != 0)
        fa_note(tuner, "%s", note.text);
    if (rc != 0)
        return rc;
    snprintf(tuner->store_path, sizeof tuner->store_path, "%s", fa_store_path(tuner->store));
    if (fa_store_is_absent(tuner->store))
        fa_note(tuner, "there is no store at %s yet", tuner->store_path);
    return 0;
}

static int set_up(fa_tuner *tuner, fa_sources_maker *make, fa_diag *diag)
{
    fa_options *options = &tuner->options;
    tuner->forks = atomic_load(&forks);
    if (options->compile_timeout_ms <= 0)
        options->compile_timeout_ms = FA_COMPILE_TIMEOUT_MS;
    if (options->trial_timeout_ms <= 0)
        options->trial_timeout_ms = FA_TRIAL_TIMEOUT_MS;
    if (options->compile_nice < 0 || options->compile_nice > 19)
        return fa_fail(diag, FA_EINVAL, "compile_nice is %d: use 0 to 19", options->compile_nice);
    if (options->memory < 0 || options->memory > FA_MEMORY_MAX)
        return fa_fail(diag, FA_EINVAL, "memory is %lld: use bytes, or 0 for half of what is free",
                       (long long)options->memory);
    if (options->compile_workers < 0 || options->compile_workers > FA_WORKERS_MAX)
        return fa_fail(diag, FA_EINVAL, "compile_workers is %d: use 1 to %d, or 0 for one per core",
                       options->compile_workers, FA_WORKERS_MAX);
    if (options->compile_workers == 0)
        options->compile_workers = usable_cores();
    char path[FA_STORE_PATH_MAX];
    FA_OR_RETURN(fa_options_worker(options, tuner->worker_path, diag));
    FA_OR_RETURN(fa_options_store(options, path, diag));
    FA_OR_RETURN(make(tuner, options, diag));
    int rc = fa_templates_open(fa_options_templates(options), &tuner->templates, diag);
    if (rc == 0)
        rc = open_store(tuner, path, options->existing_store, diag);
    /* A folder that is missing, or a path that is one, is a wrong argument where the caller gave it. */
    struct stat st;
    bool no_place =
        rc == FA_ESTORE && options->store != NULL &&
        (stat(path, &st) == 0 ? !S_ISREG(st.st_mode) : errno == ENOENT || errno == ENOTDIR);
    return no_place ? FA_EINVAL : rc;
}

int fa_session_open(const fa_options *options, fa_sources_maker *make, fa_tuner **ret_tuner,
                    fa_diag *diag)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    fa_options all;
    FA_OR_RETURN(fa_expect(ret_tuner != NULL, "ret_tuner", diag));
    FA_OR_RETURN(fa_options_copy(options, &all, diag));
    fa_tuner *tuner = calloc(1, sizeof *tuner);
    FA_OR_RETURN(fa_have(tuner != NULL, "a tuner", diag));
    pthread_once(&once, watch_forks);
    pthread_mutex_init(&tuner->work, NULL);
    pthread_mutex_init(&tuner->tuning, NULL);
    tuner->options = all;
    int rc = set_up(tuner, make, diag);
    tuner->options.store = tuner->options.templates = NULL;
    tuner->options.worker = tuner->options.server = NULL;
    if (rc != 0)
        fa_close(&tuner);
    else
        *ret_tuner = tuner;
    return rc;
}

void fa_tuner_let_go(fa_tuner *tuner, const char *name)
{
    for (fa_hold **at = &tuner->holds, *hold; (hold = *at) != NULL;) {
        if (name != NULL && strcmp(hold->name, name) != 0) {
            at = &hold->next;
            continue;
        }
        *at = hold->next;
        fa_lock_release(&hold->lock);
        free(hold);
    }
}

void fa_close(fa_tuner **tuner)
{
    if (tuner == NULL || *tuner == NULL)
        return;
    fa_tuner *t = *tuner;
    fa_kernel_table_free(&t->kernels);
    free(t->service);
    if (t->system != NULL)
        t->system->close(t->system);
    fa_tuner_let_go(t, NULL);
    fa_store_close(&t->store);
    fa_families_free(&t->families);
    fa_templates_close(&t->templates);
    free(t->failed);
    fa_driver_close(&t->driver);
    pthread_mutex_destroy(&t->work);
    pthread_mutex_destroy(&t->tuning);
    free(t);
    *tuner = NULL;
}

const char *fa_store_location(const fa_tuner *tuner)
{
    return tuner == NULL ? "" : fa_store_path(tuner->store);
}

void fa_tuner_ignore_system(fa_tuner *tuner, bool ignore)
{
    FA_HOLDS(&tuner->work);
    tuner->ignore_system = ignore;
}

int fa_copy_sized(void *ret, size_t size, const void *given, const char *why, fa_diag *diag)
{
    size_t given_size = given != NULL ? *(const size_t *)given : 0;
    memset(ret, 0, size);
    if (given_size < sizeof(size_t) || given_size > 4096)
        return fa_fail(diag, FA_EINVAL, "%s", why);
    memcpy(ret, given, given_size < size ? given_size : size);
    return 0;
}

int fa_request_copy(const fa_request *request, fa_request *ret_request, fa_diag *diag)
{
    FA_OR_RETURN(fa_copy_sized(ret_request, sizeof *ret_request, request,
                               "request.size is not sizeof(fa_request)", diag));
    if (ret_request->effort < FA_EFFORT_CACHED || ret_request->effort > FA_EFFORT_PATIENT)
        return fa_fail(diag, FA_EINVAL, "effort is %d: use FA_EFFORT_CACHED to FA_EFFORT_PATIENT",
                       (int)ret_request->effort);
    if (ret_request->memory < 0 || ret_request->memory > FA_MEMORY_MAX)
        return fa_fail(diag, FA_EINVAL, "memory is %lld: use bytes, or 0 for the tuner's",
                       (long long)ret_request->memory);
    return fa_search_check(&ret_request->strategy, ret_request->evaluations, ret_request->seconds,
                           diag);
}

int fa_request_take(const fa_tuner *tuner, bool given, const char *names, const fa_request *request,
                    fa_request *ret_request, fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, given, names, diag);
    return rc == 0 ? fa_request_copy(request, ret_request, diag) : rc;
}

/* ---- callbacks ------------------------------------------------------------------------------*/
/* A request's progress is called while locks are held that another tune needs. in_callback: this thread is in one. */
static _Thread_local bool in_callback __attribute__((tls_model("initial-exec")));

int fa_callback_check(fa_diag *diag)
{
    return !in_callback
               ? 0
               : fa_fail(diag, FA_EBUSY,
                         "progress called the library for something that waits for its own call: "
                         "nothing can be tuned or forgotten inside of it");
}

static bool report(const fa_request *request, const fa_progress *progress)
{
    in_callback = true;
    bool stop = request->progress(request->context, progress) != 0;
    in_callback = false;
    return stop;
}

bool fa_request_report(fa_tuner *tuner, const fa_request *request, const fa_progress *progress)
{
    if (request->progress == NULL)
        return false;
    pthread_mutex_unlock(&tuner->work);
    bool stop = report(request, progress);
    pthread_mutex_lock(&tuner->work);
    return stop;
}

/* ---- waiting --------------------------------------------------------------------------------*/
struct waiting {
    const fa_request *request;
    fa_progress progress;
};

/* Sleeps between two tries, `work` let go; 0, or why it gave up. */
static int nap(fa_tuner *tuner, struct waiting *waiting, int tries, const char *what, fa_diag *diag)
{
    bool gave_up = false;
    pthread_mutex_unlock(&tuner->work);
    for (int i = 0; i < tries && !gave_up; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        waiting->progress.elapsed_s += 0.02;
        gave_up =
            waiting->request->progress != NULL && report(waiting->request, &waiting->progress);
    }
    pthread_mutex_lock(&tuner->work);
    return gave_up ? fa_fail(diag, FA_ECANCELED, "canceled while %s", what) : 0;
}

int fa_tuner_need_server(fa_tuner *tuner, fa_diag *diag)
{
    return fa_store_server_is_gone(tuner->store)
               ? fa_fail(diag, FA_EIO, "the server of the store %s does not serve",
                         tuner->store_path)
               : 0;
}

bool fa_tuner_is_on_server(const fa_tuner *tuner)
{
    return fa_store_is_address(fa_store_path(tuner->store));
}

/* True while it may still come: this process would tune by itself what another one tunes. After that it is the store that
 * looks for the server, now and then. */
bool fa_tuner_awaits_server(fa_tuner *tuner)
{
    enum { AWAITED_S = 20 };
    const uint64_t until_ns = tuner->server_gone_ns + AWAITED_S * (uint64_t)1000000000;
    const bool over = tuner->server_gone_ns != 0 && fa_clock_ns() >= until_ns;
    if (over && (fa_store_is_lost(tuner->store) || !fa_tuner_is_on_server(tuner)))
        return false;
    if (over || !fa_store_server_restarts(tuner->store)) {
        tuner->server_gone_ns = 0;
        return false;
    }
    if (tuner->server_gone_ns == 0) {
        tuner->server_gone_ns = fa_clock_ns();
        if (fa_store_server_is_gone(tuner->store))
            fa_note(tuner, "the store's server does not answer: it is waited for, %d s at most",
                    AWAITED_S);
    }
    return true;
}

static const fa_progress begun = {.kind = FA_EVENT_PROGRESS, .stage = FA_STAGE_WAIT};

/* The first try is made with `work`: no tune of this process can end between a look and that. */
int fa_request_wait(fa_tuner *tuner, const fa_request *request, const char *name,
                    fa_lock **ret_lock, bool *ret_waited, fa_diag *diag)
{
    struct waiting waiting = {request, begun};
    const bool shared = strcmp(name, FA_TUNES_LOCK) == 0;
    const int tries = fa_tuner_is_on_server(tuner) ? 5 : 1;
    bool waited = false;
    int rc = fa_callback_check(diag), last = 0;
    while (rc == 0 &&
           (fa_tuner_awaits_server(tuner) ||
            (last = fa_store_lock(tuner->store, name, shared, ret_lock, diag)) == FA_EBUSY)) {
        waited = true;
        rc = nap(tuner, &waiting, tries,
                 shared ? "winners of this store were forgotten"
                        : "another tune of this key was under way",
                 diag);
    }
    if (ret_waited != NULL)
        *ret_waited = waited;
    return rc != 0 ? rc : last;
}

void fa_request_server(fa_tuner *tuner, const fa_request *request)
{
    struct waiting waiting = {request, begun};
    while (fa_tuner_awaits_server(tuner) && nap(tuner, &waiting, 5, "", NULL) == 0)
        continue;
}

int fa_request_turn(fa_tuner *tuner, const fa_request *request, fa_diag *diag)
{
    struct waiting waiting = {request, begun};
    int rc = 0;
    while (rc == 0 && pthread_mutex_trylock(&tuner->tuning) != 0)
        rc = nap(tuner, &waiting, 1, "another tune of this process was under way", diag);
    return rc;
}

/* ---- what a request means here ----------------------------------------------------------------*/
/* A name that a device of this machine answers to means that device. */
static int resolve_gpu(fa_tuner *tuner, const char *name, int32_t ordinal, fa_gpu *ret_gpu,
                       fa_diag *diag)
{
    FA_OR_RETURN(name != NULL ? fa_catalogue_find(name, ret_gpu, diag)
                              : fa_tuner_driver(tuner, diag));
    if (name == NULL)
        return fa_driver_device(tuner->driver, ordinal, ret_gpu, diag);
    int count = fa_tuner_driver(tuner, NULL) == 0 ? fa_driver_device_count(tuner->driver) : 0;
    for (int i = 0; i < count; i++) {
        fa_gpu device, known;
        if (fa_driver_device(tuner->driver, i, &device, NULL) == 0 &&
            fa_catalogue_match(&device, &known) == 0 && strcmp(known.name, ret_gpu->name) == 0) {
            *ret_gpu = device;
            break;
        }
    }
    return 0;
}

/* Finds the config whose bits are asked for, that of the family listed last which has one. Winners for another are others: its
 * hash is in the policy. */
static int resolve_same_bits(fa_tuner *tuner, fa_target *target, fa_diag *diag)
{
    bool serves[FA_FAMILIES_MAX];
    int64_t points;
    char text[FA_CONFIG_TEXT_MAX], hash[FA_HASH_HEX];
    fa_candidate candidate = {.trial.status = FA_STATUS_CONSTRAINT};
    FA_OR_RETURN(fa_tuner_families(tuner, diag));
    const fa_task task = fa_task_for(tuner, &target->asked, &target->gpu);
    FA_OR_RETURN(fa_families_choose(&task, serves, &points, diag));
    for (int i = task.families->count - 1; i >= 0; i--)
        if (serves[i] && candidate.trial.status != FA_STATUS_PENDING)
            FA_OR_RETURN(fa_space_default(&task, i, &candidate, diag));
    target->wants_bits = true;
    target->same_bits = candidate.trial.config;
    fa_config_text(&target->same_bits, text);
    fa_sha256(text, strlen(text), hash);
    snprintf(target->scope.policy, sizeof target->scope.policy, FA_MEASURE_POLICY ",%.32s", hash);
    return 0;
}

static const char *bits_asked(const fa_tuner *tuner, const fa_request *request)
{
    return request->same_bits[0] != 0 ? request->same_bits : tuner->options.same_bits;
}

void fa_target_problems(const fa_tuner *tuner, const fa_request *request, fa_problem *ret_asked,
                        fa_problem *ret_tuned)
{
    const fa_problem settled = fa_fields_settle(&request->problem);
    *ret_asked = fa_problem_exact(&settled);
    *ret_tuned = request->exact || bits_asked(tuner, request)[0] != 0 ? *ret_asked
                                                                      : fa_problem_bucket(&settled);
}

int fa_target_resolve(fa_tuner *tuner, const fa_request *request, fa_target *ret_target,
                      fa_diag *diag)
{
    const char *same = bits_asked(tuner, request);
    const fa_problem *problem = &request->problem;
    fa_target target = {0};
    FA_OR_RETURN(fa_problem_check(problem, diag));
    FA_OR_RETURN(fa_snippets_print(problem, NULL, NULL, diag));
    if (same[0] != 0 && strcmp(same, "default") != 0)
        return fa_fail(diag, FA_EINVAL, "same_bits is \"%.31s\": use \"default\"", same);
    FA_OR_RETURN(resolve_gpu(tuner, request->gpu, request->ordinal, &target.gpu, diag));
    fa_target_problems(tuner, request, &target.asked, &target.problem);
    target.scope.problem = target.problem;
    fa_gpu_silicon(&target.gpu, target.scope.silicon);
    snprintf(target.scope.templates, sizeof target.scope.templates, "%s",
             fa_templates_hash(fa_templates_for(tuner, problem), fa_operation_of(problem)));
    snprintf(target.scope.policy, sizeof target.scope.policy, "%s", FA_MEASURE_POLICY);
    if (same[0] != 0)
        FA_OR_RETURN(resolve_same_bits(tuner, &target, diag));
    *ret_target = target;
    return 0;
}

/* ---- whether an answer is good enough ---------------------------------------------------------*/
bool fa_origin_is_timed(fa_origin origin)
{
    return fa_origin_trust(origin) <= fa_origin_trust(FA_ORIGIN_NEAREST);
}

int32_t fa_contents_of(const fa_problem *problem)
{
    return atomic_load_explicit(&fa_operation_of(problem)->contents, memory_order_relaxed);
}

/* Whether the search that found the answer was no smaller than what is asked for. */
static bool tried_enough(const fa_answer *answer, const fa_request *request)
{
    bool large = answer->space > FA_SPACE_MAX;
    if (answer->strategy[0] == 0) /* all were tried */
        return true;
    if (request->evaluations > 0) /* what does not compile cost none */
        return answer->clean >= request->evaluations;
    return request->seconds > 0 ? answer->tune_s >= request->seconds
                                : large && answer->clean >= FA_SEARCH_EVALUATIONS;
}

bool fa_answer_satisfies(const fa_answer *answer, const fa_request *request)
{
    if (request->effort == FA_EFFORT_CACHED)
        return true;
    if (answer->gpu.present && answer->driver_version == 0)
        return false;
    if (request->effort == FA_EFFORT_PREDICT)
        return true;
    fa_problem bucket = fa_problem_bucket(&answer->problem);
    fa_problem itself = fa_problem_exact(&answer->problem);
    bool own = fa_problem_equal(&answer->from_problem, &itself) ||
               (!request->exact && fa_problem_equal(&answer->from_problem, &bucket));
    bool whole = !request->first_contact;
    int32_t given = fa_contents_of(&request->problem);
    if ((whole && !tried_enough(answer, request)) || (given != 0 && given != answer->contents))
        return false;
    if (fa_origin_is_timed(answer->origin))
        return own && !(whole && answer->shortlist_only);
    /* Where the GPU is not here, the best of the whole space by the model is the best possible answer; that of a
     * few configs is not. */
    return own && !answer->gpu.present && !answer->shortlist_only;
}
