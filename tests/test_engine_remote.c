/* SPDX-License-Identifier: Apache-2.0
 *
 * The client within a session: a server that says nothing, and threads that do not wait for one another's requests. What a
 * server says is test_remote.py's.
 */
#include "engine_fixture.h"

#include "buf.h"
#include "sources.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- a server -------------------------------------------------------------------------------*/
/* Answers the kernel or the cubin, or nothing yet where a request asks for a length of 256. */
typedef struct server {
    char path[64], kernel[2 * FA_ANSWER_TEXT_MAX];
    int fd;
    _Atomic int held; /* the connection that waits; -1 */
    pthread_t thread;
    void *cubin;
    size_t cubin_size;
} server;

static void say(int fd, const char *status, const char *more, const void *body, size_t size)
{
    dprintf(fd, "HTTP/1.1 %s X\r\nContent-Length: %zu\r\n%s\r\n", status, size, more);
    send(fd, body, size, MSG_NOSIGNAL);
    close(fd);
}

static void say_not(int fd, const char *message)
{
    char text[200];
    snprintf(text, sizeof text, "{\"error\":{\"code\":\"FA_ENOTFOUND\",\"message\":\"%s\"}}",
             message);
    say(fd, "404", "", text, strlen(text));
}

static void *serve(void *context)
{
    server *s = context;
    int fd;
    while ((fd = accept(s->fd, NULL, NULL)) >= 0) {
        char request[8192] = "", tag[100], hash[FA_HASH_HEX];
        const ssize_t size = recv(fd, request, sizeof request - 1, 0); /* it is sent at once */
        if (size > 0 && strstr(request, "\"seq_q\":256") != NULL) {
            s->held = fd;
        } else if (strncmp(request, "GET /v1/cubins/", 15) == 0) {
            fa_sha256(s->cubin, s->cubin_size, hash);
            snprintf(tag, sizeof tag, "ETag: \"%s\"\r\n", hash);
            say(fd, "200", tag, s->cubin, s->cubin_size);
        } else if (s->kernel[0] != 0) {
            say(fd, "200", "", s->kernel, strlen(s->kernel));
        } else {
            say_not(fd, "nothing here");
        }
    }
    return NULL;
}

static bool start(server *s, void *(*work)(void *))
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(s->path, sizeof s->path, "/tmp/fts-remote-%d", (int)getpid());
    memcpy(address.sun_path, s->path, sizeof s->path);
    unlink(s->path);
    s->held = -1;
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return s->fd >= 0 && bind(s->fd, (struct sockaddr *)&address, sizeof address) == 0 &&
           listen(s->fd, 16) == 0 &&
           (work == NULL || pthread_create(&s->thread, NULL, work, s) == 0);
}

static void stop(server *s, bool joined)
{
    shutdown(s->fd, SHUT_RDWR);
    if (joined)
        pthread_join(s->thread, NULL);
    close(s->fd);
    unlink(s->path);
    free(s->cubin);
}

/* A session that asks it, with the fixture's templates. */
static bool open_served(engine_fixture *f, const server *s, fa_diag *diag)
{
    fa_options options = fixture_options(f);
    options.server = s->path;
    fa_close(&f->tuner);
    return fa_open(&options, &f->tuner, diag) == 0;
}

/* ---- tests ----------------------------------------------------------------------------------*/
static int count_down(void *context, const fa_progress *progress)
{
    int *left = context;
    return progress->stage == FA_STAGE_WAIT && --*left <= 0;
}

TEST(a_server_that_says_nothing_is_left_in_time)
{
    server s = {.fd = -1};
    fa_http_address address;
    fa_http_reply reply;
    fa_http_call call = {.target = "/", .quiet_ms = 150};
    fa_diag diag = {{0}};
    int left = 3;
    const fa_request request = {.progress = count_down, .context = &left};
    CHECK(start(&s, NULL)); /* it accepts nobody */
    CHECK_OK(fa_http_parse(s.path, &address, &diag), diag);
    CHECK_FAILS(fa_http_do(&address, &call, &reply, &diag), FA_ETIMEOUT, "it says nothing");
    call = (fa_http_call){.target = "/", .quiet_ms = 60000, .request = &request};
    CHECK_INT(fa_http_do(&address, &call, &reply, &diag), FA_ECANCELED);
    CHECK_INT(left, 0);
    stop(&s, false);
}

struct asking {
    engine_fixture *f;
    fa_problem problem;
    int rc;
    fa_diag diag;
};

static void *ask(void *context)
{
    struct asking *a = context;
    const fa_kernel *kernel;
    fa_driver *driver = NULL;
    if (fa_driver_open(&driver, NULL) != 0 || hold_context(driver, 0, NULL) != 0)
        return NULL;
    a->rc = fa_get_best_kernel(a->f->tuner, &a->problem, FA_EFFORT_CACHED, &kernel, &a->diag);
    drop_context(driver, 0);
    fa_driver_close(&driver);
    return NULL;
}

/* What a service says that has no GPU to prove its model's choice on. */
static bool predict(fa_tuner *tuner, server *s, fa_diag *diag)
{
    fa_request request = small_request(NULL, FA_EFFORT_PREDICT);
    fa_answer answer = {.size = sizeof answer};
    char *json = NULL;
    if (fa_tune(tuner, &request, &answer, diag) != 0 ||
        fa_answer_cubin(tuner, &answer, &s->cubin, &s->cubin_size, diag) != 0)
        return false;
    answer.origin = FA_ORIGIN_PREDICTED;
    answer.driver_version = 0;
    answer.gpu.present = false;
    answer.gpu.uuid[0] = 0;
    if (fa_answer_write(&answer, &json, diag) != 0)
        return false;
    snprintf(s->kernel, sizeof s->kernel, "{\"answer\":%s}", json);
    free(json);
    return true;
}

TEST(what_a_service_predicts_is_launched_when_it_has_passed_its_proof)
{
    static const char *const scripts[] = {"", "fault * wrong"};
    static server s;
    for (int wrong = 0; wrong < 2; wrong++) {
        engine_fixture f;
        const fa_kernel *kernel = NULL;
        fa_diag diag = {{0}};
        CHECK(fixture_open(&f, ""));
        CHECK(predict(f.tuner, &s, &diag));
        CHECK(start(&s, serve));
        CHECK(fixture_restart(&f, scripts[wrong]));
        fa_close(&f.tuner);
        CHECK(unlink(f.store) == 0); /* nothing is known here */
        CHECK(open_served(&f, &s, &diag));
        CHECK_FAILS(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag),
                    FA_ENOTFOUND, "no GPU has proved yet");
        CHECK_INT(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &kernel, &diag),
                  wrong ? FA_ENOKERNEL : 0);
        CHECK_INT(fa_server_location(f.tuner)[0] == 0, wrong); /* however long it took */
        CHECK(wrong || (fa_kernel_answer(kernel)->origin == FA_ORIGIN_PREDICTED &&
                        fa_kernel_answer(kernel)->driver_version > 0));
        fixture_close(&f);
        stop(&s, true);
    }
}

TEST(neither_hits_nor_other_requests_wait_for_a_slow_server)
{
    static server s;
    engine_fixture f;
    pthread_t thread;
    const fa_kernel *kernel = NULL, *again = NULL;
    fa_diag diag = {{0}};
    CHECK(fixture_open(&f, ""));
    CHECK(predict(f.tuner, &s, &diag));
    CHECK(start(&s, serve));
    CHECK(open_served(&f, &s, &diag));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &kernel, &diag), diag);
    fa_study_trial row, *ranking = &row; /* of a service none, and that is said */
    fa_request request = {.size = sizeof request,
                          .problem = small_problem,
                          .effort = FA_EFFORT_PREDICT,
                          .ret_ranking = &ranking,
                          .ret_ranked = &(size_t){1}};
    fa_answer answer = {.size = sizeof answer};
    CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
    CHECK(ranking == NULL && *request.ret_ranked == 0);
    s.kernel[0] = 0;
    struct asking slow = {.f = &f, .problem = small_problem};
    slow.problem.seq_q = slow.problem.seq_k = 256;
    CHECK_INT(pthread_create(&thread, NULL, ask, &slow), 0);
    while (s.held < 0)
        usleep(1000);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &again, &diag), diag);
    CHECK(again == kernel);
    request.effort = FA_EFFORT_CACHED;
    request.problem.seq_q = request.problem.seq_k = 512;
    CHECK_INT(fa_get_best_kernel(f.tuner, &request.problem, FA_EFFORT_CACHED, &again, &diag),
              FA_ENOTFOUND);
    CHECK_TEXT(diag.text, "nothing here");
    CHECK_INT(fa_tune(f.tuner, &request, &answer, &diag), FA_ENOTFOUND);
    say_not(s.held, "after all not"); /* it waits still */
    pthread_join(thread, NULL);
    CHECK_INT(slow.rc, FA_ENOTFOUND);
    CHECK_TEXT(slow.diag.text, "after all not");
    fixture_close(&f);
    stop(&s, true);
}
