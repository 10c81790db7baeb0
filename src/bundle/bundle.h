/* SPDX-License-Identifier: Apache-2.0
 *
 * A bundle: winners, their cubins and their evidence in one file, to be carried to other machines
 * or to lie read-only beside every user's store.
 *
 * May be used by: engine and above. May use: db, base.
 *
 * The file is a part of a store (db/sqlite.c) as SQLite writes it, and behind it 128 bytes: the hash of what
 * stands before them, and zeros (once a signature). The same content gives the same bytes. FILE.minisig beside it is a
 * signature of the whole file in minisign's format.
 *
 * A bundle is hostile until it is checked: hash and signature before SQLite sees a byte, the tables and every page
 * before a row is read, each row and each cubin before it is handed out. Whether the signer must be trusted is the
 * caller's question.
 */
#ifndef FA_BUNDLE_BUNDLE_H
#define FA_BUNDLE_BUNDLE_H

#include "store.h"

#include "buf.h"
#include "fa_bundle.h"
#include "json.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- minisign's files (keys.c) ----------------------------------------------------------------*/
/* The files of minisign: a comment, then base64 of one of the structs below. Ed25519 by libsodium, over the bytes
 * themselves ("Ed") or over their BLAKE2b-512 ("ED"), and once more over a signature and its second comment.
 * Parsers cut up their text, and what they return may point into it. What is read may be anybody's.
 */
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

/* Appends the text of a signature. The comment, of one line, is signed, too. */
void fa_sign(const fa_secret_key *secret, const void *bytes, size_t size, const char *comment,
             fa_buf *out);
bool fa_signature_holds(const fa_signature *signature, const fa_public_key *key, const void *bytes,
                        size_t size);

/* ---- keys (keys.c) ----------------------------------------------------------------------------*/
#define FA_TRUSTED_FOLDER "/trusted"   /* in the folder of keys */
#define FA_SIGNATURE_ENDING ".minisig" /* behind the name of the file that it signs */

/* file NULL: this user's. FA_ENOTFOUND says how to make one. */
int fa_keys_secret(const char *file, fa_secret_key *ret_secret, fa_diag *diag);
/* Of the text of FILE.minisig, which is cut up: who signed these bytes, in `is_signed`, `trusted`, `key` and `name`. A
 * signature by a key that is not trusted is only named. FA_EUNTRUSTED: a trusted key did not sign these bytes;
 * FA_ECORRUPT: not a signature, or a trusted key that is none; FA_ESTORE: the keys cannot be believed. */
int fa_verify(char *text, const void *bytes, size_t size, fa_bundle_info *info, fa_diag *diag);

/* ---- files that are written ------------------------------------------------------------------*/
/* The checks of fa_output_write(). bundle: also that a file that is there is a bundle, not a kernel's source. */
int fa_output_check(const char *path, bool bundle, fa_diag *diag);

/* ---- trials in a winner's evidence (trials.c) ------------------------------------------------*/
enum { FA_TRIAL_LIST_MAX = 128, FA_TRIAL_SAMPLES_MAX = 128 };

/* What is kept of a trial: the config, its times and its error. null and an absent member are 0. */
extern const fa_member fa_timed_members[];
/* Whether its median lies in its interval. */
bool fa_trial_is_timed(const fa_trial *trial);

/* Those of an array, which may be NULL. FA_EINVAL with a sentence; FA_ENOMEM. */
int fa_trials_from_json(const cJSON *array, fa_study_trial **ret_rows, size_t *ret_count,
                        fa_diag *diag);
/* Those of an evidence, which may be NULL; a trial that cannot be is passed over. FA_ENOMEM. */
int fa_trials_from_evidence(const char *evidence, fa_study_trial **ret_rows, size_t *ret_count,
                            fa_diag *diag);
/* Replaces the "trials" of an evidence, which must be an object; of each at most FA_TRIAL_SAMPLES_MAX samples. */
int fa_trials_join(const fa_study_trial *rows, size_t count, char **evidence, fa_diag *diag);

/* ---- the file (bundle.c) --------------------------------------------------------------------*/
enum {
    FA_BUNDLE_TRAILER = 128,
    FA_BUNDLE_WINNERS_MAX = 20000,
    FA_BUNDLE_CUBINS_MAX = 20000,
    FA_BUNDLE_BYTES_MAX = 1 << 30
};

/* ---- reading --------------------------------------------------------------------------------*/
typedef struct fa_bundle fa_bundle;

/* Hash and signature. owned: a file that nobody but this user or root could have written (src/base/buf.h), or it
 * is refused; neither its hash nor a signature is looked at. FA_ENOTFOUND, FA_EVERSION (another version), FA_ECORRUPT,
 * FA_EUNTRUSTED (the signature is wrong), FA_ESTORE (owner), FA_EIO. */
int fa_bundle_open(const char *path, bool owned, fa_bundle **ret_bundle, fa_diag *diag);
void fa_bundle_close(fa_bundle **bundle);
/* winners and cubins are 0 until fa_bundle_read(). */
const fa_bundle_info *fa_bundle_get_info(const fa_bundle *bundle);

/* Checks the tables, and lets SQLite see the file: comes before everything below. */
int fa_bundle_read(fa_bundle *bundle, fa_diag *diag);
/* All winners, those of one cubin one after another, for fa_bundle_cubin_of(). FA_ECORRUPT where one of them is not
 * valid, or is of an operation that is not known here. */
int fa_bundle_winners(fa_bundle *bundle, fa_winner_record **ret_rows, size_t *ret_count,
                      fa_diag *diag);
/* Those that are valid and were timed for a problem like this one, whatever its lengths; NULL: all. */
int fa_bundle_winners_like(fa_bundle *bundle, const fa_problem *like, fa_winner_record **ret_rows,
                           size_t *ret_count);
/* The winner for this scope with its cubin, or FA_ENOTFOUND. */
int fa_bundle_find(fa_bundle *bundle, const fa_scope *scope, fa_winner_record *ret_winner,
                   fa_cubin_record *ret_cubin, fa_diag *diag);
/* A winner's cubin, as the winner describes it; `cubin`: of the winner before, or zeros, and the caller's to free.
 * Whether it is a kernel is not checked here. */
int fa_bundle_cubin_of(fa_bundle *bundle, const fa_winner_record *winner, fa_cubin_record *cubin,
                       fa_diag *diag);
int fa_bundle_cubin(fa_bundle *bundle, const char *key, fa_cubin_record *ret_cubin, fa_diag *diag);

/* ---- writing --------------------------------------------------------------------------------*/
/* Into a store of fa_portable_new(): a cubin that has been added before is taken once. Refuses what no reader would
 * take. 1: one of its problem and GPU has been added, and stays. */
int fa_bundle_add(fa_store *part, const fa_winner_record *winner, const void *cubin, size_t size,
                  fa_diag *diag);
/* In the order of adding, on which its bytes depend. Written beside `path`, flushed to disk, then renamed over it;
 * then the signature likewise. secret NULL: unsigned, and the signature of an earlier file is removed. ret_info may be
 * NULL. */
int fa_bundle_write(fa_store *part, const char *path, const fa_secret_key *secret,
                    fa_bundle_info *ret_info, fa_diag *diag);
/* As if it had been written by nobody's hand and opened again; the bundle takes the store. FA_ENOTFOUND: no winner. */
int fa_bundle_of(fa_store **part, const char *path, fa_bundle **ret_bundle, fa_diag *diag);
/* FILE.minisig of FILE. FA_EINVAL: too long. */
int fa_bundle_signature_path(const char *path, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag);
/* Appends the trailer to what stands in `bytes`. */
void fa_bundle_seal(fa_buf *bytes);

#endif
