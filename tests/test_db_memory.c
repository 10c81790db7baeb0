/* SPDX-License-Identifier: Apache-2.0
 *
 * The store when memory runs out: the n-th allocation of a call fails, n walked over the whole call, once
 * and for good. Every point ends in the right answer or in FA_ENOMEM, and the store keeps what it had.
 */
#include "db_fixture.h"

#include "statements.h"
#include "failing_allocator.h"

#include <stdlib.h>

enum { POINTS_MAX = 20000, ROWS = 3 };

/* What is walked over. 0: the right answer; else its code, or 1 for a wrong answer. */
typedef int step_under_test(fa_store *store);

static int look_up(fa_store *store)
{
    fa_scope scope = db_scope(2);
    FA_ENDS(fa_winner_record_free) fa_winner_record winner = {0};
    FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
    int rc = fa_store_winner_get(store, &scope, &winner, &cubin, NULL);
    if (rc == 0)
        rc = cubin.size != DB_CUBIN_SIZE || winner.trial.config.tunable[1].value != 2;
    return rc;
}

static int list_winners(fa_store *store)
{
    FA_ENDS(fa_free_at) fa_winner_record *row = NULL;
    size_t count = 0;
    int rc = fa_store_winners(store, NULL, &row, &count, NULL, NULL);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = row[i].trial.config.count != 3 || row[i].evidence == NULL;
    return rc != 0 ? rc : count != ROWS;
}

static int list_trials(fa_store *store)
{
    fa_scope scope = db_scope(1);
    FA_ENDS(fa_free_at) fa_study_trial *row = NULL;
    size_t count = 0;
    int rc = fa_store_trials(store, &scope, &row, &count, NULL);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = row[i].sample_count != DB_SAMPLES;
    return rc != 0 ? rc : count != ROWS;
}

static int claim_and_give_back(fa_store *store)
{
    fa_queue_claim claim;
    const fa_queue_taker taker = {NULL, NULL, FA_WORK_MEASURE, "here:1"};
    const fa_queue_end end = {FA_ITEM_PENDING};
    int rc = fa_store_queue_claim(store, &taker, &claim, NULL);
    if (rc != 0)
        return rc;
    allocator_stop();
    return fa_store_queue_end(store, &claim, &end, NULL);
}

static int put_worse_winner(fa_store *store)
{
    bool kept = false;
    static unsigned char bytes[DB_CUBIN_SIZE];
    fa_cubin_record cubin = db_cubin(2, bytes);
    fa_winner_record winner = db_winner(2, 2, FA_ORIGIN_PREDICTED);
    int rc = fa_store_winner_put(store, &winner, &cubin, false, &kept, NULL);
    return rc != 0 ? rc : !kept;
}

static bool fill(void)
{
    fa_store *store = db_open(&diag);
    bool good = store != NULL;
    fa_scope scope = db_scope(1);
    fa_sweep sweep = {.plan = "three"};
    fa_sweep_item items[ROWS] = {0};
    fa_hash_bytes("sweep", 5, sweep.key);
    for (int32_t i = 1; good && i <= ROWS; i++) {
        float samples[DB_SAMPLES];
        fa_study_trial record = db_trial_record((uint32_t)i, samples);
        good = db_put_winner(store, i, (uint32_t)i, FA_ORIGIN_MEASURED, NULL, &diag) == 0 &&
               fa_store_trial_put(store, &scope, &record, &diag) == 0;
        items[i - 1].problem = db_scope(i).problem;
        strcpy(items[i - 1].gpu, "L4");
    }
    good = good && fa_store_sweep_enter(
                       store, &(fa_sweep_entry){&sweep, items, ROWS, false, ""}, &diag) == 0;
    fa_store_close(&store);
    return good;
}

static int64_t number(fa_store *store, const char *sql)
{
    int64_t value = -1;
    fa_query query = fa_db_query(store, &diag, sql);
    return fa_db_step_id(&query, &value) == 0 ? value : -1;
}

static bool whole(void)
{
    fa_store *store = db_open(&diag);
    bool good = store != NULL && look_up(store) == 0 && list_winners(store) == 0 &&
                list_trials(store) == 0 && number(store, "SELECT count(*) FROM cubin") == ROWS &&
                number(store, "SELECT count(*) FROM sweep_item WHERE state = 'failed'") == 0;
    fa_store_close(&store);
    return good && db_count_files("store.db.corrupt-") == 0;
}

/* Whether every point of the step ended well. warm: statements are prepared already; cold, most of the
 * points are in the preparing, and every `stride`th one is tried. */
static bool walk(step_under_test *step, bool warm, bool lasting, int stride)
{
    for (long n = 1; n < POINTS_MAX; n += warm ? 1 : stride) {
        fa_store *store = db_open(&diag);
        if (store == NULL || (warm && step(store) != 0))
            return false;
        allocator_fail(n, lasting);
        int rc = step(store);
        bool failed = allocator_stop();
        fa_store_close(&store);
        if ((rc != 0 && rc != FA_ENOMEM) || (!failed && rc != 0)) {
            printf("# allocation %ld%s: the call answers %d: %s\n", n,
                   lasting ? " and all after" : "", rc, diag.text);
            return false;
        }
        if (!failed) {
            printf("# %ld points\n", n - 1);
            return n > 1;
        }
    }
    return false;
}

static void walk_all(step_under_test *step)
{
    if (!FAILING_ALLOCATOR)
        SKIP("the sanitizer has an allocator of its own");
    const int stride = getenv("FA_TEST_SLOW") != NULL ? 5 : 17;
    CHECK(fill());
    for (int i = 0; i < 4; i++)
        CHECK(walk(step, i / 2 == 1, i % 2 == 1, stride));
    CHECK(whole());
}

#define WALK_TEST(name, step) \
    DB_TEST(name)             \
    {                         \
        walk_all(step);       \
    }
WALK_TEST(a_lookup_without_memory_loses_no_winner, look_up)
WALK_TEST(a_list_of_winners_is_whole_or_fails, list_winners)
WALK_TEST(a_list_of_trials_is_whole_or_fails, list_trials)
WALK_TEST(an_item_does_not_fail_for_lack_of_memory, claim_and_give_back)
WALK_TEST(a_worse_winner_displaces_none_for_lack_of_memory, put_worse_winner)
