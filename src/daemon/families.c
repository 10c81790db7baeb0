/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel families that clients send, where the operator allows it: a manifest and a template, kept
 * beside the store in families/ID, ID being the SHA-256 of their content. Nothing of them is
 * trusted: manifests are bounded where they are read, source is compiled in strict workers only (fa_options'
 * untrusted_templates), and what comes of a family is found by those who name its ID.
 *
 * One is made in families/.new-XXXXXX by who shares the lock of families/, and moved when it is
 * whole. Who has that lock alone knows that nobody makes one, in any daemon on this store: what
 * lies there under such a name then was left behind by one that was killed.
 *
 * On the lookup thread, but for who asks and who is answered.
 */
#include "service.h"

#include "buf.h"
#include "error.h"
#include "hash.h"
#include "json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEW ".new-" /* and what mkdtemp() makes of six X */

enum { FAMILIES_MAX = 256, MANIFEST_MAX = 64 << 10, SOURCE_MAX = 1 << 20, NAME_BYTES = 32 };

struct sending {
    serve_task task;
    serve_service *service;
    serve_gathering sender;
    char *body;
    size_t size;
    char name[NAME_BYTES], id[FA_HASH_HEX];
    bool known; /* it was here already */
    int rc;
    fa_diag diag;
};

/* ---- places ---------------------------------------------------------------------------------*/
/* families/`leaf` beside the store. */
static int place(const serve_service *service, const char *leaf, char *ret, size_t size,
                 fa_diag *diag)
{
    const char *slash = strrchr(service->store, '/');
    int n =
        snprintf(ret, size, "%.*s/families/%s", slash != NULL ? (int)(slash - service->store) : 1,
                 slash != NULL ? service->store : ".", leaf);
    return n > 0 && (size_t)n < size
               ? 0
               : fa_fail(diag, FA_EINVAL, "the path of the store is too long");
}

static int count_families(const char *folder)
{
    int count = 0;
    DIR *stream = opendir(folder);
    struct dirent *entry;
    while (stream != NULL && (entry = readdir(stream)) != NULL)
        count += entry->d_name[0] != '.';
    if (stream != NULL)
        closedir(stream);
    return count;
}

static int write_file(const char *folder, const char *name, const char *ending, const char *text,
                      fa_diag *diag)
{
    char path[1400];
    size_t size = strlen(text);
    snprintf(path, sizeof path, "%s/%s%s", folder, name, ending);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write(fd, text, size) == (ssize_t)size && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0)
        close(fd);
    return good ? 0
                : fa_fail(diag, error == ENOSPC || error == EDQUOT ? FA_EFULL : FA_EIO,
                          "the family cannot be kept: %s", strerror(error));
}

static bool has_ending(const char *name, const char *ending)
{
    size_t size = strlen(name), tail = strlen(ending);
    return size > tail && strcmp(name + size - tail, ending) == 0;
}

/* With what write_file() puts into one; where there is more, that and the folder stay. A link is
 * not followed. */
static bool remove_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    while (stream != NULL && (entry = readdir(stream)) != NULL)
        if (has_ending(entry->d_name, ".json") || has_ending(entry->d_name, ".cu"))
            unlinkat(fd, entry->d_name, 0);
    if (stream != NULL)
        closedir(stream);
    else if (fd >= 0)
        close(fd);
    return rmdir(folder) == 0;
}

/* Of families/, to be closed; -1: not now. Where nothing can be locked, families are made all the
 * same and what is left behind stays. */
static int lock_families(const char *all, int how)
{
    int fd = open(all, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int locked = -1;
    while (fd >= 0 && (locked = flock(fd, how)) != 0 && errno == EINTR)
        ;
    if (fd < 0 || locked == 0)
        return fd;
    close(fd);
    return -1;
}

/* ---- tuners ---------------------------------------------------------------------------------*/
static int open_templates(const serve_service *service, const char *folder, fa_tuner **ret_tuner,
                          fa_diag *diag)
{
    fa_options options;
    serve_tuner_options(service->settings, &options);
    options.templates = folder;
    options.untrusted_templates = true;
    return fa_open(&options, ret_tuner, diag);
}

int serve_guest_open(const serve_service *service, const char *id, serve_guest *guest,
                     fa_tuner **ret_tuner, fa_diag *diag)
{
    char folder[1300];
    if (!service->settings->allow_user_templates)
        return fa_fail(diag, FA_ENOTSUP, "this server compiles no kernel families of clients");
    if (guest->tuner == NULL || strcmp(guest->id, id) != 0) {
        serve_guest_close(guest);
        int rc = place(service, id, folder, sizeof folder, diag);
        if (rc == 0 && access(folder, F_OK) != 0)
            rc = fa_fail(diag, FA_ENOTFOUND,
                         "this server has no family %s: POST it to /v1/families", id);
        if (rc == 0)
            rc = open_templates(service, folder, &guest->tuner, diag);
        if (rc != 0)
            return rc;
        snprintf(guest->id, sizeof guest->id, "%s", id);
    }
    *ret_tuner = guest->tuner;
    return 0;
}

void serve_guest_close(serve_guest *guest)
{
    fa_close(&guest->tuner);
}

/* ---- what was left behind --------------------------------------------------------------------*/
static bool is_new(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t before = strlen(NEW);
    return strncmp(name, NEW, before) == 0 && strlen(name) == before + 6 &&
           strspn(name + before, letters) == 6;
}

struct sweeping {
    serve_task task;
    const serve_service *service;
};

static void sweep(serve_task *task, serve_worker *worker)
{
    const serve_service *service = ((struct sweeping *)task)->service;
    char all[1300], folder[1300];
    struct dirent *entry;
    (void)worker;
    int lock = place(service, "", all, sizeof all, NULL) == 0
                   ? lock_families(all, LOCK_EX | LOCK_NB)
                   : -1;
    DIR *stream = lock >= 0 ? opendir(all) : NULL;
    while (stream != NULL && (entry = readdir(stream)) != NULL)
        if (is_new(entry->d_name) &&
            place(service, entry->d_name, folder, sizeof folder, NULL) == 0 &&
            remove_folder(folder))
            serve_log(SERVE_INFO, "a family that was left half made is removed", "folder", folder,
                      NULL);
    if (stream != NULL)
        closedir(stream);
    if (lock >= 0)
        close(lock);
}

static void swept(serve_task *task)
{
    free(task);
}

void serve_families_sweep(serve_service *service)
{
    struct sweeping *sweeping = NULL;
    if (service->settings->allow_user_templates)
        sweeping = calloc(1, sizeof *sweeping);
    if (sweeping == NULL)
        return;
    sweeping->task.work = sweep;
    sweeping->task.done = swept;
    sweeping->service = service;
    serve_worker_give(service->lookup, &sweeping->task);
}

/* ---- one that was sent -----------------------------------------------------------------------*/
static bool good_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    size_t size = strlen(name);
    return size > 0 && size < NAME_BYTES && name[0] >= 'a' && name[0] <= 'z' &&
           strspn(name, letters) == size;
}

static int ignore_trial(void *context, int32_t rank, const fa_trial *trial)
{
    (void)context;
    (void)rank;
    (void)trial;
    return 0;
}

/* Whether what lies there is a family: read as a tune would read it, for some problem. One that is
 * not for this problem may be right all the same. */
static int check_family(const serve_service *service, const char *folder, fa_diag *diag)
{
    fa_tuner *tuner = NULL;
    fa_request request = {
        .size = sizeof request,
        .gpu = "L4",
        .problem = {
            .head_dim = 64, .batch = 1, .heads_q = 1, .heads_kv = 1, .seq_q = 128, .seq_k = 128}};
    int rc = open_templates(service, folder, &tuner, diag);
    if (rc == 0)
        rc = fa_explain(tuner, &request, ignore_trial, NULL, NULL, diag);
    fa_close(&tuner);
    return rc == FA_ENOTSUP ? 0 : rc;
}

/* Made under another name and moved, so that it is there whole or not at all. */
static int make(struct sending *sending, const char *folder, const char *manifest,
                const char *source)
{
    char made[1300];
    fa_diag *diag = &sending->diag;
    int rc = place(sending->service, NEW "XXXXXX", made, sizeof made, diag);
    if (rc != 0)
        return rc;
    if (mkdtemp(made) == NULL)
        return fa_fail(diag, FA_EIO, "the family cannot be kept: %s", strerror(errno));
    rc = write_file(made, sending->name, ".json", manifest, diag);
    if (rc == 0)
        rc = write_file(made, sending->name, ".cu", source, diag);
    if (rc == 0)
        rc = check_family(sending->service, made, diag);
    if (rc == 0 && rename(made, folder) != 0 && errno != EEXIST && errno != ENOTEMPTY)
        rc = fa_fail(diag, FA_EIO, "the family cannot be kept: %s", strerror(errno));
    remove_folder(made); /* gone already where it was moved */
    return rc;
}

static int keep(struct sending *sending, const char *manifest, const char *source)
{
    char all[1300], folder[1300];
    fa_diag *diag = &sending->diag;
    int rc = place(sending->service, "", all, sizeof all, diag);
    if (rc == 0)
        rc = place(sending->service, sending->id, folder, sizeof folder, diag);
    if (rc != 0)
        return rc;
    sending->known = access(folder, F_OK) == 0;
    if (sending->known)
        return 0;
    mkdir(all, 0700); /* what follows tells whether it is there */
    if (count_families(all) >= FAMILIES_MAX)
        return fa_fail(diag, FA_EFULL,
                       "this server has %d families of clients: its operator can "
                       "remove some from %s",
                       FAMILIES_MAX, all);
    int lock = lock_families(all, LOCK_SH);
    rc = make(sending, folder, manifest, source);
    if (lock >= 0)
        close(lock);
    return rc;
}

static int take_parts(struct sending *sending, const cJSON *json)
{
    static const char where[] = "family";
    fa_diag *diag = &sending->diag;
    const char *source = NULL;
    const cJSON *manifest = cJSON_GetObjectItemCaseSensitive(json, "manifest");
    for (const cJSON *item = json->child; item != NULL; item = item->next)
        if (strcmp(item->string, "name") != 0 && strcmp(item->string, "manifest") != 0 &&
            strcmp(item->string, "source") != 0)
            return fa_fail(diag, FA_EINVAL, "a family has no \"%.40s\"", item->string);
    int rc = fa_json_copy(json, "name", sending->name, sizeof sending->name, where, diag);
    if (rc == 0)
        rc = fa_json_text(json, "source", &source, where, diag);
    if (rc == FA_ENOTFOUND || (rc == 0 && !cJSON_IsObject(manifest)))
        return fa_fail(diag, FA_EINVAL,
                       "a family needs a name, a manifest (an object) and a source");
    if (rc == 0 && !good_name(sending->name))
        return fa_fail(diag, FA_EINVAL,
                       "the family's name takes 1 to %d of a-z, 0-9 and _, and begins "
                       "with a letter",
                       NAME_BYTES - 1);
    if (rc != 0)
        return rc;
    char *text = cJSON_PrintUnformatted(manifest);
    if (text == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    size_t size = strlen(text), source_size = strlen(source);
    if (size > MANIFEST_MAX || source_size > SOURCE_MAX || source_size == 0) {
        rc = fa_fail(diag, FA_EINVAL, "a manifest has at most %d bytes and a source 1 to %d",
                     MANIFEST_MAX, SOURCE_MAX);
    } else {
        fa_hash hash;
        fa_hash_init(&hash);
        fa_hash_text(&hash, "fa-tune family 1");
        fa_hash_text(&hash, sending->name);
        fa_hash_part(&hash, text, size);
        fa_hash_part(&hash, source, source_size);
        fa_hash_final(&hash, sending->id);
        rc = keep(sending, text, source);
    }
    free(text);
    return rc;
}

static void take(serve_task *task, serve_worker *worker)
{
    struct sending *sending = (struct sending *)task;
    cJSON *json = NULL;
    (void)worker;
    sending->rc = fa_json_parse(sending->body, sending->size, "family", &json, &sending->diag);
    if (sending->rc == 0 && !cJSON_IsObject(json))
        sending->rc = fa_fail(&sending->diag, FA_EINVAL, "a family is a JSON object");
    if (sending->rc == 0)
        sending->rc = take_parts(sending, json);
    if (sending->rc == FA_EMANIFEST || sending->rc == FA_ENOTFOUND)
        sending->rc = FA_EINVAL; /* the client's mistake */
    cJSON_Delete(json);
}

static void taken(serve_task *task)
{
    struct sending *sending = (struct sending *)task;
    serve_exchange *exchange = sending->sender.first;
    if (exchange != NULL) {
        serve_leave(exchange);
        if (task->skipped) {
            serve_reply_refused(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, FA_EBUSY,
                                "this server is stopping", 2);
        } else if (sending->rc != 0) {
            serve_reply_error(exchange, sending->rc, sending->diag.text, NULL);
        } else {
            fa_buf out = {0};
            fa_buf_printf(&out, "{\"family\":\"%s\",\"name\":\"%s\"}", sending->id, sending->name);
            serve_reply_json(exchange, sending->known ? MHD_HTTP_OK : MHD_HTTP_CREATED,
                             out.failed ? NULL : out.data);
        }
    }
    free(sending->body);
    free(sending);
}

void serve_family_post(serve_service *service, serve_exchange *exchange)
{
    struct sending *sending = NULL;
    if (!service->settings->allow_user_templates) {
        serve_reply_refused(exchange, MHD_HTTP_FORBIDDEN, FA_ENOTSUP,
                            "this server compiles no kernel families of clients: its operator can "
                            "allow it with --allow-user-templates",
                            0);
        return;
    }
    sending = calloc(1, sizeof *sending);
    char *copy = malloc(exchange->body_size + 1);
    if (sending == NULL || copy == NULL) {
        free(sending);
        free(copy);
        serve_reply_error(exchange, FA_ENOMEM, "out of memory", NULL);
        return;
    }
    memcpy(copy, exchange->body, exchange->body_size);
    copy[exchange->body_size] = 0;
    *sending = (struct sending){.task = {.work = take, .done = taken},
                                .service = service,
                                .body = copy,
                                .size = exchange->body_size};
    serve_gather(&sending->sender, exchange, 0);
    serve_worker_give(service->lookup, &sending->task);
}
