/* SPDX-License-Identifier: Apache-2.0
 *
 * What the store holds: winners, cubins, sweeps, the report's document.
 */
#include "service.h"

#include "hash.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINNERS_MAX = 10000, /* takes a second or two */
    PROBLEMS_MAX = 4000  /* of a report */
};

/* A question about the store, answered by run() on a thread of its share. */
typedef struct query {
    serve_work work; /* first */
    const char *type; /* NULL: JSON */
    unsigned status;  /* 0: 200 */
    char key[65];     /* of a cubin */
    int limit;        /* of winners */
    char tag[FA_HASH_HEX + 2]; /* "": no ETag */
} query;

static void reply(serve_work *work)
{
    const query *q = (query *)work;
    const size_t size = work->text.size;
    if (work->request != NULL && work->rc != 0) {
        serve_reply_failure(work->request, 0, work->rc, work->diag.text);
    } else if (work->request != NULL) {
        struct MHD_Response *response = serve_response(
            q->type != NULL ? q->type : "application/json", serve_text_of(&work->text), size);
        if (response != NULL && q->tag[0] != 0)
            MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, q->tag);
        serve_reply(work->request, q->status != 0 ? q->status : MHD_HTTP_OK, response);
    }
    serve_work_free(work);
}

static void submit(serve_service *service, serve_share *share, serve_request *request,
                   const query *asked, int (*run)(serve_work *, fa_tuner *, fa_diag *))
{
    query *q = serve_work_new(service, request, sizeof *q);
    if (q == NULL)
        return;
    const serve_work work = q->work;
    *q = *asked;
    q->work = work;
    q->work.lane = asked->work.lane;
    q->work.run = run;
    q->work.done = reply;
    serve_work_submit(share, &q->work);
}

/* Takes a text that was malloced into the reply. */
static int take_text(serve_work *work, int rc, char *text, const char *before, const char *after)
{
    if (rc == 0)
        fa_buf_printf(&work->text, "%s%s%s", before, text, after);
    free(text);
    return rc;
}

/* ---- winners --------------------------------------------------------------------------------*/
static int list_winners(serve_work *work, fa_tuner *tuner, fa_diag *diag)
{
    fa_answer *answer = NULL;
    size_t count = 0;
    fa_buf_text(&work->text, "{\"winners\":[");
    int rc = fa_list_winners(tuner, &answer, &count, diag);
    for (size_t i = 0; rc == 0 && i < count && i < (size_t)((query *)work)->limit; i++) {
        char *text = NULL;
        rc = fa_answer_write(&answer[i], &text, diag);
        rc = take_text(work, rc, text, i > 0 ? "," : "", "");
    }
    free(answer);
    fa_buf_text(&work->text, "]}");
    return rc;
}

void serve_get_winners(serve_service *service, serve_request *request)
{
    submit(service, &service->lists, request, &(query){.limit = WINNERS_MAX}, list_winners);
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
    fa_buf_append(&work->text, bytes, size);
    free(bytes);
    return 0;
}

void serve_get_cubin(serve_service *service, serve_request *request)
{
    query asked = {.type = "application/octet-stream"};
    if (strlen(request->part) != 64 || strspn(request->part, "0123456789abcdef") != 64) {
        serve_reply_failure(request, 0, FA_ENOTFOUND, "a cubin's key is 64 lower-case hex digits");
        return;
    }
    memcpy(asked.key, request->part, sizeof asked.key);
    submit(service, &service->lookups, request, &asked, read_cubin);
}

/* ---- sweeps ---------------------------------------------------------------------------------*/
static int list_sweeps(serve_work *work, fa_tuner *tuner, fa_diag *diag)
{
    char *text = NULL;
    const int rc = fa_queue_write(tuner, &text, diag);
    return take_text(work, rc, text, "", "");
}

void serve_get_sweeps(serve_service *service, serve_request *request)
{
    submit(service, &service->lists, request, &(query){.status = 0}, list_sweeps);
}

/* Its items are worked on by whoever runs `fa-tune worker`. */
static int enter_sweep(serve_work *work, fa_tuner *tuner, fa_diag *diag)
{
    fa_sweep_ask ask = {.items = NULL};
    fa_sweep sweep = {0};
    char *text = NULL;
    int rc = fa_sweep_ask_read(work->body.data != NULL ? work->body.data : "", work->body.size,
                               &ask, diag);
    ask.request.enqueue = true;
    if (rc == 0)
        rc = fa_run_sweep(tuner, &ask.request, &sweep, diag);
    if (rc == 0)
        rc = fa_sweep_write(&sweep, &text, diag);
    free(ask.items);
    return take_text(work, rc, text, "{\"sweep\":", "}");
}

void serve_post_sweep(serve_service *service, serve_request *request)
{
    submit(service, &service->lists, request, &(query){.status = MHD_HTTP_ACCEPTED}, enter_sweep);
}

/* ---- the report -----------------------------------------------------------------------------*/
static int write_report(serve_work *work, fa_tuner *tuner, fa_diag *diag)
{
    const fa_report_options options = {.format = (fa_report_format)REPORT_PAGE_JSON};
    return report_write(tuner, &options, PROBLEMS_MAX, &work->text, NULL, diag);
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
    const int rc = list_winners(work, tuner, diag);
    fa_buf_clear(&work->text);
    fa_buf_text(&work->text, "ready\n");
    return rc;
}

void serve_get_ready(serve_service *service, serve_request *request)
{
    submit(service, &service->lookups, request, &(query){.type = "text/plain", .limit = 1},
           try_store);
}
