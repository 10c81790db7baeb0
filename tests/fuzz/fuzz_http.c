/* SPDX-License-Identifier: Apache-2.0
 *
 * Whatever a client may send to the service: the input is all that it says on one connection, before it closes its half. It
 * goes the whole way of a request, libmicrohttpd, routes and lookups in a store included; tunes find no compiler and no worker.
 *
 * The store holds one winner, predicted for an L4, so that there is something to be answered.
 *
 * After each input nothing may be left of it: no connection, no request, no tune.
 */
#include "fuzz.h"

#include "../fake_cubin.h"
#include "service.h"
#include "store.h"
#include "session.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

long fuzz_taken;

static struct {
    uv_loop_t loop;
    serve_settings settings;
    serve_service *service;
    char folder[64], store[96], socket[96];
} f;

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
        rc = fa_store_winner_put(tuner->store, &winner, &cubin, false, NULL, &diag);
    if (rc != 0)
        fprintf(stderr, "%s\n", diag.text);
    FUZZ_CHECK(rc == 0);
    fa_close(&tuner);
}

/* The end of a client, or the one that accepts them. */
static int open_socket(bool listens)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    memcpy(address.sun_path, f.socket, strlen(f.socket));
    FUZZ_CHECK((listens ? bind : connect)(fd, (struct sockaddr *)&address, sizeof address) == 0);
    FUZZ_CHECK(!listens || listen(fd, 100) == 0);
    return fd;
}

static void set_up(void)
{
    char store_flag[] = "--store", program[] = "fuzz";
    char *arguments[] = {program, store_flag, f.store, NULL};
    fa_diag diag;
    snprintf(f.folder, sizeof f.folder, "%s/fa-tune-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(f.folder) != NULL);
    atexit(remove_folder);
    snprintf(f.store, sizeof f.store, "%s/store.db", f.folder);
    snprintf(f.socket, sizeof f.socket, "%s/s", f.folder);
    setenv("FA_TUNE_LIBCUDA", "/nowhere/libcuda.so.1", 1);
    setenv("FA_TUNE_SYSTEM", "", 1);
    setenv("FA_TUNE_NVRTC", "/nowhere", 1);
    setenv("FA_TUNE_WORKER", "/nowhere/worker", 1);
    setenv("UV_THREADPOOL_SIZE", "4", 1);
    store_winner();
    FUZZ_CHECK(serve_settings_read(3, arguments, &f.settings, &diag) == 0);
    FUZZ_CHECK(uv_loop_init(&f.loop) == 0);
    FUZZ_CHECK(serve_service_open(&f.loop, &f.settings, &f.service, &diag) == 0);
    FUZZ_CHECK(serve_http_listen(f.service->http, open_socket(true), true, 100, 60, &diag) == 0);
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
        const ssize_t n = send(fd, text + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
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

/* Whether something is on its way from another thread. */
static bool is_under_way(void)
{
    return f.service->lookups.running + f.service->lists.running + f.service->tunes.running > 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { STILL = 6 };
    if (f.service == NULL)
        set_up();
    const int fd = open_socket(false);
    say(fd, (const char *)data, size);
    for (int still = 0; still < STILL && take_replies(fd); still++) {
        while (is_under_way())
            uv_run(&f.loop, UV_RUN_ONCE);
        uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    close(fd);
    /* An input after which something stays ends at the limit of whoever runs this: libFuzzer's, or the test's. */
    while (serve_http_connections(f.service->http) > 0 || f.service->counts.busy > 0 ||
           f.service->kernels != NULL || is_under_way())
        uv_run(&f.loop, UV_RUN_ONCE);
    return 0;
}
