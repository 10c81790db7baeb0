/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashing: plain BLAKE2b and SHA-256, and parts that each stand behind their length.
 */
#include "check.h"

#include "buf.h"

TEST(a_known_text_has_its_known_hash)
{
    char hex[FA_HASH_HEX];
    fa_sha256("abc", 3, hex);
    CHECK_TEXT(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    fa_hash_bytes("abc", 3, hex); /* as of Python's hashlib.blake2b("abc", digest_size=32) */
    CHECK_TEXT(hex, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

/* hashlib.blake2b(pack("<Q", 3) + b"abc" + pack("<Q", 300) + b"\7" * 300 + pack("<Q", 0), digest_size=32) */
TEST(parts_stand_behind_their_lengths_of_eight_bytes)
{
    unsigned char bytes[300];
    char hex[FA_HASH_HEX];
    fa_hash hash;
    memset(bytes, 7, sizeof bytes);
    fa_hash_init(&hash);
    fa_hash_text(&hash, "abc");
    fa_hash_part(&hash, bytes, sizeof bytes);
    fa_hash_part(&hash, NULL, 0);
    fa_hash_final(&hash, hex);
    CHECK_TEXT(hex, "03ec18a673ab9506de7f27d859cb5ffb2c5ad691e6c41cd4b8e5c9241f3712d9");
}
