/* SPDX-License-Identifier: Apache-2.0 */
#include "hash.h"

#include <sodium.h>
#include <string.h>

_Static_assert(sizeof(crypto_hash_sha256_state) <= sizeof(fa_hash), "state fits");

void fa_hash_init(fa_hash *hash)
{
    crypto_hash_sha256_init((crypto_hash_sha256_state *)hash->state);
}

void fa_hash_part(fa_hash *hash, const void *bytes, size_t size)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)size >> (8 * i));
    crypto_hash_sha256_update((crypto_hash_sha256_state *)hash->state, length, sizeof length);
    crypto_hash_sha256_update((crypto_hash_sha256_state *)hash->state, bytes, size);
}

void fa_hash_text(fa_hash *hash, const char *text)
{
    fa_hash_part(hash, text, strlen(text));
}

void fa_hash_final(fa_hash *hash, char ret_hex[FA_HASH_HEX])
{
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_final((crypto_hash_sha256_state *)hash->state, digest);
    sodium_bin2hex(ret_hex, FA_HASH_HEX, digest, sizeof digest);
}

void fa_hash_bytes(const void *bytes, size_t size, char ret_hex[FA_HASH_HEX])
{
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(digest, bytes, size);
    sodium_bin2hex(ret_hex, FA_HASH_HEX, digest, sizeof digest);
}

void fa_hash_raw(const void *bytes, size_t size, unsigned char ret_digest[FA_HASH_BYTES])
{
    crypto_hash_sha256(ret_digest, bytes, size);
}
