/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are believed because of who can write them: keys, lists of keys, system bundles.
 */
#ifndef FA_BASE_OWNED_H
#define FA_BASE_OWNED_H

#include "fa_types.h"

/* Opens a regular file for reading that nobody but its owner can write, in a directory of which the
 * same holds; owner of both is this user or root. `what` begins the sentence ("system bundle").
 * FA_ENOTFOUND, FA_ESTORE (somebody else could have written it), FA_EIO. */
int fa_owned_open(const char *path, const char *what, int *ret_fd, fa_diag *diag);

#endif
