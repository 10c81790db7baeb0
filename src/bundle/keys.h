/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys for the engine's own files; callers see fa_bundle.h.
 */
#ifndef FA_BUNDLE_KEYS_H
#define FA_BUNDLE_KEYS_H

#include "fa_bundle.h"
#include "sign.h"

#define FA_KEY_MARK "fa-tune-secret-key-1 " /* how the file of a secret key begins */
#define FA_TRUST_FILE "/trusted-keys"       /* in the folder of keys */

/* file NULL: this user's. FA_ENOTFOUND says how to make one. */
int fa_keys_secret(const char *file, fa_sign_secret *ret_secret, fa_diag *diag);
/* 0 and the name by which a key is trusted ("" for none), or FA_ENOTFOUND; other codes say why the
 * list cannot be believed. */
int fa_keys_trusted(const unsigned char key[FA_KEY_BYTES], char ret_name[FA_KEY_NAME_MAX],
                    fa_diag *diag);

#endif
