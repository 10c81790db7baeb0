/* SPDX-License-Identifier: Apache-2.0
 *
 * What is told as a list: baselines, scopes, the fastest trials, who holds items of the queue; winners
 * that take another's place; and what is forgotten.
 */
#include "check.h"
#include "db_fixture.h"

/* ---- baselines ------------------------------------------------------------------------------*/
static fa_baseline baseline_of(int32_t seq, const char *peer, double median_us)
{
    fa_baseline baseline = {.problem = db_scope(seq).problem,
                            .gpu_name = "H200",
                            .median_us = median_us,
                            .low_us = median_us / 2,
                            .high_us = median_us * 2,
                            .sample_count = 30,
                            .unix_time = 1700000000,
                            .source = "PyTorch 2.11"};
    strcpy(baseline.peer, peer);
    return baseline;
}

struct told {
    fa_baseline baseline[4];
    int count;
};

static int tell(void *context, const fa_baseline *baseline)
{
    struct told *told = context;
    if (told->count < 4)
        told->baseline[told->count] = *baseline;
    told->count++;
    return 0;
}

static void a_baseline_replaces_the_earlier_one_and_comes_last(void)
{
    const fa_baseline first[] = {baseline_of(1, "fa2", 10.1), baseline_of(1, "fa3", 8.3),
                                 baseline_of(2, "fa2", 20.7)};
    const fa_baseline again = baseline_of(1, "fa2", 9.9);
    struct told told = {0};
    CHECK_OK(fa_store_baselines_put(store, first, 3, &diag), diag);
    CHECK_OK(fa_store_baselines_put(store, &again, 1, &diag), diag);
    CHECK_OK(fa_store_baselines_each(store, tell, &told, &diag), diag);
    CHECK_INT(told.count, 3);
    CHECK_TEXT(told.baseline[0].peer, "fa3");
    CHECK(told.baseline[0].median_us == 8.3 && told.baseline[0].high_us == 16.6);
    CHECK(told.baseline[1].problem.seq_q == 2 && told.baseline[1].median_us == 20.7);
    CHECK(told.baseline[2].problem.seq_q == 1 && told.baseline[2].median_us == 9.9);
    CHECK_TEXT(told.baseline[2].source, "PyTorch 2.11");
    CHECK_INT(told.baseline[2].unix_time, 1700000000);
    CHECK(db_tamper("UPDATE baseline SET median_us = -1 WHERE peer = 'fa3'"));
    told.count = 0;
    CHECK_OK(fa_store_baselines_each(store, tell, &told, &diag), diag);
    CHECK_INT(told.count, 2);
}

static void baselines_are_put_together_or_not_at_all(void)
{
    fa_baseline two[] = {baseline_of(1, "fa2", 10), baseline_of(2, "fa2", NAN)};
    struct told told = {0};
    CHECK_INT(fa_store_baselines_put(store, two, 2, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "baseline 1");
    two[1] = baseline_of(2, "fa2", 10);
    two[1].unix_time = ((int64_t)1 << 40) + 1;
    CHECK_INT(fa_store_baselines_put(store, two, 2, &diag), FA_EINVAL);
    CHECK_OK(fa_store_baselines_each(store, tell, &told, &diag), diag);
    CHECK_INT(told.count, 0);
}

/* ---- scopes and trials ----------------------------------------------------------------------*/
static int see_scope(void *context, const fa_scope *scope, int32_t trials, int64_t unix_time)
{
    int64_t *seen = context; /* how many; trials of seq 512; when its newest was written */
    seen[0]++;
    if (scope->problem.seq_q == 512) {
        seen[1] = trials;
        seen[2] = unix_time;
    }
    return 0;
}

static int see_config(void *context, const fa_trial_record *record)
{
    int32_t *seen = context;
    seen[++seen[0]] = record->trial.config.tunable[1].value;
    return record->sample_count == 0 ? 0 : FA_EINVAL; /* told without samples */
}

static void scopes_tell_their_trials_and_the_fastest_come_first(void)
{
    float samples[DB_SAMPLES];
    fa_scope scope = db_scope(512);
    static const struct {
        uint32_t n;
        fa_status status;
        double us;
    } table[] = {
        {1, FA_STATUS_MEASURED, 9}, {2, FA_STATUS_MEASURED, 3}, {3, FA_STATUS_COMPILED, 1},
        {4, FA_STATUS_WRONG, 0},    {5, FA_STATUS_MEASURED, 5}, {2, FA_STATUS_MEASURED, 7},
        {6, FA_STATUS_COMPILED, 2},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        fa_trial_record put = db_trial_record(table[i].n, samples);
        put.trial.status = table[i].status;
        put.trial.median_us = table[i].status == FA_STATUS_MEASURED ? table[i].us : 0;
        put.trial.predicted_us = table[i].status == FA_STATUS_MEASURED ? 100 : table[i].us;
        CHECK_OK(fa_store_trial_put(store, &scope, &put, &diag), diag);
    }
    CHECK_OK(db_put_winner(store, 7, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    int64_t seen[3] = {0};
    CHECK_OK(fa_store_scopes_each(store, see_scope, seen, &diag), diag);
    CHECK_INT(seen[0], 2);
    CHECK_INT(seen[1], 6); /* configs */
    CHECK(seen[2] > 0);
    int32_t fastest[4] = {0};
    CHECK_OK(
        fa_store_trials_fastest(store, &scope, FA_STATUS_MEASURED, 2, see_config, fastest, &diag),
        diag);
    CHECK_INT(fastest[0], 2);
    CHECK_INT(fastest[1], 5);
    CHECK_INT(fastest[2], 2); /* by its newest time */
    memset(fastest, 0, sizeof fastest);
    CHECK_OK(
        fa_store_trials_fastest(store, &scope, FA_STATUS_COMPILED, 9, see_config, fastest, &diag),
        diag);
    CHECK_INT(fastest[0], 2);
    CHECK_INT(fastest[1], 3); /* by the model's */
}

/* ---- winners that take another's place ------------------------------------------------------*/
static void a_winner_made_elsewhere_replaces_a_better_one_and_keeps_its_time(void)
{
    static unsigned char bytes[DB_CUBIN_SIZE];
    CHECK_OK(db_put_winner(store, 512, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    fa_cubin_record cubin = db_cubin(2, bytes);
    fa_winner_record winner = db_winner(512, 2, FA_ORIGIN_IMPORTED), got = {0};
    winner.unix_time = 1600000000;
    bool exists = true;
    CHECK_OK(fa_store_cubin_exists(store, cubin.key, &exists, &diag), diag);
    CHECK(!exists);
    CHECK_OK(fa_store_winner_replace(store, &winner, &cubin, &diag), diag);
    CHECK(db_winner_is(store, 512, 2, &diag));
    CHECK_OK(fa_store_cubin_exists(store, cubin.key, &exists, &diag), diag);
    CHECK(exists);
    CHECK_OK(fa_store_winner_get(store, &winner.scope, &got, NULL, &diag), diag);
    CHECK_INT(got.unix_time, 1600000000);
    CHECK_INT(got.origin, FA_ORIGIN_IMPORTED);
    fa_winner_record_free(&got);
}

/* ---- forgetting -----------------------------------------------------------------------------*/
#ifndef DB_ON_POSTGRES
/* Scope `seq` with winner n and trials of configs n and n + 1, whose cubins they name. */
static bool fill_scope(fa_store *into, int32_t seq, uint32_t n)
{
    float samples[DB_SAMPLES];
    fa_scope scope = db_scope(seq);
    fa_trial_record two[] = {db_trial_record(n, samples), db_trial_record(n + 1, samples)};
    fa_verification mark = {.driver_version = 13010, .passed = true};
    memcpy(mark.cubin_key, two[0].cubin_key, sizeof mark.cubin_key);
    memcpy(mark.silicon, scope.silicon, sizeof mark.silicon);
    return db_put_winner(into, seq, n, FA_ORIGIN_MEASURED, NULL, &diag) == 0 &&
           fa_store_trial_put(into, &scope, &two[0], &diag) == 0 &&
           fa_store_trial_put(into, &scope, &two[1], &diag) == 0 &&
           fa_store_verification_put(into, &mark, &scope, &diag) == 0;
}

static int64_t count_rows(const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    int64_t count = -1;
    if (sqlite3_open(db_path, &db) == SQLITE_OK &&
        sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW)
        count = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return count;
}

#define COUNT(table) count_rows("SELECT count(*) FROM " table)

static int see_unread(void *context, const fa_unread_scope *scope)
{
    *(int64_t *)context = scope->id;
    return strcmp(scope->problem, "{}") == 0 && scope->gpu != NULL ? 0 : FA_EINVAL;
}

/* Of one scope, or everything (NULL). */
static int forget(fa_store *from, const fa_scope *scope, bool dry_run, fa_store_forgotten *ret,
                  fa_diag *why)
{
    return fa_store_forget(from, &(fa_forget_scopes){scope, scope != NULL, NULL, 0, dry_run}, ret,
                           why);
}

static void what_is_forgotten_takes_the_cubins_that_nothing_else_refers_to(void)
{
    fa_store *reader = NULL;
    fa_store_forgotten would, did;
    const fa_scope first = db_scope(1), unknown = db_scope(99);
    const fa_baseline baseline = baseline_of(1, "fa2", 10);
    CHECK(fill_scope(store, 1, 10) && fill_scope(store, 2, 11));
    CHECK_OK(fa_store_baselines_put(store, &baseline, 1, &diag), diag);
    CHECK_OK(fa_store_open(db_path, FA_STORE_READ_ONLY, &reader, NULL, &diag), diag);
    CHECK_OK(forget(reader, &first, true, &would, &diag), diag);
    CHECK_INT(COUNT("winner"), 2);
    CHECK_INT(forget(reader, &first, false, &did, &diag), FA_EREADONLY);
    fa_store_close(&reader);
    CHECK_OK(forget(store, &unknown, false, &did, &diag), diag);
    CHECK(did.winners == 0 && did.trials == 0 && did.cubins == 0 && did.bytes == 0);
    CHECK_OK(forget(store, &first, false, &did, &diag), diag);
    CHECK_INT(memcmp(&would, &did, sizeof did), 0);
    CHECK_INT(did.winners, 1);
    CHECK_INT(did.trials, 2);
    CHECK_INT(did.cubins, 1); /* 10; a trial of scope 2 has the config of 11 */
    CHECK(did.bytes > DB_CUBIN_SIZE && did.bytes < 2 * DB_CUBIN_SIZE);
    CHECK(db_winner_is(store, 2, 11, &diag));
    CHECK_INT(COUNT("trial") + COUNT("scope"), 3);
    CHECK_INT(COUNT("cubin") + COUNT("verification"), 2);
    CHECK_INT(COUNT("baseline"), 1);
    int64_t freed = 0;
    CHECK_OK(fa_store_shrink(store, &freed, &diag), diag);
    CHECK(db_tamper("UPDATE scope SET problem = '{}'")); /* only another version could read it */
    int64_t unread = 0;
    CHECK_OK(fa_store_unread_scopes_each(store, see_unread, &unread, &diag), diag);
    CHECK_OK(
        fa_store_forget(store, &(fa_forget_scopes){&first, 0, &unread, 1, true}, &would, &diag),
        diag);
    CHECK_INT(would.winners, 1);
    CHECK_OK(forget(store, NULL, false, &did, &diag), diag);
    CHECK_INT(did.winners, 1);
    CHECK_INT(COUNT("scope") + COUNT("trial") + COUNT("winner") + COUNT("cubin") +
                  COUNT("verification") + COUNT("environment"),
              0);
    CHECK_INT(COUNT("baseline"), 1);
    CHECK_OK(fa_store_shrink(store, &freed, &diag), diag);
    CHECK(freed > 0);
    CHECK(fill_scope(store, 1, 10) && db_winner_is(store, 1, 10, &diag));
}

static int forget_and_fail(void *context, fa_diag *diag)
{
    fa_store_forgotten did;
    int rc = forget(context, NULL, false, &did, diag);
    return rc == 0 && did.winners == 2 ? FA_ECANCELED : FA_EINVAL;
}

static void forgetting_is_all_or_nothing(void)
{
    CHECK(fill_scope(store, 1, 10) && fill_scope(store, 2, 20));
    CHECK_INT(fa_store_batch(store, forget_and_fail, store, &diag), FA_ECANCELED);
    CHECK(db_winner_is(store, 1, 10, &diag) && db_winner_is(store, 2, 20, &diag));
    CHECK_INT(COUNT("trial") + COUNT("scope") + COUNT("cubin"), 8);
}

/* While the trials of a scope are told another process forgets it, and stores those of another scope. */
static int forget_behind_the_back(void *context, const fa_trial_record *record)
{
    int *told = context;
    fa_store *other = db_open(&diag);
    fa_scope scope = db_scope(1);
    fa_store_forgotten did;
    bool good = other != NULL && record->trial.config.tunable[1].value == 10 &&
                forget(other, &scope, false, &did, &diag) == 0 && fill_scope(other, 2, 20);
    fa_store_close(&other);
    ++*told;
    return good ? 0 : FA_EINVAL;
}

static void a_trial_whose_number_another_scope_has_now_is_not_told(void)
{
    fa_scope scope = db_scope(1);
    int told = 0;
    CHECK(fill_scope(store, 1, 10));
    CHECK_OK(fa_store_trials_each(store, &scope, forget_behind_the_back, &told, &diag), diag);
    CHECK_INT(told, 1);
}
#endif

int main(void)
{
#ifndef DB_ON_POSTGRES
    DB_STORE_TEST(what_is_forgotten_takes_the_cubins_that_nothing_else_refers_to);
    DB_STORE_TEST(forgetting_is_all_or_nothing);
    DB_STORE_TEST(a_trial_whose_number_another_scope_has_now_is_not_told);
#endif
    DB_STORE_TEST(a_baseline_replaces_the_earlier_one_and_comes_last);
    DB_STORE_TEST(baselines_are_put_together_or_not_at_all);
    DB_STORE_TEST(scopes_tell_their_trials_and_the_fastest_come_first);
    DB_STORE_TEST(a_winner_made_elsewhere_replaces_a_better_one_and_keeps_its_time);
    return check_done();
}
