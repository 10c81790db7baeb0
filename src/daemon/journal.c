/* SPDX-License-Identifier: Apache-2.0
 *
 * Accepted jobs on disk, so that they outlive the process: a file for each in a directory beside
 * the store, written whole before the client is told, removed when the job has ended. Each
 * daemon has a directory of its own, named after where it serves; those in containers or on hosts
 * that share a store may serve at the same path, and each then locks another one.
 *
 * A file: "fa-tune-job 1 KIND ID ACCEPTED\n" and the request's body as it came. It is read again
 * as if it had come from a client.
 */
#include "service.h"

#include "buf.h"
#include "error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_MAX = 128, FOLDERS = 16 };

/* ---- loading --------------------------------------------------------------------------------*/
struct kept {
    struct kept *next;
    serve_job_kind kind;
    char id[SERVE_ID_SIZE];
    int64_t accepted_ms;
    char *body;
    size_t size;
};

struct loading {
    serve_task task;
    serve_service *service;
    char folder[sizeof((serve_service *)0)->folder];
    size_t limit;
    struct kept *first;
    int lock;
    int rc;
    fa_diag diag;
};

bool serve_is_id(const char *text)
{
    return strlen(text) == SERVE_ID_SIZE - 1 &&
           strspn(text, "0123456789abcdef") == SERVE_ID_SIZE - 1;
}

static struct kept *parse(const fa_buf *text, const char *name)
{
    char kind[8], id[SERVE_ID_SIZE];
    long long accepted;
    int head = 0;
    if (text->data == NULL ||
        sscanf(text->data, "fa-tune-job 1 %7[a-z] %32[0-9a-f] %lld%n", kind, id, &accepted,
               &head) != 3 ||
        head == 0 || text->data[head] != '\n' || strcmp(id, name) != 0 ||
        (strcmp(kind, "tune") != 0 && strcmp(kind, "sweep") != 0))
        return NULL;
    struct kept *kept = calloc(1, sizeof *kept);
    size_t size = text->size - (size_t)head - 1;
    char *body = malloc(size + 1);
    if (kept == NULL || body == NULL) {
        free(kept);
        free(body);
        return NULL;
    }
    memcpy(body, text->data + head + 1, size);
    body[size] = 0;
    *kept = (struct kept){
        NULL, strcmp(kind, "tune") == 0 ? SERVE_TUNE : SERVE_SWEEP, "", accepted, body, size};
    memcpy(kept->id, id, sizeof id);
    return kept;
}

static void load_one(struct loading *loading, const char *name)
{
    char path[sizeof loading->folder + SERVE_ID_SIZE + 2];
    fa_buf text = {0};
    snprintf(path, sizeof path, "%s/%s", loading->folder, name);
    int rc = fa_buf_read_file(&text, path, loading->limit + HEAD_MAX);
    struct kept *kept = rc == 0 ? parse(&text, name) : NULL;
    fa_buf_free(&text);
    if (kept == NULL) {
        serve_log(SERVE_WARN, "a job's file cannot be read and is passed over", "file", path, NULL);
        return;
    }
    struct kept **at = &loading->first; /* the first accepted first */
    while (*at != NULL && (*at)->accepted_ms <= kept->accepted_ms)
        at = &(*at)->next;
    kept->next = *at;
    *at = kept;
}

/* FA_EUNTRUSTED: others could have put jobs there, or can. */
static int open_folder(const char *path, DIR **ret_folder, fa_diag *diag)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool ours = fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 022) == 0;
    *ret_folder = ours ? fdopendir(fd) : NULL;
    if (*ret_folder != NULL)
        return 0;
    int rc = fd < 0 || ours
                 ? fa_fail(diag, FA_EIO, "cannot open %s: %s", path, strerror(errno))
                 : fa_fail(diag, FA_EUNTRUSTED,
                           "others than this user can write to %s: remove it, and keep the store in "
                           "a directory of this user's alone",
                           path);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Whether no other daemon has it. The kernel lets go when this process ends; where nothing can be
 * locked, it is taken as it is. */
static bool lock_folder(DIR *folder, int *ret_lock)
{
    int fd = openat(dirfd(folder), "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(fd);
        return false;
    }
    *ret_lock = fd;
    return true;
}

/* The first of its directories that is free. */
static int take_folder(struct loading *loading, DIR **ret_folder)
{
    size_t size = strlen(loading->folder);
    for (int i = 0; i < FOLDERS; i++) {
        if (i > 0)
            snprintf(loading->folder + size, sizeof loading->folder - size, ".%d", i);
        if (mkdir(loading->folder, 0700) != 0 && errno != EEXIST)
            return fa_fail(&loading->diag, FA_EIO, "cannot make %s: %s", loading->folder,
                           strerror(errno));
        int rc = open_folder(loading->folder, ret_folder, &loading->diag);
        if (rc != 0 || lock_folder(*ret_folder, &loading->lock))
            return rc;
        closedir(*ret_folder);
    }
    return fa_fail(&loading->diag, FA_EBUSY,
                   "%d other daemons keep their jobs beside %s: give --socket another path", FOLDERS,
                   loading->folder);
}

static void load(serve_task *task, serve_worker *worker)
{
    struct loading *loading = (struct loading *)task;
    DIR *folder = NULL;
    (void)worker;
    loading->rc = take_folder(loading, &folder);
    if (loading->rc != 0 || folder == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (serve_is_id(entry->d_name))
            load_one(loading, entry->d_name);
    closedir(folder);
}

static void loaded(serve_task *task)
{
    struct loading *loading = (struct loading *)task;
    serve_service *service = loading->service;
    struct kept *next;
    for (struct kept *kept = loading->first; kept != NULL; kept = next) {
        next = kept->next;
        serve_job *job =
            service->stopping ? NULL : serve_job_new(service, kept->kind, kept->body, kept->size);
        if (job != NULL) {
            memcpy(job->id, kept->id, sizeof job->id);
            job->accepted_ms = kept->accepted_ms;
            job->journaled = true;
            serve_log(SERVE_INFO, "job goes on", "job", job->id, NULL);
            serve_flight_resume(service, job);
        }
        free(kept->body);
        free(kept);
    }
    service->journal_open = true;
    service->journal_shut = loading->rc == FA_EUNTRUSTED || loading->rc == FA_EBUSY;
    service->journal_lock = loading->lock;
    memcpy(service->folder, loading->folder, sizeof service->folder);
    if (loading->rc != 0) /* a store that cannot be written: lookups work, and no job is accepted */
        serve_log(SERVE_WARN, "jobs cannot be kept", "reason", loading->diag.text, NULL);
    free(loading);
    if (serve_service_is_ready(service) && service->ready != NULL)
        service->ready(service->ready_context);
}

void serve_journal_load(serve_service *service)
{
    struct loading *loading = calloc(1, sizeof *loading);
    if (loading == NULL)
        return;
    loading->task.work = load;
    loading->task.done = loaded;
    loading->service = service;
    loading->lock = -1;
    loading->limit = (size_t)service->settings->max_sweep_body;
    memcpy(loading->folder, service->folder, sizeof loading->folder);
    serve_worker_give(service->journal, &loading->task);
}

/* ---- writing --------------------------------------------------------------------------------*/
struct writing {
    serve_task task;
    serve_service *service;
    char id[SERVE_ID_SIZE];
    char path[sizeof((serve_service *)0)->folder + SERVE_ID_SIZE + 2];
    fa_buf text; /* empty: the file goes */
    bool shut;   /* nothing is written there */
    int error;
};

static void write_file(serve_task *task, serve_worker *worker)
{
    struct writing *writing = (struct writing *)task;
    (void)worker;
    if (writing->shut)
        writing->error = EPERM;
    else if (writing->text.size > 0)
        writing->error = writing->text.failed ? ENOMEM
                                              : fa_replace_file(writing->path, writing->text.data,
                                                                writing->text.size, 0600);
    else if (unlink(writing->path) != 0 && errno != ENOENT)
        serve_log(SERVE_WARN, "a job's file cannot be removed", "file", writing->path, "reason",
                  strerror(errno), NULL);
}

static void written(serve_task *task)
{
    struct writing *writing = (struct writing *)task;
    serve_service *service = writing->service;
    serve_job *job = writing->text.size > 0 || writing->text.failed
                         ? serve_job_find(service, writing->id)
                         : NULL;
    if (job != NULL) {
        job->journaling = false;
        job->journaled = writing->error == 0;
        if (job->journaled)
            serve_job_journaled(job, 0, NULL);
        else
            serve_job_journaled(job,
                                writing->error == ENOSPC || writing->error == EDQUOT ? FA_EFULL
                                                                                     : FA_EIO,
                                strerror(writing->error));
    }
    fa_buf_free(&writing->text);
    free(writing);
}

static struct writing *new_writing(serve_job *job)
{
    struct writing *writing = calloc(1, sizeof *writing);
    if (writing == NULL)
        return NULL;
    writing->task.work = write_file;
    writing->task.done = written;
    writing->service = job->service;
    writing->shut = job->service->journal_shut;
    memcpy(writing->id, job->id, sizeof writing->id);
    snprintf(writing->path, sizeof writing->path, "%s/%s", job->service->folder, job->id);
    return writing;
}

void serve_journal_add(serve_job *job)
{
    struct writing *writing = new_writing(job);
    if (writing == NULL)
        return;
    fa_buf_printf(&writing->text, "fa-tune-job 1 %s %s %lld\n",
                  job->kind == SERVE_TUNE ? "tune" : "sweep", job->id, (long long)job->accepted_ms);
    fa_buf_append(&writing->text, job->body, job->body_size);
    job->journaling = true;
    serve_worker_give(job->service->journal, &writing->task);
}

void serve_journal_remove(serve_job *job)
{
    struct writing *writing = job->journaled || job->journaling ? new_writing(job) : NULL;
    if (writing != NULL)
        serve_worker_give(job->service->journal, &writing->task);
    job->journaled = job->journaling = false;
}
