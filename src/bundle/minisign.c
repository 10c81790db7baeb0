/* SPDX-License-Identifier: Apache-2.0 */
#include "minisign.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

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

void fa_key_id(const unsigned char id[8], char ret_text[FA_KEY_ID_TEXT])
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
    fa_buf both = {0};
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
    fa_buf_free(&both);
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
    fa_buf both = {0};
    const unsigned char *first = signature->signature.bytes;
    if (signature->signature.algorithm[1] == 'D') {
        hash(bytes, size, digest);
        bytes = digest;
        size = sizeof digest;
    }
    fa_buf_append(&both, first, sizeof signature->signature.bytes);
    fa_buf_text(&both, signature->comment);
    bool good = !both.failed && crypto_sign_verify_detached(first, bytes, size, key->key) == 0 &&
                crypto_sign_verify_detached(signature->global, (const unsigned char *)both.data,
                                            both.size, key->key) == 0;
    fa_buf_free(&both);
    return good;
}
