/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundles, read and written. Workload: an import reads everything once; a shipped bundle of some thousand winners is
 * opened once by each process that misses in its own store, and then asked for one winner, so a file whose owner is
 * trusted is read where it lies. No file is mapped: a mapping would end the host when somebody cuts the file short.
 *
 * And output files that a person names: reports, bundles, records, keys, recordings. Invariants: an output never replaces a
 * database (every store is one) but a bundle, a file that belongs to one, a key, and is never put among the trusted keys, by
 * whatever name. No folder is made. A file appears whole, or the old one stays. A database is known by its content, which
 * SQLite reads: closing a descriptor of our own would drop every lock that this process holds on the file.
 */
#include "bundle.h"

#include "buf.h"
#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where the file is, or is to be: the folder without links, and the path. */
typedef struct target {
    char folder[PATH_MAX], path[2 * PATH_MAX];
} target;

/* ---- files that are written: where -----------------------------------------------------------*/
static int find_target(const char *path, target *ret_target, fa_diag *diag)
{
    struct stat st;
    char folder[PATH_MAX];
    if (path == NULL || path[0] == 0)
        return fa_fail(diag, FA_EINVAL, "no file to write to is named");
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    if (strlen(path) >= sizeof folder)
        return fa_fail(diag, FA_EINVAL, "the path of a file to write is longer than %zu bytes",
                       sizeof folder - 1);
    fa_directory_of(path, folder);
    if (realpath(folder, ret_target->folder) == NULL)
        return errno == ENOENT ? fa_fail(diag, FA_EINVAL,
                                         "cannot write %s: the folder %s does not exist: make it, "
                                         "or name another",
                                         path, folder)
                               : fa_fail(diag, fa_db_errno(errno), "cannot write %s: %s: %s", path,
                                         folder, strerror(errno));
    /* A rename would take a device's place, /dev/null's for one. */
    if (name[0] == 0 || (stat(path, &st) == 0 && !S_ISREG(st.st_mode)))
        return fa_fail(diag, FA_EINVAL, "cannot write %s: it is there and not a regular file",
                       path);
    if (realpath(path, ret_target->path) == NULL) /* it is not there */
        snprintf(ret_target->path, sizeof ret_target->path, "%s/%s", ret_target->folder, name);
    return 0;
}

/* ---- what must stay -------------------------------------------------------------------------*/
/* 1: a database, or where a bundle is written any file but a bundle; 0: not one, or nothing. */
static int must_stay(const char *path, bool bundle, fa_diag *diag)
{
    struct stat st;
    fa_sqlite_header kind = FA_HEADER_UNKNOWN;
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    int rc = fa_sqlite_kind_of(path, &kind);
    if (rc != 0)
        return fa_fail(diag, rc, "cannot tell whether %s is a store", path);
    return kind == FA_HEADER_UNKNOWN ? bundle : kind != FA_HEADER_EMPTY && kind != FA_HEADER_BUNDLE;
}

static int check_database(const target *target, const char *path, bool bundle, fa_diag *diag)
{
    static const char *const endings[] = {"-journal", "-wal", "-shm", FA_LOCK_ENDING};
    char database[2 * PATH_MAX];
    const size_t size = strlen(target->path);
    int rc = must_stay(target->path, bundle, diag);
    if (rc > 0)
        return fa_fail(diag, FA_EINVAL, "cannot write %s: it is %s, and stays: name another file",
                       path, bundle ? "there and no bundle" : "a store, or another database");
    for (size_t i = 0; rc == 0 && i < sizeof endings / sizeof *endings; i++) {
        const size_t tail = strlen(endings[i]); /* whose case some file systems ignore */
        if (size <= tail || strcasecmp(target->path + size - tail, endings[i]) != 0)
            continue;
        snprintf(database, sizeof database, "%.*s", (int)(size - tail), target->path);
        rc = must_stay(database, false, diag);
    }
    return rc > 0 ? fa_fail(diag, FA_EINVAL,
                            "cannot write %s: the name belongs to a store: name another file", path)
                  : rc;
}

int fa_output_check(const char *path, bool bundle, fa_diag *diag)
{
    target target;
    char folder[PATH_MAX];
    struct stat st, other;
    FA_ENDS(fa_buf_free) fa_buf text = {0};
    bool key = false;
    FA_OR_RETURN(find_target(path, &target, diag));
    FA_OR_RETURN(check_database(&target, path, bundle, diag));
    if (stat(target.path, &st) == 0 && st.st_size <= FA_MINISIGN_MAX) {
        const int rc = fa_buf_read_file(&text, target.path, FA_MINISIGN_MAX);
        if (rc != 0)
            return fa_fail(diag, rc, "cannot tell whether %s is a key", path);
        const size_t size = text.size;
        key = fa_is_key(text.data);
        explicit_bzero(text.data, size);
    }
    if (key)
        return fa_fail(
            diag, FA_EINVAL,
            "cannot write %s: it is a key, which is never written over: name another file", path);
    if (fa_own_config(FA_TRUSTED_FOLDER, folder, sizeof folder) == 0 &&
        stat(target.folder, &st) == 0 && stat(folder, &other) == 0 && st.st_dev == other.st_dev &&
        st.st_ino == other.st_ino)
        return fa_fail(diag, FA_EINVAL,
                       "cannot write %s: its folder is that of the trusted keys: name another file",
                       path);
    return 0;
}

int fa_output_write(const char *path, const void *bytes, size_t size, fa_diag *diag)
{
    FA_OR_RETURN(fa_output_check(path, false, diag));
    int failed = fa_replace_file(path, bytes, size, 0644);
    if (failed == 0)
        return 0;
    return fa_fail(diag, fa_db_errno(failed) == FA_ENOTFOUND ? FA_EIO : fa_db_errno(failed),
                   "cannot write %s: %s", path, strerror(failed));
}

struct fa_bundle {
    char path[FA_STORE_PATH_MAX];
    bool owned;
    dev_t device; /* of an owned one: which file was checked */
    ino_t inode;
    fa_bundle_info info;
    fa_buf bytes; /* of one that is not owned: the whole file */
    fa_store *store;
};

/* ---- the file -------------------------------------------------------------------------------*/
static int open_file(fa_bundle *bundle, int *ret_fd, fa_diag *diag)
{
    struct stat st;
    if (bundle->owned) {
        FA_OR_RETURN(fa_owned_open(bundle->path, "bundle", ret_fd, diag));
    } else if ((*ret_fd = open(bundle->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0) {
        return fa_fail(diag, errno == ENOENT ? FA_ENOTFOUND : FA_EIO, "bundle %s: %s", bundle->path,
                       strerror(errno));
    }
    if (fstat(*ret_fd, &st) != 0)
        return fa_fail(diag, FA_EIO, "bundle %s: %s", bundle->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fa_fail(diag, FA_ECORRUPT, "bundle %s: not a regular file", bundle->path);
    if (st.st_size < FA_PORTABLE_HEADER + FA_BUNDLE_TRAILER)
        return fa_fail(diag, FA_ECORRUPT, "%s is no bundle: it has %lld bytes", bundle->path,
                       (long long)st.st_size);
    if (st.st_size > FA_BUNDLE_BYTES_MAX)
        return fa_fail(diag, FA_ECORRUPT, "bundle %s has %lld bytes: %d is the most", bundle->path,
                       (long long)st.st_size, FA_BUNDLE_BYTES_MAX);
    bundle->device = st.st_dev;
    bundle->inode = st.st_ino;
    bundle->info.bytes = (int64_t)st.st_size;
    return 0;
}

static int read_at(const fa_bundle *bundle, int fd, void *bytes, size_t size, uint64_t at,
                   fa_diag *diag)
{
    int rc = fa_read_at(fd, bytes, size, at);
    return rc == 0 ? 0
                   : fa_fail(diag, rc, "bundle %s: %s", bundle->path,
                             errno != 0 ? strerror(errno) : "it is cut short");
}

static int check_ends(fa_bundle *bundle, const unsigned char *header, const unsigned char *trailer,
                      fa_diag *diag)
{
    fa_bundle_info *info = &bundle->info;
    int rc = fa_portable_check(header, (size_t)info->bytes - FA_BUNDLE_TRAILER, &info->version);
    if (rc == FA_EVERSION)
        return fa_fail(diag, rc,
                       "bundle %s is of version %u and this fa-tune reads version %d alone: use "
                       "the fa-tune that made it",
                       bundle->path, info->version, FA_STORE_SCHEMA);
    if (rc == FA_ESTORE)
        return fa_fail(diag, FA_ECORRUPT,
                       "%s is no bundle but a store: --store names it, and `fa-tune export` makes "
                       "a bundle of it",
                       bundle->path);
    for (int i = FA_HASH_BYTES; rc == 0 && i < FA_BUNDLE_TRAILER; i++)
        rc = trailer[i] != 0 ? FA_ECORRUPT : 0;
    return rc == 0 ? 0
                   : fa_fail(diag, rc,
                             "%s is no bundle, or was cut short: its header or its end is wrong",
                             bundle->path);
}

int fa_bundle_signature_path(const char *path, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag)
{
    int n = snprintf(ret_path, FA_STORE_PATH_MAX, "%s" FA_SIGNATURE_ENDING, path);
    return n < FA_STORE_PATH_MAX ? 0 : fa_fail(diag, FA_EINVAL, "the path of a bundle is too long");
}

/* What somebody else may change meanwhile is read once, and looked at there alone. */
static int check_file(fa_bundle *bundle, int fd, fa_diag *diag)
{
    unsigned char header[FA_PORTABLE_HEADER], trailer[FA_BUNDLE_TRAILER], now[FA_HASH_BYTES];
    size_t size = (size_t)bundle->info.bytes, content = size - sizeof trailer;
    char signature[FA_STORE_PATH_MAX];
    FA_ENDS(fa_buf_free) fa_buf text = {0};
    FA_OR_RETURN(read_at(bundle, fd, header, sizeof header, 0, diag));
    FA_OR_RETURN(read_at(bundle, fd, trailer, sizeof trailer, content, diag));
    FA_OR_RETURN(check_ends(bundle, header, trailer, diag));
    if (bundle->owned)
        return 0;
    int rc = fa_buf_read_fd(&bundle->bytes, fd, FA_BUNDLE_BYTES_MAX);
    if (rc != 0)
        return fa_fail(diag, rc, "bundle %s cannot be read", bundle->path);
    if (bundle->bytes.size != size)
        return fa_fail(diag, FA_ECORRUPT, "bundle %s changed while it was read", bundle->path);
    const unsigned char *bytes = (const unsigned char *)bundle->bytes.data;
    FA_OR_RETURN(check_ends(bundle, bytes, bytes + content, diag));
    fa_hash_raw(bytes, content, now);
    if (memcmp(now, bytes + content, sizeof now) != 0)
        return fa_fail(diag, FA_ECORRUPT, "bundle %s is damaged: it does not match its hash",
                       bundle->path);
    rc = fa_bundle_signature_path(bundle->path, signature, diag);
    if (rc != 0 || (rc = fa_buf_read_file(&text, signature, FA_MINISIGN_MAX)) == FA_ENOTFOUND)
        return rc == FA_ENOTFOUND ? 0 : rc;
    if (rc != 0)
        return fa_fail(diag, rc == FA_EINVAL ? FA_ECORRUPT : rc, "signature %s cannot be read",
                       signature);
    rc = fa_verify(text.data, bytes, size, &bundle->info, diag);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "bundle %s", bundle->path);
}

int fa_bundle_open(const char *path, bool owned, fa_bundle **ret_bundle, fa_diag *diag)
{
    FA_ENDS(fa_close_at) int fd = -1;
    if (path == NULL || path[0] == 0 || strlen(path) >= FA_STORE_PATH_MAX)
        return fa_fail(diag, FA_EINVAL, "a bundle needs a path of 1 to %d bytes",
                       FA_STORE_PATH_MAX - 1);
    FA_ENDS(fa_bundle_close) fa_bundle *bundle = calloc(1, sizeof *bundle);
    FA_OR_RETURN(fa_have(bundle != NULL, "a bundle", diag));
    memcpy(bundle->path, path, strlen(path) + 1);
    bundle->owned = owned;
    int rc = open_file(bundle, &fd, diag);
    if (rc == 0)
        rc = check_file(bundle, fd, diag);
    if (rc == 0)
        *ret_bundle = bundle, bundle = NULL;
    return rc;
}

void fa_bundle_close(fa_bundle **bundle)
{
    if (bundle == NULL || *bundle == NULL)
        return;
    fa_store_close(&(*bundle)->store);
    fa_buf_free(&(*bundle)->bytes);
    free(*bundle);
    *bundle = NULL;
}

const fa_bundle_info *fa_bundle_get_info(const fa_bundle *bundle)
{
    return &bundle->info;
}

/* ---- winners --------------------------------------------------------------------------------*/
static int check_texts(const fa_winner_record *winner, fa_diag *diag)
{
    const char *const texts[] = {winner->scope.silicon, winner->scope.templates,
                                 winner->scope.policy,  winner->entry,
                                 winner->gpu_name,      winner->nvrtc};
    FA_ENDS(fa_json_end) cJSON *evidence = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (const char *c = texts[i]; *c != 0; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                return fa_fail(diag, FA_EINVAL, "a text of it holds a control byte");
    if (winner->entry[0] == 0)
        return fa_fail(diag, FA_EINVAL, "its entry has no name");
    if (strspn(winner->cubin_key, "0123456789abcdef") != FA_HASH_HEX - 1)
        return fa_fail(diag, FA_EINVAL, "its cubin key is no hash");
    if (winner->evidence == NULL)
        return 0;
    size_t size = strlen(winner->evidence);
    if (size > FA_STORE_TEXT_MAX)
        return fa_fail(diag, FA_EINVAL, "its evidence has %zu bytes: %d is the most", size,
                       FA_STORE_TEXT_MAX);
    FA_OR_RETURN(fa_json_parse(winner->evidence, size, "evidence", &evidence, diag));
    return cJSON_IsObject(evidence) ? 0
                                    : fa_fail(diag, FA_EINVAL, "its evidence must be an object");
}

/* What is more than a row's own rules: a measured winner has the times and the trial to show for it; a
 * prediction has none. FA_EINVAL, FA_ENOMEM. */
static int check_winner(const fa_winner_record *winner, fa_diag *diag)
{
    const fa_trial *trial = &winner->trial;
    FA_OR_RETURN(check_texts(winner, diag));
    if (winner->origin == FA_ORIGIN_NEAREST) /* what a lookup says, not what a winner is */
        return fa_fail(diag, FA_EINVAL, "no winner is stored as \"%s\"",
                       fa_origin_name(winner->origin));
    if (trial->status != FA_STATUS_MEASURED && trial->status != FA_STATUS_COMPILED)
        return fa_fail(diag, FA_EINVAL, "it ended as \"%s\", which no winner does",
                       fa_status_name(trial->status));
    bool timed = trial->status == FA_STATUS_MEASURED && trial->median_us > 0 &&
                 trial->low_us <= trial->median_us && trial->median_us <= trial->high_us;
    if (winner->origin <= FA_ORIGIN_IMPORTED && !timed)
        return fa_fail(diag, FA_EINVAL, "it is %s and has no median with its interval",
                       fa_origin_name(winner->origin));
    if (trial->threads < 1 || trial->threads > 1024 || trial->grid[0] == 0 || trial->grid[1] == 0 ||
        trial->grid[2] == 0)
        return fa_fail(diag, FA_EINVAL, "%d threads on a grid of %u x %u x %u cannot be launched",
                       trial->threads, trial->grid[0], trial->grid[1], trial->grid[2]);
    if (winner->unix_time > (int64_t)1 << 40)
        return fa_fail(diag, FA_EINVAL, "its time is in no calendar");
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------*/
int fa_bundle_of(fa_store **part, const char *path, fa_bundle **ret_bundle, fa_diag *diag)
{
    int64_t winners = 0, cubins = 0;
    FA_OR_RETURN(fa_portable_count(*part, &winners, &cubins, diag));
    if (winners == 0)
        return fa_fail(diag, FA_ENOTFOUND, "no winner of %s can be taken", path);
    fa_bundle *bundle = calloc(1, sizeof *bundle);
    FA_OR_RETURN(fa_have(bundle != NULL, "a bundle", diag));
    snprintf(bundle->path, sizeof bundle->path, "%s", path);
    bundle->info = (fa_bundle_info){
        .version = FA_STORE_SCHEMA, .winners = (int32_t)winners, .cubins = (int32_t)cubins};
    bundle->store = *part;
    *part = NULL;
    *ret_bundle = bundle;
    return 0;
}

int fa_bundle_read(fa_bundle *bundle, fa_diag *diag)
{
    int64_t winners = 0, cubins = 0;
    struct stat now;
    int rc = fa_portable_open(bundle->owned ? NULL : bundle->bytes.data,
                              (size_t)bundle->info.bytes - FA_BUNDLE_TRAILER, bundle->path,
                              &bundle->store, diag);
    if (rc == 0 && bundle->owned && /* it may not be the file any more that was checked */
        (stat(bundle->path, &now) != 0 || now.st_dev != bundle->device ||
         now.st_ino != bundle->inode))
        rc = fa_fail(diag, FA_ECORRUPT, "bundle %s changed while it was read", bundle->path);
    if (rc == 0)
        rc = fa_portable_count(bundle->store, &winners, &cubins, diag);
    if (rc != 0)
        return rc == FA_ECORRUPT || rc == FA_EINVAL
                   ? fa_fail_in(diag, FA_ECORRUPT, "bundle %s is not valid", bundle->path)
                   : rc;
    if (winners < 1 || winners > FA_BUNDLE_WINNERS_MAX || cubins < 1 ||
        cubins > FA_BUNDLE_CUBINS_MAX)
        return fa_fail(diag, FA_ECORRUPT,
                       "bundle %s holds %lld winners and %lld cubins: 1 to %d of each can be",
                       bundle->path, (long long)winners, (long long)cubins, FA_BUNDLE_WINNERS_MAX);
    bundle->info.winners = (int32_t)winners;
    bundle->info.cubins = (int32_t)cubins;
    return 0;
}

int fa_bundle_winners_like(fa_bundle *bundle, const fa_problem *like, fa_winner_record **ret_rows,
                           size_t *ret_count)
{
    fa_winner_record *rows = NULL;
    size_t count = 0, left = 0;
    int rc = fa_store_winners(bundle->store, like, &rows, &count, NULL, NULL);
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (check_winner(&rows[i], NULL) == 0 &&
            (like == NULL || rows[i].origin != FA_ORIGIN_PREDICTED))
            rows[left++] = rows[i];
    if (rc == 0) {
        *ret_rows = rows;
        *ret_count = left;
    }
    return rc;
}

/* A compiler's log has no place in a bundle. */
static void drop_log(fa_cubin_record *cubin)
{
    free(cubin->log);
    cubin->log = NULL;
}

int fa_bundle_cubin(fa_bundle *bundle, const char *key, fa_cubin_record *ret_cubin, fa_diag *diag)
{
    int rc = fa_store_cubin_get(bundle->store, key, ret_cubin, diag);
    if (rc == 0)
        drop_log(ret_cubin);
    if (rc == FA_ECORRUPT)
        fa_fail(diag, rc, "bundle %s is damaged: cubin %.12s does not match its hash", bundle->path,
                key);
    return rc;
}

/* Sets all but the bytes: what the cubin's row says beside them is nobody's word, and the winner's counts. */
static void describe_cubin(const fa_winner_record *winner, fa_cubin_record *cubin)
{
    memcpy(cubin->key, winner->cubin_key, sizeof cubin->key);
    memcpy(cubin->entry, winner->entry, sizeof cubin->entry);
    cubin->sm = 0;
    sscanf(winner->scope.silicon, "sm_%d ", &cubin->sm);
    cubin->compile_ms = winner->trial.compile_ms;
}

int fa_bundle_winners(fa_bundle *bundle, fa_winner_record **ret_rows, size_t *ret_count,
                      fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_winner_record *rows = NULL;
    size_t count = 0, i = 0;
    int rc = fa_store_winners_by_cubin(bundle->store, &rows, &count, NULL, diag);
    while (rc == 0 && i < count)
        rc = check_winner(&rows[i++], diag);
    if (rc == FA_EINVAL) /* the bundle's fault, not the caller's */
        rc = fa_fail_in(diag, FA_ECORRUPT, "bundle %s, winner %zu", bundle->path, i);
    if (rc == 0 && count != (size_t)bundle->info.winners)
        rc = fa_fail(diag, FA_ECORRUPT,
                     "bundle %s: %d of its %d winners are not valid, or are of an operation or a "
                     "version that is not known here: name the file of a kernel of your own first, "
                     "as it was then, as in `fa-tune import KERNEL.cu FILE`",
                     bundle->path, bundle->info.winners - (int)count, bundle->info.winners);
    FA_OR_RETURN(rc);
    *ret_rows = rows, rows = NULL;
    *ret_count = count;
    return 0;
}

int fa_bundle_cubin_of(fa_bundle *bundle, const fa_winner_record *winner, fa_cubin_record *cubin,
                       fa_diag *diag)
{
    if (cubin->bytes == NULL || strcmp(cubin->key, winner->cubin_key) != 0) {
        fa_cubin_record_free(cubin);
        int rc = fa_bundle_cubin(bundle, winner->cubin_key, cubin, diag);
        if (rc == FA_ENOTFOUND)
            rc = fa_fail(diag, FA_ECORRUPT, "bundle %s: the cubin of a winner is missing",
                         bundle->path);
        if (rc != 0)
            return rc;
    }
    describe_cubin(winner, cubin);
    return 0;
}

int fa_bundle_find(fa_bundle *bundle, const fa_scope *scope, fa_winner_record *ret_winner,
                   fa_cubin_record *ret_cubin, fa_diag *diag)
{
    FA_ENDS(fa_winner_record_free) fa_winner_record winner = {0};
    FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
    int rc = fa_store_winner_get(bundle->store, scope, &winner, &cubin, diag);
    if (rc != 0 || (rc = check_winner(&winner, diag)) != 0)
        return rc == FA_EINVAL ? FA_ECORRUPT : rc;
    drop_log(&cubin);
    describe_cubin(&winner, &cubin);
    *ret_winner = winner;
    *ret_cubin = cubin;
    winner.evidence = NULL;
    cubin = (fa_cubin_record){0};
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------*/
int fa_bundle_add(fa_store *part, const fa_winner_record *winner, const void *cubin, size_t size,
                  fa_diag *diag)
{
    fa_winner_record there = {0}, added = *winner;
    fa_cubin_record record = {.bytes = (void *)(uintptr_t)cubin, .size = size};
    bool exists = false;
    added.trial.reason[0] = 0;
    int rc = fa_store_winner_get(part, &winner->scope, &there, NULL, diag);
    fa_winner_record_free(&there);
    if (rc != FA_ENOTFOUND)
        return rc != 0 ? rc : 1;
    rc = check_winner(&added, diag);
    if (rc != 0)
        return fa_fail_in(diag, rc, "a winner cannot be bundled");
    FA_OR_RETURN(fa_store_cubin_exists(part, added.cubin_key, &exists, diag));
    describe_cubin(&added, &record);
    record.compile_ms = NAN; /* winners that share it may have been compiled at other times */
    return fa_store_winner_put(part, &added, exists ? NULL : &record, true, NULL, diag);
}

void fa_bundle_seal(fa_buf *bytes)
{
    unsigned char trailer[FA_BUNDLE_TRAILER] = {0};
    fa_hash_raw(bytes->data, bytes->size, trailer);
    fa_buf_append(bytes, trailer, sizeof trailer);
}

/* Writes the signature of what was written to `path`, or removes an earlier one. */
static int write_signature(const fa_buf *bytes, const char *path, const fa_secret_key *secret,
                           fa_diag *diag)
{
    char beside[FA_STORE_PATH_MAX];
    FA_ENDS(fa_buf_free) fa_buf text = {0};
    FA_OR_RETURN(fa_bundle_signature_path(path, beside, diag));
    if (secret != NULL) {
        fa_sign(secret, bytes->data, bytes->size, "a bundle of fa-tune", &text);
        FA_OR_RETURN(fa_have(!text.failed, "a signature", diag));
        return fa_output_write(beside, text.data, text.size, diag);
    }
    return unlink(beside) == 0 || errno == ENOENT
               ? 0
               : fa_fail(diag, FA_EIO, "cannot remove %s, the signature of an earlier bundle: %s",
                         beside, strerror(errno));
}

int fa_bundle_write(fa_store *part, const char *path, const fa_secret_key *secret,
                    fa_bundle_info *ret_info, fa_diag *diag)
{
    fa_public_key key;
    int64_t winners = 0, cubins = 0;
    FA_ENDS(fa_buf_free) fa_buf out = {0};
    FA_OR_RETURN(fa_portable_count(part, &winners, &cubins, diag));
    if (winners == 0)
        return fa_fail(diag, FA_ENOTFOUND, "no winner to put into %s", path);
    if (winners > FA_BUNDLE_WINNERS_MAX)
        return fa_fail(diag, FA_EINVAL, "a bundle holds at most %d winners: export fewer",
                       FA_BUNDLE_WINNERS_MAX);
    FA_OR_RETURN(fa_portable_print(part, &out, diag));
    fa_bundle_seal(&out);
    FA_OR_RETURN(fa_have(!out.failed, "a bundle", diag));
    if (out.size > FA_BUNDLE_BYTES_MAX)
        return fa_fail(diag, FA_EINVAL, "the bundle would have %zu bytes: %d is the most", out.size,
                       FA_BUNDLE_BYTES_MAX);
    FA_OR_RETURN(fa_output_write(path, out.data, out.size, diag));
    FA_OR_RETURN(write_signature(&out, path, secret, diag));
    if (ret_info != NULL) {
        *ret_info = (fa_bundle_info){.version = FA_STORE_SCHEMA,
                                     .bytes = (int64_t)out.size,
                                     .winners = (int32_t)winners,
                                     .cubins = (int32_t)cubins,
                                     .is_signed = secret != NULL};
        if (secret != NULL) {
            fa_public_of(secret, &key);
            fa_base64(&key, sizeof key, ret_info->key, sizeof ret_info->key);
        }
    }
    return 0;
}
