/* SPDX-License-Identifier: Apache-2.0
 *
 * Where this library or program itself lies, the files that belong to it, and its user's keys.
 *
 * Invariant: every answer is absolute, and the current folder has no part in it.
 */
#ifndef FA_BASE_OWN_PLACE_H
#define FA_BASE_OWN_PLACE_H

#include "fa_types.h"

#include <stddef.h>
#include <sys/stat.h>

/* The directory of the file that this code was loaded from, links resolved; "" where it cannot be told. */
void fa_own_directory(char *ret_path, size_t size);

/* The program or data `name` beside that file, or where it is installed; the path may name no file. */
void fa_own_file(const char *name, char *ret_path, size_t size);

/* `file` ("/key", "" for the folder) in the folder of this user's keys; FA_ENOTFOUND: HOME is not set;
 * FA_EINVAL: the path is too long. */
int fa_own_config(const char *file, char *ret_path, size_t size);

/* Files that are believed because of who can write them: keys, system bundles, stores. */
/* That this user or root owns what was seen at `path`, and nobody else can write it; else FA_ESTORE. `what` begins the
 * sentence ("system bundle"), `which` is what of it was seen ("the file"). */
int fa_owned_check(const struct stat *st, const char *path, const char *what, const char *which,
                   fa_diag *diag);
/* Opens a regular file for reading that nobody but its owner can write, in a directory of which the
 * same holds; owner of both is this user or root.
 * FA_ENOTFOUND, FA_ESTORE (somebody else could have written it), FA_EIO. */
int fa_owned_open(const char *path, const char *what, int *ret_fd, fa_diag *diag);

/* Reads a token, one word of `least` to room - 1 printable bytes, from a file of this user's or root's that has none of the
 * permissions `refused` (022: others can write). FA_EIO, FA_EUNTRUSTED, FA_EINVAL. */
int fa_own_token(const char *path, unsigned refused, size_t least, size_t room, char *ret_token,
                 fa_diag *diag);

#endif
