/* SPDX-License-Identifier: Apache-2.0
 *
 * Carrying winners to other machines: bundles (.fab files), who signs them and who is believed.
 *
 * Caveats first:
 * - A cubin is code, and one that comes in a bundle was made by somebody else. A signature by a
 *   trusted key is what lets it run here; that key's owner can run anything on this GPU and read
 *   what this process computes. Trust keys accordingly.
 * - An imported winner says `imported`, however well it was measured where it comes from; what it
 *   was there stays in its evidence. Predicted and transferred winners stay what they are.
 * - System bundles (FA_TUNE_SYSTEM, else fa-tune/ in the data directory and in /usr/share) are
 *   read where they lie, after the user's own store. Whoever can write those files is believed:
 *   they must belong to this user or to root and be writable by nobody else. Their signatures are
 *   not looked at.
 *
 * A bundle's signature is FILE.minisig beside it, as `minisign -Sm FILE` makes it, and keys are in
 * minisign's files, too. They live in fa-tune/ in $XDG_CONFIG_HOME, else in ~/.config:
 * `minisign.key` (secret, mode 0600, without a password) and `trusted/`. Whose key is trusted:
 * each NAME.pub in that folder, which belongs to this user or to root and which nobody else can
 * write, as the folder.
 */
#ifndef FA_BUNDLE_H
#define FA_BUNDLE_H

#include "fa_tuner.h"

/* ---- files that are written -----------------------------------------------------------------*/
/* The file is there whole, or what was there stays. Its mode is 0644 less the umask. FA_EINVAL where its folder does not
 * exist, where something is there that is no regular file, and where it is a store, what belongs to one, a key or a file
 * among the trusted keys, by whatever name. What this library writes to a file that its caller names goes through it. */
FA_API int fa_output_write(const char *path, const void *bytes, size_t size, fa_diag *diag);

/* ---- keys -----------------------------------------------------------------------------------*/
enum { FA_KEY_TEXT_MAX = 65, FA_KEY_NAME_MAX = 64 };

/* Makes a key pair, minisign.key, from which fa_export takes it, and trusted/own.pub; never writes over a file that is
 * there. ret_key: the line of the public one. ret_path, of the secret one, may be NULL. */
FA_API int fa_keygen(char ret_key[65], char *ret_path, size_t path_size, fa_diag *diag);

/* ---- what a bundle holds --------------------------------------------------------------------*/
typedef struct fa_bundle_info {
    uint32_t version;
    int64_t bytes;
    int32_t winners, cubins;
    bool is_signed;             /* FILE.minisig is there */
    bool trusted;               /* by a trusted key, and the signature is good */
    char key[FA_KEY_TEXT_MAX];  /* as in its file; of one that is not trusted its ID alone, which
                                   anybody could have written; "" when not signed */
    char name[FA_KEY_NAME_MAX]; /* of the trusted key's file, without .pub */
    /* Of an import, or what it would be, and of fa_push(): */
    int32_t added, replaced, kept, same;
    int32_t unserved; /* made from other templates or by another policy than this library's: kept,
                         and served by none of its lookups */
    /* Of lines: */
    bool from_lines;   /* an import's file was one of lines, and no bundle */
    int32_t failed;    /* winners left out: not cleanly compiled, or a problem and GPU's second */
    int32_t baselines; /* what others' kernels take for these problems */
    int32_t unread;    /* of an export: left out, as their kernels' files were not read */
    /* Of an export and of fa_push(): */
    int32_t skipped; /* winners whose cubin is gone from the store or is another's: noted, left out */
} fa_bundle_info;

typedef struct fa_bundle_item {
    const fa_answer *answer; /* the bundle's, as it says of itself */
    const char *evidence;    /* a JSON object, with its "trials"; NULL: none */
} fa_bundle_item;

/* Checks a bundle wholly (hash, signature, every part, every cubin) and shows it; needs no store,
 * no GPU and no trust in its signer. One block for free(). */
FA_API int fa_bundle_inspect(const char *file, fa_bundle_item **ret_items, size_t *ret_count,
                             fa_bundle_info *ret_info, fa_diag *diag);

/* ---- export ---------------------------------------------------------------------------------*/
typedef struct fa_export_options {
    size_t size;       /* sizeof(fa_export_options) */
    const char *file;  /* written beside it, then renamed; then FILE.minisig */
    const char *key;   /* secret key file; NULL: this user's */
    bool no_signature; /* on purpose; an earlier FILE.minisig is removed */
    /* Which winners go in; NULL: all. */
    bool (*keep)(void *context, const fa_answer *answer);
    void *context;
    /* NULL, or a file of lines: its winners are compiled (unless the store has that cubin) and go in, in place of the
     * store's. Needs NVRTC and no GPU. */
    const char *lines;
    /* Called while lines are compiled; a non-zero return stops it: FA_ECANCELED. May be NULL. */
    int (*progress)(void *context, const char *what, int32_t done, int32_t all);
} fa_export_options;

/* The store's winners with their cubins and evidence: the funnel, the times of up to 128 measured
 * trials and the samples of the 8 best. The same store content gives the same bytes. */
FA_API int fa_export(fa_tuner *tuner, const fa_export_options *options, fa_bundle_info *ret_info,
                     fa_diag *diag);

/* ---- import ---------------------------------------------------------------------------------*/
/* A file is a bundle, or lines: winners as JSON, one a line, in the form in which `fa-tune show --json` has them in its
 * "winners" (of a bundle with the trials that were measured beside them), or such a document; and lines of baselines.
 * Their kernels are compiled here, from this library's templates, so that lines need no signature; each is proved before
 * it is launched. A line whose family's template has changed is compiled all the same, and its winner lowered to
 * predicted; one measured under another NVRTC keeps its time. */
typedef struct fa_import_options {
    size_t size; /* sizeof(fa_import_options) */
    const char *file;
    /* On purpose; a bundle with a signature is held to it all the same. Its winners count as not
     * proved, whatever they say: fa_get_best_kernel proves them before it launches them. */
    bool allow_unsigned;
    bool dry_run; /* say what would change */
    /* Of lines; NULL: all are taken, and nobody is told. As in fa_export_options. */
    bool (*keep)(void *context, const fa_answer *answer);
    int (*progress)(void *context, const char *what, int32_t done, int32_t all);
    void *context;
} fa_import_options;

/* All or nothing, in one transaction; what is refused leaves the store's bytes as they were.
 * Where the store has a winner for the same problem and GPU, the better origin stays (measured,
 * measured-same-silicon, imported, transferred, predicted). Of two with the same origin: the narrower
 * confidence interval relative to its median; then the newer driver it was proved under; then the later
 * one; and when all are equal, the stored one. A stored winner without its cubin does not count.
 * FA_EUNTRUSTED: not signed, or by nobody who is trusted. */
FA_API int fa_import(fa_tuner *tuner, const fa_import_options *options, fa_bundle_info *ret_info,
                     fa_diag *diag);

#endif
