/* SPDX-License-Identifier: Apache-2.0
 *
 * The client within a session: a server that says nothing, and threads that do not wait for one
 * another's requests. What a server says is test_remote.py's.
 */
#include "engine_fixture.h"

#include "buf.h"
#include "driver.h"
#include "hash.h"
#include "http_call.h"
#include "session.h"
#include "remote.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- a server -------------------------------------------------------------------------------*/
typedef struct server {
    char path[64], address[80];
    int fd;
    pthread_t thread;
    /* Set before it starts: what a request gets; NULL hangs until the test lets go. */
    const char *(*answer)(const char *request);
    const void *cubin; /* what requests for cubins get */
    size_t cubin_size;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int hanging, connections;
    bool let_go;
} server;

struct client {
    server *server;
    int fd;
};

static void hang(server *s)
{
    pthread_mutex_lock(&s->lock);
    s->hanging++;
    pthread_cond_broadcast(&s->changed);
    while (!s->let_go)
        pthread_cond_wait(&s->changed, &s->lock);
    s->hanging--;
    pthread_mutex_unlock(&s->lock);
}

static bool read_request(int fd, char *text, size_t room)
{
    size_t size = 0;
    for (;;) {
        ssize_t n = recv(fd, text + size, room - 1 - size, 0);
        if (n <= 0)
            return false;
        size += (size_t)n;
        text[size] = 0;
        const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
        size_t body = length != NULL ? (size_t)atol(length + 16) : 0;
        if (end != NULL && size >= (size_t)(end + 4 - text) + body)
            return true;
    }
}

static void *serve_client(void *context)
{
    struct client *c = context;
    char request[8192];
    while (read_request(c->fd, request, sizeof request)) {
        if (strncmp(request, "GET /v1/cubins/", 15) == 0) { /* the reply ends with the connection */
            char head[80];
            snprintf(head, sizeof head, "HTTP/1.1 200 X\r\nContent-Length: %zu\r\n\r\n",
                     c->server->cubin_size);
            send(c->fd, head, strlen(head), MSG_NOSIGNAL);
            send(c->fd, c->server->cubin, c->server->cubin_size, MSG_NOSIGNAL);
            break;
        }
        const char *answer = c->server->answer(request);
        if (answer == NULL) {
            hang(c->server);
            answer = "HTTP/1.1 404 X\r\nContent-Length: 59\r\n\r\n"
                     "{\"error\":{\"code\":\"FA_ENOTFOUND\",\"message\":\"after all not\"}}";
        }
        send(c->fd, answer, strlen(answer), MSG_NOSIGNAL);
        break;
    }
    close(c->fd);
    pthread_mutex_lock(&c->server->lock);
    c->server->connections--;
    pthread_cond_broadcast(&c->server->changed);
    pthread_mutex_unlock(&c->server->lock);
    free(c);
    return NULL;
}

static void *accept_all(void *context)
{
    server *s = context;
    for (;;) {
        int fd = accept(s->fd, NULL, NULL);
        if (fd < 0)
            return NULL;
        struct client *client = malloc(sizeof *client);
        pthread_t thread;
        *client = (struct client){s, fd};
        pthread_mutex_lock(&s->lock);
        s->connections++;
        pthread_mutex_unlock(&s->lock);
        pthread_create(&thread, NULL, serve_client, client);
        pthread_detach(thread);
    }
}

static bool start(server *s, const char *(*answer)(const char *request))
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    snprintf(s->path, sizeof s->path, "/tmp/fts-remote-%d", (int)getpid());
    snprintf(s->address, sizeof s->address, "unix:%s", s->path);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", s->path);
    unlink(s->path);
    s->answer = answer;
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return s->fd >= 0 && bind(s->fd, (struct sockaddr *)&address, sizeof address) == 0 &&
           listen(s->fd, 16) == 0 && pthread_create(&s->thread, NULL, accept_all, s) == 0;
}

/* Its clients have gone, or go now. */
static void stop(server *s)
{
    pthread_mutex_lock(&s->lock);
    s->let_go = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    shutdown(s->fd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->fd);
    unlink(s->path);
    pthread_mutex_lock(&s->lock);
    while (s->connections > 0)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void wait_for_hanging(server *s, int count)
{
    pthread_mutex_lock(&s->lock);
    while (s->hanging < count)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* ---- requests -------------------------------------------------------------------------------*/
static const char *never(const char *request)
{
    (void)request;
    return NULL;
}

static const char *ready(const char *request)
{
    (void)request;
    return "HTTP/1.1 200 X\r\nContent-Length: 6\r\nETag: \"abc\"\r\nRetry-After: 3\r\n\r\nready\n";
}

static int count_down(void *context)
{
    int *left = context;
    return --*left <= 0;
}

static void a_server_that_says_nothing_is_left_in_time(void)
{
    server s = {0};
    fa_http_address address;
    fa_http_reply reply;
    fa_diag diag = {{0}};
    int left = 3;
    CHECK(start(&s, never));
    CHECK_OK(fa_http_parse(s.path, &address, &diag), diag);
    CHECK_TEXT(address.shown, s.address);
    fa_http_call call = {.method = "GET", .target = "/", .limit = 100, .quiet_ms = 150};
    CHECK_INT(fa_http_do(&address, &call, &reply, &diag), FA_ETIMEOUT);
    CHECK_HAS(diag.text, "it says nothing");
    call.quiet_ms = 60000;
    call.idle = count_down;
    call.context = &left;
    CHECK_INT(fa_http_do(&address, &call, &reply, &diag), FA_ECANCELED);
    CHECK_INT(left, 0);
    stop(&s);
}

static void a_reply_comes_with_what_its_head_says(void)
{
    server s = {0};
    fa_http_address address;
    fa_http_reply reply;
    fa_http_call call = {.method = "GET", .target = "/ready", .limit = 6, .quiet_ms = 60000};
    fa_diag diag = {{0}};
    CHECK(start(&s, ready));
    CHECK_OK(fa_http_parse(s.address, &address, &diag), diag);
    CHECK_OK(fa_http_do(&address, &call, &reply, &diag), diag);
    CHECK_INT(reply.status, 200);
    CHECK(reply.body.size == 6 && memcmp(reply.body.data, "ready\n", 6) == 0);
    CHECK_TEXT(reply.etag, "abc");
    fa_buf_free(&reply.body);
    call.limit = 5;
    CHECK_INT(fa_http_do(&address, &call, &reply, &diag), FA_ECORRUPT);
    stop(&s);
}

/* ---- streams --------------------------------------------------------------------------------*/
#define STREAM "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n\r\n"

static const char *stream_text;

static const char *stream(const char *request)
{
    (void)request;
    return stream_text;
}

static void the_last_event_of_a_stream_is_the_reply(void)
{
    static char long_stream[200000];
    static const struct {
        const char *text;
        int rc, status;
        const char *body;
    } cases[] = {
        {STREAM "event: progress\ndata: {\"a\":1}\n\n:\n\nevent: done\ndata: {\"b\":2}\n\n", 0, 200,
         "{\"b\":2}"},
        {STREAM "event: failed\ndata: {}\n\n", 0, 422, "{}"},
        {STREAM "event: done\ndata: {\"b\"", FA_EIO, 0, NULL}, /* cut off */
        {STREAM "event: progress\ndata: {}\n\n", FA_EIO, 0, NULL},
        {STREAM, FA_EIO, 0, NULL},
        {"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{}", FA_EIO, 0, NULL},
        {"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n{}", 0, 200, "{}"},
        {"hello", FA_ECORRUPT, 0, NULL},
        {long_stream, 0, 200,
         "{}"}, /* longer than a reply may be: its events are dropped as they come */
    };
    size_t size = (size_t)snprintf(long_stream, sizeof long_stream, STREAM);
    while (size < sizeof long_stream - 100)
        size += (size_t)snprintf(long_stream + size, 64, "event: progress\ndata: {\"a\":1}\n\n");
    snprintf(long_stream + size, 64, "event: done\ndata: {}\n\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        server s = {0};
        fa_http_address address;
        fa_http_reply reply = {0};
        fa_http_call call = {
            .method = "GET", .target = "/", .events = true, .limit = 1000, .quiet_ms = 60000};
        fa_diag diag = {{0}};
        stream_text = cases[i].text;
        CHECK(start(&s, stream));
        CHECK_OK(fa_http_parse(s.address, &address, &diag), diag);
        CHECK_INT(fa_http_do(&address, &call, &reply, &diag), cases[i].rc);
        CHECK_INT(reply.status, cases[i].status);
        if (cases[i].body != NULL)
            CHECK(reply.body.size == strlen(cases[i].body) &&
                  memcmp(reply.body.data, cases[i].body, reply.body.size) == 0);
        fa_buf_free(&reply.body);
        stop(&s);
    }
}

static void which_server_is_asked_the_options_say_before_the_environment(void)
{
    static const char named[] = "http://127.0.0.1:1";
    static const struct {
        const char *option, *templates, *asked;
    } cases[] = {{NULL, NULL, "unix:/env"},
                 {"", NULL, NULL},
                 {named, NULL, named},
                 {NULL, "dir", NULL},
                 {named, "dir", named}};
    setenv("FA_TUNE_SERVER", "/env", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fa_options options = {.server = cases[i].option, .templates = cases[i].templates};
        fa_remote *remote = NULL;
        fa_diag diag = {{0}};
        CHECK_OK(fa_remote_make(&options, &remote, &diag), diag);
        CHECK_TEXT(remote != NULL ? fa_remote_address(remote) : "none",
                   cases[i].asked != NULL ? cases[i].asked : "none");
        fa_remote_free(&remote);
    }
    unsetenv("FA_TUNE_SERVER");
}

/* ---- threads --------------------------------------------------------------------------------*/
/* Only what asks for a sequence of 256 waits. */
static const char *long_for_256(const char *request)
{
    return strstr(request, "\"seq_q\":256") != NULL
               ? NULL
               : "HTTP/1.1 404 X\r\nContent-Length: 58\r\n\r\n"
                 "{\"error\":{\"code\":\"FA_ENOTFOUND\",\"message\":\"nothing here\"}}";
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
    if (fa_driver_open(&driver, NULL) != 0 || fa_driver_retain_context(driver, 0, NULL) != 0)
        return NULL;
    a->rc = fa_get_best_kernel(a->f->tuner, &a->problem, FA_EFFORT_CACHED, &kernel, &a->diag);
    fa_driver_release_context(driver, 0);
    fa_driver_close(&driver);
    return NULL;
}

static void neither_hits_nor_other_requests_wait_for_a_slow_server(void)
{
    engine_fixture f;
    server s = {0};
    pthread_t thread;
    const fa_kernel *kernel = NULL, *again = NULL;
    fa_diag diag = {{0}};
    CHECK(fixture_open(&f, ""));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK_TEXT(fa_server_location(f.tuner), "");
    CHECK(start(&s, long_for_256));
    fa_close(&f.tuner);
    fa_options options = fixture_options(&f);
    setenv("FA_TUNE_SERVER", s.address, 1); /* means nothing to a tuner with templates of its own */
    CHECK_OK(fa_open(&options, &f.tuner, &diag), diag);
    CHECK_TEXT(fa_server_location(f.tuner), "");
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    fa_options served = {.server = s.address};
    fa_source *service = NULL;
    CHECK_OK(fa_service_make(f.tuner, &served, &service, &diag), diag);
    fa_source_add(f.tuner, service); /* from here on there is one */
    unsetenv("FA_TUNE_SERVER");
    CHECK_TEXT(fa_server_location(f.tuner), s.address);

    struct asking slow = {.f = &f, .problem = small_problem};
    slow.problem.seq_q = slow.problem.seq_k = 256;
    CHECK_INT(pthread_create(&thread, NULL, ask, &slow), 0);
    wait_for_hanging(&s, 1);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &again, &diag), diag);
    CHECK(again == kernel);
    fa_problem other = small_problem;
    other.seq_q = other.seq_k = 512;
    CHECK_INT(fa_get_best_kernel(f.tuner, &other, FA_EFFORT_CACHED, &again, &diag), FA_ENOTFOUND);
    CHECK_TEXT(diag.text, "nothing here");
    fa_request request = {.size = sizeof request, .problem = other, .effort = FA_EFFORT_CACHED};
    fa_answer answer = {.size = sizeof answer};
    CHECK_INT(fa_tune(f.tuner, &request, &answer, &diag), FA_ENOTFOUND);
    CHECK_INT(s.hanging, 1); /* the slow one waits still */
    pthread_mutex_lock(&s.lock);
    s.let_go = true;
    pthread_cond_broadcast(&s.changed);
    pthread_mutex_unlock(&s.lock);
    pthread_join(thread, NULL);
    CHECK_INT(slow.rc, FA_ENOTFOUND);
    CHECK_TEXT(slow.diag.text, "after all not");
    fixture_close(&f);
    stop(&s);
}

/* ---- a service without a GPU ------------------------------------------------------------------*/
static char prediction[2 * FA_ANSWER_TEXT_MAX];

static const char *predict(const char *request)
{
    (void)request;
    return prediction;
}

/* An answer of the model's, as a service says it that has no GPU to prove it on. */
static bool predicted_by(fa_tuner *tuner, server *s, fa_diag *diag)
{
    fa_request request = {.size = sizeof request, .problem = small_problem,
                          .effort = FA_EFFORT_PREDICT};
    fa_answer answer = {.size = sizeof answer};
    void *cubin = NULL;
    char *json = NULL, sha256[FA_HASH_HEX], body[FA_ANSWER_TEXT_MAX];
    if (fa_tune(tuner, &request, &answer, diag) != 0 ||
        fa_answer_cubin(tuner, &answer, &cubin, &s->cubin_size, diag) != 0)
        return false;
    s->cubin = cubin;
    answer.origin = FA_ORIGIN_PREDICTED;
    answer.driver_version = 0;
    answer.gpu.present = false;
    answer.gpu.uuid[0] = 0;
    if (fa_answer_write(&answer, &json, diag) != 0)
        return false;
    fa_sha256(cubin, s->cubin_size, sha256);
    int size = snprintf(body, sizeof body,
                        "{\"answer\":%s,\"cubin\":{\"key\":\"%s\",\"sha256\":\"%s\",\"size\":%zu}}",
                        json, answer.cubin_key, sha256, s->cubin_size);
    snprintf(prediction, sizeof prediction, "HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n%s", size,
             body);
    free(json);
    return true;
}

static void what_a_service_predicts_is_launched_when_it_has_passed_its_proof(void)
{
    static const char *const scripts[] = {"", "fault * wrong"};
    for (int wrong = 0; wrong < 2; wrong++) {
        engine_fixture f;
        server s = {0};
        const fa_kernel *kernel = NULL;
        fa_diag diag = {{0}};
        CHECK(fixture_open(&f, ""));
        CHECK(predicted_by(f.tuner, &s, &diag));
        CHECK(start(&s, predict));
        CHECK(fixture_restart(&f, scripts[wrong]));
        fa_close(&f.tuner);
        CHECK(unlink(f.store) == 0); /* nothing is known here */
        fa_options options = fixture_options(&f);
        options.server = s.address;
        CHECK_OK(fa_open(&options, &f.tuner, &diag), diag);
        CHECK_OK(fa_driver_open(&f.driver, &diag), diag);
        CHECK_OK(fa_driver_retain_context(f.driver, 0, &diag), diag);
        int rc = fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag);
        CHECK_INT(rc, FA_ENOTFOUND);
        CHECK_HAS(diag.text, "no GPU has proved yet");
        rc = fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &kernel, &diag);
        CHECK_INT(rc, wrong ? FA_ENOKERNEL : 0);
        CHECK_TEXT(fa_server_location(f.tuner), wrong ? "" : s.address); /* however long it took */
        if (!wrong) {
            const fa_answer *answer = fa_kernel_answer(kernel);
            CHECK_INT(answer->origin, FA_ORIGIN_PREDICTED);
            CHECK(answer->driver_version > 0 && answer->gpu.present);
        }
        fixture_close(&f);
        stop(&s);
        free((void *)(uintptr_t)s.cubin);
    }
}

int main(void)
{
    TEST(a_server_that_says_nothing_is_left_in_time);
    TEST(a_reply_comes_with_what_its_head_says);
    TEST(the_last_event_of_a_stream_is_the_reply);
    TEST(which_server_is_asked_the_options_say_before_the_environment);
    TEST(what_a_service_predicts_is_launched_when_it_has_passed_its_proof);
    TEST(neither_hits_nor_other_requests_wait_for_a_slow_server);
    return check_done();
}
