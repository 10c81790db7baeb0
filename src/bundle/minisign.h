/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of minisign: a comment, then base64 of one of the structs below. Ed25519 by libsodium, over the bytes
 * themselves ("Ed") or over their BLAKE2b-512 ("ED"), and once more over a signature and its second comment.
 * Parsers cut up their text, and what they return may point into it. What is read may be anybody's.
 */
#ifndef FA_BUNDLE_MINISIGN_H
#define FA_BUNDLE_MINISIGN_H

#include "buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { FA_MINISIGN_MAX = 16384, FA_KEY_ID_TEXT = 17 };

/* Bytes alone: what lies in a file. */
typedef struct fa_public_key {
    unsigned char algorithm[2], id[8], key[32];
} fa_public_key;

/* A password encrypts from `id` on; without one `derivation` is zeros. */
typedef struct fa_secret_key {
    unsigned char algorithm[2], derivation[2], checksum_kind[2], derived_by[48], id[8], key[64],
        checksum[32];
} fa_secret_key;

typedef struct fa_signature {
    struct {
        unsigned char algorithm[2], id[8], bytes[64];
    } signature;
    unsigned char global[64];
    const char *comment;
} fa_signature;

/* The key stands in the last of one or two lines. */
bool fa_public_parse(char *text, fa_public_key *ret_key);
bool fa_secret_parse(char *text, fa_secret_key *ret_key);
bool fa_signature_parse(char *text, fa_signature *ret_signature);
/* Whether a file of this text is a secret or a public key, or a secret one as fa-tune once made them. */
bool fa_is_key(char *text);

void fa_public_of(const fa_secret_key *secret, fa_public_key *ret_key);
/* ret_text: 4 bytes for 3, and 1. */
void fa_base64(const void *bytes, size_t size, char *ret_text, size_t room);
/* As minisign prints it: a little-endian number. */
void fa_key_id(const unsigned char id[8], char ret_text[FA_KEY_ID_TEXT]);

/* Appends the text of a signature. The comment, of one line, is signed, too. */
void fa_sign(const fa_secret_key *secret, const void *bytes, size_t size, const char *comment,
             fa_buf *out);
bool fa_signature_holds(const fa_signature *signature, const fa_public_key *key, const void *bytes,
                        size_t size);

#endif
