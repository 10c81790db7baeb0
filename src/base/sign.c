/* SPDX-License-Identifier: Apache-2.0 */
#include "sign.h"

#include "fa_types.h"

#include <sodium.h>
#include <string.h>
#include <sys/random.h>

_Static_assert(FA_KEY_BYTES == crypto_sign_SEEDBYTES &&
                   FA_KEY_BYTES == crypto_sign_PUBLICKEYBYTES &&
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

void fa_sign_wipe(void *bytes, size_t size)
{
    sodium_memzero(bytes, size);
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
