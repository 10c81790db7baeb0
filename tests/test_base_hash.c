/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashing: plain BLAKE2b and SHA-256, and parts that each stand behind their length.
 */
#define CHECK_OWN_MAIN
#include "check.h"

#include "hash.h"

#include <sodium.h>

enum { SIZE = 1000 };
static unsigned char bytes[SIZE + 64];

TEST(a_known_text_has_its_known_hash)
{
    char hex[FA_HASH_HEX];
    fa_sha256("abc", 3, hex);
    CHECK_TEXT(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    fa_hash_bytes("abc", 3, hex); /* as of Python's hashlib.blake2b("abc", digest_size=32) */
    CHECK_TEXT(hex, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

/* Parts of random lengths, each behind its length in eight bytes. */
TEST(parts_of_any_length_add_up)
{
    srand(1);
    for (int round = 0; round < 300; round++) {
        unsigned char digest[FA_HASH_BYTES];
        char own[FA_HASH_HEX], sodium[FA_HASH_HEX];
        crypto_generichash_state state;
        fa_hash hash;
        fa_hash_init(&hash);
        crypto_generichash_init(&state, NULL, 0, sizeof digest);
        for (int part = 0; part < 8; part++) {
            size_t size = (size_t)rand() % (round < 100 ? 70 : SIZE);
            unsigned char length[8] = {(unsigned char)size, (unsigned char)(size >> 8)};
            fa_hash_part(&hash, bytes + part, size);
            crypto_generichash_update(&state, length, sizeof length);
            crypto_generichash_update(&state, bytes + part, size);
        }
        fa_hash_final(&hash, own);
        crypto_generichash_final(&state, digest, sizeof digest);
        sodium_bin2hex(sodium, sizeof sodium, digest, sizeof digest);
        CHECK_TEXT(own, sodium);
    }
}

int main(void)
{
    if (sodium_init() < 0)
        return 1;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 37 + i / 251);
    check_all();
    return check_done();
}
