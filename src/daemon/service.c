/* SPDX-License-Identifier: Apache-2.0
 *
 * The service: its settings and its store; what the store holds: winners, cubins, sweeps, the report's document; which handler answers a request, who may send it, and how large its body may be;
 * the description of all that, the metrics and the page.
 */
#include "service.h"

#include "buf.h"
#include "error.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    WINNERS_MAX = 10000, /* takes a second or two */
    PROBLEMS_MAX = 4000  /* of a report */
};

/* A question about the store, answered by run() on a thread of its share. */
typedef struct query {
    serve_work work;           /* first */
    const char *type;          /* NULL: JSON */
    unsigned status;           /* 0: 200 */
    char key[65];              /* of a cubin */
    int limit;                 /* of winners */
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
    FA_ENDS(fa_free_at) fa_answer *answer = NULL;
    size_t count = 0;
    fa_buf_text(&work->text, "{\"winners\":[");
    int rc = fa_list_winners(tuner, &answer, &count, NULL, diag);
    for (size_t i = 0; rc == 0 && i < count && i < (size_t)((query *)work)->limit; i++) {
        char *text = NULL;
        rc = fa_answer_write(&answer[i], &text, diag);
        rc = take_text(work, rc, text, i > 0 ? "," : "", "");
    }
    fa_buf_text(&work->text, "]}");
    return rc;
}

static void get_winners(serve_service *service, serve_request *request)
{
    submit(service, &service->lists, request, &(query){.limit = WINNERS_MAX}, list_winners);
}

/* ---- cubins ---------------------------------------------------------------------------------*/
static int read_cubin(serve_work *work, fa_tuner *tuner, fa_diag *diag)
{
    query *q = (query *)work;
    fa_answer answer = {.size = sizeof answer};
    FA_ENDS(fa_free_at) void *bytes = NULL;
    size_t size = 0;
    char hash[FA_HASH_HEX];
    memcpy(answer.cubin_key, q->key, sizeof q->key);
    FA_OR_RETURN(fa_answer_cubin(tuner, &answer, &bytes, &size, diag));
    fa_sha256(bytes, size, hash);
    snprintf(q->tag, sizeof q->tag, "\"%s\"", hash);
    fa_buf_append(&work->text, bytes, size);
    return 0;
}

static void get_cubin(serve_service *service, serve_request *request)
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

static void get_sweeps(serve_service *service, serve_request *request)
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

static void post_sweep(serve_service *service, serve_request *request)
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
static void get_report(serve_service *service, serve_request *request)
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

static void get_ready(serve_service *service, serve_request *request)
{
    submit(service, &service->lookups, request, &(query){.type = "text/plain", .limit = 1},
           try_store);
}

/* ---- the process ----------------------------------------------------------------------------*/
static void get_health(serve_service *service, serve_request *request)
{
    (void)service;
    serve_reply(request, MHD_HTTP_OK, serve_response("text/plain", strdup("ok\n"), 3));
}

static void get_openapi(serve_service *service, serve_request *request)
{
    (void)service;
    serve_reply_json(request, MHD_HTTP_OK, strdup(serve_openapi_document));
}

static int64_t resident_bytes(void)
{
    FA_ENDS(fa_buf_free) fa_buf text = {0};
    long pages = 0;
    if (fa_buf_read_file(&text, "/proc/self/statm", 4096) == 0)
        sscanf(text.data, "%*s %ld", &pages);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static void get_metrics(serve_service *service, serve_request *request)
{
    const struct {
        const char *name, *help; /* a name that ends in _total counts up for ever */
        int64_t value;
    } metrics[] = {
        {"connections", "Open connections.", serve_http_connections(service->http)},
        {"requests_total", "Requests.", service->counts.requests},
        {"unauthorized_total", "Requests without the token.", service->unauthorized},
        {"refused_total", "Requests asked to come back later.", service->counts.refused},
        {"cache_hits_total", "Requests answered from memory.", service->hits},
        {"lookups_total", "Lookups in the store.", service->looked_up},
        {"tunes_total", "Tunes accepted.", service->tuned},
        {"tunes_running", "Tunes under way.", service->tunes.running},
        {"tunes_waiting", "Tunes that wait for their GPU.", service->tunes.waiting},
        {"resident_bytes", "Memory of this process.", resident_bytes()},
    };
    fa_buf out = {0};
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        fa_buf_printf(
            &out, "# HELP fa_tune_serve_%s %s\n# TYPE fa_tune_serve_%s %s\nfa_tune_serve_%s %lld\n",
            metrics[i].name, metrics[i].help, metrics[i].name,
            strstr(metrics[i].name, "_total") != NULL ? "counter" : "gauge", metrics[i].name,
            (long long)metrics[i].value);
    const size_t size = out.size;
    serve_reply(request, MHD_HTTP_OK,
                serve_response("text/plain; version=0.0.4", serve_text_of(&out), size));
}

/* The page's own policy names its script and style; frame-ancestors works in a header only. */
static void get_page(serve_service *service, serve_request *request)
{
    static const char *const headers[][2] = {
        {"Content-Security-Policy", "frame-ancestors 'none'"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Referrer-Policy", "no-referrer"},
        {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
    };
    fa_buf out = {0};
    (void)service;
    for (size_t i = 0; i < sizeof report_live_part / sizeof *report_live_part; i++)
        fa_buf_append(&out, report_live_part[i].bytes, report_live_part[i].size);
    const size_t size = out.size;
    struct MHD_Response *page =
        serve_response("text/html; charset=utf-8", serve_text_of(&out), size);
    for (size_t i = 0; page != NULL && i < sizeof headers / sizeof *headers; i++)
        MHD_add_response_header(page, headers[i][0], headers[i][1]);
    serve_reply(request, MHD_HTTP_OK, page);
}

/* ---- routes ---------------------------------------------------------------------------------*/
typedef struct route {
    const char *method, *path; /* "*" at a path's end stands for one part */
    bool open;   /* to every client that reaches the port, with or without the token */
    size_t body; /* bytes at most */
    void (*handle)(serve_service *service, serve_request *request);
} route;

static const route routes[] = {
    {"POST", "/v1/kernel", .body = FA_ASK_TEXT_MAX, .handle = serve_post_kernel},
    {"GET", "/v1/cubins/*", .handle = get_cubin},
    {"GET", "/v1/winners", .handle = get_winners},
    {"GET", "/v1/jobs", .handle = serve_get_jobs},
    {"GET", "/v1/sweeps", .handle = get_sweeps},
    {"POST", "/v1/sweeps", .body = FA_SWEEP_ASK_TEXT_MAX, .handle = post_sweep},
    {"GET", "/v1/report", .handle = get_report},
    {"GET", "/", .open = true, .handle = get_page},
    {"GET", "/healthz", .open = true, .handle = get_health},
    {"GET", "/readyz", .open = true, .handle = get_ready},
    {"GET", "/metrics", .handle = get_metrics},
    {"GET", "/openapi.json", .open = true, .handle = get_openapi},
};

/* The route of a method and path; NULL: there is none. */
static const route *find_route(serve_request *request)
{
    const char *method = strcmp(request->method, "HEAD") == 0 ? "GET" : request->method;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const size_t size = strcspn(routes[i].path, "*");
        if (strcmp(routes[i].method, method) != 0 ||
            strncmp(routes[i].path, request->path, size) != 0)
            continue;
        const char *part = request->part = request->path + size;
        if (routes[i].path[size] == '*' ? *part != 0 && strchr(part, '/') == NULL : *part == 0)
            return &routes[i];
    }
    return NULL;
}

static bool has_token(const serve_service *service, const serve_request *request)
{
    const char *value = serve_header(request, MHD_HTTP_HEADER_AUTHORIZATION);
    unsigned char hash[FA_HASH_BYTES], differs = 0;
    if (value == NULL || strncmp(value, "Bearer ", 7) != 0 || service->settings->token[0] == 0)
        return false;
    fa_hash_raw(value + 7, strlen(value + 7), hash);
    for (size_t i = 0; i < sizeof hash; i++)
        differs |= hash[i] ^ service->settings->token_hash[i];
    return differs == 0;
}

/* A client without the token is answered before its body, so that it holds no connection with a body that never comes. */
static void head(void *context, serve_request *request)
{
    serve_service *service = context;
    const route *found = find_route(request);
    request->route = found;
    request->body_limit = found != NULL ? found->body : FA_ASK_TEXT_MAX;
    if (!request->local && (found == NULL || !found->open) && !has_token(service, request)) {
        service->unauthorized++;
        serve_reply_failure(request, MHD_HTTP_UNAUTHORIZED, FA_EUNTRUSTED,
                            "send the server's token: Authorization: Bearer …");
    }
}

static void handle(void *context, serve_request *request)
{
    serve_service *service = context;
    const route *found = request->route;
    if (found == NULL)
        serve_reply_failure(request, 0, FA_ENOTFOUND,
                            "there is nothing at this path for this method: GET /openapi.json "
                            "lists what there is");
    else if (serve_has_query(request)) /* a filter that is passed over misleads */
        serve_reply_failure(request, 0, FA_EINVAL, "no path takes anything in its query");
    else
        found->handle(service, request);
}

static const serve_http_events serve_routes = {head, handle};

/* ---- settings -------------------------------------------------------------------------------*/
enum { TOKEN_MIN = 16, TOKEN_BYTES = 32 };

static int read_token(serve_settings *settings, fa_diag *diag)
{
    cli_options *options = &settings->options;
    unsigned char bytes[TOKEN_BYTES];
    int rc = 0;
    if (options->serve.token_file != NULL)
        rc = fa_own_token(options->serve.token_file, 077, TOKEN_MIN, sizeof settings->token,
                          settings->token, diag);
    else if (options->serve.tcp != NULL)
        rc = fa_fail(
            diag, FA_EINVAL,
            "--tcp needs --token-file: without it, anybody who reaches the port could use the GPU");
    else if (options->serve.page && getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        rc = fa_fail(diag, FA_EIO, "the kernel gives no random bytes for a token");
    else if (options->serve.page)
        for (size_t i = 0; i < sizeof bytes; i++)
            snprintf(settings->token + 2 * i, 3, "%02x", bytes[i]);
    if (rc == 0 && options->serve.page && options->serve.tcp == NULL)
        options->serve.tcp = "127.0.0.1:0";
    fa_hash_raw(settings->token, strlen(settings->token), settings->token_hash);
    return rc;
}

int serve_settings_read(int count, char **arguments, serve_settings *ret_settings, fa_diag *diag)
{
    static const cli_verb verb = {.name = "serve", .groups = CLI_GROUPS_SERVE};
    *ret_settings = (serve_settings){.token = ""};
    const int rc =
        cli_options_parse(&verb, true, count - 1, arguments + 1, &ret_settings->options, diag);
    return rc != 0 || ret_settings->options.serve.openapi || ret_settings->options.help
               ? rc
               : read_token(ret_settings, diag);
}

/* ---- the service ----------------------------------------------------------------------------*/
enum { COMPILE_MS = 300000 /* waiting for a free worker included */ };

static void log_note(void *context, const char *sentence)
{
    (void)context;
    serve_log("level=warn event=note text=\"%s\"", sentence);
}

int serve_service_open(uv_loop_t *loop, const serve_settings *settings, serve_service **ret_service,
                       fa_diag *diag)
{
    fa_options options = cli_library_options(&settings->options);
    char threads[16];
    options.log = log_note;
    options.server = "";       /* it is one itself */
    options.compile_nice = 19; /* its compile workers give way to all other processes */
    if (options.compile_timeout_ms == 0)
        options.compile_timeout_ms = COMPILE_MS;
    serve_service *service = calloc(1, sizeof *service);
    FA_OR_RETURN(fa_have(service != NULL, "the service", diag));
    *ret_service = service; /* also where the rest fails: the process ends then */
    service->loop = loop;
    service->settings = settings;
    pthread_mutex_init(&service->news_lock, NULL);
    for (int at = 0, found = 0; found == 0 && at < SERVE_DEVICES_MAX; at++) {
        found = fa_gpu_find(NULL, at, &service->device.gpu[at], &service->device.reason);
        service->device.code = at == 0 ? found : 0;
        service->device.count += found == 0;
        if (found == 0)
            serve_log("level=info event=device gpu=\"%s\"", service->device.gpu[at].name);
    }
    serve_share_init(&service->lookups, loop, &options, SERVE_LOOKUPS);
    serve_share_init(&service->tunes, loop, &options, service->device.count + 1);
    serve_share_init(&service->lists, loop, &options, SERVE_LISTS);
    /* Set before libuv's first thread. */
    snprintf(threads, sizeof threads, "%d",
             service->lookups.most + service->tunes.most + service->lists.most);
    setenv("UV_THREADPOOL_SIZE", threads, 1);
    /* Fails early where the store cannot be opened at all. */
    fa_tuner **first = &service->lookups.idle[0];
    int rc = fa_open(&options, first, diag);
    service->lookups.idle_count = rc == 0;
    if (rc == 0)
        serve_log("level=info event=store at=\"%s\"", fa_store_location(*first));
    if (rc == 0)
        rc = serve_http_make(loop, &serve_routes, service, &service->counts, &service->http, diag);
    if (rc == 0)
        serve_kernels_open(service);
    return rc;
}
