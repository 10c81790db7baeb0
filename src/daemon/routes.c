/* SPDX-License-Identifier: Apache-2.0
 *
 * Which handler answers a request, who may send it, and how large its body may be; the description of all that, the metrics
 * and the page.
 */
#include "service.h"

#include "report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    fa_buf text = {0};
    long pages = 0;
    if (fa_buf_read_file(&text, "/proc/self/statm", 4096) == 0)
        sscanf(text.data, "%*s %ld", &pages);
    fa_buf_free(&text);
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
    bool open;      /* to every client that reaches the port, with or without the token */
    size_t body;    /* bytes at most */
    void (*handle)(serve_service *service, serve_request *request);
} route;

static const route routes[] = {
    {"POST", "/v1/kernel", .body = FA_ASK_TEXT_MAX, .handle = serve_post_kernel},
    {"GET", "/v1/cubins/*", .handle = serve_get_cubin},
    {"GET", "/v1/winners", .handle = serve_get_winners},
    {"GET", "/v1/jobs", .handle = serve_get_jobs},
    {"GET", "/v1/sweeps", .handle = serve_get_sweeps},
    {"POST", "/v1/sweeps", .body = FA_SWEEP_ASK_TEXT_MAX, .handle = serve_post_sweep},
    {"GET", "/v1/report", .handle = serve_get_report},
    {"GET", "/", .open = true, .handle = get_page},
    {"GET", "/healthz", .open = true, .handle = get_health},
    {"GET", "/readyz", .open = true, .handle = serve_get_ready},
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

const serve_http_events serve_routes = {head, handle};
