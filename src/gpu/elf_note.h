/* SPDX-License-Identifier: Apache-2.0
 *
 * The GNU build-id of a shared library of this machine's architecture, read without loading it.
 */
#ifndef FA_GPU_ELF_NOTE_H
#define FA_GPU_ELF_NOTE_H

#include "fa_types.h"
#include "hash.h"

/* Build-id as lower-case hex. FA_ENOTFOUND: a good ELF file without a build-id of 8 to 32 bytes (no
 * sentence); FA_ENONVRTC: unreadable, not ELF, or for another architecture. */
int fa_elf_build_id(const char *path, char ret_hex[FA_HASH_HEX], fa_diag *diag);

#endif
