/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials of the store: all of a trial and of its samples comes back, newest of each config, and a
 * row that is not valid is never shown.
 */
#include "db_fixture.h"

#include <stddef.h>
#include <time.h>

struct seen {
    int count;
    uint32_t config[64];
    fa_study_trial last;
    float samples[DB_SAMPLES];
    bool texts_same;
};

static void see_trial(struct seen *seen, const fa_study_trial *record)
{
    if (seen->count < 64)
        seen->config[seen->count] = (uint32_t)record->trial.config.tunable[1].value;
    seen->count++;
    seen->last = *record;
    memcpy(seen->samples, record->samples_us, sizeof seen->samples);
    seen->texts_same = record->clocks != NULL && strcmp(record->clocks, "{\"sm_mhz\":2040}") == 0 &&
                       strcmp(record->environment, "{\"gpu\":\"L4\",\"driver\":13000}") == 0;
}

static int look(const fa_scope *scope, struct seen *seen)
{
    FA_ENDS(fa_free_at) fa_study_trial *record = NULL;
    size_t count = 0;
    int rc = fa_store_trials(store, scope, &record, &count, &diag);
    for (size_t i = 0; i < count; i++)
        see_trial(seen, &record[i]);
    return rc;
}

DB_STORE_TEST(a_trial_comes_back_with_all_its_samples)
{
    float samples[DB_SAMPLES];
    fa_scope scope = db_scope(512), other = db_scope(513);
    fa_study_trial put = db_trial_record(9, samples);
    strcpy(put.trial.reason, "slow \x1b[31m and \xff");
    CHECK_OK(fa_store_trial_put(store, &scope, &put, &diag), diag);
    struct seen seen = {0};
    CHECK_OK(look(&other, &seen), diag);
    CHECK_INT(seen.count, 0);
    CHECK_OK(look(&scope, &seen), diag);
    CHECK_INT(seen.count, 1);
    CHECK(fa_config_equal(&seen.last.trial.config, &put.trial.config));
    CHECK_INT(seen.last.sample_count, DB_SAMPLES);
    CHECK(memcmp(seen.samples, samples, sizeof samples) == 0);
#ifdef DB_ON_POSTGRES /* which takes UTF-8 only */
    CHECK_TEXT(seen.last.trial.reason, "slow \x1b[31m and ?");
#else
    CHECK_TEXT(seen.last.trial.reason, put.trial.reason);
#endif
    CHECK_TEXT(seen.last.cubin_key, put.cubin_key);
    CHECK(seen.last.seed == put.seed && seen.texts_same);
    CHECK(seen.last.unix_time >= (int64_t)time(NULL) - 60);
    CHECK_INT(seen.last.trial.grid[2], 4000000000u);
}

DB_STORE_TEST(a_failed_trial_keeps_its_reason_and_an_error_that_is_not_a_number)
{
    float samples[DB_SAMPLES];
    fa_scope scope = db_scope(512);
    fa_study_trial put = db_trial_record(9, samples);
    memset(&put.trial.threads, 0, sizeof put.trial - offsetof(fa_trial, threads));
    put.trial.status = FA_STATUS_WRONG;
    put.trial.max_error = NAN;
    put.trial.tolerance = INFINITY;
    strcpy(put.trial.reason, "row 3: NaN");
    CHECK_OK(fa_store_trial_put(store, &scope, &put, &diag), diag);
    struct seen seen = {0};
    CHECK_OK(look(&scope, &seen), diag);
    CHECK_INT(seen.count, 1);
    CHECK_INT(seen.last.trial.status, FA_STATUS_WRONG);
    CHECK(isnan(seen.last.trial.max_error) && isinf(seen.last.trial.tolerance));
    CHECK_TEXT(seen.last.trial.reason, "row 3: NaN");
}

DB_STORE_TEST(the_newest_trial_of_each_config_is_shown_oldest_first)
{
    float samples[DB_SAMPLES];
    fa_scope scope = db_scope(512);
    const uint32_t order[] = {1, 2, 3, 1};
    for (size_t i = 0; i < 4; i++) {
        fa_study_trial put = db_trial_record(order[i], samples);
        put.trial.registers = (int32_t)i;
        if (i == 3) { /* the same config, its tunables in another order */
            fa_tunable first = put.trial.config.tunable[0];
            put.trial.config.tunable[0] = put.trial.config.tunable[2];
            put.trial.config.tunable[2] = first;
        }
        CHECK_OK(fa_store_trial_put(store, &scope, &put, &diag), diag);
    }
    struct seen seen = {0};
    CHECK_OK(look(&scope, &seen), diag);
    CHECK_INT(seen.count, 3);
    CHECK(seen.config[0] == 2 && seen.config[1] == 3 && seen.config[2] == 1);
    CHECK_INT(seen.last.trial.registers, 3);
}

/* Trials of configs first, first + 1, …, count of them. */
static void put_trials(const fa_scope *scope, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        float samples[DB_SAMPLES];
        fa_study_trial put = db_trial_record(i, samples);
        CHECK_OK(fa_store_trial_put(store, scope, &put, &diag), diag);
    }
}

DB_STORE_TEST(nonsense_is_refused_before_it_is_stored)
{
    float samples[DB_SAMPLES];
    fa_scope scope = db_scope(512), bad = scope;
    fa_study_trial good = db_trial_record(1, samples), put = good;
    bad.problem.head_dim = 7;
    CHECK_INT(fa_store_trial_put(store, &bad, &good, &diag), FA_EINVAL);
    bad = scope;
    bad.silicon[0] = 0;
    CHECK_INT(fa_store_trial_put(store, &bad, &good, &diag), FA_EINVAL);
    put.trial.median_us = NAN;
    CHECK_INT(fa_store_trial_put(store, &scope, &put, &diag), FA_EINVAL);
    put.trial.median_us = 0; /* "measured" without a time */
    CHECK_INT(fa_store_trial_put(store, &scope, &put, &diag), FA_EINVAL);
    put = good;
    put.trial.config.count = FA_MAX_TUNABLES + 1;
    CHECK_INT(fa_store_trial_put(store, &scope, &put, &diag), FA_EINVAL);
    put = good;
    put.sample_count = -1;
    CHECK_INT(fa_store_trial_put(store, &scope, &put, &diag), FA_EINVAL);
    float seventh = samples[7];
    samples[7] = NAN;
    CHECK_FAILS(fa_store_trial_put(store, &scope, &good, &diag), FA_EINVAL, "sample 7");
    samples[7] = seventh;
    CHECK_OK(fa_store_trial_put(store, &scope, &good, &diag), diag);
}

/* Every one of these makes the row of config 1 invalid; the row of config 2 is still shown. */
DB_STORE_TEST(a_trial_row_that_was_changed_is_never_shown)
{
    static const char *const changes[] = {
        "status = 'splendid'",
        "config = '{'",
        "config = '{\"family\":\"a\",\"tunables\":{}}'",
        "config_key = 'x'",
        "reason = " DB_REPEAT(600),
#ifndef DB_ON_POSTGRES /* which has no such texts */
        "reason = 'a' || char(0) || 'b'",
#endif
        "threads = 4294967296",
        "grid_x = -1",
        "sample_count = -5",
        "median_us = " DB_INFINITY,
#ifdef DB_ON_POSTGRES /* SQLite has none */
        "median_us = 'NaN'",
#endif
        "median_us = NULL",
        "compile_ms = -8.5",
        "samples = " DB_BYTES("010203"),
        "samples = " DB_BYTES("00000000"),
        "samples_hash = ''",
        "unix_time = -1",
        "cubin_key = " DB_REPEAT(65),
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        fa_scope scope = db_scope((int32_t)(100 + i));
        put_trials(&scope, 1, 2);
        char sql[256];
        snprintf(sql, sizeof sql, "UPDATE trial SET %s WHERE id = (SELECT max(id) - 1 FROM trial)",
                 changes[i]);
        CHECK(db_tamper(sql));
        struct seen seen = {0};
        CHECK_OK(look(&scope, &seen), diag);
        if (seen.count != 1 || seen.config[0] != 2)
            printf("# after %s\n", changes[i]);
        CHECK_INT(seen.count, 1);
        CHECK_INT(seen.config[0], 2);
    }
#ifndef DB_ON_POSTGRES
    CHECK(!db_tamper("UPDATE trial SET samples = 'text'")); /* the table is STRICT */
#endif
}
