/* SPDX-License-Identifier: Apache-2.0
 *
 * What is told as a list: baselines, values of other tuners, scopes, the fastest trials, who holds items of the queue; winners
 * that take another's place; and what is forgotten.
 */
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

static struct told listed(void)
{
    struct told told = {.count = -1};
    FA_ENDS(fa_free_at) fa_baseline *row = NULL;
    size_t count = 0;
    if (fa_store_baselines(store, &row, &count, &diag) == 0)
        told.count = (int)count;
    if (count > 0)
        memcpy(told.baseline, row, (count < 4 ? count : 4) * sizeof *row);
    return told;
}

DB_STORE_TEST(a_baseline_replaces_the_earlier_one_and_comes_last)
{
    const fa_baseline first[] = {baseline_of(1, "fa2", 10.1), baseline_of(1, "fa3", 8.3),
                                 baseline_of(2, "fa2", 20.7)};
    const fa_baseline again = baseline_of(1, "fa2", 9.9);
    CHECK_OK(fa_store_baselines_put(store, first, 3, &diag), diag);
    CHECK_OK(fa_store_baselines_put(store, &again, 1, &diag), diag);
    struct told told = listed();
    CHECK_INT(told.count, 3);
    CHECK_TEXT(told.baseline[0].peer, "fa3");
    CHECK(told.baseline[0].median_us == 8.3 && told.baseline[0].high_us == 16.6);
    CHECK(told.baseline[1].problem.seq_q == 2 && told.baseline[1].median_us == 20.7);
    CHECK(told.baseline[2].problem.seq_q == 1 && told.baseline[2].median_us == 9.9);
    CHECK_TEXT(told.baseline[2].source, "PyTorch 2.11");
    CHECK_INT(told.baseline[2].unix_time, 1700000000);
    CHECK(db_tamper("UPDATE baseline SET median_us = -1 WHERE peer = 'fa3'"));
    told = listed();
    CHECK_INT(told.count, 2);
}

/* ---- values of other tuners -------------------------------------------------------------------*/
/* How many there are, and of the one of this key what its name is and whether its bytes are these; "" without any. */
static void check_kept(const char *key, size_t all, const void *bytes, size_t size, const char *is)
{
    char name[64] = "";
    fa_kept *row = NULL;
    size_t count = 0;
    CHECK_OK(fa_store_kept(store, NULL, &row, &count, &diag), diag);
    CHECK_INT(count, all);
    for (size_t i = 0; i < count; i++)
        CHECK(row[i].bytes == NULL && row[i].size >= 0 && row[i].unix_time > 0);
    free(row);
    row = NULL;
    CHECK_OK(fa_store_kept(store, key, &row, &count, &diag), diag);
    if (count == 1 && row->size == (int64_t)size && memcmp(row->bytes, bytes, size) == 0)
        snprintf(name, sizeof name, "%s on %s by %s", row->name, row->gpu, row->tuner);
    free(row);
    CHECK_TEXT(name, is);
}

DB_STORE_TEST(a_value_of_another_tuner_comes_back_until_it_is_forgotten)
{
    static const unsigned char bytes[] = {0, 1, 255, 0, 7};
    static char longest[600];
    fa_kept value = {.key = "k1",
                     .tuner = "triton",
                     .name = "add",
                     .gpu = "H200",
                     .made = "{}",
                     .size = 5,
                     .bytes = bytes};
    CHECK_OK(fa_store_kept_put(store, &value, &diag), diag);
    check_kept("k1", 1, bytes, 5, "add on H200 by triton");
    value.gpu = "H100"; /* in its place */
    value.size = 3;
    CHECK_OK(fa_store_kept_put(store, &value, &diag), diag);
    check_kept("k1", 1, bytes, 3, "add on H100 by triton");
    value.key = "k2";
    value.size = 0; /* bytes may be none */
    CHECK_OK(fa_store_kept_put(store, &value, &diag), diag);
    check_kept("k2", 2, bytes, 0, "add on H100 by triton");
    memset(longest, 'n', sizeof longest - 1);
    value.name = longest;
    CHECK_FAILS(fa_store_kept_put(store, &value, &diag), FA_EINVAL, "triton");
    CHECK_OK(fa_store_kept_put(store, &(fa_kept){.key = "k1"}, &diag), diag);
    check_kept("k1", 1, bytes, 3, "");
}

/* ---- scopes and trials ----------------------------------------------------------------------*/
DB_STORE_TEST(scopes_tell_their_trials_and_the_fastest_come_first)
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
        fa_study_trial put = db_trial_record(table[i].n, samples);
        put.trial.status = table[i].status;
        put.trial.median_us = table[i].status == FA_STATUS_MEASURED ? table[i].us : 0;
        put.trial.predicted_us = table[i].status == FA_STATUS_MEASURED ? 100 : table[i].us;
        CHECK_OK(fa_store_trial_put(store, &scope, &put, &diag), diag);
    }
    CHECK_OK(db_put_winner(store, 7, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    FA_ENDS(fa_free_at) fa_scope_row *row = NULL;
    size_t count = 0;
    CHECK_OK(fa_store_scopes(store, &row, &count, &diag), diag);
    CHECK_INT(count, 2);
    for (size_t i = 0; i < 2; i++) {
        bool tried = row[i].scope.problem.seq_q == 512;
        CHECK(row[i].unread == NULL && (row[i].gpu == NULL) == tried);
        CHECK_INT(row[i].trials, tried ? 6 : 0); /* configs */
        CHECK(row[i].unix_time > 0);
    }
    static const int32_t fastest[2][2] = {{5, 2},
                                          /* 2 by its newest time */ {3, 6}}; /* by the model's */
    for (int i = 0; i < 2; i++) {
        fa_study_trial *record = NULL;
        CHECK_OK(fa_store_trials_fastest(store, &scope,
                                         i == 0 ? FA_STATUS_MEASURED : FA_STATUS_COMPILED, 2,
                                         &record, &count, &diag),
                 diag);
        CHECK_INT(count, 2);
        for (int k = 0; k < 2; k++) {
            CHECK_INT(record[k].trial.config.tunable[1].value, fastest[i][k]);
            CHECK(record[k].sample_count == 0 && record[k].samples_us == NULL);
        }
        free(record);
    }
}

/* ---- forgetting -----------------------------------------------------------------------------*/
#ifndef DB_ON_POSTGRES
/* Scope `seq` with winner n and trials of configs n and n + 1, whose cubins they name. */
static bool fill_scope(fa_store *into, int32_t seq, uint32_t n)
{
    float samples[DB_SAMPLES];
    fa_scope scope = db_scope(seq);
    fa_study_trial two[] = {db_trial_record(n, samples), db_trial_record(n + 1, samples)};
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

/* Of one scope, of none (an unknown one), or everything (NULL). */
static int forget(fa_store *from, const fa_scope *scope, bool dry_run, fa_forgotten *ret,
                  fa_diag *why)
{
    FA_ENDS(fa_free_at) fa_scope_row *row = NULL;
    size_t count = 0;
    int64_t id = -1;
    int rc = fa_store_scopes(from, &row, &count, why);
    for (size_t i = 0; scope != NULL && i < count; i++)
        if (row[i].unread == NULL && fa_problem_equal(&row[i].scope.problem, &scope->problem))
            id = row[i].id;
    return rc != 0
               ? rc
               : fa_store_forget(from, &(fa_forget_scopes){scope != NULL ? &id : NULL, 1, dry_run},
                                 ret, why);
}

DB_STORE_TEST(what_is_forgotten_takes_the_cubins_that_nothing_else_refers_to)
{
    fa_store *reader = NULL;
    fa_forgotten would = {0}, did = {0};
    const fa_scope first = db_scope(1), unknown = db_scope(99);
    const fa_baseline baseline = baseline_of(1, "fa2", 10);
    CHECK(fill_scope(store, 1, 10) && fill_scope(store, 2, 11));
    CHECK_OK(fa_store_baselines_put(store, &baseline, 1, &diag), diag);
    CHECK_OK(fa_store_open(db_path, FA_STORE_READ_ONLY, NULL, &reader, NULL, &diag), diag);
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
    CHECK(db_tamper("UPDATE scope SET problem = '{}'")); /* only another version could read it */
    FA_ENDS(fa_free_at) fa_scope_row *row = NULL;
    size_t rows = 0;
    CHECK_OK(fa_store_scopes(store, &row, &rows, &diag), diag);
    CHECK_INT(rows, 1);
    CHECK_TEXT(row->unread, "{}");
    CHECK(row->gpu != NULL && row->scope.silicon[0] != 0);
    CHECK_OK(fa_store_forget(store, &(fa_forget_scopes){&row->id, 1, true}, &would, &diag), diag);
    CHECK_INT(would.winners, 1);
    CHECK_OK(forget(store, NULL, false, &did, &diag), diag);
    CHECK_INT(did.winners, 1);
    CHECK_INT(COUNT("scope") + COUNT("trial") + COUNT("winner") + COUNT("cubin") +
                  COUNT("verification"),
              0);
    CHECK_INT(COUNT("baseline"), 1);
    CHECK(fill_scope(store, 1, 10) && db_winner_is(store, 1, 10, &diag));
}

DB_STORE_TEST(forgetting_is_all_or_nothing)
{
    CHECK(fill_scope(store, 1, 10) && fill_scope(store, 2, 20));
    fa_forgotten did = {0};
    fa_change change = {.store = store, .diag = &diag};
    while (fa_store_change(&change)) {
        CHECK_OK(forget(store, NULL, false, &did, &diag), diag);
        CHECK_INT(did.winners, 2);
        change.rc = FA_ECANCELED;
    }
    CHECK_INT(change.rc, FA_ECANCELED);
    CHECK(db_winner_is(store, 1, 10, &diag) && db_winner_is(store, 2, 20, &diag));
    CHECK_INT(COUNT("trial") + COUNT("scope") + COUNT("cubin"), 8);
}

#endif
