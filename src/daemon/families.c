/* SPDX-License-Identifier: Apache-2.0 */
#include "queries.h"

#include "error.h"
#include "hash.h"
#include "json.h"
#include "operation.h"
#include "problem.h"

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

#define SPECIFICATION "specification" /* its key, and the name of its files */

enum { FAMILIES_MAX = 256, MANIFEST_MAX = 64 << 10, SOURCE_MAX = 1 << 20, NAME_BYTES = 32 };

/* ---- places ---------------------------------------------------------------------------------*/
/* families/`leaf` beside the store. */
static int place(const serve_service *service, const char *leaf, char *ret, size_t size,
                 fa_diag *diag)
{
    int n = snprintf(ret, size, "%s/families/%s", service->folder, leaf);
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
    snprintf(path, sizeof path, "%s/%s%s", folder, name, ending);
    int error = fa_replace_file(path, text, strlen(text), 0600);
    return error == 0 ? 0
                      : fa_fail(diag, error == ENOSPC || error == EDQUOT ? FA_EFULL : FA_EIO,
                                "the family cannot be kept: %s", strerror(error));
}

static bool has_ending(const char *name, const char *ending)
{
    size_t size = strlen(name), tail = strlen(ending);
    return size > tail && strcmp(name + size - tail, ending) == 0;
}

/* Removes a folder with the files that write_file() puts there. Other files stay, and then the folder stays too.
 * Links are not followed. */
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

/* Locks families/; the caller closes the descriptor. -1: the lock is held elsewhere. Where nothing can be locked,
 * families are made without a lock, and half-made ones are not removed. */
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

int serve_family_open(const serve_service *service, const char *id, serve_family_tuner *family,
                      fa_diag *diag)
{
    char folder[1300];
    if (!service->settings->allow_user_templates)
        return fa_fail(diag, FA_ENOTSUP, "this server compiles no kernel families of clients");
    if (family->tuner == NULL || strcmp(family->id, id) != 0) {
        fa_close(&family->tuner);
        int rc = place(service, id, folder, sizeof folder, diag);
        if (rc != 0)
            return rc;
        if (access(folder, F_OK) != 0)
            return fa_fail(diag, FA_ENOTFOUND,
                           "this server has no family %s: POST it to /v1/families", id);
        rc = open_templates(service, folder, &family->tuner, diag);
        if (rc != 0)
            return rc;
        snprintf(family->id, sizeof family->id, "%s", id);
    }
    return 0;
}

/* ---- what was left behind --------------------------------------------------------------------*/
static bool is_new(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t before = strlen(NEW);
    return strncmp(name, NEW, before) == 0 && strlen(name) == before + 6 &&
           strspn(name + before, letters) == 6;
}

void serve_families_clean(const serve_service *service)
{
    char all[1300], folder[1300];
    struct dirent *entry;
    if (!service->settings->allow_user_templates)
        return;
    int lock =
        place(service, "", all, sizeof all, NULL) == 0 ? lock_families(all, LOCK_EX | LOCK_NB) : -1;
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

/* ---- specifications that were sent to an earlier process --------------------------------------*/
/* Makes the specification's operation known, which no other name than its own finds. */
static int read_specification(const char *name, const char *text, const char *source,
                              char *ret_operation, size_t size, fa_diag *diag)
{
    const fa_operation *operation;
    int rc = fa_spec_read_untrusted(name, text, source, &operation, diag);
    return rc == 0 ? fa_spec_name(operation, ret_operation, size, diag) : rc;
}

static int load_specification(const char *folder, fa_diag *diag)
{
    char path[1400], operation[NAME_BYTES + FA_HASH_HEX];
    fa_buf text = {0}, source = {0};
    snprintf(path, sizeof path, "%s/" SPECIFICATION ".json", folder);
    int rc = fa_buf_read_file(&text, path, MANIFEST_MAX);
    snprintf(path, sizeof path, "%s/" SPECIFICATION ".cu", folder);
    if (rc == 0)
        rc = fa_buf_read_file(&source, path, SOURCE_MAX);
    if (rc == 0 && text.data != NULL && source.data != NULL)
        rc = read_specification(SPECIFICATION, text.data, source.data, operation, sizeof operation,
                                diag);
    fa_buf_free(&text);
    fa_buf_free(&source);
    return rc == FA_ENOTFOUND ? 0 : rc; /* it is a family */
}

void serve_families_load(const serve_service *service)
{
    char all[1300], folder[1300];
    struct dirent *entry;
    if (!service->settings->allow_user_templates || place(service, "", all, sizeof all, NULL) != 0)
        return;
    DIR *stream = opendir(all);
    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        fa_diag diag = {{0}};
        if (entry->d_name[0] != '.' &&
            place(service, entry->d_name, folder, sizeof folder, NULL) == 0 &&
            load_specification(folder, &diag) != 0)
            serve_log(SERVE_WARN, "a specification cannot be read and is passed over", "folder",
                      folder, "reason", diag.text, NULL);
    }
    if (stream != NULL)
        closedir(stream);
}

/* ---- a family that a client sends -------------------------------------------------------------*/
struct sent_family {
    const serve_service *service;
    bool specified;                           /* it is a kernel specification */
    char operation[NAME_BYTES + FA_HASH_HEX]; /* which that is then */
    fa_problem problem; /* some problem of its operation */
    char name[NAME_BYTES], id[FA_HASH_HEX];
    bool known; /* the server had it already */
};

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

/* Whether the folder holds a valid family: it is read as a tune would read it, for some problem. A family that does
 * not support this problem may still be valid. */
static int check_family(const struct sent_family *sent, const char *folder, fa_diag *diag)
{
    if (sent->specified)
        return 0; /* it was read before it was written */
    fa_tuner *tuner = NULL;
    fa_request request = {.size = sizeof request, .gpu = "L4", .problem = sent->problem};
    int rc = open_templates(sent->service, folder, &tuner, diag);
    if (rc == 0)
        rc = fa_explain(tuner, &request, ignore_trial, NULL, NULL, diag);
    fa_close(&tuner);
    return rc == FA_ENOTSUP ? 0 : rc;
}

/* Writes the family under another name and renames it, so that it is there whole or not at all. */
static int make_family(const struct sent_family *sent, const char *folder, const char *manifest,
                       const char *source, fa_diag *diag)
{
    char made[1300];
    int rc = place(sent->service, NEW "XXXXXX", made, sizeof made, diag);
    if (rc != 0)
        return rc;
    if (mkdtemp(made) == NULL)
        return fa_fail(diag, FA_EIO, "the family cannot be kept: %s", strerror(errno));
    const char *leaf = sent->specified ? SPECIFICATION : sent->name;
    rc = write_file(made, leaf, ".json", manifest, diag);
    if (rc == 0)
        rc = write_file(made, leaf, ".cu", source, diag);
    if (rc == 0)
        rc = check_family(sent, made, diag);
    if (rc == 0 && rename(made, folder) != 0 && errno != EEXIST && errno != ENOTEMPTY)
        rc = fa_fail(diag, FA_EIO, "the family cannot be kept: %s", strerror(errno));
    remove_folder(made); /* does nothing after the rename */
    return rc;
}

static int keep_family(struct sent_family *sent, const char *manifest, const char *source,
                       fa_diag *diag)
{
    char all[1300], folder[1300];
    int rc = place(sent->service, "", all, sizeof all, diag);
    if (rc == 0)
        rc = place(sent->service, sent->id, folder, sizeof folder, diag);
    if (rc != 0)
        return rc;
    sent->known = access(folder, F_OK) == 0;
    if (!sent->known && count_families(all) >= FAMILIES_MAX)
        return fa_fail(diag, FA_EFULL,
                       "this server has %d families of clients: its operator can "
                       "remove some from %s",
                       FAMILIES_MAX, all);
    if (sent->specified) /* which this process then knows for good */
        rc = read_specification(sent->name, manifest, source, sent->operation,
                                sizeof sent->operation, diag);
    if (rc != 0 || sent->known)
        return rc;
    mkdir(all, 0700); /* if this fails, the next step fails too */
    int lock = lock_families(all, LOCK_SH);
    rc = make_family(sent, folder, manifest, source, diag);
    if (lock >= 0)
        close(lock);
    return rc;
}

/* A problem of the manifest's operation with ordinary lengths and default values. */
static int some_problem(const cJSON *manifest, fa_problem *ret_problem, fa_diag *diag)
{
    enum { LENGTH = 128 };
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(manifest, "operation");
    fa_problem problem = {0};
    uint32_t given = 0;
    int rc = cJSON_IsString(name) ? fa_operation_find(name->valuestring, &problem.operation, diag)
                                  : 0; /* its absence is found with the rest of the manifest */
    const fa_operation *operation = fa_operation_of(&problem);
    for (int i = 0; rc == 0 && i < operation->field_count; i++)
        if (operation->field[i].length && !operation->field[i].optional) {
            problem.value[i] = LENGTH;
            given |= 1u << i;
        }
    fa_problem_fill(&problem, given);
    *ret_problem = problem;
    return rc == FA_ENOTSUP ? FA_EINVAL : rc;
}

static int take_parts(struct sent_family *sent, cJSON *json, fa_diag *diag)
{
    static const char where[] = "family";
    const char *source = NULL;
    sent->specified = cJSON_HasObjectItem(json, SPECIFICATION);
    cJSON *manifest =
        cJSON_GetObjectItemCaseSensitive(json, sent->specified ? SPECIFICATION : "manifest");
    for (const cJSON *item = json->child; item != NULL; item = item->next)
        if (strcmp(item->string, "name") != 0 && strcmp(item->string, "source") != 0 &&
            strcmp(item->string, sent->specified ? SPECIFICATION : "manifest") != 0)
            return fa_fail(diag, FA_EINVAL, "a family has no \"%.40s\"", item->string);
    int rc = fa_json_copy(json, "name", sent->name, sizeof sent->name, where, diag);
    if (rc == 0)
        rc = fa_json_text(json, "source", &source, where, diag);
    if (rc == FA_ENOTFOUND || (rc == 0 && !cJSON_IsObject(manifest)))
        return fa_fail(
            diag, FA_EINVAL,
            "a family needs a name, a manifest or specification (an object) and a source");
    if (rc != 0)
        return rc;
    if (!good_name(sent->name))
        return fa_fail(diag, FA_EINVAL,
                       "the family's name takes 1 to %d of a-z, 0-9 and _, and begins "
                       "with a letter",
                       NAME_BYTES - 1);
    if (sent->specified) { /* its name is kept with it */
        cJSON_DeleteItemFromObjectCaseSensitive(manifest, "name");
        fa_json_add_text(manifest, "name", sent->name);
    } else if ((rc = some_problem(manifest, &sent->problem, diag)) != 0) {
        return rc;
    }
    char *text = fa_json_print(manifest);
    if (text == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    size_t size = strlen(text), source_size = strlen(source);
    if (size > MANIFEST_MAX || source_size > SOURCE_MAX || source_size == 0) {
        rc = fa_fail(diag, FA_EINVAL, "a manifest has at most %d bytes and a source 1 to %d",
                     MANIFEST_MAX, SOURCE_MAX);
    } else {
        fa_hash hash;
        fa_hash_init(&hash);
        fa_hash_text(&hash, sent->specified ? "fa-tune specification 1" : "fa-tune family 1");
        fa_hash_text(&hash, sent->name);
        fa_hash_part(&hash, text, size);
        fa_hash_part(&hash, source, source_size);
        fa_hash_final(&hash, sent->id);
        rc = keep_family(sent, text, source, diag);
    }
    free(text);
    return rc;
}

static int take_family(serve_query *query, fa_diag *diag)
{
    struct sent_family sent = {.service = query->service};
    cJSON *json = NULL;
    int rc = fa_json_parse(query->body->bytes, query->body->size, "family", &json, diag);
    if (rc == 0 && !cJSON_IsObject(json))
        rc = fa_fail(diag, FA_EINVAL, "a family is a JSON object");
    if (rc == 0)
        rc = take_parts(&sent, json, diag);
    cJSON_Delete(json);
    if (rc == 0)
        fa_buf_printf(&query->text, "{\"family\":\"%s\",\"name\":\"%s\",\"operation\":\"%s\"}",
                      sent.id, sent.name, sent.operation);
    query->status = sent.known ? MHD_HTTP_OK : MHD_HTTP_CREATED;
    return rc == FA_EMANIFEST || rc == FA_ENOTFOUND ? FA_EINVAL : rc; /* the client's mistake */
}

void serve_post_family(serve_service *service, serve_exchange *exchange)
{
    if (!service->settings->allow_user_templates) {
        serve_reply_refused(exchange, MHD_HTTP_FORBIDDEN, FA_ENOTSUP,
                            "this server compiles no kernel families of clients: its operator can "
                            "allow it with --allow-user-templates",
                            0);
        return;
    }
    const serve_query query = {
        .work = take_family, .apart = service->families, .body = serve_exchange_body(exchange)};
    if (query.body == NULL)
        serve_reply_error(exchange, FA_ENOMEM, "out of memory", NULL);
    else
        serve_query_submit(service, exchange, &query, NULL);
}
