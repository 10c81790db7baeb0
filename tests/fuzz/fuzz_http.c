/* SPDX-License-Identifier: Apache-2.0
 *
 * Whatever a client may send to the daemon: the input is all that it says on one connection, before
 * it closes its half. It goes the whole way of a request, libmicrohttpd, routes, lookups in a store
 * and the journal included; jobs are accepted and never run. "@JOB@" becomes the name of one.
 *
 * The store holds one winner, predicted for an L4, so that there is something to be answered.
 *
 * After each input nothing may be left of it: no connection, no pending request, no job.
 */
#include "fuzz.h"

#include "../fake_cubin.h"
#include "connection.h"
#include "hash.h"
#include "jobs.h"
#include "service.h"
#include "store.h"
#include "request.h"

#include <errno.h>
#include <sys/socket.h>

long fuzz_taken;

static struct {
    uv_loop_t loop;
    serve_settings settings;
    serve_service *service;
    serve_job *job; /* that @JOB@ names */
    char folder[64], store[96];
    bool ready;
} f;

static void got_ready(void *context)
{
    (void)context;
    f.ready = true;
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", f.folder);
    if (system(command) != 0)
        fprintf(stderr, "%s was not removed\n", f.folder);
}

static void store_winner(void)
{
    static const struct {
        const char *name;
        int32_t value;
    } tunables[] = {{"BLOCK_M", 64}, {"BLOCK_N", 64},  {"STAGES", 1},
                    {"WARPS", 4},    {"Q_IN_REGS", 0}, {"MIN_BLOCKS", 2}};
    static unsigned char bytes[FAKE_CUBIN_MAX];
    const fa_problem problem = {
        .head_dim = 64, .batch = 2, .heads_q = 2, .heads_kv = 2, .seq_q = 128, .seq_k = 128};
    fake_cubin made = {.sm = 89, .entry = "attn_fwd", .registers = 40, .threads_x = 128};
    fa_options options = {.size = sizeof options, .store = f.store, .server = ""};
    fa_winner_record winner = {.origin = FA_ORIGIN_PREDICTED,
                               .entry = "attn_fwd",
                               .gpu_name = "L4",
                               .nvrtc = "13.0",
                               .evidence = "{}"};
    fa_cubin_record cubin = {.entry = "attn_fwd", .sm = 89, .bytes = bytes};
    fa_target target;
    fa_tuner *tuner = NULL;
    fa_diag diag = {{0}};
    int rc = fa_open(&options, &tuner, &diag);
    if (rc == 0)
        rc = fa_target_resolve(tuner, &(fa_request){.problem = problem, .gpu = "L4"}, &target,
                               &diag);
    cubin.size = fake_cubin_build(&made, bytes);
    memset(cubin.key, 'c', FA_HASH_HEX - 1);
    memset(winner.cubin_key, 'c', FA_HASH_HEX - 1);
    winner.scope = target.scope;
    winner.trial = (fa_trial){.status = FA_STATUS_COMPILED,
                              .threads = 128,
                              .grid = {2, 2, 2},
                              .smem_bytes = 16384,
                              .registers = 40,
                              .predicted_us = 5};
    snprintf(winner.trial.config.family, FA_NAME_MAX, "attn_fwd_sm80");
    for (size_t i = 0; i < sizeof tunables / sizeof *tunables; i++) {
        fa_tunable *tunable = &winner.trial.config.tunable[winner.trial.config.count++];
        snprintf(tunable->name, FA_NAME_MAX, "%s", tunables[i].name);
        tunable->value = tunables[i].value;
    }
    if (rc == 0)
        rc = fa_store_winner_put(tuner->store, &winner, &cubin, NULL, &diag);
    if (rc != 0)
        fprintf(stderr, "%s\n", diag.text);
    FUZZ_CHECK(rc == 0);
    fa_close(&tuner);
}

static void set_up(void)
{
    char store_flag[] = "--store", level_flag[] = "--log-level", level[] = "error";
    char program[] = "fuzz";
    char *arguments[] = {program, store_flag, f.store, level_flag, level, NULL};
    fa_diag diag;
    snprintf(f.folder, sizeof f.folder, "%s/fa-tune-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(f.folder) != NULL);
    atexit(remove_folder);
    snprintf(f.store, sizeof f.store, "%s/store.db", f.folder);
    setenv("FA_TUNE_LIBCUDA", "/nowhere/libcuda.so.1", 1);
    setenv("FA_TUNE_SYSTEM", "", 1);
    store_winner();
    FUZZ_CHECK(serve_settings_read(5, arguments, &f.settings, &diag) == 0);
    f.settings.socket = "";
    f.settings.allow_user_templates = true;
    serve_log_setup(SERVE_ERROR, false);
    FUZZ_CHECK(uv_loop_init(&f.loop) == 0);
    FUZZ_CHECK(serve_service_open(&f.loop, &f.settings, got_ready, NULL, &f.service, &diag) == 0);
    f.service->runs = false;
    while (!serve_service_is_ready(f.service))
        uv_run(&f.loop, UV_RUN_ONCE);
    FUZZ_CHECK(f.ready && !f.service->failed);
}

static void need_job(void)
{
    if (f.job == NULL || serve_job_is_over(f.job))
        f.job = serve_job_new(f.service, SERVE_TUNE);
    FUZZ_CHECK(f.job != NULL);
}

/* The input with each "@JOB@" replaced; malloced. */
static char *name_job(const uint8_t *data, size_t size, size_t *ret_size)
{
    static const char mark[] = "@JOB@";
    size_t id = strlen(f.job->id), length = sizeof mark - 1, out = 0;
    char *text = malloc(size / length * id + size + 1);
    FUZZ_CHECK(text != NULL);
    for (size_t i = 0; i < size;) {
        if (size - i >= length && memcmp(data + i, mark, length) == 0) {
            memcpy(text + out, f.job->id, id);
            out += id;
            i += length;
        } else {
            text[out++] = (char)data[i++];
        }
    }
    *ret_size = out;
    return text;
}

/* Whether something is on its way from another thread. A request that waits for a job waits for ever,
 * until the job is canceled, and so does a client that listens to it. */
static bool is_under_way(void)
{
    int waiting = f.job->listeners.count + f.service->followers.count;
    for (serve_job *job = f.service->jobs; job != NULL; job = job->next) {
        waiting += job->references;
        if (job->journaling)
            return true;
    }
    return serve_http_busy(f.service->http) > waiting ||
           (f.service->pending != NULL && waiting == 0);
}

static void cancel_jobs(void)
{
    for (serve_job *job = f.service->jobs; job != NULL; job = job->next)
        if (job != f.job && !serve_job_is_over(job))
            serve_job_cancel(job);
}

/* What came back; false: nothing more will. */
static bool take_replies(int fd)
{
    static char reply[1 << 16];
    ssize_t got;
    while ((got = recv(fd, reply, sizeof reply, MSG_DONTWAIT)) > 0)
        fuzz_taken += memmem(reply, (size_t)got, "HTTP/1.1 2", 10) != NULL;
    return got < 0 && (errno == EAGAIN || errno == EINTR);
}

static void say(int fd, const char *text, size_t size)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t n = send(fd, text + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            break; /* it has heard enough */
        uv_run(&f.loop, UV_RUN_NOWAIT);
        if (!take_replies(fd))
            break;
    }
    shutdown(fd, SHUT_WR);
}

/* The service lets go of a client that has closed its half and waits, when it next looks: not before the reply here, however
 * slow the machine. */
static void talk(const char *text, size_t size)
{
    enum { STILL = 6 };
    int pair[2];
    uv_timer_stop(&f.service->http->tick);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    FUZZ_CHECK(serve_http_adopt(f.service->http, pair[1], true) == 0);
    say(pair[0], text, size);
    for (int still = 0; take_replies(pair[0]) && still < STILL;) {
        if (is_under_way()) {
            uv_run(&f.loop, UV_RUN_ONCE);
            continue;
        }
        cancel_jobs();
        uv_run(&f.loop, UV_RUN_NOWAIT);
        still++;
    }
    uv_timer_again(&f.service->http->tick);
    close(pair[0]);
}

/* An input after which something stays ends at the limit of whoever runs this: libFuzzer's, or the test's. */
static void settle(void)
{
    while (serve_http_counted(f.service->http)->connections > 0 || f.service->pending != NULL ||
           f.service->live_jobs > 1) {
        cancel_jobs();
        uv_run(&f.loop, is_under_way() ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    }
    FUZZ_CHECK(serve_http_busy(f.service->http) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t length;
    if (f.service == NULL)
        set_up();
    need_job();
    char *text = name_job(data, size, &length);
    talk(text, length);
    free(text);
    settle();
    return 0;
}
