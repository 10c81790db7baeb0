/* SPDX-License-Identifier: Apache-2.0 */
#include "queries.h"

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

/* ---- writing --------------------------------------------------------------------------------*/
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

bool serve_journal_add(serve_service *service, const serve_journal_entry *entry,
                       void (*done)(serve_task *task))
{
    serve_query query = {.work = write_file, .apart = service->journal.thread};
    snprintf(query.key, sizeof query.key, "%s", entry->id);
    fa_buf_printf(&query.text, "fa-tune-job 1 %s %s %lld\n", entry->kind, entry->id,
                  (long long)entry->accepted_ms);
    fa_buf_append(&query.text, entry->body, entry->size);
    return serve_query_submit(service, NULL, &query, done) != NULL;
}

void serve_journal_remove(serve_service *service, const char *id)
{
    serve_query query = {.work = write_file, .apart = service->journal.thread};
    snprintf(query.key, sizeof query.key, "%s", id);
    serve_query_submit(service, NULL, &query, NULL);
}
