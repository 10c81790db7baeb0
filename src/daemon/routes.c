/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include "queries.h"
#include "jobs.h"
#include "json.h"
#include "operation.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- openapi ---------------------------------------------------------------------------------*/
/* The built-in openapi.json with the problems of every operation that this process knows. */
static cJSON *schema_of_field(const fa_field *field)
{
    static const char *const types[] = {
        [FA_FIELD_INTEGER] = "integer", [FA_FIELD_BOOLEAN] = "boolean"};
    cJSON *schema = cJSON_CreateObject();
    if (field->kind == FA_FIELD_CHOICE) {
        cJSON *names = fa_json_add_array(schema, "enum");
        for (const char *const *name = field->choice; *name != NULL; name++)
            fa_json_push(names, cJSON_CreateString(*name));
        return schema;
    }
    fa_json_add_text(schema, "type", types[field->kind]);
    if (field->kind == FA_FIELD_INTEGER) {
        fa_json_add_number(schema, "minimum", field->min);
        if (field->max < INT32_MAX)
            fa_json_add_number(schema, "maximum", field->max);
        if (field->multiple > 1)
            fa_json_add_number(schema, "multipleOf", field->multiple);
    }
    return schema;
}

static cJSON *schema_of_operation(const fa_operation *operation)
{
    cJSON *schema = cJSON_CreateObject();
    fa_json_add_text(schema, "type", "object");
    fa_json_add_text(schema, "description", operation->title);
    cJSON *required = fa_json_add_array(schema, "required");
    fa_json_add_bool(schema, "additionalProperties", false);
    cJSON *properties = fa_json_add_object(schema, "properties");
    cJSON *name = fa_json_add_object(properties, "operation");
    fa_json_push(fa_json_add_array(name, "enum"), cJSON_CreateString(operation->name));
    if (!operation->is_default)
        fa_json_push(required, cJSON_CreateString("operation"));
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *field = &operation->field[i];
        fa_json_add(properties, field->name, schema_of_field(field));
        if (field->kind == FA_FIELD_INTEGER && field->follows < 0 && !field->optional)
            fa_json_push(required, cJSON_CreateString(field->name));
    }
    return schema;
}

/* Those that clients sent are described to nobody else. */
static cJSON *schema_of_specifications(void)
{
    cJSON *schema = cJSON_CreateObject();
    fa_json_add_text(schema, "type", "object");
    fa_json_add_text(schema, "description",
                     "of a specification that was sent to /v1/families: its sizes");
    fa_json_push(fa_json_add_array(schema, "required"), cJSON_CreateString("operation"));
    cJSON *name = fa_json_add_object(fa_json_add_object(schema, "properties"), "operation");
    fa_json_add_text(name, "type", "string");
    fa_json_add_text(name, "pattern", "@");
    return schema;
}

/* How many operations the description would have now. */
static int serve_openapi_operations(void)
{
    int count = 0;
    while (fa_operation_at(count) != NULL)
        count++;
    return count;
}

char *serve_openapi_text(void)
{
    cJSON *document = cJSON_Parse(serve_openapi_document);
    cJSON *components = cJSON_GetObjectItemCaseSensitive(document, "components");
    cJSON *schemas = cJSON_GetObjectItemCaseSensitive(components, "schemas");
    cJSON *problem = cJSON_GetObjectItemCaseSensitive(schemas, "Problem");
    cJSON *choices = fa_json_add_array(problem, "anyOf");
    const fa_operation *operation;
    for (int i = 0; (operation = fa_operation_at(i)) != NULL; i++)
        if (!fa_operation_is_untrusted(operation))
            fa_json_push(choices, schema_of_operation(operation));
    fa_json_push(choices, schema_of_specifications());
    char *text = choices != NULL ? fa_json_print(document) : NULL;
    cJSON_Delete(document);
    return text;
}

/* ---- metrics ---------------------------------------------------------------------------------*/
/* GET /metrics, in the format of Prometheus. */
#define PREFIX "fa_tune_serve_"

struct metric {
    const char *name, *help; /* a name that ends in _total counts up for ever */
    int64_t value;
};

static void add_head(fa_buf *out, const char *name, const char *help)
{
    size_t size = strlen(name);
    bool counts = size > 6 && strcmp(name + size - 6, "_total") == 0;
    fa_buf_printf(out, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name, help, name,
                  counts ? "counter" : "gauge");
}

static void add_all(fa_buf *out, const struct metric *metrics, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        add_head(out, metrics[i].name, metrics[i].help);
        fa_buf_printf(out, PREFIX "%s %lld\n", metrics[i].name, (long long)metrics[i].value);
    }
}

static void add_by_label(fa_buf *out, const char *name, const char *label, const char *value,
                         int64_t count)
{
    fa_buf_printf(out, PREFIX "%s{%s=\"%s\"} %lld\n", name, label, value, (long long)count);
}

static int64_t resident_bytes(void)
{
    fa_buf text = {0};
    long long pages = 0;
    if (fa_buf_read_file(&text, "/proc/self/statm", 4096) == 0)
        sscanf(text.data, "%*s %lld", &pages);
    fa_buf_free(&text);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static int64_t jobs_in(const serve_service *service, serve_job_state state)
{
    int64_t count = 0;
    for (const serve_job *job = service->jobs; job != NULL; job = job->next)
        count += job->state == state;
    return count;
}

/* malloced */
static char *serve_metrics_text(const serve_service *service)
{
    static const char *const classes[] = {"other", "1xx", "2xx", "3xx", "4xx", "5xx"};
    const serve_http_counts *http = serve_http_counted(service->http);
    const serve_cache_counts *cache = serve_cache_counted(service->cache);
    const serve_counts *counts = &service->counts;
    const struct metric metrics[] = {
        {"connections", "Open connections.", http->connections},
        {"connections_accepted_total", "Connections taken.", http->accepted},
        {"connections_refused_total", "Connections turned away: too many.", http->refused},
        {"connections_foreign_total", "Connections of other users, turned away.", counts->foreign},
        {"connections_evicted_total", "Connections closed to make room.", http->evicted},
        {"connections_timed_out_total", "Connections closed for being too slow.", http->timed_out},
        {"body_bytes", "Memory of large request bodies.", (int64_t)http->bodies.used},
        {"requests_total", "Requests whose head has come.", http->requests},
        {"unauthorized_total", "Requests without the token.", counts->unauthorized},
        {"refused_total", "Requests asked to come back later.", counts->refused},
        {"expired_total", "Requests whose time ended before their tune.", counts->expired},
        {"cache_hits_total", "Requests answered from memory.", cache->hits},
        {"cache_misses_total", "Requests that had to be looked up.", cache->misses},
        {"cache_entries", "Answers in memory.", cache->entries},
        {"cache_bytes", "Their size.", cache->bytes},
        {"cache_refreshes_total", "Answers looked up again after a change.", counts->refreshes},
        {"lookups_total", "Lookups in the store.", counts->lookups},
        {"requests_shared_total", "Requests that joined another one's lookup or tune.",
         counts->shared},
        {"requests_waiting", "Requests that wait for a tune.", serve_pending_waiting(service)},
        {"requests_different", "Different requests, looked up or waiting for a tune.",
         serve_pending_different(service)},
        {"jobs_accepted_total", "Tunes and sweeps accepted.", counts->jobs[SERVE_QUEUED]},
        {"jobs_running", "Jobs under way.", jobs_in(service, SERVE_RUNNING)},
        {"jobs_queued", "Jobs that wait.", jobs_in(service, SERVE_QUEUED)},
        {"devices", "CUDA devices here.", service->devices},
        {"resident_bytes", "Memory of this process.", resident_bytes()},
        {"ready", "1 while requests are served.", serve_service_is_ready(service)},
    };
    fa_buf out = {0};
    add_all(&out, metrics, sizeof metrics / sizeof *metrics);
    add_head(&out, "replies_total", "Replies by the class of their status.");
    for (size_t i = 1; i < sizeof classes / sizeof *classes; i++)
        add_by_label(&out, "replies_total", "class", classes[i], http->replies[i]);
    add_head(&out, "jobs_ended_total", "Tunes and sweeps by how they ended.");
    for (int state = SERVE_DONE; state <= SERVE_CANCELED; state++)
        add_by_label(&out, "jobs_ended_total", "state",
                     serve_job_state_name((serve_job_state)state), counts->jobs[state]);
    add_head(&out, "start_time_seconds", "Unix time of the start.");
    fa_buf_printf(&out, PREFIX "start_time_seconds %.3f\n", (double)service->started_ms / 1000);
    return serve_text_of(&out);
}

/* ---- replies ---------------------------------------------------------------------------------*/
enum { METHOD_GET = 1, METHOD_POST = 2, METHOD_DELETE = 4 };

typedef struct route {
    const char *path; /* "*" stands for one part that is not empty */
    unsigned method;
    bool open;  /* to every client that reaches the port, with or without the token */
    bool page;  /* to the page too, with its session */
    bool store; /* needs the service to be ready */
    bool large; /* its body is a sweep or a family */
    const char *arguments; /* of its query, separated by spaces; NULL: not looked at */
    void (*handle)(serve_service *service, serve_exchange *exchange);
} route;

static void reply_text(serve_exchange *exchange, unsigned status, const char *type,
                       const char *text)
{
    serve_reply_page(exchange, status, serve_page_text(type, text));
}

/* ---- handlers -------------------------------------------------------------------------------*/
static void get_health(serve_service *service, serve_exchange *exchange)
{
    (void)service;
    reply_text(exchange, MHD_HTTP_OK, "text/plain", "ok\n");
}

static void get_ready(serve_service *service, serve_exchange *exchange)
{
    if (serve_service_is_ready(service))
        reply_text(exchange, MHD_HTTP_OK, "text/plain", "ready\n");
    else
        serve_reply_refused(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, FA_EBUSY, service->unready.text,
                            1);
}

static void get_metrics(serve_service *service, serve_exchange *exchange)
{
    char *text = serve_metrics_text(service);
    serve_reply_page(
        exchange, MHD_HTTP_OK,
        serve_page_make("text/plain; version=0.0.4", text, text != NULL ? strlen(text) : 0));
}

static void get_openapi(serve_service *service, serve_exchange *exchange)
{
    int operations = serve_openapi_operations();
    if (service->openapi == NULL || service->openapi_operations != operations) {
        serve_page_drop(&service->openapi);
        service->openapi = serve_page_json(serve_openapi_text());
        service->openapi_operations = operations;
    }
    serve_reply(exchange, MHD_HTTP_OK, service->openapi);
}

static void get_jobs(serve_service *service, serve_exchange *exchange)
{
    serve_reply_json(exchange, MHD_HTTP_OK, serve_jobs_text(service));
}

static serve_job *find_job(serve_service *service, serve_exchange *exchange)
{
    const char *id = exchange->part;
    serve_job *job = serve_is_id(id) ? serve_job_find(service, id) : NULL;
    if (job == NULL)
        serve_reply_error(exchange, FA_ENOTFOUND,
                          "there is no such job: only the last that ended are remembered", NULL);
    return job;
}

static void get_job(serve_service *service, serve_exchange *exchange)
{
    serve_job *job = find_job(service, exchange);
    if (job != NULL)
        serve_reply_json(exchange, MHD_HTTP_OK, serve_job_text(job));
}

static void get_events(serve_service *service, serve_exchange *exchange)
{
    serve_job *job = find_job(service, exchange);
    if (job != NULL)
        serve_job_listen(job, exchange);
}

static void delete_job(serve_service *service, serve_exchange *exchange)
{
    serve_job *job = find_job(service, exchange);
    const char *unless = serve_argument(exchange, "unless");
    if (job == NULL)
        return;
    if (unless != NULL && strcmp(unless, "shared") != 0) {
        serve_reply_error(exchange, FA_EINVAL, "unless can only be \"shared\"", NULL);
        return;
    }
    bool shared = serve_job_is_shared(job);
    if (!serve_job_is_over(job) && shared && unless != NULL) {
        serve_reply_refused(exchange, MHD_HTTP_CONFLICT, FA_EBUSY, "others wait for this job", 0);
        return;
    }
    serve_job_cancel(job);
    serve_reply_json(exchange, serve_job_is_over(job) ? MHD_HTTP_OK : MHD_HTTP_ACCEPTED,
                     serve_job_text(job));
}

/* The route that is asked for tens of thousands of times a second comes first. */
static const route routes[] = {
    {"/v1/kernel", METHOD_POST, .store = true, .handle = serve_post_kernel},
    {"/v1/cubins/*", METHOD_GET, .store = true, .handle = serve_get_cubin},
    {"/v1/tunes", METHOD_POST, .store = true, .handle = serve_post_tune},
    {"/v1/sweeps", METHOD_POST, .store = true, .large = true, .handle = serve_post_sweep},
    {"/v1/families", METHOD_POST, .store = true, .large = true, .handle = serve_post_family},
    {"/v1/jobs", METHOD_GET, .arguments = "", .page = true, .handle = get_jobs},
    {"/v1/jobs/*", METHOD_GET, .page = true, .handle = get_job},
    {"/v1/jobs/*", METHOD_DELETE, .arguments = "unless", .handle = delete_job},
    {"/v1/jobs/*/events", METHOD_GET, .page = true, .handle = get_events},
    {"/v1/winners", METHOD_GET, .arguments = "gpu limit", .page = true, .store = true,
     .handle = serve_get_winners},
    {"/v1/gpus", METHOD_GET, .arguments = "", .page = true, .store = true,
     .handle = serve_get_gpus},
    {"/v1/queue", METHOD_GET, .arguments = "", .page = true, .store = true,
     .handle = serve_get_queue},
    {"/v1/report", METHOD_GET, .arguments = "", .page = true, .store = true,
     .handle = serve_get_report},
    {"/v1/events", METHOD_GET, .page = true, .handle = serve_get_events},
    {"/v1/links", METHOD_POST, .handle = serve_post_link},
    {"/v1/session", METHOD_POST, .open = true, .handle = serve_post_session},
    {"/", METHOD_GET, .open = true, .handle = serve_get_page},
    {"/healthz", METHOD_GET, .open = true, .handle = get_health},
    {"/readyz", METHOD_GET, .open = true, .handle = get_ready},
    {"/metrics", METHOD_GET, .handle = get_metrics},
    {"/openapi.json", METHOD_GET, .open = true, .handle = get_openapi},
};
enum { ROUTES = sizeof routes / sizeof *routes };

/* ---- matching -------------------------------------------------------------------------------*/
/* Whether the path matches the pattern; ret_part: the part that "*" matches. */
static bool matches(const char *pattern, const char *path, char ret_part[SERVE_PART_SIZE])
{
    const char *star = strchr(pattern, '*');
    size_t head = star != NULL ? (size_t)(star - pattern) : strlen(pattern);
    if (strncmp(pattern, path, head) != 0)
        return false;
    if (star == NULL)
        return path[head] == 0;
    size_t part = strcspn(path + head, "/");
    if (part == 0 || part >= SERVE_PART_SIZE || strcmp(path + head + part, star + 1) != 0)
        return false;
    memcpy(ret_part, path + head, part);
    ret_part[part] = 0;
    return true;
}

static unsigned method_of(const char *name)
{
    return strcmp(name, "POST") == 0                               ? METHOD_POST
           : strcmp(name, "GET") == 0 || strcmp(name, "HEAD") == 0 ? METHOD_GET
           : strcmp(name, "DELETE") == 0                           ? METHOD_DELETE
                                                                   : 0;
}

static void reply_no_route(serve_exchange *exchange, unsigned allowed)
{
    char list[32];
    if (allowed == 0) {
        serve_reply_error(exchange, FA_ENOTFOUND,
                          "there is nothing at this path: GET /openapi.json lists the paths", NULL);
        return;
    }
    snprintf(list, sizeof list, "%s%s%s", allowed & METHOD_GET ? "GET, HEAD, " : "",
             allowed & METHOD_POST ? "POST, " : "", allowed & METHOD_DELETE ? "DELETE, " : "");
    list[strlen(list) - 2] = 0;
    serve_page *page =
        serve_page_json(serve_error_text(FA_EINVAL, "this path does not take that method", NULL));
    serve_page_header(page, MHD_HTTP_HEADER_ALLOW, list);
    serve_reply_page(exchange, MHD_HTTP_METHOD_NOT_ALLOWED, page);
}

static const route *find_route(serve_exchange *exchange)
{
    unsigned method = method_of(exchange->method);
    for (size_t i = 0; i < ROUTES; i++)
        if (matches(routes[i].path, exchange->path, exchange->part)) {
            exchange->allowed |= routes[i].method;
            if (routes[i].method == method)
                return exchange->route = &routes[i];
        }
    return NULL;
}

/* Two clients are answered before their body, so that they hold no connection with a body that never
 * comes: those without the token, and those that send a body to a route that is open to all. Others
 * would see their connection break while they send it. */
static void head(void *context, serve_exchange *exchange)
{
    serve_service *service = context;
    const serve_settings *settings = service->settings;
    const route *found = find_route(exchange);
    bool open = found != NULL && found->open;
    if (!exchange->local &&
        (serve_has_token(service, exchange) ||
         (found != NULL && found->page && serve_has_session(service, exchange)))) {
        exchange->trusted = true;
    } else if (!exchange->local && !open) {
        service->counts.unauthorized++;
        serve_reply_refused(exchange, MHD_HTTP_UNAUTHORIZED, FA_EUNTRUSTED,
                            "send the server's token: Authorization: Bearer …", 0);
        return;
    }
    if (open && exchange->announced > 0) {
        serve_reply_refused(exchange, MHD_HTTP_CONTENT_TOO_LARGE, FA_EINVAL,
                            "this request takes no body", 0);
        return;
    }
    exchange->body_limit = found == NULL || found->method != METHOD_POST ? 0
                           : found->large ? (size_t)settings->max_sweep_body
                                          : (size_t)settings->max_body;
}

/* Whether the query has only arguments of this route; replies where it has not: a filter that nobody heeds misleads. */
static bool arguments_known(serve_exchange *exchange, const char *names)
{
    const char *unknown = serve_unknown_argument(exchange, names);
    char text[192];
    if (unknown == NULL)
        return true;
    snprintf(text, sizeof text, "there is no argument \"%.40s\" here: %s%s", unknown,
             names[0] != 0 ? "this path takes " : "this path takes none", names);
    serve_reply_error(exchange, FA_EINVAL, text, NULL);
    return false;
}

static void request(void *context, serve_exchange *exchange)
{
    serve_service *service = context;
    const route *found = exchange->route;
    if (found == NULL)
        reply_no_route(exchange, exchange->allowed);
    else if (exchange->body_lost)
        serve_reply_no_memory(exchange);
    else if (exchange->body_size > exchange->body_limit)
        serve_reply_refused(exchange, MHD_HTTP_CONTENT_TOO_LARGE, FA_EINVAL,
                            "the body is larger than this server takes", 0);
    else if (found->store && !serve_service_is_ready(service))
        serve_reply_refused(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, FA_EBUSY, service->unready.text,
                            1);
    else if (found->arguments == NULL || arguments_known(exchange, found->arguments))
        found->handle(service, exchange);
}

static void over(void *context, serve_exchange *exchange)
{
    (void)context;
    serve_waiters_remove(exchange);
    if (serve_log_wants(SERVE_DEBUG))
        serve_log(SERVE_DEBUG, "request", "method", exchange->method, "path", exchange->path,
                  "status", serve_integer(exchange->status).text, NULL);
}

const serve_http_events serve_routes = {head, request, over};
