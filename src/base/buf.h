/* SPDX-License-Identifier: Apache-2.0
 *
 * A growable byte buffer that is always NUL-terminated, so that it serves for text too; arrays; files, those that belong to
 * the library among them; hashes. An out-of-memory sets `failed` and turns later appends into no-ops: check once, at the end.
 */
#ifndef FA_BASE_BUF_H
#define FA_BASE_BUF_H

#include "fa_types.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stat;

typedef struct fa_buf {
    char *data; /* NULL while empty */
    size_t size, capacity;
    bool failed;
} fa_buf;

void fa_buf_append(fa_buf *buf, const void *bytes, size_t size);
void fa_buf_text(fa_buf *buf, const char *text);
void fa_buf_printf(fa_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool fa_is_word(char c);        /* as in names: a letter of ASCII, a digit or _ */
void fa_buf_clear(fa_buf *buf); /* keeps the memory */
void fa_buf_free(fa_buf *buf);  /* NULL is allowed; leaves an empty buffer */

/* Reads a whole regular file of at most `limit` bytes; 0, FA_EIO, FA_ENOTFOUND, FA_ENOMEM or
 * FA_EINVAL (too large or not a regular file). On failure buf is empty. */
int fa_buf_read_file(fa_buf *buf, const char *path, size_t limit);
/* The same; what is wrong is said as a sentence without the file's name. */
int fa_input_read(fa_buf *buf, const char *path, size_t limit, fa_diag *diag);
int fa_buf_read_fd(fa_buf *buf, int fd, size_t limit); /* from an open file, which stays open */

/* Reads `size` bytes of a file from `at` on; FA_EIO, with errno, which is 0 where the file is too short. */
int fa_read_at(int fd, void *ret_bytes, size_t size, uint64_t at);
/* Writes them all where the file stands; FA_EIO, with errno. */
int fa_write_all(int fd, const void *bytes, size_t size);

/* Of a file's path: "." of a name alone, "/" of what lies there. */
void fa_directory_of(const char *path, char ret_directory[PATH_MAX]);

/* Appends a copy of `item`, of `size` bytes, to the array at whose pointer `ret_items` points, as in
 * fa_append(&list->row, &list->count, &list->capacity, &row, sizeof row). FA_ENOMEM leaves all as it was. */
int fa_append(void *ret_items, size_t *count, size_t *capacity, const void *item, size_t size);

/* Writes a file under another name beside `path`, syncs it and gives it its name: whoever reads sees
 * the old file or the whole new one, also after a power cut. mode: less the umask. Returns 0 or an errno. */
int fa_replace_file(const char *path, const void *bytes, size_t size, unsigned mode);

/* ---- arrays that a call returns --------------------------------------------------------------*/
/* Records, and all that they point to, in one block: free() frees it. NULL where there are none. A list is such an
 * array in the making; its failure for want of memory is told at the end. */
typedef struct fa_list {
    fa_buf records, kept;
    size_t count;
} fa_list;
void fa_list_add(fa_list *list, const void *record, size_t size);
/* A copy, and what a record has as its pointer to that until the end; NULL stays NULL. */
const void *fa_list_keep(fa_list *list, const void *bytes, size_t size);
const char *fa_list_keep_text(fa_list *list, const char *text);
/* Frees the list. `pointers`: where in a record what fa_list_keep() gave stands, SIZE_MAX behind the last; NULL: nowhere.
 * rc other than 0 is returned. */
int fa_list_end(fa_list *list, int rc, const size_t *pointers, void *ret_rows, size_t *ret_count,
                fa_diag *diag);

/* ---- where this library or program itself lies, the files that belong to it, and its user's keys -----------------*/
/* Every answer is absolute, and the current folder has no part in it. */
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

/* ---- hashes: libsodium's BLAKE2b of 32 bytes, of keys, blobs and files ---------------------------*/
/* Workload: a cubin of some 50 KiB on the way of a new process to its first kernel, and the source of every config of a
 * tune. libsodium's BLAKE2b takes a third of the time of its SHA-256. */
enum { FA_HASH_HEX = 65, FA_HASH_BYTES = 32 }; /* 64 hex digits and a NUL */

typedef struct fa_hash {
    _Alignas(64) unsigned char state[384];
} fa_hash;

void fa_hash_init(fa_hash *hash);
/* Parts are length-prefixed, so that moving a byte between two parts changes the hash. Here and below `bytes` may be NULL
 * where size is 0. */
void fa_hash_part(fa_hash *hash, const void *bytes, size_t size);
void fa_hash_text(fa_hash *hash, const char *text);
void fa_hash_final(fa_hash *hash, char ret_hex[FA_HASH_HEX]);

/* The plain hash of some bytes. */
void fa_hash_bytes(const void *bytes, size_t size, char ret_hex[FA_HASH_HEX]);
/* The same, as bytes. */
void fa_hash_raw(const void *bytes, size_t size, unsigned char ret_digest[FA_HASH_BYTES]);

/* As other programs know a cubin. */
void fa_sha256(const void *bytes, size_t size, char ret_hex[FA_HASH_HEX]);

/* ---- numbers that are drawn ------------------------------------------------------------------*/
/* The i-th number of the stream `seed` by splitmix64 (Steele, Lea, Flood 2014): what proofs and races draw is the same for
 * the same seed, on the host and on a device. */
uint64_t fa_random(uint64_t seed, uint64_t i);

#endif
