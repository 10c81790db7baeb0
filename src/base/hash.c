/* SPDX-License-Identifier: Apache-2.0 */
#include "hash.h"

#include <sodium.h>
#include <string.h>

_Static_assert(sizeof(crypto_generichash_state) <= sizeof(fa_hash) &&
                   crypto_hash_sha256_BYTES == FA_HASH_BYTES,
               "state and hash fit");

static crypto_generichash_state *state_of(fa_hash *hash)
{
    return (crypto_generichash_state *)hash->state;
}

void fa_hash_init(fa_hash *hash)
{
    crypto_generichash_init(state_of(hash), NULL, 0, FA_HASH_BYTES);
}

void fa_hash_part(fa_hash *hash, const void *bytes, size_t size)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)size >> (8 * i));
    crypto_generichash_update(state_of(hash), length, sizeof length);
    crypto_generichash_update(state_of(hash), bytes, size);
}

void fa_hash_text(fa_hash *hash, const char *text)
{
    fa_hash_part(hash, text, strlen(text));
}

void fa_hash_final(fa_hash *hash, char ret_hex[FA_HASH_HEX])
{
    unsigned char digest[FA_HASH_BYTES];
    crypto_generichash_final(state_of(hash), digest, sizeof digest);
    sodium_bin2hex(ret_hex, FA_HASH_HEX, digest, sizeof digest);
}

void fa_hash_raw(const void *bytes, size_t size, unsigned char ret_digest[FA_HASH_BYTES])
{
    crypto_generichash(ret_digest, FA_HASH_BYTES, bytes, size, NULL, 0);
}

void fa_hash_bytes(const void *bytes, size_t size, char ret_hex[FA_HASH_HEX])
{
    unsigned char digest[FA_HASH_BYTES];
    fa_hash_raw(bytes, size, digest);
    sodium_bin2hex(ret_hex, FA_HASH_HEX, digest, sizeof digest);
}

void fa_sha256(const void *bytes, size_t size, char ret_hex[FA_HASH_HEX])
{
    unsigned char digest[FA_HASH_BYTES];
    crypto_hash_sha256(digest, bytes, size);
    sodium_bin2hex(ret_hex, FA_HASH_HEX, digest, sizeof digest);
}

uint64_t fa_random(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
