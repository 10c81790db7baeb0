/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps and their queue: who may take and end items, what is added up, what a damaged row does; and locks.
 */
#include "db_fixture.h"

#include "operation.h"
#include "statements.h"

enum { ITEMS = 3 };

static void make_items(fa_sweep_item item[ITEMS])
{
    memset(item, 0, ITEMS * sizeof *item);
    for (int i = 0; i < ITEMS; i++) {
        item[i].problem = (fa_problem){.head_dim = 64,
                                       .batch = 1,
                                       .heads_q = 1,
                                       .heads_kv = 1,
                                       .dtype = FA_BF16,
                                       .seq_q = 64 << i,
                                       .seq_k = 64 << i};
        snprintf(item[i].gpu, sizeof item[i].gpu, "%s", i == 1 ? "H100" : "L4");
    }
}

static fa_sweep a_sweep(char letter)
{
    fa_sweep sweep = {.plan = "--seq 64:256:x2", .budget = {.seconds = 60, .trials = 50}};
    memset(sweep.key, letter, sizeof sweep.key - 1);
    return sweep;
}

static int enter(char letter, bool restart)
{
    fa_sweep sweep = a_sweep(letter);
    fa_sweep_item item[ITEMS];
    make_items(item);
    return fa_store_sweep_enter(
        store, &(fa_sweep_entry){&sweep, item, ITEMS, restart, "{\"effort\":1}"}, &diag);
}

static fa_sweep read_sweep(char letter)
{
    fa_sweep sweep = {.items = -1};
    fa_store_sweep_read(store, a_sweep(letter).key, &sweep, &diag);
    return sweep;
}

static int claim_from(fa_store *from, const char *gpu, fa_work_stage stage,
                      fa_queue_claim *ret_claim)
{
    const fa_queue_taker taker = {.gpu = gpu, .stage = stage, .holder = "ada:1"};
    return fa_store_queue_claim(from, &taker, ret_claim, &diag);
}

static int claim(const char *gpu, fa_queue_claim *ret_claim)
{
    return claim_from(store, gpu, FA_WORK_MEASURE, ret_claim);
}

static int end_as(fa_queue_claim *held, fa_item_state state, const fa_sweep_spent *spent)
{
    const fa_queue_end ended = {.state = state, .reason = "why", .spent = spent};
    return fa_store_queue_end(store, held, &ended, &diag);
}

struct seen {
    fa_sweep_item item[ITEMS];
    int count;
};

static struct seen items_of(char letter)
{
    struct seen seen = {.count = -1};
    FA_ENDS(fa_free_at) fa_sweep_item *row = NULL;
    size_t count = 0;
    if (fa_store_sweep_items(store, a_sweep(letter).key, &row, &count, &diag) == 0)
        seen.count = (int)count;
    for (size_t i = 0; i < count; i++)
        if (row[i].index < ITEMS)
            seen.item[row[i].index] = row[i];
    return seen;
}

/* ---- claims ---------------------------------------------------------------------------------*/
DB_STORE_TEST(items_are_taken_in_order_each_once_by_those_of_their_gpu)
{
    fa_queue_claim one, two, three, none;
    CHECK_OK(enter('a', false), diag);
    CHECK_OK(enter('b', false), diag);
    CHECK_INT(claim("B200", &none), FA_ENOTFOUND);
    CHECK_OK(claim("H100", &one), diag);
    CHECK(one.item.index == 1 && one.item.attempts == 1 && one.item.problem.seq_q == 128);
    CHECK_TEXT(one.request, "{\"effort\":1}");
    CHECK_OK(claim(NULL, &two), diag);
    CHECK_INT(two.item.index, 0);
    CHECK_OK(claim("L4", &three), diag);
    CHECK_INT(three.item.index, 2);
    fa_sweep sweep = read_sweep('a');
    CHECK(sweep.running == 3 && sweep.done == 0);
    CHECK_TEXT(items_of('a').item[1].holder, "ada:1");
    CHECK_OK(end_as(&one, FA_ITEM_DONE, NULL), diag);
    CHECK_OK(end_as(&two, FA_ITEM_FAILED, NULL), diag);
    CHECK_INT(read_sweep('a').state, FA_SWEEP_RUNNING);
    CHECK_OK(end_as(&three, FA_ITEM_DONE, NULL), diag);
    sweep = read_sweep('a');
    CHECK(sweep.items == 3 && sweep.done == 2 && sweep.failed == 1 && sweep.running == 0);
    CHECK_INT(sweep.state, FA_SWEEP_DONE);
    CHECK_INT(read_sweep('b').done, 0);
    CHECK_TEXT(items_of('a').item[0].reason, "why");
    CHECK_OK(enter('a', false), diag); /* what failed is tried again */
    CHECK_OK(claim("L4", &one), diag);
    CHECK(one.item.index == 0 && one.item.attempts == 2);
    CHECK_OK(end_as(&one, FA_ITEM_PENDING, NULL), diag);
}

DB_STORE_TEST(who_works_on_an_item_keeps_it_and_when_he_is_gone_it_is_anybodys)
{
    fa_queue_claim lost, held;
    fa_store *other = db_open(&diag);
    CHECK(other != NULL);
    CHECK_OK(enter('a', false), diag);
    CHECK_OK(claim_from(other, "H100", FA_WORK_MEASURE, &lost), diag);
    CHECK_INT(claim("H100", &held), FA_ENOTFOUND);
    CHECK_OK(enter('a', false), diag); /* it stays with him */
    CHECK_INT(claim("H100", &held), FA_ENOTFOUND);
    CHECK_INT(read_sweep('a').running, 1);
    fa_lock_release(&lost.lock); /* as his death does */
    CHECK_INT(read_sweep('a').running, 1); /* until somebody takes it */
    CHECK_OK(claim("H100", &held), diag);
    CHECK(held.item.index == 1 && held.item.attempts == 2);
    CHECK_OK(fa_store_queue_end(other, &lost, &(fa_queue_end){.state = FA_ITEM_FAILED}, &diag),
             diag);
    CHECK_INT(read_sweep('a').failed, 0); /* it is no longer his */
    CHECK_OK(end_as(&held, FA_ITEM_DONE, NULL), diag);
    CHECK_INT(read_sweep('a').done, 1);
    fa_store_close(&other);
}

DB_STORE_TEST(compiling_comes_before_measuring_where_somebody_compiles)
{
    fa_queue_claim held;
    const fa_queue_end compiled = {.state = FA_ITEM_PENDING, .compiled = true};
    CHECK_OK(enter('a', false), diag);
    CHECK_OK(claim_from(store, NULL, FA_WORK_COMPILE, &held), diag);
    CHECK_OK(fa_store_queue_end(store, &held, &compiled, &diag), diag);
    CHECK_OK(claim_from(store, "L4", FA_WORK_COMPILE, &held), diag);
    CHECK_INT(held.item.index, 2);
    CHECK_OK(fa_store_queue_end(store, &held, &compiled, &diag), diag);
    CHECK_INT(claim_from(store, "L4", FA_WORK_COMPILE, &held), FA_ENOTFOUND);
    CHECK_INT(read_sweep('a').compiled, 2);
    CHECK_OK(claim(NULL, &held), diag);
    CHECK(held.item.index == 0 && held.compiled);
    CHECK_OK(end_as(&held, FA_ITEM_DONE, NULL), diag);
}

/* ---- what is spent --------------------------------------------------------------------------*/
DB_STORE_TEST(spending_adds_up_and_a_budget_that_is_spent_closes_the_sweep)
{
    fa_queue_claim held;
    const fa_sweep_spent spent = {1.5, 3, 4, 5};
    CHECK_OK(enter('a', false), diag);
    for (int run = 0; run < 2; run++) {
        CHECK_OK(enter('a', false), diag);
        CHECK_OK(claim("L4", &held), diag);
        CHECK_OK(end_as(&held, FA_ITEM_DONE, &spent), diag);
    }
    fa_sweep sweep = read_sweep('a');
    CHECK(sweep.spent.seconds == 3 && sweep.spent.trials == 6);
    CHECK(sweep.spent.compiled == 8 && sweep.spent.reused == 10);
    CHECK(sweep.budget.seconds == 60 && sweep.budget.trials == 50);
    CHECK(items_of('a').item[0].spent.seconds == 1.5 && items_of('a').item[1].spent.seconds == 0);
    CHECK_OK(claim("H100", &held), diag);
    CHECK_OK(end_as(&held, FA_ITEM_PENDING, &(fa_sweep_spent){.seconds = 60}), diag);
    CHECK_INT(read_sweep('a').state, FA_SWEEP_BUDGET_SPENT);
    CHECK_INT(claim("H100", &held), FA_ENOTFOUND);
}

DB_STORE_TEST(coming_back_keeps_what_is_done_and_restarting_forgets_it)
{
    fa_queue_claim held;
    fa_sweep sweep = a_sweep('a');
    CHECK_OK(enter('a', false), diag);
    CHECK_OK(enter('b', false), diag);
    CHECK_OK(claim("L4", &held), diag);
    CHECK_OK(end_as(&held, FA_ITEM_DONE, &(fa_sweep_spent){.seconds = 2}), diag);
    CHECK_OK(fa_store_sweep_set_state(store, sweep.key, FA_SWEEP_STOPPED, &diag), diag);
    CHECK_OK(claim("H100", &held), diag); /* of the other sweep */
    CHECK_INT(held.key[0], 'b');
    CHECK_OK(end_as(&held, FA_ITEM_PENDING, NULL), diag);
    CHECK_OK(enter('a', false), diag);
    sweep = read_sweep('a');
    CHECK(sweep.state == FA_SWEEP_RUNNING && sweep.done == 1 && sweep.spent.seconds == 2);
    CHECK_OK(fa_store_sweep_reopen(store, sweep.key, 0, &diag), diag);
    CHECK_INT(read_sweep('a').done, 0);
    CHECK_OK(enter('a', true), diag);
    CHECK(read_sweep('a').items == ITEMS && read_sweep('a').spent.seconds == 0);
    CHECK_INT(read_sweep('b').items, ITEMS);
    CHECK_INT(fa_store_sweep_read(store, "no such key", &sweep, &diag), FA_ENOTFOUND);
}

/* ---- what cannot be -------------------------------------------------------------------------*/
DB_STORE_TEST(rows_that_are_not_valid_are_not_told_and_fail_when_they_are_taken)
{
    static const char *const damages[] = {
        "UPDATE sweep_item SET problem = '{}' WHERE position = 1",
        "UPDATE sweep_item SET problem_key = 'x' WHERE position = 1",
        "UPDATE sweep_item SET seconds = -1 WHERE position = 1",
        "UPDATE sweep_item SET seconds = " DB_INFINITY " WHERE position = 1",
    };
    fa_queue_claim held;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        CHECK_OK(enter('a', true), diag);
        CHECK_OK(fa_db_exec(store, damages[i], &diag), diag);
        CHECK_INT(items_of('a').count, ITEMS - 1);
        CHECK_INT(claim("H100", &held), FA_ENOTFOUND);
        CHECK_INT(read_sweep('a').failed, i < 2 ? 1 : 0); /* else the sum is not valid either */
    }
    CHECK_OK(enter('a', true), diag);
    CHECK_OK(fa_db_exec(store, "UPDATE sweep SET request = " DB_REPEAT(2000), &diag), diag);
    CHECK_INT(claim(NULL, &held), FA_ENOTFOUND);
    CHECK(read_sweep('a').failed == ITEMS && read_sweep('a').state == FA_SWEEP_DONE);
    size_t count = 1;
    fa_sweep sweep, *listed = NULL;
    CHECK_OK(fa_db_exec(store, "UPDATE sweep SET state = 'happy'", &diag), diag);
    CHECK_OK(fa_store_sweeps(store, NULL, &listed, &count, &diag), diag);
    CHECK_INT(count, 0);
    CHECK_FAILS(fa_store_sweep_read(store, a_sweep('a').key, &sweep, &diag), FA_ECORRUPT,
                "restart the sweep");
}

/* As a worker meets it whose template directory has another edition of the operation. */
DB_STORE_TEST(an_item_of_an_operation_with_other_fields_now_is_passed_over_and_stays)
{
    static const char now[] = "{\"name\":\"queued\",\"title\":\"queued\",\"sizes\":{"
                              "\"rows\":{\"key\":\"r\"}}}";
    const fa_operation *operation = NULL;
    fa_queue_claim held;
    CHECK_OK(enter('a', false), diag);
    CHECK_OK(fa_operation_register(now, sizeof now - 1, "test", &operation, &diag), diag);
    CHECK_OK(fa_db_exec(store,
                        "UPDATE sweep_item SET problem = '{\"operation\":\"queued\",\"lines\":4}', "
                        "problem_key = 'queued l=4' WHERE position = 0",
                        &diag),
             diag);
    CHECK_OK(claim("L4", &held), diag);
    CHECK_INT(held.item.index, 2);
    CHECK_OK(end_as(&held, FA_ITEM_DONE, NULL), diag);
    CHECK_INT(read_sweep('a').failed, 0);
}

/* ---- locks ----------------------------------------------------------------------------------*/
DB_STORE_TEST(a_lock_has_one_holder_or_those_who_share_it)
{
    fa_lock *one = NULL, *two = NULL, *alone = NULL;
    fa_store *other = db_open(&diag);
    CHECK(other != NULL);
    CHECK_OK(fa_store_lock(store, "key", false, &one, &diag), diag);
    CHECK_INT(fa_store_lock(store, "key", false, &two, &diag), FA_EBUSY); /* nor another thread */
    CHECK_INT(fa_store_lock(other, "key", true, &two, &diag), FA_EBUSY);
    CHECK_OK(fa_store_lock(other, "another-key", false, &two, &diag), diag);
    fa_lock_release(&one);
    fa_lock_release(&two);
    CHECK_OK(fa_store_lock(store, "key", true, &one, &diag), diag);
    CHECK_OK(fa_store_lock(other, "key", true, &two, &diag), diag);
    CHECK_INT(fa_store_lock(store, "key", false, &alone, &diag), FA_EBUSY);
    fa_lock_release(&one);
    CHECK_INT(fa_store_lock(store, "key", false, &alone, &diag), FA_EBUSY);
    fa_lock_release(&two);
    CHECK_OK(fa_store_lock(store, "key", false, &alone, &diag), diag);
    fa_lock_release(&alone);
    fa_store_close(&other);
}

DB_STORE_TEST(a_killed_holder_holds_no_lock_any_more)
{
    fa_lock *lock = NULL;
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fa_store *own = db_open(&diag);
        if (own != NULL && fa_store_lock(own, "key", false, &lock, &diag) == 0)
            raise(SIGKILL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    int rc;
    while ((rc = fa_store_lock(store, "key", false, &lock, &diag)) == FA_EBUSY)
        usleep(1000); /* until a server has noticed */
    CHECK_OK(rc, diag);
    fa_lock_release(&lock);
}
