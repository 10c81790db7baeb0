/* SPDX-License-Identifier: Apache-2.0
 *
 * Ed25519 signatures (libsodium) and keys as text: 64 lower-case hex digits.
 */
#ifndef FA_BASE_SIGN_H
#define FA_BASE_SIGN_H

#include <stdbool.h>
#include <stddef.h>

enum { FA_KEY_BYTES = 32, FA_KEY_HEX = 65, FA_SIGNATURE_BYTES = 64 };

/* The secret half is kept as the 32 bytes that both halves follow from. */
typedef struct fa_sign_secret {
    unsigned char seed[FA_KEY_BYTES];
} fa_sign_secret;

int fa_sign_make(fa_sign_secret *ret_secret); /* 0 or FA_EIO: no randomness to be had */
void fa_sign_public(const fa_sign_secret *secret, unsigned char ret_key[FA_KEY_BYTES]);
void fa_sign(const fa_sign_secret *secret, const void *bytes, size_t size,
             unsigned char ret_signature[FA_SIGNATURE_BYTES]);
bool fa_sign_verify(const unsigned char key[FA_KEY_BYTES], const void *bytes, size_t size,
                    const unsigned char signature[FA_SIGNATURE_BYTES]);
void fa_sign_wipe(void *bytes, size_t size); /* not optimised away */

/* Any 32 bytes: keys, hashes. */
void fa_key_text(const unsigned char key[FA_KEY_BYTES], char ret_hex[FA_KEY_HEX]);
bool fa_key_parse(const char *hex, unsigned char ret_key[FA_KEY_BYTES]); /* exactly 64 digits */

#endif
