/* SPDX-License-Identifier: Apache-2.0
 *
 * What the store holds: winners, cubins, sweeps, the report's document.
 */
#include "service.h"

#include "error.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINNERS_DEFAULT = 100,
    WINNERS_MAX = 10000, /* takes a second or two */
    PROBLEMS_MAX = 4000, /* of a report */
    REPORT_MAX_MS = 120000
};

/* A question about the store, answered by run() on a thread of its share. */
typedef struct query {
    serve_work work; /* first */
    serve_service *service;
    serve_request *request; /* NULL: its client is gone */
    char key[65];           /* of a cubin */
    int limit, count;
    fa_buf body;
    /* run()'s: the reply, a text or bytes */
    fa_buf text;
    const char *type;
    unsigned status, failing;  /* of failures; 0: their code's */
    char tag[FA_HASH_HEX + 2]; /* "": no ETag */
    uint64_t began_ns;
} query;

static void stop_waiting(serve_request *request)
{
    ((query *)request->waits_in)->request = NULL;
}

static void reply(serve_work *work)
{
    query *q = (query *)work;
    serve_request *request = q->request;
    const size_t size = q->text.size;
    if (request != NULL && work->rc != 0 && q->failing != 0) {
        serve_reply_refused(request, q->failing, work->rc, work->diag.text, 1);
    } else if (request != NULL && work->rc != 0) {
        serve_reply_failure(request, work->rc, work->diag.text);
    } else if (request != NULL) {
        const char *known = serve_header(request, MHD_HTTP_HEADER_IF_NONE_MATCH);
        const bool same = q->tag[0] != 0 && known != NULL && strstr(known, q->tag) != NULL;
        struct MHD_Response *response =
            serve_response(q->type, same ? strdup("") : serve_text_of(&q->text), same ? 0 : size);
        if (response != NULL && q->tag[0] != 0) {
            MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, q->tag);
            MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL,
                                    "private, max-age=31536000, immutable");
        }
        serve_reply(request, same ? MHD_HTTP_NOT_MODIFIED : q->status, response);
    }
    fa_buf_free(&q->body);
    fa_buf_free(&q->text);
    free(q);
}

static void submit(serve_service *service, serve_share *share, serve_request *request,
                   const query *asked, int (*run)(serve_work *, fa_tuner *, fa_diag *))
{
    query *q = malloc(sizeof *q);
    if (q == NULL) {
        serve_reply_busy(request, "out of memory: come back later");
        return;
    }
    *q = *asked;
    q->work.run = run;
    q->work.done = reply;
    q->service = service;
    q->request = request;
    if (q->type == NULL)
        q->type = "application/json";
    if (q->status == 0)
        q->status = MHD_HTTP_OK;
    request->waits_in = q;
    request->left = stop_waiting;
    serve_work_submit(share, &q->work);
}

/* Takes a text that was malloced into the reply. */
static int take_text(query *q, int rc, char *text, const char *before, const char *after)
{
    if (rc == 0)
        fa_buf_printf(&q->text, "%s%s%s", before, text, after);
    free(text);
    return rc;
}

/* ---- winners --------------------------------------------------------------------------------*/
static int take_winner(void *context, const fa_answer *answer)
{
    query *q = context;
    char *text = NULL;
    if (q->count == q->limit)
        return 1;
    const int rc = fa_answer_write(answer, &text, &q->work.diag);
    return take_text(q, rc, text, q->count++ > 0 ? "," : "", "");
}

static int list_winners(serve_work *work, fa_tuner *tuner, fa_diag *diag)
{
    query *q = (query *)work;
    q->count = 0;
    fa_buf_clear(&q->text);
    fa_buf_text(&q->text, "{\"winners\":[");
    const int rc = fa_list_winners(tuner, take_winner, q, diag);
    fa_buf_text(&q->text, "]}");
    return rc < 0 ? rc : 0;
}

void serve_get_winners(serve_service *service, serve_request *request)
{
    const char *limit = serve_argument(request, "limit");
    char *end = NULL;
    const long most = limit != NULL ? strtol(limit, &end, 10) : WINNERS_DEFAULT;
    if (limit != NULL &&
        (*limit < '0' || *limit > '9' || *end != 0 || most < 1 || most > WINNERS_MAX))
        serve_reply_failure(request, FA_EINVAL, "limit must be 1 to 10000");
    else
        submit(service, &service->lists, request, &(query){.limit = (int)most}, list_winners);
}

/* ---- cubins ---------------------------------------------------------------------------------*/
static int read_cubin(serve_work *work, fa_tuner *tuner, fa_diag *diag)
{
    query *q = (query *)work;
    fa_answer answer = {.size = sizeof answer};
    void *bytes = NULL;
    size_t size = 0;
    char hash[FA_HASH_HEX];
    memcpy(answer.cubin_key, q->key, sizeof q->key);
    const int rc = fa_answer_cubin(tuner, &answer, &bytes, &size, diag);
    if (rc != 0)
        return rc;
    fa_sha256(bytes, size, hash);
    snprintf(q->tag, sizeof q->tag, "\"%s\"", hash);
    fa_buf_clear(&q->text);
    fa_buf_append(&q->text, bytes, size);
    free(bytes);
    return 0;
}

void serve_get_cubin(serve_service *service, serve_request *request)
{
    query asked = {.type = "application/octet-stream"};
    if (strlen(request->part) != 64 || strspn(request->part, "0123456789abcdef") != 64) {
        serve_reply_failure(request, FA_ENOTFOUND, "a cubin's key is 64 lower-case hex digits");
        return;
    }
    memcpy(asked.key, request->part, sizeof asked.key);
    submit(service, &service->lookups, request, &asked, read_cubin);
}

/* ---- sweeps ---------------------------------------------------------------------------------*/
static int list_sweeps(serve_work *work, fa_tuner *tuner, fa_diag *diag)
{
    query *q = (query *)work;
    char *text = NULL;
    const int rc = fa_queue_write(tuner, &text, diag);
    fa_buf_clear(&q->text);
    if (rc == FA_ESTORE) /* no store that has a queue */
        fa_buf_text(&q->text, "{\"sweeps\":[]}");
    return rc == FA_ESTORE ? 0 : take_text(q, rc, text, "", "");
}

void serve_get_sweeps(serve_service *service, serve_request *request)
{
    submit(service, &service->lists, request, &(query){.limit = 0}, list_sweeps);
}

/* Its items are worked on by whoever runs `fa-tune worker`. */
static int enter_sweep(serve_work *work, fa_tuner *tuner, fa_diag *diag)
{
    query *q = (query *)work;
    fa_sweep_request request;
    fa_sweep_item *items = NULL;
    fa_sweep sweep = {0};
    char plan[512], *text = NULL;
    int rc = fa_sweep_ask_read(q->body.data != NULL ? q->body.data : "", q->body.size, &request,
                               &items, plan, diag);
    if (rc == 0)
        rc = fa_enqueue_sweep(tuner, &request, &sweep, diag);
    if (rc == FA_ESTORE && fa_store_location(tuner)[0] == '/')
        rc = FA_ENOTSUP; /* the store has no queue; it is not broken */
    if (rc == 0)
        rc = fa_sweep_write(&sweep, &text, diag);
    free(items);
    fa_buf_clear(&q->text);
    return take_text(q, rc, text, "{\"sweep\":", "}");
}

void serve_post_sweep(serve_service *service, serve_request *request)
{
    query asked = {.status = MHD_HTTP_ACCEPTED, .body = request->body};
    request->body = (fa_buf){0};
    submit(service, &service->lists, request, &asked, enter_sweep);
}

/* ---- the report -----------------------------------------------------------------------------*/
static bool stops(const void *context, int32_t done, int32_t all)
{
    const query *q = context;
    (void)done, (void)all;
    return atomic_load(&q->service->stopping) ||
           (uv_hrtime() - q->began_ns) / 1000000 > REPORT_MAX_MS;
}

static int write_report(serve_work *work, fa_tuner *tuner, fa_diag *diag)
{
    query *q = (query *)work;
    const report_options options = {
        .format = REPORT_PAGE_JSON, .most = PROBLEMS_MAX, .progress = stops, .context = q};
    q->began_ns = uv_hrtime();
    const int rc = report_write(tuner, &options, &q->text, NULL, diag);
    return rc == FA_ECANCELED
               ? fa_fail(diag, FA_ETIMEOUT,
                         "the report takes too long: ask for a part of it, as in fa-tune report "
                         "--gpu L4")
               : rc;
}

/* One at a time. */
void serve_get_report(serve_service *service, serve_request *request)
{
    submit(service, &service->lists, request, &(query){.work.lane = 1}, write_report);
}

/* ---- readiness ------------------------------------------------------------------------------*/
/* Whether the store can be read, which opens it anew where it was broken. */
static int try_store(serve_work *work, fa_tuner *tuner, fa_diag *diag)
{
    query *q = (query *)work;
    const int rc = list_winners(work, tuner, diag);
    fa_buf_clear(&q->text);
    fa_buf_text(&q->text, "ready\n");
    return rc;
}

void serve_get_ready(serve_service *service, serve_request *request)
{
    submit(service, &service->lookups, request,
           &(query){.type = "text/plain", .limit = 1, .failing = MHD_HTTP_SERVICE_UNAVAILABLE},
           try_store);
}
