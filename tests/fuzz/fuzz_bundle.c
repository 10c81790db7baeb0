/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundles. 'R' and a file; 'P' and changes to a file that is right, whose hash is made right again afterwards: without
 * that nothing would come past it; 'S' and the text of a signature or a key.
 */
#include "fuzz.h"

#include "bundle.h"
#include "buf.h"
#include "store.h"

long fuzz_taken;

enum { BUNDLE_MAX = 1 << 16 };
static uint8_t right[BUNDLE_MAX];
static size_t right_size;

static void make_right(void)
{
    static const char cubin[] = "no cubin, but bytes";
    fa_store *part = NULL;
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
    FUZZ_CHECK(fa_portable_new(&part, &diag) == 0);
    for (int i = 0; i < 3; i++) {
        winner.scope.problem.seq_q = 128 << i;
        if (fa_bundle_add(part, &winner, cubin, sizeof cubin, &diag) != 0)
            fprintf(stderr, "%s\n", diag.text);
    }
    char path[] = "/tmp/fa-tune-fuzz-XXXXXX";
    int fd = mkstemp(path);
    FUZZ_CHECK(fd >= 0);
    if (fa_bundle_write(part, path, NULL, NULL, &diag) != 0) {
        fprintf(stderr, "%s\n", diag.text);
        abort();
    }
    fa_store_close(&part);
    close(fd);
    FILE *file = fopen(path, "rb");
    FUZZ_CHECK(file != NULL);
    right_size = fread(right, 1, sizeof right, file);
    fclose(file);
    unlink(path);
    FUZZ_CHECK(right_size > FA_BUNDLE_TRAILER && right_size < sizeof right);
}

static void mend(uint8_t *bytes, size_t size)
{
    fa_hash_raw(bytes, size - FA_BUNDLE_TRAILER, bytes + size - FA_BUNDLE_TRAILER);
}

static int read_all(fa_bundle *bundle, fa_diag *diag)
{
    fa_winner_record *row = NULL;
    fa_cubin_record cubin = {0};
    size_t count = 0;
    int rc = fa_bundle_winners_like(bundle, &(fa_problem){.head_dim = 64}, &row, &count);
    for (size_t i = 0; i < count; i++)
        FUZZ_CHECK(row[i].entry[0] != 0);
    free(row);
    row = NULL;
    count = 0;
    rc = fa_bundle_winners(bundle, &row, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        fa_winner_record found = {0};
        fa_cubin_record same = {0};
        if ((rc = fa_bundle_cubin_of(bundle, &row[i], &cubin, diag)) != 0)
            break;
        fuzz_taken++;
        FUZZ_CHECK(strcmp(row[i].cubin_key, cubin.key) == 0 && cubin.size > 0);
        FUZZ_CHECK(fa_bundle_find(bundle, &row[i].scope, &found, &same, diag) == 0);
        FUZZ_CHECK(same.size == cubin.size && same.log == NULL);
        fa_winner_record_free(&found);
        fa_cubin_record_free(&same);
    }
    fa_cubin_record_free(&cubin);
    free(row);
    return rc;
}

static void read_file(const uint8_t *bytes, size_t size)
{
    fa_bundle *bundle = NULL;
    fa_diag diag = {{0}};
    int rc = fa_bundle_open(fuzz_file(bytes, size), false, &bundle, &diag);
    FUZZ_CHECK(rc == 0 || diag.text[0] != 0);
    if (rc == 0 && (rc = fa_bundle_read(bundle, &diag)) == 0)
        rc = read_all(bundle, &diag);
    FUZZ_CHECK(rc == 0 || diag.text[0] != 0);
    fa_bundle_close(&bundle);
}

static void parse(const uint8_t *bytes, size_t size)
{
    fa_public_key public;
    fa_secret_key secret;
    fa_signature signature;
    for (int parser = 0; parser < 4; parser++) {
        char *text = strndup((const char *)bytes, size);
        FUZZ_CHECK(text != NULL);
        if (parser == 0)
            fuzz_taken += fa_is_key(text);
        else if (parser == 1)
            fuzz_taken += fa_public_parse(text, &public);
        else if (parser == 2)
            fuzz_taken += fa_secret_parse(text, &secret);
        else if (fa_signature_parse(text, &signature)) {
            fuzz_taken++;
            memcpy(public.algorithm, "Ed", 2);
            memset(public.key, 9, sizeof public.key);
            FUZZ_CHECK(!fa_signature_holds(&signature, &public, bytes, size));
        }
        free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (right_size == 0)
        make_right();
    if (size > 0 && data[0] == 'R') {
        read_file(data + 1, size - 1);
    } else if (size > 0 && data[0] == 'P') {
        uint8_t *copy = malloc(right_size);
        FUZZ_CHECK(copy != NULL);
        memcpy(copy, right, right_size);
        fuzz_patch(copy, right_size, data + 1, size - 1);
        mend(copy, right_size);
        read_file(copy, right_size);
        free(copy);
    } else if (size > 0 && data[0] == 'S') {
        parse(data + 1, size - 1);
    }
    return 0;
}
