/* SPDX-License-Identifier: Apache-2.0 */
#include "hash.h"

#include "sha256_blocks.h"

#include <sodium.h>
#include <string.h>

_Static_assert(sizeof(crypto_hash_sha256_state) <= sizeof(fa_hash), "state fits");

void fa_hash_init(fa_hash *hash)
{
    crypto_hash_sha256_init((crypto_hash_sha256_state *)hash->state);
}

/* As crypto_hash_sha256_update: whole blocks by the processor's own instructions, the rest by libsodium. */
static void update(crypto_hash_sha256_state *state, const unsigned char *bytes, size_t size)
{
    if (size == 0)
        return; /* `bytes` may be NULL */
    size_t filled = state->count / 8 % 64, head = filled == 0 ? 0 : 64 - filled;
    head = head < size ? head : size;
    crypto_hash_sha256_update(state, bytes, head);
    size_t done = head;
    if (size - head >= 64)
        done += fa_sha256_blocks(state->state, bytes + head, size - head);
    state->count += (uint64_t)(done - head) * 8;
    crypto_hash_sha256_update(state, bytes + done, size - done);
}

void fa_hash_part(fa_hash *hash, const void *bytes, size_t size)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)size >> (8 * i));
    update((crypto_hash_sha256_state *)hash->state, length, sizeof length);
    update((crypto_hash_sha256_state *)hash->state, bytes, size);
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
    unsigned char digest[FA_HASH_BYTES];
    fa_hash_raw(bytes, size, digest);
    sodium_bin2hex(ret_hex, FA_HASH_HEX, digest, sizeof digest);
}

void fa_hash_raw(const void *bytes, size_t size, unsigned char ret_digest[FA_HASH_BYTES])
{
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    update(&state, bytes, size);
    crypto_hash_sha256_final(&state, ret_digest);
}
