/* SPDX-License-Identifier: Apache-2.0
 *
 * The state that the service's files share, its clock and its tuners.
 *
 * The loop's thread owns everything here. Other threads see tasks only: the lookup of a pending
 * request, a job's run, a query, a file of the journal. The loop reads what a task's thread has written
 * after the task is done.
 */
#ifndef FA_DAEMON_SERVICE_H
#define FA_DAEMON_SERVICE_H

#include "fa_tune.h"
#include "hash.h"
#include "http.h"

#include <stdatomic.h>
#include <uv.h>

/* ---- threads (thread.c) ----------------------------------------------------------------------*/
/* Threads besides the loop's, and the queue from them to the loop. A thread runs a task's work(), then the loop's
 * thread runs its done().
 *
 * The store, CUDA and NVRTC are used by these threads only: the loop never waits for them. */
/* Tasks, and the queue to the loop, first in, first out. */
typedef struct serve_loop_queue serve_loop_queue;
typedef struct serve_task serve_task;
typedef struct serve_thread serve_thread;

struct serve_task {
    serve_task *next;
    void (*work)(serve_task *task, serve_thread *thread); /* on its thread */
    void (*done)(serve_task *task);                       /* on the loop's; may free it */
    bool skipped;                                         /* the thread was stopped first */
    bool interleaves; /* may be worked on in the middle of a long task */
};

int serve_loop_queue_open(uv_loop_t *loop, serve_loop_queue **ret_queue, fa_diag *diag);
/* Calls `done` of a task on the loop's thread. Any thread. */
void serve_loop_post(serve_loop_queue *queue, serve_task *task);
/* Runs done() of the tasks that are still in the queue; every thread has ended. */
void serve_loop_queue_close(serve_loop_queue **queue);

typedef struct serve_thread_calls {
    void (*idle)(void *context);  /* about once a second without a task */
    void (*end)(void *context);   /* before its thread ends */
    void (*ended)(void *context); /* on the loop's thread, after that */
    bool finishes; /* tasks that were submitted before the stop are run, not skipped */
} serve_thread_calls;

int serve_thread_start(serve_loop_queue *queue, const serve_thread_calls *calls, void *context,
                       serve_thread **ret_thread, fa_diag *diag);
void serve_thread_submit(serve_thread *thread, serve_task *task);
/* The thread ends after its current task; the other tasks come back as skipped. */
void serve_thread_stop(serve_thread *thread);
/* After `ended` was called; NULL and pointer to NULL are allowed. */
void serve_thread_free(serve_thread **thread);

/* On the thread itself, within a long task: runs the next task that interleaves. */
bool serve_thread_run_interleaved(serve_thread *thread);
void *serve_thread_context(const serve_thread *thread);

/* ---- the log (log.c) ------------------------------------------------------------------------*/
/* Lines on stderr, as logfmt or JSON, one write each; any thread.
 *
 *     serve_log(SERVE_INFO, "job started", "job", id, "gpu", "L4", NULL); */
typedef enum serve_level { SERVE_ERROR, SERVE_WARN, SERVE_INFO, SERVE_DEBUG } serve_level;

/* Before any other thread runs. */
void serve_log_setup(serve_level level, bool json);
bool serve_log_wants(serve_level level);
/* Pairs of names and texts follow, then NULL; a pair whose text is NULL or "" is left out. */
void serve_log(serve_level level, const char *event, ...) __attribute__((sentinel));

/* A number as a text for one line. */
typedef struct serve_number {
    char text[32];
} serve_number;
serve_number serve_integer(int64_t value);

/* ---- settings (settings.c) ------------------------------------------------------------------*/
/* The daemon's settings: flags, and for each flag a variable FA_TUNE_SERVE_… that the flag overrides. */
enum { SERVE_TOKEN_MIN = 16, SERVE_TOKEN_MAX = 512, SERVE_FILES_MAX = 64 };

typedef struct serve_settings {
    const char *file[SERVE_FILES_MAX]; /* specifications that are served */
    int32_t files;
    const char *socket; /* "": none */
    const char *tcp;    /* "": none */
    const char *token_file;
    const char *store, *templates, *worker; /* NULL: the library's */
    int32_t compile_workers, compile_timeout_s, trial_timeout_s, compile_nice;
    int32_t max_connections, max_jobs, max_sweeps;
    int32_t max_body, max_sweep_body; /* bytes */
    int32_t max_bodies_mib;           /* in memory at a time */
    int32_t head_timeout_s, body_timeout_s, idle_timeout_s, send_timeout_s, link_timeout_s;
    int32_t wait_s; /* how long a request waits for a tune unless the client says */
    int32_t stop_s; /* for jobs to stop */
    int32_t cache_mib;
    int32_t untrusted_templates, log_format, log_level; /* indices of the choices */
    bool allow_user_templates;
    bool open;
    bool help, version, openapi;
    char default_socket[160];
    char identity[1024];          /* the absolute address where it serves; names its journal */
    unsigned char token_hash[32]; /* SHA-256 of the token, so that comparing takes constant time */
    bool has_token;
} serve_settings;

/* FA_EINVAL with a sentence. Texts point into arguments and environment. */
int serve_settings_read(int count, char **arguments, serve_settings *ret_settings, fa_diag *diag);
void serve_settings_help(void);

/* ---- the journal (jobs.c) -------------------------------------------------------------------*/
/* Accepted jobs on disk, so that they outlive the process, and the store's file too: one file for each job in a
 * directory next to the store, removed when the job has ended. Every daemon has its own directory, named after the
 * address where it serves; daemons in containers or on hosts that share a store may serve at the same path, and then
 * each of them locks another directory.
 *
 * A file: "fa-tune-job 1 KIND ID ACCEPTED\n" and the request's body as it came. The journal knows
 * nothing else about a job; a body that was read is checked as if a client had sent it. */
enum { SERVE_ID_SIZE = 33 };

typedef struct serve_journal_entry {
    struct serve_journal_entry *next;
    char id[SERVE_ID_SIZE], kind[8]; /* "tune" or "sweep" */
    int64_t accepted_ms;             /* Unix time */
    char *body;
    size_t size;
} serve_journal_entry;

typedef struct serve_journal {
    serve_thread *thread;
    char folder[1100];
    int lock;  /* the directory's descriptor, which locks it while this process lives; -1 */
    bool shut; /* nothing is written: the directory is not to be trusted, or another daemon's */
    /* the jobs of an earlier process, the first accepted first, once they are loaded */
    serve_journal_entry *first;
} serve_journal;
bool serve_is_id(const char *text); /* of a job */

/* ---- the service ----------------------------------------------------------------------------*/
enum {
    SERVE_DEVICES_MAX = 16,
    SERVE_RUNNERS = SERVE_DEVICES_MAX + 1, /* the last is for GPUs that are not here */
    SERVE_JOB_STATES = 5,
    SERVE_SESSIONS = 8 /* of the page, at a time */
};

typedef struct serve_service serve_service;
struct serve_job;
struct serve_pending;
struct serve_runner;

/* The tuner that a thread keeps for the client's kernel family that was requested last. */
typedef struct serve_family_tuner {
    char id[65];
    fa_tuner *tuner;
} serve_family_tuner;

/* A secret that a client may present until `until_ms`, stored as its hash. */
typedef struct serve_secret {
    unsigned char hash[FA_HASH_BYTES];
    int64_t until_ms;
} serve_secret;

/* The report's document as it was last sent. */
typedef struct serve_report {
    serve_page *page; /* NULL: none yet */
    serve_cache_time when;
    int64_t made_ms, took_ms;
    struct serve_query *making; /* with the clients that wait for it; NULL: none is made */
} serve_report;

typedef struct serve_counts {
    int64_t lookups, refreshes, shared; /* refreshes: the cache's own; shared: joined another */
    int64_t jobs[SERVE_JOB_STATES];     /* by how they ended; SERVE_QUEUED: accepted */
    int64_t refused, unauthorized, expired, foreign;
} serve_counts;

struct serve_service {
    uv_loop_t *loop;
    const serve_settings *settings;
    serve_http *http;
    serve_loop_queue *queue;
    serve_thread *lookup;
    serve_thread *families; /* evaluates families that clients send; NULL: none are accepted */
    serve_thread *reader;   /* reads reports and the queue; NULL: not started yet */
    serve_journal journal;
    struct serve_runner *runner[SERVE_RUNNERS];
    int threads; /* threads that have not ended */
    serve_cache *cache;
    serve_page *openapi; /* the description, once it was requested; of that many operations */
    int openapi_operations;
    serve_page *front; /* the page at "/", once it was requested */
    serve_report report;
    serve_waiters followers; /* clients that follow all jobs */
    char *last_state;        /* sent to the followers, or NULL */
    serve_secret link, session[SERVE_SESSIONS];
    /* Opens the page's port on the loopback when it is first needed: "127.0.0.1:40123". NULL: there is no such port. */
    int (*need_port)(void *ready_context, const char **ret_address, fa_diag *diag);
    struct serve_pending *pending;
    struct serve_job *jobs;     /* newest first */
    int live_jobs, live_sweeps; /* that have not ended */
    serve_counts counts;
    uv_timer_t tick;
    int ticks;
    int64_t started_ms;
    bool store_open, store_broken, journal_open, stopping;
    int failed;                   /* the error that it could not start for; 0: none */
    int devices;                  /* here, once they are known */
    fa_diag unready;              /* why it is not ready, while it is not */
    void (*ready)(void *context); /* called once: it is ready, or has failed */
    void *ready_context;
    void (*job_ended)(struct serve_job *job); /* answers the requests that wait for the job */
    bool runs;                /* false: jobs are queued and never run, for tests of requests */
    atomic_bool stop_reading; /* set: a report that is being made is abandoned */
    fa_tuner *reader_tuner;   /* the reader's */
    /* The lookup thread's: */
    fa_tuner *tuner;
    serve_family_tuner family;
    bool devices_known, reopen_failed;
    struct {
        int64_t seconds, nanoseconds, size, inode;
        int64_t looked_ms, reopened_ms;
    } seen;
    /* Written once by the lookup thread, before its first task is done: */
    char store[1024], folder[1024]; /* the store's path, and the directory that it is in */
    /* The same, before a task is done that has looked for devices: */
    fa_gpu device[SERVE_DEVICES_MAX];
    int device_count;
    int device_code;
    fa_diag device_reason; /* why there is none */
};

int64_t serve_unix_ms(void);
int64_t serve_now_ms(const serve_service *service);
bool serve_service_is_ready(const serve_service *service);
/* Asks a client to come back, and counts it. */
void serve_refuse(serve_service *service, serve_exchange *exchange, const char *message);
/* Called on the loop's thread after a thread has ended. */
void serve_service_thread_ended(void *service);

void serve_tuner_options(const serve_settings *settings, fa_options *ret_options);
/* {"answer":…,"cubin":{"key":…,"sha256":…,"size":…}}; malloced. The tuner's thread. */
int serve_kernel_text(fa_tuner *tuner, const fa_answer *answer, char **ret_text, fa_diag *diag);

/* Opens a thread's tuner where *tuner is NULL. */
int serve_tuner_need(const serve_service *service, fa_tuner **tuner, fa_diag *diag);
/* Closes it if rc means that its store file has to be reopened; *tuner may be NULL. */
void serve_tuner_close_broken(fa_tuner **tuner, int rc);

/* ---- on the lookup thread ---- */
/* Notifies the loop when the store has changed, and reopens the store when it is broken. */
void serve_tuner_watch(void *service);
/* Reopens the store if rc means that it is broken; true: it was reopened, and the caller looks up again. While a
 * broken store cannot be reopened, the daemon is not ready. */
bool serve_tuner_reopen(serve_service *service, int rc);
void serve_tuner_close(void *service);
/* Asks the driver for the devices of this machine, once. */
void serve_find_devices(serve_service *service);

/* The service from its start to its stop: its threads, its clock, and what an earlier process left. */
/* Starts its threads; ready() is called when the store is open and earlier jobs are known. */
int serve_service_open(uv_loop_t *loop, const serve_settings *settings,
                       void (*ready)(void *context), void *context, serve_service **ret_service,
                       fa_diag *diag);
/* Stops accepting and cancels what runs; its jobs stay in the journal. */
void serve_service_stop(serve_service *service);
/* Whether everything has come to its end. */
bool serve_service_stopped(const serve_service *service);
void serve_service_close(serve_service **service);

/* The routes: which handler answers a request, who may send it, and how large its body may be; their description and
 * the metrics. */
extern const char serve_openapi_document[]; /* without the problems */

/* The whole description; malloced, NULL: out of memory. */
char *serve_openapi_text(void);

extern const serve_http_events serve_routes; /* their context is a serve_service */

/* ---- who may send requests over TCP ---------------------------------------------------------*/
/* Clients with the server's token may send all of them, the page those that only read.
 *
 * A link to the page carries a secret in its fragment, which browsers send to no server and which is never logged.
 * The page presents it once (POST /v1/session) and gets a session's secret, which it keeps in its memory and sends
 * as "Authorization: Bearer …": no cookie, so no other page's request carries it. Secrets are kept as their hashes,
 * which are compared whole. */
enum { SERVE_URL_SIZE = 256 };

bool serve_has_token(const serve_service *service, const serve_exchange *exchange);
/* Whether the request has a session's secret and comes from the page of this host. */
bool serve_has_session(const serve_service *service, const serve_exchange *exchange);
/* Whether the Host and Origin headers name this host by a name of the loopback. A page of another name (DNS
 * rebinding, or a request across origins) is refused. Peers on the Unix socket need no such headers. */
bool serve_is_at_home(const serve_exchange *exchange);

/* Makes a link to the page that works once and for some minutes; the link before it stops working. Opens the page's
 * port if it is not open yet. */
int serve_link_make(serve_service *service, char ret_url[SERVE_URL_SIZE], fa_diag *diag);
void serve_post_link(serve_service *service, serve_exchange *exchange);
void serve_post_session(serve_service *service, serve_exchange *exchange);

/* Prints the link on stdout and, where there is a display, opens it through a file that only this user can read and
 * that redirects there. `logs`: this process writes a log. false: nothing was printed, because stdout is where the
 * log goes and not a terminal. */
bool serve_open_page(const char *url, bool logs);
/* Asks the service at this Unix socket for a link. */
int serve_ask_for_link(const char *socket, char ret_url[SERVE_URL_SIZE], fa_diag *diag);

/* A number that is the same for all connections of one user of this host, or of one other host (for IPv6: of one
 * network). Two peers may have the same number by chance. */
unsigned serve_peer_of(int fd);

#endif
