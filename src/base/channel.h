/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between the engine and its worker processes: a JSON object and an optional blob, framed
 * with their lengths over a stream socket. Both ends treat the other as hostile: lengths are
 * bounded before anything is allocated, JSON is checked before it is used.
 *
 * Frame: "FAM1", u32 JSON bytes, u64 blob bytes (little endian), JSON, blob.
 */
#ifndef FA_BASE_CHANNEL_H
#define FA_BASE_CHANNEL_H

#include "buf.h"
#include "fa_types.h"

#include <cJSON.h>

enum { FA_FRAME_HEADER = 16, FA_FRAME_JSON_MAX = 8 << 20, FA_FRAME_BLOB_MAX = 64 << 20 };

typedef struct fa_message {
    cJSON *json;
    void *blob; /* NULL when there is none */
    size_t blob_size;
} fa_message;

void fa_message_free(fa_message *message); /* NULL and half-built ones are allowed */

/* Appends one frame to buf. */
int fa_message_encode(const cJSON *json, const void *blob, size_t blob_size, fa_buf *buf,
                      fa_diag *diag);
/* Takes one whole frame from the front of bytes. *ret_used is 0 when more bytes are needed. */
int fa_message_decode(const void *bytes, size_t size, fa_message *ret_message, size_t *ret_used,
                      fa_diag *diag);

/* Blocking forms, for the worker's end. FA_EIO at the end of the stream. */
int fa_message_write(int fd, const cJSON *json, const void *blob, size_t blob_size, fa_diag *diag);
int fa_message_read(int fd, fa_message *ret_message, fa_diag *diag);

#endif
