/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs.h"

#include "error.h"
#include "json.h"
#include "problem.h"
#include "queries.h"

#include <cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_MAX = 128, FOLDERS = 16 };

/* ---- the journal, loaded --------------------------------------------------------------------*/
bool serve_is_id(const char *text)
{
    return strlen(text) == SERVE_ID_SIZE - 1 &&
           strspn(text, "0123456789abcdef") == SERVE_ID_SIZE - 1;
}

static serve_journal_entry *parse(const fa_buf *text, const char *name)
{
    serve_journal_entry found = {0};
    long long accepted;
    int head = 0;
    if (text->data == NULL ||
        sscanf(text->data, "fa-tune-job 1 %7[a-z] %32[0-9a-f] %lld%n", found.kind, found.id,
               &accepted, &head) != 3 ||
        head == 0 || text->data[head] != '\n' || strcmp(found.id, name) != 0)
        return NULL;
    found.accepted_ms = accepted;
    found.size = text->size - (size_t)head - 1;
    found.body = malloc(found.size + 1);
    serve_journal_entry *entry = malloc(sizeof *entry);
    if (entry == NULL || found.body == NULL) {
        free(entry);
        free(found.body);
        return NULL;
    }
    memcpy(found.body, text->data + head + 1, found.size + 1);
    *entry = found;
    return entry;
}

static void load_one(serve_service *service, const char *name)
{
    serve_journal *journal = &service->journal;
    char path[sizeof journal->folder + SERVE_ID_SIZE + 2];
    fa_buf text = {0};
    snprintf(path, sizeof path, "%s/%s", journal->folder, name);
    int rc = fa_buf_read_file(&text, path, (size_t)service->settings->max_sweep_body + HEAD_MAX);
    serve_journal_entry *entry = rc == 0 ? parse(&text, name) : NULL;
    fa_buf_free(&text);
    if (entry == NULL) {
        serve_log(SERVE_WARN, "a job's file cannot be read and is passed over", "file", path, NULL);
        return;
    }
    serve_journal_entry **at = &journal->first; /* in the order in which they were accepted */
    while (*at != NULL && (*at)->accepted_ms <= entry->accepted_ms)
        at = &(*at)->next;
    entry->next = *at;
    *at = entry;
}

/* The first directory of this name that no other daemon uses. FA_EUNTRUSTED: other users can write there, or own it. The
 * kernel releases the lock when this process ends; where nothing can be locked, the directory is used without one. */
static int take_folder(serve_journal *journal, fa_diag *diag)
{
    size_t size = strlen(journal->folder);
    for (int i = 0; i < FOLDERS; i++) {
        struct stat st;
        if (i > 0)
            snprintf(journal->folder + size, sizeof journal->folder - size, ".%d", i);
        if (mkdir(journal->folder, 0700) != 0 && errno != EEXIST)
            return fa_fail(diag, FA_EIO, "cannot make %s: %s", journal->folder, strerror(errno));
        int fd = open(journal->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) != 0)
            return fa_fail(diag, FA_EIO, "cannot open %s: %s", journal->folder, strerror(errno));
        bool ours = st.st_uid == geteuid() && (st.st_mode & 022) == 0;
        if (ours && (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)) {
            journal->lock = fd;
            return 0;
        }
        close(fd);
        if (!ours)
            return fa_fail(diag, FA_EUNTRUSTED,
                           "others than this user can write to %s: remove it, and keep the store "
                           "in a directory of this user's alone",
                           journal->folder);
    }
    return fa_fail(diag, FA_EBUSY,
                   "%d other daemons keep their jobs beside %s: give --socket another path",
                   FOLDERS, journal->folder);
}

int serve_journal_load(serve_query *query, fa_diag *diag)
{
    serve_service *service = query->service;
    serve_journal *journal = &service->journal;
    const char *identity = service->settings->identity;
    char hash[FA_HASH_HEX];
    fa_hash_bytes(identity, strlen(identity), hash);
    snprintf(journal->folder, sizeof journal->folder, "%s/serve-%.12s", service->folder, hash);
    int rc = take_folder(journal, diag);
    journal->shut = rc == FA_EUNTRUSTED || rc == FA_EBUSY;
    if (rc != 0)
        return rc;
    DIR *folder = opendir(journal->folder);
    if (folder == NULL)
        return fa_fail(diag, FA_EIO, "cannot read %s: %s", journal->folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (serve_is_id(entry->d_name))
            load_one(service, entry->d_name);
    closedir(folder);
    return 0;
}

/* ---- the journal, written -------------------------------------------------------------------*/
/* A text that is empty: the file is removed. */
static int write_file(serve_query *query, fa_diag *diag)
{
    const serve_journal *journal = &query->service->journal;
    char path[sizeof journal->folder + sizeof query->key + 2];
    int error = 0;
    snprintf(path, sizeof path, "%s/%s", journal->folder, query->key);
    if (journal->shut)
        error = EPERM;
    else if (query->text.size > 0)
        error = fa_replace_file(path, query->text.data, query->text.size, 0600);
    else if (unlink(path) != 0 && errno != ENOENT)
        serve_log(SERVE_WARN, "a job's file cannot be removed", "file", path, "reason",
                  strerror(errno), NULL);
    bool full = error == ENOSPC || error == EDQUOT;
    return error == 0 ? 0 : fa_fail(diag, full ? FA_EFULL : FA_EIO, "%s", strerror(error));
}

/* Writes a job's file. done() gets a query whose key is the job's and whose failure says that it is not on disk; it frees
 * the query. false: out of memory, and done() is not called. */
static bool add_to_journal(serve_service *service, const serve_journal_entry *entry,
                           void (*done)(serve_task *task))
{
    serve_query query = {.work = write_file, .apart = service->journal.thread};
    snprintf(query.key, sizeof query.key, "%s", entry->id);
    fa_buf_printf(&query.text, "fa-tune-job 1 %s %s %lld\n", entry->kind, entry->id,
                  (long long)entry->accepted_ms);
    fa_buf_append(&query.text, entry->body, entry->size);
    return serve_query_submit(service, NULL, &query, done) != NULL;
}

static void remove_from_journal(serve_service *service, const char *id)
{
    serve_query query = {.work = write_file, .apart = service->journal.thread};
    snprintf(query.key, sizeof query.key, "%s", id);
    serve_query_submit(service, NULL, &query, NULL);
}

/* ---- a job ----------------------------------------------------------------------------------*/
/* A job: a tune or a sweep from its acceptance to its end; its text, and the clients that listen to its events. */
const char *serve_job_state_name(serve_job_state state)
{
    static const char *const names[] = {"queued", "running", "done", "failed", "canceled"};
    return names[state];
}

const char *serve_job_kind_name(serve_job_kind kind)
{
    return kind == SERVE_TUNE ? "tune" : "sweep";
}

bool serve_job_is_over(const serve_job *job)
{
    return job->state >= SERVE_DONE;
}

/* ---- as text --------------------------------------------------------------------------------*/
/* The members of a JSON object's text, without its braces. */
static void append_members(fa_buf *out, const char *object)
{
    size_t size = strlen(object);
    if (size > 2) {
        fa_buf_text(out, ",");
        fa_buf_append(out, object + 1, size - 2);
    }
}

static void append_time(fa_buf *out, const char *name, int64_t unix_ms)
{
    if (unix_ms > 0)
        fa_buf_printf(out, ",\"%s\":%.3f", name, (double)unix_ms / 1000);
    else
        fa_buf_printf(out, ",\"%s\":null", name);
}

/* As JSON; "" is null. */
static void append_text(fa_buf *out, const char *text)
{
    char *printed = fa_json_finish(text[0] != 0 ? cJSON_CreateString(text) : cJSON_CreateNull());
    out->failed |= printed == NULL;
    fa_buf_text(out, printed != NULL ? printed : "null");
    free(printed);
}

/* What is tuned, in words. */
static void append_what(fa_buf *out, const serve_job *job)
{
    fa_buf words = {0};
    if (job->kind == SERVE_SWEEP)
        fa_buf_text(&words, job->plan);
    else if (job->runner >= 0) /* its request has been read */
        fa_problem_words(&words, &job->ask.problem, " · ", false);
    out->failed |= words.failed;
    append_text(out, words.data != NULL ? words.data : "");
    fa_buf_free(&words);
}

static void append_job(fa_buf *out, const serve_job *job, bool whole)
{
    fa_buf_printf(out, "{\"id\":\"%s\",\"kind\":\"%s\",\"state\":\"%s\",\"gpu\":", job->id,
                  serve_job_kind_name(job->kind), serve_job_state_name(job->state));
    append_text(out, job->gpu);
    fa_buf_text(out, ",\"what\":");
    append_what(out, job);
    if (job->runner >= 0 && job->runner < SERVE_DEVICES_MAX)
        fa_buf_printf(out, ",\"ordinal\":%d", job->runner);
    else
        fa_buf_text(out, ",\"ordinal\":null");
    append_time(out, "accepted", job->accepted_ms);
    append_time(out, "started", job->started_ms);
    append_time(out, "ended", job->ended_ms);
    if (whole) {
        fa_buf_text(out, ",\"progress\":");
        fa_buf_text(out, job->progress != NULL ? job->progress : "null");
        if (job->state == SERVE_DONE && job->result != NULL)
            append_members(out, job->result);
    }
    if (job->state == SERVE_FAILED || job->state == SERVE_CANCELED) {
        char *error = serve_error_text(job->code, job->message.text, NULL);
        if (error != NULL)
            append_members(out, error);
        free(error);
    }
    fa_buf_text(out, "}");
}

char *serve_job_text(const serve_job *job)
{
    fa_buf out = {0};
    append_job(&out, job, true);
    return serve_text_of(&out);
}

char *serve_jobs_text(const serve_service *service)
{
    fa_buf out = {0};
    fa_buf_text(&out, "{\"jobs\":[");
    for (const serve_job *job = service->jobs; job != NULL; job = job->next) {
        append_job(&out, job, false);
        if (job->next != NULL)
            fa_buf_text(&out, ",");
    }
    fa_buf_text(&out, "]}");
    return serve_text_of(&out);
}

void serve_jobs_now(const serve_service *service, fa_buf *out)
{
    enum { QUEUED_MAX = 20, ENDED_MAX = 10 };
    int queued = 0, ended = 0, told = 0;
    for (const serve_job *job = service->jobs; job != NULL; job = job->next)
        queued += job->state == SERVE_QUEUED;
    fa_buf_printf(out, "\"queued\":%d,\"jobs\":[", queued);
    for (const serve_job *job = service->jobs; job != NULL; job = job->next) {
        if (serve_job_is_over(job) ? ended++ >= ENDED_MAX
                                   : job->state == SERVE_QUEUED && queued-- > QUEUED_MAX)
            continue;
        fa_buf_text(out, told++ > 0 ? "," : "");
        append_job(out, job, job->state == SERVE_RUNNING);
    }
    fa_buf_text(out, "]");
}

/* ---- listeners ------------------------------------------------------------------------------*/
static void send_event(serve_exchange *exchange, const char *event, const char *data, bool may_drop)
{
    fa_buf line = {0};
    fa_buf_printf(&line, "event: %s\ndata: ", event);
    fa_buf_text(&line, data);
    fa_buf_text(&line, "\n\n");
    if (!line.failed)
        serve_stream_send(exchange, line.data, line.size, may_drop);
    fa_buf_free(&line);
}

static void send_end(const serve_job *job, serve_exchange *exchange)
{
    char *text =
        job->state == SERVE_DONE ? NULL : serve_error_text(job->code, job->message.text, NULL);
    const char *data = job->state == SERVE_DONE ? job->result : text;
    send_event(exchange, serve_job_state_name(job->state), data != NULL ? data : "{}", false);
    free(text);
    serve_stream_end(exchange);
}

/* Sends the job's end to all who listen, or ends their streams where it has not ended. */
static void serve_job_end_streams(serve_job *job)
{
    serve_exchange *exchange;
    while ((exchange = serve_waiters_take(&job->listeners)) != NULL)
        if (serve_job_is_over(job))
            send_end(job, exchange);
        else
            serve_stream_end(exchange);
}

void serve_job_listen(serve_job *job, serve_exchange *exchange)
{
    static const char hello[] = ": the job's events follow\n\n";
    serve_stream(exchange);
    serve_stream_send(exchange, hello, sizeof hello - 1, false);
    if (serve_job_is_over(job)) {
        send_end(job, exchange);
        return;
    }
    if (job->progress != NULL)
        send_event(exchange, "progress", job->progress, false);
    serve_waiters_add(&job->listeners, exchange, 0);
    atomic_store(&job->watched, true);
}

void serve_jobs_keep_alive(serve_service *service)
{
    static const char comment[] = ": still there\n\n";
    for (serve_job *job = service->jobs; job != NULL; job = job->next)
        for (serve_exchange *e = job->listeners.first; e != NULL; e = e->next)
            serve_stream_send(e, comment, sizeof comment - 1, true);
}

/* ---- from a runner's thread -----------------------------------------------------------------*/
struct event {
    serve_task task;
    serve_job *job;
    const char *name; /* NULL: the job has begun */
    char *text;
};

static void take_event(serve_task *task)
{
    struct event *event = (struct event *)task;
    serve_job *job = event->job;
    if (event->name != NULL) {
        for (serve_exchange *e = job->listeners.first; e != NULL; e = e->next)
            send_event(e, event->name, event->text, true);
        free(job->progress);
        job->progress = event->text;
        if (job->listeners.count == 0)
            atomic_store(&job->watched, false);
    } else if (job->state == SERVE_QUEUED) {
        job->state = SERVE_RUNNING;
        job->started_ms = serve_unix_ms();
        serve_log(SERVE_INFO, "job started", "job", job->id, "gpu", job->gpu, NULL);
    }
    free(event);
}

/* From its runner's thread: an event for those who listen, or NULL: it has begun; takes the text. */
static void serve_job_post_event(serve_job *job, const char *name, char *text)
{
    struct event *event = calloc(1, sizeof *event);
    if (event == NULL) {
        free(text);
        return;
    }
    *event = (struct event){{.done = take_event}, job, name, text};
    serve_loop_post(job->service->queue, &event->task);
}

/* ---- a runner -------------------------------------------------------------------------------*/
/* Where jobs run: a thread for each device and one for GPUs that are not here, each with tuners of its own, because
 * one tune at a time runs in a tuner. Between two problems of a sweep the tunes that have come meanwhile go first. */
enum { TELL_MS = 200 };

/* ---- tunes ----------------------------------------------------------------------------------*/
int serve_request_of(const serve_service *service, const fa_ask *ask, fa_request *ret_request,
                     fa_diag *diag)
{
    const fa_gpu *device = NULL;
    for (int i = 0; ask->uuid[0] != 0 && device == NULL && i < service->device_count; i++)
        if (strcmp(service->device[i].uuid, ask->uuid) == 0)
            device = &service->device[i];
    if (ask->gpu[0] == 0 && device == NULL && ask->uuid[0] != 0)
        return fa_fail(diag, FA_ENODEVICE,
                       "no device here has the uuid %s: GET /v1/gpus lists them", ask->uuid);
    if (ask->gpu[0] == 0 && service->device_code != 0)
        return fa_fail(diag, service->device_code, "%s", service->device_reason.text);
    *ret_request = (fa_request){.size = sizeof *ret_request,
                                .problem = ask->problem,
                                .gpu = device == NULL && ask->gpu[0] != 0 ? ask->gpu : NULL,
                                .ordinal = device != NULL ? device->ordinal : ask->ordinal,
                                .effort = ask->effort,
                                .again = ask->again,
                                .exact = ask->exact,
                                .first_contact = ask->first_contact,
                                .strategy = ask->strategy[0] != 0 ? ask->strategy : NULL,
                                .evaluations = ask->evaluations,
                                .seconds = ask->seconds};
    return 0;
}

/* Clients that listen hear of every trial; otherwise now and then is enough. */
static bool worth_telling(serve_job *job, const fa_progress *progress)
{
    int64_t now = (int64_t)(uv_hrtime() / 1000000);
    bool listened = atomic_load(&job->watched) && progress->kind == FA_EVENT_TRIAL;
    if (!listened && progress->kind != FA_EVENT_STAGE && now - job->reported_ms < TELL_MS)
        return false;
    job->reported_ms = now;
    return true;
}

static int tune_event(void *context, const fa_progress *progress)
{
    serve_job *job = context;
    char *text;
    if (worth_telling(job, progress) && fa_progress_write(progress, &text, NULL) == 0)
        serve_job_post_event(job, "progress", text);
    return atomic_load(&job->cancel);
}

static int tune(serve_job *job, serve_runner *runner, fa_diag *diag)
{
    fa_answer answer = {.size = sizeof answer};
    fa_request request;
    const bool sent = job->ask.family[0] != 0;
    fa_tuner **tuner = sent ? &runner->family.tuner : &runner->tuner;
    int rc = serve_request_of(runner->service, &job->ask, &request, diag);
    if (rc == 0)
        rc = sent ? serve_family_open(runner->service, job->ask.family, &runner->family, diag)
                  : serve_tuner_need(runner->service, tuner, diag);
    if (rc != 0)
        return rc;
    request.progress = tune_event;
    request.context = job;
    rc = fa_tune(*tuner, &request, &answer, diag);
    if (rc == 0)
        return serve_kernel_text(*tuner, &answer, &job->result, diag);
    serve_tuner_close_broken(tuner, rc);
    return rc;
}

/* ---- sweeps ---------------------------------------------------------------------------------*/
struct sweeping {
    serve_job *job;
    serve_thread *thread;
};

static int sweep_event(void *context, const fa_sweep_progress *progress)
{
    struct sweeping *sweeping = context;
    serve_job *job = sweeping->job;
    char *text;
    bool ends = progress->event == FA_SWEEP_ITEM_ENDS || progress->event == FA_SWEEP_ITEM_KNOWN;
    bool tell = progress->event != FA_SWEEP_ITEM_TUNES ||
                (progress->tune != NULL && worth_telling(job, progress->tune));
    if (tell && fa_sweep_event_write(progress, &text, NULL) == 0)
        serve_job_post_event(job, ends ? "item" : "progress", text);
    while (ends && !atomic_load(&job->cancel) && serve_thread_run_interleaved(sweeping->thread))
        continue;
    return atomic_load(&job->cancel);
}

static int sweep(serve_job *job, serve_runner *runner, fa_diag *diag)
{
    struct sweeping sweeping = {job, runner->thread};
    fa_sweep result = {0};
    char *text = NULL;
    fa_sweep_request request = job->sweep;
    request.progress = sweep_event;
    request.context = &sweeping;
    int rc = serve_tuner_need(runner->service, &runner->sweeper, diag);
    if (rc == 0)
        rc = fa_run_sweep(runner->sweeper, &request, &result, diag);
    serve_tuner_close_broken(&runner->sweeper, rc);
    if (rc == 0)
        rc = fa_sweep_write(&result, &text, diag);
    if (rc != 0)
        return rc;
    fa_buf out = {0};
    fa_buf_printf(&out, "{\"sweep\":%s}", text);
    free(text);
    job->result = serve_text_of(&out);
    return job->result != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for a sweep's end");
}

/* ---- runners --------------------------------------------------------------------------------*/
static void serve_runner_work(serve_task *task, serve_thread *thread)
{
    serve_job *job = (serve_job *)task;
    if (atomic_exchange(&job->taken, true))
        return;
    if (atomic_load(&job->cancel)) {
        job->code = fa_fail(&job->message, FA_ECANCELED, "canceled");
        return;
    }
    serve_job_post_event(job, NULL, NULL);
    serve_runner *runner = serve_thread_context(thread);
    int (*run)(serve_job * job, serve_runner * runner, fa_diag * diag) =
        job->kind == SERVE_TUNE ? tune : sweep;
    job->code = run(job, runner, &job->message);
    if (job->code == FA_ECORRUPT) /* opening the store anew mends it, or moves it away */
        job->code = run(job, runner, &job->message);
    if (job->code == FA_EINVAL) /* the request was found right before it became a job */
        job->code = FA_EIO;
    if (job->code == 0)
        job->message.text[0] = 0; /* of a lookup that found nothing before the tune */
}

static void runner_end(void *context)
{
    serve_runner *runner = context;
    fa_close(&runner->tuner);
    fa_close(&runner->sweeper);
    fa_close(&runner->family.tuner);
}

static void runner_ended(void *context)
{
    serve_runner *runner = context;
    serve_service_thread_ended(runner->service);
}

/* The runner of this index, whose thread is started when it is first asked for. */
static int serve_runner_get(serve_service *service, int index, serve_runner **ret_runner,
                            fa_diag *diag)
{
    static const serve_thread_calls calls = {NULL, runner_end, runner_ended, false};
    if (service->runner[index] == NULL) {
        serve_runner *runner = calloc(1, sizeof *runner);
        if (runner == NULL)
            return fa_fail(diag, FA_ENOMEM, "out of memory for a thread");
        runner->service = service;
        int rc = serve_thread_start(service->queue, &calls, runner, &runner->thread, diag);
        if (rc != 0) {
            free(runner);
            return rc;
        }
        service->runner[index] = runner;
        service->threads++;
    }
    *ret_runner = service->runner[index];
    return 0;
}

/* ---- the table of jobs ----------------------------------------------------------------------*/
enum { ENDED_MAX = 256 /* jobs that are remembered after their end */ };

serve_job *serve_job_find(serve_service *service, const char *id)
{
    for (serve_job *job = service->jobs; job != NULL; job = job->next)
        if (strcmp(job->id, id) == 0)
            return job;
    return NULL;
}

bool serve_same_search(const fa_ask *one, const fa_ask *other)
{
    return strcmp(one->strategy, other->strategy) == 0 && one->evaluations == other->evaluations &&
           one->seconds == other->seconds;
}

serve_job *serve_job_of_key(serve_service *service, const char *key, const fa_problem *problem,
                            int effort, const fa_ask *search)
{
    for (serve_job *job = service->jobs; job != NULL; job = job->next)
        if (!serve_job_is_over(job) && !atomic_load(&job->cancel) && job->effort >= effort &&
            strcmp(job->key, key) == 0 &&
            (problem == NULL || fa_problem_equal(&job->ask.problem, problem)) &&
            (search == NULL || serve_same_search(&job->ask, search)))
            return job;
    return NULL;
}

/* Whether the loop may end a job that was given to its runner: the first of the two to take it has it. */
static bool take_job(serve_job *job)
{
    return !job->given || !atomic_exchange(&job->taken, true);
}

bool serve_jobs_full(const serve_service *service, serve_job_kind kind)
{
    return service->live_jobs >= service->settings->max_jobs ||
           (kind == SERVE_SWEEP && service->live_sweeps >= service->settings->max_sweeps);
}

/* ---- memory ---------------------------------------------------------------------------------*/
static void free_job(serve_job *job)
{
    SERVE_LIST_REMOVE(job->service->jobs, job);
    free(job->items);
    free(job->progress);
    free(job->result);
    free(job);
}

void serve_jobs_free(serve_service *service)
{
    while (service->jobs != NULL)
        free_job(service->jobs);
}

/* Keeps the jobs that ended last, for clients that ask what became of them. */
void serve_jobs_forget(serve_service *service)
{
    int ended = 0;
    serve_job *next;
    for (serve_job *job = service->jobs; job != NULL; job = next) {
        next = job->next;
        if (serve_job_is_over(job) && ++ended > ENDED_MAX && !job->given && job->references == 0 &&
            job->listeners.count == 0 && job->submitters.count == 0)
            free_job(job);
    }
}

static bool make_id(char ret_id[SERVE_ID_SIZE])
{
    unsigned char bytes[(SERVE_ID_SIZE - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(ret_id + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

serve_job *serve_job_new(serve_service *service, serve_job_kind kind)
{
    serve_job *job = calloc(1, sizeof *job);
    if (job == NULL || !make_id(job->id)) {
        free(job);
        return NULL;
    }
    job->service = service;
    job->kind = kind;
    job->runner = -1;
    job->accepted_ms = serve_unix_ms();
    SERVE_LIST_ADD(service->jobs, job);
    service->live_jobs++;
    service->live_sweeps += kind == SERVE_SWEEP;
    service->counts.jobs[SERVE_QUEUED]++;
    return job;
}

/* ---- ends -----------------------------------------------------------------------------------*/
static void forget_in_journal(serve_job *job)
{
    if (job->journaled || job->journaling)
        remove_from_journal(job->service, job->id);
    job->journaled = job->journaling = false;
}

static void finish_job(serve_job *job, serve_job_state state)
{
    serve_service *service = job->service;
    job->state = state;
    job->ended_ms = serve_unix_ms();
    service->live_jobs--;
    service->live_sweeps -= job->kind == SERVE_SWEEP;
    service->counts.jobs[state]++;
    if (state == SERVE_DONE && job->started_ms != 0) /* else it was in the store */
        serve_cache_empty(service->cache);
    if (!job->kept)
        forget_in_journal(job);
    free(job->items);
    job->items = NULL;
    serve_log(state == SERVE_FAILED ? SERVE_WARN : SERVE_INFO, "job ended", "job", job->id, "state",
              serve_job_state_name(state), "reason", job->message.text, NULL);
    serve_job_end_streams(job);
    service->job_ended(job);
}

void serve_job_answer(serve_job *job, char *result)
{
    if (!take_job(job)) { /* its runner began just now, and will find as much */
        free(result);
        return;
    }
    job->result = result;
    finish_job(job, SERVE_DONE);
}

void serve_job_fail(serve_job *job, int code, const char *message)
{
    job->code = fa_fail(&job->message, code, "%s", message);
    finish_job(job, SERVE_FAILED);
}

static void job_done(serve_task *task)
{
    serve_job *job = (serve_job *)task;
    job->given = false;
    if (serve_job_is_over(job))
        return; /* canceled or answered while it was queued */
    bool stopped = job->service->stopping && job->code == FA_ECANCELED && !job->unwanted;
    if (task->skipped || stopped) { /* the journal has it, and the next process goes on with it */
        job->state = SERVE_QUEUED;
        serve_job_end_streams(job);
        return;
    }
    finish_job(job, job->code == 0                                           ? SERVE_DONE
                    : job->code == FA_ECANCELED && atomic_load(&job->cancel) ? SERVE_CANCELED
                                                                             : SERVE_FAILED);
}

void serve_job_cancel(serve_job *job)
{
    forget_in_journal(job); /* whatever ends this process first */
    if (serve_job_is_over(job))
        return;
    job->unwanted = true;
    atomic_store(&job->cancel, true);
    if (job->state == SERVE_QUEUED && take_job(job)) {
        job->code = fa_fail(&job->message, FA_ECANCELED, "canceled before it began");
        finish_job(job, SERVE_CANCELED);
    }
}

bool serve_job_is_shared(const serve_job *job)
{
    for (const serve_exchange *e = job->listeners.first; e != NULL; e = e->next)
        if (serve_is_connected(e))
            return true;
    for (const serve_pending *p = job->service->pending; p != NULL; p = p->next)
        if (p->job == job && p->waits_for_job && p->clients.count > 0)
            return true;
    return job->submitters.count > 0;
}

/* ---- beginnings -----------------------------------------------------------------------------*/
static void reply_accepted(const serve_job *job, serve_exchange *exchange)
{
    char text[SERVE_ID_SIZE + 16], place[SERVE_ID_SIZE + 16];
    snprintf(text, sizeof text, "{\"job\":\"%s\"}", job->id);
    snprintf(place, sizeof place, "/v1/jobs/%s", job->id);
    serve_page *page = serve_page_json(strdup(text));
    serve_page_header(page, MHD_HTTP_HEADER_LOCATION, place);
    serve_reply_page(exchange, MHD_HTTP_ACCEPTED, page);
}

static void reply_not_kept(serve_exchange *exchange, int code, const char *reason)
{
    fa_diag diag;
    fa_fail(&diag, code, "the job could not be kept on disk, so it was not accepted: %s", reason);
    serve_reply_error(exchange, code, diag.text, NULL);
}

void serve_job_submit(serve_job *job, serve_exchange *exchange)
{
    if (job->journaling)
        serve_waiters_add(&job->submitters, exchange, 0);
    else if (job->journaled || serve_job_is_over(job))
        reply_accepted(job, exchange);
    else
        reply_not_kept(exchange, FA_ENOMEM, "out of memory");
}

static void end_journaling(serve_job *job, int rc, const char *reason)
{
    serve_exchange *exchange;
    job->journaling = false;
    job->journaled = rc == 0;
    while ((exchange = serve_waiters_take(&job->submitters)) != NULL)
        if (rc == 0)
            reply_accepted(job, exchange);
        else
            reply_not_kept(exchange, rc, reason);
    if (rc == 0)
        return;
    serve_log(SERVE_ERROR, "job not kept", "job", job->id, "reason", reason, NULL);
    if (!serve_job_is_shared(job))
        serve_job_cancel(job); /* nobody waits for it, and nobody was promised it */
}

static void job_written(serve_task *task)
{
    serve_query *query = (serve_query *)task;
    serve_job *job = serve_job_find(query->service, query->key);
    if (job != NULL)
        end_journaling(job, query->rc, query->diag.text);
    serve_query_free(query);
}

int serve_job_start(serve_job *job, const char *body, size_t size, const fa_gpu *gpu, fa_diag *diag)
{
    serve_service *service = job->service;
    serve_runner *runner = NULL;
    job->runner = gpu->present && gpu->ordinal >= 0 && gpu->ordinal < SERVE_DEVICES_MAX
                      ? gpu->ordinal
                      : SERVE_RUNNERS - 1;
    snprintf(job->gpu, sizeof job->gpu, "%s", gpu->name);
    job->task.work = serve_runner_work;
    job->task.done = job_done;
    job->task.interleaves = job->kind == SERVE_TUNE;
    if (!job->journaled) {
        serve_journal_entry entry = {
            .accepted_ms = job->accepted_ms, .body = (char *)(uintptr_t)body, .size = size};
        memcpy(entry.id, job->id, sizeof entry.id);
        snprintf(entry.kind, sizeof entry.kind, "%s", serve_job_kind_name(job->kind));
        job->journaling = add_to_journal(service, &entry, job_written);
    }
    if (!service->runs)
        return 0;
    int rc = serve_runner_get(service, job->runner, &runner, diag);
    if (rc == 0) {
        job->given = true;
        serve_thread_submit(runner->thread, &job->task);
    }
    return rc;
}
