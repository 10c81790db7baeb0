/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking a server before the local store and tuner.
 *
 * What the server answers is the answer, also when that is a failure of the request itself. When the
 * server is gone, or cannot do its part, or says what cannot be, the caller does without: one note,
 * and the server is not asked again for a while.
 */
#include "buf.h"

#include "error.h"
#include "hash.h"
#include "remote.h"
#include "session.h"
#include "wire.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    LIST_MAX = 64 << 20,
    RETRY_MS = 200,
    RETRY_MOST_MS = 2000,
    PAUSE_MS = 5000,  /* a server that is gone is not asked again for so long, */
    PAUSE_SHARE = 10, /* and one that was waited for in vain for this many times the wait */
    TOKEN_MAX = 256
};

static const char source_id;

/* ---- opening --------------------------------------------------------------------------------*/
/* The text of a file that nobody else can have written. */
static int read_own_file(const char *path, fa_buf *ret_text, fa_diag *diag)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    bool known = fd >= 0 && fstat(fd, &info) == 0;
    bool foreign =
        known && ((info.st_uid != geteuid() && info.st_uid != 0) || (info.st_mode & 022) != 0);
    bool read = known && !foreign && fa_buf_read_fd(ret_text, fd, 4096) == 0;
    if (fd >= 0)
        close(fd);
    if (foreign)
        return fa_fail(diag, FA_EUNTRUSTED,
                       "the token file %s is another user's, or others can write to it", path);
    return read ? 0 : fa_fail(diag, FA_EIO, "the token file %s cannot be read", path);
}

/* One word of printable characters. */
static int read_token(const char *path, char ret_token[TOKEN_MAX], fa_diag *diag)
{
    fa_buf text = {0};
    int rc = read_own_file(path, &text, diag);
    size_t size = text.size, plain = 0;
    while (size > 0 && strchr("\r\n \t", text.data[size - 1]) != NULL)
        size--;
    while (plain < size && text.data[plain] > ' ' && text.data[plain] < 0x7f)
        plain++;
    if (rc == 0 && plain < size)
        rc = fa_fail(diag, FA_EINVAL, "the token file %s holds more than one word", path);
    else if (rc == 0 && (size == 0 || size >= TOKEN_MAX))
        rc = fa_fail(diag, FA_EINVAL, "the token in %s must have 1 to %d characters", path,
                     TOKEN_MAX - 1);
    else if (rc == 0)
        snprintf(ret_token, TOKEN_MAX, "%.*s", (int)size, text.data);
    fa_buf_free(&text);
    return rc;
}

int fa_remote_make(const fa_options *options, fa_remote **ret_remote, fa_diag *diag)
{
    /* Templates of the caller's own are the server's only where the caller says so. */
    bool own = options->templates != NULL || options->untrusted_templates;
    const char *address = options->server != NULL ? options->server
                          : own                   ? NULL
                                                  : getenv("FA_TUNE_SERVER");
    const char *file = getenv("FA_TUNE_TOKEN_FILE");
    char token[TOKEN_MAX] = "";
    *ret_remote = NULL;
    if (address == NULL || address[0] == 0)
        return 0;
    fa_remote *remote = calloc(1, sizeof *remote);
    if (remote == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a server");
    int rc = 0;
    if (file != NULL && file[0] != 0 && strncmp(address, "http://", 7) == 0)
        rc = read_token(file, token, diag);
    if (rc == 0)
        rc = fa_http_make(address, token, &remote->http, diag);
    if (rc != 0) {
        free(remote);
        return rc;
    }
    remote->source.id = &source_id;
    *ret_remote = remote;
    return 0;
}

void fa_remote_free(fa_remote **remote)
{
    if (remote == NULL || *remote == NULL)
        return;
    fa_http_free(&(*remote)->http);
    free(*remote);
    *remote = NULL;
}

fa_remote *fa_remote_of(const fa_tuner *tuner)
{
    return (fa_remote *)fa_source_of(tuner, &source_id);
}

bool fa_remote_usable(const fa_tuner *tuner)
{
    const fa_remote *remote = fa_remote_of(tuner);
    return remote != NULL && fa_remote_now_ms() >= atomic_load(&remote->paused_until_ms);
}

int fa_remote_give_up(fa_tuner *tuner, const char *why)
{
    int64_t pause_ms = PAUSE_SHARE * atomic_exchange(&fa_remote_of(tuner)->waited_ms, 0);
    atomic_store(&fa_remote_of(tuner)->paused_until_ms,
                 fa_remote_now_ms() + (pause_ms > PAUSE_MS ? pause_ms : PAUSE_MS));
    return fa_remote_do_without(tuner, why);
}

int fa_remote_do_without(fa_tuner *tuner, const char *why)
{
    fa_remote *remote = fa_remote_of(tuner);
    atomic_store(&remote->gone, true);
    if (!atomic_exchange(&remote->noted, true)) {
        pthread_mutex_lock(&tuner->work); /* notes come one at a time */
        fa_note(tuner,
                "the server %s cannot be used: %s; using the store %s and this machine "
                "instead",
                fa_http_address(remote->http), why, tuner->store_path);
        pthread_mutex_unlock(&tuner->work);
    }
    return FA_SOURCE_NONE;
}

const char *fa_server_location(const fa_tuner *tuner)
{
    fa_remote *remote = tuner != NULL ? fa_remote_of(tuner) : NULL;
    return remote != NULL && !atomic_load(&remote->gone) ? fa_http_address(remote->http) : "";
}

/* ---- one request ----------------------------------------------------------------------------*/
/* Failures of the request itself, which this machine could not answer either. Requests were checked here: a server
 * that calls one invalid is of an older version, and its error is no answer. */
bool fa_remote_is_answer(int code)
{
    return code == FA_ENOTFOUND || code == FA_ENOTSUP || code == FA_ECOMPILE || code == FA_EALIGN ||
           code == FA_ENOKERNEL || code == FA_ECANCELED;
}

/* Asks once more if the failure may be temporary. */
static int ask_with_retry(fa_remote *remote, const fa_http_call *call, fa_http_reply *ret_reply,
                          fa_diag *diag)
{
    for (int tries = 0;; tries++) {
        *ret_reply = (fa_http_reply){0};
        int rc = fa_http_do(remote->http, call, ret_reply, diag);
        bool trouble =
            rc == FA_EIO || (rc == 0 && ret_reply->status >= 500 && ret_reply->status != 504);
        if (!trouble || tries > 0)
            return rc;
        int64_t ms =
            ret_reply->retry_after_s > 0 ? (int64_t)ret_reply->retry_after_s * 1000 : RETRY_MS;
        ms = ms < RETRY_MOST_MS ? ms : RETRY_MOST_MS;
        fa_buf_free(&ret_reply->body);
        const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
        nanosleep(&pause, NULL);
    }
}

/* What a reply other than 200 means: the request's own failure, or FA_SOURCE_NONE. */
static int read_failure_reply(fa_tuner *tuner, const fa_http_reply *reply, fa_diag *diag)
{
    int code = FA_EIO;
    fa_diag message = {{0}};
    char why[1200];
    if (fa_failure_read(reply->body.data, reply->body.size, &code, &message, NULL) == 0) {
        if (fa_remote_is_answer(code))
            return fa_fail(diag, code, "%s", message.text);
        return fa_remote_give_up(tuner, message.text);
    }
    snprintf(why, sizeof why, "it answers with status %d", reply->status);
    return fa_remote_give_up(tuner, why);
}

/* 0 with a reply of status 200 or `other`, whose body the caller frees. */
int fa_remote_ask(fa_tuner *tuner, const fa_http_call *call, int other, fa_http_reply *ret_reply,
                  fa_diag *diag)
{
    fa_diag why = {{0}};
    int64_t began_ms = fa_remote_now_ms();
    int rc = ask_with_retry(fa_remote_of(tuner), call, ret_reply, &why);
    if (rc == FA_ECANCELED)
        return fa_fail(diag, rc, "canceled while the server was asked");
    if (rc != 0) {
        atomic_store(&fa_remote_of(tuner)->waited_ms, fa_remote_now_ms() - began_ms);
        return fa_remote_give_up(tuner, why.text);
    }
    if (ret_reply->status == 200 || ret_reply->status == other) {
        atomic_store(&fa_remote_of(tuner)->gone, false);
        return 0;
    }
    rc = read_failure_reply(tuner, ret_reply, diag);
    if (rc != FA_SOURCE_NONE)
        atomic_store(&fa_remote_of(tuner)->gone, false);
    fa_buf_free(&ret_reply->body);
    return rc;
}

/* ---- winners and cubins ---------------------------------------------------------------------*/
int fa_remote_winners(fa_tuner *tuner, fa_answer_visit *visit, void *context, fa_diag *diag)
{
    fa_http_reply reply;
    fa_http_call call = {.method = "GET",
                         .path = "/v1/winners?limit=10000",
                         .limit = LIST_MAX,
                         .whole_ms = FA_REMOTE_LONG_MS};
    fa_diag why = {{0}};
    cJSON *json = NULL;
    if (!fa_remote_usable(tuner))
        return FA_SOURCE_NONE;
    int rc = fa_remote_ask(tuner, &call, 200, &reply, diag);
    if (rc != 0)
        return rc;
    rc = fa_wire_parse(reply.body.data, reply.body.size, LIST_MAX, "winners", &json, &why);
    fa_buf_free(&reply.body);
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(json, "winners");
    if (rc == 0 && !cJSON_IsArray(array))
        rc = fa_fail(&why, FA_EINVAL, "winners: there is no array of them");
    fa_answer answer;
    for (const cJSON *item = array != NULL ? array->child : NULL; item != NULL && rc == 0;
         item = item->next)
        rc = fa_wire_read_answer(item, &answer, &why); /* all are good before one is shown */
    if (rc != 0) {
        cJSON_Delete(json);
        return fa_remote_give_up(tuner, why.text);
    }
    for (const cJSON *item = array->child; item != NULL && rc == 0; item = item->next) {
        fa_wire_read_answer(item, &answer, NULL);
        rc = visit(context, &answer);
    }
    cJSON_Delete(json);
    return rc;
}

int fa_remote_cubin_get(fa_tuner *tuner, const char *key, const fa_remote_cubin *expected,
                        void **ret_bytes, size_t *ret_size, fa_diag *diag)
{
    char path[100], sha256[FA_HASH_HEX];
    fa_http_reply reply;
    fa_http_call call = {.method = "GET",
                         .path = path,
                         .whole_ms = FA_REMOTE_LONG_MS,
                         .limit = expected != NULL ? expected->size : FA_REMOTE_CUBIN_MAX};
    if (!fa_remote_usable(tuner))
        return FA_SOURCE_NONE;
    if (!fa_wire_is_hash(key))
        return fa_fail(diag, FA_EINVAL, "\"%.64s\" is no cubin's key", key);
    snprintf(path, sizeof path, "/v1/cubins/%.64s", key);
    int rc = fa_remote_ask(tuner, &call, 200, &reply, diag);
    if (rc != 0)
        return rc;
    fa_sha256(reply.body.data != NULL ? reply.body.data : "", reply.body.size, sha256);
    if (reply.body.size == 0 ||
        strcmp(sha256, expected != NULL ? expected->sha256 : reply.etag) != 0) {
        fa_buf_free(&reply.body);
        return fa_remote_give_up(tuner, "a cubin's bytes do not match its SHA-256");
    }
    *ret_bytes = reply.body.data;
    *ret_size = reply.body.size;
    return 0;
}

int fa_remote_check(fa_remote *remote, char *ret_text, size_t size, fa_diag *diag)
{
    static const char *const paths[] = {"/readyz", "/v1/jobs"}; /* the second needs the token */
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        fa_http_reply reply;
        fa_http_call call = {
            .method = "GET", .path = paths[i], .limit = LIST_MAX, .whole_ms = FA_REMOTE_ASK_MS};
        int rc = fa_http_do(remote->http, &call, &reply, diag);
        if (rc != 0)
            return rc;
        fa_buf_free(&reply.body);
        if (reply.status == 401)
            return fa_fail(diag, FA_EUNTRUSTED,
                           "it wants another token than FA_TUNE_TOKEN_FILE has");
        if (reply.status != 200)
            return fa_fail(diag, FA_EIO, "it answers with status %d", reply.status);
    }
    snprintf(ret_text, size, "%s is ready%s", fa_http_address(remote->http),
             fa_http_is_local(remote->http) ? "" : "; what it measured is proved here once more");
    return 0;
}

/* ---- jobs -----------------------------------------------------------------------------------*/
/* Follows a job of the server by its events until the job ends.
 *
 * A stream that breaks is opened again for a few seconds, because a service that is restarted continues its jobs. A
 * server sends something at least every 15 seconds; a quiet stream has failed after QUIET_MS. */
enum {
    QUIET_MS = 45000,
    PATIENCE_MS = 3000,
    REOPEN_MS = 200,
    CANCEL_MS = 3000,
    FAILURE_MAX = 65536
};

/* ---- events ---------------------------------------------------------------------------------*/
enum { EVENT_NAME_MAX = 32, EVENT_DATA_MAX = 1 << 18 };

/* Server-sent events as they arrive: lines "event: NAME", "data: TEXT" (several are joined by line breaks) and an
 * empty line that ends the event. Comments, which keep a connection alive, and other fields are passed over. */
struct events {
    int (*event)(void *context, const char *name, const char *data, size_t size);
    void *context;
    fa_buf line, data;
    char name[EVENT_NAME_MAX];
    bool after_return; /* the last byte was CR: an LF belongs to it */
};

static void read_event_field(struct events *events)
{
    const char *line = events->line.data, *colon = strchr(line, ':');
    size_t name = colon != NULL ? (size_t)(colon - line) : strlen(line);
    const char *value = colon == NULL ? "" : colon[1] == ' ' ? colon + 2 : colon + 1;
    if (name == 5 && memcmp(line, "event", 5) == 0) {
        snprintf(events->name, sizeof events->name, "%s", value);
    } else if (name == 4 && memcmp(line, "data", 4) == 0) {
        if (events->data.size > 0)
            fa_buf_text(&events->data, "\n");
        fa_buf_text(&events->data, value);
    }
}

static int end_event_line(struct events *events)
{
    int rc = 0;
    if (events->line.size > 0) {
        read_event_field(events);
    } else if (events->data.size > 0) {
        rc = events->event(events->context, events->name, events->data.data, events->data.size);
        fa_buf_clear(&events->data);
        events->name[0] = 0;
    }
    fa_buf_clear(&events->line);
    return rc;
}

/* Feeds bytes as they come. Non-zero: what event() returned, or FA_ECORRUPT. */
static int feed_events(struct events *events, const char *bytes, size_t size)
{
    int rc = 0;
    for (size_t i = 0; i < size && rc == 0; i++) {
        bool second = events->after_return && bytes[i] == '\n';
        events->after_return = bytes[i] == '\r';
        if (second)
            continue;
        if (bytes[i] == '\n' || bytes[i] == '\r')
            rc = end_event_line(events);
        else
            fa_buf_append(&events->line, &bytes[i], 1);
        if (bytes[i] == 0 || events->line.failed || events->data.failed ||
            events->line.size > EVENT_DATA_MAX || events->data.size > EVENT_DATA_MAX)
            rc = FA_ECORRUPT;
    }
    return rc;
}

static void free_events(struct events *events)
{
    fa_buf_free(&events->line);
    fa_buf_free(&events->data);
}

/* ---- a job ----------------------------------------------------------------------------------*/
enum how { UNDER_WAY, DONE, FAILED, CANCELED };

struct following {
    const fa_follower *follower;
    fa_buf *result;
    enum how how;
    bool stopped; /* by the follower */
    bool heard;   /* an event in this stream */
    struct events events;
};

static int on_job_event(void *context, const char *name, const char *data, size_t size)
{
    struct following *f = context;
    f->heard = true;
    f->how = strcmp(name, "done") == 0       ? DONE
             : strcmp(name, "failed") == 0   ? FAILED
             : strcmp(name, "canceled") == 0 ? CANCELED
                                             : UNDER_WAY;
    if (f->how != UNDER_WAY) {
        fa_buf_clear(f->result);
        fa_buf_append(f->result, data, size);
        return 1; /* nothing else is to come */
    }
    if (strcmp(name, "progress") != 0 && strcmp(name, "item") != 0)
        return 0;
    int rc = f->follower->event != NULL ? f->follower->event(f->follower->context, data, size) : 0;
    f->stopped = rc > 0;
    return rc;
}

static int on_stream_data(void *context, const char *bytes, size_t size)
{
    struct following *f = context;
    return feed_events(&f->events, bytes, size);
}

static int on_stream_idle(void *context)
{
    struct following *f = context;
    f->stopped = f->follower->idle != NULL && f->follower->idle(f->follower->context) != 0;
    return f->stopped;
}

/* Cancels the job unless others wait for it too. */
static void cancel_job(fa_http *http, const char *job)
{
    char path[128];
    fa_http_reply reply = {0};
    snprintf(path, sizeof path, "/v1/jobs/%s?unless=shared", job);
    fa_http_call call = {
        .method = "DELETE", .path = path, .limit = FAILURE_MAX, .whole_ms = CANCEL_MS};
    if (fa_http_do(http, &call, &reply, NULL) == 0)
        fa_buf_free(&reply.body);
}

/* One stream, to its end. */
static int read_stream(fa_http *http, const char *path, struct following *f, fa_http_reply *reply,
                       fa_diag *diag)
{
    fa_http_call call = {.method = "GET",
                         .path = path,
                         .limit = FAILURE_MAX,
                         .quiet_ms = QUIET_MS,
                         .data = on_stream_data,
                         .idle = on_stream_idle,
                         .context = f};
    *reply = (fa_http_reply){0};
    f->events = (struct events){.event = on_job_event, .context = f};
    f->heard = false;
    int rc = fa_http_do(http, &call, reply, diag);
    free_events(&f->events);
    if (f->how != UNDER_WAY)
        rc = 0;
    return rc;
}

static bool pause_before_retry(struct following *f)
{
    const struct timespec pause = {0, REOPEN_MS * 1000000};
    nanosleep(&pause, NULL);
    return on_stream_idle(f) == 0;
}

static int read_job_end(struct following *f, bool *ret_answered, fa_diag *diag)
{
    int code = FA_EIO;
    fa_diag message = {{0}};
    *ret_answered = true;
    if (f->how == DONE)
        return f->result->failed ? fa_fail(diag, FA_ENOMEM, "out of memory for a job's result") : 0;
    if (f->how == CANCELED)
        return fa_fail(diag, FA_ECANCELED, "the job was canceled at the server");
    if (fa_failure_read(f->result->data, f->result->size, &code, &message, diag) != 0) {
        *ret_answered = false;
        return FA_ECORRUPT;
    }
    return fa_fail(diag, code, "%s", message.text);
}

int fa_remote_follow(fa_http *http, const char *job, const fa_follower *follower,
                     fa_buf *ret_result, bool *ret_answered, fa_diag *diag)
{
    struct following f = {.follower = follower, .result = ret_result};
    char path[128];
    int64_t lost_ms = 0; /* since when nothing was heard of the job */
    *ret_answered = false;
    snprintf(path, sizeof path, "/v1/jobs/%s/events", job);
    for (;;) {
        fa_http_reply reply;
        int rc = read_stream(http, path, &f, &reply, diag);
        fa_buf_free(&reply.body);
        if (f.stopped) {
            cancel_job(http, job);
            *ret_answered = true;
            return fa_fail(diag, FA_ECANCELED, "canceled while the server tuned");
        }
        if (f.how != UNDER_WAY)
            return read_job_end(&f, ret_answered, diag);
        if (rc == FA_ECORRUPT || rc == FA_ENOTSUP || rc == FA_ENOMEM || rc == FA_EUNTRUSTED)
            return rc;
        if (rc == 0 && reply.status == 404)
            return fa_fail(diag, FA_ENOTFOUND, "the server no longer knows the job");
        if (rc == 0)
            rc = fa_fail(diag, FA_EIO, "its events ended with status %d and no end of the job",
                         reply.status);
        int64_t now = fa_remote_now_ms();
        if (f.heard || lost_ms == 0)
            lost_ms = now;
        if (now - lost_ms >= PATIENCE_MS)
            return rc == FA_ENOTFOUND ? FA_EIO : rc;
        if (!pause_before_retry(&f)) {
            *ret_answered = true;
            return fa_fail(diag, FA_ECANCELED, "canceled while the server was gone");
        }
    }
}
