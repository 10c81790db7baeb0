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
    serve_journal_entry *first;
    int rc;
    fa_diag diag;
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
    int rc = fa_buf_read_file(&text, path, loading->journal->limit + HEAD_MAX);
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

static void load_journal(serve_task *task, serve_thread *thread)
{
    struct loading *loading = (struct loading *)task;
    (void)thread;
    loading->rc = take_folder(loading->journal, &loading->diag);
    if (loading->rc != 0)
        return;
    DIR *folder = opendir(loading->journal->folder);
    if (folder == NULL) {
        loading->rc = fa_fail(&loading->diag, FA_EIO, "cannot read %s: %s",
                              loading->journal->folder, strerror(errno));
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (serve_is_id(entry->d_name))
            load_one(loading, entry->d_name);
    closedir(folder);
}

static void loaded(serve_task *task)
{
    struct loading *loading = (struct loading *)task;
    serve_journal *journal = loading->journal;
    journal->shut = loading->rc == FA_EUNTRUSTED || loading->rc == FA_EBUSY;
    journal->loaded(journal->context, loading->first, loading->rc, loading->diag.text);
    while (loading->first != NULL) {
        serve_journal_entry *entry = loading->first;
        loading->first = entry->next;
        free(entry->body);
        free(entry);
    }
    free(loading);
}

void serve_journal_load(serve_journal *journal)
{
    struct loading *loading = calloc(1, sizeof *loading);
    if (loading == NULL) {
        journal->loaded(journal->context, NULL, FA_ENOMEM, "out of memory");
        return;
    }
    loading->task = (serve_task){.work = load_journal, .done = loaded};
    loading->journal = journal;
    serve_thread_submit(journal->thread, &loading->task);
}

/* ---- writing --------------------------------------------------------------------------------*/
struct writing {
    serve_task task;
    const serve_journal *journal;
    char id[SERVE_ID_SIZE];
    fa_buf text; /* empty: the file is removed */
    int error;
};

static void write_file(serve_task *task, serve_thread *thread)
{
    struct writing *writing = (struct writing *)task;
    char path[sizeof writing->journal->folder + SERVE_ID_SIZE + 2];
    (void)thread;
    snprintf(path, sizeof path, "%s/%s", writing->journal->folder, writing->id);
    if (writing->journal->shut)
        writing->error = EPERM;
    else if (writing->text.size > 0)
        writing->error = fa_replace_file(path, writing->text.data, writing->text.size, 0600);
    else if (unlink(path) != 0 && errno != ENOENT)
        serve_log(SERVE_WARN, "a job's file cannot be removed", "file", path, "reason",
                  strerror(errno), NULL);
}

static void written(serve_task *task)
{
    struct writing *writing = (struct writing *)task;
    const serve_journal *journal = writing->journal;
    int error = writing->error, full = error == ENOSPC || error == EDQUOT;
    if (writing->text.size > 0)
        journal->written(journal->context, writing->id,
                         error == 0 ? 0
                         : full     ? FA_EFULL
                                    : FA_EIO,
                         strerror(error));
    fa_buf_free(&writing->text);
    free(writing);
}

/* Takes the text. */
static bool submit(serve_journal *journal, const char *id, fa_buf text)
{
    struct writing *writing = text.failed ? NULL : calloc(1, sizeof *writing);
    if (writing == NULL) {
        fa_buf_free(&text);
        return false;
    }
    *writing = (struct writing){
        .task = {.work = write_file, .done = written}, .journal = journal, .text = text};
    snprintf(writing->id, sizeof writing->id, "%s", id);
    serve_thread_submit(journal->thread, &writing->task);
    return true;
}

bool serve_journal_add(serve_journal *journal, const serve_journal_entry *entry)
{
    fa_buf text = {0};
    fa_buf_printf(&text, "fa-tune-job 1 %s %s %lld\n", entry->kind, entry->id,
                  (long long)entry->accepted_ms);
    fa_buf_append(&text, entry->body, entry->size);
    return submit(journal, entry->id, text);
}

void serve_journal_remove(serve_journal *journal, const char *id)
{
    submit(journal, id, (fa_buf){0});
}
