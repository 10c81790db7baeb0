/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashing: the same SHA-256 as libsodium's, however long the parts are and wherever they lie.
 */
#include "check.h"

#include "hash.h"

#include <sodium.h>
#include <stdlib.h>

enum { SIZE = 1000 };
static unsigned char bytes[SIZE + 64];

static void every_length_and_address_gives_the_sha256_of_libsodium(void)
{
    unsigned char own[FA_HASH_BYTES], sodium[crypto_hash_sha256_BYTES];
    for (size_t size = 0; size <= SIZE; size++) {
        const unsigned char *at = bytes + size % 64;
        fa_hash_raw(at, size, own);
        crypto_hash_sha256(sodium, at, size);
        CHECK(memcmp(own, sodium, sizeof own) == 0);
    }
}

static void a_known_text_has_its_known_hash(void)
{
    char hex[FA_HASH_HEX];
    fa_hash_bytes("abc", 3, hex);
    CHECK_TEXT(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void no_bytes_may_be_null(void)
{
    char null[FA_HASH_HEX], empty[FA_HASH_HEX];
    fa_hash hash;
    fa_hash_init(&hash);
    fa_hash_part(&hash, NULL, 0);
    fa_hash_final(&hash, null);
    fa_hash_init(&hash);
    fa_hash_part(&hash, bytes, 0);
    fa_hash_final(&hash, empty);
    CHECK_TEXT(null, empty);
    fa_hash_bytes(NULL, 0, null);
    CHECK_TEXT(null, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/* Parts of random lengths, each behind its length in eight bytes. */
static void parts_of_any_length_add_up(void)
{
    srand(1);
    for (int round = 0; round < 300; round++) {
        unsigned char digest[crypto_hash_sha256_BYTES];
        char own[FA_HASH_HEX], sodium[FA_HASH_HEX];
        crypto_hash_sha256_state state;
        fa_hash hash;
        fa_hash_init(&hash);
        crypto_hash_sha256_init(&state);
        for (int part = 0; part < 8; part++) {
            size_t size = (size_t)rand() % (round < 100 ? 70 : SIZE);
            unsigned char length[8] = {(unsigned char)size, (unsigned char)(size >> 8)};
            fa_hash_part(&hash, bytes + part, size);
            crypto_hash_sha256_update(&state, length, sizeof length);
            crypto_hash_sha256_update(&state, bytes + part, size);
        }
        fa_hash_final(&hash, own);
        crypto_hash_sha256_final(&state, digest);
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
    TEST(a_known_text_has_its_known_hash);
    TEST(every_length_and_address_gives_the_sha256_of_libsodium);
    TEST(no_bytes_may_be_null);
    TEST(parts_of_any_length_add_up);
    return check_done();
}
