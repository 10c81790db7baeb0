/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a bundle, for who writes and who reads them. The format's description is in
 * bundle.h.
 */
#ifndef FA_BUNDLE_BUNDLE_FORMAT_H
#define FA_BUNDLE_BUNDLE_FORMAT_H

#include "bundle.h"

enum {
    FA_BUNDLE_HEADER = 64,
    FA_BUNDLE_ROW = 80,
    FA_BUNDLE_SEAL = 128,
    FA_BUNDLE_SIGNED = 1 /* flag */
};

#define FA_BUNDLE_MAGIC \
    "\x89"              \
    "FAB\r\n\x1a\n"

/* The signature is over this text and the hash of the front. */
#define FA_BUNDLE_SIGNED_TEXT "fa-tune bundle 1"
enum { FA_BUNDLE_SIGNED_BYTES = sizeof FA_BUNDLE_SIGNED_TEXT - 1 + FA_HASH_BYTES };

typedef struct fa_bundle_row {
    unsigned char key[FA_HASH_BYTES], sha256[FA_HASH_BYTES];
    uint64_t offset;
    uint32_t size, cubin;
} fa_bundle_row;

static inline void fa_put_le(unsigned char *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

static inline uint64_t fa_get_le(const unsigned char *in, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

#endif
