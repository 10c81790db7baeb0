/* SPDX-License-Identifier: Apache-2.0
 *
 * This user's secret key and the keys that this user trusts: two small files, read anew each time
 * they are asked for. Neither is believed when somebody else could have written it.
 */

#include "buf.h"
#include "bundle.h"
#include "error.h"
#include "fa_types.h"
#include "own_place.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 16, KEYS_MAX = 256 };

/* ---- places ---------------------------------------------------------------------------------*/
/* The directory of keys, or a file in it. */
static int place(const char *file, char *ret_path, size_t size, fa_diag *diag)
{
    int rc = fa_own_config(file, ret_path, size);
    return rc == FA_ENOTFOUND ? fa_fail(diag, FA_ESTORE, "no place for keys: HOME is not set")
           : rc != 0
               ? fa_fail(diag, rc, "the path of the keys is too long: shorten XDG_CONFIG_HOME")
               : 0;
}

static int make_directory(fa_diag *diag)
{
    char path[FA_STORE_PATH_MAX];
    int rc = place("", path, sizeof path, diag);
    if (rc != 0)
        return rc;
    for (char *slash = path; (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = 0;
        mkdir(path, 0700); /* the last one tells whether there is a way */
        *slash = '/';
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return fa_fail(diag, FA_EIO, "cannot make directory %s for keys: %s", path,
                       strerror(errno));
    return 0;
}

/* ---- the secret key -------------------------------------------------------------------------*/
static int write_secret(int fd, const fa_sign_secret *secret)
{
    char text[sizeof FA_KEY_MARK + FA_KEY_HEX], hex[FA_KEY_HEX];
    fa_key_text(secret->seed, hex);
    int n = snprintf(text, sizeof text, "%s%s\n", FA_KEY_MARK, hex);
    bool good = write(fd, text, (size_t)n) == n && fsync(fd) == 0;
    int error = errno;
    explicit_bzero(text, sizeof text);
    explicit_bzero(hex, sizeof hex);
    return good ? 0 : error;
}

/* Writes the file under another name and links it to its own: it is there whole or not at all, and
 * replaces nothing. */
static int store_secret(const char *path, const fa_sign_secret *secret, fa_diag *diag)
{
    char temporary[FA_STORE_PATH_MAX + 16];
    snprintf(temporary, sizeof temporary, "%s.new-XXXXXX", path);
    int fd = mkostemp(temporary, O_CLOEXEC); /* mode 0600 */
    if (fd < 0)
        return fa_fail(diag, FA_EIO, "cannot write key %s: %s", path, strerror(errno));
    int error = write_secret(fd, secret);
    close(fd);
    if (error == 0 && link(temporary, path) != 0)
        error = errno;
    unlink(temporary);
    if (error == EEXIST)
        return fa_fail(diag, FA_EINVAL,
                       "%s exists: a key is never written over; move it away, or name another file",
                       path);
    return error == 0 ? 0 : fa_fail(diag, FA_EIO, "cannot write key %s: %s", path, strerror(error));
}

int fa_keygen(const char *file, char ret_key[65], char *ret_path, size_t path_size, fa_diag *diag)
{
    char path[FA_STORE_PATH_MAX], hex[FA_KEY_HEX];
    fa_sign_secret secret;
    unsigned char public[FA_KEY_BYTES];
    int rc;
    if (ret_key == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_key is NULL");
    if (file == NULL) {
        rc = place("/key", path, sizeof path, diag);
        if (rc == 0)
            rc = make_directory(diag);
    } else if (snprintf(path, sizeof path, "%s", file) >= (int)sizeof path || file[0] == 0) {
        rc = fa_fail(diag, FA_EINVAL, "the path of the key is empty or too long");
    } else {
        rc = fa_output_check(path, diag);
    }
    if (rc != 0)
        return rc;
    rc = fa_sign_make(&secret) != 0 ? fa_fail(diag, FA_EIO, "no randomness to be had for a key")
                                    : store_secret(path, &secret, diag);
    if (rc == 0)
        fa_sign_public(&secret, public);
    explicit_bzero(&secret, sizeof secret);
    if (rc != 0)
        return rc;
    fa_key_text(public, hex);
    memcpy(ret_key, hex, sizeof hex);
    if (ret_path != NULL)
        snprintf(ret_path, path_size, "%s", path);
    return 0;
}

static int parse_secret(const char *path, char *text, fa_sign_secret *ret_secret, fa_diag *diag)
{
    text[strcspn(text, "\n")] = 0;
    size_t mark = sizeof FA_KEY_MARK - 1;
    if (strncmp(text, FA_KEY_MARK, mark) != 0 || !fa_key_parse(text + mark, ret_secret->seed))
        return fa_fail(diag, FA_ECORRUPT, "key %s is not a secret key of `fa-tune keygen`", path);
    return 0;
}

int fa_keys_secret(const char *file, fa_sign_secret *ret_secret, fa_diag *diag)
{
    char path[FA_STORE_PATH_MAX];
    struct stat st;
    fa_buf text = {0};
    int fd = -1, rc = 0;
    if (file == NULL)
        rc = place("/key", path, sizeof path, diag);
    else if (snprintf(path, sizeof path, "%s", file) >= (int)sizeof path)
        rc = fa_fail(diag, FA_EINVAL, "the path of the key is too long");
    if (rc == 0)
        rc = fa_owned_open(path, "key", &fd, diag);
    if (rc == FA_ENOTFOUND)
        return fa_fail(diag, rc,
                       "there is no key %s to sign with: `fa-tune keygen` makes one; an unsigned "
                       "bundle needs none",
                       path);
    if (rc != 0)
        return rc;
    if (fstat(fd, &st) == 0 && (st.st_mode & 077) != 0)
        rc = fa_fail(diag, FA_ESTORE,
                     "key %s: other users can read it (mode %04o): chmod 600 it, or make another",
                     path, (unsigned)(st.st_mode & 07777));
    else if ((rc = fa_buf_read_fd(&text, fd, FILE_MAX)) != 0)
        fa_fail(diag, rc, "key %s cannot be read", path);
    else
        rc = parse_secret(path, text.data, ret_secret, diag);
    if (text.data != NULL)
        explicit_bzero(text.data, text.size);
    fa_buf_free(&text);
    close(fd);
    return rc;
}

/* ---- trusted keys ---------------------------------------------------------------------------*/
typedef struct key_list {
    int count;
    fa_trusted_key key[KEYS_MAX];
} key_list;

static bool good_name(const char *name)
{
    if (strlen(name) >= FA_KEY_NAME_MAX || name[0] == ' ')
        return false;
    for (const unsigned char *c = (const unsigned char *)name; *c != 0; c++)
        if (*c < 0x20 || *c == 0x7f)
            return false;
    return true;
}

/* One line: 64 hex digits, then maybe a space and a name. 0: blank, or begins with #; 1: a key. */
static int parse_line(const char *path, int number, const char *line, size_t size,
                      fa_trusted_key *ret_key, fa_diag *diag)
{
    unsigned char raw[FA_KEY_BYTES];
    char text[FA_KEY_TEXT_MAX + FA_KEY_NAME_MAX + 1] = "";
    fa_trusted_key key = {.own = false};
    if (size == 0 || line[0] == '#')
        return 0;
    if (size < sizeof text)
        memcpy(text, line, size); /* else it stays empty, which is no key */
    size_t digits = strcspn(text, " ");
    if (digits == FA_KEY_TEXT_MAX - 1)
        memcpy(key.key, text, digits);
    const char *name = text + digits + (text[digits] == ' ');
    if (!fa_key_parse(key.key, raw) || !good_name(name))
        return fa_fail(diag, FA_ECORRUPT,
                       "%s, line %d: not a key of 64 hex digits followed by a short name", path,
                       number);
    fa_key_text(raw, key.key); /* lower case */
    snprintf(key.name, sizeof key.name, "%s", name);
    *ret_key = key;
    return 1;
}

/* The line at `at`, without its end; then `at` is behind it. */
static const char *next_line(const fa_buf *text, size_t *at, size_t *ret_size)
{
    const char *line = text->data + *at, *end = memchr(line, '\n', text->size - *at);
    *ret_size = end != NULL ? (size_t)(end - line) : text->size - *at;
    *at += *ret_size + (end != NULL);
    return line;
}

/* Every key of it, or none. ret_text: the file, to be freed; empty where there is none. */
static int read_list(key_list *list, char *path, size_t size, fa_buf *ret_text, fa_diag *diag)
{
    int fd = -1;
    int rc = place(FA_TRUST_FILE, path, size, diag);
    *list = (key_list){0};
    *ret_text = (fa_buf){0};
    if (rc == 0)
        rc = fa_owned_open(path, "list of trusted keys", &fd, diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND ? 0 : rc;
    rc = fa_buf_read_fd(ret_text, fd, FILE_MAX);
    close(fd);
    if (rc != 0)
        return fa_fail(diag, rc, "list of trusted keys %s cannot be read, or is too large", path);
    if (strlen(ret_text->data) != ret_text->size)
        rc = fa_fail(diag, FA_ECORRUPT, "%s holds a NUL byte", path);
    size_t at = 0, length;
    for (int number = 1; rc >= 0 && at < ret_text->size; number++) {
        fa_trusted_key key;
        const char *line = next_line(ret_text, &at, &length);
        rc = parse_line(path, number, line, length, &key, diag);
        if (rc == 1 && list->count == KEYS_MAX)
            rc = fa_fail(diag, FA_EINVAL, "%s holds more than %d keys", path, KEYS_MAX);
        else if (rc == 1)
            list->key[list->count++] = key;
    }
    if (rc < 0)
        fa_buf_free(ret_text);
    return rc < 0 ? rc : 0;
}

/* The own key as a list's entry; false when there is none. */
static bool own_key(fa_trusted_key *ret_key)
{
    fa_sign_secret secret;
    unsigned char public[FA_KEY_BYTES];
    if (fa_keys_secret(NULL, &secret, NULL) != 0)
        return false;
    fa_sign_public(&secret, public);
    explicit_bzero(&secret, sizeof secret);
    *ret_key = (fa_trusted_key){.own = true, .name = "your own"};
    fa_key_text(public, ret_key->key);
    return true;
}

int fa_trust_list(fa_trust_visit *visit, void *context, fa_diag *diag)
{
    char path[FA_STORE_PATH_MAX];
    fa_trusted_key own;
    fa_buf text;
    if (visit == NULL)
        return fa_fail(diag, FA_EINVAL, "visit is NULL");
    key_list *list = malloc(sizeof *list);
    if (list == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    int rc = read_list(list, path, sizeof path, &text, diag);
    fa_buf_free(&text);
    if (rc == 0 && own_key(&own))
        rc = visit(context, &own);
    for (int i = 0; rc == 0 && i < list->count; i++)
        rc = visit(context, &list->key[i]);
    free(list);
    return rc;
}

struct sought {
    char key[FA_KEY_HEX];
    char *ret_name;
};

static int match(void *context, const fa_trusted_key *key)
{
    struct sought *sought = context;
    if (strcmp(sought->key, key->key) != 0)
        return 0;
    snprintf(sought->ret_name, FA_KEY_NAME_MAX, "%s", key->name);
    return 1;
}

int fa_keys_trusted(const unsigned char key[FA_KEY_BYTES], char ret_name[FA_KEY_NAME_MAX],
                    fa_diag *diag)
{
    struct sought sought = {.ret_name = ret_name};
    fa_key_text(key, sought.key);
    ret_name[0] = 0;
    int rc = fa_trust_list(match, &sought, diag);
    return rc == 1 ? 0 : rc == 0 ? FA_ENOTFOUND : rc;
}

/* Held from reading the list until it is written again, so that two who change it at once lose
 * nothing. *ret_fd is closed to let go. */
static int lock_list(int *ret_fd, fa_diag *diag)
{
    char path[FA_STORE_PATH_MAX];
    int rc = make_directory(diag);
    if (rc == 0)
        rc = place("", path, sizeof path, diag);
    if (rc != 0)
        return rc;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed = fd < 0 ? errno : 0;
    while (failed == 0 && flock(fd, LOCK_EX) != 0)
        if (errno != EINTR)
            failed = errno;
    if (failed == 0) {
        *ret_fd = fd;
        return 0;
    }
    if (fd >= 0)
        close(fd);
    return fa_fail(diag, FA_EIO, "cannot lock directory %s of keys: %s", path, strerror(failed));
}

/* Copies the list with one line of this key and `name` in the place of its lines, or at the end; name NULL: without the
 * lines that have this key or name. All other lines stay as a person wrote them. Returns how many lines were found. */
static int change_text(const fa_buf *text, const char *key_or_name, const char *name, fa_buf *out)
{
    int found = 0;
    fa_trusted_key key;
    fa_buf entry = {0};
    size_t size;
    if (name != NULL)
        fa_buf_printf(&entry, "%s%s%s\n", key_or_name, name[0] != 0 ? " " : "", name);
    for (size_t at = 0; at < text->size;) {
        const char *line = next_line(text, &at, &size);
        if (parse_line("", 0, line, size, &key, NULL) == 1 &&
            (strcmp(key.key, key_or_name) == 0 ||
             (name == NULL && strcmp(key.name, key_or_name) == 0))) {
            if (found++ == 0)
                fa_buf_append(out, entry.data, entry.size);
            continue;
        }
        fa_buf_append(out, line, size);
        fa_buf_text(out, "\n");
    }
    if (text->size == 0)
        fa_buf_text(out, "# Keys whose bundles fa-tune imports: the key, then its owner.\n");
    if (found == 0)
        fa_buf_append(out, entry.data, entry.size);
    out->failed = out->failed || entry.failed;
    fa_buf_free(&entry);
    return found;
}

/* name NULL: removes. */
static int change_list(const char *key_or_name, const char *name, fa_diag *diag)
{
    char path[FA_STORE_PATH_MAX];
    fa_buf text = {0}, out = {0};
    int lock = -1;
    key_list *list = malloc(sizeof *list);
    int rc = list != NULL ? lock_list(&lock, diag) : fa_fail(diag, FA_ENOMEM, "out of memory");
    if (rc == 0)
        rc = read_list(list, path, sizeof path, &text, diag);
    if (rc != 0)
        goto done;
    int found = change_text(&text, key_or_name, name, &out);
    if (found == 0 && name == NULL) {
        rc = fa_fail(diag, FA_ENOTFOUND,
                     "no trusted key has that key or name: `fa-tune trust list` shows them");
    } else if (found == 0 && list->count == KEYS_MAX) {
        rc = fa_fail(diag, FA_EINVAL, "%d keys are trusted: remove one first", KEYS_MAX);
    } else {
        int failed = out.failed ? ENOMEM : fa_replace_file(path, out.data, out.size, 0644);
        if (failed != 0)
            rc = fa_fail(diag, failed == ENOMEM ? FA_ENOMEM : FA_EIO, "cannot write %s: %s", path,
                         strerror(failed));
    }
done:
    if (lock >= 0)
        close(lock);
    fa_buf_free(&text);
    fa_buf_free(&out);
    free(list);
    return rc;
}

int fa_trust_add(const char *key, const char *name, fa_diag *diag)
{
    unsigned char raw[FA_KEY_BYTES];
    char hex[FA_KEY_HEX];
    if (key == NULL || !fa_key_parse(key, raw))
        return fa_fail(diag, FA_EINVAL,
                       "a public key is 64 hex digits, as `fa-tune keygen` prints it");
    name = name != NULL ? name : "";
    if (!good_name(name))
        return fa_fail(diag, FA_EINVAL,
                       "the name of a key is at most %d bytes without control "
                       "characters",
                       FA_KEY_NAME_MAX - 1);
    fa_key_text(raw, hex);
    return change_list(hex, name, diag);
}

int fa_trust_remove(const char *key_or_name, fa_diag *diag)
{
    char hex[FA_KEY_HEX];
    unsigned char raw[FA_KEY_BYTES];
    if (key_or_name == NULL || key_or_name[0] == 0)
        return fa_fail(diag, FA_EINVAL, "no key named");
    bool is_key = fa_key_parse(key_or_name, raw);
    if (is_key)
        fa_key_text(raw, hex);
    return change_list(is_key ? hex : key_or_name, NULL, diag);
}

_Static_assert(FA_KEY_BYTES == crypto_sign_SEEDBYTES && FA_KEY_BYTES == crypto_sign_PUBLICKEYBYTES &&
                   FA_SIGNATURE_BYTES == crypto_sign_BYTES,
               "sizes of Ed25519");

int fa_sign_make(fa_sign_secret *ret_secret)
{
    ssize_t n = getrandom(ret_secret->seed, sizeof ret_secret->seed, 0);
    return n == (ssize_t)sizeof ret_secret->seed ? 0 : FA_EIO;
}

static void expand(const fa_sign_secret *secret, unsigned char *public,
                   unsigned char expanded[crypto_sign_SECRETKEYBYTES])
{
    crypto_sign_seed_keypair(public, expanded, secret->seed);
}

void fa_sign_public(const fa_sign_secret *secret, unsigned char ret_key[FA_KEY_BYTES])
{
    unsigned char expanded[crypto_sign_SECRETKEYBYTES];
    expand(secret, ret_key, expanded);
    sodium_memzero(expanded, sizeof expanded);
}

void fa_sign(const fa_sign_secret *secret, const void *bytes, size_t size,
             unsigned char ret_signature[FA_SIGNATURE_BYTES])
{
    unsigned char public[FA_KEY_BYTES], expanded[crypto_sign_SECRETKEYBYTES];
    expand(secret, public, expanded);
    crypto_sign_detached(ret_signature, NULL, bytes, size, expanded);
    sodium_memzero(expanded, sizeof expanded);
}

bool fa_sign_verify(const unsigned char key[FA_KEY_BYTES], const void *bytes, size_t size,
                    const unsigned char signature[FA_SIGNATURE_BYTES])
{
    return crypto_sign_verify_detached(signature, bytes, size, key) == 0;
}

void fa_key_text(const unsigned char key[FA_KEY_BYTES], char ret_hex[FA_KEY_HEX])
{
    sodium_bin2hex(ret_hex, FA_KEY_HEX, key, FA_KEY_BYTES);
}

bool fa_key_parse(const char *hex, unsigned char ret_key[FA_KEY_BYTES])
{
    unsigned char key[FA_KEY_BYTES];
    size_t size = 0;
    const char *end = NULL;
    if (strlen(hex) != FA_KEY_HEX - 1 ||
        sodium_hex2bin(key, sizeof key, hex, FA_KEY_HEX - 1, NULL, &size, &end) != 0 ||
        size != sizeof key || end != hex + FA_KEY_HEX - 1)
        return false;
    memcpy(ret_key, key, sizeof key);
    return true;
}
