/* SPDX-License-Identifier: Apache-2.0
 *
 * Signatures, and the files of keys as the engine reads them; callers see fa_bundle.h.
 */
#ifndef FA_BUNDLE_KEYS_H
#define FA_BUNDLE_KEYS_H

#include "fa_bundle.h"

#include <stdbool.h>
#include <stddef.h>

/* Ed25519 signatures (libsodium) and keys as text: 64 lower-case hex digits. */
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

/* Any 32 bytes: keys, hashes. */
void fa_key_text(const unsigned char key[FA_KEY_BYTES], char ret_hex[FA_KEY_HEX]);
bool fa_key_parse(const char *hex, unsigned char ret_key[FA_KEY_BYTES]); /* exactly 64 digits */

/* ---- the files of keys ---------------------------------------------------------------------- */
#define FA_KEY_MARK "fa-tune-secret-key-1 " /* how the file of a secret key begins */
#define FA_TRUST_FILE "/trusted-keys"       /* in the folder of keys */

/* file NULL: this user's. FA_ENOTFOUND says how to make one. */
int fa_keys_secret(const char *file, fa_sign_secret *ret_secret, fa_diag *diag);
/* 0 and the name by which a key is trusted ("" for none), or FA_ENOTFOUND; other codes say why the
 * list cannot be believed. */
int fa_keys_trusted(const unsigned char key[FA_KEY_BYTES], char ret_name[FA_KEY_NAME_MAX],
                    fa_diag *diag);

#endif
