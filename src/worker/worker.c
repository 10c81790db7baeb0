/* SPDX-License-Identifier: Apache-2.0
 *
 * fa-tune-worker: the process that compiles, or proves and times. Started by the library only, in one of two roles:
 *   fa-tune-worker compile LIBNVRTC BUILTINS MAJOR MINOR   source in, cubin out
 *   fa-tune-worker measure ORDINAL                         cubin in, proof and samples out
 * Messages come and go on descriptor 3. The first answer of a role is {"rc":…} and says whether it could start.
 */
#include "bench.h"
#include "catalogue.h"
#include "error.h"
#include "json.h"
#include "nvrtc.h"
#include "pool.h"
#include "problem.h"

#include <errno.h>
#include <linux/landlock.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* {"rc":code,"text":sentence}, with which every answer begins. */
static cJSON *new_answer(int rc, const fa_diag *diag)
{
    cJSON *json = cJSON_CreateObject();
    fa_json_add_number(json, "rc", rc);
    if (rc != 0)
        fa_json_add_text(json, "text", diag->text);
    return json;
}

/* ---- compiling -------------------------------------------------------------------------------*/
/* Messages:
 *   {"do":"headers","options":[…],"cuda":13000} + name, text, name, text, …       no answer
 *   {"do":"compile","id":n,"name":…,"architecture":…,"source":…}     {"rc","id","ms","log","text"} + cubin
 * Nothing is kept between compiles but the headers and options. NVRTC is a file reader: an #include of an absolute path,
 * or a FIFO, is read by the compiler. So source is compiled only in a process that has no environment and cannot open
 * files.
 */
enum {
    MAX_HEADERS = 4096,
    MAX_OPTIONS = 32,
    LOG_MAX = 256 << 10,
    CUBIN_MAX = FA_FRAME_BLOB_MAX - (1 << 20) /* a trial's launches go with it */
};

struct compiler {
    fa_message with; /* owns the texts below */
    const char *header_name[MAX_HEADERS], *header_text[MAX_HEADERS];
    int header_count;
    const char *option[MAX_OPTIONS];
    int option_count; /* -1: none are set */
    int cuda_headers; /* as fa_compile_request has it */
};

/* ---- what is given up before any source is seen ----------------------------------------------*/
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ADDRESS_SPACE RLIM_INFINITY /* their shadow memory is reserved, not used */
#else
#define ADDRESS_SPACE ((rlim_t)6 << 30)
#endif

/* Bounds address space, open files, file size and core size of this process. */
static int limit(fa_diag *diag)
{
    const struct {
        __rlimit_resource_t resource;
        rlim_t value;
        const char *name;
    } limits[] = {{RLIMIT_AS, ADDRESS_SPACE, "address space"},
                  {RLIMIT_FSIZE, 0, "file size"},
                  {RLIMIT_CORE, 0, "core size"},
                  {RLIMIT_NOFILE, 64, "open files"}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rlimit limit;
        if (getrlimit(limits[i].resource, &limit) == 0 && limit.rlim_max > limits[i].value)
            limit.rlim_max = limits[i].value;
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(limits[i].resource, &limit) != 0)
            return fa_fail(diag, FA_EWORKER, "cannot limit %s: %s", limits[i].name,
                           strerror(errno));
    }
    return 0;
}

/* Takes away the file system (Landlock, where the kernel has it): nothing can be opened any more, so that an #include of a
 * file outside the templates finds nothing. *ret_confined says whether it holds. After every library is loaded. */
static int confine(bool *ret_confined, fa_diag *diag)
{
    /* Everything version 1 of Landlock knows is handled and nothing is allowed. */
    struct landlock_ruleset_attr rules = {.handled_access_fs = (1u << 13) - 1};
    *ret_confined = false;
    long fd = syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
    if (fd < 0)
        return 0; /* ENOSYS or EOPNOTSUPP: an older kernel, or Landlock is off */
    int rc = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (rc == 0)
        rc = (int)syscall(SYS_landlock_restrict_self, (int)fd, 0);
    close((int)fd);
    if (rc != 0)
        return fa_fail(diag, FA_EWORKER, "cannot confine the compile worker: %s", strerror(errno));
    *ret_confined = true;
    return 0;
}

/* ---- messages --------------------------------------------------------------------------------*/
/* Takes over the message. */
static void take_headers(struct compiler *compiler, fa_message *message)
{
    fa_message_free(&compiler->with);
    compiler->with = *message;
    *message = (fa_message){0};
    compiler->header_count = 0;
    const char *at = compiler->with.blob, *end = at + compiler->with.blob_size;
    while (at != NULL && at < end && compiler->header_count < MAX_HEADERS) {
        const char *text = memchr(at, 0, (size_t)(end - at));
        const char *last = text != NULL ? memchr(text + 1, 0, (size_t)(end - text - 1)) : NULL;
        if (last == NULL)
            break;
        compiler->header_name[compiler->header_count] = at;
        compiler->header_text[compiler->header_count++] = text + 1;
        at = last + 1;
    }
    int64_t cuda = 0;
    fa_json_int(compiler->with.json, "cuda", 0, INT32_MAX, &cuda, "message", NULL);
    compiler->cuda_headers = (int)cuda;
    const cJSON *item, *options = fa_json_member(compiler->with.json, "options");
    compiler->option_count = options != NULL ? 0 : -1;
    cJSON_ArrayForEach (item, options)
        if (cJSON_IsString(item) && compiler->option_count < MAX_OPTIONS)
            compiler->option[compiler->option_count++] = item->valuestring;
}

static int answer_compile(struct compiler *compiler, int fd, const cJSON *json)
{
    fa_diag diag = {{0}};
    FA_ENDS(fa_buf_free) fa_buf cubin = {0}, log = {0};
    int64_t id = 0;
    static const char *const keys[] = {"name", "architecture", "source"};
    enum { NAME, ARCHITECTURE, SOURCE, TEXTS };
    const char *text[TEXTS];
    const uint64_t start = fa_clock_ns();
    int rc = fa_json_int(json, "id", 0, INT32_MAX, &id, "message", &diag);
    for (int i = 0; rc == 0 && i < TEXTS; i++)
        rc = fa_json_text(json, keys[i], &text[i], "message", &diag);
    if (rc == 0) {
        fa_compile_request request = {.source = text[SOURCE],
                                      .name = text[NAME],
                                      .header_names = compiler->header_name,
                                      .header_texts = compiler->header_text,
                                      .header_count = compiler->header_count,
                                      .architecture = text[ARCHITECTURE],
                                      .cuda_headers = compiler->cuda_headers};
        if (compiler->option_count >= 0) {
            request.options = compiler->option;
            request.option_count = compiler->option_count;
        }
        rc = fa_nvrtc_compile(&request, &cubin, &log, &diag);
    }
    if (rc == 0 && cubin.size > CUBIN_MAX)
        rc = fa_fail(&diag, FA_ECOMPILE, "the cubin has %zu bytes: at most %d are taken",
                     cubin.size, CUBIN_MAX);
    if (log.size > LOG_MAX)
        log.data[LOG_MAX] = 0;
    cJSON *answer = new_answer(rc, &diag);
    fa_json_add_number(answer, "id", (double)id);
    fa_json_add_number(answer, "ms", (double)(fa_clock_ns() - start) / 1e6);
    fa_json_add_text(answer, "log", log.size != 0 ? log.data : "");
    rc = fa_message_write(fd, answer, cubin.data, rc == 0 ? cubin.size : 0, &diag);
    return rc;
}

/* Loads NVRTC, then gives up the rights that only loading needed. */
static int start_compiler(const fa_nvrtc_location *location, bool *ret_confined, fa_diag *diag)
{
    FA_OR_RETURN(limit(diag));
    FA_OR_RETURN(fa_nvrtc_open(location, diag));
    /* The first compile opens what NVRTC loads lazily. */
    FA_ENDS(fa_buf_free) fa_buf cubin = {0}, log = {0};
    fa_compile_request warm = {.source = "extern \"C\" __global__ void k() {}",
                               .name = "warm.cu",
                               .architecture = "sm_80"};
    int rc = fa_nvrtc_compile(&warm, &cubin, &log, diag);
    return rc != 0 ? rc : confine(ret_confined, diag);
}

static int serve_compiles(int fd, const fa_nvrtc_location *location)
{
    struct compiler compiler = {.option_count = -1};
    fa_diag diag = {{0}};
    bool confined = false;
    int rc = start_compiler(location, &confined, &diag);
    cJSON *answer = new_answer(rc, &diag);
    fa_json_add_bool(answer, "confined", confined);
    int sent = fa_message_write(fd, answer, NULL, 0, &diag);
    while (rc == 0 && sent == 0) {
        FA_ENDS(fa_message_free) fa_message message = {0};
        const char *verb;
        sent = fa_message_read(fd, &message, &diag);
        if (sent != 0)
            break;
        rc = fa_json_text(message.json, "do", &verb, "message", &diag);
        if (rc == 0 && strcmp(verb, "headers") == 0)
            take_headers(&compiler, &message);
        else if (rc == 0 && strcmp(verb, "compile") == 0)
            sent = answer_compile(&compiler, fd, message.json);
        else
            rc = FA_EINVAL;
    }
    fa_message_free(&compiler.with);
    return rc != 0 ? rc : sent;
}

/* ---- measuring -------------------------------------------------------------------------------*/
/* One CUDA context of its own, one problem at a time. Messages:
 *   {"do":"open","problem":…,"seed":"n","memory":n,"data":…} + reference cubin    {"rc","text","clocks"}
 *     and "operation", the content of its operation.json, unless the operation is the usual one
 *   {"do":"trial","id":n,"entries":[…],"count","budget_us","best_us","profiled"} + cubin, and fa_launches of each case
 *                                     {"rc","id","status","text","max_error","tolerance","samples","clocks"}
 *                                     and "foreign" where what failed says nothing about the config
 *   {"do":"race","ids":[…],"rounds":n}                        {"rc","text","samples":[[…],…],"clocks"}
 * A trial with count 0 is proved, not timed; then launched `profiled` times for a profiler. When the context is lost the answer says so and the
 * process ends: a new one is the only cure.
 */
enum {
    MAX_KERNELS = 32768,
    CLOCKS_AGE_NS = 100000000, /* NVML takes 1.5 ms, as long as the proof of a small kernel */
    OUT_OF_MEMORY = 2          /* CUDA_ERROR_OUT_OF_MEMORY */
};

struct measurer {
    int fd;
    fa_driver *driver;
    fa_clock_state clocks;
    uint64_t clocks_ns; /* when they were read; 0: never */
    fa_gpu gpu;
    fa_bench *bench;
    fa_case_data *data; /* of the cases; NULL: all is drawn */
    int case_count;
    fa_bench_kernel *kernel[MAX_KERNELS]; /* by id; proved ones stay loaded for the race */
};

static void add_clocks(struct measurer *m, cJSON *answer)
{
    uint64_t now = fa_clock_ns();
    if (m->clocks_ns == 0 || now - m->clocks_ns > CLOCKS_AGE_NS) {
        if (fa_nvml_read(m->gpu.uuid, &m->clocks, NULL) != 0)
            return;
        m->clocks_ns = now;
    }
    const fa_clock_state *state = &m->clocks;
    cJSON *clocks = fa_json_add_object(answer, "clocks");
    fa_json_add_number(clocks, "sm_mhz", state->sm_mhz);
    fa_json_add_number(clocks, "memory_mhz", state->memory_mhz);
    fa_json_add_number(clocks, "temperature_c", state->temperature_c);
    fa_json_add_text(clocks, "throttle", state->throttle);
    if (state->power_limit_w > 0)
        fa_json_add_number(clocks, "power_limit_w", state->power_limit_w);
    if (state->driver[0] != 0)
        fa_json_add_text(clocks, "driver", state->driver);
}

static int open_problem(struct measurer *m, const fa_message *message, fa_diag *diag)
{
    fa_problem problem = {0};
    fa_problem cases[FA_BENCH_CASES];
    const fa_operation *operation;
    const cJSON *unusual = fa_json_member(message->json, "operation");
    FA_ENDS(fa_free_at) char *content = unusual != NULL ? fa_json_print(unusual) : NULL;
    const char *text = "";
    int64_t memory = 0;
    FA_OR_RETURN(fa_have(unusual == NULL || content != NULL, "an operation", diag));
    if (content != NULL)
        FA_OR_RETURN(fa_operation_register(content, strlen(content), "message", &operation, diag));
    FA_OR_RETURN(
        fa_problem_from_json(fa_json_member(message->json, "problem"), false, "*", &problem, diag));
    FA_OR_RETURN(fa_json_text_needed(message->json, "seed", &text, "message", diag));
    FA_OR_RETURN(
        fa_json_int(message->json, "memory", 0, (int64_t)1 << 53, &memory, "message", diag));
    uint64_t seed = strtoull(text, NULL, 10);
    for (int i = 0; i < MAX_KERNELS && m->bench != NULL; i++)
        if (m->kernel[i] != NULL)
            fa_bench_unload(m->bench, &m->kernel[i]);
    fa_bench_close(&m->bench);
    fa_case_data_close(&m->data);
    m->case_count = fa_bench_cases(&problem, seed, cases);
    const char *data = fa_json_string(message->json, "data");
    if (data != NULL)
        FA_OR_RETURN(fa_case_data_open(data, &m->data, diag));
    fa_launch_shape answer[FA_BENCH_CASES];
    const size_t shapes = cJSON_IsTrue(fa_json_member(message->json, "answer"))
                              ? (size_t)m->case_count * sizeof *answer
                              : 0;
    if (message->blob_size < shapes)
        return fa_fail(diag, FA_EINVAL, "message: a reference of %zu bytes", message->blob_size);
    const size_t size = message->blob_size - shapes;
    if (shapes > 0)
        memcpy(answer, (const char *)message->blob + size, shapes);
    const fa_bench_setup setup = {&m->gpu,
                                  &problem,
                                  message->blob,
                                  size,
                                  seed,
                                  m->data,
                                  (size_t)memory,
                                  shapes > 0 ? answer : NULL,
                                  .twice = cJSON_IsTrue(fa_json_member(message->json, "twice"))};
    return fa_bench_open(m->driver, &setup, &m->bench, diag);
}

static int read_candidate(const struct measurer *m, const fa_message *message,
                          fa_bench_candidate *candidate, fa_diag *diag)
{
    const cJSON *entries = fa_json_member(message->json, "entries");
    const size_t launches = (size_t)m->case_count * sizeof *candidate->launches;
    const int count = cJSON_GetArraySize(entries);
    if (message->blob_size < launches || count < 1 || count > FA_LAUNCHES_MAX)
        return fa_fail(diag, FA_EINVAL, "message: a trial of %d launches in %zu bytes", count,
                       message->blob_size);
    candidate->cubin = message->blob;
    candidate->size = message->blob_size - launches;
    memcpy(candidate->launches, (const char *)message->blob + candidate->size, launches);
    for (int c = 0; c < m->case_count; c++)
        if (candidate->launches[c].count != count && (c == 0 || candidate->launches[c].count != 0))
            return fa_fail(diag, FA_EINVAL, "message: %d launches have names", count);
    for (int l = 0; l < count; l++)
        if ((candidate->entry[l] = cJSON_GetStringValue(cJSON_GetArrayItem(entries, l))) == NULL)
            return fa_fail(diag, FA_EINVAL, "message: launch %d has no name", l);
    return 0;
}

/* Whether the last driver call failed for what the GPU, the driver or another process did. */
static bool is_foreign(struct measurer *m)
{
    /* CUresults, those of MPS last. */
    static const int foreign[] = {
        3,                                 /* NOT_INITIALIZED */
        4,                                 /* DEINITIALIZED */
        46,                                /* DEVICE_UNAVAILABLE */
        100,                               /* NO_DEVICE */
        101,                               /* INVALID_DEVICE */
        201,                               /* INVALID_CONTEXT */
        214,                               /* ECC_UNCORRECTABLE */
        220,                               /* NVLINK_UNCORRECTABLE */
        226,                               /* CONTAINED */
        304,                               /* OPERATING_SYSTEM */
        709,                               /* CONTEXT_IS_DESTROYED */
        802,                               /* SYSTEM_NOT_READY */
        803,                               /* SYSTEM_DRIVER_MISMATCH */
        805, 806, 807, 808, 809, 810, 999, /* UNKNOWN */
    };
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (foreign[i] == fa_driver_last_result(m->driver))
            return true;
    return false;
}

static cJSON *samples_array(const float *samples, int count)
{
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; i < count; i++)
        fa_json_push(array, cJSON_CreateNumber((double)samples[i]));
    return array;
}

/* load -> verify -> measure; where it ends is the answer. FA_ENOMEM: there is none. */
static int try_candidate(struct measurer *m, const fa_bench_candidate *candidate, const cJSON *json,
                         int id, cJSON *answer, fa_status *ret_status, fa_diag *diag)
{
    fa_proof proof = {0};
    int64_t count = 0, profiled = 0;
    fa_probe probe = {0};
    float samples[FA_BENCH_SAMPLES_MAX];
    int sample_count = 0;
    fa_json_int(json, "count", 0, FA_BENCH_SAMPLES_MAX, &count, "message", NULL);
    fa_json_int(json, "profiled", 0, INT32_MAX, &profiled, "message", NULL);
    fa_json_number(json, "budget_us", &probe.budget_us, "message", NULL);
    fa_json_number(json, "best_us", &probe.best_us, "message", NULL);
    if (m->kernel[id] != NULL)
        fa_bench_unload(m->bench, &m->kernel[id]);
    fa_status failed = FA_STATUS_LOAD_FAILED;
    if (fa_bench_admit(m->bench, candidate, diag) != 0) {
        *ret_status = FA_STATUS_OUT_OF_MEMORY;
        return 0;
    }
    int rc = fa_bench_load(m->bench, candidate, &m->kernel[id], diag);
    if (rc != 0)
        goto done;
    failed = FA_STATUS_LAUNCH_FAILED;
    rc = fa_bench_verify(m->bench, m->kernel[id], &proof, diag);
    if (rc != 0)
        goto done;
    fa_json_add_number(answer, "max_error", proof.max_error);
    fa_json_add_number(answer, "tolerance", proof.tolerance);
    if (!proof.passed) {
        fa_fail(diag, 0, "%s", proof.reason);
        *ret_status = FA_STATUS_WRONG;
        return 0;
    }
    cJSON *bits = fa_json_add_array(answer, "bits");
    for (int c = 0; c < m->case_count; c++)
        fa_json_push(bits, cJSON_CreateNumber(proof.bits[c]));
    if (profiled > 0)
        rc = fa_bench_profile(m->bench, m->kernel[id], (int)profiled, diag);
    if (count == 0 || rc != 0)
        goto done;
    probe.count = (int)count;
    rc = fa_bench_probe(m->bench, m->kernel[id], &probe, samples, &sample_count, diag);
    if (rc == 0)
        fa_json_add(answer, "samples", samples_array(samples, sample_count));
done:
    /* This process has no memory, which says nothing about the candidate: the GPU's is the driver's to tell. */
    if (rc == FA_ENOMEM && fa_driver_last_result(m->driver) != OUT_OF_MEMORY)
        return rc;
    *ret_status = rc == 0             ? FA_STATUS_MEASURED
                  : rc == FA_ECORRUPT ? FA_STATUS_WRONG /* right when proved, wrong when timed */
                  : fa_driver_context_lost(m->driver) ? FA_STATUS_CRASHED
                  : rc == FA_ENOMEM || fa_driver_last_result(m->driver) == OUT_OF_MEMORY
                      ? FA_STATUS_OUT_OF_MEMORY
                      : failed;
    return 0;
}

static int answer_trial(struct measurer *m, const fa_message *message)
{
    fa_diag diag = {{0}};
    fa_bench_candidate candidate = {0};
    int64_t id = 0;
    fa_status status = FA_STATUS_LOAD_FAILED;
    int rc = m->bench == NULL
                 ? fa_fail(&diag, FA_EINVAL, "no problem is open")
                 : fa_json_int(message->json, "id", 0, MAX_KERNELS - 1, &id, "message", &diag);
    if (rc == 0)
        rc = read_candidate(m, message, &candidate, &diag);
    cJSON *answer = cJSON_CreateObject();
    if (rc == 0) {
        if (try_candidate(m, &candidate, message->json, (int)id, answer, &status, &diag) != 0) {
            cJSON_Delete(answer);
            return FA_ENOMEM; /* another process may have more */
        }
        if (status != FA_STATUS_MEASURED && status != FA_STATUS_CRASHED)
            fa_bench_unload(m->bench, &m->kernel[id]);
    }
    fa_json_add_number(answer, "rc", rc);
    fa_json_add_number(answer, "id", (double)id);
    fa_json_add_text(answer, "status", fa_status_name(status));
    if (status != FA_STATUS_MEASURED && status != FA_STATUS_WRONG && is_foreign(m))
        fa_json_add_bool(answer, "foreign", true);
    fa_json_add_text(answer, "text", diag.text);
    add_clocks(m, answer);
    int sent = fa_message_write(m->fd, answer, NULL, 0, &diag);
    return status == FA_STATUS_CRASHED ? FA_ECUDA : sent;
}

static int race_kernels(struct measurer *m, const cJSON *json, cJSON **ret_samples, fa_diag *diag)
{
    enum { MAX_RACERS = 64 };
    fa_bench_kernel *racer[MAX_RACERS];
    int64_t rounds = 0;
    const cJSON *ids = fa_json_member(json, "ids");
    int count = cJSON_GetArraySize(ids);
    int rc = fa_json_int(json, "rounds", 1, FA_BENCH_SAMPLES_MAX, &rounds, "message", diag);
    if (rc != 0 || m->bench == NULL || count < 1 || count > MAX_RACERS)
        return fa_fail(diag, FA_EINVAL, "message: a race of %d kernels is not possible", count);
    for (int i = 0; i < count; i++) {
        const cJSON *id = cJSON_GetArrayItem(ids, i);
        bool known = cJSON_IsNumber(id) && id->valueint >= 0 && id->valueint < MAX_KERNELS;
        racer[i] = known ? m->kernel[id->valueint] : NULL;
        if (racer[i] == NULL)
            return fa_fail(diag, FA_EINVAL, "message: racer %d is not loaded", i);
    }
    FA_ENDS(fa_free_at) float *samples = calloc((size_t)(count * rounds), sizeof *samples);
    FA_OR_RETURN(fa_have(samples != NULL, "a race", diag));
    rc = fa_bench_race(m->bench, racer, count, (int)rounds, samples, diag);
    if (rc == 0) {
        *ret_samples = cJSON_CreateArray();
        for (int i = 0; i < count; i++)
            fa_json_push(*ret_samples, samples_array(samples + i * rounds, (int)rounds));
    }
    return rc;
}

/* One message; non-zero ends the process. */
static int answer_message(struct measurer *m, const fa_message *message)
{
    fa_diag diag = {{0}};
    const char *verb;
    cJSON *samples = NULL;
    int rc;
    FA_OR_RETURN(fa_json_text(message->json, "do", &verb, "message", &diag));
    if (strcmp(verb, "trial") == 0)
        return answer_trial(m, message);
    if (strcmp(verb, "open") == 0)
        rc = open_problem(m, message, &diag);
    else if (strcmp(verb, "race") == 0)
        rc = race_kernels(m, message->json, &samples, &diag);
    else
        return FA_EINVAL;
    cJSON *answer = new_answer(rc, &diag);
    if (samples != NULL)
        fa_json_add(answer, "samples", samples);
    add_clocks(m, answer);
    int sent = fa_message_write(m->fd, answer, NULL, 0, &diag);
    return fa_driver_context_lost(m->driver) ? FA_ECUDA : sent;
}

static int serve_measures(int fd, int ordinal)
{
    fa_diag diag = {{0}};
    FA_ENDS(fa_free_at) struct measurer *m = calloc(1, sizeof *m);
    if (m == NULL)
        return FA_ENOMEM;
    m->fd = fd;
    int rc = fa_driver_open(&m->driver, &diag);
    if (rc == 0)
        rc = fa_driver_device(m->driver, ordinal, &m->gpu, &diag);
    if (rc == 0)
        rc = fa_driver_enter(m->driver, ordinal, &diag);
    if (rc == 0)
        fa_nvml_read(m->gpu.uuid, &m->clocks, NULL); /* starts NVML before anything is timed */
    cJSON *answer = new_answer(rc, &diag);
    int sent = fa_message_write(fd, answer, NULL, 0, &diag);
    while (rc == 0 && sent == 0) {
        FA_ENDS(fa_message_free) fa_message message = {0};
        sent = fa_message_read(fd, &message, &diag);
        if (sent != 0)
            break;
        sent = answer_message(m, &message);
    }
    /* The context goes with the process; tidying up a lost one may hang. */
    return rc != 0 ? rc : sent;
}

/* ---- the process ----------------------------------------------------------------------------*/
/* Ends this process as soon as the other end is gone, also in the middle of a compile. */
static void *follow(void *unused)
{
    (void)unused;
    struct pollfd watch = {.fd = FA_CHILD_FD, .events = POLLRDHUP};
    while (poll(&watch, 1, -1) < 0 && errno == EINTR)
        continue;
    _exit(0);
}

int main(int argc, char **argv)
{
    struct stat st;
    pthread_t thread;
    int rc = 2;
    if (fstat(FA_CHILD_FD, &st) != 0 || !S_ISSOCK(st.st_mode)) {
        fputs("fa-tune-worker is started by fa-tune; run fa-tune instead\n", stderr);
        return 2;
    }
    if (pthread_create(&thread, NULL, follow, NULL) != 0)
        return 2;
    if (argc == 6 && strcmp(argv[1], "compile") == 0) {
        fa_nvrtc_location location = {.major = atoi(argv[4]), .minor = atoi(argv[5])};
        snprintf(location.library, sizeof location.library, "%s", argv[2]);
        snprintf(location.builtins, sizeof location.builtins, "%s", argv[3]);
        rc = serve_compiles(FA_CHILD_FD, &location);
    } else if (argc == 3 && strcmp(argv[1], "measure") == 0)
        rc = serve_measures(FA_CHILD_FD, atoi(argv[2]));
    /* Exits without running the destructors of the CUDA libraries, which may hang in a lost context. */
    bool is_short = rc == FA_ENOMEM || rc == FA_EIO;
    _exit(rc == 0 ? 0 : is_short ? FA_CHILD_SHORT_CODE : 1);
}
