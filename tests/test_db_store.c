/* SPDX-License-Identifier: Apache-2.0
 *
 * Cubins and winners of the store: what goes in comes out, and what was changed behind its back
 * does not.
 */
#include "db_fixture.h"

#include <time.h>

static unsigned char bytes[DB_CUBIN_SIZE];

DB_STORE_TEST(a_cubin_comes_back_byte_for_byte)
{
    fa_cubin_record put = db_cubin(7, bytes), got = {0};
    CHECK_OK(fa_store_cubin_put(store, &put, &diag), diag);
    CHECK_OK(fa_store_cubin_get(store, put.key, &got, &diag), diag);
    CHECK_INT(got.size, put.size);
    CHECK(memcmp(got.bytes, put.bytes, put.size) == 0);
    CHECK_TEXT(got.entry, put.entry);
    CHECK_TEXT(got.log, put.log);
    CHECK_INT(got.sm, 89);
    CHECK(got.compile_ms == put.compile_ms);
    fa_cubin_record_free(&got);
    put.log = NULL;
    put.key[0] ^= 1;
    CHECK_OK(fa_store_cubin_put(store, &put, &diag), diag);
    CHECK_OK(fa_store_cubin_get(store, put.key, &got, &diag), diag);
    CHECK(got.log == NULL);
    fa_cubin_record_free(&got);
    put.key[0] ^= 2;
    CHECK_INT(fa_store_cubin_get(store, put.key, &got, &diag), FA_ENOTFOUND);
    fa_store_close(&store);
    CHECK(store == NULL);
}

DB_STORE_TEST(a_stored_cubin_is_not_replaced_by_other_bytes_of_its_key)
{
    fa_cubin_record put = db_cubin(7, bytes), got = {0};
    CHECK_OK(fa_store_cubin_put(store, &put, &diag), diag);
    bytes[5] ^= 1;
    CHECK_OK(fa_store_cubin_put(store, &put, &diag), diag);
    CHECK_OK(fa_store_cubin_get(store, put.key, &got, &diag), diag);
    bytes[5] ^= 1;
    CHECK(memcmp(got.bytes, bytes, got.size) == 0);
    fa_cubin_record_free(&got);
}

DB_STORE_TEST(a_changed_cubin_is_detected_and_the_next_put_replaces_it)
{
    fa_cubin_record put = db_cubin(7, bytes), got = {0};
    CHECK_OK(fa_store_cubin_put(store, &put, &diag), diag);
#ifdef DB_ON_POSTGRES
    CHECK(db_tamper("UPDATE cubin SET bytes = set_byte(bytes, 100, 255 - get_byte(bytes, 100))"));
#else
    CHECK(db_tamper("UPDATE cubin SET bytes = cast(substr(bytes, 1, 100) || x'00' || "
                    "substr(bytes, 102) AS blob) WHERE substr(bytes, 101, 1) <> x'00'"));
#endif
    CHECK_FAILS(fa_store_cubin_get(store, put.key, &got, &diag), FA_ECORRUPT,
                "does not match its hash");
    CHECK(got.bytes == NULL);
    CHECK_OK(fa_store_cubin_put(store, &put, &diag), diag);
    CHECK(db_tamper("UPDATE cubin SET bytes = " DB_BYTES("00")));
    CHECK_OK(fa_store_cubin_put(store, &put, &diag), diag); /* heals without a get */
    CHECK_OK(fa_store_cubin_get(store, put.key, &got, &diag), diag);
    CHECK_INT(got.size, put.size);
    fa_cubin_record_free(&got);
}

DB_STORE_TEST(a_winner_comes_back_with_its_cubin_and_every_field)
{
    bool kept = true;
    CHECK_OK(db_put_winner(store, 512, 3, FA_ORIGIN_MEASURED, &kept, &diag), diag);
    CHECK(!kept);
    fa_winner_record got, put = db_winner(512, 3, FA_ORIGIN_MEASURED);
    fa_cubin_record cubin;
    CHECK_OK(fa_store_winner_get(store, &put.scope, &got, &cubin, &diag), diag);
    CHECK(fa_problem_equal(&got.scope.problem, &put.scope.problem));
    CHECK_INT(fa_store_winner_any(store, &put.scope.problem, put.scope.templates), 0);
    CHECK_INT(fa_store_winner_any(store, &put.scope.problem, "other templates"), FA_ENOTFOUND);
    CHECK(fa_config_equal(&got.trial.config, &put.trial.config));
    CHECK_TEXT(got.trial.config.tunable[2].name, "STAGES"); /* in the manifest's order */
    CHECK_INT(got.trial.status, put.trial.status);
    CHECK_INT(got.trial.threads, 128);
    CHECK_INT(got.trial.smem_bytes, 49152);
    CHECK_INT(got.trial.registers, 168);
    CHECK_INT(got.trial.spill_bytes, 0);
    CHECK_INT(got.trial.blocks_per_sm, 2);
    CHECK_INT(got.trial.grid[0], 4);
    CHECK_INT(got.trial.grid[1], 8);
    CHECK_INT(got.trial.grid[2], 4000000000u);
    CHECK(got.trial.compile_ms == 231.5 && got.trial.predicted_us == 41.25);
    CHECK(got.trial.median_us == 40.5 && got.trial.low_us == 40.25 && got.trial.high_us == 40.75);
    CHECK(got.trial.max_error == 0.001 && got.trial.tolerance == 0.002);
    CHECK_INT(got.trial.sample_count, DB_SAMPLES);
    CHECK_INT(got.origin, FA_ORIGIN_MEASURED);
    CHECK_TEXT(got.entry, "attn_fwd");
    CHECK_TEXT(got.cubin_key, put.cubin_key);
    CHECK_TEXT(got.gpu_name, "L4");
    CHECK_TEXT(got.nvrtc, "NVRTC 13.0.48");
    CHECK_INT(got.driver_version, 13000);
    CHECK_TEXT(got.evidence, put.evidence);
    CHECK(got.unix_time >= (int64_t)time(NULL) - 60);
    db_cubin(3, bytes);
    CHECK(cubin.size == DB_CUBIN_SIZE && memcmp(cubin.bytes, bytes, cubin.size) == 0);
    fa_winner_record_free(&got);
    fa_cubin_record_free(&cubin);
}

/* Each part of the key alone makes another scope. */
DB_STORE_TEST(a_winner_is_served_to_its_own_scope_only)
{
    CHECK_OK(db_put_winner(store, 512, 3, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    fa_scope other[6];
    for (size_t i = 0; i < 6; i++)
        other[i] = db_scope(512);
    other[0].problem.seq_k++;
    other[1].problem.causal = FA_CAUSAL_TOP_LEFT;
    other[2].silicon[4] = '6';
    other[3].templates[0] ^= 1;
    strcpy(other[4].policy, "measure-2");
    other[5].problem.want_lse = false;
    fa_winner_record winner;
    for (size_t i = 0; i < 6; i++)
        CHECK_INT(fa_store_winner_get(store, &other[i], &winner, NULL, &diag), FA_ENOTFOUND);
    fa_scope same = db_scope(512);
    CHECK_OK(fa_store_winner_get(store, &same, &winner, NULL, &diag), diag);
    fa_winner_record_free(&winner);
    /* A row whose hash agrees and whose text does not is not the scope's. */
    CHECK(db_tamper("UPDATE scope SET silicon = 'sm_90'"));
    CHECK_INT(fa_store_winner_get(store, &same, &winner, NULL, &diag), FA_ENOTFOUND);
}

DB_STORE_TEST(a_winner_gives_way_to_an_equal_or_better_origin_only)
{
    const fa_origin all[] = {FA_ORIGIN_MEASURED, FA_ORIGIN_MEASURED_SAME_SILICON,
                             FA_ORIGIN_IMPORTED, FA_ORIGIN_TRANSFERRED, FA_ORIGIN_PREDICTED};
    for (uint32_t earlier = 0; earlier < 5; earlier++) {
        for (uint32_t later = 0; later < 5; later++) {
            int32_t seq = (int32_t)(64 + earlier * 5 + later);
            bool kept = false;
            CHECK_OK(db_put_winner(store, seq, 1, all[earlier], NULL, &diag), diag);
            CHECK_OK(db_put_winner(store, seq, 2, all[later], &kept, &diag), diag);
            CHECK_INT(kept, earlier < later);
            CHECK(db_winner_is(store, seq, earlier < later ? 1 : 2, &diag));
        }
    }
}

DB_STORE_TEST(a_winner_whose_cubin_is_gone_says_so_and_gives_way)
{
    CHECK_OK(db_put_winner(store, 512, 3, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_tamper("UPDATE cubin SET bytes = " DB_BYTES("0102")));
    fa_scope scope = db_scope(512);
    FA_ENDS(fa_winner_record_free) fa_winner_record winner = {0};
    fa_cubin_record cubin = {0};
    for (int i = 0; i < 2; i++) { /* corrupt, then missing */
        CHECK_FAILS(fa_store_winner_get(store, &scope, &winner, &cubin, &diag), FA_ECORRUPT,
                    "compiled again");
    }
    /* What was learned is still there for who asks without the cubin. */
    CHECK_OK(fa_store_winner_get(store, &scope, &winner, NULL, &diag), diag);
    bool kept = true;
    CHECK_OK(db_put_winner(store, 512, 4, FA_ORIGIN_PREDICTED, &kept, &diag), diag);
    CHECK(!kept && db_winner_is(store, 512, 4, &diag));
}

DB_STORE_TEST(a_winner_without_its_cubin_is_refused_and_nothing_of_it_stays)
{
    fa_winner_record winner = db_winner(512, 3, FA_ORIGIN_MEASURED);
    CHECK_INT(fa_store_winner_put(store, &winner, NULL, false, NULL, &diag), FA_ESTORE);
    fa_cubin_record cubin = db_cubin(4, bytes);
    CHECK_INT(fa_store_winner_put(store, &winner, &cubin, false, NULL, &diag), FA_EINVAL);
    CHECK(!db_tamper("DELETE FROM scope"));
    cubin = db_cubin(3, bytes);
    CHECK_OK(fa_store_cubin_put(store, &cubin, &diag), diag);
    CHECK_OK(fa_store_winner_put(store, &winner, NULL, false, NULL, &diag), diag);
    CHECK(db_winner_is(store, 512, 3, &diag));
}

/* *ret_newest: the lengths of the first, where there is one. */
static int count_winners(int32_t *ret_newest)
{
    FA_ENDS(fa_free_at) fa_winner_record *row = NULL;
    size_t count = 0;
    int rc = fa_store_winners(store, NULL, &row, &count, NULL, &diag);
    *ret_newest = count > 0 ? row->scope.problem.seq_q : 0;
    return rc == 0 ? (int)count : rc;
}

DB_STORE_TEST(a_winner_row_that_was_changed_is_never_served)
{
    static const char *const changes[] = {
        "winner SET entry = " DB_REPEAT(32), "winner SET config = '[]'",
        "winner SET median_us = NULL",       "winner SET driver_version = -1",
        "winner SET threads = 99999999999",  "winner SET origin = 'revealed'",
    };
    fa_scope scope = db_scope(512);
    fa_winner_record winner = {0};
    fa_cubin_record cubin = {0};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char sql[256];
        snprintf(sql, sizeof sql, "UPDATE %s", changes[i]);
        CHECK_OK(db_put_winner(store, 512, 3, FA_ORIGIN_MEASURED, NULL, &diag), diag);
        CHECK(db_winner_is(store, 512, 3, &diag));
        CHECK(db_tamper(sql));
        CHECK_INT(count_winners(&(int32_t){0}), 0);
        CHECK_FAILS(fa_store_winner_get(store, &scope, &winner, &cubin, &diag), FA_ECORRUPT,
                    "tune again");
    }
}

DB_STORE_TEST(all_winners_are_shown_newest_first)
{
    for (int32_t seq = 1; seq <= 5; seq++)
        CHECK_OK(db_put_winner(store, seq, 3, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    int32_t newest = 0;
    CHECK_INT(count_winners(&newest), 5);
    CHECK_INT(newest, 5);
    CHECK(db_tamper("UPDATE scope SET problem = replace(problem, '\"seq_q\":1,', "
                    "'\"seq_q\":9,') WHERE problem LIKE '%\"seq_q\":1,%'"));
    CHECK_INT(count_winners(&newest), 4); /* a scope that contradicts its key is left out */
}

DB_STORE_TEST(a_forked_child_is_refused_and_the_parent_goes_on)
{
    CHECK_OK(db_put_winner(store, 512, 3, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fa_scope scope = db_scope(512);
        fa_winner_record winner;
        int rc = fa_store_winner_get(store, &scope, &winner, NULL, &diag);
        fa_store_close(&store);
        _exit(rc == FA_EFORKED && store == NULL ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    CHECK(db_winner_is(store, 512, 3, &diag));
    CHECK_OK(db_put_winner(store, 512, 4, FA_ORIGIN_MEASURED, NULL, &diag), diag);
}
