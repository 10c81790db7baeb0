/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loop of SHA-256 in the instructions that some processors have for it.
 */
#ifndef FA_BASE_SHA256_BLOCKS_H
#define FA_BASE_SHA256_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

/* Takes the whole 64-byte blocks of `bytes` into the state; returns how many bytes that were: 0 where the
 * processor has no such instructions. */
size_t fa_sha256_blocks(uint32_t state[8], const unsigned char *bytes, size_t size);

#endif
