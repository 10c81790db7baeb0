/* SPDX-License-Identifier: Apache-2.0
 *
 * Minisign's files; this user's key; and the folder of keys that this user trusts, which is read anew each time it is asked for. None is
 * believed when somebody else could have written it.
 */
#include "bundle.h"

#include "buf.h"
#include "error.h"
#include "fa_types.h"

#include <dirent.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNTRUSTED "untrusted comment: "
#define TRUSTED "trusted comment: "
#define FORMER_SECRET "fa-tune-secret-key-1 "
enum { ENCODED_MAX = 256, HASH = 64, LINES = 4 };

_Static_assert(sizeof(fa_public_key) == 42 && sizeof(fa_secret_key) == 158 &&
                   offsetof(fa_signature, global) == 74 && crypto_sign_SECRETKEYBYTES == 64 &&
                   crypto_sign_BYTES == 64,
               "structs of minisign");

/* Cuts a text into its first lines, in place; empty ones do not count. */
static int split(char *text, char *line[LINES])
{
    char *rest = NULL, *one = strtok_r(text, "\r\n", &rest);
    int count = 0;
    for (; one != NULL && count < LINES; one = strtok_r(NULL, "\r\n", &rest))
        line[count++] = one;
    return count;
}

static bool decode(const char *text, void *ret_bytes, size_t size)
{
    size_t got = 0;
    const char *end = NULL;
    return sodium_base642bin(ret_bytes, size, text, strlen(text), NULL, &got, &end,
                             sodium_base64_VARIANT_ORIGINAL) == 0 &&
           got == size && *end == 0;
}

void fa_base64(const void *bytes, size_t size, char *ret_text, size_t room)
{
    sodium_bin2base64(ret_text, room, bytes, size, sodium_base64_VARIANT_ORIGINAL);
}

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* As minisign prints it: a little-endian number. */
static void key_id(const unsigned char id[8], char ret_text[FA_KEY_ID_TEXT])
{
    for (int i = 0; i < 8; i++)
        snprintf(ret_text + 2 * i, 3, "%02X", id[7 - i]);
}

bool fa_public_parse(char *text, fa_public_key *ret_key)
{
    char *line[LINES];
    int count = split(text, line);
    return count >= 1 && count <= 2 && decode(line[count - 1], ret_key, sizeof *ret_key) &&
           memcmp(ret_key->algorithm, "Ed", 2) == 0;
}

bool fa_secret_parse(char *text, fa_secret_key *ret_key)
{
    char *line[LINES];
    return split(text, line) == 2 && decode(line[1], ret_key, sizeof *ret_key) &&
           memcmp(ret_key->algorithm, "Ed", 2) == 0;
}

bool fa_is_key(char *text)
{
    fa_secret_key secret;
    fa_public_key public;
    char *line[LINES];
    if (has_prefix(text, FORMER_SECRET))
        return true;
    bool is = false;
    for (int i = split(text, line) - 1; i >= 0; i--)
        is = is || decode(line[i], &secret, sizeof secret) ||
             decode(line[i], &public, sizeof public);
    explicit_bzero(&secret, sizeof secret);
    return is;
}

static void hash(const void *bytes, size_t size, unsigned char ret_hash[HASH])
{
    crypto_generichash(ret_hash, HASH, bytes, size, NULL, 0);
}

void fa_public_of(const fa_secret_key *secret, fa_public_key *ret_key)
{
    memcpy(ret_key->algorithm, "Ed", 2);
    memcpy(ret_key->id, secret->id, sizeof ret_key->id);
    memcpy(ret_key->key, secret->key + crypto_sign_SEEDBYTES, sizeof ret_key->key);
}

void fa_sign(const fa_secret_key *secret, const void *bytes, size_t size, const char *comment,
             fa_buf *out)
{
    unsigned char digest[HASH];
    char first[ENCODED_MAX], second[ENCODED_MAX];
    fa_signature made = {.signature.algorithm = "ED"};
    FA_ENDS(fa_buf_free) fa_buf both = {0};
    memcpy(made.signature.id, secret->id, sizeof secret->id);
    hash(bytes, size, digest);
    crypto_sign_detached(made.signature.bytes, NULL, digest, sizeof digest, secret->key);
    fa_buf_append(&both, made.signature.bytes, sizeof made.signature.bytes);
    fa_buf_text(&both, comment);
    if (!both.failed)
        crypto_sign_detached(made.global, NULL, (const unsigned char *)both.data, both.size,
                             secret->key);
    fa_base64(&made.signature, sizeof made.signature, first, sizeof first);
    fa_base64(made.global, sizeof made.global, second, sizeof second);
    fa_buf_printf(out, UNTRUSTED "signature of fa-tune export\n%s\n" TRUSTED "%s\n%s\n", first,
                  comment, second);
    out->failed |= both.failed;
}

bool fa_signature_parse(char *text, fa_signature *ret_signature)
{
    char *line[LINES];
    if (split(text, line) != LINES || !has_prefix(line[0], UNTRUSTED) ||
        !has_prefix(line[2], TRUSTED) ||
        !decode(line[1], &ret_signature->signature, sizeof ret_signature->signature) ||
        !decode(line[3], ret_signature->global, sizeof ret_signature->global))
        return false;
    ret_signature->comment = line[2] + strlen(TRUSTED);
    const unsigned char *algorithm = ret_signature->signature.algorithm;
    return memcmp(algorithm, "Ed", 2) == 0 || memcmp(algorithm, "ED", 2) == 0;
}

bool fa_signature_holds(const fa_signature *signature, const fa_public_key *key, const void *bytes,
                        size_t size)
{
    unsigned char digest[HASH];
    FA_ENDS(fa_buf_free) fa_buf both = {0};
    const unsigned char *first = signature->signature.bytes;
    if (signature->signature.algorithm[1] == 'D') {
        hash(bytes, size, digest);
        bytes = digest;
        size = sizeof digest;
    }
    fa_buf_append(&both, first, sizeof signature->signature.bytes);
    fa_buf_text(&both, signature->comment);
    return !both.failed && crypto_sign_verify_detached(first, bytes, size, key->key) == 0 &&
           crypto_sign_verify_detached(signature->global, (const unsigned char *)both.data,
                                       both.size, key->key) == 0;
}

/* ---- places ---------------------------------------------------------------------------------*/
static int place(const char *file, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag)
{
    int rc = fa_own_config(file, ret_path, FA_STORE_PATH_MAX);
    return rc == FA_ENOTFOUND ? fa_fail(diag, FA_ESTORE, "no place for keys: HOME is not set")
           : rc != 0
               ? fa_fail(diag, rc, "the path of the keys is too long: shorten XDG_CONFIG_HOME")
               : 0;
}

/* ---- making a pair --------------------------------------------------------------------------*/
/* Writes the file under another name and links it to its own: it is there whole or not at all, and replaces nothing. */
static int write_key(const char *path, const char *comment, const void *key, size_t size,
                     mode_t mode, fa_diag *diag)
{
    char temporary[FA_STORE_PATH_MAX + 32], encoded[ENCODED_MAX], text[2 * ENCODED_MAX];
    snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)gettid());
    fa_base64(key, size, encoded, sizeof encoded);
    int n = snprintf(text, sizeof text, "untrusted comment: %s\n%s\n", comment, encoded);
    int error = fa_replace_file(temporary, text, (size_t)n, mode);
    if (error == 0 && link(temporary, path) != 0)
        error = errno;
    unlink(temporary);
    explicit_bzero(encoded, sizeof encoded);
    explicit_bzero(text, sizeof text);
    if (error == EEXIST)
        return fa_fail(diag, FA_EINVAL, "%s exists: a key is never written over; move it away",
                       path);
    return error == 0 ? 0 : fa_fail(diag, FA_EIO, "cannot write key %s: %s", path, strerror(error));
}

/* This user's own, whose folders are made. */
static int choose_paths(char secret[FA_STORE_PATH_MAX], char public[FA_STORE_PATH_MAX],
                        fa_diag *diag)
{
    int rc = place("/minisign.key", secret, diag), failed = 0;
    if (rc != 0 || (rc = place(FA_TRUSTED_FOLDER "/own.pub", public, diag)) != 0)
        return rc;
    for (char *slash = public; (slash = strchr(slash + 1, '/')) != NULL; *slash = '/') {
        *slash = 0;
        failed = mkdir(public, 0700) != 0 && errno != EEXIST ? errno : 0; /* the last one tells */
    }
    return failed == 0 ? 0
                       : fa_fail(diag, FA_EIO, "cannot make the directory of %s: %s", public,
                                 strerror(failed));
}

int fa_keygen(char ret_key[65], char *ret_path, size_t path_size, fa_diag *diag)
{
    char secret_path[FA_STORE_PATH_MAX], public_path[FA_STORE_PATH_MAX];
    char comment[64] = "minisign public key ";
    unsigned char seed[crypto_sign_SEEDBYTES];
    fa_secret_key secret = {.algorithm = "Ed", .checksum_kind = "B2"};
    fa_public_key public;
    FA_OR_RETURN(fa_expect(ret_key != NULL, "ret_key", diag));
    FA_OR_RETURN(choose_paths(secret_path, public_path, diag));
    randombytes_buf(seed, sizeof seed);
    randombytes_buf(secret.id, sizeof secret.id);
    crypto_sign_seed_keypair(public.key, secret.key, seed);
    fa_public_of(&secret, &public);
    key_id(public.id, comment + strlen(comment));
    int rc = write_key(public_path, comment, &public, sizeof public, 0644, diag);
    if (rc == 0 && (rc = write_key(secret_path, "minisign secret key, without a password", &secret,
                                   sizeof secret, 0600, diag)) != 0)
        unlink(public_path);
    explicit_bzero(seed, sizeof seed);
    explicit_bzero(&secret, sizeof secret);
    if (rc != 0)
        return rc;
    fa_base64(&public, sizeof public, ret_key, FA_KEY_TEXT_MAX);
    if (ret_path != NULL)
        snprintf(ret_path, path_size, "%s", secret_path);
    return 0;
}

/* ---- signing --------------------------------------------------------------------------------*/
int fa_keys_secret(const char *file, fa_secret_key *ret_secret, fa_diag *diag)
{
    unsigned char public[crypto_sign_PUBLICKEYBYTES], again[crypto_sign_SECRETKEYBYTES];
    char path[FA_STORE_PATH_MAX];
    struct stat st;
    FA_ENDS(fa_buf_free) fa_buf text = {0};
    FA_ENDS(fa_close_at) int fd = -1;
    int rc = 0;
    if (file == NULL)
        rc = place("/minisign.key", path, diag);
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
    else if ((rc = fa_buf_read_fd(&text, fd, FA_MINISIGN_MAX)) != 0)
        fa_fail(diag, rc, "key %s cannot be read", path);
    else if (!fa_secret_parse(text.data, ret_secret))
        rc = fa_fail(diag, FA_ECORRUPT,
                     "key %s is no secret key of minisign's format: `fa-tune keygen` makes one",
                     path);
    else if (ret_secret->derivation[0] != 0 || ret_secret->derivation[1] != 0)
        rc = fa_fail(diag, FA_ENOTSUP,
                     "key %s has a password: export with --unsigned, then sign the bundle by "
                     "`minisign -Sm FILE -s %s`",
                     path, path);
    else {
        crypto_sign_seed_keypair(public, again, ret_secret->key);
        if (sodium_memcmp(again, ret_secret->key, sizeof again) != 0)
            rc = fa_fail(diag, FA_ECORRUPT, "key %s is damaged", path);
        explicit_bzero(again, sizeof again);
    }
    if (text.data != NULL)
        explicit_bzero(text.data, text.size);
    return rc;
}

/* ---- trusted keys ---------------------------------------------------------------------------*/
static int is_public(const struct dirent *entry)
{
    size_t size = strlen(entry->d_name);
    return size > 4 && entry->d_name[0] != '.' && strcmp(entry->d_name + size - 4, ".pub") == 0;
}

/* 1: the key at `path` has signed, and *info says so; 0: it is another key. */
static int try_key(const char *path, const char *name, const fa_signature *signature,
                   const void *bytes, size_t size, fa_bundle_info *info, fa_diag *diag)
{
    fa_public_key key;
    FA_ENDS(fa_buf_free) fa_buf text = {0};
    FA_ENDS(fa_close_at) int fd = -1;
    FA_OR_RETURN(fa_owned_open(path, "trusted key", &fd, diag));
    int rc = fa_buf_read_fd(&text, fd, FA_MINISIGN_MAX);
    if (rc != 0)
        fa_fail(diag, rc, "trusted key %s cannot be read, or is too large", path);
    else if (!fa_public_parse(text.data, &key))
        rc = fa_fail(diag, FA_ECORRUPT,
                     "trusted key %s is no public key of minisign's format: mend or remove it",
                     path);
    if (rc != 0 || memcmp(key.id, signature->signature.id, sizeof key.id) != 0)
        return rc;
    if (!fa_signature_holds(signature, &key, bytes, size))
        return fa_fail(diag, FA_EUNTRUSTED,
                       "its signature does not match its content: it was changed after it was "
                       "signed");
    fa_base64(&key, sizeof key, info->key, sizeof info->key);
    snprintf(info->name, sizeof info->name, "%.*s", (int)(strlen(name) - strlen(".pub")), name);
    info->trusted = true;
    return 1;
}

int fa_verify(char *text, const void *bytes, size_t size, fa_bundle_info *info, fa_diag *diag)
{
    char folder[FA_STORE_PATH_MAX], path[FA_STORE_PATH_MAX + NAME_MAX + 1];
    FA_ENDS(fa_free_at) struct dirent **entry = NULL;
    fa_signature signature;
    if (!fa_signature_parse(text, &signature))
        return fa_fail(diag, FA_ECORRUPT, "its signature is not in minisign's format");
    int rc = 0;
    FA_OR_RETURN(place(FA_TRUSTED_FOLDER, folder, diag));
    info->is_signed = true;
    key_id(signature.signature.id, info->key);
    int count = scandir(folder, &entry, is_public, alphasort);
    if (count < 0 && errno != ENOENT && errno != ENOTDIR)
        return fa_fail(diag, FA_EIO, "trusted keys %s: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        if (rc == 0)
            rc = try_key(path, entry[i]->d_name, &signature, bytes, size, info, diag);
        free(entry[i]);
    }
    return rc < 0 ? rc : 0;
}
