/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include "error.h"
#include "json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char magic[4] = {'F', 'A', 'M', '1'};

void fa_message_free(fa_message *message)
{
    if (message == NULL)
        return;
    cJSON_Delete(message->json);
    free(message->blob);
    *message = (fa_message){0};
}

static void put_le(unsigned char *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get_le(const unsigned char *in, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

int fa_message_encode(const cJSON *json, const void *blob, size_t blob_size, fa_buf *buf,
                      fa_diag *diag)
{
    char *text = fa_json_print(json);
    if (text == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory while writing a message");
    size_t length = strlen(text);
    if (length > FA_FRAME_JSON_MAX || blob_size > FA_FRAME_BLOB_MAX) {
        free(text);
        return fa_fail(diag, FA_EINVAL, "message of %zu + %zu bytes is too large", length,
                       blob_size);
    }
    unsigned char header[FA_FRAME_HEADER];
    memcpy(header, magic, sizeof magic);
    put_le(header + 4, length, 4);
    put_le(header + 8, blob_size, 8);
    fa_buf_append(buf, header, sizeof header);
    fa_buf_append(buf, text, length);
    fa_buf_append(buf, blob, blob_size);
    free(text);
    return buf->failed ? fa_fail(diag, FA_ENOMEM, "out of memory while writing a message") : 0;
}

static int decode_header(const unsigned char *header, size_t *ret_json, size_t *ret_blob,
                         fa_diag *diag)
{
    uint64_t json = get_le(header + 4, 4), blob = get_le(header + 8, 8);
    if (memcmp(header, magic, sizeof magic) != 0)
        return fa_fail(diag, FA_ECORRUPT, "message does not begin with its mark");
    if (json > FA_FRAME_JSON_MAX || blob > FA_FRAME_BLOB_MAX)
        return fa_fail(diag, FA_ECORRUPT, "message announces %llu + %llu bytes: too large",
                       (unsigned long long)json, (unsigned long long)blob);
    *ret_json = (size_t)json;
    *ret_blob = (size_t)blob;
    return 0;
}

static int decode_body(const char *body, size_t json_size, size_t blob_size,
                       fa_message *ret_message, fa_diag *diag)
{
    fa_message message = {0};
    int rc = fa_json_parse(body, json_size, "message", &message.json, diag);
    if (rc != 0)
        return rc;
    if (!cJSON_IsObject(message.json)) {
        fa_message_free(&message);
        return fa_fail(diag, FA_ECORRUPT, "message is not a JSON object");
    }
    if (blob_size != 0) {
        message.blob = malloc(blob_size);
        if (message.blob == NULL) {
            fa_message_free(&message);
            return fa_fail(diag, FA_ENOMEM, "out of memory for a message of %zu bytes", blob_size);
        }
        memcpy(message.blob, body + json_size, blob_size);
        message.blob_size = blob_size;
    }
    *ret_message = message;
    return 0;
}

int fa_message_decode(const void *bytes, size_t size, fa_message *ret_message, size_t *ret_used,
                      fa_diag *diag)
{
    size_t json_size, blob_size;
    *ret_used = 0;
    if (size < FA_FRAME_HEADER)
        return 0;
    int rc = decode_header(bytes, &json_size, &blob_size, diag);
    if (rc != 0)
        return rc;
    size_t whole = FA_FRAME_HEADER + json_size + blob_size;
    if (size < whole)
        return 0;
    rc =
        decode_body((const char *)bytes + FA_FRAME_HEADER, json_size, blob_size, ret_message, diag);
    if (rc == 0)
        *ret_used = whole;
    return rc;
}

int fa_message_write(int fd, const cJSON *json, const void *blob, size_t blob_size, fa_diag *diag)
{
    fa_buf buf = {0};
    int rc = fa_message_encode(json, blob, blob_size, &buf, diag);
    for (size_t done = 0; rc == 0 && done < buf.size;) {
        ssize_t n = send(fd, buf.data + done, buf.size - done, MSG_NOSIGNAL);
        if (n > 0)
            done += (size_t)n;
        else if (errno != EINTR)
            rc = fa_fail(diag, FA_EIO, "writing a message: %s", strerror(errno));
    }
    fa_buf_free(&buf);
    return rc;
}

static int read_exactly(int fd, void *bytes, size_t size, fa_diag *diag)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = read(fd, (char *)bytes + done, size - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            return fa_fail(diag, FA_EIO, "the other end closed the channel");
        else if (errno != EINTR)
            return fa_fail(diag, FA_EIO, "reading a message: %s", strerror(errno));
    }
    return 0;
}

int fa_message_read(int fd, fa_message *ret_message, fa_diag *diag)
{
    unsigned char header[FA_FRAME_HEADER];
    size_t json_size, blob_size;
    int rc = read_exactly(fd, header, sizeof header, diag);
    if (rc == 0)
        rc = decode_header(header, &json_size, &blob_size, diag);
    if (rc != 0)
        return rc;
    char *body = malloc(json_size + blob_size + 1);
    if (body == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a message");
    rc = read_exactly(fd, body, json_size + blob_size, diag);
    if (rc == 0)
        rc = decode_body(body, json_size, blob_size, ret_message, diag);
    free(body);
    return rc;
}
