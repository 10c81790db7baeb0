/* SPDX-License-Identifier: Apache-2.0
 *
 * This user's key, and the folder of keys that this user trusts, which is read anew each time it is asked for. None is
 * believed when somebody else could have written it.
 */
#include "bundle.h"
#include "error.h"
#include "fa_types.h"
#include "own_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENCODED_MAX = 256 };

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
/* Replaces nothing. */
static int write_key(const char *path, const char *comment, const void *key, size_t size,
                     mode_t mode, fa_diag *diag)
{
    char encoded[ENCODED_MAX], text[2 * ENCODED_MAX];
    fa_base64(key, size, encoded, sizeof encoded);
    int n = snprintf(text, sizeof text, "untrusted comment: %s\n%s\n", comment, encoded), error = 0;
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0 && errno == EEXIST)
        return fa_fail(diag, FA_EINVAL, "%s exists: a key is never written over; move it away",
                       path);
    if (fd < 0 || write(fd, text, (size_t)n) != n || fsync(fd) != 0)
        error = errno;
    explicit_bzero(encoded, sizeof encoded);
    explicit_bzero(text, sizeof text);
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && error != 0)
        unlink(path);
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
    if (ret_key == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_key is NULL");
    int rc = choose_paths(secret_path, public_path, diag);
    if (rc != 0)
        return rc;
    randombytes_buf(seed, sizeof seed);
    randombytes_buf(secret.id, sizeof secret.id);
    crypto_sign_seed_keypair(public.key, secret.key, seed);
    fa_public_of(&secret, &public);
    fa_key_id(public.id, comment + strlen(comment));
    rc = write_key(public_path, comment, &public, sizeof public, 0644, diag);
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
    fa_buf text = {0};
    int fd = -1, rc = 0;
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
    fa_buf_free(&text);
    close(fd);
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
    fa_buf text = {0};
    int fd = -1, rc = fa_owned_open(path, "trusted key", &fd, diag);
    if (rc != 0)
        return rc;
    rc = fa_buf_read_fd(&text, fd, FA_MINISIGN_MAX);
    close(fd);
    if (rc != 0)
        fa_fail(diag, rc, "trusted key %s cannot be read, or is too large", path);
    else if (!fa_public_parse(text.data, &key))
        rc = fa_fail(diag, FA_ECORRUPT,
                     "trusted key %s is no public key of minisign's format: mend or remove it",
                     path);
    fa_buf_free(&text);
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
    struct dirent **entry = NULL;
    fa_signature signature;
    if (!fa_signature_parse(text, &signature))
        return fa_fail(diag, FA_ECORRUPT, "its signature is not in minisign's format");
    int rc = place(FA_TRUSTED_FOLDER, folder, diag);
    if (rc != 0)
        return rc;
    info->is_signed = true;
    fa_key_id(signature.signature.id, info->key);
    int count = scandir(folder, &entry, is_public, alphasort);
    if (count < 0 && errno != ENOENT && errno != ENOTDIR)
        return fa_fail(diag, FA_EIO, "trusted keys %s: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        if (rc == 0)
            rc = try_key(path, entry[i]->d_name, &signature, bytes, size, info, diag);
        free(entry[i]);
    }
    free(entry);
    return rc < 0 ? rc : 0;
}
