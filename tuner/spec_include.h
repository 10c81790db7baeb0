/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that CUDA C++ of a specification includes. The compiler opens none: they are read here, before anything is
 * compiled, and go to it with the source, so that one hash covers them all.
 */
#ifndef FA_TUNER_SPEC_INCLUDE_H
#define FA_TUNER_SPEC_INCLUDE_H

#include "buf.h"
#include "hash.h"
#include "manifest.h"

#include <cJSON.h>

typedef struct fa_includes fa_includes;

/* `folder`, with a slash at its end, is the specification's, where files are looked for, and in those of `list`, which count
 * from it; NULL: neither, and a source may include the vocabulary and CUDA's own headers alone. */
int fa_includes_open(const char *where, const char *folder, const cJSON *list,
                     fa_includes **ret_includes, fa_diag *diag);
void fa_includes_close(fa_includes **includes); /* NULL is allowed */

/* Reads the files that the text includes, and those that they do, whatever the preprocessor will leave out. *ret_text is the
 * text, where it names files as the compiler will know them (free()). What is not found is left to the compiler. */
int fa_includes_read(fa_includes *includes, const char *text, char **ret_text, fa_diag *diag);

/* What was read so far: the author's files one behind the other, for a look; all of it; over all of it. */
int fa_includes_own(const fa_includes *includes, fa_buf *ret_text);
const fa_template_text *fa_includes_files(const fa_includes *includes, int *ret_count);
void fa_includes_hash(const fa_includes *includes, char ret_hash[FA_HASH_HEX]);

#endif
