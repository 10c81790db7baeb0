/* SPDX-License-Identifier: Apache-2.0
 *
 * The compile role. Messages:
 *   {"do":"headers","options":[…],"cuda":13000} + name, text, name, text, …       no answer
 *   {"do":"compile","id":n,"name":…,"architecture":…,"source":…}     {"rc","id","ms","log","text"} + cubin
 * Nothing is kept between compiles but the headers and options. NVRTC is a file reader: an #include of an absolute path,
 * or a FIFO, is read by the compiler. So source is compiled only in a process that has no environment and cannot open
 * files.
 */
#include "worker.h"

#include "error.h"
#include "json.h"
#include "pool.h"

#include <errno.h>
#include <linux/landlock.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

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
    fa_buf cubin = {0}, log = {0};
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
    cJSON *answer = fa_worker_answer(rc, &diag);
    fa_json_add_number(answer, "id", (double)id);
    fa_json_add_number(answer, "ms", (double)(fa_clock_ns() - start) / 1e6);
    fa_json_add_text(answer, "log", log.size != 0 ? log.data : "");
    rc = fa_message_write(fd, answer, cubin.data, rc == 0 ? cubin.size : 0, &diag);
    fa_buf_free(&cubin);
    fa_buf_free(&log);
    return rc;
}

/* Loads NVRTC, then gives up the rights that only loading needed. */
static int start_compiler(const fa_nvrtc_location *location, bool *ret_confined, fa_diag *diag)
{
    int rc = limit(diag);
    if (rc == 0)
        rc = fa_nvrtc_open(location, diag);
    if (rc != 0)
        return rc;
    /* The first compile opens what NVRTC loads lazily. */
    fa_buf cubin = {0}, log = {0};
    fa_compile_request warm = {.source = "extern \"C\" __global__ void k() {}",
                               .name = "warm.cu",
                               .architecture = "sm_80"};
    rc = fa_nvrtc_compile(&warm, &cubin, &log, diag);
    fa_buf_free(&cubin);
    fa_buf_free(&log);
    return rc != 0 ? rc : confine(ret_confined, diag);
}

int fa_worker_compile(int fd, const fa_nvrtc_location *location)
{
    struct compiler compiler = {.option_count = -1};
    fa_diag diag = {{0}};
    bool confined = false;
    int rc = start_compiler(location, &confined, &diag);
    cJSON *answer = fa_worker_answer(rc, &diag);
    fa_json_add_bool(answer, "confined", confined);
    int sent = fa_message_write(fd, answer, NULL, 0, &diag);
    while (rc == 0 && sent == 0) {
        fa_message message;
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
        fa_message_free(&message);
    }
    fa_message_free(&compiler.with);
    return rc != 0 ? rc : sent;
}

/* ---- what every answer of a worker begins with -----------------------------------------------*/
cJSON *fa_worker_answer(int rc, const fa_diag *diag)
{
    cJSON *json = cJSON_CreateObject();
    fa_json_add_number(json, "rc", rc);
    if (rc != 0)
        fa_json_add_text(json, "text", diag->text);
    return json;
}
