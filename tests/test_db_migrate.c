/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores of earlier versions, brought up to date: nothing in them is lost, and no key changes.
 */
#include "check.h"
#include "db_fixture.h"

#include "../db/statements.h"

enum { ROWS = 5 };

/* Takes a store of this version back to version 4, whose scopes have a column for each field of attention
 * forward: those of db_scope(). One text for both databases, as in schema.c. */
static const char back_to_version_4[] =
    "ALTER TABLE scope ADD COLUMN dtype TEXT NOT NULL DEFAULT 'bf16';"
    "ALTER TABLE scope ADD COLUMN causal TEXT NOT NULL DEFAULT 'bottom-right';"
    "ALTER TABLE scope ADD COLUMN layout TEXT NOT NULL DEFAULT 'bshd';"
    "ALTER TABLE scope ADD COLUMN head_dim INTEGER NOT NULL DEFAULT 128;"
    "ALTER TABLE scope ADD COLUMN batch INTEGER NOT NULL DEFAULT 2;"
    "ALTER TABLE scope ADD COLUMN heads_q INTEGER NOT NULL DEFAULT 8;"
    "ALTER TABLE scope ADD COLUMN heads_kv INTEGER NOT NULL DEFAULT 2;"
    "ALTER TABLE scope ADD COLUMN seq_q INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE scope ADD COLUMN seq_k INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE scope ADD COLUMN want_lse INTEGER NOT NULL DEFAULT 1;"
    "ALTER TABLE scope ADD COLUMN unaligned INTEGER NOT NULL DEFAULT 0;"
    "UPDATE scope SET seq_q = id, seq_k = id + 7;"
    "DROP INDEX scope_by_shape;"
    "DROP INDEX scope_by_problem;"
    "ALTER TABLE scope DROP COLUMN shape;"
    "ALTER TABLE scope DROP COLUMN problem;"
    "ALTER TABLE scope RENAME COLUMN problem_key TO problem;"
    "CREATE INDEX scope_by_shape ON scope(head_dim, heads_q, heads_kv, batch, dtype, causal);"
    "DROP TABLE winner_set_aside;"
    "ALTER TABLE baseline DROP COLUMN matmul_tflops;"
    "ALTER TABLE outbox RENAME TO outbox_after;"
    "CREATE TABLE outbox (scope_id INTEGER PRIMARY KEY REFERENCES scope(id), "
    "ticket INTEGER NOT NULL, unix_time INTEGER NOT NULL) STRICT;"
    "INSERT INTO outbox SELECT scope_id, ticket, unix_time FROM outbox_after;"
    "DROP TABLE outbox_after;"
#ifdef DB_ON_POSTGRES
    "UPDATE fa_tune_store SET version = 4;";
#else
    "PRAGMA user_version = 4;";
#endif

static bool go_back(void)
{
    fa_store *store = db_open(&diag);
    bool good = store != NULL && fa_db_exec(store, back_to_version_4, &diag) == 0;
    fa_store_close(&store);
    return good;
}

static int count_trial(void *context, const fa_trial_record *record)
{
    *(int *)context += record->sample_count == DB_SAMPLES;
    return 0;
}

static int count_winner(void *context, const fa_winner_record *winner)
{
    *(int *)context += winner->scope.problem.head_dim == 128;
    return 0;
}

static int count_scope(void *context, const fa_scope *scope, int32_t trials, int64_t unix_time)
{
    (void)unix_time;
    *(int *)context += trials == 1 && scope->problem.seq_k == scope->problem.seq_q + 7;
    return 0;
}

static void no_winner_trial_or_cubin_is_lost_and_no_key_changes(void)
{
    CHECK(fill_store(ROWS));
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    for (int32_t i = 1; i <= ROWS; i++) {
        float samples[DB_SAMPLES];
        fa_scope scope = db_scope(i);
        fa_trial_record record = db_trial_record((uint32_t)i, samples);
        CHECK_OK(fa_store_trial_put(store, &scope, &record, &diag), diag);
    }
    fa_store_close(&store);
    CHECK(go_back());
    CHECK_INT(open_rc(FA_STORE_READ_ONLY), FA_EREADONLY);
    CHECK_HAS(diag.text, "older version 4");
    CHECK((store = db_open(&diag)) != NULL);
    int scopes = 0, winners = 0, like = 0;
    for (int32_t i = 1; i <= ROWS; i++) {
        int trials = 0;
        fa_scope scope = db_scope(i);
        CHECK(db_winner_is(store, i, (uint32_t)i, &diag));
        CHECK_OK(fa_store_trials_each(store, &scope, count_trial, &trials, &diag), diag);
        CHECK_INT(trials, 1);
    }
    fa_scope scope = db_scope(99);
    CHECK_OK(fa_store_scopes_each(store, count_scope, &scopes, &diag), diag);
    CHECK_OK(fa_store_winners_each(store, count_winner, &winners, &diag), diag);
    CHECK_OK(fa_store_winners_like(store, &scope, count_winner, &like, &diag), diag);
    CHECK(scopes == ROWS && winners == ROWS && like == ROWS);
    fa_store_close(&store);
}

/* What a migrated scope is called and what a new one of the same problem would be: word for word. */
static void a_migrated_scope_is_the_very_row_that_a_new_one_would_be(void)
{
    CHECK(fill_store(1));
    CHECK(go_back());
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    CHECK_OK(db_put_winner(store, 2, 2, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    bool same = false;
    fa_binder binder =
        fa_db_query(store,
                    "SELECT 1 FROM scope a JOIN scope b ON a.shape = b.shape AND "
                    "replace(replace(a.problem, ':1,', ':2,'), ':8,\"lse', ':9,\"lse') = "
                    "replace(b.problem, ':1,', ':2,') WHERE a.id = 1 AND b.id = 2",
                    &diag);
    CHECK_OK(fa_db_run_exists(store, &binder, &same, &diag), diag);
    CHECK(same);
    fa_store_close(&store);
}

struct mail {
    int scopes;
    int64_t of_no_fleet, of_fleet;
};

static int count_scopes(void *context, const fa_scope *scope, int64_t ticket)
{
    struct mail *mail = context;
    (void)scope, (void)ticket;
    mail->scopes++;
    return 0;
}

static int count_mail(void *context, const char *fleet, int64_t count)
{
    struct mail *mail = context;
    *(fleet[0] == 0 ? &mail->of_no_fleet : &mail->of_fleet) = count;
    return 0;
}

static void results_that_wait_for_a_fleet_nobody_noted_are_kept_and_sent_nowhere(void)
{
    struct mail mail = {0};
    fa_scope one = db_scope(1), two = db_scope(2);
    CHECK(fill_store(2));
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    CHECK_OK(fa_store_outbox_add(store, "some", &one, &diag), diag);
    CHECK_OK(fa_store_outbox_add(store, "some", &two, &diag), diag);
    fa_store_close(&store);
    CHECK(go_back());
    CHECK((store = db_open(&diag)) != NULL);
    CHECK_OK(fa_store_outbox_each(store, "some", count_scopes, &mail, &diag), diag);
    CHECK_OK(fa_store_outbox_counts(store, count_mail, &mail, &diag), diag);
    CHECK_INT(mail.scopes, 0);
    CHECK_INT(mail.of_no_fleet, 2);
    /* One that waits for a fleet from now on is no longer of none. */
    CHECK_OK(fa_store_outbox_add(store, "some", &one, &diag), diag);
    CHECK_OK(fa_store_outbox_each(store, "some", count_scopes, &mail, &diag), diag);
    CHECK_OK(fa_store_outbox_counts(store, count_mail, &mail, &diag), diag);
    CHECK(mail.scopes == 1 && mail.of_no_fleet == 1 && mail.of_fleet == 1);
    fa_store_close(&store);
}

int main(void)
{
    DB_TEST(no_winner_trial_or_cubin_is_lost_and_no_key_changes);
    DB_TEST(a_migrated_scope_is_the_very_row_that_a_new_one_would_be);
    DB_TEST(results_that_wait_for_a_fleet_nobody_noted_are_kept_and_sent_nowhere);
    return check_done();
}
