/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a bundle: parts are collected, sorted by key and laid out once. Nothing of the moment
 * (time, host, order of adding) goes in, so the same content gives the same bytes.
 */
#include "bundle_format.h"
#include "database.h"
#include "fa_bundle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct part {
    unsigned char key[FA_HASH_BYTES];
    unsigned char cubin[FA_HASH_BYTES]; /* a winner's */
    void *bytes;
    size_t size;
};

struct parts {
    struct part *part;
    size_t count, capacity;
};

struct fa_bundle_writer {
    struct parts winners, cubins;
};

int fa_bundle_writer_new(fa_bundle_writer **ret_writer, fa_diag *diag)
{
    *ret_writer = calloc(1, sizeof **ret_writer);
    return *ret_writer != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for a bundle");
}

static void free_parts(struct parts *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        free(parts->part[i].bytes);
    free(parts->part);
}

void fa_bundle_writer_free(fa_bundle_writer **writer)
{
    if (writer == NULL || *writer == NULL)
        return;
    free_parts(&(*writer)->winners);
    free_parts(&(*writer)->cubins);
    free(*writer);
    *writer = NULL;
}

static struct part *find_part(const struct parts *parts, const unsigned char *key)
{
    for (size_t i = 0; i < parts->count; i++)
        if (memcmp(parts->part[i].key, key, FA_HASH_BYTES) == 0)
            return &parts->part[i];
    return NULL;
}

static struct part *add_part(struct parts *parts, const unsigned char *key, const void *bytes,
                             size_t size)
{
    struct part *grown = fa_grow(parts->part, &parts->capacity, parts->count, sizeof *grown);
    if (grown == NULL)
        return NULL;
    parts->part = grown;
    struct part *part = &parts->part[parts->count];
    *part = (struct part){.bytes = malloc(size), .size = size};
    if (part->bytes == NULL)
        return NULL;
    memcpy(part->key, key, FA_HASH_BYTES);
    memcpy(part->bytes, bytes, size);
    parts->count++;
    return part;
}

/* An allocation that failed meanwhile leaves a member out, and cJSON does not tell: printed once more,
 * the text is another. */
static int print_winner(const fa_winner_record *winner, fa_buf *out, fa_diag *diag)
{
    fa_buf again = {0};
    int rc = fa_bundle_winner_print(winner, out, diag);
    if (rc == 0)
        rc = fa_bundle_winner_print(winner, &again, diag);
    if (rc == 0 && (again.size != out->size || memcmp(again.data, out->data, out->size) != 0))
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a winner");
    fa_buf_free(&again);
    return rc;
}

static int add_winner(fa_bundle_writer *writer, const fa_winner_record *winner,
                      const unsigned char *cubin, fa_diag *diag)
{
    char hex[FA_HASH_HEX];
    unsigned char key[FA_HASH_BYTES];
    fa_buf text = {0};
    fa_scope_key(&winner->scope, hex);
    fa_key_parse(hex, key);
    if (find_part(&writer->winners, key) != NULL)
        return fa_fail(diag, FA_EINVAL, "two winners of one problem and GPU in a bundle");
    if (writer->winners.count == FA_BUNDLE_WINNERS_MAX)
        return fa_fail(diag, FA_EINVAL, "a bundle holds at most %d winners: export fewer",
                       FA_BUNDLE_WINNERS_MAX);
    int rc = print_winner(winner, &text, diag);
    /* Refuses what a reader would refuse, while the caller can still mend it. */
    fa_winner_record read = {0};
    if (rc == 0)
        rc = fa_bundle_winner_parse(text.data, text.size, &read, diag);
    fa_winner_record_free(&read);
    struct part *part = NULL;
    if (rc == 0 && (part = add_part(&writer->winners, key, text.data, text.size)) == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a bundle");
    if (rc == 0)
        memcpy(part->cubin, cubin, FA_HASH_BYTES);
    fa_buf_free(&text);
    return rc;
}

int fa_bundle_add(fa_bundle_writer *writer, const fa_winner_record *winner, const void *cubin,
                  size_t cubin_size, fa_diag *diag)
{
    unsigned char key[FA_HASH_BYTES];
    if (!fa_key_parse(winner->cubin_key, key))
        return fa_fail(diag, FA_EINVAL, "a winner's cubin key \"%s\" is no SHA-256",
                       winner->cubin_key);
    int rc = 0;
    if (find_part(&writer->cubins, key) == NULL) {
        if (cubin == NULL || cubin_size == 0 || cubin_size > FA_STORE_CUBIN_MAX)
            rc = fa_fail(diag, FA_EINVAL, "cubin %s has %zu bytes: 1 to %d can be bundled",
                         winner->cubin_key, cubin_size, FA_STORE_CUBIN_MAX);
        else if (add_part(&writer->cubins, key, cubin, cubin_size) == NULL)
            rc = fa_fail(diag, FA_ENOMEM, "out of memory for a bundle");
    }
    return rc != 0 ? rc : add_winner(writer, winner, key, diag);
}

/* ---- laying out -----------------------------------------------------------------------------*/
static int by_key(const void *a, const void *b)
{
    return memcmp(((const struct part *)a)->key, ((const struct part *)b)->key, FA_HASH_BYTES);
}

static void put_row(fa_buf *out, const struct part *part, uint64_t offset, size_t cubin)
{
    unsigned char row[FA_BUNDLE_ROW];
    memcpy(row, part->key, FA_HASH_BYTES);
    fa_hash_raw(part->bytes, part->size, row + 32);
    fa_put_le(row + 64, offset, 8);
    fa_put_le(row + 72, part->size, 4);
    fa_put_le(row + 76, cubin, 4);
    fa_buf_append(out, row, sizeof row);
}

static void put_header(fa_buf *out, const fa_bundle_head *head)
{
    unsigned char header[FA_BUNDLE_HEADER] = {0};
    memcpy(header, FA_BUNDLE_MAGIC, 8);
    fa_put_le(header + 8, head->version, 4);
    fa_put_le(header + 12, head->is_signed ? FA_BUNDLE_SIGNED : 0, 4);
    fa_put_le(header + 16, head->bytes, 8);
    fa_put_le(header + 24, (uint64_t)head->winners, 4);
    fa_put_le(header + 28, (uint64_t)head->cubins, 4);
    fa_buf_append(out, header, sizeof header);
}

static void put_seal(fa_buf *out, const fa_bundle_head *head, const fa_sign_secret *secret)
{
    unsigned char seal[FA_BUNDLE_SEAL] = {0}, text[FA_BUNDLE_SIGNED_BYTES];
    fa_hash_raw(out->data, out->size, seal);
    if (secret != NULL) {
        memcpy(text, FA_BUNDLE_SIGNED_TEXT, sizeof text - FA_HASH_BYTES);
        memcpy(text + sizeof text - FA_HASH_BYTES, seal, FA_HASH_BYTES);
        memcpy(seal + 32, head->key, FA_KEY_BYTES);
        fa_sign(secret, text, sizeof text, seal + 64);
    }
    fa_buf_append(out, seal, sizeof seal);
}

static void lay_out(fa_bundle_writer *writer, fa_bundle_head *head, const fa_sign_secret *secret,
                    fa_buf *out)
{
    struct parts *both[] = {&writer->winners, &writer->cubins};
    size_t rows = writer->winners.count + writer->cubins.count;
    uint64_t offset = FA_BUNDLE_HEADER + rows * FA_BUNDLE_ROW + FA_BUNDLE_SEAL;
    head->bytes = offset;
    for (int k = 0; k < 2; k++) {
        qsort(both[k]->part, both[k]->count, sizeof *both[k]->part, by_key);
        for (size_t i = 0; i < both[k]->count; i++)
            head->bytes += both[k]->part[i].size;
    }
    put_header(out, head);
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < both[k]->count; i++) {
            const struct part *part = &both[k]->part[i];
            size_t cubin =
                k == 0 ? (size_t)(find_part(&writer->cubins, part->cubin) - writer->cubins.part)
                       : 0;
            put_row(out, part, offset, cubin);
            offset += part->size;
        }
    }
    put_seal(out, head, secret);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < both[k]->count; i++)
            fa_buf_append(out, both[k]->part[i].bytes, both[k]->part[i].size);
}

int fa_bundle_write(fa_bundle_writer *writer, const char *path, const fa_sign_secret *secret,
                    fa_bundle_head *ret_head, fa_diag *diag)
{
    fa_bundle_head head = {.version = FA_BUNDLE_VERSION,
                           .winners = (int32_t)writer->winners.count,
                           .cubins = (int32_t)writer->cubins.count,
                           .is_signed = secret != NULL};
    fa_buf out = {0};
    if (writer->winners.count == 0)
        return fa_fail(diag, FA_ENOTFOUND, "no winner to put into %s", path);
    if (secret != NULL)
        fa_sign_public(secret, head.key);
    lay_out(writer, &head, secret, &out);
    int rc = out.failed ? fa_fail(diag, FA_ENOMEM, "out of memory for a bundle")
             : head.bytes > FA_BUNDLE_BYTES_MAX
                 ? fa_fail(diag, FA_EINVAL, "the bundle would have %llu bytes: %d is the most",
                           (unsigned long long)head.bytes, FA_BUNDLE_BYTES_MAX)
                 : fa_output_write(path, out.data, out.size, diag);
    fa_buf_free(&out);
    if (rc == 0 && ret_head != NULL)
        *ret_head = head;
    return rc;
}
