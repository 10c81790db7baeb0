/* SPDX-License-Identifier: Apache-2.0
 *
 * Which handler answers a request, who may send it, and how large its body may be; the description of all that, the metrics
 * and the page.
 */
#include "service.h"

#include "error.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SWEEP_MAX = 8 << 20 };

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

static void refuse_source(serve_service *service, serve_request *request)
{
    (void)service;
    serve_reply_failure(
        request, FA_ENOTFOUND,
        "this service compiles no client's source: name its file where the service is "
        "started, as in fa-tune serve FILE.cu");
}

/* ---- routes ---------------------------------------------------------------------------------*/
enum { METHOD_GET = 1, METHOD_POST = 2 };

typedef struct route {
    const char *path; /* "*" at its end stands for one part */
    unsigned method;
    bool open; /* to every client that reaches the port, with or without the token */
    bool large;
    bool arguments; /* its query takes a limit */
    void (*handle)(serve_service *service, serve_request *request);
} route;

static const route routes[] = {
    {"/v1/kernel", METHOD_POST, .handle = serve_post_kernel},
    {"/v1/cubins/*", METHOD_GET, .handle = serve_get_cubin},
    {"/v1/winners", METHOD_GET, .arguments = true, .handle = serve_get_winners},
    {"/v1/jobs", METHOD_GET, .handle = serve_get_jobs},
    {"/v1/sweeps", METHOD_GET, .handle = serve_get_sweeps},
    {"/v1/sweeps", METHOD_POST, .large = true, .handle = serve_post_sweep},
    {"/v1/report", METHOD_GET, .handle = serve_get_report},
    {"/v1/families", METHOD_POST, .large = true, .handle = refuse_source},
    {"/", METHOD_GET, .open = true, .handle = get_page},
    {"/healthz", METHOD_GET, .open = true, .handle = get_health},
    {"/readyz", METHOD_GET, .open = true, .handle = serve_get_ready},
    {"/metrics", METHOD_GET, .handle = get_metrics},
    {"/openapi.json", METHOD_GET, .open = true, .handle = get_openapi},
};

/* ret_part: what "*" stands for. */
static bool matches(const char *pattern, const char *path, const char **ret_part)
{
    const size_t head = strcspn(pattern, "*");
    *ret_part = path + head;
    return strncmp(pattern, path, head) == 0 &&
           (pattern[head] == '*' ? **ret_part != 0 && strchr(*ret_part, '/') == NULL
                                 : **ret_part == 0);
}

static unsigned method_of(const char *name)
{
    return strcmp(name, "POST") == 0                               ? METHOD_POST
           : strcmp(name, "GET") == 0 || strcmp(name, "HEAD") == 0 ? METHOD_GET
                                                                   : 0;
}

static const route *find_route(serve_request *request, unsigned *ret_allowed)
{
    const unsigned method = method_of(request->method);
    const char *part;
    *ret_allowed = 0;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (matches(routes[i].path, request->path, &part)) {
            *ret_allowed |= routes[i].method;
            request->part = part;
            if (routes[i].method == method)
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

static void reply_no_route(serve_request *request, unsigned allowed)
{
    char *text = NULL;
    if (allowed == 0) {
        serve_reply_failure(request, FA_ENOTFOUND,
                            "there is nothing at this path: GET /openapi.json lists the paths");
        return;
    }
    fa_failure_write(FA_EINVAL, "this path does not take that method", &text, NULL);
    struct MHD_Response *response =
        serve_response("application/json", text, text != NULL ? strlen(text) : 0);
    if (response != NULL)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW,
                                allowed == METHOD_POST  ? "POST"
                                : allowed == METHOD_GET ? "GET, HEAD"
                                                        : "GET, HEAD, POST");
    serve_reply(request, MHD_HTTP_METHOD_NOT_ALLOWED, response);
}

/* A client without the token is answered before its body, so that it holds no connection with a body that never comes. */
static void head(void *context, serve_request *request)
{
    serve_service *service = context;
    unsigned allowed;
    const route *found = find_route(request, &allowed);
    request->route = found;
    if (!request->local && (found == NULL || !found->open) && !has_token(service, request)) {
        service->unauthorized++;
        serve_reply_refused(request, MHD_HTTP_UNAUTHORIZED, FA_EUNTRUSTED,
                            "send the server's token: Authorization: Bearer …", 0);
        return;
    }
    request->body_limit = found == NULL || found->method != METHOD_POST ? 0
                          : found->large                                ? SWEEP_MAX
                                         : (size_t)service->settings->max_body;
}

static void handle(void *context, serve_request *request)
{
    serve_service *service = context;
    const route *found = request->route;
    unsigned allowed;
    if (found == NULL) {
        find_route(request, &allowed);
        reply_no_route(request, allowed);
        return;
    }
    const bool limited = found->arguments && serve_argument(request, "limit") != NULL;
    if (serve_argument_count(request) != limited) { /* a filter that is passed over misleads */
        serve_reply_failure(request, FA_EINVAL,
                            found->arguments ? "this path takes only a limit in its query"
                                             : "this path takes nothing in its query");
    } else if (service->stopping && !found->open) {
        serve_reply_busy(request, "this server is stopping");
    } else {
        found->handle(service, request);
    }
}

const serve_http_events serve_routes = {head, handle};
