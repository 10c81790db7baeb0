/* SPDX-License-Identifier: Apache-2.0
 *
 * The hash of keys, blobs and files: libsodium's BLAKE2b of 32 bytes, in one call or over labelled parts. And the
 * SHA-256 by which other programs know a cubin; and the numbers that follow from a seed.
 *
 * Workload: a cubin of some 50 KiB on the way of a new process to its first kernel, and the source of every config of a
 * tune. libsodium's BLAKE2b takes a third of the time of its SHA-256.
 */
#ifndef FA_BASE_HASH_H
#define FA_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { FA_HASH_HEX = 65, FA_HASH_BYTES = 32 }; /* 64 hex digits and a NUL */

typedef struct fa_hash {
    _Alignas(64) unsigned char state[384];
} fa_hash;

void fa_hash_init(fa_hash *hash);
/* Parts are length-prefixed, so that moving a byte between two parts changes the hash. Here and below `bytes` may be NULL
 * where size is 0. */
void fa_hash_part(fa_hash *hash, const void *bytes, size_t size);
void fa_hash_text(fa_hash *hash, const char *text);
void fa_hash_final(fa_hash *hash, char ret_hex[FA_HASH_HEX]);

/* The plain hash of some bytes. */
void fa_hash_bytes(const void *bytes, size_t size, char ret_hex[FA_HASH_HEX]);
/* The same, as bytes. */
void fa_hash_raw(const void *bytes, size_t size, unsigned char ret_digest[FA_HASH_BYTES]);

void fa_sha256(const void *bytes, size_t size, char ret_hex[FA_HASH_HEX]);

/* ---- numbers that are drawn ------------------------------------------------------------------*/
/* The i-th number of the stream `seed` by splitmix64 (Steele, Lea, Flood 2014): what proofs and races draw is the same for
 * the same seed, on the host and on a device. */
uint64_t fa_random(uint64_t seed, uint64_t i);

#endif
