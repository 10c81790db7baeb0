/* SPDX-License-Identifier: Apache-2.0
 *
 * Follows a job of the server by its events until the job ends.
 *
 * A stream that breaks is opened again for a few seconds, because a service that is restarted continues its jobs. A
 * server sends something at least every 15 seconds; a quiet stream has failed after QUIET_MS.
 */
#include "remote.h"

#include "error.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    QUIET_MS = 45000,
    PATIENCE_MS = 3000,
    PAUSE_MS = 200,
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
    const struct timespec pause = {0, PAUSE_MS * 1000000};
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
