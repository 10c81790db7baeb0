/* SPDX-License-Identifier: Apache-2.0
 *
 * A bundle: winners, their cubins and their evidence in one file, to be carried to other machines
 * or to lie read-only beside every user's store.
 *
 * May be used by: engine and above. May use: db, base.
 *
 * The file is a part of a store (db/portable.h) as SQLite writes it, and behind it 128 bytes: the hash of what
 * stands before them, the Ed25519 public key, and its signature over the text "fa-tune bundle 3" and that hash.
 * Key and signature are zeros where nobody signed. The same content gives the same bytes.
 *
 * A bundle is hostile until it is checked: hash and signature before SQLite sees a byte, the tables and every page
 * before a row is read, each row and each cubin before it is handed out. Whether the signer is trusted is the
 * caller's question.
 */
#ifndef FA_BUNDLE_BUNDLE_H
#define FA_BUNDLE_BUNDLE_H

#include "store.h"

#include "buf.h"
#include "fa_bundle.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- signatures and keys (keys.c) ------------------------------------------------------------*/
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

/* The files of keys as the engine reads them; callers see fa_bundle.h. */
#define FA_KEY_MARK "fa-tune-secret-key-1 " /* how the file of a secret key begins */
#define FA_TRUST_FILE "/trusted-keys"       /* in the folder of keys */

/* file NULL: this user's. FA_ENOTFOUND says how to make one. */
int fa_keys_secret(const char *file, fa_sign_secret *ret_secret, fa_diag *diag);
/* 0 and the name by which a key is trusted ("" for none), or FA_ENOTFOUND; other codes say why the
 * list cannot be believed. */
int fa_keys_trusted(const unsigned char key[FA_KEY_BYTES], char ret_name[FA_KEY_NAME_MAX],
                    fa_diag *diag);

/* ---- the file (bundle.c) --------------------------------------------------------------------*/
enum {
    FA_BUNDLE_TRAILER = 128,
    FA_BUNDLE_WINNERS_MAX = 20000,
    FA_BUNDLE_CUBINS_MAX = 20000,
    FA_BUNDLE_BYTES_MAX = 1 << 30
};

/* ---- reading --------------------------------------------------------------------------------*/
typedef struct fa_bundle fa_bundle;

/* Hash and signature. owned: a file that nobody but this user or root could have written (src/base/own_place.h), or it
 * is refused; its hash is computed only where it is signed. FA_ENOTFOUND, FA_EVERSION (another version), FA_ECORRUPT,
 * FA_EUNTRUSTED (the signature is wrong), FA_ESTORE (owner), FA_EIO. */
int fa_bundle_open(const char *path, bool owned, fa_bundle **ret_bundle, fa_diag *diag);
void fa_bundle_close(fa_bundle **bundle);
/* Whether its key is trusted is not known here; winners and cubins are 0 until fa_bundle_read(). */
const fa_bundle_info *fa_bundle_get_info(const fa_bundle *bundle);

/* Checks the tables, and lets SQLite see the file: comes before everything below. */
int fa_bundle_read(fa_bundle *bundle, fa_diag *diag);
/* Every winner with its cubin, those of one cubin one after another. What the cubin is, nobody has checked. Non-zero
 * stops. FA_ECORRUPT where one of them is not valid, or is of an operation that is not known here. */
typedef int fa_bundle_winner_visit(void *context, const fa_winner_record *winner,
                                   const fa_cubin_record *cubin, fa_diag *diag);
int fa_bundle_each(fa_bundle *bundle, fa_bundle_winner_visit *visit, void *context, fa_diag *diag);
/* Those that are valid, without their cubins; `like` as of fa_store_winners_by_cubin(). */
int fa_bundle_winners(fa_bundle *bundle, const fa_problem *like, fa_winner_visit *visit,
                      void *context);
/* The winner for this scope with its cubin, or FA_ENOTFOUND. */
int fa_bundle_find(fa_bundle *bundle, const fa_scope *scope, fa_winner_record *ret_winner,
                   fa_cubin_record *ret_cubin, fa_diag *diag);
int fa_bundle_cubin(fa_bundle *bundle, const char *key, fa_cubin_record *ret_cubin, fa_diag *diag);
/* Sets all but the bytes from the winner that it belongs to. */
void fa_bundle_describe_cubin(const fa_winner_record *winner, fa_cubin_record *cubin);

/* ---- writing --------------------------------------------------------------------------------*/
/* Into a store of fa_portable_new(): a cubin that has been added before is taken once. Refuses what no reader would
 * take. */
int fa_bundle_add(fa_store *part, const fa_winner_record *winner, const void *cubin, size_t size,
                  fa_diag *diag);
/* In an order of its own, whatever the order of adding. Written beside `path`, flushed to disk, then renamed over it.
 * secret NULL: unsigned. ret_info may be NULL. */
int fa_bundle_write(fa_store *part, const char *path, const fa_sign_secret *secret,
                    fa_bundle_info *ret_info, fa_diag *diag);
/* As if it had been written by nobody's hand and opened again; the bundle takes the store. FA_ENOTFOUND: no winner. */
int fa_bundle_of(fa_store **part, const char *path, fa_bundle **ret_bundle, fa_diag *diag);
/* Appends the trailer to what stands in `bytes`. */
void fa_bundle_seal(fa_buf *bytes, const fa_sign_secret *secret);

#endif
