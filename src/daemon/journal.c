/* SPDX-License-Identifier: Apache-2.0 */
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
struct loading {
    serve_task task;
    serve_journal *journal;
    size_t limit;
    serve_journal_entry *first;
    int rc;
    fa_diag diag;
    serve_journal_loaded *loaded;
    void *context;
};

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

static void load_one(struct loading *loading, const char *name)
{
    char path[sizeof loading->journal->folder + SERVE_ID_SIZE + 2];
    fa_buf text = {0};
    snprintf(path, sizeof path, "%s/%s", loading->journal->folder, name);
    int rc = fa_buf_read_file(&text, path, loading->limit + HEAD_MAX);
    serve_journal_entry *entry = rc == 0 ? parse(&text, name) : NULL;
    fa_buf_free(&text);
    if (entry == NULL) {
        serve_log(SERVE_WARN, "a job's file cannot be read and is passed over", "file", path, NULL);
        return;
    }
    serve_journal_entry **at = &loading->first; /* in the order in which they were accepted */
    while (*at != NULL && (*at)->accepted_ms <= entry->accepted_ms)
        at = &(*at)->next;
    entry->next = *at;
    *at = entry;
}

/* FA_EUNTRUSTED: other users can write there, or own the folder. */
static int open_folder(const char *path, DIR **ret_folder, fa_diag *diag)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool ours = fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 022) == 0;
    *ret_folder = ours ? fdopendir(fd) : NULL;
    if (*ret_folder != NULL)
        return 0;
    int rc =
        fd < 0 || ours
            ? fa_fail(diag, FA_EIO, "cannot open %s: %s", path, strerror(errno))
            : fa_fail(diag, FA_EUNTRUSTED,
                      "others than this user can write to %s: remove it, and keep the store in "
                      "a directory of this user's alone",
                      path);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Whether no other daemon uses the directory. The kernel releases the lock when this process ends. Where nothing
 * can be locked, the directory is used without a lock. */
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

/* The first directory of this name that is free. */
static int take_folder(serve_journal *journal, DIR **ret_folder, fa_diag *diag)
{
    size_t size = strlen(journal->folder);
    for (int i = 0; i < FOLDERS; i++) {
        if (i > 0)
            snprintf(journal->folder + size, sizeof journal->folder - size, ".%d", i);
        if (mkdir(journal->folder, 0700) != 0 && errno != EEXIST)
            return fa_fail(diag, FA_EIO, "cannot make %s: %s", journal->folder, strerror(errno));
        int rc = open_folder(journal->folder, ret_folder, diag);
        if (rc != 0 || lock_folder(*ret_folder, &journal->lock))
            return rc;
        closedir(*ret_folder);
    }
    return fa_fail(diag, FA_EBUSY,
                   "%d other daemons keep their jobs beside %s: give --socket another path",
                   FOLDERS, journal->folder);
}

static void load_journal(serve_task *task, serve_thread *thread)
{
    struct loading *loading = (struct loading *)task;
    DIR *folder = NULL;
    (void)thread;
    loading->rc = take_folder(loading->journal, &folder, &loading->diag);
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
    loading->journal->shut = loading->rc == FA_EUNTRUSTED || loading->rc == FA_EBUSY;
    loading->loaded(loading->context, loading->first, loading->rc, loading->diag.text);
    while (loading->first != NULL) {
        serve_journal_entry *entry = loading->first;
        loading->first = entry->next;
        free(entry->body);
        free(entry);
    }
    free(loading);
}

void serve_journal_load(serve_journal *journal, size_t limit, serve_journal_loaded *when_loaded,
                        void *context)
{
    struct loading *loading = calloc(1, sizeof *loading);
    if (loading == NULL) {
        when_loaded(context, NULL, FA_ENOMEM, "out of memory");
        return;
    }
    *loading = (struct loading){.task = {.work = load_journal, .done = loaded},
                                .journal = journal,
                                .limit = limit,
                                .loaded = when_loaded,
                                .context = context};
    serve_thread_submit(journal->thread, &loading->task);
}

/* ---- writing --------------------------------------------------------------------------------*/
struct writing {
    serve_task task;
    char id[SERVE_ID_SIZE];
    char path[sizeof((serve_journal *)0)->folder + SERVE_ID_SIZE + 2];
    fa_buf text; /* empty: the file is removed */
    bool shut;   /* the journal must not be written */
    int error;
    serve_journal_written *written;
    void *context;
};

static void write_file(serve_task *task, serve_thread *thread)
{
    struct writing *writing = (struct writing *)task;
    (void)thread;
    if (writing->shut)
        writing->error = EPERM;
    else if (writing->written != NULL)
        writing->error =
            fa_replace_file(writing->path, writing->text.data, writing->text.size, 0600);
    else if (unlink(writing->path) != 0 && errno != ENOENT)
        serve_log(SERVE_WARN, "a job's file cannot be removed", "file", writing->path, "reason",
                  strerror(errno), NULL);
}

static void written(serve_task *task)
{
    struct writing *writing = (struct writing *)task;
    int error = writing->error;
    if (writing->written != NULL)
        writing->written(writing->context, writing->id,
                         error == 0                           ? 0
                         : error == ENOSPC || error == EDQUOT ? FA_EFULL
                                                              : FA_EIO,
                         strerror(error));
    fa_buf_free(&writing->text);
    free(writing);
}

static struct writing *new_writing(const serve_journal *journal, const char *id)
{
    struct writing *writing = calloc(1, sizeof *writing);
    if (writing == NULL)
        return NULL;
    writing->task.work = write_file;
    writing->task.done = written;
    writing->shut = journal->shut;
    snprintf(writing->id, sizeof writing->id, "%s", id);
    snprintf(writing->path, sizeof writing->path, "%s/%s", journal->folder, id);
    return writing;
}

bool serve_journal_add(serve_journal *journal, const serve_journal_entry *entry,
                       serve_journal_written *when_written, void *context)
{
    struct writing *writing = new_writing(journal, entry->id);
    if (writing == NULL)
        return false;
    fa_buf_printf(&writing->text, "fa-tune-job 1 %s %s %lld\n", entry->kind, entry->id,
                  (long long)entry->accepted_ms);
    fa_buf_append(&writing->text, entry->body, entry->size);
    if (writing->text.failed) {
        fa_buf_free(&writing->text);
        free(writing);
        return false;
    }
    writing->written = when_written;
    writing->context = context;
    serve_thread_submit(journal->thread, &writing->task);
    return true;
}

void serve_journal_remove(serve_journal *journal, const char *id)
{
    struct writing *writing = new_writing(journal, id);
    if (writing != NULL)
        serve_thread_submit(journal->thread, &writing->task);
}
