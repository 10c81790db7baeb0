/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of a sweep: who may take and end its items, what is added up, and what a damaged row does.
 */
#include "db_fixture.h"

#include "statements.h"

static const fa_sweep_spent nothing;
enum { ITEMS = 3 };

static void make_items(fa_sweep_item item[ITEMS])
{
    memset(item, 0, ITEMS * sizeof *item);
    for (int i = 0; i < ITEMS; i++) {
        item[i].problem = (fa_problem){.head_dim = 64, .batch = 1, .heads_q = 1, .heads_kv = 1,
                                       .seq_q = 64 << i, .seq_k = 64 << i};
        snprintf(item[i].gpu, sizeof item[i].gpu, "%s", i == 0 ? "" : "L4");
    }
}

static fa_sweep a_sweep(char letter)
{
    fa_sweep sweep = {.plan = "--seq 64:256:x2", .budget = {.seconds = 60, .trials = 5}};
    memset(sweep.key, letter, sizeof sweep.key - 1);
    return sweep;
}

static int64_t enter(char letter, bool restart)
{
    fa_sweep sweep = a_sweep(letter);
    fa_sweep_item item[ITEMS];
    int64_t id = 0;
    make_items(item);
    return fa_store_sweep_enter(store, &(fa_sweep_entry){&sweep, item, ITEMS, restart, NULL}, &id,
                                &diag) == 0
               ? id
               : 0;
}

static fa_sweep read_sweep(int64_t id)
{
    fa_sweep sweep = {.items = -1};
    fa_store_sweep_read(store, id, &sweep, &diag);
    return sweep;
}

static int take(int64_t id, fa_queue_claim *ret_claim)
{
    const fa_queue_taker taker = {.sweep_id = id, .stage = FA_WORK_MEASURE};
    return fa_store_queue_claim(store, &taker, ret_claim, NULL, &diag);
}

static int end(const fa_queue_claim *claim, fa_item_state state, const fa_sweep_spent *spent)
{
    const fa_queue_end ended = {state, .reason = "why", .spent = spent};
    return fa_store_queue_end(store, claim, &ended, &diag);
}

static void items_are_taken_in_order_each_once(void)
{
    int64_t id = enter('a', false), other = enter('b', false);
    CHECK(id > 0 && other > id);
    fa_queue_claim claim;
    for (int i = 0; i < ITEMS; i++) {
        CHECK_OK(take(id, &claim), diag);
        CHECK_INT(claim.position, i);
        CHECK_INT(claim.fence, 1);
        CHECK_OK(end(&claim, i == 1 ? FA_ITEM_FAILED : FA_ITEM_DONE, &nothing), diag);
    }
    CHECK_INT(take(id, &claim), FA_ENOTFOUND);
    fa_sweep sweep = read_sweep(id);
    CHECK_INT(sweep.items, ITEMS);
    CHECK_INT(sweep.done, 2);
    CHECK_INT(sweep.failed, 1);
    CHECK_INT(read_sweep(other).done, 0);
}

struct seen {
    fa_sweep_item item[ITEMS];
    int count;
};

static int see(void *context, int32_t position, const fa_sweep_item *item)
{
    struct seen *seen = context;
    if (position < ITEMS)
        seen->item[position] = *item;
    seen->count++;
    return 0;
}

static void spending_adds_up_for_the_item_and_the_sweep_over_all_runs(void)
{
    fa_queue_claim claim;
    struct seen seen = {0};
    int64_t id = enter('a', false);
    const fa_sweep_spent spent = {1.5, 0.25, 3, 4, 5};
    for (int run = 0; run < 2; run++) {
        CHECK_INT(enter('a', false), id);
        CHECK_OK(take(id, &claim), diag);
        CHECK_OK(fa_store_queue_spend(store, &claim, &spent, &diag), diag);
        CHECK_OK(end(&claim, FA_ITEM_DONE, &spent), diag);
    }
    fa_sweep sweep = read_sweep(id);
    CHECK(sweep.spent.seconds == 6 && sweep.spent.cost == 1);
    CHECK_INT(sweep.spent.trials, 12);
    CHECK_INT(sweep.spent.compiled, 16);
    CHECK_INT(sweep.spent.reused, 20);
    CHECK(sweep.budget.seconds == 60 && sweep.budget.trials == 5);
    CHECK_OK(fa_store_sweep_items_each(store, id, see, &seen, &diag), diag);
    CHECK_INT(seen.count, ITEMS);
    CHECK(seen.item[1].spent.seconds == 3 && seen.item[2].spent.seconds == 0);
    CHECK_INT(seen.item[1].problem.seq_q, 128);
    CHECK_TEXT(seen.item[0].gpu, "");
    CHECK_TEXT(seen.item[1].gpu, "L4");
}

static void coming_back_keeps_what_is_done_and_restarting_forgets_it(void)
{
    fa_queue_claim claim;
    const fa_sweep_spent spent = {.seconds = 2, .trials = 1};
    int64_t id = enter('a', false), other = enter('b', false);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(take(id, &claim), diag);
        CHECK_OK(end(&claim, i == 0 ? FA_ITEM_DONE : FA_ITEM_FAILED, &spent), diag);
    }
    CHECK_OK(fa_store_sweep_set_state(store, id, FA_SWEEP_BUDGET_SPENT, &diag), diag);
    CHECK_INT(read_sweep(id).state, FA_SWEEP_BUDGET_SPENT);
    CHECK_INT(enter('a', false), id);
    fa_sweep sweep = read_sweep(id);
    CHECK_INT(sweep.state, FA_SWEEP_RUNNING);
    CHECK(sweep.done == 1 && sweep.failed == 0 && sweep.spent.seconds == 4);
    CHECK_OK(fa_store_sweep_reopen(store, id, 0, &diag), diag);
    CHECK_INT(read_sweep(id).done, 0);
    int64_t anew = enter('a', true), found;
    sweep = read_sweep(anew);
    CHECK(sweep.done == 0 && sweep.items == ITEMS && sweep.spent.seconds == 0);
    CHECK_OK(fa_store_sweep_find(store, sweep.key, &found, &diag), diag);
    CHECK_INT(found, anew);
    CHECK_INT(read_sweep(other).items, ITEMS);
    CHECK_INT(fa_store_sweep_find(store, "no such key", &found, &diag), FA_ENOTFOUND);
}

static void what_cannot_be_is_not_entered(void)
{
    fa_sweep sweep = a_sweep('a');
    fa_sweep_item item[ITEMS];
    int64_t id;
    make_items(item);
    sweep.budget.seconds = NAN;
    CHECK_INT(fa_store_sweep_enter(store, &(fa_sweep_entry){&sweep, item, ITEMS, false, NULL}, &id,
                                   &diag),
              FA_EINVAL);
    sweep = a_sweep('a');
    CHECK_INT(
        fa_store_sweep_enter(store, &(fa_sweep_entry){&sweep, item, 0, false, NULL}, &id, &diag),
        FA_EINVAL);
    sweep.key[7] = 0;
    CHECK_INT(fa_store_sweep_enter(store, &(fa_sweep_entry){&sweep, item, ITEMS, false, NULL}, &id,
                                   &diag),
              FA_EINVAL);
    sweep = a_sweep('a');
    item[1].problem.head_dim = 7;
    CHECK_INT(fa_store_sweep_enter(store, &(fa_sweep_entry){&sweep, item, ITEMS, false, NULL}, &id,
                                   &diag),
              FA_EINVAL);
    make_items(item);
    memset(item[2].gpu, 'x', sizeof item[2].gpu);
    CHECK_INT(fa_store_sweep_enter(store, &(fa_sweep_entry){&sweep, item, ITEMS, false, NULL}, &id,
                                   &diag),
              FA_EINVAL);
    CHECK_INT(fa_store_sweep_find(store, sweep.key, &id, &diag), FA_ENOTFOUND);
}

static int count_sweep(void *context, const fa_sweep *sweep)
{
    (void)sweep;
    ++*(int *)context;
    return 0;
}

static void rows_that_are_not_valid_are_not_told(void)
{
    static const char *const damages[] = {
        "UPDATE sweep_item SET problem = '{}' WHERE position = 1",
        "UPDATE sweep_item SET problem_key = 'x' WHERE position = 1",
        "UPDATE sweep_item SET state = 'happy' WHERE position = 1",
        "UPDATE sweep_item SET seconds = -1 WHERE position = 1",
        "UPDATE sweep_item SET cost = " DB_INFINITY " WHERE position = 1",
        "UPDATE sweep_item SET gpu = " DB_REPEAT(100) " WHERE position = 1",
    };
    int64_t id = enter('a', false);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        struct seen seen = {0};
        id = enter('a', true);
        CHECK_OK(fa_db_exec(store, damages[i], &diag), diag);
        CHECK_OK(fa_store_sweep_items_each(store, id, see, &seen, &diag), diag);
        CHECK_INT(seen.count, ITEMS - 1);
    }
    int count = 0;
    fa_sweep sweep;
    CHECK_OK(fa_db_exec(store, "UPDATE sweep SET state = 'happy'", &diag), diag);
    CHECK_OK(fa_store_sweeps_each(store, count_sweep, &count, &diag), diag);
    CHECK_INT(count, 0);
    CHECK_INT(fa_store_sweep_read(store, id, &sweep, &diag), FA_ECORRUPT);
    CHECK_HAS(diag.text, "restart the sweep");
}

int main(void)
{
    DB_STORE_TEST(items_are_taken_in_order_each_once);
    DB_STORE_TEST(spending_adds_up_for_the_item_and_the_sweep_over_all_runs);
    DB_STORE_TEST(coming_back_keeps_what_is_done_and_restarting_forgets_it);
    DB_STORE_TEST(what_cannot_be_is_not_entered);
    DB_STORE_TEST(rows_that_are_not_valid_are_not_told);
    return check_done();
}
