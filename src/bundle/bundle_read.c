/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a bundle. Workload: a shipped bundle of some thousand winners is opened once per process
 * that misses in its own store, then asked for one winner and one cubin; so only the front is read
 * at opening, and a part when it is asked for. The file is read, not mapped: a mapping would end
 * the host when somebody cuts the file short.
 */
#include "bundle_format.h"
#include "database.h"

#include "owned.h"
#include "problem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fa_bundle {
    char path[FA_STORE_PATH_MAX];
    int fd;
    fa_bundle_head head;
    size_t front_size;    /* header and index, without the seal */
    unsigned char *front; /* with the seal */
    bool indexed;         /* the index has been checked */
};

static int read_at(const fa_bundle *bundle, void *bytes, size_t size, uint64_t offset,
                   fa_diag *diag)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(bundle->fd, (char *)bytes + done, size - done, (off_t)(offset + done));
        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            return fa_fail(diag, FA_ECORRUPT, "bundle %s is cut short", bundle->path);
        else if (errno != EINTR)
            return fa_fail(diag, FA_EIO, "bundle %s: %s", bundle->path, strerror(errno));
    }
    return 0;
}

static int open_file(fa_bundle *bundle, bool owned, fa_diag *diag)
{
    struct stat st;
    if (owned) {
        int rc = fa_owned_open(bundle->path, "bundle", &bundle->fd, diag);
        if (rc != 0)
            return rc;
    } else if ((bundle->fd = open(bundle->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0) {
        return fa_fail(diag, errno == ENOENT ? FA_ENOTFOUND : FA_EIO, "bundle %s: %s", bundle->path,
                       strerror(errno));
    }
    if (fstat(bundle->fd, &st) != 0)
        return fa_fail(diag, FA_EIO, "bundle %s: %s", bundle->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fa_fail(diag, FA_EINVAL, "bundle %s: not a regular file", bundle->path);
    bundle->head.bytes = (uint64_t)st.st_size;
    return 0;
}

static bool all_zero(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

/* The fixed header: enough to know how much of the file is the front. */
static int read_header(fa_bundle *bundle, fa_diag *diag)
{
    unsigned char header[FA_BUNDLE_HEADER];
    fa_bundle_head *head = &bundle->head;
    const char *path = bundle->path;
    if (head->bytes < sizeof header)
        return fa_fail(diag, FA_ECORRUPT, "%s is no bundle: it has %llu bytes", path,
                       (unsigned long long)head->bytes);
    int rc = read_at(bundle, header, sizeof header, 0, diag);
    if (rc != 0)
        return rc;
    if (memcmp(header, FA_BUNDLE_MAGIC, 8) != 0)
        return fa_fail(diag, FA_ECORRUPT, "%s is no bundle: it does not begin as one", path);
    head->version = (uint32_t)fa_get_le(header + 8, 4);
    if (head->version != FA_BUNDLE_VERSION)
        return fa_fail(
            diag, FA_EVERSION,
            "bundle %s is of version %u and this fa-tune reads version %d alone: use the "
            "fa-tune that made it",
            path, head->version, FA_BUNDLE_VERSION);
    uint64_t flags = fa_get_le(header + 12, 4), bytes = fa_get_le(header + 16, 8);
    uint64_t winners = fa_get_le(header + 24, 4), cubins = fa_get_le(header + 28, 4);
    if (bytes > head->bytes)
        return fa_fail(diag, FA_ECORRUPT,
                       "bundle %s is cut short: it has %llu bytes and says that it has %llu", path,
                       (unsigned long long)head->bytes, (unsigned long long)bytes);
    if (flags > FA_BUNDLE_SIGNED || bytes != head->bytes || bytes > FA_BUNDLE_BYTES_MAX ||
        !all_zero(header + 32, sizeof header - 32))
        return fa_fail(diag, FA_ECORRUPT, "bundle %s is damaged: its header is not valid", path);
    if (winners < 1 || winners > FA_BUNDLE_WINNERS_MAX || cubins < 1 ||
        cubins > FA_BUNDLE_CUBINS_MAX)
        return fa_fail(diag, FA_ECORRUPT,
                       "bundle %s says that it holds %llu winners and %llu cubins: 1 to %d of each "
                       "can be",
                       path, (unsigned long long)winners, (unsigned long long)cubins,
                       FA_BUNDLE_WINNERS_MAX);
    head->winners = (int32_t)winners;
    head->cubins = (int32_t)cubins;
    head->is_signed = (flags & FA_BUNDLE_SIGNED) != 0;
    bundle->front_size = FA_BUNDLE_HEADER + (size_t)(winners + cubins) * FA_BUNDLE_ROW;
    if (bundle->front_size + FA_BUNDLE_SEAL > bytes)
        return fa_fail(diag, FA_ECORRUPT, "bundle %s is damaged: its index does not fit it", path);
    return 0;
}

static int check_seal(fa_bundle *bundle, fa_diag *diag)
{
    const unsigned char *seal = bundle->front + bundle->front_size;
    unsigned char now[FA_HASH_BYTES], text[FA_BUNDLE_SIGNED_BYTES];
    fa_hash_raw(bundle->front, bundle->front_size, now);
    if (memcmp(now, seal, sizeof now) != 0)
        return fa_fail(diag, FA_ECORRUPT,
                       "bundle %s is damaged: its index does not match its SHA-256", bundle->path);
    if (!bundle->head.is_signed)
        return all_zero(seal + 32, FA_BUNDLE_SEAL - 32)
                   ? 0
                   : fa_fail(diag, FA_ECORRUPT,
                             "bundle %s is damaged: it has a signature and says that it has none",
                             bundle->path);
    memcpy(bundle->head.key, seal + 32, FA_KEY_BYTES);
    memcpy(text, FA_BUNDLE_SIGNED_TEXT, sizeof text - FA_HASH_BYTES);
    memcpy(text + sizeof text - FA_HASH_BYTES, now, FA_HASH_BYTES);
    if (fa_sign_verify(bundle->head.key, text, sizeof text, seal + 64))
        return 0;
    return fa_fail(diag, FA_EUNTRUSTED,
                   "bundle %s: its signature does not match its content: it was changed after it "
                   "was signed",
                   bundle->path);
}

int fa_bundle_open(const char *path, bool owned, fa_bundle **ret_bundle, fa_diag *diag)
{
    if (path == NULL || path[0] == 0 || strlen(path) >= FA_STORE_PATH_MAX)
        return fa_fail(diag, FA_EINVAL, "a bundle needs a path of 1 to %d bytes",
                       FA_STORE_PATH_MAX - 1);
    fa_bundle *bundle = calloc(1, sizeof *bundle);
    if (bundle == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a bundle");
    memcpy(bundle->path, path, strlen(path) + 1);
    bundle->fd = -1;
    int rc = open_file(bundle, owned, diag);
    if (rc == 0)
        rc = read_header(bundle, diag);
    if (rc == 0 && (bundle->front = malloc(bundle->front_size + FA_BUNDLE_SEAL)) == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a bundle");
    if (rc == 0)
        rc = read_at(bundle, bundle->front, bundle->front_size + FA_BUNDLE_SEAL, 0, diag);
    if (rc == 0)
        rc = check_seal(bundle, diag);
    if (rc != 0)
        fa_bundle_close(&bundle);
    else
        *ret_bundle = bundle;
    return rc;
}

void fa_bundle_close(fa_bundle **bundle)
{
    if (bundle == NULL || *bundle == NULL)
        return;
    if ((*bundle)->fd >= 0)
        close((*bundle)->fd);
    free((*bundle)->front);
    free(*bundle);
    *bundle = NULL;
}

const fa_bundle_head *fa_bundle_get_head(const fa_bundle *bundle)
{
    return &bundle->head;
}

/* ---- the index ------------------------------------------------------------------------------*/
static const unsigned char *row_at(const fa_bundle *bundle, int32_t row)
{
    return bundle->front + FA_BUNDLE_HEADER + (size_t)row * FA_BUNDLE_ROW;
}

static fa_bundle_row read_row(const fa_bundle *bundle, int32_t at)
{
    const unsigned char *bytes = row_at(bundle, at);
    fa_bundle_row row;
    memcpy(row.key, bytes, sizeof row.key);
    memcpy(row.sha256, bytes + 32, sizeof row.sha256);
    row.offset = fa_get_le(bytes + 64, 8);
    row.size = (uint32_t)fa_get_le(bytes + 72, 4);
    row.cubin = (uint32_t)fa_get_le(bytes + 76, 4);
    return row;
}

/* Checks that keys ascend, that parts follow one another without gaps, and that a winner uses every cubin. */
static const char *index_fault(const fa_bundle *bundle, bool *used)
{
    const fa_bundle_head *head = &bundle->head;
    uint64_t offset = bundle->front_size + FA_BUNDLE_SEAL;
    for (int32_t i = 0; i < head->winners + head->cubins; i++) {
        bool winner = i < head->winners;
        fa_bundle_row row = read_row(bundle, i);
        if (i != 0 && i != head->winners &&
            memcmp(row_at(bundle, i - 1), row.key, FA_HASH_BYTES) >= 0)
            return "its index is not in order, or a key stands in it twice";
        if (row.size == 0 || row.size > (winner ? FA_BUNDLE_RECORD_MAX : FA_STORE_CUBIN_MAX))
            return "a part of it is empty or too large";
        if (row.offset != offset)
            return "its parts do not lie one behind another";
        offset += row.size;
        if (winner ? row.cubin >= (uint32_t)head->cubins : row.cubin != 0)
            return "a winner of it names a cubin that is not there";
        if (winner)
            used[row.cubin] = true;
    }
    if (offset != head->bytes)
        return "its parts do not fill it";
    for (int32_t i = 0; i < head->cubins; i++)
        if (!used[i])
            return "it holds a cubin of no winner";
    return NULL;
}

int fa_bundle_read_index(fa_bundle *bundle, fa_diag *diag)
{
    bool *used = calloc((size_t)bundle->head.cubins, sizeof *used);
    if (used == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a bundle");
    const char *fault = index_fault(bundle, used);
    free(used);
    if (fault != NULL)
        return fa_fail(diag, FA_ECORRUPT, "bundle %s is not valid: %s", bundle->path, fault);
    bundle->indexed = true;
    return 0;
}

static int32_t find_row(const fa_bundle *bundle, int32_t first, int32_t count, const char *hex)
{
    unsigned char key[FA_HASH_BYTES];
    int32_t low = first, high = first + count;
    if (!bundle->indexed || !fa_key_parse(hex, key))
        return -1;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        int order = memcmp(row_at(bundle, middle), key, sizeof key);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

int fa_bundle_find(const fa_bundle *bundle, const fa_scope *scope, int32_t *ret_winner)
{
    char hex[FA_HASH_HEX];
    fa_scope_key(scope, hex);
    int32_t row = find_row(bundle, 0, bundle->head.winners, hex);
    if (row < 0)
        return FA_ENOTFOUND;
    *ret_winner = row;
    return 0;
}

int fa_bundle_find_cubin(const fa_bundle *bundle, const char *key, int32_t *ret_cubin)
{
    int32_t row = find_row(bundle, bundle->head.winners, bundle->head.cubins, key);
    if (row < 0)
        return FA_ENOTFOUND;
    *ret_cubin = row - bundle->head.winners;
    return 0;
}

/* ---- parts ----------------------------------------------------------------------------------*/
/* Malloced, its hash checked, with a NUL behind it. */
static int read_part(fa_bundle *bundle, const fa_bundle_row *row, char **ret_bytes, fa_diag *diag)
{
    unsigned char now[FA_HASH_BYTES];
    char *bytes = malloc((size_t)row->size + 1);
    if (bytes == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for %u bytes of bundle %s", row->size,
                       bundle->path);
    int rc = read_at(bundle, bytes, row->size, row->offset, diag);
    if (rc == 0) {
        fa_hash_raw(bytes, row->size, now);
        if (memcmp(now, row->sha256, sizeof now) != 0)
            rc = fa_fail(diag, FA_ECORRUPT,
                         "bundle %s is damaged: the part at byte %llu does not match its SHA-256",
                         bundle->path, (unsigned long long)row->offset);
    }
    if (rc != 0) {
        free(bytes);
        return rc;
    }
    bytes[row->size] = 0;
    *ret_bytes = bytes;
    return 0;
}

static int get_row(const fa_bundle *bundle, int32_t at, int32_t first, int32_t count,
                   fa_bundle_row *ret_row, fa_diag *diag)
{
    if (!bundle->indexed || at < 0 || at >= count)
        return fa_fail(diag, FA_EINVAL, "bundle %s has no part %d", bundle->path, at);
    *ret_row = read_row(bundle, first + at);
    return 0;
}

int fa_bundle_check_parts(fa_bundle *bundle, fa_diag *diag)
{
    int32_t count = bundle->head.winners + bundle->head.cubins;
    int rc = 0;
    for (int32_t i = 0; i < count && rc == 0; i++) {
        fa_bundle_row row;
        char *bytes = NULL;
        rc = get_row(bundle, i, 0, count, &row, diag);
        if (rc == 0)
            rc = read_part(bundle, &row, &bytes, diag);
        free(bytes);
    }
    return rc;
}

int fa_bundle_winner(fa_bundle *bundle, int32_t winner, fa_winner_record *ret_winner,
                     int32_t *ret_cubin, fa_diag *diag)
{
    fa_bundle_row row, cubin;
    fa_winner_record record = {0};
    char *text = NULL, key[FA_HASH_HEX], scope_now[FA_HASH_HEX];
    int rc = get_row(bundle, winner, 0, bundle->head.winners, &row, diag);
    if (rc == 0)
        rc = get_row(bundle, (int32_t)row.cubin, bundle->head.winners, bundle->head.cubins, &cubin,
                     diag);
    if (rc == 0)
        rc = read_part(bundle, &row, &text, diag);
    if (rc != 0)
        return rc;
    rc = fa_bundle_winner_parse(text, row.size, &record, diag);
    free(text);
    if (rc != 0) /* an invalid document is the bundle's fault, not the caller's */
        return fa_fail_in(diag, rc == FA_EINVAL ? FA_ECORRUPT : rc, "bundle %s, winner %d",
                          bundle->path, winner + 1);
    fa_scope_key(&record.scope, scope_now);
    fa_key_text(row.key, key);
    bool agrees = strcmp(key, scope_now) == 0;
    fa_key_text(cubin.key, key);
    if (!agrees || strcmp(key, record.cubin_key) != 0) {
        fa_winner_record_free(&record);
        return fa_fail(diag, FA_ECORRUPT,
                       "bundle %s, winner %d: it is not the one that the index names", bundle->path,
                       winner + 1);
    }
    *ret_winner = record;
    if (ret_cubin != NULL)
        *ret_cubin = (int32_t)row.cubin;
    return 0;
}

/* The next JSON value of a text that may be cut short behind it; NULL: it is none, or not whole. */
static cJSON *next_value(const char **text, const char *end)
{
    const char *rest = NULL;
    cJSON *value = cJSON_ParseWithLengthOpts(*text, (size_t)(end - *text), &rest, false);
    if (value != NULL)
        *text = rest;
    return value;
}

/* Reads members of a winner's document from its front until both are known. */
static void read_front(const char *text, size_t size, fa_problem *ret_problem, bool *ret_predicted,
                       bool *ret_known)
{
    const char *at = text, *end = text + size;
    bool problem = false, origin = false;
    while (at < end && (*at == '{' || *at == ',') && !(problem && origin)) {
        at++;
        cJSON *name = next_value(&at, end);
        bool colon = cJSON_IsString(name) && at < end && *at == ':';
        if (colon)
            at++;
        cJSON *value = colon ? next_value(&at, end) : NULL;
        if (value != NULL && strcmp(name->valuestring, "problem") == 0)
            problem = fa_problem_from_json(value, ret_problem, NULL) == 0;
        if (cJSON_IsString(value) && strcmp(name->valuestring, "origin") == 0) {
            *ret_predicted = strcmp(value->valuestring, fa_origin_name(FA_ORIGIN_PREDICTED)) == 0;
            origin = true;
        }
        if (value == NULL)
            at = end;
        cJSON_Delete(name);
        cJSON_Delete(value);
    }
    *ret_known = problem && origin;
}

bool fa_bundle_may_be_like(const fa_bundle *bundle, int32_t winner, const fa_problem *problem)
{
    enum { PROBLEM_AND_ORIGIN = 1024 }; /* stand at the front of a winner's document */
    char text[PROBLEM_AND_ORIGIN], shape[FA_PROBLEM_KEY_MAX], wanted[FA_PROBLEM_KEY_MAX];
    fa_bundle_row row;
    fa_problem found = {0};
    bool predicted = false, known = false;
    if (get_row(bundle, winner, 0, bundle->head.winners, &row, NULL) != 0)
        return false;
    size_t size = row.size < PROBLEM_AND_ORIGIN ? row.size : PROBLEM_AND_ORIGIN;
    if (read_at(bundle, text, size, row.offset, NULL) != 0)
        return false;
    read_front(text, size, &found, &predicted, &known);
    if (!known)
        return true;
    fa_problem_shape(&found, shape);
    fa_problem_shape(problem, wanted);
    return !predicted && strcmp(shape, wanted) == 0;
}

int fa_bundle_cubin(fa_bundle *bundle, int32_t cubin, void **ret_bytes, size_t *ret_size,
                    fa_diag *diag)
{
    fa_bundle_row row;
    char *bytes;
    int rc = get_row(bundle, cubin, bundle->head.winners, bundle->head.cubins, &row, diag);
    if (rc == 0)
        rc = read_part(bundle, &row, &bytes, diag);
    if (rc != 0)
        return rc;
    *ret_bytes = bytes;
    *ret_size = row.size;
    return 0;
}
