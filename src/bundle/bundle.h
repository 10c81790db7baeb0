/* SPDX-License-Identifier: Apache-2.0
 *
 * A bundle: winners, their cubins and their evidence in one file, to be carried to other machines
 * or to lie read-only beside every user's store.
 *
 * May be used by: engine and above. May use: db, base.
 *
 * The format, all numbers little-endian:
 *
 *   header   64 B   magic "\x89" "FAB\r\n\x1a\n"; u32 version; u32 flags (1: signed); u64 bytes of
 *                   the file; u32 winners; u32 cubins; zeros
 *   index           one 80-byte row a winner, ascending by scope key, then one a cubin, ascending
 *                   by cubin key: key (32 B); SHA-256 of the part (32 B); u64 offset; u32 bytes;
 *                   u32 the winner's cubin by its row, or 0 in a cubin's row
 *   seal    128 B   SHA-256 of header and index; the Ed25519 public key and its signature over
 *                   the text "fa-tune bundle 1" and that hash. Zeros when not signed.
 *   parts           winners as JSON in the index's order, then the cubins, without gaps
 *
 * So one hash and one signature over the front vouch for everything, and a single part can be read
 * and checked alone. A file has exactly one form: the same content gives the same bytes, and every
 * byte is either checked or refused.
 *
 * A bundle is hostile until it is checked: header, hash and signature before the index is looked
 * at, a part's SHA-256 before it is parsed. Whether the signer is trusted is the caller's question.
 */
#ifndef FA_BUNDLE_BUNDLE_H
#define FA_BUNDLE_BUNDLE_H

#include "store.h"

#include "buf.h"
#include "sign.h"

enum {
    FA_BUNDLE_VERSION = 1,
    FA_BUNDLE_WINNERS_MAX = 20000,
    FA_BUNDLE_CUBINS_MAX = 20000,
    FA_BUNDLE_RECORD_MAX = 1 << 20, /* bytes of one winner */
    FA_BUNDLE_BYTES_MAX = 1 << 30
};

/* ---- reading --------------------------------------------------------------------------------*/
typedef struct fa_bundle fa_bundle;

typedef struct fa_bundle_head {
    uint32_t version;
    uint64_t bytes;
    int32_t winners, cubins;
    bool is_signed; /* and the signature is good */
    unsigned char key[FA_KEY_BYTES];
} fa_bundle_head;

/* Header, hash and signature. owned: also that nobody but this user or root could have written it
 * (src/base/owned.h). FA_ENOTFOUND, FA_EVERSION (another version), FA_ECORRUPT, FA_EUNTRUSTED (the signature
 * is wrong), FA_ESTORE (owner), FA_EIO. */
int fa_bundle_open(const char *path, bool owned, fa_bundle **ret_bundle, fa_diag *diag);
void fa_bundle_close(fa_bundle **bundle);
const fa_bundle_head *fa_bundle_get_head(const fa_bundle *bundle);

/* Checks the index: comes before everything below. */
int fa_bundle_read_index(fa_bundle *bundle, fa_diag *diag);
/* The SHA-256 of every part, nothing parsed. */
int fa_bundle_check_parts(fa_bundle *bundle, fa_diag *diag);
/* Row of the winner for this scope, or FA_ENOTFOUND. */
int fa_bundle_find(const fa_bundle *bundle, const fa_scope *scope, int32_t *ret_winner);
int fa_bundle_find_cubin(const fa_bundle *bundle, const char *key, int32_t *ret_cubin);
/* One part, its hash checked, parsed and compared with its row. The winner's cubin key is that of
 * *ret_cubin, which may be NULL. */
int fa_bundle_winner(fa_bundle *bundle, int32_t winner, fa_winner_record *ret_winner,
                     int32_t *ret_cubin, fa_diag *diag);
/* Whether the winner may be one for a problem of this shape (all but its lengths) that somebody has
 * timed: a look at the front of its document, much cheaper than reading it. False only when the front
 * says so; what is true must still be read to be believed. */
bool fa_bundle_may_be_like(const fa_bundle *bundle, int32_t winner, const fa_problem *problem);
/* Malloced bytes, whose content nobody has checked. */
int fa_bundle_cubin(fa_bundle *bundle, int32_t cubin, void **ret_bytes, size_t *ret_size,
                    fa_diag *diag);

/* ---- writing --------------------------------------------------------------------------------*/
typedef struct fa_bundle_writer fa_bundle_writer;

int fa_bundle_writer_new(fa_bundle_writer **ret_writer, fa_diag *diag);
void fa_bundle_writer_free(fa_bundle_writer **writer);
/* Copies; a cubin that has been added before is taken once. */
int fa_bundle_add(fa_bundle_writer *writer, const fa_winner_record *winner, const void *cubin,
                  size_t cubin_size, fa_diag *diag);
/* Written beside `path`, flushed to disk, then renamed over it. secret NULL: unsigned. */
int fa_bundle_write(fa_bundle_writer *writer, const char *path, const fa_sign_secret *secret,
                    fa_bundle_head *ret_head, fa_diag *diag);

/* ---- one winner as JSON (bundle_json.c) -----------------------------------------------------*/
int fa_bundle_winner_print(const fa_winner_record *winner, fa_buf *out, fa_diag *diag);
int fa_bundle_winner_parse(const char *text, size_t size, fa_winner_record *ret_winner,
                           fa_diag *diag);

#endif
