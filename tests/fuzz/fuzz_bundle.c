/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundles. 'W' and a winner's text; 'R' and a file; 'P' and changes to a file that is right, whose
 * hashes are made right again afterwards: without that nothing would come past the first of them.
 */
#include "fuzz.h"

#include "bundle.h"
#include "bundle_format.h"
#include "hash.h"

long fuzz_taken;

enum { BUNDLE_MAX = 1 << 16 };
static uint8_t right[BUNDLE_MAX];
static size_t right_size;

static void make_right(void)
{
    static const char cubin[] = "no cubin, but bytes";
    fa_bundle_writer *writer = NULL;
    fa_diag diag;
    fa_winner_record winner = {.origin = FA_ORIGIN_MEASURED,
                               .entry = "attn_fwd",
                               .gpu_name = "L4",
                               .nvrtc = "13.0",
                               .driver_version = 13000,
                               .unix_time = 1,
                               .evidence = "{}"};
    winner.scope.problem = (fa_problem){
        .head_dim = 64, .batch = 1, .heads_q = 2, .heads_kv = 2, .seq_q = 128, .seq_k = 128};
    snprintf(winner.scope.silicon, sizeof winner.scope.silicon, "sm=89");
    snprintf(winner.scope.policy, sizeof winner.scope.policy, "measure-1");
    memset(winner.scope.templates, 'a', FA_HASH_HEX - 1);
    memset(winner.cubin_key, 'b', FA_HASH_HEX - 1);
    winner.trial = (fa_trial){.status = FA_STATUS_MEASURED,
                              .threads = 128,
                              .grid = {1, 1, 1},
                              .median_us = 2,
                              .low_us = 1,
                              .high_us = 3,
                              .sample_count = 9};
    snprintf(winner.trial.config.family, FA_NAME_MAX, "attn_fwd_sm80");
    FUZZ_CHECK(fa_bundle_writer_new(&writer, &diag) == 0);
    for (int i = 0; i < 3; i++) {
        winner.scope.problem.seq_q = 128 << i;
        if (fa_bundle_add(writer, &winner, cubin, sizeof cubin, &diag) != 0)
            fprintf(stderr, "%s\n", diag.text);
    }
    char path[] = "/tmp/fa-tune-fuzz-XXXXXX";
    int fd = mkstemp(path);
    FUZZ_CHECK(fd >= 0);
    if (fa_bundle_write(writer, path, NULL, &(fa_bundle_head){0}, &diag) != 0) {
        fprintf(stderr, "%s\n", diag.text);
        abort();
    }
    fa_bundle_writer_free(&writer);
    close(fd);
    FILE *file = fopen(path, "rb");
    FUZZ_CHECK(file != NULL);
    right_size = fread(right, 1, sizeof right, file);
    fclose(file);
    unlink(path);
    FUZZ_CHECK(right_size > FA_BUNDLE_HEADER && right_size < sizeof right);
}

/* Parts, then rows, then the front: as far as the changed numbers leave them inside. */
static void mend(uint8_t *bytes, size_t size)
{
    uint64_t rows = fa_get_le(bytes + 24, 4) + fa_get_le(bytes + 28, 4);
    if (rows > (size - FA_BUNDLE_HEADER) / FA_BUNDLE_ROW)
        return;
    size_t front = FA_BUNDLE_HEADER + (size_t)rows * FA_BUNDLE_ROW;
    for (size_t at = FA_BUNDLE_HEADER; at < front; at += FA_BUNDLE_ROW) {
        uint64_t offset = fa_get_le(bytes + at + 64, 8), part = fa_get_le(bytes + at + 72, 4);
        if (offset <= size && part <= size - offset)
            fa_hash_raw(bytes + offset, (size_t)part, bytes + at + 32);
    }
    if (size - front >= FA_BUNDLE_SEAL)
        fa_hash_raw(bytes, front, bytes + front);
}

static void read_file(const uint8_t *bytes, size_t size)
{
    fa_bundle *bundle = NULL;
    fa_diag diag = {{0}};
    int rc = fa_bundle_open(fuzz_file(bytes, size), false, &bundle, &diag);
    FUZZ_CHECK(rc == 0 || diag.text[0] != 0);
    if (rc == 0 && fa_bundle_read_index(bundle, &diag) == 0) {
        const fa_bundle_head *head = fa_bundle_get_head(bundle);
        fa_bundle_check_parts(bundle, &diag);
        for (int32_t i = 0; i < head->winners; i++) {
            fa_winner_record winner = {0};
            int32_t cubin = -1;
            fa_bundle_may_be_like(bundle, i, &(fa_problem){.head_dim = 64});
            if (fa_bundle_winner(bundle, i, &winner, &cubin, &diag) == 0) {
                fuzz_taken++;
                FUZZ_CHECK(cubin >= 0 && cubin < head->cubins);
                FUZZ_CHECK(fa_bundle_find(bundle, &winner.scope, &cubin) == 0 && cubin == i);
                fa_winner_record_free(&winner);
            }
        }
        for (int32_t i = 0; i < head->cubins; i++) {
            void *cubin = NULL;
            size_t cubin_size = 0;
            if (fa_bundle_cubin(bundle, i, &cubin, &cubin_size, &diag) == 0)
                free(cubin);
        }
    }
    fa_bundle_close(&bundle);
}

static void read_winner(const char *text, size_t size)
{
    fa_winner_record winner = {0}, again = {0};
    fa_buf first = {0}, second = {0};
    fa_diag diag = {{0}};
    int rc = fa_bundle_winner_parse(text, size, &winner, &diag);
    FUZZ_CHECK(rc == 0 || diag.text[0] != 0);
    if (rc != 0)
        return;
    fuzz_taken++;
    FUZZ_CHECK(fa_bundle_winner_print(&winner, &first, &diag) == 0);
    FUZZ_CHECK(fa_bundle_winner_parse(first.data, first.size, &again, &diag) == 0);
    FUZZ_CHECK(fa_bundle_winner_print(&again, &second, &diag) == 0);
    FUZZ_CHECK(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    fa_winner_record_free(&winner);
    fa_winner_record_free(&again);
    fa_buf_free(&first);
    fa_buf_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (right_size == 0)
        make_right();
    if (size > 0 && data[0] == 'W') {
        read_winner((const char *)data + 1, size - 1);
    } else if (size > 0 && data[0] == 'R') {
        read_file(data + 1, size - 1);
    } else if (size > 0 && data[0] == 'P') {
        uint8_t *copy = malloc(right_size);
        FUZZ_CHECK(copy != NULL);
        memcpy(copy, right, right_size);
        fuzz_patch(copy, right_size, data + 1, size - 1);
        mend(copy, right_size);
        read_file(copy, right_size);
        free(copy);
    }
    return 0;
}
