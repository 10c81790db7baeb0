/* SPDX-License-Identifier: Apache-2.0 */
#include "hash.h"

#include <sodium.h>
#include <string.h>

/* SHA-256 (FIPS 180-4) by the SHA instructions of x86, four rounds at a time.
 *
 * Workload: a cubin of some 50 KiB on the way of a new process to its first kernel, and the source of every
 * config of a tune. libsodium hashes 0.3 GB/s, these instructions five times as much.
 * update_blocks() takes the whole 64-byte blocks of `bytes` into the state and returns how many bytes that were: 0
 * where the processor has no such instructions. */
#if defined __x86_64__ && defined __GNUC__ && __GNUC__ >= 11 && !defined __clang__
#include <immintrin.h>

#define SHA_TARGET __attribute__((target("sha,sse4.1")))

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* One block. The instructions want the state's words as a, b, e, f and c, d, g, h. */
SHA_TARGET static inline void take_block(__m128i *abef, __m128i *cdgh, const unsigned char *bytes)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i before[2] = {*abef, *cdgh}, word[4];
    for (int i = 0; i < 4; i++)
        word[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(bytes + 16 * i)), big_endian);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        __m128i *now = &word[i % 4], next = word[(i + 1) % 4], last = word[(i + 3) % 4];
        __m128i sum =
            _mm_add_epi32(*now, _mm_loadu_si128((const __m128i *)(const void *)&constants[4 * i]));
        *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, sum);
        *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32(sum, 0x0e));
        if (i < 12)
            *now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(*now, next),
                                                      _mm_alignr_epi8(last, word[(i + 2) % 4], 4)),
                                        last);
    }
    *abef = _mm_add_epi32(*abef, before[0]);
    *cdgh = _mm_add_epi32(*cdgh, before[1]);
}

SHA_TARGET static void take_blocks(uint32_t state[8], const unsigned char *bytes, size_t count)
{
    __m128i *at = (__m128i *)(void *)state;
    __m128i low = _mm_shuffle_epi32(_mm_loadu_si128(at), 0xb1);      /* c d a b */
    __m128i high = _mm_shuffle_epi32(_mm_loadu_si128(at + 1), 0x1b); /* e f g h */
    __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xf0);
    for (; count > 0; count--, bytes += 64)
        take_block(&abef, &cdgh, bytes);
    low = _mm_shuffle_epi32(abef, 0x1b);  /* f e b a */
    high = _mm_shuffle_epi32(cdgh, 0xb1); /* d c h g */
    _mm_storeu_si128(at, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128(at + 1, _mm_alignr_epi8(high, low, 8));
}

static size_t update_blocks(uint32_t state[8], const unsigned char *bytes, size_t size)
{
    if (!__builtin_cpu_supports("sha") || !__builtin_cpu_supports("sse4.1"))
        return 0;
    take_blocks(state, bytes, size / 64);
    return size / 64 * 64;
}

#else

static size_t update_blocks(uint32_t state[8], const unsigned char *bytes, size_t size)
{
    (void)state, (void)bytes, (void)size;
    return 0;
}

#endif

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
        done += update_blocks(state->state, bytes + head, size - head);
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
