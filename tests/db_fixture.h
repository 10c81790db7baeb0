/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the store share: a directory of their own, records to put into it, and ways to
 * compare what comes back. Records are made from a number, so that another process can make the
 * same one again and compare.
 */
#ifndef FA_TESTS_DB_FIXTURE_H
#define FA_TESTS_DB_FIXTURE_H

#include "check.h"

#include "store.h"
#include "buf.h"
#include "error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* With DB_ON_POSTGRES the store of each test is a schema of a server, and db_path its address. */
#ifdef DB_ON_POSTGRES
#include "pg_fixture.h"
#define DB_BYTES(hex) "'\\x" hex "'::bytea"
#define DB_REPEAT(times) "repeat('x', " #times ")"
#define DB_INFINITY "'infinity'"
enum { DB_PATH_MAX = 700 };
#else
#define DB_BYTES(hex) "x'" hex "'"
#define DB_REPEAT(times) "printf('%." #times "c', 'x')"
#define DB_INFINITY "9e999"
enum { DB_PATH_MAX = 300 };
#endif

enum { DB_CUBIN_SIZE = 40000, DB_SAMPLES = 20 };

/* ---- a directory of one test ----------------------------------------------------------------*/
static char db_directory[CHECK_FOLDER], db_path[DB_PATH_MAX];

/* How many entries of the test's directory begin with the prefix. */
static inline int db_count_files(const char *prefix)
{
    DIR *directory = opendir(db_directory);
    struct dirent *entry;
    int count = 0;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    if (directory != NULL)
        closedir(directory);
    return count;
}

static fa_diag note;       /* of the test that runs */
static fa_store *store;    /* the same, of DB_STORE_TEST */
static void (*db_body)(void);

static inline fa_store *db_open(fa_diag *ret_diag)
{
    fa_store *opened = NULL;
    return fa_store_open(db_path, FA_STORE_READ_WRITE, NULL, &opened, NULL, ret_diag) == 0 ? opened
                                                                                           : NULL;
}

/* Each test in a fresh directory; with DB_STORE_TEST the store there is open while it runs. */
static inline void db_within(void (*test)(void))
{
#ifdef DB_ON_POSTGRES
    if (pg_ready() && pg_new_schema(db_path, sizeof db_path))
        test();
    else
        pg_without();
#else
    check_make_folder(db_directory, NULL);
    snprintf(db_path, sizeof db_path, "%s/store.db", db_directory);
    test();
    check_remove_folder(db_directory);
#endif
}

static inline void db_with_store(void)
{
    store = db_open(&diag);
    CHECK(store != NULL);
    db_body();
    fa_store_close(&store);
}

static inline void db_within_store(void (*test)(void))
{
    db_body = test;
    db_within(db_with_store);
}

#define DB_TEST(name) TEST_WITHIN(db_within, name)
#define DB_STORE_TEST(name) TEST_WITHIN(db_within_store, name)

static inline bool db_same_bytes(const char *path, const fa_buf *bytes)
{
    fa_buf now;
    bool same = fa_buf_read_file(&now, path, (size_t)1 << 30) == 0 && now.size == bytes->size &&
                memcmp(now.data, bytes->data, now.size) == 0;
    fa_buf_free(&now);
    return same;
}

/* ---- records --------------------------------------------------------------------------------*/
static inline uint32_t db_mix(uint32_t x)
{
    return (uint32_t)fa_random(x, 0);
}

static inline fa_scope db_scope(int32_t seq)
{
    fa_scope scope = {.problem = {.dtype = FA_BF16,
                                  .causal = FA_CAUSAL_BOTTOM_RIGHT,
                                  .layout = FA_BSHD,
                                  .head_dim = 128,
                                  .batch = 2,
                                  .heads_q = 8,
                                  .heads_kv = 2,
                                  .seq_q = seq,
                                  .seq_k = seq + 7,
                                  .want_lse = true}};
    strcpy(scope.silicon, "sm_89/58/101376/102400/50331648/192/2040");
    strcpy(scope.policy, "measure-1");
    fa_hash_bytes("templates", 9, scope.templates);
    return scope;
}

static inline fa_trial db_trial(uint32_t n)
{
    fa_trial trial = {.config = {.family = "attn_fwd_sm80",
                                 .count = 3,
                                 .tunable = {{"BLOCK_M", 128}, {"BLOCK_N", 64}, {"STAGES", 2}}},
                      .status = FA_STATUS_MEASURED,
                      .threads = 128,
                      .smem_bytes = 49152,
                      .registers = 168,
                      .blocks_per_sm = 2,
                      .grid = {4, 8, 4000000000u},
                      .compile_ms = 231.5,
                      .predicted_us = 41.25,
                      .median_us = 40.5,
                      .low_us = 40.25,
                      .high_us = 40.75,
                      .sample_count = DB_SAMPLES,
                      .max_error = 0.001,
                      .tolerance = 0.002};
    trial.config.tunable[1].value = (int32_t)n;
    return trial;
}

static inline fa_study_trial db_trial_record(uint32_t n, float samples[DB_SAMPLES])
{
    for (uint32_t i = 0; i < DB_SAMPLES; i++)
        samples[i] = (float)(db_mix(n * 64 + i) % 100000) / 16;
    fa_study_trial record = {.trial = db_trial(n),
                             .samples_us = samples,
                             .sample_count = DB_SAMPLES,
                             .environment = "{\"gpu\":\"L4\",\"driver\":13000}",
                             .clocks = "{\"sm_mhz\":2040}",
                             .seed = 0x8000000000000000u + n};
    fa_hash_bytes(&n, sizeof n, record.cubin_key);
    return record;
}

/* Bytes are the caller's: DB_CUBIN_SIZE of them. */
static inline fa_cubin_record db_cubin(uint32_t n, unsigned char *bytes)
{
    for (uint32_t i = 0; i < DB_CUBIN_SIZE; i++)
        bytes[i] = (unsigned char)(db_mix(n * 65537u + i / 4) >> (i % 4 * 8));
    fa_cubin_record record = {.entry = "attn_fwd",
                              .sm = 89,
                              .bytes = bytes,
                              .size = DB_CUBIN_SIZE,
                              .log = "ptxas info: nothing",
                              .compile_ms = 231.5};
    fa_hash_bytes(&n, sizeof n, record.key);
    return record;
}

static inline fa_winner_record db_winner(int32_t seq, uint32_t n, fa_origin origin)
{
    fa_winner_record winner = {.scope = db_scope(seq),
                               .origin = origin,
                               .trial = db_trial(n),
                               .entry = "attn_fwd",
                               .gpu_name = "L4",
                               .nvrtc = "NVRTC 13.0.48",
                               .driver_version = origin == FA_ORIGIN_PREDICTED ? 0 : 13000,
                               .evidence = "{\"space\":612}"};
    fa_hash_bytes(&n, sizeof n, winner.cubin_key);
    return winner;
}

/* Puts winner n of a scope with its cubin. */
static inline int db_put_winner(fa_store *store, int32_t seq, uint32_t n, fa_origin origin,
                                bool *ret_kept, fa_diag *diag)
{
    unsigned char *bytes = malloc(DB_CUBIN_SIZE);
    if (bytes == NULL)
        return FA_ENOMEM;
    fa_cubin_record cubin = db_cubin(n, bytes);
    fa_winner_record winner = db_winner(seq, n, origin);
    int rc = fa_store_winner_put(store, &winner, &cubin, false, ret_kept, diag);
    free(bytes);
    return rc;
}

/* Whether the scope's winner is n with the very bytes of n. */
static inline bool db_winner_is(fa_store *store, int32_t seq, uint32_t n, fa_diag *diag)
{
    FA_ENDS(fa_free_at) unsigned char *bytes = malloc(DB_CUBIN_SIZE);
    fa_scope scope = db_scope(seq);
    FA_ENDS(fa_winner_record_free) fa_winner_record winner = {0};
    FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
    bool good = false;
    if (bytes != NULL && fa_store_winner_get(store, &scope, &winner, &cubin, diag) == 0) {
        fa_cubin_record expected = db_cubin(n, bytes);
        good = strcmp(cubin.key, expected.key) == 0 && cubin.size == expected.size &&
               memcmp(cubin.bytes, bytes, cubin.size) == 0 &&
               winner.trial.config.tunable[1].value == (int32_t)n;
    }
    return good;
}

/* A store with winners 1 to `winners`, each of its own scope. */
static inline bool fill_store(int32_t winners)
{
    fa_store *store = db_open(&diag);
    bool good = store != NULL;
    for (int32_t i = 1; good && i <= winners; i++)
        good = db_put_winner(store, i, (uint32_t)i, FA_ORIGIN_MEASURED, NULL, &diag) == 0;
    fa_store_close(&store);
    return good;
}

static inline int open_rc(fa_store_mode mode)
{
    fa_store *store = NULL;
    int rc = fa_store_open(db_path, mode, NULL, &store, &note, &diag);
    fa_store_close(&store);
    return rc;
}

/* The file is refused with this code in both modes, and it and all beside it stay as they were. */
static inline void check_refused(int code, const char *sentence)
{
    fa_buf before;
    CHECK_INT(fa_buf_read_file(&before, db_path, 1 << 26), 0);
    int files = db_count_files("");
    for (int mode = 0; mode < 2; mode++) {
        CHECK_INT(open_rc((fa_store_mode)mode), code);
        CHECK_HAS(diag.text, db_path);
        CHECK_HAS(diag.text, sentence);
        CHECK(db_same_bytes(db_path, &before));
        CHECK_INT(db_count_files(""), files);
    }
    fa_buf_free(&before);
}

/* Somebody else's hand in the file. */
static inline bool db_tamper(const char *sql)
{
#ifdef DB_ON_POSTGRES
    return pg_sql(db_path, sql) > 0;
#else
    sqlite3 *db = NULL;
    bool good = sqlite3_open(db_path, &db) == SQLITE_OK &&
                sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK && sqlite3_changes(db) > 0;
    sqlite3_close(db);
    return good;
#endif
}

/* ---- children ------------------------------------------------------------------------------*/
enum { DB_CANNOT = 77 };

/* Runs body in a child; its exit status: 0 passed, 1 failed, DB_CANNOT. */
static inline int in_child(void (*body)(void))
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        check_state.failed = false;
        check_state.skipped = NULL;
        body();
        fflush(stdout);
        _exit(check_state.failed ? 1 : check_state.skipped != NULL ? DB_CANNOT : 0);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return 1;
    return WEXITSTATUS(status);
}

#define CHECK_CHILD(body, reason)    \
    do {                             \
        int child_ = in_child(body); \
        if (child_ == DB_CANNOT)     \
            SKIP(reason);            \
        CHECK_INT(child_, 0);        \
    } while (0)

#endif
