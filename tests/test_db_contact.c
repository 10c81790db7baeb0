/* SPDX-License-Identifier: Apache-2.0
 *
 * The store's part of first contact: marks of proofs under other drivers, and winners of one
 * shape.
 */
#include "db_fixture.h"


static fa_verification mark_of(uint32_t n, int32_t driver, bool passed)
{
    fa_verification mark = {.driver_version = driver, .passed = passed};
    fa_hash_bytes(&n, sizeof n, mark.cubin_key);
    strcpy(mark.silicon, db_scope(1).silicon);
    strcpy(mark.reason, passed ? "" : "case 3: wrong");
    return mark;
}

static int32_t driver_of(int32_t seq)
{
    fa_winner_record winner = {0};
    fa_scope scope = db_scope(seq);
    int rc = fa_store_winner_get(store, &scope, &winner, NULL, NULL);
    fa_winner_record_free(&winner);
    return rc == 0 ? winner.driver_version : rc;
}

DB_STORE_TEST(a_mark_is_of_one_cubin_one_silicon_and_one_driver)
{
    fa_scope scope = db_scope(1);
    fa_verification mark = mark_of(1, 13010, true), back;
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK_INT(fa_store_verification_get(store, mark.cubin_key, mark.silicon, 13010, &back, &diag),
              FA_ENOTFOUND);
    CHECK_OK(fa_store_verification_put(store, &mark, &scope, &diag), diag);
    CHECK_OK(fa_store_verification_get(store, mark.cubin_key, mark.silicon, 13010, &back, &diag), diag);
    CHECK(back.passed && back.driver_version == 13010);
    CHECK_INT(driver_of(1), 13010);
    CHECK_INT(fa_store_verification_get(store, mark.cubin_key, mark.silicon, 13020, &back, &diag),
              FA_ENOTFOUND);
    CHECK_INT(fa_store_verification_get(store, mark.cubin_key, "sm_90", 13010, &back, &diag),
              FA_ENOTFOUND);
}

/* A winner that another process has replaced meanwhile is another cubin's. */
DB_STORE_TEST(a_failed_mark_deletes_that_winner_and_no_other)
{
    fa_scope scope = db_scope(1), elsewhere = db_scope(9);
    fa_verification other = mark_of(2, 13010, false), mark = mark_of(1, 13010, false), back;
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK_OK(fa_store_verification_put(store, &other, &scope, &diag), diag);
    CHECK_INT(driver_of(1), 13000);
    CHECK_OK(fa_store_verification_put(store, &mark, &elsewhere, &diag), diag); /* of a bundle */
    CHECK_INT(driver_of(1), 13000);
    CHECK_OK(fa_store_verification_put(store, &mark, &scope, &diag), diag);
    CHECK_INT(driver_of(1), FA_ENOTFOUND);
    CHECK_OK(fa_store_verification_get(store, mark.cubin_key, mark.silicon, 13010, &back, &diag), diag);
    CHECK(!back.passed);
    CHECK_TEXT(back.reason, "case 3: wrong");
}

DB_STORE_TEST(winners_like_one_differ_in_lengths_and_silicon_alone)
{
    FA_ENDS(fa_free_at) unsigned char *bytes = malloc(DB_CUBIN_SIZE);
    fa_cubin_record cubin = db_cubin(1, bytes);
    FA_ENDS(fa_free_at) fa_winner_record *row = NULL;
    size_t count = 0;
    int elsewhere = 0;
    CHECK(bytes != NULL);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK_OK(db_put_winner(store, 500, 2, FA_ORIGIN_PREDICTED, NULL, &diag), diag);
    fa_winner_record winner = db_winner(1, 1, FA_ORIGIN_MEASURED);
    strcpy(winner.scope.silicon, "another");
    CHECK_OK(fa_store_winner_put(store, &winner, &cubin, false, NULL, &diag), diag);
    for (int i = 0; i < 3; i++) {
        winner = db_winner(1, 1, FA_ORIGIN_MEASURED);
        if (i == 0)
            winner.scope.problem.batch++;
        else if (i == 1)
            winner.scope.problem.want_lse = false;
        else
            winner.scope.problem.causal = FA_CAUSAL_NONE;
        CHECK_OK(fa_store_winner_put(store, &winner, &cubin, false, NULL, &diag), diag);
    }
    fa_scope scope = db_scope(77);
    CHECK_OK(fa_store_winners(store, &scope.problem, &row, &count, NULL, &diag), diag);
    for (size_t i = 0; i < count; i++)
        elsewhere += strcmp(row[i].scope.silicon, scope.silicon) != 0;
    CHECK_INT(count, 3);
    CHECK_INT(elsewhere, 1);
}
